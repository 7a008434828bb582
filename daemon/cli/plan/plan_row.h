/* plan_row.h - cost of a run on given nodes and links: bytes, time of a round, expected loss. */
#ifndef TW_DAEMON_CLI_PLAN_PLAN_ROW_H
#define TW_DAEMON_CLI_PLAN_PLAN_ROW_H

#include <stdbool.h>

#include "daemon/cli/run/run_budget.h"
#include "proto/run/run.h"

/* The nodes of the run, assumed to be alike. */
struct plan_nodes {
    double steps_per_s;              /* inner steps per second of each node */
    double upload_s, download_s;     /* bytes per second of each node's line; 0: not known */
    double rtt_s;                    /* seconds for a round trip between two nodes */
    const struct cli_budget *budget; /* byte budget; limit.bytes is 0: none */
};

struct plan_row {
    struct tw_run run;
    double bits;       /* bits per parameter of a contribution */
    double round_s;    /* seconds from the first contribution to the merge */
    double interval_s; /* seconds between two rounds: as planned, or as short as the line permits */
    double period;     /* inner steps between two merges of the same fragment */
    double merges;     /* merges of each fragment over the whole run */
    double day_bytes;  /* bytes that a node sends per day; it receives as many */
    double used;       /* fraction of the slower direction of the line that is used; 0: not known */
    double busy;       /* fraction of the time spent in inner steps */
    double loss;       /* expected excess loss over one machine with the batch of all nodes, as a
                          ratio */
    bool is_line_full; /* a round takes longer than the planned interval between rounds */
    bool is_over;      /* exceeds the budget */
};

/* Computes all other fields from row->run. `params`: parameters of the model. */
void plan_row_fill(struct plan_row *row, double params, const struct plan_nodes *nodes);

/* Returns the index of the recommended row, or `count` if line and budget permit none. Among the
 * rows that they permit, those within 0.01 of the best excess loss qualify; the one with the fewest
 * bytes is chosen. */
unsigned plan_row_choose(const struct plan_row *rows, unsigned count);

#endif
