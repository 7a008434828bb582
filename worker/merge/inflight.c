#include "worker/merge/inflight.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "kernels/outer.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"
#include "worker/merge/merge_memory.h"

/* ---- requests -------------------------------------------------------------------------------- */

enum tw_status tw_request_fragment(const struct tw_shm *shm, uint32_t fragment,
                                   struct tw_error *err) {
    if (fragment < shm->fragments_count) return TW_OK;
    return tw_fail(err, TW_PROTO, "fragment %u of %u", fragment, shm->fragments_count);
}

int64_t tw_request_fragment_of(const struct tw_worker_msg *msg) {
    switch (msg->kind) {
    case TW_WMSG_ENCODE: return msg->u.encode.fragment;
    case TW_WMSG_APPLY: return msg->u.apply.fragment;
    case TW_WMSG_SOLO: return msg->u.solo.fragment;
    case TW_WMSG_PAIR_ENCODE: return msg->u.pair_encode.fragment;
    case TW_WMSG_PAIR_APPLY: return msg->u.pair_apply.fragment;
    case TW_WMSG_EXPORT: return msg->u.export.fragment;
    case TW_WMSG_LOAD: return msg->u.load.fragment;
    default: return -1;
    }
}

enum tw_status tw_request_range(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                                uint64_t count, struct tw_error *err) {
    const uint64_t elements = tw_shm_fragment_elements(shm, fragment);
    if (begin <= elements && count <= elements - begin) return TW_OK;
    return tw_fail(err, TW_PROTO, "part [%llu, +%llu) of fragment %u with %llu elements",
                   (unsigned long long)begin, (unsigned long long)count, fragment,
                   (unsigned long long)elements);
}

enum tw_status tw_request_part(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                               uint64_t count, uint64_t *end, struct tw_error *err) {
    TW_TRY(tw_request_range(shm, fragment, begin, count, err));
    if (begin != *end) {
        return tw_fail(err, TW_PROTO,
                       "a part of fragment %u begins at %llu, the one before ends at "
                       "%llu",
                       fragment, (unsigned long long)begin, (unsigned long long)*end);
    }
    *end = begin + count;
    return TW_OK;
}

enum tw_status tw_request_whole(const struct tw_shm *shm, uint32_t fragment, uint64_t end,
                                struct tw_error *err) {
    const uint64_t elements = tw_shm_fragment_elements(shm, fragment);
    if (end == elements) return TW_OK;
    return tw_fail(err, TW_PROTO, "parts of fragment %u end at %llu of %llu elements", fragment,
                   (unsigned long long)end, (unsigned long long)elements);
}

enum tw_status tw_request_span(const struct tw_shm *shm, const struct tw_span *span,
                               uint8_t **bytes, struct tw_error *err) {
    /* An empty span has no place in the pool, so any valid offset serves. */
    const uint64_t offset = span->bytes > 0 ? span->offset : shm->geometry.pool;
    *bytes = tw_shm_pool(shm, offset, span->bytes);
    if (*bytes != NULL) return TW_OK;
    return tw_fail(err, TW_PROTO, "span of %u bytes at %llu lies outside the pool", span->bytes,
                   (unsigned long long)span->offset);
}

enum tw_status tw_request_payload(const struct tw_shm *shm, const struct tw_codec *codec,
                                  const struct tw_span *span, uint64_t count,
                                  struct tw_error *err) {
    uint8_t *bytes;
    TW_TRY(tw_request_span(shm, span, &bytes, err));
    if (codec->check(bytes, span->bytes, (size_t)count) == TW_OK) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "a payload of %u bytes is not %llu elements in %s", span->bytes,
                   (unsigned long long)count, codec->name);
}

/* ---- a part within a number of bytes -- */

