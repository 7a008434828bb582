/* Tests of proto/control.c. */
#include "tests/test.h"

#include "proto/control.h"
#include "tests/proto/sample.h"

enum { SEED = 20290923 };

static struct tw_rng rng;
static struct tw_message sample, back;
static struct tw_error err;
static uint8_t body[TW_CONTROL_BYTES_MAX];
static size_t size;

static const enum tw_message_kind kinds[] = {
#define X(name, value, member) TW_MSG_##name,
    TW_MESSAGE_LIST(X)
#undef X
};
enum { KINDS_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

static int seed(void **state) {
    tw_rng_seed(&rng, SEED);
    return 0;
}

#define FACT(name) TEST_IN(seed, NULL, name)

static void draw(enum tw_message_kind kind) {
    tw_sample_message(&rng, kind, &sample);
    assert_int_equal(tw_control_encode(&sample, body, sizeof(body), &size, &err), TW_OK);
}

static enum tw_status decode(void) {
    return tw_control_decode((uint16_t)sample.kind, body, size, &back, &err);
}

FACT(every_kind_survives_its_body) {
    for (unsigned trial = 0; trial < 300; trial++) {
        for (unsigned i = 0; i < KINDS_COUNT; i++) {
            draw(kinds[i]);
            assert_int_equal(decode(), TW_OK);
            assert_memory_equal(&sample, &back, sizeof(sample));
        }
    }
}

FACT(the_wait_of_a_node_is_told_and_old_bytes_stay) {
    draw(TW_MSG_STATUS);
    const size_t before = size;
    sample.u.status.waits = TW_WAIT_ROOM;
    assert_int_equal(tw_control_encode(&sample, body, sizeof(body), &size, &err), TW_OK);
    assert_true(size > before); /* a node that waits for nothing sends no field */
    assert_int_equal(decode(), TW_OK);
    assert_int_equal(back.u.status.waits, TW_WAIT_ROOM);
    sample.u.status.waits = 77; /* of a later program */
    assert_int_equal(tw_control_encode(&sample, body, sizeof(body), &size, &err), TW_OK);
    assert_int_equal(decode(), TW_OK);
}

FACT(every_prefix_is_handled_and_room_is_respected) {
    for (unsigned i = 0; i < KINDS_COUNT; i++) {
        draw(kinds[i]);
        const size_t whole = size;
        size_t used;
        if (whole > 0)
            assert_int_equal(tw_control_encode(&sample, body, whole - 1, &used, &err), TW_LIMIT);
        assert_int_equal(tw_control_encode(&sample, body, whole, &used, &err), TW_OK);
        for (size = 0; size < whole; size++) {
            uint8_t *exact =
                malloc(size + 1); /* exact size, so that a sanitizer reports reads past the end */
            assert_non_null(exact);
            memcpy(exact, body, size);
            (void)tw_control_decode((uint16_t)kinds[i], exact, size, &back, &err);
            free(exact);
        }
    }
}

FACT(unknown_kind_has_its_own_status) {
    assert_int_equal(tw_control_decode(0, body, 0, &back, &err), TW_VERSION);
    assert_int_equal(tw_control_decode(40, body, 0, &back, &err), TW_VERSION);
    assert_int_equal(tw_control_decode(UINT16_MAX, body, 0, &back, &err), TW_VERSION);
}

FACT(unknown_fields_are_ignored) {
    draw(TW_MSG_PREPARE);
    const uint8_t unknown[] = {0xF8, 0x07, 42, 0xFA, 0x07, 3, 'x', 'y', 'z'}; /* field 127, twice */
    memcpy(body + size, unknown, sizeof(unknown));
    size += sizeof(unknown);
    assert_int_equal(decode(), TW_OK);
    assert_memory_equal(&sample, &back, sizeof(sample));
}

FACT(token_of_another_length_is_refused) {
    draw(TW_MSG_RELAY_CALL);
    assert_int_equal(decode(), TW_OK);
    body[size - TW_RELAY_TOKEN_BYTES -
         1]--; /* the length of the token, the last field of the body */
    size--;
    assert_int_equal(decode(), TW_PROTO);
    assert_non_null(strstr(err.message, "token has 15 bytes"));
}

FACT(refused_message_leaves_the_caller_s_untouched) {
    struct tw_message before;
    draw(TW_MSG_RESULT);
    memset(&back, 0xAA, sizeof(back));
    before = back;
    body[size - 1] ^= 1;
    size--;
    assert_int_equal(decode(), TW_PROTO);
    assert_memory_equal(&back, &before, sizeof(back));
}

/* An element of two bytes on the wire needs tens of bytes in memory. */
FACT(memory_is_bounded_by_the_size_of_the_body) {
    for (size_t i = 0; i < sizeof(body); i += 2) {
        body[i] = 0x0A; /* an empty record in PEERS; in STATUS an unknown field */
        body[i + 1] = 0;
    }
    sample.kind = TW_MSG_PEERS;
    size = sizeof(body);
    assert_int_equal(decode(), TW_PROTO);
    for (size = 600; size <= 1000; size += 2) { /* 300 to 500 records of more than 80 bytes */
        assert_int_equal(decode(), TW_PROTO);
        assert_non_null(strstr(err.message, "too many fields"));
    }
    size = sizeof(body);
    for (size_t i = 0; i < sizeof(body); i += 2) body[i] = 0x78; /* unknown varint field 15 */
    assert_int_equal(decode(), TW_PROTO);
    assert_int_equal(tw_control_decode(TW_MSG_PEERS, body, sizeof(body) + 1, &back, &err),
                     TW_PROTO);
}

/* The largest message of each kind with arrays must decode within the memory bound. */
FACT(largest_messages_are_within_the_memory_bound) {
    memset(&sample, 0, sizeof(sample));
    sample.kind = TW_MSG_PEERS;
    sample.u.peers.count = TW_MEMBER_ROWS_PER_MESSAGE;
    for (uint32_t i = 0; i < TW_MEMBER_ROWS_PER_MESSAGE; i++) {
        sample.u.peers.rows[i].id = tw_sample_id(&rng);
        for (uint32_t k = 0; k < TW_ADDRS_MAX; k++)
            memset(sample.u.peers.rows[i].addrs[k], 'a', TW_ADDR_BYTES - 1);
    }
    assert_int_equal(tw_control_encode(&sample, body, sizeof(body), &size, &err), TW_OK);
    assert_int_equal(decode(), TW_OK);
    assert_memory_equal(&sample, &back, sizeof(sample));
    for (uint32_t i = 0; i < TW_MEMBER_ROWS_PER_MESSAGE; i++) { /* shortest wire form */
        memset(sample.u.peers.rows[i].addrs, 0, sizeof(sample.u.peers.rows[i].addrs));
        for (uint32_t k = 0; k < TW_ADDRS_MAX; k++) sample.u.peers.rows[i].addrs[k][0] = 'a';
    }
    assert_int_equal(tw_control_encode(&sample, body, sizeof(body), &size, &err), TW_OK);
    assert_int_equal(decode(), TW_OK);

    memset(&sample, 0, sizeof(sample));
    sample.kind = TW_MSG_RESULT;
    sample.u.result.bytes = 1;
    sample.u.result.hash = tw_sample_id(&rng);
    sample.u.result.contributors_count = TW_MEMBERS_MAX;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) sample.u.result.contributors[i].member_idx = i;
    assert_int_equal(tw_control_encode(&sample, body, sizeof(body), &size, &err), TW_OK);
    assert_int_equal(decode(), TW_OK);

