/* test_transfer.c - chunks of payloads: each fetched once, from several donors, through broken
 * links. */
#include "tests/sync/lone_node.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

enum { CHUNKS = 40, BYTES = CHUNKS * TW_CHUNK_BYTES_MAX - 5 };

static struct tw_id other, packed, digest;

/* Lets time pass while the linked peers report round 50 of the other lineage. */
static void pass_us(uint64_t for_us, uint64_t tick_us) {
    const uint64_t end_us = now_us + for_us;
    while (now_us < end_us) {
        now_us += tick_us;
        const struct tw_node_view view = view_now();
        for (uint16_t peer = 1; peer <= 2; peer++) {
            if (view.peers[peer].is_up) say_status(peer, &other, 50, 9000);
        }
        feed(&(struct tw_event){.kind = TW_EV_TICK});
    }
}

static void say_state(uint16_t peer) {
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state = (struct tw_msg_state){
        .lineage = other, .rounds = 50, .digest = digest, .hash = packed, .bytes = BYTES};
    say(peer, message);
}

/* Makes the node follow peers 1 and 2, whose lineage is ahead, and ask for its state. */
static void follow_peers(void) {
    other = name_of("other");
    packed = name_of("packed");
    digest = name_of("another phi");
    worker_up();
    say_status(1, &other, 50, 9000);
    say_status(2, &other, 50, 9000);
    struct tw_record record = start.tip;
    record.lineage = other;
    record.round = 49;
    record.clock_tokens = 9000;
    record.next.count = 2;
    record.next.members[0].id = id_of(1);
    record.next.members[1].id = id_of(2);
    record.next.members[1].nonce = record.next.members[0].nonce + 1;
    prove_lineage(1, &record);
    assert_true(find_message(TW_MSG_STATE_GET, 1) != NULL ||
                find_message(TW_MSG_STATE_GET, 2) != NULL);
}

/* Returns the bit set of chunks requested from the peer since forget(). Adds the number of requests
 * to *count. */
static uint64_t asked_of(uint16_t peer, uint32_t *count) {
    uint64_t set = 0;
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_msg_pull *pull = &seen[i].message.u.pull;
        if (seen[i].action.kind != TW_ACT_SEND || seen[i].message.kind != TW_MSG_PULL) continue;
        if (seen[i].action.peer != peer || !tw_id_equal(&pull->hash, &packed)) continue;
        assert_true(pull->first + pull->count <= CHUNKS);
        for (uint32_t k = 0; k < pull->count; k++) set |= UINT64_C(1) << (pull->first + k);
        *count += pull->count;
    }
    return set;
}

static void send_chunk(uint16_t peer, uint32_t idx) {
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = peer};
    event.u.chunk.hash = packed;
    event.u.chunk.idx = idx;
    feed(&event);
}

static bool wants(uint16_t peer, uint32_t idx) {
    return tw_node_wants_chunk(node, peer, &packed, idx);
}

/* Peers `first` to `last` answer PULLs until no more come. Returns the number of chunks sent. */
static uint32_t serve_pulls(uint16_t first, uint16_t last) {
    uint32_t sent = 0;
    for (uint32_t i = 0; i < seen_count; i++) { /* grows while the node asks for more */
        const struct tw_msg_pull pull = seen[i].message.u.pull;
        if (seen[i].action.kind != TW_ACT_SEND || seen[i].message.kind != TW_MSG_PULL) continue;
        if (seen[i].action.peer < first || seen[i].action.peer > last) continue;
        if (!tw_id_equal(&pull.hash, &packed)) continue;
        const uint16_t peer = seen[i].action.peer;
        for (uint32_t k = 0; k < pull.count; k++) {
            now_us += 20 * 1000;
            sent++;
            if (wants(peer, pull.first + k)) send_chunk(peer, pull.first + k);
        }
    }
    return sent;
}

static void cut_link(uint16_t peer) {
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
}

