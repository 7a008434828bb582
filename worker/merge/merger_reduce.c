/* merger_reduce.c - REDUCE: merges contributions by the run's rule and weights.
 *
 * First the guard compares the sizes of the contributions (kernels/guard.h). It scales down
 * contributions that are much larger than usual, and refuses those that are far larger. If there
 * are too few to show the usual size, contributions far larger than earlier merges are refused
 * (kernels/outlier.h). Robust rules need all inputs at once. For the mean and RDA, and with too few
 * inputs for a robust rule, inputs are decoded one by one. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/guard.h"
#include "kernels/merge.h"
#include "kernels/norm.h"
#include "kernels/rda.h"
#include "kernels/robust.h"
#include "proto/run/run_key.h"
#include "worker/merge/merge_memory.h"
#include "worker/merge/merger.h"
#include "worker/merge/request.h"

/* The inputs that the guard accepted. */
struct taken {
    uint32_t count;
    uint32_t inputs[TW_MEMBERS_MAX]; /* indices of the inputs in the request */
    float factors[TW_MEMBERS_MAX];   /* factor by which the guard (kernels/guard.h) scales each
                                        input */
    float weights[TW_MEMBERS_MAX];   /* sum to 1 */
};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Working memory of RDA: the tensors, and one sum per tensor. */
struct tw_pieces {
    struct tw_layout layout;
    double rho[TW_TENSORS_MAX];
};

enum tw_status tw_merger_reduce_init(struct tw_merger *merger, struct tw_error *err) {
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

void tw_merger_reduce_deinit(struct tw_merger *merger) {
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
        tw_log(TW_LOG_WARN, factors[i] == 0.0f ? "contribution_refused" : "contribution_scaled",
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

/* ---- merge rules, into scratch ----------------------------------------------------------- */

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

/* ---- whose work is large ----------------------------------------------------------------------
 */

static double excess_of(const struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                        float scale) {
    struct tw_outlier_sizes sizes = {.count = {0}};
    tw_scale(merger->scratch, scale, (size_t)request->count);
    tw_outlier_add(&sizes, merger->scratch, (size_t)request->begin, (size_t)request->count,
                   (size_t)tw_shm_fragment_elements(merger->shm, request->fragment));
    return tw_outlier_excess(&merger->outlier[request->fragment], &sizes);
}

/* Sets *large to the inputs without any one of which the merge in scratch would no longer be an
 * outlier. Robust merges have none: no single input moves them out of bounds. Overwrites scratch.
 */
static enum tw_status find_large(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                 const struct taken *taken, uint64_t *large, struct tw_error *err) {
    const bool is_robust =
        tw_run_is_robust(merger->run->sync.merge) && taken->count >= TW_ROBUST_LEAST;
    if (is_robust || merger->run->sync.merge == TW_MERGE_RDA) return TW_OK;
    if (excess_of(merger, request, 1.0f) <= 1) return TW_OK;
    for (uint32_t i = 0; i < taken->count; i++) {
        struct taken rest = *taken;
        rest.weights[i] = 0;
        TW_TRY(merge_mean(merger, request, &rest, err));
        const float others = 1.0f - taken->weights[i];
        if (others <= 0 || excess_of(merger, request, 1.0f / others) <= 1)
            *large |= UINT64_C(1) << taken->inputs[i];
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
                                    uint64_t *refused, size_t *bytes_out, struct tw_error *err) {
    struct taken taken;
    uint8_t *bytes;
    TW_TRY(reduce_check(merger, request, err));
    TW_TRY(tw_request_span(merger->shm, &request->out, &bytes, err));
    TW_TRY(guard_inputs(merger, request, taken.factors, refused, err));
    weigh(merger, request, *refused, &taken);
    TW_TRY(merge(merger, request, &taken, err));
    const enum tw_status status = merger->result->encode(merger->scratch, (size_t)request->count,
                                                         bytes, request->out.bytes, bytes_out);
    if (status == TW_OK && request->is_audit != 0)
        return find_large(merger, request, &taken, refused, err);
    if (status == TW_OK) return TW_OK;
    return tw_fail(err, status, "%s could not encode the merge of part %u: %s",
                   merger->result->name, request->part, tw_status_meaning(status));
}

enum tw_status tw_merger_reduce(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                struct tw_wmsg_reduced *reply, struct tw_error *err) {
    size_t bytes = 0;
    uint64_t refused = 0;
    memset(reply, 0, sizeof(*reply));
    const enum tw_status status = reduce_inputs(merger, request, &refused, &bytes, err);
    reply->round = request->round;
    reply->part = request->part;
    reply->status = status;
    reply->refused = status == TW_OK ? refused : 0;
    reply->bytes = status == TW_OK ? (uint32_t)bytes : 0;
    return status;
}