    memset(&sample, 0, sizeof(sample));
    sample.kind = TW_MSG_PROMISE;
    sample.u.promise.lock = (struct tw_proof){.ballot = 1, .voters = UINT64_MAX};
    tw_sample_close_full(&rng, &sample.u.promise.locked);
    sample.u.promise.lineage = sample.u.promise.locked.lineage;
    sample.u.promise.round = sample.u.promise.locked.round;
    assert_int_equal(tw_control_encode(&sample, body, sizeof(body), &size, &err), TW_OK);
    assert_int_equal(decode(), TW_OK);
    assert_memory_equal(&sample, &back, sizeof(sample));
}

FACT(random_damage_never_passes_unchecked) {
    unsigned refused = 0;
    for (unsigned trial = 0; trial < 20000; trial++) {
        draw(kinds[tw_rng_below(&rng, KINDS_COUNT)]);
        if (size == 0) continue;
        for (uint64_t k = tw_rng_below(&rng, 4); k < 4; k++)
            body[tw_rng_below(&rng, size)] ^= (uint8_t)(1 << tw_rng_below(&rng, 8));
        if (decode() != TW_OK) {
            assert_true(err.message[0] != '\0');
            refused++;
        } else {
            assert_int_equal(tw_message_check(&back, &err), TW_OK);
        }
    }
    assert_true(refused > 1000);
}

