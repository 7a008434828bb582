/* payloads.h - bytes of payloads: the pool (pool.h) and the region of shared memory that it
 * manages. Chunks are written as they arrive and read as they are sent. The worker reads and writes
 * in place. Input is untrusted: every index and size is checked against the row before bytes are
 * copied. */
#ifndef TW_DAEMON_WORKERLINK_PAYLOADS_H
#define TW_DAEMON_WORKERLINK_PAYLOADS_H

#include "daemon/workerlink/pool.h"
#include "proto/shm.h"

struct tw_payloads {
    struct tw_pool pool;
    const struct tw_shm *shm; /* borrowed */
};

void tw_payloads_init(struct tw_payloads *payloads, const struct tw_shm *shm);

/* Return the address of a row's bytes, and their offset in the shared memory. */
uint8_t *tw_payloads_bytes(const struct tw_payloads *payloads, uint32_t row);
struct tw_span tw_payloads_span(const struct tw_payloads *payloads, uint32_t row);

/* Stores chunk `idx` of an expected payload. Returns TW_OK also if the payload is held already,
 * TW_AGAIN if it is not expected, or no longer, and TW_PROTO if there is no such chunk or its size
 * differs. */
enum tw_status tw_payloads_chunk_put(struct tw_payloads *payloads, const struct tw_id *hash,
                                     uint32_t idx, const uint8_t *bytes, uint32_t size);

/* Returns chunk `idx` of a held payload, for sending. The row then has one more reader, until
 * tw_pool_release. Returns TW_AGAIN if the payload is not held, or TW_PROTO if there is no such
 * chunk. */
enum tw_status tw_payloads_chunk_get(struct tw_payloads *payloads, const struct tw_id *hash,
                                     uint32_t idx, const uint8_t **bytes, uint32_t *size,
                                     uint32_t *row);

/* Returns the row that contains the address `bytes`, or -1 if none does. */
int tw_payloads_row_at(const struct tw_payloads *payloads, const uint8_t *bytes);

#endif
