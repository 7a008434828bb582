/* run_pace.h - the speed of a run in tokens/s and its time left. Pure, and without anything that
 * differs by node: every node of a lineage hears the same speeds and sees the same rounds, so all
 * of them tell the same time. */
#ifndef TW_DAEMON_API_RUN_PACE_H
#define TW_DAEMON_API_RUN_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"

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
