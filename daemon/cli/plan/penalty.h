/* penalty.h - expected excess loss of a merged run, by the measured runs of tests/RECORDS.md. */
#ifndef TW_DAEMON_CLI_PLAN_PENALTY_H
#define TW_DAEMON_CLI_PLAN_PENALTY_H

#include "proto/run/run.h"

/* Properties of a run that determine its excess loss. */
struct penalty_case {
    enum tw_preset preset;
    enum tw_codec_id codec, result;
    double nodes;
    double bits; /* bits per parameter of a contribution: fixed by the codec, or chosen by `auto` */
    double merges; /* merges of each fragment over the whole run */
    double steps;  /* inner steps of each node */
    double late;   /* time from sending to applying, as a fraction of the period */
};

/* Returns the expected excess loss, as a ratio (0.02 is 2 %), over one machine that trains with the
 * batch of all nodes, and the same optimizer. The records are of small models, with AdamW and Muon
 * alike. Longer runs than theirs lose less than this returns. Never exceeds penalty_alone. */
double penalty_expect(const struct penalty_case *run);

/* Returns the excess loss, as a ratio, of one node that trains alone for so many steps, over one
 * machine with the batch of all nodes. */
double penalty_alone(double steps, double nodes);

#endif
