#include "daemon/workerlink/pool.h"

#include <string.h>

#include "base/assert.h"

/* ==== rows ==================================================================================== */

static uint64_t round_up(uint64_t bytes) {
    return (bytes + TW_POOL_ALIGN - 1) / TW_POOL_ALIGN * TW_POOL_ALIGN;
}

void tw_pool_init(struct tw_pool *pool, uint64_t bytes) {
    *pool = (struct tw_pool){.bytes = bytes / TW_POOL_ALIGN * TW_POOL_ALIGN};
}

/* Finds the first gap of at least `need` bytes: its offset, and its place in `order`. Returns false
 * if there is none. */
static bool gap_find(const struct tw_pool *pool, uint64_t need, uint64_t *offset, uint32_t *place) {
    uint64_t end = 0;
    for (uint32_t i = 0; i <= pool->count; i++) {
        const struct tw_payload *next = i < pool->count ? &pool->rows[pool->order[i]] : NULL;
        const uint64_t limit = next != NULL ? next->offset : pool->bytes;
        if (limit - end >= need) {
            *offset = end;
            *place = i;
            return true;
        }
        if (next != NULL) end = next->offset + round_up(next->bytes);
    }
    return false;
}

static enum tw_status row_add(struct tw_pool *pool, const struct tw_payload *row, uint32_t *idx,
                              struct tw_error *err) {
    TW_ASSERT(row->bytes > 0);
    uint64_t offset = 0;
    uint32_t place = 0, free_idx = 0;
    while (free_idx < TW_PAYLOADS_MAX && pool->rows[free_idx].state != TW_PAYLOAD_FREE) free_idx++;
    if (free_idx == TW_PAYLOADS_MAX || !gap_find(pool, round_up(row->bytes), &offset, &place)) {
        pool->refused++;
        return tw_fail(err, TW_LIMIT,
                       "no room for a payload of %u bytes: %u payloads fill %llu of %llu bytes "
                       "(the request is refused)",
                       row->bytes, pool->count, (unsigned long long)pool->used,
                       (unsigned long long)pool->bytes);
    }
    memmove(&pool->order[place + 1], &pool->order[place],
            (pool->count - place) * sizeof(pool->order[0]));
    pool->order[place] = (uint16_t)free_idx;
    pool->count++;
    pool->used += round_up(row->bytes);
    pool->rows[free_idx] = *row;
    pool->rows[free_idx].offset = offset;
    *idx = free_idx;
    return TW_OK;
}

static void row_free(struct tw_pool *pool, uint32_t idx) {
    TW_ASSERT(pool->rows[idx].holds == 0);
    uint32_t place = 0;
    while (pool->order[place] != idx) {
        place++;
        TW_ASSERT(place < pool->count);
    }
    pool->count--;
    memmove(&pool->order[place], &pool->order[place + 1],
            (pool->count - place) * sizeof(pool->order[0]));
    pool->used -= round_up(pool->rows[idx].bytes);
    if (pool->on_free != NULL && pool->rows[idx].bytes >= TW_POOL_GIVE_BACK)
        pool->on_free(pool->user, pool->rows[idx].offset, pool->rows[idx].bytes);
    pool->rows[idx] = (struct tw_payload){0};
}

static struct tw_payload *row_of(struct tw_pool *pool, uint32_t idx) {
    TW_ASSERT(idx < TW_PAYLOADS_MAX);
    TW_ASSERT(pool->rows[idx].state != TW_PAYLOAD_FREE);
    return &pool->rows[idx];
}

enum tw_status tw_pool_reserve(struct tw_pool *pool, uint32_t bytes, uint32_t *idx,
                               struct tw_error *err) {
    const struct tw_payload row = {.state = TW_PAYLOAD_RESERVED, .bytes = bytes};
    return row_add(pool, &row, idx, err);
}

uint32_t tw_pool_commit(struct tw_pool *pool, uint32_t idx, const struct tw_id *hash,
                        uint32_t bytes) {
    struct tw_payload *row = row_of(pool, idx);
    TW_ASSERT(row->state == TW_PAYLOAD_RESERVED);
    TW_ASSERT(bytes > 0 && bytes <= row->bytes);
    const int known = tw_pool_find(pool, hash);
    if (known >= 0 && pool->rows[known].state == TW_PAYLOAD_HELD) {
        tw_pool_put(pool, idx);
        return (uint32_t)known;
    }
    if (known >= 0)
        tw_pool_put(pool,
                    (uint32_t)known); /* the copy that is still arriving is not needed any more */
    pool->used -= round_up(row->bytes) - round_up(bytes);
    row->bytes = bytes;
    row->hash = *hash;
    row->state = TW_PAYLOAD_HELD;
    return idx;
}

enum tw_status tw_pool_expect(struct tw_pool *pool, const struct tw_id *hash, uint32_t bytes,
                              uint32_t *idx, struct tw_error *err) {
    const int known = tw_pool_find(pool, hash);
    if (known >= 0) {
        if (pool->rows[known].bytes != bytes) {
            return tw_fail(err, TW_PROTO, "a payload of %u bytes was announced with %u bytes",
                           pool->rows[known].bytes, bytes);
        }
        *idx = (uint32_t)known;
        return TW_OK;
    }
    const struct tw_payload row = {.state = TW_PAYLOAD_EXPECTED, .hash = *hash, .bytes = bytes};
    return row_add(pool, &row, idx, err);
}

