/* run_traffic.h - bytes that the nodes of a run send and receive. */
#ifndef TW_DAEMON_CLI_RUN_RUN_TRAFFIC_H
#define TW_DAEMON_CLI_RUN_RUN_TRAFFIC_H

#include "proto/run/run.h"

/* Traffic of a node. Upload equals download: a node receives as many contributions and results as
 * it sends. */
struct cli_traffic {
    double payload;  /* bytes of contributions and results in a round of an average fragment */
    double round;    /* the payload with the messages and headers of the round, bytes */
    double idle;     /* bytes per second outside of rounds */
    double rounds_s; /* rounds of any fragment per second, as planned */
};

/* Traffic of a run with `params` parameters, contributions of `bits` per parameter, and nodes of
 * that speed. */
struct cli_traffic cli_traffic_of(const struct tw_run *run, double params, double bits,
                                  double steps_per_s);

/* Bytes per second, each way, with that many rounds per second. */
double cli_traffic_rate(const struct cli_traffic *traffic, double rounds_s);

/* Bits per parameter of a contribution that no budget limits. */
double cli_contribution_bits(const struct tw_run *run);

/* Bits per parameter of a result. A merge of sparse contributions has values at the positions of
 * all of them. */
double cli_result_bits(const struct tw_run *run);

#endif
