/* run_speed.h - time of an inner step of a node: given on the command line, or measured. */
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
    uint32_t sequences, batch; /* sequences that were measured, and sequences of a whole step */
    char engine[128];          /* engine of the measurement or plan */
    /* memory that training takes by the engine's plan, and that it may take; 0: unknown */
    uint64_t training_bytes, limit_bytes;
    bool does_fit;
    /* memory of a worker by the plan: host and device of thinwire-worker, and libthinwire in a
     * trainer of the user's own; 0: unknown */
    uint64_t host_bytes, device_bytes, device_limit_bytes, library_bytes;
};

/* Takes --steps-per-s or --step-time from the command line. */
enum tw_exit cli_speed_read(struct cli *cli, struct cli_speed *speed);

/* Runs a few steps of that run with the engine beside this program; takes seconds. *run has been
 * checked. Prints errors itself. */
enum tw_exit cli_speed_measure(const struct tw_run *run, struct cli_speed *speed);

/* Plans the memory of a worker with the engine beside this program, without training. compute NULL:
 * the engine's own choice. False: it cannot be planned. */
bool cli_speed_plan(const struct tw_run *run, const struct tw_compute_config *compute,
                    struct cli_speed *speed);

/* The speed to calculate with. If none was given: the planned speed of a run paced by the clock,
 * else a guess. */
struct cli_pace cli_speed_pace(const struct cli_speed *speed, const struct tw_run *run);

#endif
