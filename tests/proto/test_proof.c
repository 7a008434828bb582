/* test_proof.c - proofs of decided rounds: their bytes, and how many votes they need. */
#include "proto/record.h"

#include <string.h>

#include "tests/test.h"

static struct tw_proof sample_proof(void) {
    struct tw_proof proof = {.ballot = 65, .voters = UINT64_C(1) << 63 | 0x5};
    memset(proof.signatures[0], 0x11, TW_SIGNATURE_BYTES);
    memset(proof.signatures[2], 0x22, TW_SIGNATURE_BYTES);
    memset(proof.signatures[63], 0x33, TW_SIGNATURE_BYTES);
    return proof;
}

TEST(proof_survives_its_bytes) {
    const struct tw_proof proof = sample_proof();
    struct tw_proof decoded;
    uint8_t bytes[TW_PROOF_BYTES_MAX];
    const size_t size = tw_proof_encode(&proof, bytes);
    assert_int_equal(size, 16 + 3 * TW_SIGNATURE_BYTES);
    assert_int_equal(tw_proof_decode(bytes, size, &decoded, NULL), TW_OK);
    assert_memory_equal(&decoded, &proof, sizeof(proof));
}

TEST(other_sizes_and_empty_proofs_are_refused) {
    struct tw_proof proof = sample_proof();
    uint8_t bytes[TW_PROOF_BYTES_MAX + 1] = {0};
    const size_t size = tw_proof_encode(&proof, bytes);
    for (size_t other = 0; other <= sizeof(bytes); other++) {
        if (other == size) continue;
        assert_int_equal(tw_proof_decode(bytes, other, &proof, NULL), TW_PROTO);
    }
    memset(bytes, 0, 8); /* ballot 0 */
    assert_int_equal(tw_proof_decode(bytes, size, &proof, NULL), TW_PROTO);
    memset(bytes, 1, 8);
    memset(bytes + 8, 0, 8); /* nobody voted */
    assert_int_equal(tw_proof_decode(bytes, 16, &proof, NULL), TW_PROTO);
    proof = (struct tw_proof){.ballot = 0};
    assert_int_equal(tw_proof_encode(&proof, bytes), 0);
}

TEST(promises_survive_their_bytes_alone) {
    static struct tw_promises promises, decoded;
    uint8_t bytes[TW_PROMISES_BYTES_MAX + 1] = {0};
    assert_int_equal(tw_promises_encode(&promises, bytes), 0);
    promises.voters = UINT64_C(1) << 63 | 0x1;
    promises.lock_ballots[63] = 65;
    memset(promises.signatures[0], 0x11, TW_SIGNATURE_BYTES);
    memset(promises.signatures[63], 0x22, TW_SIGNATURE_BYTES);
    const size_t size = tw_promises_encode(&promises, bytes);
    assert_int_equal(size, 8 + 2 * (8 + TW_SIGNATURE_BYTES));
    assert_int_equal(tw_promises_decode(bytes, size, &decoded, NULL), TW_OK);
    assert_memory_equal(&decoded, &promises, sizeof(promises));
    for (size_t other = 0; other <= sizeof(bytes); other++) {
        if (other == size) continue;
        assert_int_equal(tw_promises_decode(bytes, other, &decoded, NULL), TW_PROTO);
    }
    memset(bytes, 0, 8); /* nobody promised */
    assert_int_equal(tw_promises_decode(bytes, 8, &decoded, NULL), TW_PROTO);
}

TEST(sets_of_votes_share_a_member_that_does_not_lie) {
    for (uint32_t count = 1; count <= TW_MEMBERS_MAX; count++) {
        const uint32_t liars = (count - 1) / 3, needed = tw_votes_needed(count);
        assert_true(2 * needed > count + liars); /* two quorums share more members than may lie */
        assert_true(needed <= count - liars);    /* honest members can decide alone */
        assert_true(2 * (needed - 1) <= count + liars);
    }
}

static bool differ(const struct tw_ballot_vote *a, const struct tw_ballot_vote *b) {
    uint8_t first[TW_VOTE_TEXT_BYTES], second[TW_VOTE_TEXT_BYTES];
    tw_ballot_vote_text(a, first);
    tw_ballot_vote_text(b, second);
    return memcmp(first, second, sizeof(first)) != 0;
}

TEST(signed_text_names_all_that_the_vote_is_about) {
    const struct tw_ballot_vote vote = {.round = 7, .ballot = 65};
    struct tw_ballot_vote other = vote;
    assert_false(differ(&vote, &other));
    other.run.bytes[31] = 1;
    assert_true(differ(&vote, &other));
    other = vote;
    other.lineage.bytes[31] = 1;
    assert_true(differ(&vote, &other));
    other = vote;
    other.round = UINT64_C(7) << 32;
    assert_true(differ(&vote, &other));
    other = vote;
    other.ballot = 66;
    assert_true(differ(&vote, &other));
    other = vote;
    other.nonce = 1;
    assert_true(differ(&vote, &other));
    other = vote;
    other.lock_ballot = 1;
    assert_true(differ(&vote, &other));
    other = vote;
    other.phase = TW_VOTE_COMMIT;
    assert_true(differ(&vote, &other));
    other = vote;
    other.digest.bytes[31] = 1;
    assert_true(differ(&vote, &other));
}
