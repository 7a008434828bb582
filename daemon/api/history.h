/* history.h - the past of a run for its page: losses and outcomes of rounds, in fixed memory. */
#ifndef TW_DAEMON_API_HISTORY_H
#define TW_DAEMON_API_HISTORY_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/api/status_view.h"

enum {
    TW_HISTORY_LOSSES_MAX = 512,
    TW_HISTORY_ROUNDS_MAX = 10000, /* at a period of 10 s, the last day */
};

/* Outcome of a round as this node saw it, one letter in JSON. */
enum tw_outcome {
    TW_OUTCOME_UNSEEN = '.', /* closed while this node was away */
    TW_OUTCOME_OURS = 'm',   /* merged with this node's work in it */
    TW_OUTCOME_OTHERS = 'o', /* merged without this node's work */
    TW_OUTCOME_EMPTY = 'e',  /* closed without any work in it */
};

/* All zero is empty. Losses cover the whole time in a fixed number of points: when these are full,
 * every second one is dropped and the spacing doubles. Of rounds the oldest are dropped. */
struct tw_history {
    uint64_t stride; /* steps between two losses */
    uint32_t losses_count, rounds_count;
    struct tw_view_loss losses[TW_HISTORY_LOSSES_MAX]; /* oldest first */
    uint64_t rounds_end;                               /* newest round + 1 */
    char rounds[TW_HISTORY_ROUNDS_MAX]; /* outcome of round r at index r modulo the size */
};

/* Adds a point, or updates the newest one when the step falls within the spacing. */
void tw_history_loss(struct tw_history *history, const struct tw_view_loss *point);

/* Adds a round. Rounds between the newest one and this are UNSEEN. A round that is no newer belongs
 * to another lineage: it replaces the round with its number and all later ones. */
void tw_history_round(struct tw_history *history, uint64_t round, enum tw_outcome outcome);

/* In pairs: the newest round was a merge with a partner. */
void tw_history_pair(struct tw_history *history);

/* The losses of the status: at most TW_VIEW_LOSSES_MAX points, evenly chosen, with both ends. */
void tw_history_fill(const struct tw_history *history, struct tw_status_view *view);

/* /v1/history: losses as columns, rounds as one letter each. A new reference; NULL without
 * memory. */
json_t *tw_history_json(const struct tw_history *history, uint32_t fragments_count);

#endif
