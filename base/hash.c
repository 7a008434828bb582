#include "base/hash.h"

#include <openssl/sha.h>
#include <xxhash.h>

struct tw_id tw_sha256(const void *bytes, size_t size) {
    struct tw_id digest;
    (void)SHA256(bytes, size, digest.bytes);
    return digest;
}

uint64_t tw_xxh64(const void *bytes, size_t size) {
    return XXH64(bytes, size, 0);
}
