/* payloads.h - the bytes of payloads: the pool's table over the pool region of the shared memory.
 * Chunks go in as they arrive and come out as they are sent; the worker reads and writes in place.
 * Untrusted: every index and size is checked against the row before a byte moves. */
#ifndef TW_DAEMON_WORKERLINK_PAYLOADS_H
#define TW_DAEMON_WORKERLINK_PAYLOADS_H

#include "daemon/workerlink/pool.h"
#include "proto/shm.h"

struct tw_payloads {
    struct tw_pool pool;
    const struct tw_shm *shm; /* borrowed */
};

void tw_payloads_init(struct tw_payloads *payloads, const struct tw_shm *shm);

/* The bytes of a row, and where the worker finds them. */
uint8_t *tw_payloads_bytes(const struct tw_payloads *payloads, uint32_t row);
struct tw_span tw_payloads_span(const struct tw_payloads *payloads, uint32_t row);

/* Stores chunk `idx` of an expected payload. TW_OK also when the payload is held already. TW_AGAIN:
 * nobody expects it (any more). TW_PROTO: no such chunk, or not its size. */
enum tw_status tw_payloads_chunk_put(struct tw_payloads *payloads, const struct tw_id *hash,
                                     uint32_t idx, const uint8_t *bytes, uint32_t size);

/* Chunk `idx` of a held payload, to be sent: its row is on hold until tw_pool_release. TW_AGAIN:
 * not held. TW_PROTO: no such chunk. */
enum tw_status tw_payloads_chunk_get(struct tw_payloads *payloads, const struct tw_id *hash,
                                     uint32_t idx, const uint8_t **bytes, uint32_t *size,
                                     uint32_t *row);

/* The row whose bytes contain `bytes`; -1 when none does. */
int tw_payloads_row_at(const struct tw_payloads *payloads, const uint8_t *bytes);

#endif
