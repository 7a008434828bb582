/* hash_plain.c - base/hash.h without external libraries, for engine-only builds. Several times
 * slower than hash.c. */
#include "base/hash.h"

#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"

/* ---- SHA-256: FIPS 180-4 --------------------------------------------------------------------- */

enum { BLOCK_BYTES = 64 };

static const uint32_t SHA256_ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t x, unsigned by) {
    return x >> by | x << (32 - by);
}

static uint32_t get_big_endian(const uint8_t *from) {
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static void put_big_endian(uint8_t *to, uint32_t value) {
    for (unsigned i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void sha256_block(uint32_t state[8], const uint8_t block[BLOCK_BYTES]) {
    uint32_t w[64], a[8];
    for (unsigned i = 0; i < 16; i++) w[i] = get_big_endian(block + 4 * i);
    for (unsigned i = 16; i < 64; i++) {
        const uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3) +
               (rotate_right(y, 17) ^ rotate_right(y, 19) ^ y >> 10);
    }
    memcpy(a, state, sizeof(a));
    for (unsigned i = 0; i < 64; i++) {
        const uint32_t e = a[4], f = a[0];
        const uint32_t choice = (e & a[5]) ^ (~e & a[6]);
        const uint32_t majority = (f & a[1]) ^ (f & a[2]) ^ (a[1] & a[2]);
        const uint32_t t = a[7] + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) +
                           choice + SHA256_ROUND[i] + w[i];
        const uint32_t u =
            (rotate_right(f, 2) ^ rotate_right(f, 13) ^ rotate_right(f, 22)) + majority;
        memmove(a + 1, a, 7 * sizeof(a[0]));
        a[4] += t;
        a[0] = t + u;
    }
    for (unsigned i = 0; i < 8; i++) state[i] += a[i];
}

void tw_sha256_begin(struct tw_sha256_parts *parts) {
    *parts = (struct tw_sha256_parts){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void tw_sha256_add(struct tw_sha256_parts *parts, const void *bytes, size_t size) {
    const uint8_t *from = bytes;
    size_t held = (size_t)(parts->bytes % BLOCK_BYTES);
    parts->bytes += size;
    while (size > 0) {
        const size_t take = size < BLOCK_BYTES - held ? size : BLOCK_BYTES - held;
        memcpy(parts->block + held, from, take);
        held += take;
        from += take;
        size -= take;
        if (held < BLOCK_BYTES) return;
        sha256_block(parts->state, parts->block);
        held = 0;
    }
}

struct tw_id tw_sha256_end(struct tw_sha256_parts *parts) {
    static const uint8_t PADDING[BLOCK_BYTES] = {0x80};
    struct tw_id digest;
    uint8_t bits[8];
    put_big_endian(bits, (uint32_t)(parts->bytes >> 29));
    put_big_endian(bits + 4, (uint32_t)(parts->bytes << 3));
    tw_sha256_add(parts, PADDING, 1 + (size_t)((119 - parts->bytes % BLOCK_BYTES) % BLOCK_BYTES));
    tw_sha256_add(parts, bits, sizeof(bits));
    for (unsigned i = 0; i < 8; i++) put_big_endian(digest.bytes + 4 * i, parts->state[i]);
    return digest;
}

struct tw_id tw_sha256_pair(const void *a, size_t a_size, const void *b, size_t b_size) {
    struct tw_sha256_parts parts;
    tw_sha256_begin(&parts);
    tw_sha256_add(&parts, a, a_size);
    tw_sha256_add(&parts, b, b_size);
    return tw_sha256_end(&parts);
}

struct tw_id tw_sha256(const void *bytes, size_t size) {
    return tw_sha256_pair(bytes, size, "", 0);
}

/* ---- xxHash64: Collet, the xxHash specification ---------------------------------------------- */

enum { STRIPE_BYTES = 32 };
#define PRIME_1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME_3 UINT64_C(0x165667B19E3779F9)
#define PRIME_4 UINT64_C(0x85EBCA77C2B2AE63)
#define PRIME_5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t rotate_left(uint64_t x, unsigned by) {
    return x << by | x >> (64 - by);
}

static uint64_t xxh64_round(uint64_t lane, uint64_t input) {
    return rotate_left(lane + input * PRIME_2, 31) * PRIME_1;
}

static void xxh64_stripe(uint64_t lanes[4], const uint8_t stripe[STRIPE_BYTES]) {
    for (unsigned i = 0; i < 4; i++) lanes[i] = xxh64_round(lanes[i], tw_get_u64(stripe + 8 * i));
}

/* `rest` points at the final bytes % STRIPE_BYTES input bytes, which fill no whole stripe. */
static uint64_t xxh64_end(const uint64_t lanes[4], const uint8_t *rest, uint64_t bytes) {
    uint64_t hash = PRIME_5;
    if (bytes >= STRIPE_BYTES) {
        hash = rotate_left(lanes[0], 1) + rotate_left(lanes[1], 7) + rotate_left(lanes[2], 12) +
               rotate_left(lanes[3], 18);
        for (unsigned i = 0; i < 4; i++) {
            hash = (hash ^ xxh64_round(0, lanes[i])) * PRIME_1 + PRIME_4;
        }
    }
    hash += bytes;
    size_t left = (size_t)(bytes % STRIPE_BYTES);
    for (; left >= 8; left -= 8, rest += 8) {
        hash = rotate_left(hash ^ xxh64_round(0, tw_get_u64(rest)), 27) * PRIME_1 + PRIME_4;
    }
    for (; left >= 4; left -= 4, rest += 4) {
        hash = rotate_left(hash ^ tw_get_u32(rest) * PRIME_1, 23) * PRIME_2 + PRIME_3;
    }
    for (; left > 0; left--, rest++) hash = rotate_left(hash ^ *rest * PRIME_5, 11) * PRIME_1;
    hash = (hash ^ hash >> 33) * PRIME_2;
    hash = (hash ^ hash >> 29) * PRIME_3;
    return hash ^ hash >> 32;
}

struct xxh64 {
    uint64_t lanes[4], bytes;
    uint8_t stripe[STRIPE_BYTES];
};

static const struct xxh64 XXH64_BEGIN = {{PRIME_1 + PRIME_2, PRIME_2, 0, 0 - PRIME_1}, 0, {0}};

static void xxh64_add(struct xxh64 *sum, const uint8_t *from, size_t size) {
    while (size > 0) {
        const size_t held = (size_t)(sum->bytes % STRIPE_BYTES);
        const size_t take = size < STRIPE_BYTES - held ? size : STRIPE_BYTES - held;
        memcpy(sum->stripe + held, from, take);
        from += take;
        size -= take;
        sum->bytes += take;
        if (held + take == STRIPE_BYTES) xxh64_stripe(sum->lanes, sum->stripe);
    }
}

uint64_t tw_xxh64_ranges(const struct tw_range *ranges, size_t count) {
    struct xxh64 sum = XXH64_BEGIN;
    for (size_t i = 0; i < count; i++) xxh64_add(&sum, ranges[i].bytes, ranges[i].size);
    return xxh64_end(sum.lanes, sum.stripe, sum.bytes);
}

uint64_t tw_xxh64(const void *bytes, size_t size) {
    return tw_xxh64_ranges(&(struct tw_range){bytes, size}, 1);
}

uint64_t tw_xxh64_told(const void *bytes, size_t size, _Atomic uint64_t *told) {
    enum { PIECE_BYTES = 1 << 20 };
    const uint8_t *from = bytes;
    struct xxh64 sum = XXH64_BEGIN;
    for (size_t piece; size > 0; from += piece, size -= piece) {
        piece = size < PIECE_BYTES ? size : PIECE_BYTES;
        xxh64_add(&sum, from, piece);
        if (told != NULL) (void)atomic_fetch_add(told, piece);
    }
    return xxh64_end(sum.lanes, sum.stripe, sum.bytes);
}
