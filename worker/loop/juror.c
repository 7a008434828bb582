#include "worker/loop/juror.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/rng.h"
#include "worker/merge/inflight.h"

/* ---- log of refusals ------------------------------------------------------------------------- */

enum { LINE_US = 600 * 1000 * 1000 };

static struct tw_log_limit *limit_of(struct tw_refusal_log *refused, uint32_t kind,
                                     enum tw_status status) {
    uint32_t i = 0;
    while (i < refused->count &&
           (refused->sorts[i].kind != kind || refused->sorts[i].status != status))
        i++;
    if (i == TW_REFUSAL_LOG_SORTS) return &refused->sorts[i - 1].limit;
    if (i == refused->count) {
        refused->sorts[i].kind = kind;
        refused->sorts[i].status = status;
        refused->count++;
    }
    return &refused->sorts[i].limit;
}

void tw_refusal_log_note(struct tw_refusal_log *refused, uint32_t kind,
                         const struct tw_error *reason, uint64_t now_us) {
    uint64_t held_back;
    struct tw_log_limit *const limit = limit_of(refused, kind, reason->status);
    if (!tw_log_may_say(limit, now_us, LINE_US, &held_back)) return;
    if (held_back == 0) {
        tw_log(TW_LOG_WARN, "request_refused", "kind=%u status=%s text=\"%s\"", kind,
               tw_status_name(reason->status), reason->message);
        return;
    }
    tw_log(TW_LOG_WARN, "request_refused", "kind=%u status=%s more=%" PRIu64 " text=\"%s\"", kind,
           tw_status_name(reason->status), held_back, reason->message);
}

/* ---- juror ----------------------------------------------------------------------------------- */

/* An epoch must have this many times the windows of a check: later windows of the next epoch may
 * be own windows of this one. */
enum { EPOCH_SHARE = 8 };
enum { GROUP = 4 }; /* losses computed between two looks at the clock */

#define SCORE_MAX 1000.0

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint32_t tw_juror_windows(uint64_t drawn, uint32_t fragments) {
    const uint64_t wanted = drawn / fragments / 2;
    const uint64_t most = wanted > TW_JUROR_WINDOWS_MAX   ? TW_JUROR_WINDOWS_MAX
                          : wanted < TW_JUROR_WINDOWS_MIN ? TW_JUROR_WINDOWS_MIN
                                                          : wanted;
    return drawn < TW_JUROR_WINDOWS_MIN ? 0 : (uint32_t)(most < drawn ? most : drawn);
}

static double mean_of(const double *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i];
    return sum / n;
}

static double variance_of(const double *x, uint32_t n, double mean) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sum / (n - 1);
}

double tw_juror_score(const double *own, const double *later, uint32_t n) {
    TW_ASSERT(n >= 2);
    const double a = mean_of(own, n), b = mean_of(later, n);
    const double error = sqrt((variance_of(own, n, a) + variance_of(later, n, b)) / n);
    const double score = error > 0 ? (a - b) / error : 0;
    return fmin(fmax(score, -SCORE_MAX), SCORE_MAX);
}

/* Chooses one window in each of n equal stretches of the `drawn` windows before the cursor, and of
 * as many after it. */
static void choose_windows(struct tw_juror *juror, const struct tw_wmsg_judge *request,
                           uint64_t drawn, uint64_t context) {
    const uint32_t n = juror->windows;
    uint64_t state = request->draw;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t first = drawn * i / n, past = drawn * (i + 1) / n;
        const uint64_t own = first + tw_splitmix64(&state) % (past - first);
        const uint64_t later = first + tw_splitmix64(&state) % (past - first);
        juror->cursors[i] = request->cursor - (drawn - own) * context;
        juror->cursors[n + i] = request->cursor + later * context;
    }
}

static enum tw_status decode_parts(struct tw_juror *juror, const struct tw_merger *merger,
                                   const struct tw_wmsg_judge *request, struct tw_error *err) {
    uint64_t end = 0;
    for (uint32_t k = 0; k < request->parts_count; k++) {
        const uint64_t begin = request->parts[k].begin, count = request->parts[k].count;
        uint8_t *bytes;
        TW_TRY(tw_request_part(merger->shm, request->fragment, begin, count, &end, err));
        if (count == 0) continue;
        TW_TRY(tw_request_span(merger->shm, &request->parts[k].in, &bytes, err));
        if (merger->codec->decode(bytes, request->parts[k].in.bytes, juror->delta + begin,
                                  (size_t)count) != TW_OK)
            return tw_fail(err, TW_CORRUPT, "part %u of the contribution does not decode", k);
    }
    return tw_request_whole(merger->shm, request->fragment, end, err);
}

