/* fuzz_node.c - arbitrary bytes as the life of one node among peers that send nearly correct
 * messages. No assertion fails, no deadline causes a busy loop, every action can be carried out,
 * rounds only grow, and a position and a vote can be read back.
 *
 * The fuzzer's runtime keeps the contract of sync/node.h: it answers only requests. Peers keep only
 * the contract of tw_message_check(). */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "sync/core/position.h"
#include "sync/node.h"
#include "tests/fuzz/payload_rows.h"
#include "tests/sync/signing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PEERS = 5, STORES_MAX = 64, VERIFIES_MAX = ROWS_MAX, SAME_TIME_TICKS_MAX = 8 };

static struct {
    const uint8_t *data;
    size_t size;
    struct tw_node *node;
    struct tw_node_config config;
    struct tw_node_view view;
    uint64_t now_us;
    uint32_t boot;
    bool is_up[PEERS];
    struct row rows[ROWS_MAX];
    bool worker_up, has_encode, has_reduce, has_judge, has_export;
    uint64_t judged_round;
    bool has_change[TW_FRAGMENTS_MAX]; /* at most one change in progress per fragment */
    struct tw_action changes[TW_FRAGMENTS_MAX];
    uint64_t step;
    uint64_t rounds[TW_FRAGMENTS_MAX];
    struct tw_id digests[TW_FRAGMENTS_MAX];
    struct tw_action encode, reduce, export_; /* requests without an answer yet */

    struct tw_vote vote; /* on disk */
    bool has_vote;
    uint64_t stores[STORES_MAX];
    uint32_t stores_count;
    struct tw_pair_id pair;  /* newest exchange of either side */
    uint64_t ballot;         /* newest ballot received */
    struct tw_record record; /* newest one seen */
    bool has_close;
} rig;

static uint8_t take(void) {
    if (rig.size == 0) return 0;
    rig.size--;
    return *rig.data++;
}

static bool is_rare(void) {
    return take() % 16 == 15;
}

static struct tw_id name(uint8_t value) {
    return tw_sha256(&value, 1);
}

static struct tw_id peer_id(uint32_t peer) {
    return (struct tw_id){{(uint8_t)(0x20 + 0x20 * peer)}};
}

/* Returns a number near `right`, rarely one far away. */
static uint64_t near(uint64_t right) {
    static const uint64_t far[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63, 1 << 20};
    const uint8_t how = take();
    if (how < 200) return right;
    if (how < 220) return right + 1;
    if (how < 240) return right - 1;
    return far[how % 6];
}

/* ---- actions: can a runtime carry them out? -------------------------------------------------- */

static void put_change(const struct tw_action *action, uint32_t fragment) {
    rig.changes[fragment] = *action;
    rig.has_change[fragment] = true;
}

static void check_apply(const struct tw_action *action) {
    const bool is_solo = action->kind == TW_ACT_SOLO;
    const uint32_t fragment = is_solo ? action->u.solo.fragment : action->u.apply.fragment;
    TW_ASSERT(fragment < rig.config.fragments_count);
    TW_ASSERT(rig.worker_up && !rig.has_change[fragment]);
    TW_ASSERT(rig.config.is_pair || action->u.solo.round % rig.config.fragments_count == fragment);
    for (uint32_t k = 0; !is_solo && k < action->u.apply.parts_count; k++) {
        const struct tw_apply_part *part = &action->u.apply.parts[k];
        TW_ASSERT(part->begin + part->count <= rig.config.fragment_elements[fragment]);
        if (part->mode != TW_APPLY_ABSENT) must_hold(rig.rows, &action->inputs[k]);
    }
    put_change(action, fragment);
}

static void check_pair(const struct tw_action *action) {
    TW_ASSERT(rig.worker_up && rig.config.is_pair);
    if (action->kind == TW_ACT_PAIR_ENCODE) {
        TW_ASSERT(action->u.pair_encode.fragment < rig.config.fragments_count);
        TW_ASSERT(!rig.has_encode);
        rig.encode = *action;
        rig.has_encode = true;
        return;
    }
    TW_ASSERT(action->u.pair_apply.fragment < rig.config.fragments_count);
    TW_ASSERT(!rig.has_change[action->u.pair_apply.fragment]);
    for (unsigned k = 0; k < TW_PAIR_PAYLOADS && !action->u.pair_apply.is_alone; k++) {
        must_hold(rig.rows, &action->inputs[k]);
        must_hold(rig.rows, &action->inputs[TW_PAIR_THEIRS + k]);
    }
    put_change(action, action->u.pair_apply.fragment);
}

