#include "worker/merge/merger.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "compress/lattice.h"
#include "kernels/merge.h"
#include "kernels/norm.h"
#include "kernels/outlier.h"
#include "proto/run/run_key.h"
#include "proto/worker_request.h"
#include "worker/merge/merge_memory.h"

/* ---- parts ----------------------------------------------------------------------------------- */

/* The inputs that the guard accepted. */
struct taken {
    uint32_t count;
    uint32_t inputs[TW_MEMBERS_MAX]; /* indices of the inputs in the request */
    float factors[TW_MEMBERS_MAX];   /* factor by which the guard (kernels/outlier.h) scales each
                                        input */
    float weights[TW_MEMBERS_MAX];   /* sum to 1 */
};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Working memory of RDA: the tensors, and one sum per tensor. */
struct tw_pieces {
    struct tw_layout layout;
    double rho[TW_TENSORS_MAX];
};

/* For merger.c: allocates the memory of the merge rule. Call deinit also after a failed init.
 * Errors: TW_NOMEM. */
static enum tw_status reduce_init(struct tw_merger *merger, struct tw_error *err) {
    const size_t elements = (size_t)merger->shm->geometry.spare_elements;
    const bool is_rda = merger->run->sync.merge == TW_MERGE_RDA;
    const size_t inputs = (size_t)tw_merge_reduce_inputs(merger->run);
    if (inputs == 0) return TW_OK;
    /* This reserves address space only: pages that no merge touches cost no memory. */
    merger->inputs = malloc(inputs * elements * sizeof(float));
    if (merger->inputs == NULL) {
        return tw_fail(err, TW_NOMEM,
                       "no memory for %zu contributions to be merged: %zu bytes wanted; a smaller "
                       "sync.members, more fragments or sync.merge = mean need less",
                       inputs, inputs * elements * sizeof(float));
    }
    merger->inputs_elements = inputs * elements;
    if (!is_rda) return TW_OK;
    merger->pieces = calloc(1, sizeof(*merger->pieces));
    if (merger->pieces == NULL) return tw_fail(err, TW_NOMEM, "no memory for the model's layout");
    return tw_layout_init(&merger->pieces->layout, merger->run, err);
}

static void reduce_deinit(struct tw_merger *merger) {
    free(merger->pieces);
    free(merger->inputs);
}

/* ---- the guard ------------------------------------------------------------------------------- */

static enum tw_status input_fail(const struct tw_merger *merger,
                                 const struct tw_wmsg_reduce *request, uint32_t input,
                                 enum tw_status status, struct tw_error *err) {
    return tw_fail(err, status,
                   "contribution %u to part %u of fragment %u does not decode: %u bytes are not "
                   "%" PRIu64 " elements in %s",
                   input, request->part, request->fragment, request->inputs[input].in.bytes,
                   request->count, merger->codec->name);
}

/* Sets x (request->count) to factor * the decoded input. */
static enum tw_status input_decode(const struct tw_merger *merger,
                                   const struct tw_wmsg_reduce *request, uint32_t input,
                                   float factor, float *x, struct tw_error *err) {
    const struct tw_span *span = &request->inputs[input].in;
    const size_t n = (size_t)request->count;
    uint8_t *bytes;
    TW_TRY(tw_request_span(merger->shm, span, &bytes, err));
    const enum tw_status status = merger->codec->decode(bytes, span->bytes, x, n);
    if (status != TW_OK) return input_fail(merger, request, input, status, err);
    if (factor != 1.0f) tw_scale(x, factor, n);
    return TW_OK;
}

/* Sizes of the inputs, computed before the merge. */
struct sized {
    double norms[TW_MEMBERS_MAX];
    double excess[TW_MEMBERS_MAX]; /* results of tw_outlier_excess, if there are too few inputs for
                                      the guard */
    uint32_t steps[TW_MEMBERS_MAX];
};

static enum tw_status size_inputs(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                  struct sized *sized, struct tw_error *err) {
    const size_t n = (size_t)request->count, begin = (size_t)request->begin;
    const bool is_few = request->inputs_count < TW_GUARD_LEAST;
    for (uint32_t i = 0; i < request->inputs_count; i++) {
        struct tw_outlier_sizes sizes = {.count = {0}};
        sized->norms[i] = sized->excess[i] = 0;
        sized->steps[i] = request->inputs[i].steps;
        if (is_few && request->is_audit != 0) continue; /* an audit must merge all listed inputs */
        TW_TRY(input_decode(merger, request, i, 1.0f, merger->scratch, err));
        sized->norms[i] = sqrt(tw_norm_squared(merger->scratch, n));
        if (!is_few) continue;
        tw_outlier_add(&sizes, merger->scratch, begin, n,
                       (size_t)tw_shm_fragment_elements(merger->shm, request->fragment));
        sized->excess[i] = tw_outlier_excess(&merger->outlier[request->fragment], &sizes);
    }
    return TW_OK;
}

