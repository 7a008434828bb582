/* ways.h - the ways to merge a run: their bytes, times and expected loss on given nodes and lines,
 * and the best one. `thinwire plan` compares them; `run new` takes the best. */
#ifndef TW_DAEMON_CLI_RUN_WAYS_H
#define TW_DAEMON_CLI_RUN_WAYS_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "daemon/cli/run/run_wish.h"
#include "proto/run/run.h"

enum { WAYS_MAX = 40 };

/* Nine of ten measured runs had an excess loss between the expected one divided by this factor and
 * the expected one times this factor (tests/RECORDS.md, "Loss expected by plan"). */
#define WAY_LOSS_SPREAD 1.4

/* The nodes of the run, assumed to be alike. */
struct way_nodes {
    double params;      /* of the model */
    double steps_per_s; /* inner steps per second of each node */
    struct cli_line line;
    const struct tw_budget_config *budget; /* bytes 0: none */
};

struct way {
    struct tw_run run;
    double bits;       /* bits per parameter of a contribution */
    double round_s;    /* seconds from the first contribution to the merge */
    double interval_s; /* seconds between two rounds: as planned, or as short as the line permits */
    double period;     /* inner steps between two merges of the same fragment */
    double merges;     /* merges of each fragment over the whole run */
    double day_bytes;  /* bytes that a node sends per day; it receives as many */
    double used;       /* fraction of the slower direction of the line that is used; 0: not known */
    double busy;       /* fraction of the time spent in inner steps */
    double loss;       /* expected excess loss over one machine with the batch of all nodes and the
                          same optimizer, as a ratio (0.02 is 2 %); at most that of a node alone */
    bool is_line_full; /* a round takes longer than the planned interval between rounds */
    bool is_over;      /* exceeds the budget */
};

/* Computes all other fields from way->run, which must have been checked. */
void way_fill(struct way *way, const struct way_nodes *nodes);

/* Returns the excess loss, as a ratio, of one node that trains alone for so many steps, over one
 * machine with the batch of all `nodes`. */
double way_loss_alone(double steps, double nodes);

/* Fills ways[WAYS_MAX] with the run itself, other presets, longer periods, coarser codecs, and
 * last a node alone. If the user chose a preset, only that one is listed. Keys that the user set
 * stay. Returns their number; *best is the index of the best one, or their number if line and
 * budget carry none. Of the ways within 0.005 of the least excess loss, the best is the one with
 * the fewest bytes. */
unsigned ways_list(const struct tw_run *run, const struct cli_wish *wish,
                   const struct way_nodes *nodes, struct way ways[WAYS_MAX], unsigned *best);

/* Replaces the run by the best of all ways for the user's line and budget. Keys that the user set
 * stay. With a line that carries no way, takes the one with the least loss. Returns TW_CONFIG and
 * leaves *run unchanged if no way stays within the budget; the error names the smallest one. */
enum tw_status ways_fit(struct tw_run *run, const struct cli_wish *wish, struct tw_error *err);

/* Returns the bits per parameter that the budget leaves for contributions, at most the codec's
 * own. */
double ways_budget_bits(const struct tw_run *run, const struct cli_wish *wish);

/* Returns speed, bits per parameter and bytes as an object for --json. */
json_t *ways_budget_json(const struct tw_run *run, const struct cli_wish *wish);

/* Prints the bytes of a round and of 30 days. */
void ways_budget_explain(FILE *to, const struct tw_run *run, const struct cli_wish *wish);

/* Returns the expected excess loss of the run, as way->loss. The speed must be known. */
double ways_loss(const struct tw_run *run, const struct cli_wish *wish);

/* Returns the expected excess loss for `status --json`: that of the manifest, and the one that
 * follows from the nodes, the speed and the time between rounds in the object of GET /v1/status,
 * null while these are not known or the node merges with no other. Does not know the line. */
json_t *ways_expected_json(const struct tw_run *run, const json_t *status);

/* Prints the share of the line that merging takes, and the expected loss. The speed must be known.
 */
void ways_explain(FILE *to, const struct tw_run *run, const struct cli_wish *wish);

#endif
