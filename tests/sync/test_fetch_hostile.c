/* test_fetch_hostile.c - fetchers among peers that lie, stay silent, babble, come and go. */
#include "sync/core/penalty.h"
#include "tests/sync/fetch_world.h"
#include "tests/test.h"

static struct world world;

enum { SECOND = 1000 * 1000, MBIT = 125 * 1000 };

#define FIRST_BAN_US tw_penalty_rules[TW_PENALTY_FETCH].base_us
#define MINUTE (UINT64_C(60) * SECOND)

static int teardown(void **state) {
    world_deinit(&world);
    return 0;
}

#define FACT(name) TEST_IN(NULL, teardown, name)

static uint16_t donor_like(enum manner manner, uint64_t bytes_per_s) {
    const uint16_t at = world_donor(&world, bytes_per_s);
    world.nodes[at].manner = manner;
    return at;
}

/* ---- liars --------------------------------------------------------------------------------- */

/* The liar is faster and linked first. Its bytes are recognised as wrong and fetched from another
 * donor. */
static void assert_liar_gets_a_strike(enum manner manner) {
    world_init(&world, 1, 4, 20, 1);
    const uint16_t liar = donor_like(manner, 40 * MBIT), honest = world_donor(&world, 10 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    world_link(&world, liar, joiner);
    world_link(&world, honest, joiner);
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_int_equal(node->strikes, 1);
    assert_int_equal(node->struck, liar);
    assert_in_range(node->struck_until_us, FIRST_BAN_US, FIRST_BAN_US + 2 * SECOND);
    assert_true(node->last_pull_us[liar] < SECOND);
    assert_true(world_view(&world, joiner).peers[liar].banned_until_us == node->struck_until_us);
}

FACT(wrong_index_is_a_strike_and_comes_from_another) {
    assert_liar_gets_a_strike(LIAR);
}

FACT(chunk_of_the_wrong_size_is_a_strike) {
    assert_liar_gets_a_strike(MISSIZED);
}

/* Asserts that a peer that was honest at first, and then lies, gets a strike. */
static void assert_turncoat_gets_a_strike(enum manner manner) {
    world_init(&world, 1, 4, 20, 2);
    const uint16_t liar = world_donor(&world, 40 * MBIT), honest = world_donor(&world, 10 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    world_link(&world, liar, joiner);
    world_link(&world, honest, joiner);
    while (world_view(&world, joiner).train_whole == 0)
        world_run_until(&world, world.now_us + SECOND / 10);
    world.nodes[liar].manner = manner;
    const uint64_t turned_us = world.now_us;
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_int_equal(node->strikes, 1); /* all its chunks in flight count as one strike */
    assert_int_equal(node->struck, liar);
    assert_true(node->last_pull_us[liar] < turned_us + SECOND);
}

FACT(wrong_piece_is_a_strike_and_comes_from_another) {
    assert_turncoat_gets_a_strike(LIAR);
}

FACT(piece_of_the_wrong_size_is_a_strike) {
    assert_turncoat_gets_a_strike(MISSIZED);
}

/* The liar is the only donor and sends wrong bytes every time. Its bans last 10 min, 20 min and so
 * on; new links do not shorten a ban. */
FACT(strikes_double_and_follow_the_id) {
    world_init(&world, 0, 1, 4, 3);
    const uint16_t liar = donor_like(LIAR, 10 * MBIT), joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    world_link(&world, liar, joiner);
    uint64_t last_us = 0;
    for (uint32_t strikes = 1; strikes <= 9; strikes++) {
        while (node->strikes < strikes) {
            world_run_until(&world, world.now_us + 5 * MINUTE);
            world_unlink(&world, liar, joiner);
            world_link(&world, liar, joiner);
        }
        assert_int_equal(node->strikes, strikes);
        const uint64_t doubled = strikes < 7 ? strikes - 1 : 6;
        const uint64_t ban_us = FIRST_BAN_US << doubled;
        const uint64_t begin_us = node->struck_until_us - ban_us;
        assert_true(begin_us >= last_us && begin_us <= last_us + 6 * MINUTE);
        last_us = node->struck_until_us;
    }
    world.nodes[liar].manner = HONEST;
    world_run_whole(&world, joiner, 11 * 64 * MINUTE);
}

FACT(liar_that_left_is_struck_by_its_id) {
    world_init(&world, 1, 4, 20, 4);
    const uint16_t liar = world_donor(&world, 40 * MBIT), honest = world_donor(&world, 10 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    world_link(&world, liar, joiner);
    world_run_until(&world, SECOND);
    world.nodes[liar].manner = LIAR;
    node->store_us = SECOND;
    world_run_until(&world, 2 * SECOND - SECOND / 10);
    assert_int_equal(node->strikes, 0);
    world_unlink(&world, liar, joiner); /* before its first wrong chunk was checked */
    world_run_until(&world, 4 * SECOND);
    assert_int_equal(node->strikes, 1);
    assert_int_equal(node->struck, TW_FETCH_NO_PEER);
    const uint64_t pulls = node->pulls_of[liar];
    world_link(&world, liar, joiner);
    world_link(&world, honest, joiner);
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_int_equal(node->pulls_of[liar], pulls);
    assert_int_equal(node->strikes, 1);
}

/* A liar leaves while bytes of its index are being stored, and an honest node is asked instead.
 * The liar's bytes must not get into the honest node's index, or the honest node would be
 * struck. */
FACT(bytes_of_two_sources_never_meet) {
    for (uint64_t leave_us = 0; leave_us < 2 * SECOND; leave_us += SECOND / 50) {
        world_init(&world, 1, 1, 4, 5);
        const uint16_t liar = donor_like(LIAR, 10 * MBIT), honest = world_donor(&world, 10 * MBIT);
        const uint16_t joiner = world_joiner(&world, MBIT);
        world.nodes[joiner].store_us = SECOND / 2;
        world_link(&world, liar, joiner);
        world_run_until(&world, leave_us);
        world_link(&world, honest, joiner);
        world_unlink(&world, liar, joiner);
        world_run_whole(&world, joiner, 60 * SECOND);
        assert_int_equal(world_view(&world, joiner).peers[honest].banned_until_us, 0);
        if (leave_us + SECOND / 50 < 2 * SECOND) world_deinit(&world);
    }
}

/* Only the tokenizer is missing. A liar sends all of its chunks, but with wrong bytes, so the node
 * fetches them again from another donor. */
FACT(wrong_tokenizer_at_the_end_comes_from_another) {
    world_init(&world, 0, 2, 4, 16);
    const uint16_t liar = donor_like(LIAR, 10 * MBIT), joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    tw_fetch_init(node->fetch, &node->id, 0);
    node->has[1] = node->has[2] = true;
    world_know(&world, joiner);
    world_link(&world, liar, joiner);
    world_run_until(&world, 5 * SECOND);
    assert_int_equal(node->strikes, 1);
    assert_int_equal(world_view(&world, joiner).bytes_here, 2 * world.files[1].bytes);
    const uint16_t honest = world_donor(&world, 10 * MBIT);
    world_link(&world, honest, joiner);
    world_run_whole(&world, joiner, 5 * SECOND);
}

/* ---- unrequested messages -------------------------------------------------------------------- */

FACT(unrequested_messages_change_nothing) {
    world_init(&world, 1, 4, 20, 6);
    const uint16_t donor = world_donor(&world, 10 * MBIT), other = world_donor(&world, 10 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    struct tw_fetch *fetch = world.nodes[joiner].fetch;
    world_link(&world, donor, joiner);
    world_run_until(&world, 2 * SECOND);
    world_link(&world, other, joiner);
    struct tw_rng rng;
    tw_rng_seed(&rng, 6);
    uint32_t unknown = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        const uint32_t file = (uint32_t)tw_rng_below(&rng, 6);
        const struct tw_fetch_arrival arrival = {.peer = (uint16_t)tw_rng_below(&rng, 64),
                                                 .hash = world.files[file].hash,
                                                 .idx = 1 << 20 | (uint32_t)tw_rng_next(&rng),
                                                 .size = (uint32_t)tw_rng_next(&rng)};
        struct tw_fetch_event missing = {.kind = TW_FETCH_MISSING, .peer = arrival.peer};
        struct tw_fetch_taken taken;
        missing.id.bytes[0] = 77;
        const uint64_t pulls = world.nodes[joiner].pulls_sent;
        unknown += tw_fetch_chunk(fetch, &arrival, &taken, world.now_us) == TW_FETCH_UNKNOWN;
        world_drain(&world, joiner);
        world_tell(&world, joiner, &missing);
        if (i > 0) assert_int_equal(world.nodes[joiner].pulls_sent, pulls);
    }
    assert_int_equal(unknown, 20000);
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_int_equal(world.nodes[joiner].strikes, 0);
    assert_int_equal(world.nodes[joiner].chunks_taken, world_chunks(&world));
}

FACT(same_chunk_twice_is_taken_once) {
    world_init(&world, 0, 1, 4, 7);
    const uint16_t donor = world_donor(&world, 10 * MBIT), joiner = world_joiner(&world, MBIT);
    world_link(&world, donor, joiner);
    const struct tw_fetch_arrival arrival = {
        .peer = donor, .hash = world.index_hash, .idx = 0, .size = TW_CHUNK_BYTES_MAX};
    struct tw_fetch_taken taken;
    struct tw_fetch *fetch = world.nodes[joiner].fetch;
    assert_int_equal(tw_fetch_chunk(fetch, &arrival, &taken, 1), TW_FETCH_TAKE);
    assert_int_equal(taken.file, TW_FETCH_INDEX);
    world_drain(&world, joiner);
    assert_int_equal(tw_fetch_chunk(fetch, &arrival, &taken, 2), TW_FETCH_UNKNOWN);
}

/* A node that lacks everything is asked at most 32 times in 30 s, and does not hold up the
 * transfer. */
FACT(storm_of_missing_is_bounded) {
    world_init(&world, 1, 70, 2, 8);
    const uint16_t lacking = world_donor(&world, 10 * MBIT), joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    world_link(&world, lacking, joiner);
    world_run_until(&world, SECOND); /* the index comes */
    assert_true(node->knows_files);
    world.nodes[lacking].manner = LACKING;
    const uint64_t begin = node->pulls_of[lacking];
    world_run_until(&world, 61 * SECOND);
    assert_in_range(node->pulls_of[lacking] - begin, 30,
                    3 * (TW_FETCH_MISSES_MAX + TW_FETCH_WINDOW_MAX));
    const uint16_t honest = world_donor(&world, 20 * MBIT);
    world_link(&world, honest, joiner);
    const uint64_t needed_us = world_bytes(&world) * SECOND / (20 * MBIT);
    world_run_whole(&world, joiner, needed_us + 3 * SECOND);
}

FACT(missing_is_asked_again_after_30_s) {
    world_init(&world, 0, 2, 4, 9);
    const uint16_t donor = donor_like(LACKING, 10 * MBIT), joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    world_link(&world, donor, joiner);
    world_run_until(&world, 29 * SECOND);
    assert_int_equal(node->pulls_of[donor], 1);
    world_run_until(&world, 31 * SECOND);
    assert_int_equal(node->pulls_of[donor], 2);
    assert_true(world_view(&world, joiner).peers[donor].is_lacking);
    world.nodes[donor].manner = HONEST;
    world_run_whole(&world, joiner, 40 * SECOND);
}

/* ---- silence ------------------------------------------------------------------------------- */

FACT(mute_peers_delay_by_seconds) {
    world_init(&world, 1, 8, 40, 10);
    const uint16_t honest = world_donor(&world, 20 * MBIT);
    for (uint32_t i = 0; i < 10; i++) (void)donor_like(MUTE, 10 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    for (uint16_t i = 1; i < joiner; i++) world_link(&world, i, joiner);
    world_link(&world, honest, joiner);
    const uint64_t needed_us = world_bytes(&world) * SECOND / (20 * MBIT);
    /* Each mute peer may be asked for the index first. */
    world_run_whole(&world, joiner, needed_us + 10 * (10 + 1) * SECOND);
    for (uint16_t i = 1; i < joiner; i++) {
        assert_true(world.nodes[joiner].asked_of[i] <= 4);
        assert_int_equal(world.nodes[joiner].strikes, 0);
    }
}

FACT(mute_peer_is_tried_again_ever_more_rarely) {
    world_init(&world, 0, 1, 4, 11);
    const uint16_t mute = donor_like(MUTE, 10 * MBIT), joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    world_link(&world, mute, joiner);
    const uint64_t at_s[] = {0, 70, 200, 450, 940, 1910, 2880};
    for (uint32_t i = 0; i < 7; i++) {
        world_run_until(&world, at_s[i] * SECOND + SECOND / 2);
        assert_int_equal(node->pulls_of[mute], i + 1);
        assert_in_range(node->last_pull_us[mute], at_s[i] * SECOND, at_s[i] * SECOND + SECOND / 2);
        world_run_until(&world, (at_s[i] + 11) * SECOND);
        assert_true(world_view(&world, joiner).peers[mute].is_silent);
    }
    world.nodes[mute].manner = HONEST;
    world_run_whole(&world, joiner, 20 * MINUTE);
}

/* The peer sends the first chunk of every PULL and never the rest. */
FACT(half_hearted_peer_does_not_hold_up_the_transfer) {
    world_init(&world, 1, 8, 40, 12);
    const uint16_t half = donor_like(HALF_HEART, 40 * MBIT),
                   honest = world_donor(&world, 10 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    world_link(&world, honest, joiner);
    world_run_until(&world, SECOND);
    world_link(&world, half, joiner);
    const uint64_t needed_us = world_bytes(&world) * SECOND / (10 * MBIT);
    world_run_whole(&world, joiner, needed_us + 15 * SECOND);
}

FACT(late_chunks_are_welcome_and_asked_once) {
    world_init(&world, 0, 2, 20, 13);
    const uint16_t donor = world_donor(&world, 2 * MBIT), joiner = world_joiner(&world, MBIT);
    world_link(&world, donor, joiner);
    world_run_until(&world, 20 * SECOND);
    const uint64_t pulls = world.nodes[joiner].pulls_sent;
    world.nodes[donor].free_us += 25 * (uint64_t)SECOND; /* the donor's uplink is busy for 25 s */
    world_run_until(&world, 40 * SECOND);
    assert_true(world_view(&world, joiner).peers[donor].is_silent);
    assert_true(world.nodes[joiner].pulls_sent <= pulls + 2);
    /* The transfer resumes with the first late chunk, not at the next retry of the peer. */
    world_run_whole(&world, joiner, 40 * SECOND);
    assert_int_equal(world.nodes[joiner].chunks_taken, world_chunks(&world));
    assert_int_equal(world.nodes[donor].chunks_sent, world_chunks(&world));
}

/* A slow trickle does not count as silence. Still, a fetcher does not wait an hour for the index if
 * another peer has it. */
FACT(trickling_source_of_the_index_is_left) {
    world_init(&world, 0, 1, 4, 14);
    world.index_bytes = 40 * TW_CHUNK_BYTES_MAX;
    const uint16_t slow = world_donor(&world, TW_CHUNK_BYTES_MAX / 9);
    const uint16_t joiner = world_joiner(&world, MBIT), honest = world_donor(&world, 10 * MBIT);
    world_link(&world, slow, joiner);
    world_run_until(&world, 2 * SECOND);
    world_link(&world, honest, joiner);
    world_run_whole(&world, joiner, 120 * SECOND);
    assert_int_equal(world.nodes[joiner].strikes, 0);
}

FACT(slow_source_is_kept_where_it_is_the_only_one) {
    world_init(&world, 0, 1, 4, 15);
    world.index_bytes = 40 * TW_CHUNK_BYTES_MAX;
    const uint16_t slow = world_donor(&world, TW_CHUNK_BYTES_MAX / 9);
    const uint16_t joiner = world_joiner(&world, MBIT);
    world_link(&world, slow, joiner);
    world_run_whole(&world, joiner, 9 * (40 + 8 + 4) * (uint64_t)SECOND);
    assert_int_equal(world.nodes[slow].chunks_sent, 40 + 3 + 5);
}

/* ---- all faults together --------------------------------------------------------------------- */

static void shake_world(struct tw_rng *rng) {
    const uint16_t a = (uint16_t)tw_rng_below(rng, world.nodes_count);
    const uint16_t b = (uint16_t)tw_rng_below(rng, world.nodes_count);
    struct world_fetcher *node = &world.nodes[a];
    switch (tw_rng_below(rng, 6)) {
    case 0:
        if (a > 2) node->manner = (enum manner)tw_rng_below(rng, 6);
        break;
    case 1:
        if (a != b && world.links[a][b]) world_unlink(&world, a, b);
        break;
    case 2:
    case 3:
        if (a != b && !world.links[a][b]) world_link(&world, a, b);
        break;
    case 4: node->store_us = tw_rng_below(rng, 300 * 1000); break;
    case 5:
        if (a >= 2 && node->knows_files && tw_rng_below(rng, 8) == 0)
            world_lose(&world, a, (uint32_t)tw_rng_below(rng, world.files_count));
        break;
    }
}

/* Nodes 0 and 1 are honest and have everything. Node 2 is honest; the others change their
 * manners at random. In the end all are honest, and each gets everything. */
FACT(every_node_gets_everything_after_random_faults) {
    for (uint64_t seed = 1; seed <= 25; seed++) {
        struct tw_rng rng;
        tw_rng_seed(&rng, seed);
        world_init(&world, 1, 12, 12, seed);
        for (uint32_t i = 0; i < 2; i++) (void)world_donor(&world, 5 * MBIT);
        for (uint32_t i = 2; i < 9; i++) (void)world_joiner(&world, (1 + i) * MBIT);
        for (uint32_t i = 9; i < 12; i++)
            (void)donor_like((enum manner)tw_rng_below(&rng, 6), 10 * MBIT);
        for (uint32_t i = 0; i < 600; i++) {
            world_run_until(&world, world.now_us + tw_rng_below(&rng, SECOND));
            shake_world(&rng);
        }
        for (uint16_t a = 0; a < world.nodes_count; a++) {
            world.nodes[a].manner = HONEST;
            for (uint16_t b = 0; b < a; b++) {
                if (!world.links[a][b]) world_link(&world, a, b);
            }
        }
        /* A node with many strikes is banned for up to 11 hours; the honest nodes never are. */
        for (uint16_t a = 2; a < world.nodes_count; a++) {
            for (uint16_t b = 0; b < 2; b++)
                assert_int_equal(world_view(&world, a).peers[b].banned_until_us, 0);
            world_run_whole(&world, a, 10 * MINUTE);
        }
        world_deinit(&world);
    }
    world_init(&world, 0, 1, 1, 1);
}
