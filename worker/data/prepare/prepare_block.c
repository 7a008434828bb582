#include "worker/data/prepare/prepare_block.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

enum { SPARE_TOKENS_MAX = TW_BLOCK_BYTES };

enum tw_status tw_blocks_init(struct tw_blocks *blocks, uint64_t bytes_max, struct tw_error *err) {
    pthread_condattr_t monotonic;
    memset(blocks, 0, sizeof(*blocks));
    blocks->bytes_max = bytes_max;
    bool is_good = pthread_condattr_init(&monotonic) == 0 &&
                   pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                   pthread_mutex_init(&blocks->mutex, NULL) == 0 &&
                   pthread_cond_init(&blocks->has_room, NULL) == 0 &&
                   pthread_cond_init(&blocks->has_work, NULL) == 0 &&
                   pthread_cond_init(&blocks->has_done, &monotonic) == 0;
    (void)pthread_condattr_destroy(&monotonic);
    return is_good ? TW_OK : tw_fail(err, TW_NOMEM, "no memory for locks");
}

void tw_block_destroy(struct tw_block *block) {
    if (block == NULL) return;
    tw_tokens_deinit(&block->tokens);
    free(block->documents);
    free(block->text);
    free(block);
}

enum tw_status tw_block_reserve(struct tw_block *block, size_t bytes, struct tw_error *err) {
    size_t capacity = block->capacity;
    if (bytes <= capacity) return TW_OK;
    while (capacity < bytes) capacity *= 2;
    uint8_t *const more = realloc(block->text, capacity);
    if (more == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu bytes of text", capacity);
    block->text = more;
    block->capacity = capacity;
    return TW_OK;
}

void tw_blocks_deinit(struct tw_blocks *blocks) {
    for (uint64_t i = blocks->got; i < blocks->put; i++) {
        tw_block_destroy(blocks->ring[i % TW_BLOCKS_MAX]);
    }
    for (uint32_t i = 0; i < blocks->spare_count; i++) tw_block_destroy(blocks->spare[i]);
    (void)pthread_cond_destroy(&blocks->has_done);
    (void)pthread_cond_destroy(&blocks->has_work);
    (void)pthread_cond_destroy(&blocks->has_room);
    (void)pthread_mutex_destroy(&blocks->mutex);
}

enum tw_status tw_blocks_create(struct tw_blocks *blocks, struct tw_block **block_out,
                                struct tw_error *err) {
    struct tw_block *block = NULL;
    (void)pthread_mutex_lock(&blocks->mutex);
    if (blocks->spare_count > 0) block = blocks->spare[--blocks->spare_count];
    (void)pthread_mutex_unlock(&blocks->mutex);
    *block_out = block;
    if (block != NULL) {
        *block = (struct tw_block){
            .text = block->text,
            .capacity = block->capacity,
            .documents = block->documents,
            .tokens = {.tokens = block->tokens.tokens, .capacity = block->tokens.capacity}};
        return TW_OK;
    }
    block = calloc(1, sizeof(*block));
    if (block != NULL) {
        block->capacity = TW_BLOCK_BYTES;
        block->text = malloc(block->capacity);
        block->documents = malloc(TW_BLOCK_DOCUMENTS_MAX * sizeof(*block->documents));
        *block_out = block;
        if (block->text != NULL && block->documents != NULL) return TW_OK;
        tw_block_destroy(block);
        *block_out = NULL;
    }
    return tw_fail(err, TW_NOMEM, "no memory for a block of text");
}

static bool has_room(const struct tw_blocks *blocks, const struct tw_block *block) {
    if (blocks->put == blocks->got) return true;
    return blocks->put - blocks->got < TW_BLOCKS_MAX &&
           blocks->bytes + block->bytes <= blocks->bytes_max;
}

bool tw_blocks_put(struct tw_blocks *blocks, struct tw_block *block) {
    (void)pthread_mutex_lock(&blocks->mutex);
    while (!blocks->is_stopped && !has_room(blocks, block)) {
        (void)pthread_cond_wait(&blocks->has_room, &blocks->mutex);
    }
    const bool is_put = !blocks->is_stopped;
    if (is_put) {
        block->is_done = false;
        blocks->ring[blocks->put++ % TW_BLOCKS_MAX] = block;
        blocks->bytes += block->bytes;
        (void)pthread_cond_signal(&blocks->has_work);
    }
    (void)pthread_mutex_unlock(&blocks->mutex);
    if (!is_put) tw_block_destroy(block);
    return is_put;
}

struct tw_block *tw_blocks_take(struct tw_blocks *blocks) {
    struct tw_block *block = NULL;
    (void)pthread_mutex_lock(&blocks->mutex);
    while (!blocks->is_stopped && blocks->taken == blocks->put) {
        (void)pthread_cond_wait(&blocks->has_work, &blocks->mutex);
    }
    if (!blocks->is_stopped) block = blocks->ring[blocks->taken++ % TW_BLOCKS_MAX];
    (void)pthread_mutex_unlock(&blocks->mutex);
    return block;
}

void tw_blocks_done(struct tw_blocks *blocks, struct tw_block *block) {
    (void)pthread_mutex_lock(&blocks->mutex);
    block->is_done = true;
    if (blocks->ring[blocks->got % TW_BLOCKS_MAX] == block) {
        (void)pthread_cond_signal(&blocks->has_done);
    }
    (void)pthread_mutex_unlock(&blocks->mutex);
}

struct tw_block *tw_blocks_get(struct tw_blocks *blocks, uint32_t wait_ms) {
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    until.tv_sec += wait_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&blocks->mutex);
    struct tw_block *block = NULL;
    for (;;) {
        block = blocks->got < blocks->put ? blocks->ring[blocks->got % TW_BLOCKS_MAX] : NULL;
        if (block != NULL && block->is_done) break;
        block = NULL;
        if (pthread_cond_timedwait(&blocks->has_done, &blocks->mutex, &until) != 0) break;
    }
    (void)pthread_mutex_unlock(&blocks->mutex);
    return block;
}

/* Removes the block from the queue. Until now, its bytes counted as queued. */
void tw_blocks_release(struct tw_blocks *blocks, struct tw_block *block) {
    if (block->tokens.capacity > SPARE_TOKENS_MAX) tw_tokens_deinit(&block->tokens);
    const bool is_large = block->capacity > TW_BLOCK_BYTES;
    bool is_kept = false;
    (void)pthread_mutex_lock(&blocks->mutex);
    TW_ASSERT(blocks->ring[blocks->got % TW_BLOCKS_MAX] == block);
    blocks->ring[blocks->got++ % TW_BLOCKS_MAX] = NULL;
    blocks->bytes -= block->bytes;
    if (!is_large && blocks->spare_count < TW_BLOCKS_SPARE) {
        blocks->spare[blocks->spare_count++] = block;
        is_kept = true;
    }
    (void)pthread_cond_signal(&blocks->has_room);
    (void)pthread_mutex_unlock(&blocks->mutex);
    if (!is_kept) tw_block_destroy(block);
}

void tw_blocks_stop(struct tw_blocks *blocks) {
    (void)pthread_mutex_lock(&blocks->mutex);
    blocks->is_stopped = true;
    (void)pthread_cond_broadcast(&blocks->has_room);
    (void)pthread_cond_broadcast(&blocks->has_work);
    (void)pthread_mutex_unlock(&blocks->mutex);
}
