/* penalty.h - expected loss of a merged run, from the runs of tests/RECORDS.md. */
#ifndef TW_DAEMON_CLI_PLAN_PENALTY_H
#define TW_DAEMON_CLI_PLAN_PENALTY_H

#include "proto/run/run.h"

/* The causes of a loss. */
struct penalty_case {
    enum tw_preset preset;
    enum tw_codec_id codec;
    double bits;   /* bits per parameter of a contribution; with `auto` not those of a codec */
    double merges; /* merges of each fragment, over the whole run */
    double steps;  /* inner steps of a node */
    double late;   /* time from sending to applying, as a fraction of the period */
};

/* Loss above that of one machine that trains with the batch of all nodes, as a ratio: 0.02 is 2 %.
 * The records are of small models with eight nodes. Longer runs than theirs lose less than this
 * says. Never above penalty_alone. */
double penalty_expect(const struct penalty_case *run);

/* Loss above that of one machine with the batch of all nodes, if one node trains alone for so many
 * steps. */
double penalty_alone(double steps);

#endif
