/* run_speed.h - how long an inner step of a node takes: said on the command line, or measured. */
#ifndef TW_DAEMON_CLI_RUN_RUN_SPEED_H
#define TW_DAEMON_CLI_RUN_RUN_SPEED_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/cli/common/cli.h"
#include "daemon/cli/run/manifest_text.h"
#include "proto/run/run.h"

struct cli_speed {
    double steps_per_s; /* 0: neither said nor measured */
    bool is_measured;
    uint32_t sequences, batch; /* that were measured, of a step */
    char engine[128];          /* what it was measured on */
};

/* Takes --steps-per-s or --step-time off the command line. */
enum tw_exit cli_speed_read(struct cli *cli, struct cli_speed *speed);

/* Takes a few steps of that run with the engine beside this program: seconds. *run is checked. Says
 * itself why it cannot be. */
enum tw_exit cli_speed_measure(const struct tw_run *run, struct cli_speed *speed);

/* What to reckon with where nobody said: as a run by the clock is planned, else a guess. */
struct cli_pace cli_speed_pace(const struct cli_speed *speed, const struct tw_run *run);

#endif
