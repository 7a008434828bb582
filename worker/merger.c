#include "worker/merger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/merge.h"
#include "kernels/mix.h"
#include "kernels/norm.h"
#include "sync/node.h"
#include "worker/request.h"

enum tw_status tw_merger_init(struct tw_merger *merger, const struct tw_run *run,
                              const struct tw_shm *shm, float *theta, struct tw_error *err) {
    memset(merger, 0, sizeof(*merger));
    const size_t elements = (size_t)shm->geometry.spare_elements;
    merger->run = run;
    merger->shm = shm;
    merger->theta = theta;
    merger->codec = tw_codec_get(run->sync.codec);
    merger->result = tw_codec_get(run->sync.result);
    merger->scratch = calloc(elements, sizeof(float));
    if (merger->scratch == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for merging: %zu bytes wanted",
                       elements * sizeof(float));
    }
    const enum tw_status status = tw_packer_create(&merger->packer, elements, err);
    if (status != TW_OK) {
        free(merger->scratch);
        merger->scratch = NULL;
    }
    return status;
}

void tw_merger_deinit(struct tw_merger *merger) {
    tw_packer_destroy(merger->packer);
    free(merger->scratch);
    memset(merger, 0, sizeof(*merger));
}

float *tw_merger_theta(const struct tw_merger *merger, uint32_t fragment) {
    return merger->theta + merger->shm->fragment_begin[fragment];
}

/* ---- outer gradients ----------------------------------------------------------------------- */

static int float_order(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median of the norms held; `otherwise` when there are none. */
static float norm_median(const struct tw_norm_history *history, float otherwise) {
    const uint32_t held = history->count < TW_NORMS_KEPT ? history->count : TW_NORMS_KEPT;
    if (held == 0) return otherwise;
    float sorted[TW_NORMS_KEPT];
    memcpy(sorted, history->norms, held * sizeof(float));
    qsort(sorted, held, sizeof(float), float_order);
    return sorted[held / 2];
}

/* Scales Delta (n), of this norm, down to the limit; returns the norm it then has. */
static float delta_clip(const struct tw_norm_history *history, float *delta, size_t n, float norm) {
    const float limit = (float)TW_CLIP_MEDIANS * norm_median(history, norm);
    if (!(norm > limit)) return norm;
    tw_scale(delta, limit / norm, n);
    return limit;
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
        TW_TRY(tw_request_range(merger->shm, request->fragment, request->parts[k].begin,
                                request->parts[k].count, &end, err));
        TW_TRY(tw_request_span(merger->shm, &request->parts[k].out, &out, err));
    }
    return TW_OK;
}

static enum tw_status encode_parts(struct tw_merger *merger, const struct tw_wmsg_encode *request,
                                   struct tw_wmsg_encoded *reply, struct tw_error *err) {
    TW_TRY(encode_check(merger, request, err));
    const uint32_t fragment = request->fragment;
    const size_t n = (size_t)tw_shm_fragment_elements(merger->shm, fragment);
    struct tw_shm_view view;
    tw_shm_view(merger->shm, fragment, &view);
    tw_delta(merger->scratch, view.phi, tw_merger_theta(merger, fragment), n);

    struct tw_norm_history *history = &merger->history[fragment];
    float norm = (float)sqrt(tw_norm_squared(merger->scratch, n));
    if (!isfinite(norm)) {
        return tw_fail(err, TW_CORRUPT, "outer gradient of fragment %u is not finite", fragment);
    }
    if (merger->must_clip[fragment]) norm = delta_clip(history, merger->scratch, n, norm);

    for (uint32_t k = 0; k < request->parts_count; k++) {
        const struct tw_span *span = &request->parts[k].out;
        uint8_t *out;
        size_t bytes = 0;
        TW_TRY(tw_request_span(merger->shm, span, &out, err));
        const enum tw_status status =
            merger->codec->encode(merger->scratch + request->parts[k].begin,
                                  (size_t)request->parts[k].count, out, span->bytes, &bytes);
        if (status != TW_OK) {
            return tw_fail(err, status, "%s could not encode part %u of fragment %u: %s",
                           merger->codec->name, k, fragment, tw_status_meaning(status));
        }
        reply->bytes[k] = (uint32_t)bytes;
    }
    merger->must_clip[fragment] = false;
    history->norms[history->count++ % TW_NORMS_KEPT] = norm;
    reply->norm = norm;
    return TW_OK;
}