static void check_work(const struct tw_action *action) {
    TW_ASSERT(rig.worker_up);
    if (action->kind == TW_ACT_ENCODE) {
        TW_ASSERT(action->u.encode.fragment < rig.config.fragments_count);
        TW_ASSERT(action->u.encode.parts_count > 0);
        rig.encode = *action;
        rig.has_encode = true;
    } else if (action->kind == TW_ACT_JUDGE) {
        TW_ASSERT(action->u.judge.parts_count <= TW_PARTS_MAX);
        for (uint32_t k = 0; k < action->u.judge.parts_count; k++) {
            if (action->u.judge.parts[k].count > 0) must_hold(rig.rows, &action->inputs[k]);
        }
        rig.judged_round = action->u.judge.round;
        rig.has_judge = true;
    } else if (action->kind == TW_ACT_REDUCE) {
        TW_ASSERT(action->u.reduce.inputs_count > 0);
        for (uint32_t i = 0; i < action->u.reduce.inputs_count; i++)
            must_hold(rig.rows, &action->inputs[i]);
        rig.reduce = *action;
        rig.has_reduce = true;
    } else if (action->kind == TW_ACT_EXPORT) {
        TW_ASSERT(action->u.export.fragment < rig.config.fragments_count);
        rig.export_ = *action;
        rig.has_export = true;
    } else {
        TW_ASSERT(action->u.load.fragment < rig.config.fragments_count);
        TW_ASSERT(!rig.has_change[action->u.load.fragment]);
        if (!tw_id_is_zero(&action->inputs[0])) must_hold(rig.rows, &action->inputs[0]);
        put_change(action, action->u.load.fragment);
    }
}

static void check_payload(const struct tw_action *action) {
    const struct tw_id *hash = &action->u.payload.hash;
    struct row *row = find_row(rig.rows, hash);
    switch ((int)action->kind) {
    case TW_ACT_SEND_CHUNK:
        must_hold(rig.rows, hash);
        TW_ASSERT((uint64_t)action->u.payload.idx * TW_CHUNK_BYTES_MAX < row->bytes);
        break;
    case TW_ACT_EXPECT:
        TW_ASSERT(action->u.payload.bytes > 0);
        TW_ASSERT(action->u.payload.bytes <= TW_PAYLOAD_BYTES_MAX);
        if (row == NULL || row->held != HELD_YES)
            put_row(rig.rows, hash, action->u.payload.bytes, HELD_EXPECTED);
        break;
    case TW_ACT_VERIFY:
        TW_ASSERT(row != NULL);
        if (row->held == HELD_EXPECTED) row->held = HELD_CHECKING;
        break;
    default:
        if (row != NULL) row->held = HELD_NOT;
        break;
    }
}

static void check_message(const struct tw_action *action) {
    const struct tw_message *message = action->u.message;
    struct tw_error err;
    TW_ASSERT(action->peer < PEERS);
    TW_ASSERT(rig.is_up[action->peer]);
    TW_ASSERT(tw_message_check(message, &err) == TW_OK);
    TW_ASSERT(!rig.config.is_pair || message->kind < TW_MSG_JOIN || message->kind > TW_MSG_NACK);
    TW_ASSERT(!rig.config.is_pair || message->kind < TW_MSG_LOCK);
    if (message->kind == TW_MSG_PAIR_REQUEST) rig.pair = message->u.pair_request.pair;
    if (message->kind == TW_MSG_PREPARE) rig.ballot = message->u.prepare.ballot;
    if (message->kind == TW_MSG_PROPOSE) {
        rig.ballot = message->u.propose.ballot;
        rig.record = message->u.propose.record;
        rig.has_close = true;
    }
}

static void act(const struct tw_action *action) {
    switch (action->kind) {
    case TW_ACT_SEND: check_message(action); break;
    case TW_ACT_SEND_CHUNK:
    case TW_ACT_EXPECT:
    case TW_ACT_VERIFY:
    case TW_ACT_DROP: check_payload(action); break;
    case TW_ACT_ENCODE:
    case TW_ACT_REDUCE:
    case TW_ACT_EXPORT:
    case TW_ACT_JUDGE:
    case TW_ACT_LOAD: check_work(action); break;
    case TW_ACT_APPLY:
    case TW_ACT_SOLO: check_apply(action); break;
    case TW_ACT_PAIR_ENCODE:
    case TW_ACT_PAIR_APPLY: check_pair(action); break;
    case TW_ACT_STORE_VOTE:
        TW_ASSERT(rig.stores_count < STORES_MAX);
        rig.stores[rig.stores_count++] = action->u.store.seq;
        rig.vote = *action->u.store.vote;
        rig.has_vote = true;
        break;
    case TW_ACT_CLOSE: TW_ASSERT(action->peer < PEERS); break;
    case TW_ACT_GATHER: TW_NEVER("a run without crews");
    case TW_ACT_CLOCK:
    case TW_ACT_FINISH:
    case TW_ACT_REPORT: break;
    }
}

