/* Tests of proto/cert.c. */
#include "tests/test.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "proto/cert.h"

static struct tw_error err;
static struct tw_revoked list, back;
static uint8_t bytes[TW_REVOKED_BYTES_MAX + 64];

static struct tw_id id(uint8_t byte) {
    struct tw_id made;
    memset(made.bytes, byte, sizeof(made.bytes));
    return made;
}

static void fill(uint32_t count) {
    memset(&list, 0, sizeof(list));
    list.version = 3;
    list.made_s = 1800000000;
    list.run = id(2);
    memset(list.signature, 0x5A, sizeof(list.signature));
    for (uint32_t i = 0; i < count; i++) {
        struct tw_id node = id(7);
        node.bytes[0] = (uint8_t)(i >> 8);
        node.bytes[1] = (uint8_t)i;
        assert_true(tw_revoked_add(&list, &node));
    }
    assert_int_equal(list.count, count);
}

TEST(lists_of_any_length_read_back) {
    static const uint32_t COUNTS[] = {0, 1, 2, 1023, TW_REVOKED_MAX};
    for (unsigned i = 0; i < sizeof(COUNTS) / sizeof(COUNTS[0]); i++) {
        fill(COUNTS[i]);
        const size_t size = tw_revoked_encode(&list, bytes);
        assert_int_equal(size, 56 + 32 * COUNTS[i] + 64);
        memset(&back, 0xEE, sizeof(back));
        assert_int_equal(tw_revoked_decode(bytes, size, &back, &err), TW_OK);
        assert_memory_equal(&list, &back, sizeof(list));
    }
}

static void refuses(size_t size, const char *word) {
    memset(&err, 0, sizeof(err));
    assert_int_equal(tw_revoked_decode(bytes, size, &back, &err), TW_PROTO);
    if (strstr(err.message, word) == NULL) fail_msg("no '%s' in: %s", word, err.message);
}

TEST(malformed_bytes_are_refused) {
    fill(3);
    const size_t size = tw_revoked_encode(&list, bytes);
    refuses(0, "0 bytes");
    refuses(119, "119 bytes");
    refuses(size - 1, "for 3 ids");
    refuses(size + 32, "for 3 ids");
    refuses(TW_REVOKED_BYTES_MAX + 1, "bytes");
    tw_put_u32(bytes + 4, TW_REVOKED_MAX + 1);
    refuses(size, "for 1025 ids");
    tw_put_u32(bytes + 4, UINT32_MAX);
    refuses(size, "ids");
    (void)tw_revoked_encode(&list, bytes);
    bytes[3] = '2';
    refuses(size, "TWR1");
    (void)tw_revoked_encode(&list, bytes);
    tw_put_u64(bytes + 8, 0);
    refuses(size, "version 0");
    (void)tw_revoked_encode(&list, bytes);
    memcpy(bytes + 56, bytes + 56 + 32, 32); /* twice the same */
    refuses(size, "id 1 is out of order");
    (void)tw_revoked_encode(&list, bytes);
    bytes[56 + 64] = bytes[56 + 65] = 0; /* sorts the third id before the second */
    refuses(size, "id 2 is out of order");
}

TEST(nodes_are_added_found_and_removed) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 11);
    bool is_on[64] = {false};
    fill(0);
    for (unsigned i = 0; i < 4000; i++) {
        const uint8_t which = (uint8_t)tw_rng_below(&rng, 64);
        const struct tw_id node = id(which);
        const bool adds = tw_rng_below(&rng, 2) == 0;
        const bool changed = adds ? tw_revoked_add(&list, &node) : tw_revoked_remove(&list, &node);
        assert_int_equal(changed, adds != is_on[which]);
        is_on[which] = adds;
        uint32_t count = 0;
        for (uint8_t k = 0; k < 64; k++) {
            const struct tw_id each = id(k);
            assert_int_equal(tw_revoked_has(&list, &each), is_on[k]);
            count += is_on[k];
        }
        assert_int_equal(list.count, count);
        const size_t size = tw_revoked_encode(&list, bytes); /* stays canonical */
        assert_int_equal(tw_revoked_decode(bytes, size, &back, &err), TW_OK);
    }
}

