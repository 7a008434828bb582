#include "worker/merge/inflight.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/outer.h"

/* Where the arrays are kept, and whether the run has a use for each. */
enum { ARRAYS = 6 };

static uint32_t find_used(bool used[ARRAYS], const struct tw_run *run) {
    const bool has_feedback = run->sync.feedback_millionths > 0;
    const bool is_eager = run->sync.sent == TW_SENT_EAGER;
    const bool wanted[ARRAYS] = {has_feedback, has_feedback, run->sync.sent != TW_SENT_MIX,
                                 is_eager,     is_eager,     is_eager};
    uint32_t count = 0;
    for (unsigned i = 0; i < ARRAYS; i++) count += wanted[i];
    memcpy(used, wanted, sizeof(wanted));
    return count;
}

uint32_t tw_inflight_arrays(const struct tw_run *run) {
    bool used[ARRAYS];
    return find_used(used, run);
}

/* What is packed elsewhere than it lies is decoded on the host, and brought back. */
static enum tw_status room_init(struct tw_inflight *outbox, struct tw_error *err) {
    const size_t bytes = (size_t)outbox->shm->geometry.spare_elements * sizeof(float);
    const bool has_use = outbox->residual_next != NULL || outbox->share != NULL;
    if (outbox->vectors->is_host || !has_use) return TW_OK;
    outbox->room = malloc(bytes);
    if (outbox->room != NULL) return TW_OK;
    return tw_fail(err, TW_NOMEM, "no memory to decode what was sent: %zu bytes", bytes);
}

enum tw_status tw_inflight_init(struct tw_inflight *outbox, const struct tw_run *run,
                                const struct tw_shm *shm, const struct tw_vectors *vectors,
                                struct tw_error *err) {
    memset(outbox, 0, sizeof(*outbox));
    outbox->run = run;
    outbox->shm = shm;
    outbox->vectors = vectors;
    float **const arrays[ARRAYS] = {&outbox->residual, &outbox->residual_next, &outbox->given,
                                    &outbox->share,    &outbox->ahead,         &outbox->ahead_u};
    bool is_used[ARRAYS];
    const size_t elements = (size_t)shm->geometry.elements, used = find_used(is_used, run);
    if (used == 0) return TW_OK;
    TW_TRY(vectors->alloc(vectors->self, &outbox->memory, used * elements,
                          "what was sent and is not yet merged", err));
    size_t given = 0;
    for (unsigned i = 0; i < ARRAYS; i++) {
        if (is_used[i]) *arrays[i] = outbox->memory + elements * given++;
    }
    return room_init(outbox, err);
}

void tw_inflight_deinit(struct tw_inflight *outbox) {
    if (outbox->vectors != NULL) outbox->vectors->free(outbox->vectors->self, outbox->memory);
    free(outbox->room);
    memset(outbox, 0, sizeof(*outbox));
}

/* Element `begin` of a fragment in one of the arrays. */
static float *at(const struct tw_inflight *outbox, float *array, uint32_t fragment, size_t begin) {
    return array + outbox->shm->fragment_begin[fragment] + begin;
}

static size_t size_of(const struct tw_inflight *outbox, uint32_t fragment) {
    return (size_t)tw_shm_fragment_elements(outbox->shm, fragment);
}

static void add_times(const struct tw_inflight *outbox, float *x, const float *y, float weight,
                      size_t n) {
    outbox->vectors->add(outbox->vectors->self, x, y, weight, n);
}

static void add(const struct tw_inflight *outbox, float *x, const float *y, size_t n) {
    add_times(outbox, x, y, 1.0f, n);
}

static void subtract(const struct tw_inflight *outbox, float *x, const float *y, size_t n) {
    add_times(outbox, x, y, -1.0f, n);
}

static void copy(const struct tw_inflight *outbox, float *x, const float *from, size_t n) {
    outbox->vectors->copy(outbox->vectors->self, x, from, n);
}

