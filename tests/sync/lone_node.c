/* lone_node.c - one core in a test, which plays its peers, its worker and its disk. */
#include "tests/sync/lone_node.h"
#include "tests/sync/signing.h"

struct tw_node *node;
uint64_t now_us;
bool is_disk_full, has_rights;
uint32_t voteless_peers;
struct tw_rate download;
struct tw_position start;
struct seen *seen;
uint32_t seen_count;
static bool has_result_codec;
static enum tw_node_role role;
static uint32_t judges_min, self_number;
static struct tw_vote vote, stored;

struct tw_id id_of(uint32_t member) {
    return (struct tw_id){{(uint8_t)(0x11 * (member + 1))}};
}

struct tw_id name_of(const char *text) {
    return tw_sha256(text, strlen(text));
}

static void drain(void) {
    struct tw_action action;
    uint64_t seqs[8];
    uint32_t seqs_count = 0;
    while (tw_node_next_action(node, &action)) {
        assert_true(seen_count < SEEN_MAX);
        seen[seen_count].action = action;
        if (action.kind == TW_ACT_SEND) seen[seen_count].message = *action.u.message;
        seen_count++;
        if (action.kind == TW_ACT_STORE_VOTE && !is_disk_full) stored = *action.u.store.vote;
        if (action.kind == TW_ACT_STORE_VOTE) seqs[seqs_count++] = action.u.store.seq;
    }
    for (uint32_t i = 0; i < seqs_count; i++) {
        struct tw_event event = {.kind = TW_EV_STORED, .ok = !is_disk_full};
        event.u.store_seq = seqs[i];
        feed(&event);
    }
}

void feed(const struct tw_event *event) {
    tw_node_event(node, event, now_us);
    drain();
}

static const struct tw_id run = {{0}};

/* Adds the signatures of the members that a record lists, and the promises behind a proposal. */
static void prove_propose(const struct tw_roster *roster, struct tw_msg_propose *propose) {
    struct tw_record *record = &propose->record;
    signing_rows(&run, roster, &record->lineage, record->round, record->contributors,
                 record->contributors_count);
    signing_shown(&run, roster, propose);
    if (propose->ballot > 1 && propose->promises.voters == 0)
        signing_justify(&run, roster, 0, 0, propose);
}

/* Adds the proof or signature that an honest peer would send. */
static void sign_as(uint16_t peer, struct tw_message *message) {
    const struct tw_id signer = id_of(peer);
    const struct tw_roster roster = view_now().roster;
    struct tw_msg_result *result = &message->u.result;
    struct tw_msg_commit *commit = &message->u.commit;
    switch ((int)message->kind) {
    case TW_MSG_CONTRIB:
    case TW_MSG_JOIN: signing_as_sender(&run, &roster, &signer, message); break;
    case TW_MSG_RESULT:
        signing_rows(&run, &roster, &result->lineage, result->round, result->contributors,
                     result->contributors_count);
        signing_as_sender(&run, &roster, &signer, message);
        break;
    case TW_MSG_PROPOSE: prove_propose(&roster, &message->u.propose); break;
    case TW_MSG_PROMISE: signing_promise(&run, &roster, &signer, &message->u.promise); break;
    case TW_MSG_ACCEPT: signing_accept(&run, &roster, &signer, &message->u.accept); break;
    case TW_MSG_COMMIT:
        if (commit->proof.ballot == 0)
            signing_prove(&run, &roster, TW_VOTE_COMMIT, 1, &commit->record, &commit->proof);
        break;
    default: break;
    }
}

void say(uint16_t peer, const struct tw_message *message) {
    struct tw_message signed_message = *message;
    struct tw_error err;
    if (tw_message_check(message, &err) == TW_OK) sign_as(peer, &signed_message);
    say_unsigned(peer, &signed_message);
}

void say_unsigned(uint16_t peer, const struct tw_message *message) {
    struct tw_error err;
    assert_int_equal(tw_message_check(message, &err),
                     TW_OK); /* the check of each received message */
    struct tw_event event = {.kind = TW_EV_MESSAGE, .peer = peer};
    event.u.message = message;
    feed(&event);
}

struct tw_message *message_of(enum tw_message_kind kind) {
    static struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = kind;
    return &message;
}