static int order(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static enum tw_status find_ends(struct tw_rate_fit *fit, const struct tw_run *run,
                                struct tw_error *err) {
    struct tw_layout *layout = malloc(sizeof(*layout));
    if (layout == NULL) return tw_fail(err, TW_NOMEM, "no memory for the model's layout");
    const enum tw_status status = tw_layout_init(layout, run, err);
    for (uint32_t t = 0; status == TW_OK && t < layout->tensors_count; t++) {
        const struct tw_tensor *tensor = &layout->tensors[t];
        fit->ends[fit->ends_count++] = tensor->offset + (uint64_t)tensor->rows * tensor->cols;
    }
    free(layout);
    qsort(fit->ends, fit->ends_count, sizeof(fit->ends[0]), order);
    return status;
}

enum tw_status tw_rate_fit_create(struct tw_rate_fit **fit, const struct tw_run *run,
                                  struct tw_error *err) {
    /* This reserves mostly address space: a small model touches few of its pages. */
    *fit = malloc(sizeof(**fit));
    if (*fit == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for dealing out bytes: %zu wanted", sizeof(**fit));
    }
    (*fit)->ends_count = 0;
    const enum tw_status status = find_ends(*fit, run, err);
    if (status == TW_OK) return TW_OK;
    tw_rate_fit_destroy(*fit);
    *fit = NULL;
    return status;
}

void tw_rate_fit_destroy(struct tw_rate_fit *fit) {
    free(fit);
}

enum tw_status tw_rate_fit_encode(struct tw_rate_fit *fit, const struct tw_rate_fit_part *part,
                                  size_t *bytes_out) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < fit->ends_count; i++) {
        if (fit->ends[i] <= part->begin || fit->ends[i] >= part->begin + part->n) continue;
        fit->inside[count++] = fit->ends[i] - part->begin;
    }
    const struct tw_auto_part inner = {.x = part->x,
                                       .n = part->n,
                                       .ends = fit->inside,
                                       .ends_count = count,
                                       .bytes_max = part->bytes_max};
    return tw_auto_encode(&fit->work, &inner, part->out, part->capacity, bytes_out);
}

/* ---- contributions in flight ----------------------------------------------------------------- */

/* Allocates `room`, if needed. When parameters lie on a device but are encoded on the host,
 * payloads are decoded into `room` on the host and then copied to the device. */
static enum tw_status room_init(struct tw_inflight *inflight, struct tw_error *err) {
    const size_t bytes = (size_t)inflight->shm->geometry.spare_elements * sizeof(float);
    const bool has_use = inflight->residual_next != NULL || inflight->share != NULL;
    if (inflight->vectors->is_host || !has_use) return TW_OK;
    inflight->room = malloc(bytes);
    if (inflight->room != NULL) return TW_OK;
    return tw_fail(err, TW_NOMEM, "no memory to decode what was sent: %zu bytes", bytes);
}

enum tw_status tw_inflight_init(struct tw_inflight *inflight, const struct tw_run *run,
                                const struct tw_shm *shm, const struct tw_vectors *vectors,
                                struct tw_error *err) {
    memset(inflight, 0, sizeof(*inflight));
    inflight->run = run;
    inflight->shm = shm;
    inflight->vectors = vectors;
    float **const arrays[TW_INFLIGHT_ARRAYS] = {
        [TW_INFLIGHT_RESIDUAL] = &inflight->residual,
        [TW_INFLIGHT_RESIDUAL_NEXT] = &inflight->residual_next,
        [TW_INFLIGHT_GIVEN] = &inflight->given,
        [TW_INFLIGHT_SHARE] = &inflight->share,
        [TW_INFLIGHT_AHEAD] = &inflight->ahead,
        [TW_INFLIGHT_AHEAD_U] = &inflight->ahead_u,
    };
    bool is_used[TW_INFLIGHT_ARRAYS];
    const size_t elements = (size_t)shm->geometry.elements,
                 used = tw_merge_inflight_arrays(run, is_used);
    if (used == 0) return TW_OK;
    TW_TRY(vectors->alloc(vectors->self, &inflight->memory, used * elements,
                          "what was sent and is not yet merged", err));
    size_t given = 0;
    for (unsigned i = 0; i < TW_INFLIGHT_ARRAYS; i++) {
        if (is_used[i]) *arrays[i] = inflight->memory + elements * given++;
    }
    return room_init(inflight, err);
}