static void drain(void) {
    static struct tw_action action;
    uint32_t count = 0;
    while (tw_node_next_action(rig.node, &action)) {
        act(&action);
        TW_ASSERT(++count <= TW_ACTIONS_MAX);
    }
}

static void feed(const struct tw_event *event) {
    static struct tw_position before, after;
    tw_node_position(rig.node, &before);
    tw_node_event(rig.node, event, rig.now_us);
    drain();
    tw_node_view(rig.node, &rig.view);
    tw_node_position(rig.node, &after);
    const bool is_same = tw_id_equal(&before.lineage, &after.lineage);
    if (is_same && before.nonce == after.nonce) TW_ASSERT(after.rounds >= before.rounds);
}

/* ---- messages of peers ------------------------------------------------------------------------
 */

static struct tw_id near_lineage(void) {
    const uint8_t how = take();
    return how < 208 ? rig.view.lineage : name((uint8_t)(how % 3));
}

static struct tw_id near_hash(void) {
    const uint8_t how = take();
    if (how < 128) return name((uint8_t)(16 + how % 8));
    return rig.rows[how % 16].hash;
}

static uint32_t near_bytes(void) {
    static const uint32_t sizes[] = {100, 0, 101, 3 * TW_CHUNK_BYTES_MAX, TW_PAYLOAD_BYTES_MAX};
    const uint8_t how = take();
    return sizes[how < 200 ? 0 : how % 5];
}

static void near_roster(struct tw_roster *roster) {
    *roster = rig.view.roster;
    const uint8_t how = take();
    if (how < 128 && roster->count > 0) return;
    roster->number += how & 1;
    roster->count = 0;
    for (uint32_t i = 0; i <= PEERS; i++) { /* any subset of all nodes, including us */
        if ((how >> i & 1) == 0) continue;
        struct tw_member *member = &roster->members[roster->count++];
        *member = (struct tw_member){.id = i < PEERS ? peer_id(i) : rig.config.self};
        const int before = tw_roster_find(&rig.view.roster, &member->id);
        if (before >= 0) *member = rig.view.roster.members[before];
        member->weight = (uint32_t)near(1) & TW_WEIGHT_MAX;
        if (is_rare()) member->lacks_vote = !member->lacks_vote;
    }
}

static void near_contributors(struct tw_contributor *contributors, uint32_t *count) {
    const uint8_t set = take();
    *count = 0;
    for (uint32_t i = 0; i < 8; i++) {
        if ((set >> i & 1) == 0 || (i >= rig.view.roster.count && !is_rare())) continue;
        contributors[*count] = (struct tw_contributor){
            .member_idx = i, .fragment_steps = take(), .tokens = near(100), .root = name(take())};
        contributors[*count].fragment_tokens = 3 * contributors[*count].tokens;
        ++*count;
    }
}

static void near_close(struct tw_record *record) {
    struct tw_position position;
    if (rig.has_close && take() < 64) {
        *record = rig.record;
        return;
    }
    memset(record, 0, sizeof(*record));
    tw_node_position(rig.node, &position);
    record->lineage = near_lineage();
    record->parent = is_rare() ? name(1) : rig.view.tip;
    record->round = near(rig.view.rounds);
    record->fragment = (uint32_t)near(record->round % rig.config.fragments_count);
    record->roster_number = (uint32_t)near(rig.view.roster.number);
    record->clock_tokens = rig.view.clock_tokens;
    if (position.has_tip != 0 && rig.view.clock_tokens >= rig.config.budget_tokens)
        record->finals = (uint32_t)near(position.tip.finals + 1);
    if (rig.view.roster.count > 1 && !is_rare()) {
        uint32_t owners[TW_PARTS_MAX];
        near_contributors(record->contributors, &record->contributors_count);
        record->parts_count = tw_roster_owners(&rig.view.roster, owners);
        for (uint32_t k = 0; k < record->parts_count; k++) {
            struct tw_part *part = &record->parts[k];
            part->owner_idx = (uint32_t)near(owners[k]);
            for (uint32_t i = 0; i < record->contributors_count; i++)
                part->contributors |= UINT64_C(1) << record->contributors[i].member_idx;
            if (part->contributors != 0) part->bytes = near_bytes();
            if (part->bytes == 0) part->contributors = 0;
            if (part->bytes != 0) part->result = near_hash();
        }
    }
    signing_rows(&rig.config.run, &rig.view.roster, &record->lineage, record->round,
                 record->contributors, record->contributors_count);
    record->clock_tokens =
        near(record->clock_tokens +
             tw_record_tokens(record, position.has_tip != 0 ? &position.tip : NULL));
    near_roster(&record->next);
    if (record->next.count == 0) record->next = rig.view.roster;
}