static void relink(uint16_t peer) {
    struct tw_event event = {.kind = TW_EV_PEER_UP, .peer = peer};
    event.u.id = id_of(peer);
    feed(&event);
    say_status(peer, &other, 50, 9000);
}

static uint32_t count_bits(uint64_t set) {
    uint32_t count = 0;
    for (; set != 0; set &= set - 1) count++;
    return count;
}

/* Returns whether any peer was asked for a fresh state of fragment 0, instead of the rest of this
 * one. */
static bool has_asked_anew(void) {
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_msg_state_get *get = &seen[i].message.u.state_get;
        if (seen[i].action.kind != TW_ACT_SEND || seen[i].message.kind != TW_MSG_STATE_GET)
            continue;
        if (get->fragment == 0 && tw_id_is_zero(&get->wanted)) return true;
    }
    return false;
}

static bool has_asked_for_the_rest(uint16_t peer) {
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_msg_state_get *get = &seen[i].message.u.state_get;
        if (seen[i].action.kind == TW_ACT_SEND && seen[i].message.kind == TW_MSG_STATE_GET &&
            seen[i].action.peer == peer && get->fragment == 0 && tw_id_equal(&get->wanted, &digest))
            return true;
    }
    return false;
}

/* ---- through a cut --------------------------------------------------------------------------- */

FACT(chunks_before_a_cut_are_not_asked_for_after_it) {
    uint32_t before = 0, after = 0;
    follow_peers();
    cut_link(2);
    say_state(1);
    assert_int_equal(asked_of(1, &before), 0x3);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    before = 0;
    assert_true((asked_of(1, &before) & 0xE0) != 0);
    cut_link(1);
    forget();
    for (uint32_t idx = 5; idx < 8; idx++) assert_false(wants(1, idx));
    pass_us(SECONDS(7), SECONDS(1));
    relink(1);
    pass_us(SECONDS(3), SECONDS(1));
    assert_int_equal(asked_of(1, &after) & 0x1F,
                     0); /* no chunk that had arrived is requested again */
    assert_int_equal(serve_pulls(1, 1),
                     CHUNKS - 5); /* each of the other chunks is requested once */
    assert_non_null(find_action(TW_ACT_VERIFY));
}

/* All fragments have as many elements, so the first offer tells the size of all. */
FACT(the_view_counts_the_bytes_that_have_arrived) {
    follow_peers();
    cut_link(2);
    struct tw_node_view view = view_now();
    assert_int_equal(view.fetch_bytes, 0); /* no offer yet */
    assert_int_equal(view.fetch_fragments, FRAGMENTS);
    say_state(1);
    view = view_now();
    assert_in_range(view.fetch_bytes, FRAGMENTS * (uint64_t)BYTES - 100000,
                    FRAGMENTS * (uint64_t)BYTES);
    assert_int_equal(view.fetch_bytes_here, 0);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    assert_int_equal(view_now().fetch_bytes_here, 5 * TW_CHUNK_BYTES_MAX);
    cut_link(1); /* they stay, and the size is still known */
    view = view_now();
    assert_int_equal(view.fetch_bytes_here, 5 * TW_CHUNK_BYTES_MAX);
    assert_true(view.fetch_bytes > BYTES);
}

FACT(rest_of_a_state_comes_from_another_donor) {
    uint32_t count = 0;
    follow_peers();
    say_state(1);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    cut_link(1);
    forget();
    pass_us(SECONDS(4), SECONDS(1));
    assert_true(has_asked_for_the_rest(2));
    assert_false(has_asked_anew());
    say_state(2);
    assert_int_equal(asked_of(2, &count) & 0x1F, 0);
    assert_int_equal(serve_pulls(2, 2), CHUNKS - 5);
    assert_non_null(find_action(TW_ACT_VERIFY));
}