/* Judges one or two inputs by earlier merges of the fragment, because they do not show the usual
 * size themselves. As in the guard, an input of more steps may be larger; for a single input the
 * usual steps are not known. An auditor merges the listed inputs without this check. The check may
 * therefore depend on this node's history, but it may only refuse an input, never scale it. */
static uint64_t refuse_few(float *factors, const struct sized *sized, uint32_t count) {
    uint64_t refused = 0;
    for (uint32_t i = 0; i < count; i++) {
        double own = sized->steps[i], least = own;
        for (uint32_t j = 0; j < count; j++) least = fmin(least, sized->steps[j]);
        const double ratio = count == 1 ? TW_CLAIM_FEW : fmax(own, 1) / fmax(least, 1);
        const double allowed = TW_OUTLIER_INPUT * sqrt(fmin(ratio, TW_CLAIM_FEW));
        factors[i] = sized->excess[i] > allowed ? 0.0f : 1.0f;
        if (factors[i] == 0.0f) refused |= UINT64_C(1) << i;
    }
    return refused;
}

/* Logs only refusals 1, 2, 4, 8, ..., because a Byzantine node may lie in every round. */
static void guarded_note(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                         const struct sized *sized, const float *factors) {
    for (uint32_t i = 0; i < request->inputs_count; i++) {
        if (factors[i] == 1.0f) continue;
        const uint64_t count = ++merger->guarded_count;
        if ((count & (count - 1)) != 0) continue;
        tw_log(TW_LOG_WARN, factors[i] == 0.0f ? "input_refused" : "input_scaled",
               "round=%" PRIu64
               " part=%u input=%u inputs=%u norm=%.4g steps=%u factor=%.3f count=%" PRIu64,
               request->round, request->part, i, request->inputs_count, sized->norms[i],
               sized->steps[i], (double)factors[i], count);
    }
}

/* Sets factors[i] for every input, and the set of refused inputs. Returns TW_LIMIT if all inputs
 * are refused. */
static enum tw_status guard_inputs(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                   float factors[TW_MEMBERS_MAX], uint64_t *refused,
                                   struct tw_error *err) {
    const uint32_t count = request->inputs_count;
    struct sized sized;
    *refused = 0;
    TW_TRY(size_inputs(merger, request, &sized, err));
    if (request->is_audit != 0) {
        tw_guard_scale(factors, sized.norms, sized.steps, count);
        return TW_OK;
    }
    *refused = count < TW_GUARD_LEAST ? refuse_few(factors, &sized, count)
                                      : tw_guard(factors, sized.norms, sized.steps, count);
    guarded_note(merger, request, &sized, factors);
    if (*refused != UINT64_MAX >> (TW_MEMBERS_MAX - count)) return TW_OK;
    return tw_fail(err, TW_LIMIT,
                   "all that was contributed to part %u of fragment %u in round %" PRIu64
                   " is far larger than merges of it are: nothing is merged",
                   request->part, request->fragment, request->round);
}

static void weigh(const struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                  uint64_t refused, struct taken *taken) {
    uint64_t tokens[TW_MEMBERS_MAX];
    uint32_t steps[TW_MEMBERS_MAX], count = 0;
    for (uint32_t i = 0; i < request->inputs_count; i++) {
        if ((refused >> i & 1) != 0) continue;
        taken->inputs[count] = i;
        taken->factors[count] = taken->factors[i];
        tokens[count] = request->inputs[i].tokens;
        steps[count++] = request->inputs[i].steps;
    }
    taken->count = count;
    switch (merger->run->sync.weights) {
    case TW_WEIGHTS_EQUAL: tw_merge_weights_equal(taken->weights, count); break;
    case TW_WEIGHTS_TOKENS: tw_merge_weights_tokens(taken->weights, tokens, count); break;
    case TW_WEIGHTS_TOKENS_RATE: tw_merge_weights_rate(taken->weights, tokens, steps, count); break;
    }
    tw_merge_weights_bound(taken->weights, count);
}

/* ---- merge rules, into scratch --------------------------------------------------------------- */