void tw_inflight_deinit(struct tw_inflight *inflight) {
    if (inflight->vectors != NULL)
        inflight->vectors->free(inflight->vectors->self, inflight->memory);
    free(inflight->room);
    memset(inflight, 0, sizeof(*inflight));
}

/* Returns the address of element `begin` of a fragment in one of the arrays. */
static float *at(const struct tw_inflight *inflight, float *array, uint32_t fragment,
                 size_t begin) {
    return array + inflight->shm->fragment_begin[fragment] + begin;
}

static size_t size_of(const struct tw_inflight *inflight, uint32_t fragment) {
    return (size_t)tw_shm_fragment_elements(inflight->shm, fragment);
}

/* Returns the pages of a merged Delta to the system, if they are host memory. Nothing reads a Delta
 * after its merge, and few fragments are in flight at a time. */
static void give_pages_back(const struct tw_inflight *inflight, uint32_t fragment) {
    if (inflight->given == NULL || !inflight->vectors->is_host) return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)at(inflight, inflight->given, fragment, 0);
    const uintptr_t end = begin + size_of(inflight, fragment) * sizeof(float);
    const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
    /* If the system refuses, the pages just stay in use. */
    if (last > first) (void)madvise((void *)first, last - first, MADV_DONTNEED);
}

static void add_times(const struct tw_inflight *inflight, float *x, const float *y, float weight,
                      size_t n) {
    inflight->vectors->add(inflight->vectors->self, x, y, weight, n);
}

static void add(const struct tw_inflight *inflight, float *x, const float *y, size_t n) {
    add_times(inflight, x, y, 1.0f, n);
}

static void subtract(const struct tw_inflight *inflight, float *x, const float *y, size_t n) {
    add_times(inflight, x, y, -1.0f, n);
}

static void copy(const struct tw_inflight *inflight, float *x, const float *from, size_t n) {
    inflight->vectors->copy(inflight->vectors->self, x, from, n);
}

static void zero(const struct tw_inflight *inflight, float *x, size_t n) {
    inflight->vectors->zero(inflight->vectors->self, x, n);
}

static void scale(const struct tw_inflight *inflight, float *x, float factor, size_t n) {
    inflight->vectors->scale(inflight->vectors->self, x, factor, n);
}

static struct tw_outer rule_at(const struct tw_inflight *inflight, uint64_t version) {
    return tw_outer_at(inflight->run->sync.outer_lr_millionths,
                       inflight->run->sync.outer_momentum_millionths,
                       inflight->run->sync.outer_ramp, version);
}

/* Returns rho, the fraction of the residual e that is in theta. */
static float rho_of(const struct tw_inflight *inflight) {
    return (float)(inflight->run->sync.feedback_local_millionths / 1e6);
}

/* Returns beta', the factor of e in v = beta' * e + Delta. It is reduced because Delta already
 * contains rho * e. */
static float beta_of(const struct tw_inflight *inflight) {
    return (float)(inflight->run->sync.feedback_millionths / 1e6) * (1.0f - rho_of(inflight));
}

/* Adds sign * (Delta - rho * (v - D)) of the work in flight to theta. */
static void give(const struct tw_inflight *inflight, uint32_t fragment, float *theta, size_t begin,
                 size_t n, float sign) {
    add_times(inflight, theta, at(inflight, inflight->given, fragment, begin), sign, n);
    if (inflight->residual_next == NULL || rho_of(inflight) == 0.0f) return;
    add_times(inflight, theta, at(inflight, inflight->residual_next, fragment, begin),
              -sign * rho_of(inflight), n);
}

