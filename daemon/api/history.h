/* history.h - past losses and round outcomes of a run, for its page, in fixed memory. */
#ifndef TW_DAEMON_API_HISTORY_H
#define TW_DAEMON_API_HISTORY_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/api/status_view.h"

enum {
    TW_HISTORY_LOSSES_MAX = 512,
    TW_HISTORY_EVALUATIONS_MAX = 64,
    TW_HISTORY_ROUNDS_MAX = 10000, /* one day, at a round every 10 s */
};

/* Outcome of a round at this node; one letter in JSON. */
enum tw_outcome {
    TW_OUTCOME_UNSEEN = '.', /* closed while this node was away */
    TW_OUTCOME_OURS = 'm',   /* merged with this node's work in it */
    TW_OUTCOME_OTHERS = 'o', /* merged without this node's work */
    TW_OUTCOME_ALONE = 's',  /* closed by this node alone, with its work in it */
    TW_OUTCOME_EMPTY = 'e',  /* closed without any work in it */
};

/* An evaluation of the model, in this process or before. */
struct tw_past_evaluation {
    uint64_t step, unix_us;
    float live, anchor, distance; /* losses in nats, and a ratio; NaN: not measured */
};

/* All zero is empty. The losses cover the whole run in a fixed number of points: when the array is
 * full, every second point is dropped and the spacing doubles. Of the rounds, only the newest are
 * kept. */
struct tw_history {
    uint64_t stride; /* steps between two points; 0: one step */
    uint32_t losses_count, rounds_count;
    struct tw_view_loss losses[TW_HISTORY_LOSSES_MAX]; /* oldest first */
    uint64_t rounds_end;                               /* newest round + 1 */
    char rounds[TW_HISTORY_ROUNDS_MAX]; /* outcome of round r at index r modulo the size */
    uint64_t evaluations_end;           /* evaluations seen */
    struct tw_past_evaluation evaluations[TW_HISTORY_EVALUATIONS_MAX]; /* the newest; number n at
                                                                          index n modulo the size */
};

/* Adds an evaluation. */
void tw_history_evaluated(struct tw_history *history, const struct tw_past_evaluation *evaluation);

/* Returns the newest evaluation that is of `step` or before, or NULL. So after a restart from a
 * checkpoint, no evaluation of lost steps is shown. */
const struct tw_past_evaluation *tw_history_evaluation(const struct tw_history *history,
                                                       uint64_t step);

/* Adds a point. A step within the spacing of the newest point updates that point instead. */
void tw_history_loss(struct tw_history *history, const struct tw_view_loss *point);

/* Adds a round. Skipped rounds before it become UNSEEN. A round that is not newer than the newest
 * one comes from another lineage: it replaces the round with its number and drops all later ones.
 */
void tw_history_round(struct tw_history *history, uint64_t round, enum tw_outcome outcome);

/* Marks the newest round as a merge with a partner (in pairs). */
void tw_history_pair(struct tw_history *history);

/* Fills the losses of the status: at most TW_VIEW_LOSSES_MAX points, evenly spaced, from the first
 * to the newest. */
void tw_history_fill(const struct tw_history *history, struct tw_status_view *view);

/* Answer to /v1/history: losses as columns, one letter per round. Returns a new reference, or NULL
 * if memory runs out. */
json_t *tw_history_json(const struct tw_history *history, uint32_t fragments_count);

#endif