static enum tw_status merge_mean(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                 const struct taken *taken, struct tw_error *err) {
    const size_t n = (size_t)request->count;
    memset(merger->scratch, 0, n * sizeof(float));
    for (uint32_t i = 0; i < taken->count; i++) {
        const float weight = taken->weights[i] * taken->factors[i];
        const struct tw_span *span = &request->inputs[taken->inputs[i]].in;
        uint8_t *bytes;
        TW_TRY(tw_request_span(merger->shm, span, &bytes, err));
        const enum tw_status status =
            merger->codec->decode_add(bytes, span->bytes, weight, merger->scratch, n);
        if (status != TW_OK) return input_fail(merger, request, taken->inputs[i], status, err);
    }
    return TW_OK;
}

/* Finds the range of tensor t in the part of the request. Returns false if the range is empty, or
 * if the tensor is an embedding or the head. Many of their rows do not change between two merges,
 * so they are merged by the mean. */
static bool piece_find(const struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                       uint32_t t, size_t *from, size_t *n) {
    const struct tw_tensor *tensor = &merger->pieces->layout.tensors[t];
    if (tensor->shape.rank == 2 && !tensor->is_hidden) return false;
    const uint64_t part = merger->shm->fragment_begin[request->fragment] + request->begin;
    const uint64_t part_end = part + request->count;
    const uint64_t end = tensor->offset + (uint64_t)tensor->rows * tensor->cols;
    const uint64_t first = tensor->offset > part ? tensor->offset : part;
    const uint64_t last = end < part_end ? end : part_end;
    if (first >= last) return false;
    *from = (size_t)(first - part);
    *n = (size_t)(last - first);
    return true;
}

static enum tw_status merge_rda(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                const struct taken *taken, struct tw_error *err) {
    const size_t n = (size_t)request->count;
    float *x = merger->inputs, *directions = merger->inputs + n, *mean = merger->scratch;
    const uint32_t tensors = merger->pieces->layout.tensors_count;
    double *rho = merger->pieces->rho;
    size_t from, size;
    memset(mean, 0, n * sizeof(float));
    memset(directions, 0, n * sizeof(float));
    memset(rho, 0, tensors * sizeof(double));
    for (uint32_t i = 0; i < taken->count; i++) {
        TW_TRY(input_decode(merger, request, taken->inputs[i], taken->factors[i], x, err));
        tw_merge_add(mean, x, taken->weights[i], n);
        for (uint32_t t = 0; t < tensors; t++) {
            if (!piece_find(merger, request, t, &from, &size)) continue;
            tw_rda_add(directions + from, &rho[t], x + from, taken->weights[i], size);
        }
    }
    for (uint32_t t = 0; t < tensors; t++) {
        if (!piece_find(merger, request, t, &from, &size)) continue;
        tw_rda_finish(mean + from, directions + from, rho[t], size);
    }
    return TW_OK;
}

static enum tw_status merge_robust(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                   const struct taken *taken, struct tw_error *err) {
    const size_t n = (size_t)request->count;
    const float *x[TW_MEMBERS_MAX];
    if (taken->count * n > merger->inputs_elements) {
        return tw_fail(err, TW_PROTO, "a merge of %u contributions in a run of %u members",
                       taken->count, merger->run->sync.members);
    }
    for (uint32_t i = 0; i < taken->count; i++) {
        float *input = merger->inputs + i * n;
        TW_TRY(input_decode(merger, request, taken->inputs[i], taken->factors[i], input, err));
        x[i] = input;
    }
    switch (merger->run->sync.merge) {
    case TW_MERGE_TRIMMED: tw_robust_trimmed(merger->scratch, x, taken->count, n); break;
    case TW_MERGE_CLIPPED: tw_robust_clipped(merger->scratch, x, taken->count, n); break;
    case TW_MERGE_MEAN:
    case TW_MERGE_RDA:
    case TW_MERGE_MEDIAN: tw_robust_median(merger->scratch, x, taken->count, n); break;
    }
    return TW_OK;
}

static enum tw_status merge(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                            const struct taken *taken, struct tw_error *err) {
    if (merger->run->sync.merge == TW_MERGE_RDA) return merge_rda(merger, request, taken, err);
    if (tw_run_is_robust(merger->run->sync.merge) && taken->count >= TW_ROBUST_LEAST)
        return merge_robust(merger, request, taken, err);
    TW_TRY(merge_mean(merger, request, taken, err));
    if (tw_run_is_robust(merger->run->sync.merge) && !merger->has_said_mean) {
        merger->has_said_mean = true;
        tw_log(TW_LOG_INFO, "merge_is_mean",
               "round=%" PRIu64
               " inputs=%u text=\"too few for a robust merge, which takes %u: with "
               "fewer it is their mean, guarded as ever; said once\"",
               request->round, taken->count, TW_ROBUST_LEAST);
    }
    return TW_OK;
}