/* ---- the correction -------------------------------------------------------------------------- */

/* Computes how much one outer step changes momentum and anchor per unit of delta. */
static void response(const struct tw_inflight *inflight, uint64_t version, float *of_u,
                     float *of_c) {
    const struct tw_outer rule = rule_at(inflight, version);
    const bool is_heavyball = inflight->run->sync.outer == TW_OUTER_HEAVYBALL;
    *of_u = is_heavyball ? rule.lr : 1.0f;
    *of_c = is_heavyball ? -rule.lr : -rule.lr * (1.0f + rule.momentum);
}

/* Adds the share in flight to the last step of c (sign = 1), or removes it (sign = -1). */
static void ahead_share(struct tw_inflight *inflight, uint32_t fragment, size_t begin, size_t n,
                        float sign) {
    const uint64_t version = inflight->fragments[fragment].round / inflight->shm->fragments_count;
    const float *share = at(inflight, inflight->share, fragment, begin);
    float of_u, of_c;
    response(inflight, version, &of_u, &of_c);
    add_times(inflight, at(inflight, inflight->ahead_u, fragment, begin), share, sign * of_u, n);
    add_times(inflight, at(inflight, inflight->ahead, fragment, begin), share, sign * of_c, n);
}

/* Takes one outer step of c. Its delta is minus the share if the share was merged, else 0.
 * Overwrites the share. */
static void ahead_step(struct tw_inflight *inflight, const struct tw_inflight_step *step,
                       size_t begin, size_t n, bool is_merged) {
    float *share = at(inflight, inflight->share, step->fragment, begin);
    const struct tw_vectors_outer outer = {
        .anchor = at(inflight, inflight->ahead, step->fragment, begin),
        .momentum = at(inflight, inflight->ahead_u, step->fragment, begin),
        .delta = share,
        .n = n,
        .rule = rule_at(inflight, step->version),
        .is_heavyball = inflight->run->sync.outer == TW_OUTER_HEAVYBALL,
    };
    if (is_merged) {
        scale(inflight, share, -1.0f, n);
    } else {
        zero(inflight, share, n);
    }
    inflight->vectors->outer(inflight->vectors->self, &outer);
}

/* Returns the weight w; 1 before the first merge. */
static float share_weight(const struct tw_inflight *inflight, uint32_t fragment) {
    const float weight = inflight->fragments[fragment].weight;
    return weight > 0.0f ? weight : 1.0f;
}

/* Adds up <merge, share> and |share|^2. The first is computed from 2 * <x, y> = |x|^2 + |y|^2 - |x
 * - y|^2. */
static void regress(struct tw_inflight *inflight, uint32_t fragment, size_t begin, size_t n,
                    const float *merged) {
    const struct tw_vectors *vectors = inflight->vectors;
    const float *share = at(inflight, inflight->share, fragment, begin);
    const double squares = vectors->norm_squared(vectors->self, share, n);
    const double of_merge = vectors->norm_squared(vectors->self, merged, n);
    const double apart = vectors->distance_squared(vectors->self, share, merged, n);
    inflight->fragments[fragment].squares += squares;
    inflight->fragments[fragment].along += (squares + of_merge - apart) / 2;
}