FACT(state_whose_rest_nobody_has_is_given_up) {
    follow_peers();
    say_state(1);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    cut_link(1);
    forget();
    pass_us(SECONDS(20), SECONDS(1));
    const struct tw_message *get = find_message(TW_MSG_STATE_GET, 2);
    assert_non_null(get); /* in the end the node asks for any state */
    assert_true(tw_id_is_zero(&get->u.state_get.wanted));
}

/* Its bytes are a fragment's: with a large model they may not stay for the time that a donor keeps
 * a state. */
FACT(loaded_state_is_dropped_at_once) {
    follow_peers();
    cut_link(2);
    say_state(1);
    (void)serve_pulls(1, 1);
    struct tw_event verified = {.kind = TW_EV_VERIFIED, .ok = true};
    verified.u.chunk.hash = packed;
    feed(&verified);
    const struct tw_action *load = find_action(TW_ACT_LOAD);
    assert_non_null(load);
    assert_memory_equal(&load->inputs[0], &packed, sizeof(packed));
    assert_null(find_action(TW_ACT_DROP));
    struct tw_event loaded = {.kind = TW_EV_APPLIED, .ok = true};
    loaded.u.applied.rounds = 50;
    loaded.u.applied.digest = digest;
    feed(&loaded);
    const struct tw_action *drop = find_action(TW_ACT_DROP);
    assert_non_null(drop);
    assert_memory_equal(&drop->u.payload.hash, &packed, sizeof(packed));
}

FACT(state_of_a_donor_that_dropped_it_is_given_up) {
    follow_peers();
    say_state(1);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    for (uint32_t s = 0; s < 8; s++) {
        uint32_t count = 0;
        (void)asked_of(1, &count);
        forget();
        if (count > 0) { /* the donor answers MISSING, up to a second late */
            struct tw_message *missing = message_of(TW_MSG_MISSING);
            missing->u.missing.hash = packed;
            say(1, missing);
        }
        pass_us(SECONDS(1), SECONDS(1) / 4);
        if (has_asked_anew()) return;
    }
    fail_msg("it still waits for chunks that nobody has");
}

FACT(state_of_a_donor_that_fell_silent_is_given_up) {
    follow_peers();
    say_state(1);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    forget();
    pass_us(SECONDS(29), SECONDS(1));
    assert_false(has_asked_anew());
    pass_us(SECONDS(61), SECONDS(1));
    assert_true(has_asked_anew());
}

/* ---- from several donors --------------------------------------------------------------------- */

FACT(state_comes_from_several_donors) {
    uint32_t of_one = 0, of_two = 0;
    follow_peers();
    say_state(1);
    const struct tw_message *get = find_message(TW_MSG_STATE_GET, 2);
    assert_non_null(get);
    say_state(2);
    assert_int_equal(serve_pulls(1, 2), CHUNKS); /* each chunk once */
    const uint64_t one = asked_of(1, &of_one), two = asked_of(2, &of_two);
    assert_int_equal(one & two, 0);
    assert_int_equal(one | two, (UINT64_C(1) << CHUNKS) - 1);
    assert_in_range(count_bits(one), CHUNKS / 4, CHUNKS * 3 / 4);
    assert_non_null(find_action(TW_ACT_VERIFY));
}

FACT(wrong_bytes_from_several_donors_are_fetched_from_one) {
    uint32_t of_one = 0, of_two = 0;
    follow_peers();
    say_state(1);
    say_state(2);
    (void)serve_pulls(1, 2);
    struct tw_event verified = {.kind = TW_EV_VERIFIED, .ok = false};
    verified.u.chunk.hash = packed;
    forget();
    feed(&verified);
    pass_us(SECONDS(1), SECONDS(1));
    assert_int_equal(serve_pulls(1, 2), CHUNKS);
    const uint64_t one = asked_of(1, &of_one), two = asked_of(2, &of_two);
    assert_true((one == 0) != (two == 0));
    const uint16_t liar = one != 0 ? 1 : 2;
    forget();
    feed(&verified); /* wrong a second time: now the liar is known */
    pass_us(SECONDS(1), SECONDS(1));
    assert_int_equal(serve_pulls(1, 2), CHUNKS);
    of_one = 0;
    assert_int_equal(asked_of(liar, &of_one), 0);
}

