#include "worker/lib/handover.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

static void lock(struct tw_handover *handover) {
    TW_ASSERT(pthread_mutex_lock(&handover->mutex) == 0);
}

static void unlock(struct tw_handover *handover) {
    TW_ASSERT(pthread_mutex_unlock(&handover->mutex) == 0);
}

static void wake(struct tw_handover *handover) {
    TW_ASSERT(pthread_cond_broadcast(&handover->changed) == 0);
}

static void wait(struct tw_handover *handover) {
    TW_ASSERT(pthread_cond_wait(&handover->changed, &handover->mutex) == 0);
}

void tw_handover_init(struct tw_handover *handover) {
    pthread_condattr_t monotonic;
    memset(handover, 0, sizeof(*handover));
    TW_ASSERT(pthread_condattr_init(&monotonic) == 0);
    TW_ASSERT(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
    TW_ASSERT(pthread_mutex_init(&handover->mutex, NULL) == 0);
    TW_ASSERT(pthread_cond_init(&handover->changed, &monotonic) == 0);
    (void)pthread_condattr_destroy(&monotonic);
}

void tw_handover_deinit(struct tw_handover *handover) {
    (void)pthread_cond_destroy(&handover->changed);
    (void)pthread_mutex_destroy(&handover->mutex);
}

/* ---- the trainer's thread -------------------------------------------------------------------- */

static void call_run(struct tw_handover *handover) {
    unlock(handover);
    const enum tw_status status = handover->call(handover->call_self, handover->call_err);
    lock(handover);
    handover->call_status = status;
    handover->is_asked = false;
    wake(handover);
}

void tw_handover_report(struct tw_handover *handover, const struct tw_report *report) {
    lock(handover);
    handover->has_rested = false;
    TW_ASSERT(handover->reports_count < TW_REPORTS_MAX);
    const uint32_t at = handover->reports_begin + handover->reports_count++;
    handover->reports[at % TW_REPORTS_MAX] = *report;
    wake(handover);
    unlock(handover);
}

bool tw_handover_has_rested(struct tw_handover *handover) {
    lock(handover);
    const bool has_rested = handover->has_rested;
    unlock(handover);
    return has_rested;
}

/* A session that asks for a step must first have seen the reports of earlier ones. A step also
 * needs room for its report: a trainer that waited with a report in hand would not learn of the
 * run's end. */
static enum tw_turn turn_now(const struct tw_handover *handover) {
    if (handover->is_ended) return TW_TURN_ENDED;
    if (handover->must_end) return TW_TURN_WAIT;
    if (handover->is_released && handover->reports_count < TW_REPORTS_MAX) return TW_TURN_STEP;
    if (handover->wants_step && handover->reports_count == 0) return TW_TURN_STEP;
    return handover->is_settled ? TW_TURN_SETTLED : TW_TURN_WAIT;
}

static struct timespec deadline_of(int timeout_ms) {
    struct timespec deadline;
    (void)clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += timeout_ms / 1000;
    deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (deadline.tv_nsec >= 1000000000L) {
        deadline.tv_nsec -= 1000000000L;
        deadline.tv_sec++;
    }
    return deadline;
}

static bool is_news(const struct tw_handover *handover, bool knows_end) {
    const enum tw_turn turn = turn_now(handover);
    return turn != TW_TURN_WAIT && !(knows_end && turn == TW_TURN_SETTLED);
}

enum tw_turn tw_handover_wait(struct tw_handover *handover, bool knows_end, int timeout_ms) {
    const struct timespec deadline = deadline_of(timeout_ms > 0 ? timeout_ms : 0);
    bool is_late = false;
    lock(handover);
    while (handover->is_asked || (!is_news(handover, knows_end) && !is_late)) {
        if (handover->is_asked) {
            call_run(handover);
        } else if (timeout_ms < 0) {
            wait(handover);
        } else {
            is_late = pthread_cond_timedwait(&handover->changed, &handover->mutex, &deadline) ==
                      ETIMEDOUT;
        }
    }
    const enum tw_turn turn = turn_now(handover);
    unlock(handover);
    return turn;
}

void tw_handover_end(struct tw_handover *handover) {
    lock(handover);
    handover->must_end = true;
    wake(handover);
    unlock(handover);
}

/* ---- the session's thread -------------------------------------------------------------------- */

enum tw_status tw_handover_call(struct tw_handover *handover,
                                enum tw_status (*call)(void *self, struct tw_error *err),
                                void *self, struct tw_error *err) {
    lock(handover);
    TW_ASSERT(!handover->is_asked);
    handover->is_released = false;
    handover->call = call;
    handover->call_self = self;
    handover->call_err = err;
    handover->is_asked = true;
    wake(handover);
    while (handover->is_asked) wait(handover);
    const enum tw_status status = handover->call_status;
    unlock(handover);
    return status;
}

void tw_handover_release(struct tw_handover *handover) {
    lock(handover);
    handover->is_released = true;
    wake(handover);
    unlock(handover);
}

enum tw_status tw_handover_take(struct tw_handover *handover, struct tw_report *report) {
    lock(handover);
    handover->is_settled = false;
    if (handover->reports_count == 0) {
        handover->is_released = false;
        handover->wants_step = true;
        wake(handover);
    }
    while (handover->reports_count == 0 && !handover->must_end) wait(handover);
    handover->wants_step = false;
    const bool has_report = handover->reports_count > 0;
    if (has_report) {
        *report = handover->reports[handover->reports_begin];
        handover->reports_begin = (handover->reports_begin + 1) % TW_REPORTS_MAX;
        handover->reports_count--;
        wake(handover); /* the trainer may be waiting for room in the ring */
    }
    unlock(handover);
    return has_report ? TW_OK : TW_AGAIN;
}

void tw_handover_rest(struct tw_handover *handover, bool is_settled) {
    lock(handover);
    handover->is_released = false;
    handover->has_rested = true;
    handover->is_settled = is_settled;
    wake(handover);
    unlock(handover);
}

void tw_handover_forget(struct tw_handover *handover) {
    lock(handover);
    handover->reports_begin = handover->reports_count = 0;
    unlock(handover);
}

void tw_handover_say_ended(struct tw_handover *handover) {
    lock(handover);
    handover->is_ended = true;
    wake(handover);
    unlock(handover);
}

bool tw_handover_must_end(struct tw_handover *handover) {
    lock(handover);
    const bool must_end = handover->must_end;
    unlock(handover);
    return must_end;
}