/* Sets w for the next share: the regression coefficient of the merge on D. */
static void weigh(struct tw_inflight *inflight, uint32_t fragment, uint32_t contributors) {
    const double along = inflight->fragments[fragment].along;
    const double squares = inflight->fragments[fragment].squares;
    const float least = 1.0f / (float)contributors;
    const float weight = (float)(along / squares) * share_weight(inflight, fragment);
    inflight->fragments[fragment].along = inflight->fragments[fragment].squares = 0;
    if (!isfinite(weight)) return; /* no share was sent or merged */
    inflight->fragments[fragment].weight = fminf(fmaxf(weight, least), 1.0f);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Like `at`, for an array that may be NULL. */
static float *maybe_at(const struct tw_inflight *inflight, float *array, uint32_t fragment,
                       size_t begin) {
    return array == NULL ? NULL : at(inflight, array, fragment, begin);
}

void tw_inflight_begin(struct tw_inflight *inflight, uint32_t fragment, float *v, const float *phi,
                       float *theta) {
    tw_inflight_recall(inflight, fragment, theta);
    const struct tw_vectors_delta delta = {
        .v = v,
        .given = maybe_at(inflight, inflight->given, fragment, 0),
        .phi = phi,
        .theta = theta,
        .ahead = maybe_at(inflight, inflight->ahead, fragment, 0),
        .residual = maybe_at(inflight, inflight->residual, fragment, 0),
        .beta = beta_of(inflight),
        .n = size_of(inflight, fragment),
    };
    inflight->vectors->delta(inflight->vectors->self, &delta);
}

void tw_inflight_clip(struct tw_inflight *inflight, uint32_t fragment, float factor) {
    if (inflight->given == NULL) return;
    scale(inflight, at(inflight, inflight->given, fragment, 0), factor,
          size_of(inflight, fragment));
}

/* Multiplies D, in the array `share`, by w. */
static void weigh_share(struct tw_inflight *inflight, uint32_t fragment, size_t begin, size_t n) {
    if (inflight->share == NULL) return;
    scale(inflight, at(inflight, inflight->share, fragment, begin),
          share_weight(inflight, fragment), n);
}

enum tw_status tw_inflight_pack(struct tw_inflight *inflight, uint32_t fragment, size_t begin,
                                size_t n, const struct tw_inflight_payload *payload,
                                struct tw_error *err) {
    const struct tw_vectors_pack pack = {
        .codec = payload->codec,
        .v = payload->v,
        .n = n,
        .out = payload->bytes,
        .decoded = maybe_at(inflight, inflight->share, fragment, begin),
        .lost = maybe_at(inflight, inflight->residual_next, fragment, begin),
    };
    TW_TRY(inflight->vectors->pack(inflight->vectors->self, &pack, err));
    weigh_share(inflight, fragment, begin, n);
    return TW_OK;
}

float *tw_inflight_lost(const struct tw_inflight *inflight, uint32_t fragment, size_t begin) {
    if (!inflight->vectors->is_host) return NULL;
    return maybe_at(inflight, inflight->residual_next, fragment, begin);
}

/* Sets x (n) to D, or to v - D if v is not NULL. The bits are the same as of v + (-1) * D. */
static void note_decoded(struct tw_inflight *inflight, float *x,
                         const struct tw_inflight_payload *payload, const float *v, size_t n) {
    const struct tw_vectors *vectors = inflight->vectors;
    float *here = vectors->is_host ? x : inflight->room;
    const struct tw_codec *codec = payload->codec;
    if (v == NULL) {
        TW_ASSERT(codec->decode(payload->bytes, payload->bytes_count, here, n) == TW_OK);
    } else {
        if (here != v) memcpy(here, v, n * sizeof(float));
        TW_ASSERT(codec->decode_add(payload->bytes, payload->bytes_count, -1.0f, here, n) == TW_OK);
    }
    if (vectors->is_host) return;
    vectors->copy_in(vectors->self, x, here, n);
    (void)vectors->finish(vectors->self,
                          /* room may be reused after this; a device fault is reported later */
                          NULL);
}

void tw_inflight_note(struct tw_inflight *inflight, uint32_t fragment, size_t begin, size_t n,
                      const struct tw_inflight_payload *payload) {
    if (inflight->residual_next != NULL && !payload->has_lost)
        note_decoded(inflight, at(inflight, inflight->residual_next, fragment, begin), payload,
                     payload->v, n);
    if (inflight->share != NULL)
        note_decoded(inflight, at(inflight, inflight->share, fragment, begin), payload, NULL, n);
    weigh_share(inflight, fragment, begin, n);
}

void tw_inflight_commit(struct tw_inflight *inflight, uint32_t fragment, uint64_t round,
                        float *theta) {
    const size_t n = size_of(inflight, fragment);
    inflight->fragments[fragment].is_out = true;
    inflight->fragments[fragment].round = round;
    if (inflight->run->sync.sent == TW_SENT_MIX || inflight->run->sync.sent == TW_SENT_KEEP) return;
    give(inflight, fragment, theta, 0, n, 1.0f);
    if (inflight->ahead == NULL) return;
    subtract(inflight, theta, at(inflight, inflight->ahead, fragment, 0), n);
    ahead_share(inflight, fragment, 0, n, 1.0f);
    add(inflight, theta, at(inflight, inflight->ahead, fragment, 0), n);
}

void tw_inflight_again(const struct tw_inflight *inflight, uint32_t fragment, float *v) {
    const size_t n = size_of(inflight, fragment);
    TW_ASSERT(inflight->given != NULL && inflight->fragments[fragment].is_out);
    copy(inflight, v, at(inflight, inflight->given, fragment, 0), n);
    if (inflight->residual == NULL) return;
    add_times(inflight, v, at(inflight, inflight->residual, fragment, 0), beta_of(inflight), n);
}

void tw_inflight_exact(struct tw_inflight *inflight, uint32_t fragment) {
    if (inflight->residual_next == NULL) return;
    zero(inflight, at(inflight, inflight->residual_next, fragment, 0), size_of(inflight, fragment));
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Handles a merge of work that was sent before this worker started, so its Delta is unknown: theta
 * is set to phi, and c to 0. */
static void land_unknown(struct tw_inflight *inflight, const struct tw_inflight_step *step,
                         size_t begin, size_t n) {
    copy(inflight, step->theta + begin, step->phi + begin, n);
    if (inflight->ahead == NULL) return;
    zero(inflight, at(inflight, inflight->ahead, step->fragment, begin), n);
    zero(inflight, at(inflight, inflight->ahead_u, step->fragment, begin), n);
}

/* Called before the merged work in flight is taken as such. A sparse result leaves out all but the
 * largest elements of a merge; this node's values of the others stay in its residual. */
static void regain(const struct tw_inflight *inflight, uint32_t fragment, const float *merged,
                   size_t begin, size_t n) {
    const struct tw_regain wanted = {.next = at(inflight, inflight->residual_next, fragment, begin),
                                     .merged = merged + begin,
                                     .delta = at(inflight, inflight->given, fragment, begin),
                                     .residual = at(inflight, inflight->residual, fragment, begin),
                                     .beta = beta_of(inflight),
                                     .n = n};
    inflight->vectors->regain(inflight->vectors->self, &wanted);
}

/* Called when the work in flight was merged: its quantisation error becomes the residual. */
static void take_as_merged(struct tw_inflight *inflight, uint32_t fragment, float *theta,
                           size_t begin, size_t n) {
    if (inflight->run->sync.sent == TW_SENT_KEEP) give(inflight, fragment, theta, begin, n, 1.0f);
    if (inflight->residual == NULL) return;
    copy(inflight, at(inflight, inflight->residual, fragment, begin),
         at(inflight, inflight->residual_next, fragment, begin), n);
}

/* Called when the work in flight was not merged: the work returns to theta. */
static void take_back(struct tw_inflight *inflight, uint32_t fragment, float *theta, size_t begin,
                      size_t n) {
    const enum tw_sent sent = inflight->run->sync.sent;
    if (sent == TW_SENT_RESTART || sent == TW_SENT_EAGER)
        give(inflight, fragment, theta, begin, n, -1.0f);
    if (inflight->ahead != NULL) ahead_share(inflight, fragment, begin, n, -1.0f);
}

void tw_inflight_land(struct tw_inflight *inflight, const struct tw_inflight_step *step,
                      size_t begin, size_t n, enum tw_apply_mode mode) {
    const struct tw_vectors *vectors = inflight->vectors;
    const uint32_t fragment = step->fragment;
    const bool is_out = inflight->fragments[fragment].is_out, is_merged = mode == TW_APPLY_MIX;
    float *theta = step->theta + begin;
    if (inflight->run->sync.sent == TW_SENT_MIX && is_merged) {
        const float alpha = (float)inflight->run->sync.mix_millionths / 1e6f;
        if (is_out) take_as_merged(inflight, fragment, theta, begin, n);
        vectors->mix(vectors->self, theta, step->phi + begin, alpha, n);
        return;
    }
    if (is_merged && !is_out) {
        land_unknown(inflight, step, begin, n);
        return;
    }
    if (inflight->ahead != NULL)
        subtract(inflight, theta, at(inflight, inflight->ahead, fragment, begin), n);
    if (inflight->ahead != NULL && is_merged)
        regress(inflight, fragment, begin, n, step->merged + begin);
    if (is_merged && tw_run_needs_feedback(inflight->run->sync.result))
        regain(inflight, fragment, step->merged, begin, n);
    if (is_merged) {
        take_as_merged(inflight, fragment, theta, begin, n);
    } else if (is_out) {
        take_back(inflight, fragment, theta, begin, n);
    }
    if (mode == TW_APPLY_MIX || mode == TW_APPLY_SHIFT) {
        vectors->shift(vectors->self, theta, step->phi + begin, step->phi_old + begin, n);
        if (inflight->ahead != NULL) ahead_step(inflight, step, begin, n, is_merged);
    }
    if (inflight->ahead != NULL)
        add(inflight, theta, at(inflight, inflight->ahead, fragment, begin), n);
}

void tw_inflight_arrive(struct tw_inflight *inflight, uint32_t fragment, uint32_t contributors) {
    inflight->fragments[fragment].is_out = false;
    give_pages_back(inflight, fragment);
    if (inflight->ahead != NULL && contributors > 0) weigh(inflight, fragment, contributors);
}

void tw_inflight_recall(struct tw_inflight *inflight, uint32_t fragment, float *theta) {
    const struct tw_inflight_step nowhere = {.fragment = fragment, .theta = theta};
    if (!inflight->fragments[fragment].is_out) return;
    tw_inflight_land(inflight, &nowhere, 0, size_of(inflight, fragment), TW_APPLY_ABSENT);
    tw_inflight_arrive(inflight, fragment, 0);
}

void tw_inflight_clear(struct tw_inflight *inflight, uint32_t fragment, float *theta) {
    tw_inflight_recall(inflight, fragment, theta);
    if (inflight->ahead != NULL)
        subtract(inflight, theta, at(inflight, inflight->ahead, fragment, 0),
                 size_of(inflight, fragment));
    tw_inflight_forget(inflight, fragment);
}

void tw_inflight_flush(struct tw_inflight *inflight, uint32_t fragment, float *theta) {
    if (inflight->residual == NULL) return;
    float *residual = at(inflight, inflight->residual, fragment, 0);
    add_times(inflight, theta, residual, rho_of(inflight) - 1.0f, size_of(inflight, fragment));
    zero(inflight, residual, size_of(inflight, fragment));
}

void tw_inflight_forget(struct tw_inflight *inflight, uint32_t fragment) {
    float *const arrays[] = {inflight->residual, inflight->ahead, inflight->ahead_u};
    for (unsigned i = 0; i < 3; i++) {
        if (arrays[i] == NULL) continue;
        zero(inflight, at(inflight, arrays[i], fragment, 0), size_of(inflight, fragment));
    }
    inflight->fragments[fragment].is_out = false;
    give_pages_back(inflight, fragment);
}
