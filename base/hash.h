/* hash.h - SHA-256 (names and evidence) and xxh64 (accidents only). */
#ifndef TW_BASE_HASH_H
#define TW_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"

/* SHA-256 of bytes[size]; size 0 is fine. Cannot fail. Any thread. */
struct tw_id tw_sha256(const void *bytes, size_t size);

/* SHA-256 of a (a_size) followed by b (b_size), which need not be neighbours in memory. */
struct tw_id tw_sha256_pair(const void *a, size_t a_size, const void *b, size_t b_size);

/* xxHash64, seed 0: a checksum against accidents, no defence against a person. */
uint64_t tw_xxh64(const void *bytes, size_t size);

/* The same over the concatenation of ranges that need not be neighbours in memory. */
struct tw_range {
    const void *bytes;
    size_t size; /* 0: bytes may be NULL */
};
uint64_t tw_xxh64_ranges(const struct tw_range *ranges, size_t count);

#endif
