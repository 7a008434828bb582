#include "daemon/workerlink/payloads.h"

#include <string.h>

#include "base/assert.h"

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