/* ---- one refusal per rule ------------------------------------------------------------------ */

static enum tw_status decode_bytes(enum tw_message_kind kind, const void *bytes, size_t count) {
    return tw_control_decode((uint16_t)kind, bytes, count, &back, &err);
}

FACT(ids_of_another_length_are_refused) {
    uint8_t missing[2 + 33] = {0x0A, 32};
    assert_int_equal(decode_bytes(TW_MSG_MISSING, missing, 34), TW_OK);
    missing[1] = 31;
    assert_int_equal(decode_bytes(TW_MSG_MISSING, missing, 33), TW_PROTO);
    assert_non_null(strstr(err.message, "hash"));
    missing[1] = 33;
    assert_int_equal(decode_bytes(TW_MSG_MISSING, missing, 35), TW_PROTO);
    assert_int_equal(decode_bytes(TW_MSG_MISSING, missing, 0), TW_PROTO);
    draw(TW_MSG_MISSING);
    sample.u.missing.retry_s = TW_RETRY_S_MAX + 1; /* more than a month */
    assert_int_equal(tw_message_check(&sample, &err), TW_PROTO);
}

FACT(addresses_are_visible_ascii_and_bounded) {
    /* PEERS { records { id: 32 x 1, addrs: "a:1" } } */
    uint8_t peers[256] = {0x0A, 34 + 5, 0x0A, 32};
    memset(peers + 4, 1, 32);
    const uint8_t addrs[] = {0x12, 3, 'a', ':', '1'};
    memcpy(peers + 36, addrs, sizeof(addrs));
    assert_int_equal(decode_bytes(TW_MSG_PEERS, peers, 41), TW_OK);
    assert_string_equal(back.u.peers.rows[0].addrs[0], "a:1");
    const char wrong[] = {'\0', ' ', '\n', '\x7f', (char)0x80};
    for (size_t i = 0; i < sizeof(wrong); i++) {
        peers[39] = (uint8_t)wrong[i];
        assert_int_equal(decode_bytes(TW_MSG_PEERS, peers, 41), TW_PROTO);
    }
    memset(peers + 38, 'a', TW_ADDR_BYTES);
    peers[1] = 34 + 2 + TW_ADDR_BYTES;
    peers[37] = TW_ADDR_BYTES;
    assert_int_equal(decode_bytes(TW_MSG_PEERS, peers, 2u + peers[1]), TW_PROTO);
    peers[1]--;
    peers[37]--;
    assert_int_equal(decode_bytes(TW_MSG_PEERS, peers, 2u + peers[1]), TW_OK);
}

FACT(counts_beyond_the_arrays_are_refused) {
    /* One element more than the arrays hold: records in PEERS, parts in CONTRIB, contributors in
     * RESULT, ids in LINKS. */
    const struct {
        enum tw_message_kind kind;
        uint8_t tag;
        unsigned most;
    } rows[] = {{TW_MSG_PEERS, 0x0A, TW_MEMBER_ROWS_PER_MESSAGE},
                {TW_MSG_CONTRIB, 0x32, TW_PARTS_MAX},
                {TW_MSG_RESULT, 0x32, TW_MEMBERS_MAX},
                {TW_MSG_LINKS, 0x12, TW_PEERS_MAX},
                {TW_MSG_LINKS, 0x1A, TW_PEERS_MAX}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size = 0;
        for (unsigned k = 0; k <= rows[i].most; k++) {
            body[size++] = rows[i].tag;
            body[size++] = 0;
        }
        assert_int_equal(decode_bytes(rows[i].kind, body, size), TW_PROTO);
        assert_non_null(strstr(err.message, "at most"));
    }
}