/* ---- whose work is large --------------------------------------------------------------------- */

static double excess_of(const struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                        float scale) {
    struct tw_outlier_sizes sizes = {.count = {0}};
    tw_scale(merger->scratch, scale, (size_t)request->count);
    tw_outlier_add(&sizes, merger->scratch, (size_t)request->begin, (size_t)request->count,
                   (size_t)tw_shm_fragment_elements(merger->shm, request->fragment));
    return tw_outlier_excess(&merger->outlier[request->fragment], &sizes);
}

/* Returns a multiple of the usual size in tenths, as REDUCED tells it. */
static uint16_t tenths(double multiple) {
    return (uint16_t)fmin(multiple * 10 + 0.5, UINT16_MAX);
}

/* Sets sizes[] of the inputs that the guard scales down. */
static void note_scaled(const float *factors, uint32_t count, uint16_t *sizes) {
    for (uint32_t i = 0; i < count; i++) {
        if (factors[i] > 0 && factors[i] < 1)
            sizes[i] = tenths(TW_GUARD_SCALED / (double)factors[i]);
    }
}

/* Sets sizes[] of the inputs without any one of which the merge in scratch would no longer be an
 * outlier. Robust merges have none: no single input moves them out of bounds. Overwrites scratch.
 */
static enum tw_status find_large(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                 const struct taken *taken, uint16_t *sizes, struct tw_error *err) {
    const bool is_robust =
        tw_run_is_robust(merger->run->sync.merge) && taken->count >= TW_ROBUST_LEAST;
    if (is_robust || merger->run->sync.merge == TW_MERGE_RDA) return TW_OK;
    const double excess = excess_of(merger, request, 1.0f);
    if (excess <= 1) return TW_OK;
    for (uint32_t i = 0; i < taken->count; i++) {
        struct taken rest = *taken;
        rest.weights[i] = 0;
        TW_TRY(merge_mean(merger, request, &rest, err));
        const float others = 1.0f - taken->weights[i];
        if (others <= 0 || excess_of(merger, request, 1.0f / others) <= 1)
            sizes[taken->inputs[i]] = tenths(TW_OUTLIER_MERGES * excess);
    }
    return TW_OK;
}

/* ---- the request ----------------------------------------------------------------------------- */

static enum tw_status reduce_check(const struct tw_merger *merger,
                                   const struct tw_wmsg_reduce *request, struct tw_error *err) {
    TW_TRY(tw_request_fragment(merger->shm, request->fragment, err));
    TW_TRY(tw_request_range(merger->shm, request->fragment, request->begin, request->count, err));
    if (request->inputs_count == 0 || request->inputs_count > TW_MEMBERS_MAX) {
        return tw_fail(err, TW_PROTO, "a merge of %u contributions", request->inputs_count);
    }
    for (uint32_t i = 0; i < request->inputs_count; i++) {
        uint8_t *bytes;
        TW_TRY(tw_request_span(merger->shm, &request->inputs[i].in, &bytes, err));
    }
    return TW_OK;
}

static enum tw_status reduce_inputs(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                    struct tw_wmsg_reduced *reply, struct tw_error *err) {
    struct taken taken;
    uint8_t *bytes;
    size_t size = 0;
    TW_TRY(reduce_check(merger, request, err));
    TW_TRY(tw_request_span(merger->shm, &request->out, &bytes, err));
    TW_TRY(guard_inputs(merger, request, taken.factors, &reply->refused, err));
    note_scaled(taken.factors, request->inputs_count, reply->sizes);
    weigh(merger, request, reply->refused, &taken);
    TW_TRY(merge(merger, request, &taken, err));
    const enum tw_status status = merger->result->encode(merger->scratch, (size_t)request->count,
                                                         bytes, request->out.bytes, &size);
    reply->bytes = (uint32_t)size;
    if (status == TW_OK && request->is_audit != 0)
        return find_large(merger, request, &taken, reply->sizes, err);
    if (status == TW_OK) return TW_OK;
    return tw_fail(err, status, "%s could not encode the merge of part %u: %s",
                   merger->result->name, request->part, tw_status_meaning(status));
}

enum tw_status tw_merger_reduce(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                struct tw_wmsg_reduced *reply, struct tw_error *err) {
    memset(reply, 0, sizeof(*reply));
    const enum tw_status status = reduce_inputs(merger, request, reply, err);
    if (status != TW_OK) memset(reply, 0, sizeof(*reply));
    reply->round = request->round;
    reply->part = request->part;
    reply->status = status;
    return status;
}