static void near_contrib(struct tw_msg_contrib *contrib) {
    uint32_t owners[TW_PARTS_MAX];
    contrib->lineage = near_lineage();
    contrib->round = near(rig.view.rounds);
    contrib->base = is_rare() ? name(2) : rig.digests[contrib->round % rig.config.fragments_count];
    contrib->tokens = near(100);
    contrib->fragment_tokens = 3 * contrib->tokens;
    contrib->fragment_steps = (uint32_t)near(10);
    contrib->parts_count = (uint32_t)near(tw_roster_owners(&rig.view.roster, owners));
    for (uint32_t k = 0; k < contrib->parts_count && k < TW_PARTS_MAX; k++) {
        contrib->hashes[k] = near_hash();
        contrib->bytes[k] = near_bytes();
    }
}

static uint64_t near_ballot(void) {
    const uint8_t how = take();
    if (how < 64) return 1;
    if (how < 192) return 64 * (uint64_t)(1 + how % 4) + take() % 6;
    return near(rig.ballot);
}

/* Writes a proof in which all members voted for the record. */
static void prove(enum tw_vote_phase phase, uint64_t ballot, const struct tw_record *record,
                  struct tw_proof *proof) {
    struct tw_error err;
    if (tw_record_check(record, &err) != TW_OK) return;
    signing_prove(&rig.config.run, &rig.view.roster, phase, ballot, record, proof);
}

/* Writes a proposal with promises of all members, sometimes one with a lock. */
static void near_propose(struct tw_msg_propose *propose) {
    struct tw_error err;
    propose->ballot = near_ballot();
    near_close(&propose->record);
    if (!is_rare()) signing_shown(&rig.config.run, &rig.view.roster, propose);
    const uint8_t how = take();
    if (how < 64 || tw_record_check(&propose->record, &err) != TW_OK) return;
    const uint64_t lock_ballot = how < 192 ? 0 : near_ballot();
    signing_justify(&rig.config.run, &rig.view.roster, how % PEERS, lock_ballot, propose);
    if (lock_ballot != 0 && propose->promises.voters != 0)
        prove(TW_VOTE_ACCEPT, lock_ballot, &propose->record, &propose->lock);
}

static void near_vote_message(struct tw_message *message) {
    const struct tw_id lineage = near_lineage();
    const uint64_t round = near(rig.view.rounds), ballot = near_ballot();
    struct tw_id signer;
    switch ((int)message->kind) {
    case TW_MSG_PREPARE:
        message->u.prepare = (struct tw_msg_prepare){lineage, round, ballot};
        break;
    case TW_MSG_PROMISE:
        message->u.promise.lineage = lineage;
        message->u.promise.round = round;
        message->u.promise.ballot = ballot;
        if (take() % 2 != 0) {
            near_close(&message->u.promise.locked);
            prove(TW_VOTE_ACCEPT, near_ballot(), &message->u.promise.locked,
                  &message->u.promise.lock);
        }
        signer = peer_id(take() % PEERS);
        signing_promise(&rig.config.run, &rig.view.roster, &signer, &message->u.promise);
        break;
    case TW_MSG_PROPOSE: near_propose(&message->u.propose); break;
    case TW_MSG_LOCK:
        message->u.lock = (struct tw_msg_lock){lineage, round, name(1), {.ballot = ballot}};
        if (!rig.has_close) break;
        message->u.lock.digest = tw_record_digest(&rig.record);
        prove(TW_VOTE_ACCEPT, ballot, &rig.record, &message->u.lock.proof);
        break;
    case TW_MSG_ACCEPT:
        message->u.accept = (struct tw_msg_accept){
            lineage, round, ballot, take() % 2 == 0 ? TW_VOTE_ACCEPT : TW_VOTE_COMMIT,
            name(1), {0}};
        struct tw_error err;
        if (rig.has_close && tw_record_check(&rig.record, &err) == TW_OK)
            message->u.accept.digest = tw_record_digest(&rig.record);
        signer = peer_id(take() % PEERS);
        signing_accept(&rig.config.run, &rig.view.roster, &signer, &message->u.accept);
        break;
    default: message->u.nack = (struct tw_msg_nack){lineage, round, ballot, 0}; break;
    }
}

static void near_state(struct tw_msg_state *state) {
    state->lineage = near_lineage();
    state->fragment = take() % (rig.config.fragments_count + 1);
    state->rounds = near(rig.view.rounds);
    state->bytes = near_bytes();
    state->digest = is_rare() ? name(3) : rig.digests[state->fragment];
    if (state->bytes > 0) state->hash = near_hash();
}