void say_status(uint16_t peer, const struct tw_id *lineage, uint64_t rounds,
                uint64_t clock_tokens) {
    struct tw_message *message = message_of(TW_MSG_STATUS);
    message->u.status.state = TW_STATE_MEMBER;
    message->u.status.lineage = *lineage;
    message->u.status.rounds = rounds;
    message->u.status.clock_tokens = clock_tokens;
    message->u.status.nonce = 7 + peer; /* the peer's nonce in the roster */
    say(peer, message);
}

void prove_lineage(uint16_t peer, struct tw_record *tip) {
    const struct tw_message *asked = find_message(TW_MSG_LOG_GET, peer);
    assert_non_null(asked);
    assert_memory_equal(&asked->u.log_get.lineage, &tip->lineage, sizeof(tip->lineage));
    struct tw_id parent = {{0}};
    for (uint64_t round = asked->u.log_get.round; round <= tip->round; round++) {
        struct tw_message *message = message_of(TW_MSG_COMMIT);
        struct tw_msg_commit *commit = &message->u.commit;
        commit->record = *tip;
        commit->record.round = round;
        commit->record.fragment = (uint32_t)(round % FRAGMENTS);
        commit->record.parent = parent;
        commit->record.roster_number = tip->next.number;
        signing_prove(&run, &tip->next, TW_VOTE_COMMIT, 1, &commit->record, &commit->proof);
        parent = tw_record_digest(&commit->record);
        if (round == tip->round) *tip = commit->record;
        say_unsigned(peer, message);
    }
}

void say_and_prove(uint16_t peer, const struct tw_id *lineage, uint64_t rounds,
                   uint64_t clock_tokens) {
    static struct tw_record tip;
    tip = start.tip;
    tip.lineage = *lineage;
    tip.round = rounds - 1;
    tip.clock_tokens = clock_tokens;
    tip.next.count = 1;
    tip.next.members[0].id = id_of(peer);
    say_status(peer, lineage, rounds, clock_tokens);
    prove_lineage(peer, &tip);
}

void link_up(uint16_t peer) {
    struct tw_event event = {
        .kind = TW_EV_PEER_UP, .peer = peer, .lacks_vote = (voteless_peers >> peer & 1) != 0};
    event.u.id = id_of(peer);
    feed(&event);
}

void worker_up(void) {
    struct tw_event event = {.kind = TW_EV_WORKER_UP, .ok = true};
    static struct tw_worker_state state;
    event.u.worker = &state;
    state.step = state.tokens = 1000;
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        state.fragment_rounds[p] = start.fragment_rounds[p];
        state.fragment_digests[p] = start.fragment_digests[p];
    }
    feed(&event);
}

void step_to(uint64_t step) {
    struct tw_event event = {.kind = TW_EV_STEP};
    event.u.step.step = event.u.step.tokens = step;
    feed(&event);
}

void wait_us(uint64_t for_us) {
    const uint64_t end_us = now_us + for_us;
    while (now_us < end_us) {
        now_us += SECONDS(1);
        struct tw_node_view view;
        tw_node_view(node, &view);
        for (uint16_t peer = 1; peer < 12; peer++) {
            if (view.peers[peer].is_up) say_status(peer, &start.lineage, view.rounds, 5000);
        }
        feed(&(struct tw_event){.kind = TW_EV_TICK});
        assert_true(tw_node_deadline(node) > now_us);
    }
}

void forget(void) {
    seen_count = 0;
}

const struct tw_action *find_action(enum tw_action_kind kind) {
    for (uint32_t i = seen_count; i-- > 0;) {
        if (seen[i].action.kind == kind) return &seen[i].action;
    }
    return NULL;
}

const struct tw_message *find_message(enum tw_message_kind kind, uint16_t peer) {
    for (uint32_t i = seen_count; i-- > 0;) {
        if (seen[i].action.kind == TW_ACT_SEND && seen[i].action.peer == peer &&
            seen[i].message.kind == kind)
            return &seen[i].message;
    }
    return NULL;
}

struct tw_node_view view_now(void) {
    struct tw_node_view view;
    tw_node_view(node, &view);
    return view;
}

void assert_follows(const struct tw_id *lineage) {
    const struct tw_node_view view = view_now();
    assert_memory_equal(&view.lineage, lineage, sizeof(*lineage));
}