/* ---- the merger ------------------------------------------------------------------------------ */

#define WORK_LEAST                                                                                 \
    0.03125 /* fraction of a period's work below which an outer gradient says nothing about usual  \
               sizes */

/* Allocates scratch memory where the parameters lie. */
static enum tw_status live_init(struct tw_merger *merger, size_t elements, struct tw_error *err) {
    const struct tw_vectors *vectors = merger->vectors;
    if (vectors->is_host) {
        merger->v = merger->scratch;
    } else {
        TW_TRY(vectors->alloc(vectors->self, &merger->v, elements, "an outer gradient", err));
    }
    TW_TRY(tw_device_anchor_init(&merger->twin, vectors, merger->shm, err));
    return tw_inflight_init(&merger->inflight, merger->run, merger->shm, vectors, err);
}

/* Page-locks phi and the spare buffer, from which new anchors are copied to the parameters' memory.
 */
static void pin_anchors(struct tw_merger *merger) {
    const struct tw_vectors *vectors = merger->vectors;
    const struct tw_shm_geometry *geometry = &merger->shm->geometry;
    void *const anchors = merger->shm->base + geometry->phi;
    const uint64_t end =
        geometry->spare_u + geometry->spare_elements * tw_momentum_bytes(merger->shm->momentum);
    if (vectors->pin(vectors->self, anchors, end - geometry->phi)) merger->pinned = anchors;
}

static enum tw_status memory_init(struct tw_merger *merger, struct tw_error *err) {
    const size_t elements = (size_t)merger->shm->geometry.spare_elements;
    const struct tw_vectors *vectors = merger->vectors;
    TW_TRY(vectors->host_alloc(vectors->self, &merger->scratch, elements, "merging", err));
    pin_anchors(merger);
    merger->outlier = calloc(merger->shm->fragments_count, sizeof(*merger->outlier));
    if (merger->outlier == NULL) return tw_fail(err, TW_NOMEM, "no memory for the sizes of merges");
    TW_TRY(tw_packer_create(&merger->packer, elements, merger->shm->momentum, err));
    if (merger->run->sync.codec == TW_CODEC_AUTO)
        TW_TRY(tw_rate_fit_create(&merger->fit, merger->run, err));
    TW_TRY(reduce_init(merger, err));
    return live_init(merger, elements, err);
}

enum tw_status tw_merger_init(struct tw_merger *merger, const struct tw_run *run,
                              const struct tw_shm *shm, const struct tw_vectors *vectors,
                              struct tw_error *err) {
    memset(merger, 0, sizeof(*merger));
    merger->run = run;
    merger->shm = shm;
    merger->vectors = vectors;
    merger->codec = tw_codec_get(run->sync.codec);
    merger->result = tw_codec_get(run->sync.result);
    const enum tw_status status = memory_init(merger, err);
    if (status != TW_OK) tw_merger_deinit(merger);
    return status;
}

void tw_merger_deinit(struct tw_merger *merger) {
    tw_inflight_deinit(&merger->inflight);
    tw_device_anchor_deinit(&merger->twin);
    if (merger->v != merger->scratch) merger->vectors->free(merger->vectors->self, merger->v);
    reduce_deinit(merger);
    if (merger->packer != NULL) tw_packer_destroy(merger->packer);
    tw_rate_fit_destroy(merger->fit);
    free(merger->outlier);
    if (merger->pinned != NULL) merger->vectors->unpin(merger->vectors->self, merger->pinned);
    if (merger->scratch != NULL) merger->vectors->host_free(merger->vectors->self, merger->scratch);
    memset(merger, 0, sizeof(*merger));
}

float *tw_merger_theta(const struct tw_merger *merger, uint32_t fragment) {
    return merger->vectors->theta + merger->shm->fragment_begin[fragment];
}

/* ---- outer gradients ------------------------------------------------------------------------- */