static void near_pair(struct tw_message *message) {
    const uint8_t how = take();
    if (message->kind == TW_MSG_PAIR_REQUEST && how < 224) rig.pair.low++;
    struct tw_pair_id pair = rig.pair;
    if (how >= 240) pair.high = how;
    switch ((int)message->kind) {
    case TW_MSG_PAIR_REQUEST:
        message->u.pair_request.pair = pair;
        message->u.pair_request.fragment = take() % (rig.config.fragments_count + 1);
        message->u.pair_request.wants_whole = how & 1;
        break;
    case TW_MSG_PAIR_ACCEPT:
        message->u.pair_accept = (struct tw_msg_pair_accept){pair, how & 1};
        break;
    case TW_MSG_PAIR_BUSY: message->u.pair_busy.pair = pair; break;
    default:
        message->u.pair_offer = (struct tw_msg_pair_offer){
            .pair = pair,
            .clock_tokens = near(rig.view.clock_tokens),
            .delta_hash = near_hash(),
            .phi_hash = near_hash(),
            .delta_bytes = near_bytes(),
            .phi_bytes = near_bytes(),
        };
        break;
    }
}

static enum tw_message_kind some_kind(void) {
    const uint8_t how = take();
    if (rig.config.is_pair && how >= 96)
        return (enum tw_message_kind)(TW_MSG_PAIR_REQUEST + how % 4);
    if (how == 95) return TW_MSG_LINKS;
    if (how >= 90 && how < 95) return how == 94 ? TW_MSG_EVIDENCE : TW_MSG_LOCK;
    return (enum tw_message_kind)(1 + how % TW_MSG_MISSING);
}

