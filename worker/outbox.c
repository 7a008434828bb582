#include "worker/outbox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/merge.h"
#include "kernels/mix.h"
#include "kernels/norm.h"
#include "kernels/outer.h"

enum tw_status tw_outbox_init(struct tw_outbox *outbox, const struct tw_run *run,
                              const struct tw_shm *shm, struct tw_error *err) {
    memset(outbox, 0, sizeof(*outbox));
    outbox->run = run;
    outbox->shm = shm;
    const bool is_eager = run->sync.sent == TW_SENT_EAGER;
    float **const arrays[] = {&outbox->residual, &outbox->residual_next, &outbox->given,
                              &outbox->share,    &outbox->ahead,         &outbox->ahead_u};
    const bool is_used[] = {run->sync.feedback_millionths > 0,
                            run->sync.feedback_millionths > 0,
                            run->sync.sent != TW_SENT_MIX,
                            is_eager,
                            is_eager,
                            is_eager};
    const size_t elements = (size_t)shm->geometry.elements;
    size_t used = 0;
    for (unsigned i = 0; i < 6; i++) used += is_used[i];
    if (used == 0) return TW_OK;
    outbox->memory = calloc(used * elements, sizeof(float));
    if (outbox->memory == NULL) {
        return tw_fail(err, TW_NOMEM,
                       "no memory for what was sent and is not yet merged: %zu bytes",
                       used * elements * sizeof(float));
    }
    used = 0;
    for (unsigned i = 0; i < 6; i++) {
        if (is_used[i]) *arrays[i] = outbox->memory + elements * used++;
    }
    return TW_OK;
}

void tw_outbox_deinit(struct tw_outbox *outbox) {
    free(outbox->memory);
    memset(outbox, 0, sizeof(*outbox));
}

/* Element `begin` of a fragment in one of the arrays. */
static float *at(const struct tw_outbox *outbox, float *array, uint32_t fragment, size_t begin) {
    return array + outbox->shm->fragment_begin[fragment] + begin;
}

static size_t size_of(const struct tw_outbox *outbox, uint32_t fragment) {
    return (size_t)tw_shm_fragment_elements(outbox->shm, fragment);
}

static void add(float *x, const float *y, size_t n) {
    tw_merge_add(x, y, 1.0f, n);
}

static void subtract(float *x, const float *y, size_t n) {
    tw_merge_add(x, y, -1.0f, n);
}

/* ---- the correction -------------------------------------------------------------------------- */

static struct tw_outer rule_at(const struct tw_outbox *outbox, uint64_t version) {
    return tw_outer_at(outbox->run->sync.outer_lr_millionths,
                       outbox->run->sync.outer_momentum_millionths, outbox->run->sync.outer_ramp,
                       version);
}

/* What one unit of delta makes of the momentum and of the anchor in the step it is given to. */
static void response(const struct tw_outbox *outbox, uint64_t version, float *of_u, float *of_c) {
    const struct tw_outer rule = rule_at(outbox, version);
    const bool is_heavyball = outbox->run->sync.outer == TW_OUTER_HEAVYBALL;
    *of_u = is_heavyball ? rule.lr : 1.0f;
    *of_c = is_heavyball ? -rule.lr : -rule.lr * (1.0f + rule.momentum);
}

/* Adds the share under way to the step c took last (sign 1), or takes it out again (-1). */
static void ahead_share(struct tw_outbox *outbox, uint32_t fragment, size_t begin, size_t n,
                        float sign) {
    const uint64_t version = outbox->fragments[fragment].round / outbox->shm->fragments_count;
    const float *share = at(outbox, outbox->share, fragment, begin);
    float of_u, of_c;
    response(outbox, version, &of_u, &of_c);
    tw_merge_add(at(outbox, outbox->ahead_u, fragment, begin), share, sign * of_u, n);
    tw_merge_add(at(outbox, outbox->ahead, fragment, begin), share, sign * of_c, n);
}

/* One outer step of c: on what the merge has of it by now, or on nothing. Uses the share up. */
static void ahead_step(struct tw_outbox *outbox, const struct tw_outbox_step *step, size_t begin,
                       size_t n, bool is_merged) {
    float *share = at(outbox, outbox->share, step->fragment, begin);
    float *c = at(outbox, outbox->ahead, step->fragment, begin);
    float *u = at(outbox, outbox->ahead_u, step->fragment, begin);
    if (is_merged) {
        tw_scale(share, -1.0f, n);
    } else {
        memset(share, 0, n * sizeof(float));
    }
    if (outbox->run->sync.outer == TW_OUTER_HEAVYBALL) {
        tw_outer_heavyball(c, u, share, n, rule_at(outbox, step->version));
    } else {
        tw_outer_nesterov(c, u, share, n, rule_at(outbox, step->version));
    }
}