void tw_pool_verified(struct tw_pool *pool, uint32_t idx) {
    struct tw_payload *row = row_of(pool, idx);
    TW_ASSERT(row->state == TW_PAYLOAD_EXPECTED || row->state == TW_PAYLOAD_HELD);
    row->state = TW_PAYLOAD_HELD;
}

int tw_pool_find(const struct tw_pool *pool, const struct tw_id *hash) {
    for (uint32_t i = 0; i < pool->count; i++) {
        const struct tw_payload *row = &pool->rows[pool->order[i]];
        if (row->state != TW_PAYLOAD_EXPECTED && row->state != TW_PAYLOAD_HELD) continue;
        if (tw_id_equal(&row->hash, hash)) return pool->order[i];
    }
    return -1;
}

void tw_pool_put(struct tw_pool *pool, uint32_t idx) {
    struct tw_payload *row = row_of(pool, idx);
    TW_ASSERT(row->state != TW_PAYLOAD_DROPPED);
    if (row->holds > 0) {
        row->state = TW_PAYLOAD_DROPPED;
    } else {
        row_free(pool, idx);
    }
}

void tw_pool_hold(struct tw_pool *pool, uint32_t idx) {
    row_of(pool, idx)->holds++;
}

void tw_pool_release(struct tw_pool *pool, uint32_t idx) {
    struct tw_payload *row = row_of(pool, idx);
    TW_ASSERT(row->holds > 0);
    row->holds--;
    if (row->holds == 0 && row->state == TW_PAYLOAD_DROPPED) row_free(pool, idx);
}

/* ==== bytes =================================================================================== */

void tw_payloads_init(struct tw_payloads *payloads, const struct tw_shm *shm) {
    payloads->shm = shm;
    tw_pool_init(&payloads->pool, shm->geometry.pool_bytes);
}

struct tw_span tw_payloads_span(const struct tw_payloads *payloads, uint32_t row) {
    const struct tw_payload *payload = &payloads->pool.rows[row];
    TW_ASSERT(payload->state != TW_PAYLOAD_FREE);
    return (struct tw_span){.offset = payloads->shm->geometry.pool + payload->offset,
                            .bytes = payload->bytes};
}

uint8_t *tw_payloads_bytes(const struct tw_payloads *payloads, uint32_t row) {
    const struct tw_span span = tw_payloads_span(payloads, row);
    uint8_t *bytes = tw_shm_pool(payloads->shm, span.offset, span.bytes);
    TW_ASSERT(bytes != NULL);
    return bytes;
}

/* Returns the size of chunk `idx` of a payload of `bytes` bytes, or 0 if there is no such chunk. */
static uint32_t chunk_size(uint32_t bytes, uint32_t idx) {
    const uint64_t begin = (uint64_t)idx * TW_CHUNK_BYTES_MAX;
    if (begin >= bytes) return 0;
    const uint64_t rest = bytes - begin;
    return rest < TW_CHUNK_BYTES_MAX ? (uint32_t)rest : TW_CHUNK_BYTES_MAX;
}

enum tw_status tw_payloads_chunk_put(struct tw_payloads *payloads, const struct tw_id *hash,
                                     uint32_t idx, const uint8_t *bytes, uint32_t size) {
    const int row = tw_pool_find(&payloads->pool, hash);
    if (row < 0) return TW_AGAIN;
    const struct tw_payload *payload = &payloads->pool.rows[row];
    if (size == 0 || chunk_size(payload->bytes, idx) != size) return TW_PROTO;
    if (payload->state == TW_PAYLOAD_HELD) return TW_OK;
    const size_t begin = (size_t)idx * TW_CHUNK_BYTES_MAX;
    memcpy(tw_payloads_bytes(payloads, (uint32_t)row) + begin, bytes, size);
    return TW_OK;
}

enum tw_status tw_payloads_chunk_get(struct tw_payloads *payloads, const struct tw_id *hash,
                                     uint32_t idx, const uint8_t **bytes, uint32_t *size,
                                     uint32_t *row) {
    const int found = tw_pool_find(&payloads->pool, hash);
    if (found < 0 || payloads->pool.rows[found].state != TW_PAYLOAD_HELD) return TW_AGAIN;
    *size = chunk_size(payloads->pool.rows[found].bytes, idx);
    if (*size == 0) return TW_PROTO;
    *row = (uint32_t)found;
    *bytes = tw_payloads_bytes(payloads, *row) + (size_t)idx * TW_CHUNK_BYTES_MAX;
    tw_pool_hold(&payloads->pool, *row);
    return TW_OK;
}

int tw_payloads_row_at(const struct tw_payloads *payloads, const uint8_t *bytes) {
    const struct tw_pool *pool = &payloads->pool;
    for (uint32_t i = 0; i < pool->count; i++) {
        const uint8_t *begin = tw_payloads_bytes(payloads, pool->order[i]);
        if (bytes >= begin && bytes < begin + pool->rows[pool->order[i]].bytes)
            return pool->order[i];
    }
    return -1;
}
