/* pool.h - allocator of payloads in the memory shared with the worker.
 *
 * Payloads are found by SHA-256. A gap is the space between two payloads, so freeing needs no
 * merging of gaps. Allocation is first fit. The pool never touches payload bytes. Life of a
 * payload:
 *
 *   reserve --> RESERVED --commit(hash)--> HELD <--verified-- EXPECTED <-- expect(hash)
 *      \__ put: gone                        \__ put: gone
 *
 * A payload with a reader (`hold`: it is being sent, hashed or read by the worker) keeps its place
 * until `release`, but after `put` it can no longer be found. Two requests with the same hash share
 * one payload. A full pool never grows: it refuses with TW_LIMIT and counts the refusal. */
#ifndef TW_DAEMON_WORKERLINK_POOL_H
#define TW_DAEMON_WORKERLINK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/shm.h"

enum {
    TW_POOL_ALIGN = 64,
    TW_POOL_GIVE_BACK = 4 << 20, /* a freed payload of so many bytes is reported to on_free */
};

enum tw_payload_state {
    TW_PAYLOAD_FREE,     /* the row is unused */
    TW_PAYLOAD_RESERVED, /* the worker writes the payload; its hash is not known yet */
    TW_PAYLOAD_EXPECTED, /* the payload's chunks are arriving */
    TW_PAYLOAD_HELD,     /* complete and verified, or made by this node */
    TW_PAYLOAD_DROPPED,  /* tw_pool_put was called, but the payload still has readers */
};

struct tw_payload {
    enum tw_payload_state state;
    struct tw_id hash;
    uint64_t offset; /* byte offset in the pool, a multiple of TW_POOL_ALIGN */
    uint32_t bytes;  /* size of the payload; while RESERVED, size of the reservation */
    uint32_t holds;  /* readers */
};

struct tw_pool {
    uint64_t bytes, used; /* size of the pool; sum of the sizes of all rows, each rounded up to
                             TW_POOL_ALIGN */
    uint64_t refused;     /* total number of requests refused for lack of space */
    /* Called with the place of a large payload that was freed, so that its pages can be given back
     * to the system: a pool whose pages all stay would grow to its peak. NULL: nobody is told. */
    void (*on_free)(void *user, uint64_t offset, uint64_t bytes);
    void *user;
    uint32_t count;
    struct tw_payload rows[TW_PAYLOADS_MAX];
    uint16_t order[TW_PAYLOADS_MAX]; /* rows in use, sorted by offset */
};

/* Makes the pool empty. `bytes` is rounded down to TW_POOL_ALIGN. */
void tw_pool_init(struct tw_pool *pool, uint64_t bytes);

/* Reserves space for an output of at most `bytes` > 0 bytes. Returns TW_LIMIT if no gap is large
 * enough or no row is free. */
enum tw_status tw_pool_reserve(struct tw_pool *pool, uint32_t bytes, uint32_t *idx,
                               struct tw_error *err);

/* Names the complete output in row `idx`: its first `bytes` bytes are the payload `hash`. Returns
 * the payload's row. If the payload is in the pool already, that is its old row, and `idx` is
 * freed. */
uint32_t tw_pool_commit(struct tw_pool *pool, uint32_t idx, const struct tw_id *hash,
                        uint32_t bytes);

/* Reserves space for a payload that will arrive in chunks. Returns TW_OK also if the payload is in
 * the pool already with this size, TW_PROTO if it is there with another size, and TW_LIMIT if there
 * is no space. */
enum tw_status tw_pool_expect(struct tw_pool *pool, const struct tw_id *hash, uint32_t bytes,
                              uint32_t *idx, struct tw_error *err);

/* Marks a completely received payload as HELD. */
void tw_pool_verified(struct tw_pool *pool, uint32_t idx);

/* Returns the row of a payload that is EXPECTED or HELD, or -1 if there is none. */
int tw_pool_find(const struct tw_pool *pool, const struct tw_id *hash);

/* Frees a payload: at once, or when its last reader releases it. */
void tw_pool_put(struct tw_pool *pool, uint32_t idx);

void tw_pool_hold(struct tw_pool *pool, uint32_t idx);
void tw_pool_release(struct tw_pool *pool, uint32_t idx);

/* ==== bytes =================================================================================== */

/* Bytes of payloads: the pool and the region of shared memory that it manages. Chunks are
 * written as they arrive and read as they are sent. The worker reads and writes in place. Input is
 * untrusted: every index and size is checked against the row before bytes are copied. */

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