/* Draws a valid message and spoils it. The check that encode asserts, and that decode ends with,
 * must fail. */
static void spoilt(enum tw_message_kind kind, void (*spoil)(struct tw_message *message)) {
    do tw_sample_message(&rng, kind, &sample);
    while ((kind == TW_MSG_PROMISE && sample.u.promise.lock.ballot == 0) ||
           (kind == TW_MSG_RESULT && sample.u.result.contributors_count < 2) ||
           (kind == TW_MSG_PEERS && sample.u.peers.count == 0) ||
           (kind == TW_MSG_STATE && sample.u.state.bytes == 0));
    assert_int_equal(tw_message_check(&sample, &err), TW_OK);
    spoil(&sample);
    assert_int_equal(tw_message_check(&sample, &err), TW_PROTO);
}

static void state_outside(struct tw_message *m) {
    m->u.status.state = (enum tw_node_state)4;
}
static void role_outside(struct tw_message *m) {
    m->u.status.role = (enum tw_node_role)3;
}
static void reason_outside(struct tw_message *m) {
    m->u.leave.reason = 256;
}
static void too_many_links(struct tw_message *m) {
    m->u.links.relayed_count = TW_PEERS_MAX - m->u.links.direct_count + 1;
}
static void half_a_relay(struct tw_message *m) {
    m->u.links.is_relay = 2;
}
static void nobody(struct tw_message *m) {
    memset(&m->u.peers.rows[0].id, 0, 32);
}
static void gap_in_addresses(struct tw_message *m) {
    m->u.peers.rows[0].addrs[0][0] = '\0';
    m->u.peers.rows[0].addrs[1][0] = 'a';
    m->u.peers.rows[0].addrs[1][1] = '\0';
}
static void no_parts(struct tw_message *m) {
    m->u.contrib.parts_count = 0;
}
static void large_contribution(struct tw_message *m) {
    m->u.contrib.bytes[0] = (uint32_t)TW_PAYLOAD_BYTES_MAX + 1;
}
static void part_outside(struct tw_message *m) {
    m->u.result.part = TW_PARTS_MAX;
}
static void result_without_hash(struct tw_message *m) {
    memset(&m->u.result.hash, 0, 32);
}
static void result_of_nobody(struct tw_message *m) {
    m->u.result.contributors_count = 0;
}
static void contributors_unsorted(struct tw_message *m) {
    m->u.result.contributors[1].member_idx = m->u.result.contributors[0].member_idx;
}
static void refused_contributor(struct tw_message *m) {
    m->u.result.refused |= UINT64_C(1) << m->u.result.contributors[1].member_idx;
}
static void absent_with_a_hash(struct tw_message *m) {
    m->u.result.bytes = 0;
    m->u.result.contributors_count = 0;
}
static void locked_in_another_round(struct tw_message *m) {
    m->u.promise.round++;
}
static void locked_in_another_lineage(struct tw_message *m) {
    m->u.promise.lineage.bytes[0] ^= 1;
}
static void locked_is_unsound(struct tw_message *m) {
    m->u.promise.locked.next.count = 0;
}
static void proposal_is_unsound(struct tw_message *m) {
    m->u.propose.record.next.count = 0;
}
static void lock_without_promises(struct tw_message *m) {
    m->u.propose.lock.ballot = 1;
    m->u.propose.promises.voters = 0;
}
static void accept_that_promises(struct tw_message *m) {
    m->u.accept.phase = TW_VOTE_PROMISE;
}
static void lock_without_proof(struct tw_message *m) {
    m->u.lock.proof.ballot = 0;
}
static void statements_agree(struct tw_message *m) {
    m->u.evidence.phase = TW_VOTE_ACCEPT;
    m->u.evidence.first.lock_ballot = m->u.evidence.second.lock_ballot = 0;
    m->u.evidence.first.digest = m->u.evidence.second.digest = m->u.evidence.author;
}
static void promise_names_a_record(struct tw_message *m) {
    m->u.evidence.phase = TW_VOTE_PROMISE;
    m->u.evidence.first.digest = m->u.evidence.author;
}
static void vote_names_a_lock(struct tw_message *m) {
    m->u.evidence.phase = TW_VOTE_COMMIT;
    m->u.evidence.first.digest = m->u.evidence.author;
    m->u.evidence.second.digest = m->u.evidence.lineage;
    m->u.evidence.first.lock_ballot = 1;
}
static void commit_is_unsound(struct tw_message *m) {
    m->u.commit.record.fragment = TW_FRAGMENTS_MAX;
}
static void asked_fragment_outside(struct tw_message *m) {
    m->u.state_get.fragment = TW_FRAGMENTS_MAX;
}
static void fragment_outside(struct tw_message *m) {
    m->u.state.fragment = TW_FRAGMENTS_MAX;
}
static void state_without_hash(struct tw_message *m) {
    memset(&m->u.state.hash, 0, 32);
}
static void large_state(struct tw_message *m) {
    m->u.state.bytes = (uint32_t)TW_PAYLOAD_BYTES_MAX + 1;
}
static void no_chunks(struct tw_message *m) {
    m->u.pull.count = 0;
}
static void chunks_outside(struct tw_message *m) {
    m->u.pull.count = TW_CHUNKS_MAX - m->u.pull.first + 1;
}
static void first_chunk_outside(struct tw_message *m) {
    m->u.pull.first = UINT32_MAX;
}
static void paired_fragment_outside(struct tw_message *m) {
    m->u.pair_request.fragment = TW_FRAGMENTS_MAX;
}
static void request_neither_whole_nor_not(struct tw_message *m) {
    m->u.pair_request.wants_whole = 2;
}
static void accept_neither_whole_nor_not(struct tw_message *m) {
    m->u.pair_accept.wants_whole = 2;
}
static void offer_of_nothing(struct tw_message *m) {
    m->u.pair_offer.delta_bytes = 0;
}
static void offer_without_phi(struct tw_message *m) {
    m->u.pair_offer.phi_bytes = 0;
}
static void large_offer(struct tw_message *m) {
    m->u.pair_offer.phi_bytes = (uint32_t)TW_PAYLOAD_BYTES_MAX + 1;
}
static void outcome_outside(struct tw_message *m) {
    m->u.probed.outcome = TW_PROBE_OUTCOMES;
}
static void probed_nowhere(struct tw_message *m) {
    m->u.probed.addr[0] = '\0';
}
static void probed_with_a_newline(struct tw_message *m) {
    m->u.probed.addr[0] = '\n';
}
static void call_of_nobody(struct tw_message *m) {
    memset(&m->u.relay_call.from, 0, sizeof(m->u.relay_call.from));
}
static void stage_outside(struct tw_message *m) {
    m->u.punch.stage = TW_PUNCH_STAGES;
}
static void punched_nowhere(struct tw_message *m) {
    m->u.punch.control[0] = '\0';
}
static void punched_by_half(struct tw_message *m) {
    m->u.punch.stage = TW_PUNCH_ASK;
    m->u.punch.bulk[0] = '\0';
}
static void seen_twice(struct tw_message *m) {
    m->u.punch.stage = TW_PUNCH_SEEN;
    memcpy(m->u.punch.bulk, "a:1", 4);
}
static void crew_of_nobody(struct tw_message *m) {
    m->u.crew.rows_count = 0;
}
static void too_large_a_crew(struct tw_message *m) {
    m->u.crew.rows_count = TW_CREW_MAX + 1;
}
static void crew_without_rows(struct tw_message *m) {
    m->u.contrib.crew_count = 2;
    memset(&m->u.contrib.crew_root, 0, sizeof(m->u.contrib.crew_root));
}
static void contribution_of_too_many(struct tw_message *m) {
    m->u.contrib.crew_count = TW_CREW_MAX + 1;
    m->u.contrib.crew_root.bytes[0] = 1;
}
static void no_such_kind(struct tw_message *m) {
    m->kind = (enum tw_message_kind)99;
}