TEST(a_full_list_takes_no_more) {
    fill(TW_REVOKED_MAX);
    const struct tw_id more = id(0xEE);
    assert_false(tw_revoked_add(&list, &more));
    assert_false(tw_revoked_has(&list, &more));
    assert_int_equal(list.count, TW_REVOKED_MAX);
}

TEST(everything_but_the_signature_is_signed) {
    uint8_t first[TW_REVOKED_SIGNED_BYTES], other[TW_REVOKED_SIGNED_BYTES];
    fill(2);
    tw_revoked_signed(&list, first);
    assert_memory_equal(first, "thinwire-revocation-v1", TW_REVOKED_DOMAIN_BYTES);
    const size_t size = tw_revoked_encode(&list, bytes);
    memset(bytes + size - TW_SIGNATURE_BYTES, 0, TW_SIGNATURE_BYTES);
    assert_int_equal(tw_revoked_decode(bytes, size, &back, &err), TW_OK);
    tw_revoked_signed(&back, other);
    assert_memory_equal(first, other, sizeof(first));
    for (unsigned which = 0; which < 5; which++) {
        back = list;
        switch (which) {
        case 0: back.version++; break;
        case 1: back.made_s++; break;
        case 2: back.run.bytes[31] ^= 1; break;
        case 3: back.nodes[1].bytes[31] ^= 1; break;
        default: back.count--; break;
        }
        tw_revoked_signed(&back, other);
        assert_memory_not_equal(first, other, sizeof(first));
    }
}

TEST(the_admitted_go_with_their_admitter) {
    struct tw_certs certs = {.count = 2};
    certs.certs[0].node = id(1);
    certs.certs[1].node = id(2);
    fill(0);
    assert_int_equal(tw_revoked_check(&list, &certs, &err), TW_OK);
    const struct tw_id other = id(9), node = id(1), admitter = id(2);
    assert_true(tw_revoked_add(&list, &other));
    assert_int_equal(tw_revoked_check(&list, &certs, &err), TW_OK);
    assert_true(tw_revoked_add(&list, &admitter));
    assert_int_equal(tw_revoked_check(&list, &certs, &err), TW_REVOKED);
    assert_non_null(strstr(err.message, "node 01010101 was admitted by node 02020202"));
    certs.count = 1; /* signed anew, by the owner */
    assert_int_equal(tw_revoked_check(&list, &certs, &err), TW_OK);
    assert_true(tw_revoked_add(&list, &node));
    assert_int_equal(tw_revoked_check(&list, &certs, &err), TW_REVOKED);
    assert_non_null(strstr(err.message, "node 01010101 is on list 3"));
}

TEST(one_entry_pauses_the_run_and_is_no_node) {
    fill(5);
    assert_false(tw_revoked_is_paused(&list));
    assert_int_equal(tw_revoked_nodes(&list), 5);
    assert_true(tw_revoked_add(&list, &tw_revoked_pause_entry));
    assert_memory_equal(tw_revoked_pause_entry.bytes, "thinwire-pause-of-the-whole-run", 32);
    const size_t size = tw_revoked_encode(&list, bytes);
    assert_int_equal(tw_revoked_decode(bytes, size, &back, &err), TW_OK);
    assert_true(tw_revoked_is_paused(&back));
    assert_int_equal(back.count, 6);
    assert_int_equal(tw_revoked_nodes(&back), 5);
    assert_true(tw_revoked_remove(&back, &tw_revoked_pause_entry));
    assert_false(tw_revoked_is_paused(&back));
    assert_int_equal(tw_revoked_nodes(&back), 5);
}
