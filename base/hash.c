#include "base/hash.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdatomic.h>

#define XXH_STATIC_LINKING_ONLY /* makes XXH64_state_t a complete type, so that it can be on the   \
                                   stack */
#include <xxhash.h>

#include "base/assert.h"

struct tw_id tw_sha256(const void *bytes, size_t size) {
    struct tw_id digest;
    (void)SHA256(bytes, size, digest.bytes);
    return digest;
}

void tw_sha256_begin(struct tw_sha256_parts *parts) {
    *parts = (struct tw_sha256_parts){.library = EVP_MD_CTX_new()};
    TW_ASSERT(parts->library != NULL);
    TW_ASSERT(EVP_DigestInit_ex(parts->library, EVP_sha256(), NULL) == 1);
}

void tw_sha256_add(struct tw_sha256_parts *parts, const void *bytes, size_t size) {
    TW_ASSERT(EVP_DigestUpdate(parts->library, bytes, size) == 1);
}

struct tw_id tw_sha256_end(struct tw_sha256_parts *parts) {
    struct tw_id digest;
    TW_ASSERT(EVP_DigestFinal_ex(parts->library, digest.bytes, NULL) == 1);
    EVP_MD_CTX_free(parts->library);
    parts->library = NULL;
    return digest;
}

struct tw_id tw_sha256_pair(const void *a, size_t a_size, const void *b, size_t b_size) {
    struct tw_sha256_parts parts;
    tw_sha256_begin(&parts);
    tw_sha256_add(&parts, a, a_size);
    tw_sha256_add(&parts, b, b_size);
    return tw_sha256_end(&parts);
}

uint64_t tw_xxh64(const void *bytes, size_t size) {
    return XXH64(bytes, size, 0);
}

uint64_t tw_xxh64_told(const void *bytes, size_t size, _Atomic uint64_t *told) {
    enum { PIECE_BYTES = 1 << 20 };
    const uint8_t *from = bytes;
    XXH64_state_t state;
    (void)XXH64_reset(&state, 0);
    for (size_t piece; size > 0; from += piece, size -= piece) {
        piece = size < PIECE_BYTES ? size : PIECE_BYTES;
        (void)XXH64_update(&state, from, piece);
        if (told != NULL) (void)atomic_fetch_add(told, piece);
    }
    return XXH64_digest(&state);
}

uint64_t tw_xxh64_ranges(const struct tw_range *ranges, size_t count) {
    XXH64_state_t state;
    (void)XXH64_reset(&state, 0);
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].size > 0) (void)XXH64_update(&state, ranges[i].bytes, ranges[i].size);
    }
    return XXH64_digest(&state);
}