static int float_order(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns the median of the kept norms, or `otherwise` if there are none. */
static float norm_median(const struct tw_norm_history *history, float otherwise) {
    const uint32_t held = history->count < TW_NORMS_KEPT ? history->count : TW_NORMS_KEPT;
    if (held == 0) return otherwise;
    float sorted[TW_NORMS_KEPT];
    memcpy(sorted, history->norms, held * sizeof(float));
    qsort(sorted, held, sizeof(float), float_order);
    return sorted[held / 2];
}

/* Lowest limit of a Delta, as a factor on the norm of the newest merge. One part can be refused
 * although the whole Delta is small, so the limit must not shrink further. */
#define LEAST_REACH 0.0625f

/* Returns the factor that scales a Delta of this norm down to the limit, or 1. */
static float clip_factor(const struct tw_norm_history *history, float norm) {
    float limit = (float)TW_CLIP_MEDIANS * norm_median(history, norm);
    const float others = history->reach * history->merge;
    if (others > 0.0f && others < limit) limit = others;
    return norm > limit ? limit / norm : 1.0f;
}

/* Sets the limit after two Deltas in a row were refused for their size. Refused work is in the next
 * Delta, so without a limit Deltas never become smaller. Other nodes' limits are unknown, but the
 * norm of their merge is known. A usual Delta is between that norm (all deltas parallel) and
 * sqrt(contributors) times that norm (orthogonal). So `reach` starts at twice the norm of a merge,
 * halves at each refusal, and grows by half at each merge until the whole Delta fits. */
void tw_merger_note_landed(struct tw_merger *merger, uint32_t fragment, bool is_merged) {
    struct tw_norm_history *history = &merger->history[fragment];
    if (is_merged) {
        history->unmerged = 0;
        history->norms[history->count++ % TW_NORMS_KEPT] = history->sent;
        history->reach *= 1.5f;
        if (history->reach > 0.0f) merger->must_clip[fragment] = true;
        return;
    }
    merger->must_clip[fragment] = true;
    if (history->unmerged < UINT32_MAX) history->unmerged++;
    if (history->unmerged < 2) return;
    history->reach = history->reach > 0.0f ? fmaxf(history->reach / 2, LEAST_REACH) : 2.0f;
}

static enum tw_status encode_check(const struct tw_merger *merger,
                                   const struct tw_wmsg_encode *request, struct tw_error *err) {
    TW_TRY(tw_request_fragment(merger->shm, request->fragment, err));
    if (request->parts_count > TW_PARTS_MAX) {
        return tw_fail(err, TW_PROTO, "a round of %u parts", request->parts_count);
    }
    uint64_t end = 0;
    for (uint32_t k = 0; k < request->parts_count; k++) {
        uint8_t *out;
        TW_TRY(tw_request_part(merger->shm, request->fragment, request->parts[k].begin,
                               request->parts[k].count, &end, err));
        TW_TRY(tw_request_span(merger->shm, &request->parts[k].out, &out, err));
    }
    return tw_request_whole(merger->shm, request->fragment, end, err);
}

enum tw_status tw_merger_take(struct tw_merger *merger, uint32_t fragment, float *v, float *norm,
                              struct tw_error *err) {
    const struct tw_vectors *vectors = merger->vectors;
    const size_t n = (size_t)tw_shm_fragment_elements(merger->shm, fragment);
    float *theta = tw_merger_theta(merger, fragment);
    tw_inflight_begin(&merger->inflight, fragment, v, tw_device_anchor_phi(&merger->twin, fragment),
                      theta);
    *norm = (float)sqrt(vectors->norm_squared(vectors->self, v, n));
    if (!isfinite(*norm)) {
        return tw_fail(err, TW_CORRUPT, "outer gradient of fragment %u is not finite", fragment);
    }
    if (!merger->must_clip[fragment]) return TW_OK;
    const float factor = clip_factor(&merger->history[fragment], *norm);
    if (factor == 1.0f) {
        merger->history[fragment].reach = 0.0f;
        return TW_OK;
    }
    vectors->scale(vectors->self, v, factor, n);
    tw_inflight_clip(&merger->inflight, fragment, factor);
    *norm *= factor;
    return TW_OK;
}

/* Returns memory for the v to encode; its residual is later written to the same place. */
static float *place_of(const struct tw_merger *merger, uint32_t fragment) {
    float *lost = tw_inflight_lost(&merger->inflight, fragment, 0);
    return lost != NULL ? lost : merger->v;
}

void tw_merger_note_begun(struct tw_merger *merger, uint32_t fragment) {
    merger->work.begun[fragment] = merger->work.done;
}

/* Returns the fraction of a period's work in the fragment's current outer gradient, at most 1. */
static double work_share(const struct tw_merger *merger, uint32_t fragment) {
    if (!merger->work.is_known) return 1;
    const double steps = merger->work.done - merger->work.begun[fragment];
    return fmin(1, steps / merger->run->sync.period);
}

/* Records the sizes of this node's outer gradient v (kernels/outlier.h). A node that has just
 * joined, is slow or warms up has done less work than others, so its sizes are scaled up to a whole
 * period. Outer gradients grow at most in proportion to the work. With almost no work, v is not
 * recorded. */
static void note_own(struct tw_merger *merger, uint32_t fragment, const float *v) {
    const struct tw_vectors *vectors = merger->vectors;
    const size_t n = (size_t)tw_shm_fragment_elements(merger->shm, fragment);
    const double share = work_share(merger, fragment);
    double energies[TW_OUTLIER_BLOCKS];
    struct tw_outlier_sizes sizes;
    tw_merger_note_begun(merger, fragment);
    if (share < WORK_LEAST) return;
    vectors->energies(vectors->self, energies, v, n);
    for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++) energies[b] /= share * share;
    tw_outlier_whole(&sizes, energies, n);
    tw_outlier_note_own(&merger->outlier[fragment], &sizes);
}