enum tw_status tw_merger_encode(struct tw_merger *merger, const struct tw_wmsg_encode *request,
                                struct tw_wmsg_encoded *reply, struct tw_error *err) {
    memset(reply, 0, sizeof(*reply));
    const enum tw_status status = encode_parts(merger, request, reply, err);
    reply->round = request->round;
    reply->status = status;
    reply->parts_count = request->parts_count;
    if (status != TW_OK) memset(reply->bytes, 0, sizeof(reply->bytes));
    return status;
}

static enum tw_status reduce_check(const struct tw_merger *merger,
                                   const struct tw_wmsg_reduce *request, struct tw_error *err) {
    uint64_t end = 0;
    TW_TRY(tw_request_fragment(merger->shm, request->fragment, err));
    TW_TRY(tw_request_range(merger->shm, request->fragment, request->begin, request->count, &end,
                            err));
    if (request->inputs_count == 0 || request->inputs_count > TW_MEMBERS_MAX) {
        return tw_fail(err, TW_PROTO, "a merge of %u contributions", request->inputs_count);
    }
    for (uint32_t i = 0; i < request->inputs_count; i++) {
        TW_TRY(tw_request_payload(merger->shm, merger->codec, &request->inputs[i].in,
                                  request->count, err));
    }
    return TW_OK;
}

/* Shares of the inputs as the run says; they sum to 1. */
static void reduce_weights(const struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                           float weights[TW_MEMBERS_MAX]) {
    uint64_t tokens[TW_MEMBERS_MAX];
    for (uint32_t i = 0; i < request->inputs_count; i++) tokens[i] = request->inputs[i].tokens;
    switch (merger->run->sync.weights) {
    case TW_WEIGHTS_EQUAL: tw_merge_weights_equal(weights, request->inputs_count); break;
    case TW_WEIGHTS_TOKENS_RATE:
    case TW_WEIGHTS_TOKENS: tw_merge_weights_tokens(weights, tokens, request->inputs_count); break;
    }
}

static enum tw_status reduce_inputs(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                    size_t *bytes_out, struct tw_error *err) {
    const size_t n = (size_t)request->count;
    float weights[TW_MEMBERS_MAX];
    uint8_t *bytes;
    TW_TRY(reduce_check(merger, request, err));
    reduce_weights(merger, request, weights);
    memset(merger->scratch, 0, n * sizeof(float));
    for (uint32_t i = 0; i < request->inputs_count; i++) {
        const struct tw_span *span = &request->inputs[i].in;
        TW_TRY(tw_request_span(merger->shm, span, &bytes, err));
        const enum tw_status status =
            merger->codec->decode_add(bytes, span->bytes, weights[i], merger->scratch, n);
        if (status != TW_OK) return tw_fail(err, status, "contribution %u does not decode", i);
    }
    TW_TRY(tw_request_span(merger->shm, &request->out, &bytes, err));
    const enum tw_status status =
        merger->result->encode(merger->scratch, n, bytes, request->out.bytes, bytes_out);
    if (status == TW_OK) return TW_OK;
    return tw_fail(err, status, "%s could not encode the merge of part %u: %s",
                   merger->result->name, request->part, tw_status_meaning(status));
}

enum tw_status tw_merger_reduce(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                struct tw_wmsg_reduced *reply, struct tw_error *err) {
    size_t bytes = 0;
    memset(reply, 0, sizeof(*reply));
    const enum tw_status status = reduce_inputs(merger, request, &bytes, err);
    reply->round = request->round;
    reply->part = request->part;
    reply->status = status;
    reply->bytes = status == TW_OK ? (uint32_t)bytes : 0;
    return status;
}

enum tw_status tw_merger_check(struct tw_merger *merger, const struct tw_wmsg_check *request,
                               struct tw_wmsg_checked *reply, struct tw_error *err) {
    memset(reply, 0, sizeof(*reply));
    enum tw_status status = TW_OK;
    if (request->elements > merger->shm->geometry.spare_elements) {
        status = tw_fail(err, TW_PROTO, "a payload of %llu elements is larger than any fragment",
                         (unsigned long long)request->elements);
    } else if (request->content != TW_CONTENT_DELTA && request->content != TW_CONTENT_RESULT) {
        status = tw_fail(err, TW_PROTO, "a payload of content %u", request->content);
    } else {
        const bool is_result = request->content == TW_CONTENT_RESULT;
        status = tw_request_payload(merger->shm, is_result ? merger->result : merger->codec,
                                    &request->in, request->elements, err);
    }
    reply->tag = request->tag;
    reply->status = status;
    return status;
}
