/* hash.h - SHA-256 (names, integrity) and xxHash64 (checksums against accidental damage). */
#ifndef TW_BASE_HASH_H
#define TW_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"

/* SHA-256 of bytes[size]; size may be 0. Cannot fail. Thread-safe. */
struct tw_id tw_sha256(const void *bytes, size_t size);

/* SHA-256 of a[a_size] followed by b[b_size], which need not be adjacent in memory. */
struct tw_id tw_sha256_pair(const void *a, size_t a_size, const void *b, size_t b_size);

/* Incremental SHA-256, for data that does not fit into memory: begin, add any number of times, end.
 * `end` frees whatever `begin` allocated. */
struct tw_sha256_parts {
    void *library; /* context of the crypto library, if one is used */
    uint32_t state[8];
    uint8_t block[64]; /* input bytes that do not fill a block yet, so are not hashed into `state`
                          yet */
    uint64_t bytes;
};
void tw_sha256_begin(struct tw_sha256_parts *parts);
void tw_sha256_add(struct tw_sha256_parts *parts, const void *bytes, size_t size);
struct tw_id tw_sha256_end(struct tw_sha256_parts *parts);

/* xxHash64, seed 0: a checksum against accidental damage, not against attackers. */
uint64_t tw_xxh64(const void *bytes, size_t size);

/* xxHash64 that reports progress: after each MiB, adds the number of bytes hashed to *told (if not
 * NULL). */
uint64_t tw_xxh64_told(const void *bytes, size_t size, _Atomic uint64_t *told);

/* xxHash64 of several memory ranges, as if they were contiguous. */
struct tw_range {
    const void *bytes;
    size_t size; /* `bytes` may be NULL if this is 0 */
};
uint64_t tw_xxh64_ranges(const struct tw_range *ranges, size_t count);

#endif
