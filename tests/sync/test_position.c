/* test_position.c - the encoding of positions and votes. */
#include "tests/test.h"

#include "sync/core/position.h"
#include "tests/daemon/store/state_sample.h"
#include "tests/proto/sample.h"

static struct tw_error err;

TEST(positions_are_decoded_bit_for_bit) {
    for (uint64_t seed = 0; seed < 50; seed++) {
        static struct tw_checkpoint_state sample;
        static struct tw_position back;
        uint8_t bytes[TW_POSITION_BYTES_MAX];
        uint32_t fragments;
        const uint32_t count = 1 + (uint32_t)(seed % TW_FRAGMENTS_MAX);
        sample_state(&sample, count, seed % 4, seed);
        const size_t size = tw_position_encode(&sample.position, count, bytes);
        assert_int_equal(tw_position_decode(bytes, size, &back, &fragments, &err), TW_OK);
        assert_int_equal(fragments, count);
        assert_memory_equal(&back, &sample.position, sizeof(back));
    }
}

TEST(votes_are_decoded_bit_for_bit) {
    for (uint64_t seed = 0; seed < 50; seed++) {
        static struct tw_vote vote, back;
        uint8_t bytes[TW_VOTE_BYTES_MAX];
        sample_vote(&vote, seed, seed);
        if (seed % 3 == 0) {
            vote.has_accepted = 0;
            vote.accepted_ballot = 0;
            memset(&vote.accepted, 0, sizeof(vote.accepted));
        }
        const size_t size = tw_vote_encode(&vote, bytes);
        assert_int_equal(tw_vote_decode(bytes, size, &back, &err), TW_OK);
        assert_memory_equal(&back, &vote, sizeof(back));
    }
}

TEST(largest_position_and_vote_fit_their_bounds) {
    static struct tw_position position;
    static struct tw_vote vote;
    static uint8_t bytes[TW_POSITION_BYTES_MAX];
    uint32_t fragments;
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    tw_sample_close_full(&rng, &position.tip);
    position.tip.round = 8;
    position.rounds = 9;
    position.has_tip = position.has_held = 1;
    position.tip_proof = (struct tw_proof){.ballot = 1, .voters = UINT64_MAX};
    tw_sample_close_full(&rng, &position.held);
    vote.accepted = position.tip;
    vote.lineage = vote.accepted.lineage;
    vote.round = 8;
    vote.has_accepted = 1;
    size_t size = tw_position_encode(&position, TW_FRAGMENTS_MAX, bytes);
    assert_true(size <= TW_POSITION_BYTES_MAX);
    assert_int_equal(tw_position_decode(bytes, size, &position, &fragments, &err), TW_OK);
    size = tw_vote_encode(&vote, bytes);
    assert_true(size <= TW_VOTE_BYTES_MAX);
    assert_int_equal(tw_vote_decode(bytes, size, &vote, &err), TW_OK);
}

TEST(cut_and_grown_bytes_are_refused) {
    static struct tw_checkpoint_state sample;
    static struct tw_position position;
    static struct tw_vote vote;
    static uint8_t bytes[TW_POSITION_BYTES_MAX + 1];
    uint32_t fragments;
    size_t size = 0;
    for (uint64_t seed = 0; seed < 3; seed++) {
        sample_state(&sample, 3, 5, seed);
        size = tw_position_encode(&sample.position, 3, bytes);
        const bool is_whole = seed == 0; /* `held` equals the tip and is left out */
        uint32_t taken = 0;
        for (size_t cut = 0; cut <= size + 1; cut++) {
            if (cut == size) continue;
            taken += tw_position_decode(bytes, cut, &position, &fragments, &err) != TW_CORRUPT;
        }
        assert_int_equal(
            taken,
            is_whole ? 0 : 1); /* a cut right before `held` reads as if it equalled the tip */
    }
    sample_vote(&vote, 5, 1);
    size = tw_vote_encode(&vote, bytes);
    for (size_t cut = 0; cut <= size + 1; cut++) {
        if (cut == size) continue;
        assert_int_equal(tw_vote_decode(bytes, cut, &vote, &err), TW_CORRUPT);
    }
}

TEST(position_of_another_version_is_refused) {
    static struct tw_checkpoint_state sample;
    static struct tw_position position;
    uint8_t bytes[TW_POSITION_BYTES_MAX];
    uint32_t fragments;
    sample_state(&sample, 3, 5, 1);
    const size_t size = tw_position_encode(&sample.position, 3, bytes);
    bytes[3] = '1';
    assert_int_equal(tw_position_decode(bytes, size, &position, &fragments, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "another version of this program wrote it"));
    assert_int_equal(tw_position_decode(bytes, 3, &position, &fragments, &err), TW_CORRUPT);
}

TEST(inconsistent_fields_are_refused) {
    static struct tw_checkpoint_state sample;
    static struct tw_position position;
    static struct tw_vote vote;
    uint8_t bytes[TW_POSITION_BYTES_MAX];
    uint32_t fragments;
    sample_state(&sample, 3, 5, 1);
    sample.position.rounds = 7;
    size_t size = tw_position_encode(&sample.position, 3, bytes);
    assert_int_equal(tw_position_decode(bytes, size, &position, &fragments, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "of round 4, not of the last of 7"));

    sample_state(&sample, 3, 0, 2);
    sample.position.rounds = 7;
    size = tw_position_encode(&sample.position, 3, bytes);
    assert_int_equal(tw_position_decode(bytes, size, &position, &fragments, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "at round 7, and the record before it is missing"));

    sample_state(&sample, 3, 0, 2); /* no tip and no `held`: encoded as 4 zero bytes, not 8 */
    size = tw_position_encode(&sample.position, 3, bytes);
    memset(bytes + size, 0, 4);
    assert_int_equal(tw_position_decode(bytes, size + 4, &position, &fragments, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "the record of its last round twice"));

    sample_vote(&vote, 5, 1);
    vote.round = 6;
    size = tw_vote_encode(&vote, bytes);
    assert_int_equal(tw_vote_decode(bytes, size, &vote, &err), TW_CORRUPT);
    sample_vote(&vote, 5, 1);
    vote.lineage.bytes[0] ^= 1;
    size = tw_vote_encode(&vote, bytes);
    assert_int_equal(tw_vote_decode(bytes, size, &vote, &err), TW_CORRUPT);
}
