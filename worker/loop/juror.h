/* juror.h - checks that a contribution was trained on the data that its sender says.
 *
 * Every node draws its training windows in an order that its id and a cursor determine, so a juror
 * can draw them too. Inner steps lower the loss of the windows that they train on more than that of
 * other windows. With the anchor phi, a contribution delta and
 *
 *      gain(w) = loss(phi; w) - loss(phi - delta; w)
 *
 * the juror compares n windows that the sender says it trained on with n windows that come later in
 * its order, which nobody has trained on in this epoch:
 *
 *      score = (mean gain of own - mean gain of later) / sqrt(var(own) / n + var(later) / n)
 *
 * (Welch's t). A Delta that was trained on other windows, was copied, or is noise has a score of
 * about 0, and one of the opposite sign a negative one, as large as an honest score is positive. A
 * Delta that was trained on the windows and then bent passes: the guard and the merge rule bound
 * that. tests/RECORDS.md has measured scores; sync/check/audit.c draws the consequences.
 *
 * The losses are computed a few windows at each step boundary, with a copy of the anchor, for about
 * half of the time of a step. */
#ifndef TW_WORKER_LOOP_JUROR_H
#define TW_WORKER_LOOP_JUROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/learn/learner.h"
#include "worker/merge/merger.h"

enum { TW_JUROR_WINDOWS_MIN = 8, TW_JUROR_WINDOWS_MAX = 256 };

struct tw_juror {
    bool is_busy;
    uint64_t round;
    uint32_t fragment, windows;  /* n */
    double share;                /* square root of n / windows that the sender trained on */
    uint64_t seed, begin, count; /* of the sender's order; range of the fragment in the model */
    float *params, *delta;       /* anchor when the check began, (elements); Delta, (count) */
    uint64_t *cursors;           /* own windows, then later ones, (2 * windows) */
    double *losses; /* of these windows with phi, then with phi - delta, (4 * windows) */
    uint32_t done;  /* losses computed so far */
};

/* The number of windows of either kind for a contribution of `drawn` windows to one of `fragments`
 * fragments: half of the windows of a round, so that a check costs two thirds of the time between
 * two rounds. 0: too few were drawn. */
uint32_t tw_juror_windows(uint64_t drawn, uint32_t fragments);

/* Welch's t of own[n] and later[n], n >= 2, bounded by 1000; 0 if neither varies. */
double tw_juror_score(const double *own, const double *later, uint32_t n);

/* Begins a check. TW_AGAIN: this worker cannot judge (a check is running; its learner draws no
 * data; too few windows, or too few in an epoch). TW_PROTO, TW_CORRUPT, TW_NOMEM. */
enum tw_status tw_juror_begin(struct tw_juror *juror, const struct tw_merger *merger,
                              const struct tw_learner *learner, const struct tw_run *run,
                              const struct tw_wmsg_judge *request, struct tw_error *err);

/* Computes losses for about so long, at least one. Returns TW_AGAIN while some are left. After any
 * other status the check is over; with TW_OK *score is valid. */
enum tw_status tw_juror_advance(struct tw_juror *juror, const struct tw_learner *learner,
                                uint64_t for_us, double *score, struct tw_error *err);

/* Gives a check up. */
void tw_juror_end(struct tw_juror *juror);

/* ---- log lines about requests of the daemon that the worker refused -------------------------- */

/* A new kind of refusal is logged at once. A refusal that repeats round after round is logged every
 * ten minutes, with a count. */

enum {
    TW_REFUSAL_LOG_SORTS = 16
}; /* number of pairs (request kind, status); further pairs share the last entry */

/* Zero-initialised, and used by one thread at a time. */
struct tw_refusal_log {
    uint32_t count;
    struct {
        uint32_t kind;
        enum tw_status status;
        struct tw_log_limit limit;
    } sorts[TW_REFUSAL_LOG_SORTS];
};

/* Counts one refusal; `reason` holds its status and message. */
void tw_refusal_log_note(struct tw_refusal_log *refused, uint32_t kind,
                         const struct tw_error *reason, uint64_t now_us);

#endif
