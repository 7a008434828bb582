/* plan_row.h - cost of a run on given nodes and links: bytes, time of a round, expected loss. */
#ifndef TW_DAEMON_CLI_PLAN_PLAN_ROW_H
#define TW_DAEMON_CLI_PLAN_PLAN_ROW_H

#include <stdbool.h>

#include "daemon/cli/run/run_budget.h"
#include "proto/run/run.h"

/* The nodes, which are taken to be alike. */
struct plan_nodes {
    double steps_per_s;              /* inner steps per second of a node */
    double upload_s, download_s;     /* bytes per second of a node's line; 0: not known */
    double rtt_s;                    /* round-trip time between two nodes */
    const struct cli_budget *budget; /* limit.bytes 0: none */
};

struct plan_row {
    struct tw_run run;
    double bits;       /* bits per parameter of a contribution */
    double round_s;    /* seconds from the first contribution to the merge */
    double interval_s; /* seconds between two rounds: planned, or as few as the line permits */
    double period;     /* inner steps between two merges of a fragment */
    double merges;     /* merges of a fragment over the whole run */
    double day_bytes;  /* bytes that a node sends in a day; it receives as many */
    double used;       /* used fraction of the line, upload or download, the larger; 0: not known */
    double busy;       /* fraction of the time spent in inner steps */
    double loss;       /* loss above that of one machine with the batch of all nodes, as a ratio */
    bool is_line_full; /* rounds take longer than the planned time between them */
    bool is_over;      /* exceeds the budget */
};

/* Computes row->* from row->run. `params`: parameters of the model. */
void plan_row_fill(struct plan_row *row, double params, const struct plan_nodes *nodes);

/* The row to recommend: of the rows that the line and the budget carry and that lose at most one
 * percent more than the best of these, the one with the fewest bytes. Returns count if none is
 * carried. */
unsigned plan_row_choose(const struct plan_row *rows, unsigned count);

#endif