struct tw_record empty_close(const struct tw_record *parent) {
    struct tw_record record = *parent;
    record.parent = tw_record_digest(parent);
    record.round = parent->round + 1;
    record.fragment = (uint32_t)(record.round % FRAGMENTS);
    record.contributors_count = record.parts_count = 0;
    record.roster_number = parent->next.number;
    return record;
}

/* Payload limits large enough for the sizes that the tests invent. */
static uint64_t bytes_max(const void *entries, enum tw_content content, uint64_t elements) {
    return content == TW_CONTENT_OPAQUE ? OPAQUE_MAX : CODED_MAX;
}

static void start_node(void) {
    struct tw_node_config config = {.fragments_count = FRAGMENTS,
                                    .period_steps = 10,
                                    .quorum = 1,
                                    .grace_us = SECONDS(2),
                                    .budget_tokens = UINT64_C(1) << 40,
                                    .members_max = 12,
                                    .has_result_codec = has_result_codec,
                                    .role = role,
                                    .has_rights = has_rights,
                                    .weight = 1,
                                    .judges_min = judges_min,
                                    .orphan_us = SECONDS(120)};
    for (uint32_t p = 0; p < FRAGMENTS; p++) config.fragment_elements[p] = 65536;
    static struct tw_id self;
    config.self = self = id_of(self_number);
    config.signing = signing_as(&self);
    config.seed = 1;
    config.download = &download;
    config.sizes.bytes_max = bytes_max;
    tw_node_init(node, &config, &start, &vote, now_us);
    drain();
}

void start_again(void) {
    seen_count = 0;
    start_node();
    for (uint16_t peer = 1; peer <= 2; peer++) {
        link_up(peer);
        say_status(peer, &start.lineage, start.rounds, start.tip.clock_tokens);
    }
}

void start_with_vote(void) {
    vote = stored;
    start_again();
}

void start_as(uint32_t member) {
    self_number = member;
    seen_count = 0;
    start.nonce = vote.nonce = start.tip.next.members[member].nonce;
    start_node();
    for (uint16_t peer = 0; peer <= 2; peer++) {
        if (peer == member) continue;
        link_up(peer);
        say_status(peer, &start.lineage, start.rounds, start.tip.clock_tokens);
    }
}

int set_up(void **state) {
    now_us = SECONDS(1000);
    self_number = 0;
    is_disk_full = false;
    tw_rate_init(&download, 0, 0, now_us);
    memset(&start, 0, sizeof(start));
    memset(&vote, 0, sizeof(vote));
    start.lineage = name_of("lineage");
    start.nonce = 7;
    start.rounds = ROUNDS;
    start.has_tip = 1;
    struct tw_record *tip = &start.tip;
    tip->lineage = start.lineage;
    tip->round = ROUNDS - 1;
    tip->fragment = (ROUNDS - 1) % FRAGMENTS;
    tip->clock_tokens = 5000;
    tip->next.count = 3;
    for (uint32_t i = 0; i < 3; i++)
        tip->next.members[i] = (struct tw_member){.id = id_of(i), .nonce = 7 + i, .weight = 1};
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        start.fragment_rounds[p] = ROUNDS;
        start.fragment_digests[p] = name_of("phi");
    }
    vote.lineage = start.lineage;
    vote.nonce = start.nonce;
    vote.round = ROUNDS;
    node = aligned_alloc(64, (tw_node_bytes() + 63) / 64 * 64);
    seen = calloc(SEEN_MAX, sizeof(*seen));
    TW_ASSERT(node != NULL && seen != NULL);
    seen_count = 0;
    start_node();
    link_up(1);
    link_up(2);
    wait_us(SECONDS(1));
    assert_int_equal(view_now().state, TW_STATE_MEMBER);
    forget();
    return 0;
}

int set_up_few_judges(void **state) {
    judges_min = TW_JUDGES_MIN;
    const int status = set_up(state);
    judges_min = 0;
    return status;
}

int set_up_follower(void **state) {
    role = TW_NODE_ROLE_FOLLOW;
    const int status = set_up(state);
    role = TW_NODE_ROLE_TRAIN;
    return status;
}

int set_up_two_codecs(void **state) {
    has_result_codec = true;
    const int status = set_up(state);
    has_result_codec = false;
    return status;
}

