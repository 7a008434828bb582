/* pool.h - allocator of payloads in the memory shared with the worker.
 *
 * Payloads are found by SHA-256. A gap is the room between two payloads, so freeing needs no merge
 * of gaps; allocation is first fit. The pool never touches payload bytes. Life of a payload:
 *
 *   reserve --> RESERVED --commit(hash)--> HELD <--verified-- EXPECTED <-- expect(hash)
 *      \__ put: gone                        \__ put: gone
 *
 * A payload with a reader (`hold`: it is sent, hashed or read by the worker) keeps its place until
 * `release`, but after `put` it can no longer be found. Two requests with the same hash share one
 * payload. A full pool refuses with TW_LIMIT and counts the refusal; it never grows. */
#ifndef TW_DAEMON_WORKERLINK_POOL_H
#define TW_DAEMON_WORKERLINK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

enum { TW_POOL_ALIGN = 64 };

enum tw_payload_state {
    TW_PAYLOAD_FREE,     /* the row is unused */
    TW_PAYLOAD_RESERVED, /* the worker writes into the row; the payload's hash is not known yet */
    TW_PAYLOAD_EXPECTED, /* the payload's chunks are arriving */
    TW_PAYLOAD_HELD,     /* complete and verified, or made by this node */
    TW_PAYLOAD_DROPPED,  /* tw_pool_put was called, but there are still readers */
};

struct tw_payload {
    enum tw_payload_state state;
    struct tw_id hash;
    uint64_t offset; /* bytes from the start of the pool; multiple of TW_POOL_ALIGN */
    uint32_t bytes;  /* size of the payload; while RESERVED, size of the reservation */
    uint32_t holds;  /* readers */
};

struct tw_pool {
    uint64_t bytes, used; /* size of the pool; sum of the sizes of all rows, each rounded up */
    uint64_t refused;     /* requests refused for lack of room, in total */
    uint32_t count;
    struct tw_payload rows[TW_PAYLOADS_MAX];
    uint16_t order[TW_PAYLOADS_MAX]; /* rows in use, by offset */
};

/* An empty pool. `bytes` is rounded down to TW_POOL_ALIGN. */
void tw_pool_init(struct tw_pool *pool, uint64_t bytes);

/* Reserves room for an output of at most `bytes` > 0 bytes. TW_LIMIT: no large enough gap, or no
 * row. */
enum tw_status tw_pool_reserve(struct tw_pool *pool, uint32_t bytes, uint32_t *idx,
                               struct tw_error *err);

/* Names the complete output in `idx`: its first `bytes` bytes are the payload `hash`. Returns the
 * row of the payload. If the payload was known already, that is its old row, and `idx` is freed. */
uint32_t tw_pool_commit(struct tw_pool *pool, uint32_t idx, const struct tw_id *hash,
                        uint32_t bytes);

/* Reserves room for a payload that will arrive in chunks. TW_OK also when it is known already with
 * this size. TW_LIMIT: no room. TW_PROTO: known with another size. */
enum tw_status tw_pool_expect(struct tw_pool *pool, const struct tw_id *hash, uint32_t bytes,
                              uint32_t *idx, struct tw_error *err);

/* EXPECTED becomes HELD. */
void tw_pool_verified(struct tw_pool *pool, uint32_t idx);

/* Row of the payload, EXPECTED or HELD; -1 if unknown. */
int tw_pool_find(const struct tw_pool *pool, const struct tw_id *hash);

/* Frees a payload: at once, or when its last reader releases it. */
void tw_pool_put(struct tw_pool *pool, uint32_t idx);

void tw_pool_hold(struct tw_pool *pool, uint32_t idx);
void tw_pool_release(struct tw_pool *pool, uint32_t idx);

#endif
