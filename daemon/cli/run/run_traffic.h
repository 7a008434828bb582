/* run_traffic.h - bytes that each node of a run sends and receives. */
#ifndef TW_DAEMON_CLI_RUN_RUN_TRAFFIC_H
#define TW_DAEMON_CLI_RUN_RUN_TRAFFIC_H

#include "proto/run/run.h"

/* Traffic of one node. Upload equals download: a node receives as many contributions and results as
 * it sends. */
struct cli_traffic {
    double payload;  /* bytes of contributions and results in one round, for a fragment of average
                        size */
    double round;    /* bytes of one round: payload, checks of training, messages, headers */
    double idle;     /* bytes per second outside of rounds */
    double rounds_s; /* planned rounds per second, of any fragment */
};

/* Returns the traffic of a run with `params` parameters, contributions of `bits` bits per
 * parameter, and nodes that do `steps_per_s` inner steps per second. */
struct cli_traffic cli_traffic_of(const struct tw_run *run, double params, double bits,
                                  double steps_per_s);

/* Returns the bytes per second in each direction at that many rounds per second. */
double cli_traffic_rate(const struct cli_traffic *traffic, double rounds_s);

/* Returns the time of a node's checks of training (sync.jury) as a fraction of the time of its
 * steps. */
double cli_checks_time(const struct tw_run *run);

/* Returns the bits per parameter of a contribution without a budget. */
double cli_contribution_bits(const struct tw_run *run);

#endif