FACT(slow_donor_is_replaced_and_its_late_chunks_are_taken) {
    uint32_t of_one = 0, of_two = 0;
    follow_peers();
    say_state(1);
    say_state(2);
    const uint64_t slow = asked_of(1, &of_one);
    assert_true(slow != 0);
    (void)serve_pulls(2, 2); /* peer 2 sends all requested chunks, peer 1 none */
    forget();
    pass_us(SECONDS(9), SECONDS(1));
    assert_true((asked_of(2, &of_two) & slow) != 0);
    uint32_t idx = 0;
    while ((slow >> idx & 1) == 0) idx++;
    assert_true(wants(1, idx)); /* a late chunk is still wanted */
    send_chunk(1, idx);
    assert_false(wants(2, idx));
}

/* ---- chunks in flight ------------------------------------------------------------------------ */

/* Returns the number of chunks in flight after `chunks` arrivals from one donor, each taking
 * chunk_us. */
static uint32_t window_at(uint64_t chunk_us, uint32_t chunks) {
    uint64_t came = 0;
    uint32_t count = 0;
    follow_peers();
    cut_link(2);
    say_state(1);
    for (uint32_t idx = 0; idx < chunks; idx++) {
        pass_us(chunk_us, chunk_us < SECONDS(1) ? chunk_us : SECONDS(1));
        assert_true(wants(1, idx));
        send_chunk(1, idx);
        came |= UINT64_C(1) << idx;
    }
    return count_bits(asked_of(1, &count) & ~came);
}

/* Chunks of a slow path would else lie in the donor's queue for longer than it keeps the state. */
FACT(path_of_unknown_speed_is_filled_step_by_step) {
    uint32_t count = 0;
    follow_peers();
    cut_link(2);
    say_state(1);
    assert_int_equal(count_bits(asked_of(1, &count)), 2);
    for (uint32_t idx = 0; idx < 6; idx++) {
        now_us += 1000;
        send_chunk(1, idx);
        count = 0;
        const uint32_t came = idx + 1;
        assert_int_equal(count_bits(asked_of(1, &count)) - came, 2 + came);
    }
}

FACT(slow_path_has_two_chunks_in_flight) {
    assert_int_equal(window_at(SECONDS(2), 20), 2); /* at about 1 Mbit/s */
}

FACT(fast_path_has_more_chunks_in_flight) {
    /* At 175 Mbit/s, 0.2 s are 17 chunks. */
    assert_in_range(window_at(12 * 1000, 20), 15, 20);
}

/* The timeout follows the donor's delays, up to a limit. */
FACT(donor_that_slows_down_is_given_up) {
    static const uint64_t pauses_s[] = {0, 25, 25, 90, 110, 110};
    uint32_t count = 0;
    follow_peers();
    cut_link(2);
    say_state(1);
    for (uint32_t idx = 0; idx < sizeof(pauses_s) / sizeof(pauses_s[0]); idx++) {
        pass_us(SECONDS(pauses_s[idx]), SECONDS(1));
        send_chunk(1, idx);
    }
    forget();
    pass_us(SECONDS(110), SECONDS(1));
    assert_int_equal(asked_of(1, &count), 0);
    pass_us(SECONDS(20), SECONDS(1));
    assert_true(asked_of(1, &count) != 0);
}

/* The cap is one chunk per second. The donor could send all chunks at once. */
FACT(download_cap_limits_the_requests) {
    uint32_t count = 0;
    follow_peers();
    cut_link(2);
    tw_rate_init(&download, TW_CHUNK_BYTES_MAX, 40000, now_us);
    say_state(1);
    const uint64_t began_us = now_us;
    while (now_us < began_us + SECONDS(20)) {
        pass_us(SECONDS(1) / 10, SECONDS(1) / 10);
        count = 0;
        const uint64_t asked = asked_of(1, &count);
        for (uint32_t idx = 0; idx < CHUNKS; idx++) {
            if ((asked >> idx & 1) != 0 && wants(1, idx)) send_chunk(1, idx);
        }
    }
    assert_in_range(count, 19, 21);
    tw_rate_set(&download, 0, 0, now_us); /* the cap is lifted during the transfer */
    pass_us(SECONDS(1) / 10, SECONDS(1) / 10);
    count = 0;
    (void)asked_of(1, &count);
    assert_in_range(count, 22, CHUNKS);
}