static void near_message(struct tw_message *message) {
    memset(message, 0, sizeof(*message));
    message->kind = some_kind();
    switch (message->kind) {
    case TW_MSG_STATUS:
        message->u.status = (struct tw_msg_status){.state = (enum tw_node_state)(take() % 4),
                                                   .lineage = near_lineage(),
                                                   .tip = rig.view.tip,
                                                   .rounds = near(rig.view.rounds),
                                                   .clock_tokens = near(rig.view.clock_tokens),
                                                   .upload_kib_s = take()};
        break;
    case TW_MSG_PEERS:
    case TW_MSG_PROBE:
    case TW_MSG_RELAY_CALL: break;
    case TW_MSG_PUNCH:
        memcpy(message->u.punch.control, "a:1", 4);
        memcpy(message->u.punch.bulk, "a:2", 4);
        break;
    case TW_MSG_PROBED: memcpy(message->u.probed.addr, "a:1", 4); break;
    case TW_MSG_LINKS:
        message->u.links.direct_count = take() % 4;
        for (uint32_t i = 0; i < message->u.links.direct_count; i++)
            message->u.links.direct[i] = rig.view.roster.members[take() % TW_MEMBERS_MAX].id;
        break;
    case TW_MSG_LEAVE: break;
    case TW_MSG_JOIN:
        message->u.join =
            (struct tw_msg_join){near_lineage(), near(rig.view.rounds), take(), 1, {0}};
        break;
    case TW_MSG_CONTRIB: near_contrib(&message->u.contrib); break;
    case TW_MSG_RESULT:
        message->u.result.lineage = near_lineage();
        message->u.result.round = near(rig.view.rounds);
        message->u.result.part = take() % 4;
        message->u.result.bytes = near_bytes();
        if (message->u.result.bytes == 0) break;
        message->u.result.hash = near_hash();
        near_contributors(message->u.result.contributors, &message->u.result.contributors_count);
        if ((take() & 1) != 0)
            signing_rows(&rig.config.run, &rig.view.roster, &message->u.result.lineage,
                         message->u.result.round, message->u.result.contributors,
                         message->u.result.contributors_count);
        break;
    case TW_MSG_PREPARE:
    case TW_MSG_PROMISE:
    case TW_MSG_PROPOSE:
    case TW_MSG_ACCEPT:
    case TW_MSG_LOCK:
    case TW_MSG_NACK: near_vote_message(message); break;
    case TW_MSG_EVIDENCE:
        signing_denial(&rig.config.run, peer_id(take() % PEERS), &message->u.evidence);
        break;
    case TW_MSG_COMMIT:
        near_close(&message->u.commit.record);
        if ((take() & 3) != 0)
            prove(TW_VOTE_COMMIT, 1, &message->u.commit.record, &message->u.commit.proof);
        break;
    case TW_MSG_LOG_GET:
        message->u.log_get =
            (struct tw_msg_log_get){near_lineage(), near(rig.view.rounds - take())};
        break;
    case TW_MSG_LOG_NONE:
        message->u.log_none = (struct tw_msg_log_none){near_lineage(), near(rig.view.rounds + 2),
                                                       near(rig.view.rounds + 4)};
        break;
    case TW_MSG_STATE_GET:
        message->u.state_get.lineage = near_lineage();
        message->u.state_get.fragment = take() % (rig.config.fragments_count + 1);
        message->u.state_get.digest = rig.digests[message->u.state_get.fragment];
        break;
    case TW_MSG_STATE: near_state(&message->u.state); break;
    case TW_MSG_PULL:
        message->u.pull = (struct tw_msg_pull){near_hash(), take() % 4, 1 + take() % 20};
        break;
    case TW_MSG_MISSING: message->u.missing.hash = near_hash(); break;
    case TW_MSG_ACCUSE:
        message->u.accuse = (struct tw_msg_accuse){.lineage = near_lineage(), .round = take() % 16};
        message->u.accuse.part = take();
        message->u.accuse.trainer = message->u.accuse.part / 4 % 6;
        message->u.accuse.part %= 4;
        break;
    case TW_MSG_PAIR_REQUEST:
    case TW_MSG_PAIR_ACCEPT:
    case TW_MSG_PAIR_BUSY:
    case TW_MSG_PAIR_OFFER: near_pair(message); break;
    case TW_MSG_GATHER:
        message->u.gather = (struct tw_msg_gather){near_lineage(), near(rig.view.rounds)};
        break;
    case TW_MSG_CREW:
        message->u.crew.lineage = near_lineage();
        message->u.crew.head = peer_id(take() % PEERS);
        message->u.crew.round = near(rig.view.rounds);
        message->u.crew.rows_count = 1;
        break;
    case TW_MSG_CREW_GET:
        message->u.crew_get.lineage = near_lineage();
        message->u.crew_get.head = peer_id(take() % PEERS);
        message->u.crew_get.round = near(rig.view.rounds);
        break;
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static void link_change(uint8_t how) {
    const uint16_t peer = how % PEERS;
    struct tw_event event = {.kind = rig.is_up[peer] ? TW_EV_PEER_DOWN : TW_EV_PEER_UP,
                             .peer = peer,
                             .lacks_vote = how >= 0xC0};
    if (!rig.is_up[peer]) event.u.id = peer_id(peer);
    rig.is_up[peer] = !rig.is_up[peer];
    feed(&event);
}

static void hear(uint8_t how) {
    static struct tw_message message;
    struct tw_error err;
    struct tw_event event = {.kind = TW_EV_MESSAGE, .peer = how % PEERS};
    const struct tw_id sender = peer_id(event.peer);
    near_message(&message);
    if (message.kind == TW_MSG_STATUS) { /* a receiver may still have its seat */
        const int seat = tw_roster_find(&rig.view.roster, &sender);
        if (seat >= 0) message.u.status.nonce = rig.view.roster.members[seat].nonce;
    }
    if (!rig.is_up[event.peer] || tw_message_check(&message, &err) != TW_OK) return;
    if ((how & 0x40) == 0) signing_as_sender(&rig.config.run, &rig.view.roster, &sender, &message);
    event.u.message = &message;
    feed(&event);
}

static void hear_status(uint8_t how) {
    static struct tw_message message;
    struct tw_event event = {.kind = TW_EV_MESSAGE, .peer = how % PEERS};
    message.kind = TW_MSG_STATUS;
    message.u.status = (struct tw_msg_status){.state = TW_STATE_MEMBER,
                                              .lineage = rig.view.lineage,
                                              .tokens_per_s = how,
                                              .tip = rig.view.tip,
                                              .rounds = rig.view.rounds,
                                              .clock_tokens = rig.view.clock_tokens};
    if (rig.config.is_pair && how >= 64) { /* every node in its own lineage */
        message.u.status.state = TW_STATE_SOLO;
        message.u.status.lineage = name((uint8_t)(event.peer + 1));
    }
    if (!rig.is_up[event.peer]) return;
    event.u.message = &message;
    feed(&event);
}

static void deliver_chunk(uint8_t how) {
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = how % PEERS};
    if (!rig.is_up[event.peer]) return;
    event.u.chunk.hash = rig.rows[take() % 16].hash;
    event.u.chunk.idx = how / 64;
    feed(&event);
}

static void verify(uint8_t how) {
    struct row *row = &rig.rows[take() % 16];
    struct tw_event event = {.kind = TW_EV_VERIFIED, .ok = how > 32};
    if (row->held != HELD_CHECKING && (row->held != HELD_EXPECTED || event.ok)) return;
    row->held = event.ok ? HELD_YES : HELD_EXPECTED;
    event.u.chunk.hash = row->hash;
    feed(&event);
}

static void forget_work(void) {
    rig.has_encode = rig.has_reduce = rig.has_judge = rig.has_export = false;
    memset(rig.has_change, 0, sizeof(rig.has_change));
}

static void worker_change(uint8_t how) {
    forget_work();
    rig.worker_up = !rig.worker_up || how > 200;
    struct tw_event event = {.kind = rig.worker_up ? TW_EV_WORKER_UP : TW_EV_WORKER_DOWN};
    static struct tw_worker_state state;
    state.step = state.tokens = rig.step;
    if (rig.worker_up) event.u.worker = &state;
    for (uint32_t p = 0; rig.worker_up && p < rig.config.fragments_count; p++) {
        state.fragment_rounds[p] = near(rig.rounds[p]);
        state.fragment_digests[p] = rig.digests[p];
    }
    feed(&event);
}

static void answer_pair_encode(uint8_t how) {
    struct tw_event event = {.kind = TW_EV_ENCODED, .ok = how > 16};
    rig.has_encode = false;
    event.u.encoded.round = rig.encode.u.pair_encode.round;
    event.u.encoded.step = event.u.encoded.tokens = rig.step;
    event.u.encoded.parts_count = TW_PAIR_PAYLOADS;
    for (uint32_t k = 0; event.ok && k < TW_PAIR_PAYLOADS; k++) {
        event.u.encoded.hashes[k] = name((uint8_t)(64 + take() % 32));
        event.u.encoded.bytes[k] = 100;
        put_row(rig.rows, &event.u.encoded.hashes[k], 100, HELD_YES);
    }
    feed(&event);
}

static void answer_encode(uint8_t how) {
    if (!rig.has_encode) return;
    if (rig.encode.kind == TW_ACT_PAIR_ENCODE) {
        answer_pair_encode(how);
        return;
    }
    rig.has_encode = false;
    struct tw_event event = {.kind = TW_EV_ENCODED, .ok = how > 16};
    event.u.encoded.round = rig.encode.u.encode.round;
    event.u.encoded.step = event.u.encoded.tokens = rig.step;
    event.u.encoded.parts_count = rig.encode.u.encode.parts_count;
    for (uint32_t k = 0; event.ok && k < event.u.encoded.parts_count; k++) {
        if (rig.encode.u.encode.parts[k].count == 0) continue;
        event.u.encoded.hashes[k] = name((uint8_t)(64 + take() % 32));
        event.u.encoded.bytes[k] = 100;
        put_row(rig.rows, &event.u.encoded.hashes[k], 100, HELD_YES);
    }
    feed(&event);
}

static void answer_judge(uint8_t how) {
    rig.has_judge = false;
    struct tw_event event = {.kind = TW_EV_JUDGED, .ok = how > 16};
    event.u.judged.round = rig.judged_round;
    event.u.judged.score = (how - 128) * 100;
    event.u.judged.share = 500;
    feed(&event);
}

static void answer_reduce(uint8_t how) {
    if (rig.has_judge) answer_judge(how);
    if (!rig.has_reduce) return;
    rig.has_reduce = false;
    struct tw_event event = {.kind = TW_EV_REDUCED, .ok = how > 16};
    event.u.reduced.round = rig.reduce.u.reduce.round;
    event.u.reduced.part = rig.reduce.u.reduce.part;
    event.u.reduced.hash = name((uint8_t)(96 + take() % 32));
    event.u.reduced.bytes = 100;
    event.u.reduced.refused = how > 200 ? how % 8 : 0;
    if (event.ok) put_row(rig.rows, &event.u.reduced.hash, 100, HELD_YES);
    feed(&event);
}

static void answer_change(uint8_t how) {
    uint32_t fragment = how % rig.config.fragments_count;
    for (uint32_t p = 0; p < rig.config.fragments_count && !rig.has_change[fragment]; p++)
        fragment = p;
    if (!rig.has_change[fragment]) return;
    rig.has_change[fragment] = false;
    struct tw_event event = {.kind = TW_EV_APPLIED, .ok = how > 16};
    const struct tw_action *change = &rig.changes[fragment];
    const bool is_load = change->kind == TW_ACT_LOAD;
    const bool is_pair = change->kind == TW_ACT_PAIR_APPLY;
    const uint64_t round = change->u.solo.round; /* first field of all three requests */
    event.u.applied.fragment = fragment;
    event.u.applied.rounds = is_load ? change->u.load.rounds : round + 1;
    event.u.applied.digest = is_load ? change->u.load.digest : name(how);
    event.u.applied.is_alone = is_pair && how > 200;
    if (event.ok) {
        rig.rounds[fragment] = event.u.applied.rounds;
        rig.digests[fragment] = event.u.applied.digest;
    }
    feed(&event);
}

static void answer_export(uint8_t how) {
    if (!rig.has_export) return;
    rig.has_export = false;
    struct tw_event event = {.kind = TW_EV_EXPORTED, .ok = how > 16};
    const uint32_t fragment = rig.export_.u.export.fragment;
    event.u.exported.fragment = fragment;
    event.u.exported.rounds = rig.rounds[fragment];
    event.u.exported.digest = rig.digests[fragment];
    event.u.exported.hash = name((uint8_t)(128 + how % 16));
    event.u.exported.bytes = 3 * TW_CHUNK_BYTES_MAX;
    if (event.ok) put_row(rig.rows, &event.u.exported.hash, event.u.exported.bytes, HELD_YES);
    feed(&event);
}

static void answer_store(uint8_t how) {
    if (rig.stores_count == 0) return;
    struct tw_event event = {.kind = TW_EV_STORED, .ok = how > 16};
    event.u.store_seq = rig.stores[0];
    memmove(rig.stores, rig.stores + 1, --rig.stores_count * sizeof(rig.stores[0]));
    feed(&event);
}

static void train(uint8_t how) {
    if (!rig.worker_up) return;
    rig.step += how;
    struct tw_event event = {.kind = TW_EV_STEP};
    event.u.step.step = event.u.step.tokens = rig.step;
    feed(&event);
}

static void pass_time(uint8_t how) {
    static const uint64_t spans_us[] = {1000, 100000, 1000000, 7000000, 60000000, 600000000};
    rig.now_us += spans_us[how % 6];
    uint32_t count = 0;
    do {
        feed(&(struct tw_event){.kind = TW_EV_TICK});
        TW_ASSERT(++count < SAME_TIME_TICKS_MAX); /* in a real runtime, this would be a busy loop */
    } while (tw_node_deadline(rig.node) <= rig.now_us);
}

/* kill -9: the node restarts with the state on disk. */
static void restart(uint8_t how) {
    static struct tw_position position, position_read;
    static struct tw_vote vote_read;
    static uint8_t bytes[TW_POSITION_BYTES_MAX];
    struct tw_error err;
    uint32_t fragments_count = 0;
    const uint32_t count = rig.config.fragments_count;
    tw_node_position(rig.node, &position);
    size_t size = tw_position_encode(&position, count, bytes);
    TW_ASSERT(tw_position_decode(bytes, size, &position_read, &fragments_count, &err) == TW_OK);
    if (rig.has_vote) {
        size = tw_vote_encode(&rig.vote, bytes);
        TW_ASSERT(tw_vote_decode(bytes, size, &vote_read, &err) == TW_OK);
    }
    forget_work();
    memset(rig.is_up, 0, sizeof(rig.is_up));
    memset(rig.rows, 0, sizeof(rig.rows));
    rig.worker_up = false;
    rig.stores_count = 0;
    rig.config.boot = ++rig.boot;
    tw_node_init(rig.node, &rig.config, how < 16 ? NULL : &position_read,
                 rig.has_vote && how % 4 != 0 ? &vote_read : NULL, rig.now_us);
    drain();
    tw_node_view(rig.node, &rig.view);
}

static void begin(const uint8_t *data, size_t size) {
    if (rig.node == NULL) rig.node = aligned_alloc(64, (tw_node_bytes() + 63) / 64 * 64);
    TW_ASSERT(rig.node != NULL);
    struct tw_node *node = rig.node;
    memset(&rig, 0, sizeof(rig));
    rig.node = node;
    rig.data = data;
    rig.size = size;
    rig.now_us = 1000000;
    rig.config = (struct tw_node_config){.fragments_count = 1 + take() % 3,
                                         .period_steps = 10,
                                         .overlap_steps = 2,
                                         .quorum = 1,
                                         .grace_us = 2000000,
                                         .members_max = 4,
                                         .weight = 1,
                                         .orphan_us = 120000000};
    const uint8_t how = take();
    rig.config.budget_tokens = (how & 1) != 0 ? 500 : UINT64_MAX;
    rig.config.pace_us = (how & 2) != 0 ? 1000000 : 0;
    rig.config.has_result_codec = (how & 8) != 0;
    rig.config.is_pair = how >= 0xF0;
    rig.config.has_rights = (how & 16) != 0;
    rig.config.jury_millionths = (how & 4) != 0 ? 1000000 : 0;
    rig.config.lacks_vote = (how & 32) != 0;
    if ((how & 64) != 0) rig.config.role = TW_NODE_ROLE_REDUCE;
    rig.config.step_tokens = 1;
    for (uint32_t p = 0; p < rig.config.fragments_count; p++)
        rig.config.fragment_elements[p] = (how & 4) != 0 ? TW_PART_ALIGN : 65536;
    rig.config.self = (struct tw_id){{0xF0}}; /* larger than the ids of all peers */
    rig.config.signing = signing_as(&rig.config.self);
    tw_node_init(rig.node, &rig.config, NULL, NULL, rig.now_us);
    drain();
    tw_node_view(rig.node, &rig.view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const events[])(uint8_t) = {
        pass_time,     link_change,   hear,          hear,         hear,    hear_status,
        deliver_chunk, verify,        worker_change, train,        train,   answer_encode,
        answer_reduce, answer_change, answer_export, answer_store, restart,
    };
    if (size > 4096) return 0;
    begin(data, size);
    while (rig.size > 0) {
        const uint8_t which = take();
        events[which % (sizeof(events) / sizeof(events[0]))](take());
    }
    return 0;
}
