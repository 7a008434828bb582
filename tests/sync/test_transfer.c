/* test_transfer.c - chunks of payloads: asked for once, of several donors, through cuts. */
#include "tests/sync/lone_node.h"

enum { CHUNKS = 40, BYTES = CHUNKS * TW_CHUNK_BYTES_MAX - 5 };

static struct tw_id other, packed, digest;

/* Time passes, and the peers say that they are in the other lineage, at that round. */
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

/* Follows peer 1 and 2, whose lineage is ahead, and hears of 1 what the first fragment is. */
static void follow(void) {
    other = name_of("other");
    packed = name_of("packed");
    digest = name_of("another phi");
    worker_up();
    say_status(1, &other, 50, 9000);
    say_status(2, &other, 50, 9000);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    struct tw_record *record = &message->u.commit.record;
    *record = start.tip;
    record->lineage = other;
    record->round = 49;
    record->fragment = 49 % FRAGMENTS;
    record->clock_tokens = 9000;
    record->next.count = 2;
    record->next.members[0].id = id_of(1);
    record->next.members[1].id = id_of(2);
    record->next.members[1].nonce = record->next.members[0].nonce + 1;
    say(1, message);
    assert_true(find_message(TW_MSG_STATE_GET, 1) != NULL ||
                find_message(TW_MSG_STATE_GET, 2) != NULL);
}

/* Chunks of the payload that the peer was asked for since forget(), and how often in all. */
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