static bool is_packed_live(const struct tw_merger *merger) {
    return merger->vectors->can_pack(merger->vectors->self, merger->codec);
}

/* Encodes part k, whose v is on the host. In *payload, v and bytes are inputs, bytes_count and
 * has_lost outputs. */
static enum tw_status encode_here(struct tw_merger *merger, const struct tw_wmsg_encode *request,
                                  uint32_t k, struct tw_inflight_payload *payload) {
    const size_t begin = (size_t)request->parts[k].begin, n = (size_t)request->parts[k].count;
    const size_t capacity = request->parts[k].out.bytes;
    /* For a fixed codec: merger->codec, which the caller may have replaced. */
    if (merger->codec->id != TW_CODEC_AUTO) {
        const struct tw_codec_source source = {
            .x = payload->v,
            .n = n,
            .lost = tw_inflight_lost(&merger->inflight, request->fragment, begin)};
        payload->has_lost = source.lost != NULL;
        return tw_codec_encode(merger->codec, source, payload->bytes, capacity,
                               &payload->bytes_count);
    }
    const struct tw_rate_fit_part part = {.x = payload->v,
                                          .begin = merger->shm->fragment_begin[request->fragment] +
                                                   begin,
                                          .n = n,
                                          .bytes_max = (size_t)request->parts[k].bytes_max,
                                          .out = payload->bytes,
                                          .capacity = capacity};
    return tw_rate_fit_encode(merger->fit, &part, &payload->bytes_count);
}

/* Encodes part k of v into its span, and records it as work in flight. */
static enum tw_status encode_part(struct tw_merger *merger, const struct tw_wmsg_encode *request,
                                  uint32_t k, const float *v, size_t *bytes, struct tw_error *err) {
    const size_t begin = (size_t)request->parts[k].begin, n = (size_t)request->parts[k].count;
    struct tw_inflight_payload payload = {.codec = merger->codec, .v = v + begin};
    TW_TRY(tw_request_span(merger->shm, &request->parts[k].out, &payload.bytes, err));
    if (is_packed_live(merger)) {
        *bytes = merger->codec->bound(n);
        if (request->parts[k].out.bytes < *bytes) return TW_LIMIT;
        return tw_inflight_pack(&merger->inflight, request->fragment, begin, n, &payload, err);
    }
    TW_TRY(encode_here(merger, request, k, &payload));
    *bytes = payload.bytes_count;
    tw_inflight_note(&merger->inflight, request->fragment, begin, n, &payload);
    return TW_OK;
}

/* Encodes all parts of v (live) into their spans. */
static enum tw_status encode_all(struct tw_merger *merger, const struct tw_wmsg_encode *request,
                                 const float *v, struct tw_wmsg_encoded *reply,
                                 struct tw_error *err) {
    const struct tw_vectors *vectors = merger->vectors;
    const size_t elements = (size_t)tw_shm_fragment_elements(merger->shm, request->fragment);
    if (!vectors->is_host && !is_packed_live(merger)) {
        TW_TRY(vectors->copy_out(vectors->self, merger->scratch, v, elements, err));
        v = merger->scratch;
    }
    for (uint32_t k = 0; k < request->parts_count; k++) {
        size_t bytes = 0;
        const enum tw_status status = encode_part(merger, request, k, v, &bytes, err);
        if (status == TW_DEVICE) return status; /* err is set */
        if (status != TW_OK) {
            return tw_fail(err, status, "%s could not encode part %u of fragment %u: %s",
                           merger->codec->name, k, request->fragment, tw_status_meaning(status));
        }
        reply->bytes[k] = (uint32_t)bytes;
    }
    return TW_OK;
}