/* w; 1 before a merge was seen. */
static float share_weight(const struct tw_outbox *outbox, uint32_t fragment) {
    const float weight = outbox->fragments[fragment].weight;
    return weight > 0.0f ? weight : 1.0f;
}

/* How much of the share is in the merge. 2 <x, y> = |x|^2 + |y|^2 - |x - y|^2. */
static void regress(struct tw_outbox *outbox, uint32_t fragment, size_t begin, size_t n,
                    const float *merged) {
    const float *share = at(outbox, outbox->share, fragment, begin);
    const double squares = tw_norm_squared(share, n);
    outbox->fragments[fragment].squares += squares;
    outbox->fragments[fragment].along +=
        (squares + tw_norm_squared(merged, n) - tw_distance_squared(share, merged, n)) / 2;
}

/* w of the next share, from the last: a regression of the merge on D. */
static void weigh(struct tw_outbox *outbox, uint32_t fragment, uint32_t contributors) {
    const double along = outbox->fragments[fragment].along;
    const double squares = outbox->fragments[fragment].squares;
    const float least = 1.0f / (float)contributors;
    const float weight = (float)(along / squares) * share_weight(outbox, fragment);
    outbox->fragments[fragment].along = outbox->fragments[fragment].squares = 0;
    if (!isfinite(weight)) return; /* nothing was sent, or nothing of it is merged */
    outbox->fragments[fragment].weight = fminf(fmaxf(weight, least), 1.0f);
}

/* ---- sending --------------------------------------------------------------------------------- */

void tw_outbox_fill(struct tw_outbox *outbox, uint32_t fragment, float *delta) {
    const size_t n = size_of(outbox, fragment);
    TW_ASSERT(!outbox->fragments[fragment].is_out);
    if (outbox->ahead != NULL) add(delta, at(outbox, outbox->ahead, fragment, 0), n);
    if (outbox->given != NULL)
        memcpy(at(outbox, outbox->given, fragment, 0), delta, n * sizeof(float));
    if (outbox->residual == NULL) return;
    const float beta = (float)(outbox->run->sync.feedback_millionths / 1e6);
    tw_merge_add(delta, at(outbox, outbox->residual, fragment, 0), beta, n);
}

void tw_outbox_clip(struct tw_outbox *outbox, uint32_t fragment, float factor) {
    if (outbox->given == NULL) return;
    tw_scale(at(outbox, outbox->given, fragment, 0), factor, size_of(outbox, fragment));
}

void tw_outbox_note(struct tw_outbox *outbox, uint32_t fragment, size_t begin, size_t n,
                    const float *v, const struct tw_codec *codec, const uint8_t *payload,
                    size_t bytes) {
    if (outbox->residual_next != NULL) {
        float *lost = at(outbox, outbox->residual_next, fragment, begin);
        TW_ASSERT(codec->decode(payload, bytes, lost, n) == TW_OK);
        for (size_t i = 0; i < n; i++) lost[i] = v[i] - lost[i];
    }
    if (outbox->share != NULL) {
        float *share = at(outbox, outbox->share, fragment, begin);
        TW_ASSERT(codec->decode(payload, bytes, share, n) == TW_OK);
        tw_scale(share, share_weight(outbox, fragment), n);
    }
}

void tw_outbox_depart(struct tw_outbox *outbox, uint32_t fragment, uint64_t round, float *theta) {
    const size_t n = size_of(outbox, fragment);
    outbox->fragments[fragment].is_out = true;
    outbox->fragments[fragment].round = round;
    if (outbox->run->sync.sent == TW_SENT_MIX || outbox->run->sync.sent == TW_SENT_KEEP) return;
    add(theta, at(outbox, outbox->given, fragment, 0), n);
    if (outbox->ahead == NULL) return;
    subtract(theta, at(outbox, outbox->ahead, fragment, 0), n);
    ahead_share(outbox, fragment, 0, n, 1.0f);
    add(theta, at(outbox, outbox->ahead, fragment, 0), n);
}

void tw_outbox_again(const struct tw_outbox *outbox, uint32_t fragment, float *v) {
    const size_t n = size_of(outbox, fragment);
    TW_ASSERT(outbox->given != NULL && outbox->fragments[fragment].is_out);
    memcpy(v, at(outbox, outbox->given, fragment, 0), n * sizeof(float));
    if (outbox->residual == NULL) return;
    const float beta = (float)(outbox->run->sync.feedback_millionths / 1e6);
    tw_merge_add(v, at(outbox, outbox->residual, fragment, 0), beta, n);
}

void tw_outbox_exact(struct tw_outbox *outbox, uint32_t fragment) {
    if (outbox->residual_next == NULL) return;
    memset(at(outbox, outbox->residual_next, fragment, 0), 0,
           size_of(outbox, fragment) * sizeof(float));
}

/* ---- merging --------------------------------------------------------------------------------- */

