/* pool.h - where the payloads lie in the memory shared with the worker.
 *
 * Two tables over `bytes` bytes of room: payloads by SHA-256, and the gaps between them (first fit;
 * a gap is what no payload covers, so freeing coalesces by itself). The pool never touches the
 * bytes. Life of a payload:
 *
 *   reserve --> RESERVED --commit(hash, bytes)--> HELD <--verified-- EXPECTED <-- expect(hash,
 * bytes)
 *      \__ put: gone                               \__ put of the last reference: gone
 *
 * A payload with a reader (`hold`: being sent, hashed or read by the worker) keeps its place until
 * `release`, though it can no longer be found once its references are gone. Equal hashes are one
 * payload. A full pool refuses with TW_LIMIT and counts it; it never grows. */
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
    TW_PAYLOAD_RESERVED, /* the worker writes into it; has no name yet */
    TW_PAYLOAD_EXPECTED, /* chunks arrive */
    TW_PAYLOAD_HELD,     /* whole and verified (or made here) */
    TW_PAYLOAD_DROPPED,  /* unreferenced, but somebody still reads */
};

struct tw_payload {
    enum tw_payload_state state;
    struct tw_id hash;
    uint64_t offset; /* bytes from the start of the pool; multiple of TW_POOL_ALIGN */
    uint32_t bytes;  /* of the payload; of the reservation while RESERVED */
    uint32_t holds;  /* readers */
};

struct tw_pool {
    uint64_t bytes, used; /* used: sum of the rows, rounded up */
    uint64_t refused;     /* requests for which there was no room, ever */
    uint32_t count;
    struct tw_payload rows[TW_PAYLOADS_MAX];
    uint16_t order[TW_PAYLOADS_MAX]; /* rows in use, by offset */
};

/* Nothing is in it. `bytes` is rounded down to TW_POOL_ALIGN. */
void tw_pool_init(struct tw_pool *pool, uint64_t bytes);

/* Room for an output of at most `bytes` > 0 bytes. TW_LIMIT: no gap is large enough, or no row. */
enum tw_status tw_pool_reserve(struct tw_pool *pool, uint32_t bytes, uint32_t *idx,
                               struct tw_error *err);

/* The output in `idx` is whole: `bytes` of it are the payload `hash`. Returns the row that has it
 * from now on, which is another one if the payload was known already (its copy then wins). */
uint32_t tw_pool_commit(struct tw_pool *pool, uint32_t idx, const struct tw_id *hash,
                        uint32_t bytes);

/* Room for a payload that will arrive in chunks; TW_OK also when it is known already (same size).
 * TW_LIMIT: no room. TW_PROTO: known with another size. */
enum tw_status tw_pool_expect(struct tw_pool *pool, const struct tw_id *hash, uint32_t bytes,
                              uint32_t *idx, struct tw_error *err);

/* EXPECTED becomes HELD. */
void tw_pool_verified(struct tw_pool *pool, uint32_t idx);

/* Row of the payload, EXPECTED or HELD; -1 if unknown. */
int tw_pool_find(const struct tw_pool *pool, const struct tw_id *hash);

/* No longer needed: freed at once, or with its last reader. */
void tw_pool_put(struct tw_pool *pool, uint32_t idx);

void tw_pool_hold(struct tw_pool *pool, uint32_t idx);
void tw_pool_release(struct tw_pool *pool, uint32_t idx);

#endif
