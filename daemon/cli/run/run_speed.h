/* run_speed.h - a node's time for an inner step: given on the command line, or measured. */
#ifndef TW_DAEMON_CLI_RUN_RUN_SPEED_H
#define TW_DAEMON_CLI_RUN_RUN_SPEED_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/cli/common/cli.h"
#include "daemon/cli/run/manifest_text.h"
#include "proto/run/run.h"

struct cli_speed {
    double steps_per_s; /* 0: neither given nor measured */
    bool is_measured;
    uint32_t sequences, batch; /* sequences measured; sequences in a whole step */
    char engine[128];          /* engine to which speed and memory apply */
    /* memory that training needs by the engine's plan; its limit; 0: unknown */
    uint64_t training_bytes, limit_bytes;
    bool does_fit;
    /* memory of the worker by the plan; 0: unknown. host, device: thinwire-worker. library:
     * libthinwire in a user's trainer */
    uint64_t host_bytes, device_bytes, device_limit_bytes, library_bytes;
};

/* Reads --steps-per-s or --step-time from the command line. */
enum tw_exit cli_speed_read(struct cli *cli, struct cli_speed *speed);

/* Measures a few steps of the run with the engine beside this program, which needs seconds. *run
 * must have been checked. Prints errors itself. */
enum tw_exit cli_speed_measure(const struct tw_run *run, struct cli_speed *speed);

/* Computes the memory of a worker, without training, with the engine beside this program. `compute`
 * NULL: the engine's own choice. Returns false on failure. */
bool cli_speed_plan(const struct tw_run *run, const struct tw_compute_config *compute,
                    struct cli_speed *speed);

/* Returns the speed for further calculations. If none was given or measured: the planned speed of a
 * run with clock pace, else a guess. */
struct cli_pace cli_speed_pace(const struct cli_speed *speed, const struct tw_run *run);

#endif
