/* history.h - the run so far, and the time that it still takes. */
#ifndef TW_DAEMON_API_HISTORY_H
#define TW_DAEMON_API_HISTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "daemon/api/status_view.h"

/* ==== curves and rounds ======================================================================= */

/* Past losses and round outcomes of a run, for its page, in fixed memory. */

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

/* ==== pace ==================================================================================== */

/* The speed of a run in tokens/s and its time left. Pure, and without anything that
 * differs by node: every node of a lineage hears the same speeds and sees the same rounds, so all
 * of them tell the same time. */

enum {
    TW_RUN_PACE_ROWS = 256,
    /* Speed over the newest rounds: of at least so much time and so many rounds. A node gives its
     * tokens in jumps, so fewer rounds tell little. */
    TW_RUN_PACE_US = 60 * 1000 * 1000,
    TW_RUN_PACE_ROUNDS = 8,
    /* A round that is late by this, and by so many mean rounds, shows that the rounds stand still.
     */
    TW_RUN_PACE_STILL_US = 10 * 1000 * 1000,
    TW_RUN_PACE_STILL_ROUNDS = 4,
};

/* Speeds that the nodes of the lineage announce, this node among them. */
struct tw_run_speeds {
    double tokens_per_s; /* sum, as far as the run clock counts them: tw_run_pace_counted */
    uint32_t others;     /* other nodes that train */
    bool has_own;        /* this node is in the run */
    bool is_whole;       /* no member of the roster is missing in the sum */
};

/* All zero is empty. */
struct tw_run_pace {
    struct tw_run_speeds speeds; /* tokens_per_s: smoothed */
    struct tw_id lineage;
    uint32_t next, count; /* next row to write; rows in use */
    struct {
        uint64_t at_us, clock_tokens;
    } rows[TW_RUN_PACE_ROWS];
};

/* Notes the run clock after a round that this node saw close at `now_us`. The rounds of another
 * lineage begin anew. */
void tw_run_pace_note(struct tw_run_pace *pace, uint64_t now_us, const struct tw_id *lineage,
                      uint64_t clock_tokens);

/* Returns the tokens per second that the run clock counts of these speeds, which it sorts. As in
 * tw_record_tokens, each counts up to TW_CLAIM_MEDIANS times the lower median, or of two up to
 * TW_CLAIM_FEW times the smaller. */
double tw_run_pace_counted(uint64_t *speeds, uint32_t count);

/* Notes the announced speeds, once a second. */
void tw_run_pace_announce(struct tw_run_pace *pace, const struct tw_run_speeds *speeds);

/* Returns the tokens per second that the run clock counts: the sum of the announced speeds. While a
 * member is not linked, its speed is not known: then the run clock tells, once there are enough
 * rounds. */
double tw_run_pace_rate(const struct tw_run_pace *pace, uint64_t now_us);

/* Returns true if this node makes all of the run's tokens. */
bool tw_run_pace_is_alone(const struct tw_run_pace *pace);

/* Returns the time until the budget is used up at this rate, from the newest round on. UINT64_MAX:
 * never, or not known. */
uint64_t tw_run_pace_left_us(const struct tw_run_pace *pace, uint64_t now_us, double rate,
                             uint64_t clock_tokens, uint64_t budget_tokens);

#endif