FACT(node_wakes_when_the_cap_allows_the_next_chunk) {
    uint32_t count = 0;
    follow_peers();
    cut_link(2);
    tw_rate_init(&download, TW_CHUNK_BYTES_MAX / 4, 40000, now_us);
    say_state(1);
    assert_int_equal(asked_of(1, &count), 1);
    for (uint32_t i = 0; i < 40 && count < 2; i++) {
        now_us = tw_node_deadline(node);
        say_status(1, &other, 50, 9000);
        count = 0;
        (void)asked_of(1, &count);
    }
    assert_int_equal(count, 2);
    /* A chunk takes nearly four seconds, less the bytes left in the bucket. */
    assert_in_range(now_us, SECONDS(1002), SECONDS(1006));
}

/* ---- theta of a receiver --------------------------------------------------------------------- */

/* Peer 1 offers fragment p at this round, with bytes that the node already holds. */
static void offer_as_it_is(const struct tw_id *lineage, uint32_t p, uint64_t rounds) {
    now_us += SECONDS(3); /* long enough to ask again after silence */
    const struct tw_node_view view = view_now();
    say_status(1, lineage, view.peers[1].status.rounds, view.peers[1].status.clock_tokens);
    forget();
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state = (struct tw_msg_state){
        .lineage = *lineage, .fragment = p, .rounds = rounds, .digest = start.fragment_digests[p]};
    say(1, message);
}

static void assert_loads(uint32_t p, enum tw_load_mode mode) {
    const struct tw_action *load = find_action(TW_ACT_LOAD);
    assert_non_null(load);
    assert_int_equal(load->u.load.fragment, p);
    assert_int_equal(load->u.load.mode, mode);
}

static void answer_load(uint32_t p, bool ok, uint64_t rounds) {
    struct tw_event event = {.kind = TW_EV_APPLIED, .ok = ok};
    event.u.applied.fragment = p;
    event.u.applied.rounds = rounds;
    event.u.applied.digest = start.fragment_digests[p];
    feed(&event);
}

static struct tw_position position_now(void) {
    struct tw_position position;
    tw_node_position(node, &position);
    return position;
}

/* Fragments arrive one after the other. theta switches to all of them at once. */
FACT(theta_turns_when_all_fragments_are_here) {
    follow_peers();
    cut_link(2);
    offer_as_it_is(&other, 0, 50);
    assert_loads(0, TW_LOAD_KEEP);
    answer_load(0, true, 50);
    offer_as_it_is(&other, 1, 50);
    assert_loads(1, TW_LOAD_KEEP);
    answer_load(1, false, ROUNDS); /* the worker did not load the state */
    offer_as_it_is(&other, 1, 50);
    assert_loads(1, TW_LOAD_KEEP);
    answer_load(1, true, 50);
    assert_int_equal(position_now().is_moving, 1);
    offer_as_it_is(&other, 2, 50);
    assert_loads(2, TW_LOAD_KEEP);
    forget();
    answer_load(2, true, 50);
    assert_loads(0, TW_LOAD_TURN);
    assert_int_equal(view_now().state, TW_STATE_RECEIVER);
    assert_int_equal(position_now().is_moving, 1);
    assert_null(find_message(TW_MSG_JOIN, 1));
    forget();
    answer_load(0, true, 50);
    assert_int_equal(position_now().is_moving, 0);
    assert_non_null(find_message(TW_MSG_JOIN, 1));
}