static enum tw_status allocate(struct tw_juror *juror, size_t elements, struct tw_error *err) {
    const size_t n = juror->windows;
    juror->params = malloc(elements * sizeof(float));
    juror->delta = malloc((size_t)juror->count * sizeof(float));
    juror->cursors = malloc(2 * n * sizeof(*juror->cursors));
    juror->losses = malloc(4 * n * sizeof(*juror->losses));
    if (juror->params != NULL && juror->delta != NULL && juror->cursors != NULL &&
        juror->losses != NULL)
        return TW_OK;
    return tw_fail(err, TW_NOMEM, "no memory to check a contribution: %zu MB",
                   elements * sizeof(float) / 1000000);
}

static enum tw_status begin(struct tw_juror *juror, const struct tw_merger *merger,
                            const struct tw_learner *learner, const struct tw_run *run,
                            const struct tw_wmsg_judge *request, struct tw_error *err) {
    const struct tw_shm *shm = merger->shm;
    const uint64_t context = run->model.context, drawn = request->tokens / context;
    const uint64_t epoch = learner->epoch_windows(learner->self);
    float *phi;
    void *u;
    if (request->parts_count > TW_PARTS_MAX)
        return tw_fail(err, TW_PROTO, "%u parts", request->parts_count);
    TW_TRY(tw_request_fragment(shm, request->fragment, err));
    juror->windows = tw_juror_windows(drawn, (uint32_t)shm->fragments_count);
    if (juror->windows == 0 || request->tokens > request->cursor || drawn > epoch / EPOCH_SHARE ||
        request->cursor > UINT64_MAX / 2)
        return tw_fail(err, TW_AGAIN, "%llu windows of %llu in an epoch tell nothing",
                       (unsigned long long)drawn, (unsigned long long)epoch);
    juror->share = sqrt((double)juror->windows / (double)drawn);
    juror->round = request->round;
    juror->fragment = request->fragment;
    juror->seed = request->seed;
    juror->begin = shm->fragment_begin[request->fragment];
    juror->count = tw_shm_fragment_elements(shm, request->fragment);
    juror->done = 0;
    TW_TRY(allocate(juror, (size_t)shm->geometry.elements, err));
    TW_TRY(decode_parts(juror, merger, request, err));
    choose_windows(juror, request, drawn, context);
    tw_shm_settle(shm);
    tw_shm_home(shm, 0, &phi, &u);
    memcpy(juror->params, phi, (size_t)shm->geometry.elements * sizeof(float));
    juror->is_busy = true;
    return TW_OK;
}

enum tw_status tw_juror_begin(struct tw_juror *juror, const struct tw_merger *merger,
                              const struct tw_learner *learner, const struct tw_run *run,
                              const struct tw_wmsg_judge *request, struct tw_error *err) {
    if (juror->is_busy) return tw_fail(err, TW_AGAIN, "another contribution is being checked");
    if (learner->drawn_losses == NULL)
        return tw_fail(err, TW_AGAIN, "this trainer cannot measure other windows than its own");
    const enum tw_status status = begin(juror, merger, learner, run, request, err);
    if (status != TW_OK) tw_juror_end(juror);
    return status;
}

/* The windows whose losses are computed next with the same parameters: [*from, return value). */
static uint32_t stretch_end(const struct tw_juror *juror) {
    const uint32_t half = 2 * juror->windows;
    return juror->done < half ? half : 2 * half;
}

static double score_of(const struct tw_juror *juror) {
    const uint32_t n = juror->windows;
    double *const before = juror->losses, *const after = juror->losses + 2 * n;
    for (uint32_t i = 0; i < 2 * n; i++) before[i] -= after[i];
    return tw_juror_score(before, before + n, n);
}

/* Takes one step of Delta. It happens once, after the losses with the anchor alone. */
static void add_delta(struct tw_juror *juror) {
    for (uint64_t i = 0; i < juror->count; i++) juror->params[juror->begin + i] -= juror->delta[i];
}

enum tw_status tw_juror_advance(struct tw_juror *juror, const struct tw_learner *learner,
                                uint64_t for_us, double *score, struct tw_error *err) {
    TW_ASSERT(juror->is_busy);
    const uint64_t end_us = now_us() + for_us;
    const uint32_t half = 2 * juror->windows, end = stretch_end(juror);
    enum tw_status status = TW_OK;
    if (juror->done == half) add_delta(juror);
    while (status == TW_OK && juror->done < end) {
        const uint32_t left = end - juror->done, take = GROUP < left ? GROUP : left;
        status = learner->drawn_losses(learner->self, juror->params, juror->seed,
                                       juror->cursors + juror->done % half, take,
                                       juror->losses + juror->done, err);
        if (status == TW_OK) juror->done += take;
        if (now_us() >= end_us) break;
    }
    if (status == TW_OK && juror->done < 2 * half) return TW_AGAIN;
    if (status == TW_OK) *score = score_of(juror);
    if (status == TW_AGAIN) status = TW_DATA;
    tw_juror_end(juror);
    return status;
}

void tw_juror_end(struct tw_juror *juror) {
    free(juror->params);
    free(juror->delta);
    free(juror->cursors);
    free(juror->losses);
    memset(juror, 0, sizeof(*juror));
}