/* A merge that has work of ours which nobody here remembers: the worker has started since. */
static void land_unknown(struct tw_outbox *outbox, const struct tw_outbox_step *step, size_t begin,
                         size_t n) {
    memcpy(step->theta + begin, step->phi + begin, n * sizeof(float));
    if (outbox->ahead == NULL) return;
    memset(at(outbox, outbox->ahead, step->fragment, begin), 0, n * sizeof(float));
    memset(at(outbox, outbox->ahead_u, step->fragment, begin), 0, n * sizeof(float));
}

/* What was sent is in the merge. */
static void take_as_merged(struct tw_outbox *outbox, uint32_t fragment, float *theta, size_t begin,
                           size_t n) {
    if (outbox->run->sync.sent == TW_SENT_KEEP)
        add(theta, at(outbox, outbox->given, fragment, begin), n);
    if (outbox->residual == NULL) return;
    memcpy(at(outbox, outbox->residual, fragment, begin),
           at(outbox, outbox->residual_next, fragment, begin), n * sizeof(float));
}

/* What was sent is nowhere. */
static void take_back(struct tw_outbox *outbox, uint32_t fragment, float *theta, size_t begin,
                      size_t n) {
    const enum tw_sent sent = outbox->run->sync.sent;
    if (sent == TW_SENT_RESTART || sent == TW_SENT_EAGER)
        subtract(theta, at(outbox, outbox->given, fragment, begin), n);
    if (outbox->ahead != NULL) ahead_share(outbox, fragment, begin, n, -1.0f);
}

void tw_outbox_land(struct tw_outbox *outbox, const struct tw_outbox_step *step, size_t begin,
                    size_t n, enum tw_apply_mode mode) {
    const uint32_t fragment = step->fragment;
    const bool is_out = outbox->fragments[fragment].is_out, is_merged = mode == TW_APPLY_MIX;
    float *theta = step->theta + begin;
    if (outbox->run->sync.sent == TW_SENT_MIX && is_merged) {
        const float alpha = (float)outbox->run->sync.mix_millionths / 1e6f;
        if (is_out) take_as_merged(outbox, fragment, theta, begin, n);
        tw_mix(theta, step->phi + begin, alpha, n);
        return;
    }
    if (is_merged && !is_out) {
        land_unknown(outbox, step, begin, n);
        return;
    }
    if (outbox->ahead != NULL) subtract(theta, at(outbox, outbox->ahead, fragment, begin), n);
    if (outbox->ahead != NULL && is_merged)
        regress(outbox, fragment, begin, n, step->merged + begin);
    if (is_merged) {
        take_as_merged(outbox, fragment, theta, begin, n);
    } else if (is_out) {
        take_back(outbox, fragment, theta, begin, n);
    }
    if (mode != TW_APPLY_ABSENT) {
        tw_shift(theta, step->phi + begin, step->phi_old + begin, n);
        if (outbox->ahead != NULL) ahead_step(outbox, step, begin, n, is_merged);
    }
    if (outbox->ahead != NULL) add(theta, at(outbox, outbox->ahead, fragment, begin), n);
}

void tw_outbox_arrive(struct tw_outbox *outbox, uint32_t fragment, uint32_t contributors) {
    outbox->fragments[fragment].is_out = false;
    if (outbox->ahead != NULL && contributors > 0) weigh(outbox, fragment, contributors);
}

void tw_outbox_recall(struct tw_outbox *outbox, uint32_t fragment, float *theta) {
    const struct tw_outbox_step nowhere = {.fragment = fragment, .theta = theta};
    if (!outbox->fragments[fragment].is_out) return;
    tw_outbox_land(outbox, &nowhere, 0, size_of(outbox, fragment), TW_APPLY_ABSENT);
    tw_outbox_arrive(outbox, fragment, 0);
}

void tw_outbox_clear(struct tw_outbox *outbox, uint32_t fragment, float *theta) {
    tw_outbox_recall(outbox, fragment, theta);
    if (outbox->ahead != NULL)
        subtract(theta, at(outbox, outbox->ahead, fragment, 0), size_of(outbox, fragment));
    tw_outbox_forget(outbox, fragment);
}

void tw_outbox_flush(struct tw_outbox *outbox, uint32_t fragment, float *theta) {
    if (outbox->residual == NULL) return;
    float *residual = at(outbox, outbox->residual, fragment, 0);
    subtract(theta, residual, size_of(outbox, fragment));
    memset(residual, 0, size_of(outbox, fragment) * sizeof(float));
}

void tw_outbox_forget(struct tw_outbox *outbox, uint32_t fragment) {
    float *const arrays[] = {outbox->residual, outbox->ahead, outbox->ahead_u};
    for (unsigned i = 0; i < 3; i++) {
        if (arrays[i] == NULL) continue;
        memset(at(outbox, arrays[i], fragment, 0), 0, size_of(outbox, fragment) * sizeof(float));
    }
    outbox->fragments[fragment].is_out = false;
}