/* No linked peer has the rest of the lineage, so the node also drops the fragments that it has
 * received. */
FACT(receiver_that_gives_up_goes_back_to_its_own_state) {
    follow_peers();
    cut_link(2);
    offer_as_it_is(&other, 0, 50);
    answer_load(0, true, 50);
    cut_link(1);
    forget();
    for (uint32_t i = 0; i < 200 && find_action(TW_ACT_LOAD) == NULL; i++) {
        now_us += SECONDS(1);
        feed(&(struct tw_event){.kind = TW_EV_TICK});
    }
    assert_int_equal(view_now().state, TW_STATE_SOLO);
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        assert_int_equal(position_now().is_moving, 1);
        answer_load(p, true, view_now().rounds);
    }
    uint32_t loaded = 0;
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_action *load = &seen[i].action;
        if (load->kind != TW_ACT_LOAD) continue;
        assert_int_equal(load->u.load.mode, TW_LOAD_BACK);
        assert_true(tw_id_is_zero(&load->inputs[0]));
        loaded |= 1u << load->u.load.fragment;
    }
    assert_int_equal(loaded, (1u << FRAGMENTS) - 1);
    assert_int_equal(position_now().is_moving, 0);
    assert_int_equal(view_now().rounds, ROUNDS);
    const struct tw_node_view view = view_now();
    assert_false(tw_id_equal(&view.lineage, &other));
}

/* The donor's state is older than the oldest record in the node's log, so the node could not bring
 * it up to date. */
FACT(state_from_before_the_log_is_not_taken) {
    follow_peers();
    cut_link(2);
    offer_as_it_is(&other, 0, 48);
    assert_null(find_action(TW_ACT_LOAD));
    offer_as_it_is(&other, 0, 50);
    assert_loads(0, TW_LOAD_KEEP);
}

/* A receiver shares no rounds with a lineage before it holds all of that lineage's state. */
FACT(receiver_that_changes_lineage_midway_has_shared_nothing) {
    follow_peers();
    cut_link(2);
    offer_as_it_is(&other, 0, 50);
    answer_load(0, true, 50);
    const struct tw_node_view view = view_now();
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    struct tw_record *record = &message->u.commit.record;
    *record = start.tip;
    record->lineage = other;
    record->parent = view.tip;
    record->round = 50;
    record->fragment = 50 % FRAGMENTS;
    record->clock_tokens = 9000;
    record->parts_count = 2;
    for (uint32_t k = 0; k < 2; k++) record->parts[k] = (struct tw_part){.owner_idx = k};
    record->next.count = 2;
    record->next.members[0].id = id_of(1);
    record->next.members[1].id = id_of(2);
    say(1, message);
    assert_int_equal(view_now().rounds, 51);
    other = name_of("a third");
    now_us += SECONDS(10); /* a claim of the same peer is not checked again at once */
    say_and_prove(1, &other, 60, 20000);
    assert_follows(&other);
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        offer_as_it_is(&other, p, 60);
        assert_loads(p, TW_LOAD_KEEP);
        forget();
        answer_load(p, true, 60);
    }
    assert_loads(0, TW_LOAD_TURN);
}

/* The process is killed during the transfer of a fragment. */
FACT(restart_keeps_the_load_mode_of_theta) {
    const struct {
        const char *lineage; /* the last lineage whose whole state the node held */
        uint32_t parts_count;
        enum tw_load_mode mode;
        bool has_turned;
    } cases[] = {{"lineage", 3, TW_LOAD_SHIFT, false},
                 {"lineage", 0, TW_LOAD_SHIFT, false},
                 {"another", 3, TW_LOAD_KEEP, false},
                 {"another", 0, TW_LOAD_KEEP, true}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        start.fragment_rounds[1] = UINT64_MAX;
        start.has_held = 1;
        start.held = start.tip;
        start.held.lineage = name_of(cases[i].lineage);
        start.held.parts_count = cases[i].parts_count;
        start.is_moving = cases[i].mode == TW_LOAD_KEEP;
        start_again();
        worker_up();
        offer_as_it_is(&start.lineage, 1, ROUNDS);
        assert_loads(1, cases[i].mode);
        forget();
        answer_load(1, true, ROUNDS);
        assert_int_equal(find_action(TW_ACT_LOAD) != NULL, cases[i].has_turned);
        if (cases[i].has_turned) assert_loads(0, TW_LOAD_TURN);
    }
}

