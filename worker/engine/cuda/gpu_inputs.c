/* gpu_inputs.c - inputs of a pass besides parameters: tokens, targets, document starts, and the
 * order in which the gradient of the token table is summed. They are prepared in one of a few
 * page-locked host blocks and copied to one fixed place on the device. */
#include <string.h>

#include "base/assert.h"
#include "worker/engine/cuda/gpu_model.h"

static enum tw_status open_block(struct tw_gpu *gpu, uint32_t **block, struct tw_error *err) {
    void *words = NULL;
    TW_TRY(tw_cuda_host_alloc(gpu->cuda, &words, gpu->arrays.input_words * sizeof(uint32_t),
                              "inputs", err));
    *block = words;
    return TW_OK;
}

enum tw_status tw_gpu_inputs_open(struct tw_gpu *gpu, struct tw_error *err) {
    for (uint32_t i = 0; i < TW_GPU_STAGED; i++) TW_TRY(open_block(gpu, &gpu->staged[i], err));
    if (gpu->is_learning) TW_TRY(open_block(gpu, &gpu->ahead.block, err));
    return open_block(gpu, &gpu->swap, err);
}

void tw_gpu_inputs_close(struct tw_gpu *gpu) {
    for (uint32_t i = 0; i < TW_GPU_STAGED; i++) tw_cuda_host_free(gpu->cuda, gpu->staged[i]);
    tw_cuda_host_free(gpu->cuda, gpu->ahead.block);
    tw_cuda_host_free(gpu->cuda, gpu->swap);
}

/* Sets begin[t] to the row of the last separator at or before t: the first row that row t sees. */
static void find_documents(uint32_t *begin, const uint32_t *tokens, uint32_t context,
                           uint32_t separator) {
    uint32_t first = 0;
    for (uint32_t t = 0; t < context; t++) {
        if (tokens[t] == separator) first = t;
        begin[t] = first;
    }
}

/* Returns pointers to the contiguous inputs of a pass of this size. `block` is on the device or
 * staged on the host. */
static struct tw_gpu_inputs place_inputs(const struct tw_gpu_pass *pass, uint32_t *block,
                                         uint32_t stride) {
    struct tw_gpu_inputs inputs = {.tokens = block};
    uint32_t *next = block + (size_t)pass->sequences * stride;
    inputs.targets = next;
    next += pass->rows;
    inputs.order = next;
    if (pass->is_learning) next += pass->rows;
    inputs.begin = next;
    return inputs;
}

static size_t words_of(const struct tw_gpu_pass *pass, uint32_t stride, bool has_targets) {
    return (size_t)pass->sequences * stride + (has_targets ? pass->rows : 0) +
           (pass->is_learning ? pass->rows : 0) + (pass->is_masked ? pass->rows : 0);
}

/* Writes the inputs of a pass to a page-locked block. Its first words are a copy of the tokens. */
static void fill_block(const struct tw_gpu_pass *pass, uint32_t *block, const uint32_t *tokens,
                       uint32_t stride, bool has_targets) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_inputs staged = place_inputs(pass, block, stride);
    for (uint32_t b = 0; b < pass->sequences; b++) {
        const uint32_t *from = tokens + (size_t)b * stride;
        const size_t row = (size_t)b * pass->context;
        for (uint32_t t = 0; t < stride; t++) staged.tokens[(size_t)b * stride + t] = from[t];
        for (uint32_t t = 0; t < pass->context && has_targets; t++)
            staged.targets[row + t] = from[t + 1];
        if (pass->is_masked)
            find_documents(staged.begin + row, from, pass->context,
                           gpu->engine->run->data.separator);
    }
    if (pass->is_learning) {
        const struct tw_embedding in = {.rows = pass->rows,
                                        .context = pass->context,
                                        .width = gpu->map.shape.width,
                                        .tokens = staged.tokens,
                                        .token_stride = stride};
        tw_cuda_embedding_order(staged.order, gpu->swap, &in);
    }
}

/* Queues the copy of a filled block to the device. Returns the event that ends it. */
static uint64_t send_block(struct tw_gpu *gpu, const uint32_t *block, size_t words) {
    TW_ASSERT(words <= gpu->arrays.input_words);
    tw_cuda_copy_in(gpu->cuda, TW_CUDA_COMPUTE, gpu->arrays.inputs.tokens, block,
                    words * sizeof(uint32_t));
    return tw_cuda_record(gpu->cuda, TW_CUDA_COMPUTE);
}

/* Returns true if the inputs of this pass are the ones prepared. All else that they depend on is
 * the same in every learning pass of an engine. */
static bool is_prepared(const struct tw_gpu_pass *pass, const uint32_t *tokens, uint32_t stride) {
    const struct tw_gpu_ahead *ahead = &pass->gpu->ahead;
    return pass->is_learning && ahead->sequences == pass->sequences &&
           memcmp(ahead->block, tokens, (size_t)pass->sequences * stride * sizeof(*tokens)) == 0;
}

void tw_gpu_inputs_put(const struct tw_gpu_pass *pass, const uint32_t *tokens, uint32_t stride,
                       bool has_targets) {
    struct tw_gpu *gpu = pass->gpu;
    struct tw_gpu_ahead *ahead = &gpu->ahead;
    const size_t words = words_of(pass, stride, has_targets);
    TW_ASSERT(has_targets || (!pass->is_learning && !pass->is_masked));
    if (is_prepared(pass, tokens, stride)) {
        if (!ahead->is_there) ahead->event = send_block(gpu, ahead->block, words);
        ahead->sequences = 0;
    } else {
        const uint32_t place = gpu->staged_next++ % TW_GPU_STAGED;
        tw_cuda_wait(gpu->cuda, gpu->staged_event[place]);
        fill_block(pass, gpu->staged[place], tokens, stride, has_targets);
        gpu->staged_event[place] = send_block(gpu, gpu->staged[place], words);
    }
    ahead->is_there = false;
    gpu->arrays.inputs = place_inputs(pass, gpu->arrays.inputs.tokens, stride);
}

void tw_gpu_inputs_ahead(const struct tw_gpu_pass *pass, const uint32_t *tokens) {
    struct tw_gpu *gpu = pass->gpu;
    struct tw_gpu_ahead *ahead = &gpu->ahead;
    const uint32_t stride = pass->context + 1;
    tw_cuda_wait(gpu->cuda, ahead->event);
    fill_block(pass, ahead->block, tokens, stride, true);
    ahead->event = send_block(gpu, ahead->block, words_of(pass, stride, true));
    ahead->sequences = pass->sequences;
    ahead->is_there = true;
}