/* The peers answer what they are asked until nothing is asked any more. Returns the chunks. */
static uint32_t serve(uint16_t first, uint16_t last) {
    uint32_t sent = 0;
    for (uint32_t i = 0; i < seen_count; i++) { /* grows as the node asks on */
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

static void cut(uint16_t peer) {
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
}

static void come_back(uint16_t peer) {
    struct tw_event event = {.kind = TW_EV_PEER_UP, .peer = peer};
    event.u.id = id_of(peer);
    feed(&event);
    say_status(peer, &other, 50, 9000);
}

static uint32_t bits(uint64_t set) {
    uint32_t count = 0;
    for (; set != 0; set &= set - 1) count++;
    return count;
}

/* ---- through a cut --------------------------------------------------------------------------- */

static void chunks_before_a_cut_are_not_asked_for_after_it(void **state) {
    (void)state;
    uint32_t before = 0, after = 0;
    follow();
    cut(2);
    say_state(1);
    const uint64_t first = asked_of(1, &before);
    assert_int_equal(first, 0xFF); /* eight ahead while nothing is known of the path */
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    cut(1);
    forget();
    for (uint32_t idx = 5; idx < 8; idx++) assert_false(wants(1, idx));
    pass_us(SECONDS(7), SECONDS(1));
    come_back(1);
    pass_us(SECONDS(3), SECONDS(1));
    assert_int_equal(asked_of(1, &after) & 0x1F, 0); /* not what came */
    assert_int_equal(serve(1, 1), CHUNKS - 5);       /* each of the others once */
    assert_non_null(find_action(TW_ACT_VERIFY));
}

static void rest_of_a_state_comes_from_another_donor(void **state) {
    (void)state;
    uint32_t count = 0;
    follow();
    say_state(1);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    cut(1);
    forget();
    pass_us(SECONDS(4), SECONDS(1));
    const struct tw_message *get = find_message(TW_MSG_STATE_GET, 2);
    assert_non_null(get);
    assert_memory_equal(&get->u.state_get.wanted, &digest, sizeof(digest));
    say_state(2);
    assert_int_equal(asked_of(2, &count) & 0x1F, 0);
    assert_int_equal(serve(2, 2), CHUNKS - 5);
    assert_non_null(find_action(TW_ACT_VERIFY));
}

static void state_whose_rest_nobody_has_is_given_up(void **state) {
    (void)state;
    follow();
    say_state(1);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    cut(1);
    forget();
    pass_us(SECONDS(20), SECONDS(1));
    const struct tw_message *get = find_message(TW_MSG_STATE_GET, 2);
    assert_non_null(get); /* asked for any state in the end */
    assert_true(tw_id_is_zero(&get->u.state_get.wanted));
}

/* Was anybody asked for any state of that fragment, not for the rest of this one? */
static bool has_asked_anew(void) {
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_msg_state_get *get = &seen[i].message.u.state_get;
        if (seen[i].action.kind != TW_ACT_SEND || seen[i].message.kind != TW_MSG_STATE_GET)
            continue;
        if (get->fragment == 0 && tw_id_is_zero(&get->wanted)) return true;
    }
    return false;
}

static void state_of_a_donor_that_dropped_it_is_given_up(void **state) {
    (void)state;
    follow();
    say_state(1);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    for (uint32_t s = 0; s < 30; s++) {
        uint32_t count = 0;
        (void)asked_of(1, &count);
        forget();
        if (count > 0) { /* a second later, in which the node looked around */
            struct tw_message *missing = message_of(TW_MSG_MISSING);
            missing->u.missing.hash = packed;
            say(1, missing);
        }
        pass_us(SECONDS(1), SECONDS(1) / 4);
        if (has_asked_anew()) return;
    }
    fail_msg("it still waits for chunks that nobody has");
}

static void state_of_a_donor_that_fell_silent_is_given_up(void **state) {
    (void)state;
    follow();
    say_state(1);
    for (uint32_t idx = 0; idx < 5; idx++) send_chunk(1, idx);
    forget();
    pass_us(SECONDS(29), SECONDS(1));
    assert_false(has_asked_anew());
    pass_us(SECONDS(61), SECONDS(1));
    assert_true(has_asked_anew());
}

/* ---- from several ---------------------------------------------------------------------------- */

static void state_comes_from_several_donors(void **state) {
    (void)state;
    uint32_t of_one = 0, of_two = 0;
    follow();
    say_state(1);
    const struct tw_message *get = find_message(TW_MSG_STATE_GET, 2);
    assert_non_null(get);
    say_state(2);
    assert_int_equal(serve(1, 2), CHUNKS); /* each chunk once, of whom it was asked */
    const uint64_t one = asked_of(1, &of_one), two = asked_of(2, &of_two);
    assert_int_equal(one & two, 0);
    assert_int_equal(one | two, (UINT64_C(1) << CHUNKS) - 1);
    assert_in_range(bits(one), CHUNKS / 4, CHUNKS * 3 / 4);
    assert_non_null(find_action(TW_ACT_VERIFY));
}

static void wrong_bytes_of_several_are_fetched_from_one(void **state) {
    (void)state;
    uint32_t of_one = 0, of_two = 0;
    follow();
    say_state(1);
    say_state(2);
    (void)serve(1, 2);
    struct tw_event verified = {.kind = TW_EV_VERIFIED, .ok = false};
    verified.u.chunk.hash = packed;
    forget();
    feed(&verified);
    pass_us(SECONDS(1), SECONDS(1));
    assert_int_equal(serve(1, 2), CHUNKS);
    const uint64_t one = asked_of(1, &of_one), two = asked_of(2, &of_two);
    assert_true((one == 0) != (two == 0));
    const uint16_t liar = one != 0 ? 1 : 2;
    forget();
    feed(&verified); /* wrong again: now it is known whose fault it was */
    pass_us(SECONDS(1), SECONDS(1));
    assert_int_equal(serve(1, 2), CHUNKS);
    of_one = 0;
    assert_int_equal(asked_of(liar, &of_one), 0);
}

static void who_does_not_deliver_is_replaced_and_may_still_come(void **state) {
    (void)state;
    uint32_t of_one = 0, of_two = 0;
    follow();
    say_state(1);
    say_state(2);
    const uint64_t slow = asked_of(1, &of_one);
    assert_true(slow != 0);
    (void)serve(2, 2); /* all that it is asked for; 1 sends nothing */
    forget();
    pass_us(SECONDS(9), SECONDS(1));
    assert_true((asked_of(2, &of_two) & slow) != 0);
    uint32_t idx = 0;
    while ((slow >> idx & 1) == 0) idx++;
    assert_true(wants(1, idx)); /* late, and as good */
    send_chunk(1, idx);
    assert_false(wants(2, idx));
}

/* ---- how far ahead --------------------------------------------------------------------------- */

/* Chunks that are asked for and not here, with one source that takes chunk_us for each. */
static uint32_t window_at(uint64_t chunk_us, uint32_t chunks) {
    uint64_t came = 0;
    uint32_t count = 0;
    follow();
    cut(2);
    say_state(1);
    for (uint32_t idx = 0; idx < chunks; idx++) {
        pass_us(chunk_us, chunk_us < SECONDS(1) ? chunk_us : SECONDS(1));
        assert_true(wants(1, idx));
        send_chunk(1, idx);
        came |= UINT64_C(1) << idx;
    }
    return bits(asked_of(1, &count) & ~came);
}

static void slow_path_is_asked_for_two(void **state) {
    (void)state;
    assert_int_equal(window_at(SECONDS(2), 20), 2); /* a megabit per second */
}

static void fast_path_is_asked_for_more(void **state) {
    (void)state;
    /* 175 Mbit/s: 0.2 s of it are 17 chunks. */
    assert_in_range(window_at(12 * 1000, 20), 15, 20);
}

/* The patience it is given follows what it takes, to a limit. */
static void who_is_later_each_time_is_given_up(void **state) {
    (void)state;
    static const uint64_t pauses_s[] = {0, 25, 25, 90, 110, 110};
    uint32_t count = 0;
    follow();
    cut(2);
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

/* A chunk per second, and the donor has all of them ready. */
static void cap_is_kept_by_asking_for_no_more(void **state) {
    (void)state;
    uint32_t count = 0;
    follow();
    cut(2);
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
    tw_rate_set(&download, 0, 0, now_us); /* the cap is lifted while it runs */
    pass_us(SECONDS(1) / 10, SECONDS(1) / 10);
    count = 0;
    (void)asked_of(1, &count);
    assert_in_range(count, 22, CHUNKS);
}

static void node_wakes_when_the_next_chunk_is_paid_for(void **state) {
    (void)state;
    uint32_t count = 0;
    follow();
    cut(2);
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
    /* Nearly four seconds for a chunk, less what the bucket held. */
    assert_in_range(now_us, SECONDS(1002), SECONDS(1006));
}

/* ---- what becomes of theta ------------------------------------------------------------------- */

/* Peer 1 has the very bytes of fragment p that are here, at that round: no chunk has to come. */
static void offer_as_it_is(const struct tw_id *lineage, uint32_t p, uint64_t rounds) {
    now_us += SECONDS(3); /* asked again, if whom it asked said nothing */
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

/* Fragments come one after the other; what is trained becomes theirs all at once. */
static void theta_turns_when_all_of_a_lineage_is_here(void **state) {
    (void)state;
    follow();
    cut(2);
    offer_as_it_is(&other, 0, 50);
    assert_loads(0, TW_LOAD_KEEP);
    answer_load(0, true, 50);
    offer_as_it_is(&other, 1, 50);
    assert_loads(1, TW_LOAD_KEEP);
    answer_load(1, false, ROUNDS); /* nothing was done */
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

/* Nobody is left who has the rest of it: no fragment of that lineage stays. */
static void who_gives_up_half_way_goes_back(void **state) {
    (void)state;
    follow();
    cut(2);
    offer_as_it_is(&other, 0, 50);
    answer_load(0, true, 50);
    cut(1);
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

/* A donor has applied less than we have manifests for: of its state nothing could be made. */
static void state_from_before_the_log_is_not_taken(void **state) {
    (void)state;
    follow();
    cut(2);
    offer_as_it_is(&other, 0, 48);
    assert_null(find_action(TW_ACT_LOAD));
    offer_as_it_is(&other, 0, 50);
    assert_loads(0, TW_LOAD_KEEP);
}

/* The rounds of the lineage it follows are not its own before it has all of it. */
static void who_changes_lineage_in_the_middle_has_shared_nothing(void **state) {
    (void)state;
    follow();
    cut(2);
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
    say_status(1, &other, 60, 20000);
    assert_follows(&other);
    message = message_of(TW_MSG_COMMIT);
    *record = start.tip;
    record->lineage = other;
    record->round = 59;
    record->fragment = 59 % FRAGMENTS;
    record->clock_tokens = 20000;
    say(1, message);
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        offer_as_it_is(&other, p, 60);
        assert_loads(p, TW_LOAD_KEEP);
        forget();
        answer_load(p, true, 60);
    }
    assert_loads(0, TW_LOAD_TURN);
}

/* A fragment was on its way when the process was killed. */
static void restart_keeps_what_is_to_become_of_theta(void **state) {
    (void)state;
    const struct {
        const char *lineage; /* that it was whole in last */
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

/* Of the lineage that it is in, too, what others have may be less. */
static void less_than_is_held_is_not_taken(void **state) {
    (void)state;
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

/* ---- what a donor keeps ---------------------------------------------------------------------- */

static void get_state(uint16_t peer, const struct tw_id *wanted) {
    struct tw_message *message = message_of(TW_MSG_STATE_GET);
    message->u.state_get.lineage = start.lineage;
    message->u.state_get.digest = name_of("nothing");
    if (wanted != NULL) message->u.state_get.wanted = *wanted;
    say(peer, message);
}

static void pack(const char *name, const struct tw_id *of) {
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

static void state_is_kept_for_who_was_cut_off_in_it(void **state) {
    (void)state;
    worker_up();
    get_state(1, NULL);
    assert_non_null(find_action(TW_ACT_EXPORT));
    pack("first", &start.fragment_digests[0]);
    assert_non_null(find_message(TW_MSG_STATE, 1));
    pull_one(1, 0);
    cut(1);
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

static void older_state_is_offered_to_who_is_in_the_middle_of_it(void **state) {
    (void)state;
    worker_up();
    const struct tw_id before = start.fragment_digests[0];
    get_state(1, NULL);
    pack("first", &before);
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

static void state_there_is_no_room_for_is_packed_when_asked_for_again(void **state) {
    (void)state;
    worker_up();
    get_state(1, NULL);
    assert_non_null(find_action(TW_ACT_EXPORT));
    forget();
    feed(&(struct tw_event){.kind = TW_EV_EXPORTED, .ok = false});
    assert_null(find_action(TW_ACT_EXPORT)); /* it would fail as soon, for ever */
    get_state(1, NULL);
    assert_non_null(find_action(TW_ACT_EXPORT));
}

/* phi moves on under each of them, so that it has to be packed again, and all are still wanted. */
static void states_are_kept_in_so_many_bytes(void **state) {
    (void)state;
    static const char *const names[TW_STATES_KEPT] = {"first", "second", "third", "fourth"};
    const struct tw_id past = name_of("phi of before");
    worker_up();
    get_state(1, NULL);
    for (uint32_t k = 0; k < TW_STATES_KEPT; k++) {
        assert_non_null(find_action(TW_ACT_EXPORT));
        forget();
        pack(names[k], &past);
        pull_one(1, 0);
    }
    assert_null(find_action(TW_ACT_EXPORT));
    for (uint32_t k = 0; k < 4; k++) { /* one of them is pulled on: it stays */
        wait_us(SECONDS(7));
        pull_one(1, k);
    }
    assert_null(find_action(TW_ACT_EXPORT));
    wait_us(SECONDS(4)); /* the others are gone */
    assert_non_null(find_action(TW_ACT_EXPORT));
    forget();
    pull_one(1, 7);
    assert_non_null(find_action(TW_ACT_SEND_CHUNK));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(chunks_before_a_cut_are_not_asked_for_after_it),
        TEST(rest_of_a_state_comes_from_another_donor),
        TEST(state_whose_rest_nobody_has_is_given_up),
        TEST(state_of_a_donor_that_dropped_it_is_given_up),
        TEST(state_of_a_donor_that_fell_silent_is_given_up),
        TEST(state_comes_from_several_donors),
        TEST(wrong_bytes_of_several_are_fetched_from_one),
        TEST(who_does_not_deliver_is_replaced_and_may_still_come),
        TEST(slow_path_is_asked_for_two),
        TEST(fast_path_is_asked_for_more),
        TEST(who_is_later_each_time_is_given_up),
        TEST(cap_is_kept_by_asking_for_no_more),
        TEST(node_wakes_when_the_next_chunk_is_paid_for),
        TEST(theta_turns_when_all_of_a_lineage_is_here),
        TEST(who_changes_lineage_in_the_middle_has_shared_nothing),
        TEST(who_gives_up_half_way_goes_back),
        TEST(state_from_before_the_log_is_not_taken),
        TEST(less_than_is_held_is_not_taken),
        TEST(restart_keeps_what_is_to_become_of_theta),
        TEST(state_is_kept_for_who_was_cut_off_in_it),
        TEST(older_state_is_offered_to_who_is_in_the_middle_of_it),
        TEST(state_there_is_no_room_for_is_packed_when_asked_for_again),
        TEST(states_are_kept_in_so_many_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