int tear_down(void **state) {
    free(node);
    free(seen);
    return 0;
}

void contribute_as(uint16_t peer) {
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->lineage = start.lineage;
    contrib->round = ROUNDS;
    contrib->base = start.fragment_digests[ROUNDS % FRAGMENTS];
    contrib->tokens = contrib->fragment_tokens = 100;
    contrib->fragment_steps = 10;
    contrib->parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) {
        contrib->hashes[k] = name_of(peer == 1 ? "one" : "two");
        contrib->hashes[k].bytes[0] = (uint8_t)k;
        contrib->bytes[k] = 100;
    }
    say(peer, message);
}

void encode_ours(void) {
    step_to(1010);
    const struct tw_action *encode = find_action(TW_ACT_ENCODE);
    assert_non_null(encode);
    struct tw_event event = {.kind = TW_EV_ENCODED, .ok = true};
    event.u.encoded.round = ROUNDS;
    event.u.encoded.step = event.u.encoded.tokens = 1010;
    event.u.encoded.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) {
        event.u.encoded.hashes[k] = name_of(k == 0 ? "a" : k == 1 ? "b" : "c");
        event.u.encoded.bytes[k] = 100 + k;
    }
    feed(&event);
}

void say_result(const struct tw_id *hash, uint32_t bytes) {
    say_result_of(1, hash, bytes);
}

void say_result_of(uint32_t member, const struct tw_id *hash, uint32_t bytes) {
    const struct tw_contributor by = {.member_idx = member, .root = name_of("root")};
    say_result_by(&by, hash, bytes);
}

void say_result_of_row(const struct tw_contributor *row) {
    const struct tw_id owner = id_of(1);
    const struct tw_roster roster = view_now().roster;
    struct tw_message *message = message_of(TW_MSG_RESULT);
    message->u.result = (struct tw_msg_result){.lineage = start.lineage,
                                               .round = ROUNDS,
                                               .part = 1,
                                               .bytes = 90,
                                               .hash = name_of("result"),
                                               .contributors_count = 1,
                                               .contributors = {*row}};
    signing_result(&run, &roster, &owner, &message->u.result);
    say_unsigned(1, message);
}

void say_no_result(uint32_t part) {
    struct tw_message *message = message_of(TW_MSG_RESULT);
    message->u.result =
        (struct tw_msg_result){.lineage = start.lineage, .round = view_now().rounds, .part = part};
    say((uint16_t)part, message);
}

void say_result_by(const struct tw_contributor *by, const struct tw_id *hash, uint32_t bytes) {
    struct tw_message *message = message_of(TW_MSG_RESULT);
    struct tw_msg_result *result = &message->u.result;
    result->lineage = start.lineage;
    result->round = ROUNDS;
    result->part = 1;
    result->bytes = bytes;
    result->hash = *hash;
    result->contributors_count = 1;
    result->contributors[0] = *by;
    say(1, message);
}

uint64_t wait_for_prepare(uint16_t peer, uint32_t seconds) {
    for (uint32_t second = 0; find_message(TW_MSG_PREPARE, peer) == NULL; second++) {
        assert_true(second < seconds);
        wait_us(SECONDS(1));
    }
    return find_message(TW_MSG_PREPARE, peer)->u.prepare.ballot;
}

struct tw_message *promise_with_lock(const struct tw_record *locked, uint64_t lock_ballot,
                                     uint64_t ballot) {
    const struct tw_roster roster = view_now().roster;
    struct tw_message *message = message_of(TW_MSG_PROMISE);
    struct tw_msg_promise *promise = &message->u.promise;
    promise->lineage = start.lineage;
    promise->round = ROUNDS;
    promise->ballot = ballot;
    if (lock_ballot == 0) return message;
    promise->locked = *locked;
    signing_prove(&run, &roster, TW_VOTE_ACCEPT, lock_ballot, locked, &promise->lock);
    return message;
}

struct tw_message *accept_of(const struct tw_record *record, uint64_t ballot,
                             enum tw_vote_phase phase) {
    struct tw_message *message = message_of(TW_MSG_ACCEPT);
    message->u.accept = (struct tw_msg_accept){.lineage = start.lineage,
                                               .round = ROUNDS,
                                               .ballot = ballot,
                                               .phase = phase,
                                               .digest = tw_record_digest(record)};
    return message;
}