/* A peer may offer an older state in the same lineage, too. */
FACT(older_state_than_held_is_not_taken) {
    start.fragment_rounds[1] = UINT64_MAX;
    start.has_held = 1;
    start.held = start.tip;
    start_again();
    worker_up();
    offer_as_it_is(&start.lineage, 1, ROUNDS - FRAGMENTS);
    assert_null(find_action(TW_ACT_LOAD));
    offer_as_it_is(&start.lineage, 1, ROUNDS);
    assert_loads(1, TW_LOAD_SHIFT);
}

/* ---- states that a donor keeps --------------------------------------------------------------- */

static void get_state(uint16_t peer, const struct tw_id *wanted) {
    struct tw_message *message = message_of(TW_MSG_STATE_GET);
    message->u.state_get.lineage = start.lineage;
    message->u.state_get.digest = name_of("nothing");
    if (wanted != NULL) message->u.state_get.wanted = *wanted;
    say(peer, message);
}

static void answer_export(const char *name, const struct tw_id *of) {
    struct tw_event event = {.kind = TW_EV_EXPORTED, .ok = true};
    event.u.exported.digest = *of;
    event.u.exported.hash = packed = name_of(name);
    event.u.exported.bytes = BYTES;
    feed(&event);
}

static void pull_one(uint16_t peer, uint32_t idx) {
    struct tw_message *message = message_of(TW_MSG_PULL);
    message->u.pull = (struct tw_msg_pull){.hash = packed, .first = idx, .count = 1};
    say(peer, message);
}

FACT(state_is_kept_for_a_receiver_that_was_cut_off) {
    worker_up();
    get_state(1, NULL);
    assert_non_null(find_action(TW_ACT_EXPORT));
    answer_export("first", &start.fragment_digests[0]);
    assert_non_null(find_message(TW_MSG_STATE, 1));
    pull_one(1, 0);
    cut_link(1);
    forget();
    wait_us(SECONDS(100));
    assert_null(find_action(TW_ACT_DROP));
    struct tw_event up = {.kind = TW_EV_PEER_UP, .peer = 1};
    up.u.id = id_of(1);
    feed(&up);
    pull_one(1, 7);
    const struct tw_action *chunk = find_action(TW_ACT_SEND_CHUNK);
    assert_non_null(chunk);
    assert_int_equal(chunk->u.payload.idx, 7);
    forget();
    wait_us(SECONDS(40)); /* nobody asks any more */
    assert_non_null(find_action(TW_ACT_DROP));
}

FACT(older_state_is_offered_to_a_receiver_that_has_begun_it) {
    worker_up();
    const struct tw_id before = start.fragment_digests[0];
    get_state(1, NULL);
    answer_export("first", &before);
    pull_one(1, 0);
    struct tw_event applied = {.kind = TW_EV_APPLIED, .ok = true}; /* phi moves on */
    applied.u.applied.rounds = ROUNDS;
    applied.u.applied.digest = name_of("phi of later");
    feed(&applied);
    forget();
    get_state(2, &before);
    const struct tw_message *offer = find_message(TW_MSG_STATE, 2);
    assert_non_null(offer);
    assert_memory_equal(&offer->u.state.hash, &packed, sizeof(packed));
    assert_null(find_action(TW_ACT_EXPORT));
    const struct tw_id unknown = name_of("of somebody else");
    forget();
    get_state(2, &unknown);
    assert_null(find_message(TW_MSG_STATE, 2));
    assert_null(find_action(TW_ACT_EXPORT)); /* not packed for nothing */
}