FACT(every_broken_rule_is_refused) {
    spoilt(TW_MSG_STATUS, state_outside);
    spoilt(TW_MSG_STATUS, role_outside);
    spoilt(TW_MSG_LEAVE, reason_outside);
    spoilt(TW_MSG_PEERS, nobody);
    spoilt(TW_MSG_LINKS, too_many_links);
    spoilt(TW_MSG_LINKS, half_a_relay);
    spoilt(TW_MSG_PEERS, gap_in_addresses);
    spoilt(TW_MSG_CONTRIB, no_parts);
    spoilt(TW_MSG_CONTRIB, large_contribution);
    spoilt(TW_MSG_CONTRIB, crew_without_rows);
    spoilt(TW_MSG_CONTRIB, contribution_of_too_many);
    spoilt(TW_MSG_CREW, crew_of_nobody);
    spoilt(TW_MSG_CREW, too_large_a_crew);
    spoilt(TW_MSG_RESULT, part_outside);
    spoilt(TW_MSG_RESULT, result_without_hash);
    spoilt(TW_MSG_RESULT, result_of_nobody);
    spoilt(TW_MSG_RESULT, refused_contributor);
    spoilt(TW_MSG_RESULT, contributors_unsorted);
    spoilt(TW_MSG_RESULT, absent_with_a_hash);
    spoilt(TW_MSG_PROMISE, locked_in_another_round);
    spoilt(TW_MSG_PROMISE, locked_in_another_lineage);
    spoilt(TW_MSG_PROMISE, locked_is_unsound);
    spoilt(TW_MSG_PROPOSE, proposal_is_unsound);
    spoilt(TW_MSG_PROPOSE, lock_without_promises);
    spoilt(TW_MSG_ACCEPT, accept_that_promises);
    spoilt(TW_MSG_LOCK, lock_without_proof);
    spoilt(TW_MSG_EVIDENCE, statements_agree);
    spoilt(TW_MSG_EVIDENCE, promise_names_a_record);
    spoilt(TW_MSG_EVIDENCE, vote_names_a_lock);
    spoilt(TW_MSG_COMMIT, commit_is_unsound);
    spoilt(TW_MSG_STATE_GET, asked_fragment_outside);
    spoilt(TW_MSG_STATE, fragment_outside);
    spoilt(TW_MSG_STATE, state_without_hash);
    spoilt(TW_MSG_STATE, large_state);
    spoilt(TW_MSG_PULL, no_chunks);
    spoilt(TW_MSG_PULL, chunks_outside);
    spoilt(TW_MSG_PULL, first_chunk_outside);
    spoilt(TW_MSG_PAIR_REQUEST, paired_fragment_outside);
    spoilt(TW_MSG_PAIR_REQUEST, request_neither_whole_nor_not);
    spoilt(TW_MSG_PAIR_ACCEPT, accept_neither_whole_nor_not);
    spoilt(TW_MSG_PAIR_OFFER, offer_of_nothing);
    spoilt(TW_MSG_PAIR_OFFER, offer_without_phi);
    spoilt(TW_MSG_PAIR_OFFER, large_offer);
    spoilt(TW_MSG_RELAY_CALL, call_of_nobody);
    spoilt(TW_MSG_PUNCH, stage_outside);
    spoilt(TW_MSG_PUNCH, punched_nowhere);
    spoilt(TW_MSG_PUNCH, punched_by_half);
    spoilt(TW_MSG_PUNCH, seen_twice);
    spoilt(TW_MSG_PROBED, outcome_outside);
    spoilt(TW_MSG_PROBED, probed_nowhere);
    spoilt(TW_MSG_PROBED, probed_with_a_newline);
    spoilt(TW_MSG_MISSING, no_such_kind);
}

FACT(every_kind_has_a_name) {
    assert_string_equal(tw_message_name(TW_MSG_STATUS), "STATUS");
    assert_string_equal(tw_message_name(TW_MSG_LOG_NONE), "LOG_NONE");
    assert_string_equal(tw_message_name((enum tw_message_kind)99), "?");
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