static enum tw_status encode_fragment(struct tw_merger *merger,
                                      const struct tw_wmsg_encode *request,
                                      struct tw_wmsg_encoded *reply, struct tw_error *err) {
    const uint32_t fragment = request->fragment;
    TW_TRY(encode_check(merger, request, err));
    float *v = place_of(merger, fragment);
    TW_TRY(tw_merger_take(merger, fragment, v, &reply->norm, err));
    note_own(merger, fragment, v);
    TW_TRY(encode_all(merger, request, v, reply, err));
    tw_inflight_commit(&merger->inflight, fragment, request->round,
                       tw_merger_theta(merger, fragment));
    merger->must_clip[fragment] = false;
    merger->history[fragment].sent = reply->norm;
    return TW_OK;
}

enum tw_status tw_merger_encode(struct tw_merger *merger, const struct tw_wmsg_encode *request,
                                struct tw_wmsg_encoded *reply, struct tw_error *err) {
    memset(reply, 0, sizeof(*reply));
    const enum tw_status status = encode_fragment(merger, request, reply, err);
    reply->round = request->round;
    reply->status = status;
    reply->parts_count = request->parts_count;
    if (status == TW_OK) return TW_OK;
    memset(reply->bytes, 0, sizeof(reply->bytes));
    reply->norm = 0;
    return status;
}

static enum tw_sanity sanity_of(double ratio) {
    if (ratio <= 1) return TW_SANITY_FAIR;
    return ratio <= TW_OUTLIER_EXTREME ? TW_SANITY_OUTLIER : TW_SANITY_EXTREME;
}

/* Checks that the result decodes, and whether it is far larger than earlier merges. */
static enum tw_status check_result(struct tw_merger *merger, const struct tw_wmsg_check *request,
                                   struct tw_wmsg_checked *reply, struct tw_error *err) {
    const size_t n = (size_t)request->elements;
    struct tw_outlier_sizes sizes = {.count = {0}};
    uint8_t *bytes;
    TW_TRY(tw_request_fragment(merger->shm, request->fragment, err));
    TW_TRY(tw_request_range(merger->shm, request->fragment, request->begin, n, err));
    TW_TRY(tw_request_span(merger->shm, &request->in, &bytes, err));
    const enum tw_status status =
        merger->result->decode(bytes, request->in.bytes, merger->scratch, n);
    if (status != TW_OK) {
        return tw_fail(err, status, "a result of %u bytes is not %zu elements in %s",
                       request->in.bytes, n, merger->result->name);
    }
    tw_outlier_add(&sizes, merger->scratch, (size_t)request->begin, n,
                   (size_t)tw_shm_fragment_elements(merger->shm, request->fragment));
    reply->sanity = sanity_of(tw_outlier_check(&merger->outlier[request->fragment], &sizes));
    if (reply->sanity == TW_SANITY_FAIR) return TW_OK;
    tw_log(TW_LOG_INFO, reply->sanity == TW_SANITY_EXTREME ? "result_extreme" : "result_outlier",
           "fragment=%u begin=%llu elements=%llu norm=%.4g", request->fragment,
           (unsigned long long)request->begin, (unsigned long long)request->elements,
           sqrt(tw_norm_squared(merger->scratch, n)));
    return TW_OK;
}

static enum tw_status check_content(struct tw_merger *merger, const struct tw_wmsg_check *request,
                                    struct tw_wmsg_checked *reply, struct tw_error *err) {
    uint8_t *bytes;
    switch (request->content) {
    case TW_CONTENT_DELTA:
        return tw_request_payload(merger->shm, merger->codec, &request->in, request->elements, err);
    case TW_CONTENT_RESULT: return check_result(merger, request, reply, err);
    case TW_CONTENT_PHI:
        TW_TRY(tw_request_span(merger->shm, &request->in, &bytes, err));
        if (tw_lattice_check(bytes, request->in.bytes, (size_t)request->elements) == TW_OK)
            return TW_OK;
        return tw_fail(err, TW_CORRUPT, "a partner's payload is no anchor of %llu elements",
                       (unsigned long long)request->elements);
    default: return tw_fail(err, TW_PROTO, "a payload of content %u", request->content);
    }
}

enum tw_status tw_merger_check(struct tw_merger *merger, const struct tw_wmsg_check *request,
                               struct tw_wmsg_checked *reply, struct tw_error *err) {
    memset(reply, 0, sizeof(*reply));
    enum tw_status status = TW_OK;
    if (request->elements > merger->shm->geometry.spare_elements) {
        status = tw_fail(err, TW_PROTO, "a payload of %llu elements is larger than any fragment",
                         (unsigned long long)request->elements);
    } else {
        status = check_content(merger, request, reply, err);
    }
    reply->tag = request->tag;
    reply->status = status;
    return status;
}
