/* Tests of base/hash.h: with the hash libraries (test_hash) and without them (test_hash_plain). */
#include "tests/test.h"

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/hash.h"

TEST(digests_are_the_published_ones) {
    char hex[TW_ID_HEX_BYTES];
    const struct tw_id empty = tw_sha256("", 0), abc = tw_sha256("abc", 3);
    tw_id_hex(&empty, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    tw_id_hex(&abc, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_true(tw_xxh64("", 0) == 0xEF46DB3751D8E999u);
}

/* Hashes inputs of every size up to 299 bytes, and all digests into one. Expected: Python's
 * hashlib, and xxHash 0.8. */
TEST(digests_of_every_size_are_those_of_others) {
    static uint8_t bytes[300], digests[300 * sizeof(struct tw_id)], hashes[300 * 8];
    char hex[TW_ID_HEX_BYTES];
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 7);
    for (size_t n = 0; n < sizeof(bytes); n++) {
        const struct tw_id digest = tw_sha256(bytes, n);
        memcpy(digests + n * sizeof(digest), &digest, sizeof(digest));
        tw_put_u64(hashes + n * 8, tw_xxh64(bytes, n));
    }
    const struct tw_id all = tw_sha256(digests, sizeof(digests));
    tw_id_hex(&all, hex);
    assert_string_equal(hex, "f65f14b090e805017546322e618401d41f0710c213e013a5131eb38bbe8f367f");
    assert_int_equal(tw_xxh64(hashes, sizeof(hashes)), 0x81523968AA023DD2u);
}

TEST(parts_hash_like_the_whole) {
    static uint8_t bytes[300];
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 11);
    for (size_t step = 1; step < 140; step++) {
        struct tw_sha256_parts parts;
        tw_sha256_begin(&parts);
        for (size_t at = 0; at < sizeof(bytes); at += step) {
            const size_t left = sizeof(bytes) - at;
            tw_sha256_add(&parts, bytes + at, left < step ? left : step);
        }
        const struct tw_id found = tw_sha256_end(&parts);
        const struct tw_id whole = tw_sha256(bytes, sizeof(bytes));
        assert_true(tw_id_equal(&found, &whole));
    }
}

TEST(ranges_hash_like_their_concatenation) {
    uint8_t bytes[200];
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 7);
    for (size_t a = 0; a <= sizeof(bytes); a += 7) {
        for (size_t b = a; b <= sizeof(bytes); b += 13) {
            const struct tw_range ranges[] = {
                {bytes, a}, {bytes + a, b - a}, {NULL, 0}, {bytes + b, sizeof(bytes) - b}};
            assert_true(tw_xxh64_ranges(ranges, 4) == tw_xxh64(bytes, sizeof(bytes)));
            const struct tw_id whole = tw_sha256(bytes, b);
            const struct tw_id pair = tw_sha256_pair(bytes, a, bytes + a, b - a);
            assert_true(tw_id_equal(&whole, &pair));
        }
    }
}

TEST(hashed_bytes_are_reported) {
    static uint8_t bytes[(2 << 20) + 5];
    static const size_t sizes[] = {0, 1, 1 << 20, sizeof(bytes)};
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 13 >> 3);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        _Atomic uint64_t told = 3;
        assert_true(tw_xxh64_told(bytes, sizes[i], &told) == tw_xxh64(bytes, sizes[i]));
        assert_true(tw_xxh64_told(bytes, sizes[i], NULL) == tw_xxh64(bytes, sizes[i]));
        assert_int_equal(atomic_load(&told), 3 + sizes[i]);
    }
}