static void zero(const struct tw_inflight *outbox, float *x, size_t n) {
    outbox->vectors->zero(outbox->vectors->self, x, n);
}

static void scale(const struct tw_inflight *outbox, float *x, float factor, size_t n) {
    outbox->vectors->scale(outbox->vectors->self, x, factor, n);
}

static struct tw_outer rule_at(const struct tw_inflight *outbox, uint64_t version) {
    return tw_outer_at(outbox->run->sync.outer_lr_millionths,
                       outbox->run->sync.outer_momentum_millionths, outbox->run->sync.outer_ramp,
                       version);
}

/* rho: how much of e theta has in it. */
static float rho_of(const struct tw_inflight *outbox) {
    return (float)(outbox->run->sync.feedback_local_millionths / 1e6);
}

/* What is sent of e besides Delta, which has the part that is in theta. */
static float beta_of(const struct tw_inflight *outbox) {
    return (float)(outbox->run->sync.feedback_millionths / 1e6) * (1.0f - rho_of(outbox));
}

/* theta += sign (Delta - rho (v - D)), of what is under way. */
static void give(const struct tw_inflight *outbox, uint32_t fragment, float *theta, size_t begin,
                 size_t n, float sign) {
    add_times(outbox, theta, at(outbox, outbox->given, fragment, begin), sign, n);
    if (outbox->residual_next == NULL || rho_of(outbox) == 0.0f) return;
    add_times(outbox, theta, at(outbox, outbox->residual_next, fragment, begin),
              -sign * rho_of(outbox), n);
}

/* ---- the correction -------------------------------------------------------------------------- */

/* What one unit of delta makes of the momentum and of the anchor in the step it is given to. */
static void response(const struct tw_inflight *outbox, uint64_t version, float *of_u, float *of_c) {
    const struct tw_outer rule = rule_at(outbox, version);
    const bool is_heavyball = outbox->run->sync.outer == TW_OUTER_HEAVYBALL;
    *of_u = is_heavyball ? rule.lr : 1.0f;
    *of_c = is_heavyball ? -rule.lr : -rule.lr * (1.0f + rule.momentum);
}

/* Adds the share under way to the step c took last (sign 1), or takes it out again (-1). */
static void ahead_share(struct tw_inflight *outbox, uint32_t fragment, size_t begin, size_t n,
                        float sign) {
    const uint64_t version = outbox->fragments[fragment].round / outbox->shm->fragments_count;
    const float *share = at(outbox, outbox->share, fragment, begin);
    float of_u, of_c;
    response(outbox, version, &of_u, &of_c);
    add_times(outbox, at(outbox, outbox->ahead_u, fragment, begin), share, sign * of_u, n);
    add_times(outbox, at(outbox, outbox->ahead, fragment, begin), share, sign * of_c, n);
}

/* One outer step of c: on what the merge has of it by now, or on nothing. Uses the share up. */
static void ahead_step(struct tw_inflight *outbox, const struct tw_inflight_step *step,
                       size_t begin, size_t n, bool is_merged) {
    float *share = at(outbox, outbox->share, step->fragment, begin);
    const struct tw_vectors_outer outer = {
        .anchor = at(outbox, outbox->ahead, step->fragment, begin),
        .momentum = at(outbox, outbox->ahead_u, step->fragment, begin),
        .delta = share,
        .n = n,
        .rule = rule_at(outbox, step->version),
        .is_heavyball = outbox->run->sync.outer == TW_OUTER_HEAVYBALL,
    };
    if (is_merged) {
        scale(outbox, share, -1.0f, n);
    } else {
        zero(outbox, share, n);
    }
    outbox->vectors->outer(outbox->vectors->self, &outer);
}

/* w; 1 before a merge was seen. */
static float share_weight(const struct tw_inflight *outbox, uint32_t fragment) {
    const float weight = outbox->fragments[fragment].weight;
    return weight > 0.0f ? weight : 1.0f;
}