FACT(failed_export_is_retried_when_asked_again) {
    worker_up();
    get_state(1, NULL);
    assert_non_null(find_action(TW_ACT_EXPORT));
    forget();
    feed(&(struct tw_event){.kind = TW_EV_EXPORTED, .ok = false});
    assert_null(find_action(TW_ACT_EXPORT)); /* if it retried at once, it would fail for ever */
    get_state(1, NULL);
    assert_non_null(find_action(TW_ACT_EXPORT));
}

static void say_receiver(uint16_t peer) {
    struct tw_message *message = message_of(TW_MSG_STATUS);
    message->u.status = (struct tw_msg_status){
        .state = TW_STATE_RECEIVER, .lineage = start.lineage, .rounds = ROUNDS, .nonce = 7 + peer};
    say(peer, message);
}

static void receivers_wait_us(uint16_t last, uint64_t for_us) {
    for (const uint64_t end_us = now_us + for_us; now_us < end_us;) {
        now_us += SECONDS(1);
        for (uint16_t peer = 1; peer <= last; peer++) say_receiver(peer);
        feed(&(struct tw_event){.kind = TW_EV_TICK});
    }
}

/* phi changes after each export, so it is packed again, while all earlier versions are still
 * wanted, each by another peer. */
FACT(number_of_kept_states_is_bounded) {
    static const char *const names[TW_STATES_KEPT] = {"first", "second", "third", "fourth"};
    const struct tw_id past = name_of("phi of before");
    worker_up();
    link_up(3);
    link_up(4);
    get_state(1, NULL);
    for (uint16_t k = 0; k < TW_STATES_KEPT; k++) {
        assert_non_null(find_action(TW_ACT_EXPORT));
        forget();
        answer_export(names[k], &past);
        pull_one((uint16_t)(k + 1), 0);
    }
    for (uint32_t k = 0; k < 4; k++) { /* the version that is still being pulled stays */
        receivers_wait_us(TW_STATES_KEPT, SECONDS(28));
        pull_one(TW_STATES_KEPT, k);
        assert_null(find_action(TW_ACT_EXPORT));
    }
    receivers_wait_us(TW_STATES_KEPT, SECONDS(10)); /* the versions that nobody pulls are dropped */
    assert_non_null(find_action(TW_ACT_EXPORT));
    forget();
    pull_one(TW_STATES_KEPT, 7);
    assert_non_null(find_action(TW_ACT_SEND_CHUNK));
}

/* Other receivers need not wait for the end of the time for which they are kept. */
FACT(states_that_their_receivers_gave_up_or_have_make_room) {
    static const char *const names[TW_STATES_KEPT] = {"first", "second", "third", "fourth"};
    const struct tw_id past = name_of("phi of before");
    worker_up();
    get_state(1, NULL);
    for (uint32_t k = 0; k < TW_STATES_KEPT; k++) {
        assert_non_null(find_action(TW_ACT_EXPORT));
        forget();
        answer_export(names[k], &past);
        pull_one(k < 2 ? 2 : 1, 0);
    }
    assert_non_null(find_action(TW_ACT_EXPORT)); /* both have begun another version */
}

/* The chunks in the queue of a slow line are not dropped, and a receiver does not wait for dropped
 * ones. */
FACT(state_is_kept_for_a_slow_receiver_which_learns_of_its_end) {
    worker_up();
    get_state(1, NULL);
    answer_export("first", &start.fragment_digests[0]);
    pull_one(1, 0);
    forget();
    receivers_wait_us(1, SECONDS(100));
    assert_null(find_action(TW_ACT_DROP));
    receivers_wait_us(1, SECONDS(30));
    assert_non_null(find_action(TW_ACT_DROP));
    const struct tw_message *missing = find_message(TW_MSG_MISSING, 1);
    assert_non_null(missing);
    assert_memory_equal(&missing->u.missing.hash, &packed, sizeof(packed));
}