/* How much of the share is in the merge. 2 <x, y> = |x|^2 + |y|^2 - |x - y|^2. */
static void regress(struct tw_inflight *outbox, uint32_t fragment, size_t begin, size_t n,
                    const float *merged) {
    const struct tw_vectors *vectors = outbox->vectors;
    const float *share = at(outbox, outbox->share, fragment, begin);
    const double squares = vectors->norm_squared(vectors->self, share, n);
    const double of_merge = vectors->norm_squared(vectors->self, merged, n);
    const double apart = vectors->distance_squared(vectors->self, share, merged, n);
    outbox->fragments[fragment].squares += squares;
    outbox->fragments[fragment].along += (squares + of_merge - apart) / 2;
}

/* w of the next share, from the last: a regression of the merge on D. */
static void weigh(struct tw_inflight *outbox, uint32_t fragment, uint32_t contributors) {
    const double along = outbox->fragments[fragment].along;
    const double squares = outbox->fragments[fragment].squares;
    const float least = 1.0f / (float)contributors;
    const float weight = (float)(along / squares) * share_weight(outbox, fragment);
    outbox->fragments[fragment].along = outbox->fragments[fragment].squares = 0;
    if (!isfinite(weight)) return; /* nothing was sent, or nothing of it is merged */
    outbox->fragments[fragment].weight = fminf(fmaxf(weight, least), 1.0f);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* The same in an array that may be NULL. */
static float *maybe_at(const struct tw_inflight *outbox, float *array, uint32_t fragment,
                       size_t begin) {
    return array == NULL ? NULL : at(outbox, array, fragment, begin);
}

void tw_inflight_fill(struct tw_inflight *outbox, uint32_t fragment, float *v, const float *phi,
                      const float *theta) {
    TW_ASSERT(!outbox->fragments[fragment].is_out);
    const struct tw_vectors_delta delta = {
        .v = v,
        .given = maybe_at(outbox, outbox->given, fragment, 0),
        .phi = phi,
        .theta = theta,
        .ahead = maybe_at(outbox, outbox->ahead, fragment, 0),
        .residual = maybe_at(outbox, outbox->residual, fragment, 0),
        .beta = beta_of(outbox),
        .n = size_of(outbox, fragment),
    };
    outbox->vectors->delta(outbox->vectors->self, &delta);
}

void tw_inflight_clip(struct tw_inflight *outbox, uint32_t fragment, float factor) {
    if (outbox->given == NULL) return;
    scale(outbox, at(outbox, outbox->given, fragment, 0), factor, size_of(outbox, fragment));
}

/* Of D, in its place: w D. */
static void weigh_share(struct tw_inflight *outbox, uint32_t fragment, size_t begin, size_t n) {
    if (outbox->share == NULL) return;
    scale(outbox, at(outbox, outbox->share, fragment, begin), share_weight(outbox, fragment), n);
}

enum tw_status tw_inflight_pack(struct tw_inflight *outbox, uint32_t fragment, size_t begin,
                                size_t n, const struct tw_inflight_payload *payload,
                                struct tw_error *err) {
    const struct tw_vectors_pack pack = {
        .codec = payload->codec,
        .v = payload->v,
        .n = n,
        .out = payload->bytes,
        .decoded = maybe_at(outbox, outbox->share, fragment, begin),
        .lost = maybe_at(outbox, outbox->residual_next, fragment, begin),
    };
    TW_TRY(outbox->vectors->pack(outbox->vectors->self, &pack, err));
    weigh_share(outbox, fragment, begin, n);
    return TW_OK;
}

float *tw_inflight_lost(const struct tw_inflight *outbox, uint32_t fragment, size_t begin) {
    if (!outbox->vectors->is_host) return NULL;
    return maybe_at(outbox, outbox->residual_next, fragment, begin);
}

/* x (n) = D, or v - D where v is not NULL: what v + -1 D is, to the bit. */
static void note_decoded(struct tw_inflight *outbox, float *x,
                         const struct tw_inflight_payload *payload, const float *v, size_t n) {
    const struct tw_vectors *vectors = outbox->vectors;
    float *here = vectors->is_host ? x : outbox->room;
    const struct tw_codec *codec = payload->codec;
    if (v == NULL) {
        TW_ASSERT(codec->decode(payload->bytes, payload->bytes_count, here, n) == TW_OK);
    } else {
        if (here != v) memcpy(here, v, n * sizeof(float));
        TW_ASSERT(codec->decode_add(payload->bytes, payload->bytes_count, -1.0f, here, n) == TW_OK);
    }
    if (vectors->is_host) return;
    vectors->copy_in(vectors->self, x, here, n);
    (void)vectors->finish(vectors->self, NULL); /* room is free again; a fault stays one */
}

void tw_inflight_note(struct tw_inflight *outbox, uint32_t fragment, size_t begin, size_t n,
                      const struct tw_inflight_payload *payload) {
    if (outbox->residual_next != NULL && !payload->has_lost)
        note_decoded(outbox, at(outbox, outbox->residual_next, fragment, begin), payload,
                     payload->v, n);
    if (outbox->share != NULL)
        note_decoded(outbox, at(outbox, outbox->share, fragment, begin), payload, NULL, n);
    weigh_share(outbox, fragment, begin, n);
}

void tw_inflight_depart(struct tw_inflight *outbox, uint32_t fragment, uint64_t round,
                        float *theta) {
    const size_t n = size_of(outbox, fragment);
    outbox->fragments[fragment].is_out = true;
    outbox->fragments[fragment].round = round;
    if (outbox->run->sync.sent == TW_SENT_MIX || outbox->run->sync.sent == TW_SENT_KEEP) return;
    give(outbox, fragment, theta, 0, n, 1.0f);
    if (outbox->ahead == NULL) return;
    subtract(outbox, theta, at(outbox, outbox->ahead, fragment, 0), n);
    ahead_share(outbox, fragment, 0, n, 1.0f);
    add(outbox, theta, at(outbox, outbox->ahead, fragment, 0), n);
}

void tw_inflight_again(const struct tw_inflight *outbox, uint32_t fragment, float *v) {
    const size_t n = size_of(outbox, fragment);
    TW_ASSERT(outbox->given != NULL && outbox->fragments[fragment].is_out);
    copy(outbox, v, at(outbox, outbox->given, fragment, 0), n);
    if (outbox->residual == NULL) return;
    add_times(outbox, v, at(outbox, outbox->residual, fragment, 0), beta_of(outbox), n);
}

void tw_inflight_exact(struct tw_inflight *outbox, uint32_t fragment) {
    if (outbox->residual_next == NULL) return;
    zero(outbox, at(outbox, outbox->residual_next, fragment, 0), size_of(outbox, fragment));
}

/* ---- merging --------------------------------------------------------------------------------- */

/* A merge that has work of ours which nobody here remembers: the worker has started since. */
static void land_unknown(struct tw_inflight *outbox, const struct tw_inflight_step *step,
                         size_t begin, size_t n) {
    copy(outbox, step->theta + begin, step->phi + begin, n);
    if (outbox->ahead == NULL) return;
    zero(outbox, at(outbox, outbox->ahead, step->fragment, begin), n);
    zero(outbox, at(outbox, outbox->ahead_u, step->fragment, begin), n);
}

/* What was sent is in the merge. */
static void take_as_merged(struct tw_inflight *outbox, uint32_t fragment, float *theta,
                           size_t begin, size_t n) {
    if (outbox->run->sync.sent == TW_SENT_KEEP) give(outbox, fragment, theta, begin, n, 1.0f);
    if (outbox->residual == NULL) return;
    copy(outbox, at(outbox, outbox->residual, fragment, begin),
         at(outbox, outbox->residual_next, fragment, begin), n);
}

/* What was sent is nowhere. */
static void take_back(struct tw_inflight *outbox, uint32_t fragment, float *theta, size_t begin,
                      size_t n) {
    const enum tw_sent sent = outbox->run->sync.sent;
    if (sent == TW_SENT_RESTART || sent == TW_SENT_EAGER)
        give(outbox, fragment, theta, begin, n, -1.0f);
    if (outbox->ahead != NULL) ahead_share(outbox, fragment, begin, n, -1.0f);
}

void tw_inflight_land(struct tw_inflight *outbox, const struct tw_inflight_step *step, size_t begin,
                      size_t n, enum tw_apply_mode mode) {
    const struct tw_vectors *vectors = outbox->vectors;
    const uint32_t fragment = step->fragment;
    const bool is_out = outbox->fragments[fragment].is_out, is_merged = mode == TW_APPLY_MIX;
    float *theta = step->theta + begin;
    if (outbox->run->sync.sent == TW_SENT_MIX && is_merged) {
        const float alpha = (float)outbox->run->sync.mix_millionths / 1e6f;
        if (is_out) take_as_merged(outbox, fragment, theta, begin, n);
        vectors->mix(vectors->self, theta, step->phi + begin, alpha, n);
        return;
    }
    if (is_merged && !is_out) {
        land_unknown(outbox, step, begin, n);
        return;
    }
    if (outbox->ahead != NULL)
        subtract(outbox, theta, at(outbox, outbox->ahead, fragment, begin), n);
    if (outbox->ahead != NULL && is_merged)
        regress(outbox, fragment, begin, n, step->merged + begin);
    if (is_merged) {
        take_as_merged(outbox, fragment, theta, begin, n);
    } else if (is_out) {
        take_back(outbox, fragment, theta, begin, n);
    }
    if (mode == TW_APPLY_MIX || mode == TW_APPLY_SHIFT) {
        vectors->shift(vectors->self, theta, step->phi + begin, step->phi_old + begin, n);
        if (outbox->ahead != NULL) ahead_step(outbox, step, begin, n, is_merged);
    }
    if (outbox->ahead != NULL) add(outbox, theta, at(outbox, outbox->ahead, fragment, begin), n);
}

void tw_inflight_arrive(struct tw_inflight *outbox, uint32_t fragment, uint32_t contributors) {
    outbox->fragments[fragment].is_out = false;
    if (outbox->ahead != NULL && contributors > 0) weigh(outbox, fragment, contributors);
}

void tw_inflight_recall(struct tw_inflight *outbox, uint32_t fragment, float *theta) {
    const struct tw_inflight_step nowhere = {.fragment = fragment, .theta = theta};
    if (!outbox->fragments[fragment].is_out) return;
    tw_inflight_land(outbox, &nowhere, 0, size_of(outbox, fragment), TW_APPLY_ABSENT);
    tw_inflight_arrive(outbox, fragment, 0);
}

void tw_inflight_clear(struct tw_inflight *outbox, uint32_t fragment, float *theta) {
    tw_inflight_recall(outbox, fragment, theta);
    if (outbox->ahead != NULL)
        subtract(outbox, theta, at(outbox, outbox->ahead, fragment, 0), size_of(outbox, fragment));
    tw_inflight_forget(outbox, fragment);
}

void tw_inflight_flush(struct tw_inflight *outbox, uint32_t fragment, float *theta) {
    if (outbox->residual == NULL) return;
    float *residual = at(outbox, outbox->residual, fragment, 0);
    add_times(outbox, theta, residual, rho_of(outbox) - 1.0f, size_of(outbox, fragment));
    zero(outbox, residual, size_of(outbox, fragment));
}

void tw_inflight_forget(struct tw_inflight *outbox, uint32_t fragment) {
    float *const arrays[] = {outbox->residual, outbox->ahead, outbox->ahead_u};
    for (unsigned i = 0; i < 3; i++) {
        if (arrays[i] == NULL) continue;
        zero(outbox, at(outbox, arrays[i], fragment, 0), size_of(outbox, fragment));
    }
    outbox->fragments[fragment].is_out = false;
}
