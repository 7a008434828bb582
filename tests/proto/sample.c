#include "tests/proto/sample.h"

#include <stdio.h>
#include <string.h>

struct tw_id tw_sample_id(struct tw_rng *rng) {
    struct tw_id id;
    for (unsigned i = 0; i < sizeof(id.bytes); i++) id.bytes[i] = (uint8_t)tw_rng_next(rng);
    id.bytes[31] |= 1;
    return id;
}

static uint32_t draw_u32(struct tw_rng *rng) {
    return (uint32_t)(tw_rng_next(rng) >> tw_rng_below(rng, 64));
}

static uint64_t draw_u64(struct tw_rng *rng) {
    return tw_rng_next(rng) >> tw_rng_below(rng, 64);
}

static uint32_t draw_between(struct tw_rng *rng, uint32_t low, uint32_t high) {
    return low + (uint32_t)tw_rng_below(rng, (uint64_t)high - low + 1);
}

void tw_sample_roster(struct tw_rng *rng, struct tw_roster *roster, uint32_t count) {
    memset(roster, 0, sizeof(*roster));
    roster->number = draw_u32(rng);
    roster->count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct tw_member *member = &roster->members[i];
        member->id = tw_sample_id(rng);
        member->id.bytes[0] = (uint8_t)(i * 2); /* keeps them sorted and distinct */
        member->nonce = draw_u64(rng);
        member->weight = tw_rng_below(rng, 4) == 0 ? 0 : (draw_u32(rng) | 1) & TW_WEIGHT_MAX;
        member->lacks_vote = i > 0 && tw_rng_below(rng, 4) == 0;
    }
}

static void sample_signature(struct tw_rng *rng, uint8_t signature[TW_SIGNATURE_BYTES]) {
    for (unsigned i = 0; i < TW_SIGNATURE_BYTES; i++) signature[i] = (uint8_t)tw_rng_next(rng);
}

/* Draws ascending distinct members, each with probability 1/2. */
static uint32_t sample_contributors(struct tw_rng *rng, uint32_t members_count,
                                    struct tw_contributor contributors[TW_MEMBERS_MAX]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < members_count; i++) {
        if (tw_rng_below(rng, 2) == 0) continue;
        contributors[count++] = (struct tw_contributor){.member_idx = i,
                                                        .fragment_steps = draw_u32(rng),
                                                        .tokens = draw_u64(rng),
                                                        .fragment_tokens = draw_u64(rng),
                                                        .root = tw_sample_id(rng)};
        if (tw_rng_below(rng, 4) != 0) sample_signature(rng, contributors[count - 1].signature);
    }
    return count;
}

void tw_sample_close(struct tw_rng *rng, struct tw_record *record, const struct tw_roster *roster) {
    uint32_t owners[TW_PARTS_MAX];
    uint64_t listed = 0;
    memset(record, 0, sizeof(*record));
    record->lineage = tw_sample_id(rng);
    record->parent = tw_sample_id(rng);
    if (tw_rng_below(rng, 4) != 0) record->base = tw_sample_id(rng);
    record->round = draw_u64(rng);
    record->clock_tokens = draw_u64(rng);
    record->fragment = draw_between(rng, 0, TW_FRAGMENTS_MAX - 1);
    record->finals = draw_u32(rng);
    record->contributors_count = sample_contributors(rng, roster->count, record->contributors);
    for (uint32_t i = 0; i < record->contributors_count; i++)
        listed |= (uint64_t)1 << record->contributors[i].member_idx;
    record->parts_count = tw_roster_owners(roster, owners);
    for (uint32_t k = 0; k < record->parts_count; k++) {
        struct tw_part *part = &record->parts[k];
        part->owner_idx = owners[k];
        part->contributors = listed & tw_rng_next(rng);
        if (part->contributors == 0) continue; /* ABSENT */
        part->bytes = draw_between(rng, 1, TW_PAYLOAD_BYTES_MAX);
        part->result = tw_sample_id(rng);
    }
    tw_sample_roster(rng, &record->next, draw_between(rng, 1, TW_MEMBERS_MAX));
    record->roster_number = roster->number;
    record->next.number = roster->number + (uint32_t)tw_rng_below(rng, 2);
}

void tw_sample_close_full(struct tw_rng *rng, struct tw_record *record) {
    struct tw_roster roster;
    tw_sample_roster(rng, &roster, TW_MEMBERS_MAX);
    tw_sample_close(rng, record, &roster);
    record->contributors_count = TW_MEMBERS_MAX;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        record->contributors[i] = (struct tw_contributor){.member_idx = i,
                                                          .fragment_steps = UINT32_MAX,
                                                          .tokens = UINT64_MAX,
                                                          .fragment_tokens = UINT64_MAX,
                                                          .root = tw_sample_id(rng)};
        sample_signature(rng, record->contributors[i].signature);
    }
    record->parts_count = TW_PARTS_MAX;
    for (uint32_t k = 0; k < TW_PARTS_MAX; k++) {
        record->parts[k] = (struct tw_part){.owner_idx = TW_MEMBERS_MAX - TW_PARTS_MAX + k,
                                            .bytes = TW_PAYLOAD_BYTES_MAX,
                                            .contributors = UINT64_MAX,
                                            .result = tw_sample_id(rng)};
    }
    tw_sample_roster(rng, &record->next, TW_MEMBERS_MAX);
    record->next.number = record->roster_number;
}

static void sample_links(struct tw_rng *rng, struct tw_msg_links *links) {
    links->is_relay = draw_between(rng, 0, 1);
    links->direct_count = draw_between(rng, 0, TW_PEERS_MAX);
    links->relayed_count = draw_between(rng, 0, TW_PEERS_MAX - links->direct_count);
    for (uint32_t i = 0; i < links->direct_count; i++) links->direct[i] = tw_sample_id(rng);
    for (uint32_t i = 0; i < links->relayed_count; i++) links->relayed[i] = tw_sample_id(rng);
}

static void sample_peers(struct tw_rng *rng, struct tw_msg_peers *peers) {
    peers->count = draw_between(rng, 0, TW_MEMBER_ROWS_PER_MESSAGE);
    for (uint32_t i = 0; i < peers->count; i++) {
        const uint32_t addrs_count = draw_between(rng, 0, TW_ADDRS_MAX);
        peers->rows[i].id = tw_sample_id(rng);
        for (uint32_t k = 0; k < addrs_count; k++) {
            const uint32_t size = draw_between(rng, 1, TW_ADDR_BYTES - 1);
            for (uint32_t c = 0; c < size; c++)
                peers->rows[i].addrs[k][c] = (char)draw_between(rng, '!', '~');
        }
    }
}

static void sample_contrib(struct tw_rng *rng, struct tw_msg_contrib *contrib) {
    contrib->lineage = tw_sample_id(rng);
    contrib->round = draw_u64(rng);
    contrib->base = tw_sample_id(rng);
    contrib->tokens = draw_u64(rng);
    contrib->fragment_tokens = draw_u64(rng);
    contrib->fragment_steps = draw_u32(rng);
    contrib->cursor = tw_rng_next(rng) >> 1;
    contrib->parts_count = draw_between(rng, 1, TW_PARTS_MAX);
    for (uint32_t k = 0; k < contrib->parts_count; k++) {
        contrib->hashes[k] = tw_sample_id(rng);
        contrib->bytes[k] = draw_between(rng, 0, TW_PAYLOAD_BYTES_MAX);
    }
    if (tw_rng_below(rng, 4) != 0) sample_signature(rng, contrib->signature);
}

static void sample_result(struct tw_rng *rng, struct tw_msg_result *result) {
    result->lineage = tw_sample_id(rng);
    result->round = draw_u64(rng);
    result->part = draw_between(rng, 0, TW_PARTS_MAX - 1);
    result->contributors_count =
        sample_contributors(rng, draw_between(rng, 0, TW_MEMBERS_MAX), result->contributors);
    if (result->contributors_count == 0) return;
    result->bytes = draw_between(rng, 1, TW_PAYLOAD_BYTES_MAX);
    result->hash = tw_sample_id(rng);
    sample_signature(rng, result->signature);
    result->refused = draw_u64(rng);
    for (uint32_t i = 0; i < result->contributors_count; i++)
        result->refused &= ~(UINT64_C(1) << result->contributors[i].member_idx);
}

static void sample_any_close(struct tw_rng *rng, struct tw_record *record) {
    struct tw_roster roster;
    tw_sample_roster(rng, &roster, draw_between(rng, 1, TW_MEMBERS_MAX));
    tw_sample_close(rng, record, &roster);
}

static void sample_proof(struct tw_rng *rng, struct tw_proof *proof) {
    if (tw_rng_below(rng, 3) == 0) return;
    proof->ballot = draw_u64(rng) | 1;
    proof->voters = (tw_rng_next(rng) & tw_rng_next(rng)) | UINT64_C(1) << tw_rng_below(rng, 64);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if ((proof->voters >> i & 1) != 0) sample_signature(rng, proof->signatures[i]);
    }
}

static void sample_promise(struct tw_rng *rng, struct tw_msg_promise *promise) {
    promise->lineage = tw_sample_id(rng);
    promise->round = draw_u64(rng);
    promise->ballot = draw_u64(rng);
    sample_signature(rng, promise->signature);
    sample_proof(rng, &promise->lock);
    if (promise->lock.ballot == 0) return;
    sample_any_close(rng, &promise->locked);
    promise->lineage = promise->locked.lineage;
    promise->round = promise->locked.round;
}

static void sample_propose(struct tw_rng *rng, struct tw_msg_propose *propose) {
    propose->ballot = draw_u64(rng);
    sample_any_close(rng, &propose->record);
    for (uint32_t k = 0; k < propose->record.parts_count; k++) {
        if (propose->record.parts[k].bytes > 0) sample_signature(rng, propose->results[k]);
    }
    propose->joins_count = draw_between(rng, 0, TW_JOINS_MAX);
    for (uint32_t i = 0; i < propose->joins_count; i++) sample_signature(rng, propose->joins[i]);
    if (tw_rng_below(rng, 3) == 0) return;
    propose->promises.voters = tw_rng_next(rng) | 1;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if ((propose->promises.voters >> i & 1) == 0) continue;
        propose->promises.lock_ballots[i] = draw_u64(rng);
        sample_signature(rng, propose->promises.signatures[i]);
    }
    sample_proof(rng, &propose->lock);
    if (propose->lock.ballot == 0) return;
    memset(propose->results, 0, sizeof(propose->results));
    memset(propose->joins, 0, sizeof(propose->joins));
    propose->joins_count = 0;
}

static void sample_lock(struct tw_rng *rng, struct tw_msg_lock *lock) {
    lock->lineage = tw_sample_id(rng);
    lock->round = draw_u64(rng);
    lock->digest = tw_sample_id(rng);
    while (lock->proof.ballot == 0) sample_proof(rng, &lock->proof);
}

static void sample_evidence(struct tw_rng *rng, struct tw_msg_evidence *evidence) {
    evidence->author = tw_sample_id(rng);
    evidence->lineage = tw_sample_id(rng);
    evidence->nonce = draw_u64(rng);
    evidence->round = draw_u64(rng);
    evidence->ballot = draw_u64(rng);
    evidence->phase = (enum tw_vote_phase)draw_between(rng, 0, 3);
    if (evidence->phase == TW_VOTE_PROMISE) {
        evidence->first.lock_ballot = draw_between(rng, 0, 9);
        evidence->second.lock_ballot = draw_between(rng, 10, 99);
    } else {
        evidence->first.digest = tw_sample_id(rng);
        evidence->second.digest = tw_sample_id(rng);
    }
    sample_signature(rng, evidence->first.signature);
    sample_signature(rng, evidence->second.signature);
}

static void sample_status(struct tw_rng *rng, struct tw_msg_status *status) {
    *status = (struct tw_msg_status){.state = (enum tw_node_state)draw_between(rng, 0, 3),
                                     .lineage = tw_sample_id(rng),
                                     .tip = tw_sample_id(rng),
                                     .rounds = draw_u64(rng),
                                     .clock_tokens = draw_u64(rng),
                                     .step = draw_u64(rng),
                                     .tokens = draw_u64(rng),
                                     .tokens_per_s = draw_u32(rng),
                                     .upload_kib_s = draw_u32(rng),
                                     .boot = draw_u32(rng),
                                     .nonce = draw_u64(rng),
                                     .role = (enum tw_node_role)draw_between(rng, 0, 2),
                                     .origin = draw_u64(rng)};
}

static void sample_state(struct tw_rng *rng, struct tw_msg_state *state) {
    state->lineage = tw_sample_id(rng);
    state->fragment = draw_between(rng, 0, TW_FRAGMENTS_MAX - 1);
    state->rounds = draw_u64(rng);
    state->digest = tw_sample_id(rng);
    if (tw_rng_below(rng, 2) == 0) return;
    state->hash = tw_sample_id(rng);
    state->bytes = draw_between(rng, 1, TW_PAYLOAD_BYTES_MAX);
}

static void sample_crew(struct tw_rng *rng, struct tw_msg_crew *crew) {
    crew->lineage = tw_sample_id(rng);
    crew->head = tw_sample_id(rng);
    crew->round = draw_u64(rng);
    crew->parts_root = tw_sample_id(rng);
    crew->rows_count = draw_between(rng, 1, TW_CREW_MAX);
    for (uint32_t i = 0; i < crew->rows_count; i++)
        crew->rows[i] = (struct tw_crew_row){draw_u64(rng), tw_sample_id(rng)};
}

static void sample_pull(struct tw_rng *rng, struct tw_msg_pull *pull) {
    pull->hash = tw_sample_id(rng);
    pull->first = draw_between(rng, 0, TW_CHUNKS_MAX - 1);
    pull->count = draw_between(rng, 1, TW_CHUNKS_MAX - pull->first);
}

void tw_sample_message(struct tw_rng *rng, enum tw_message_kind kind, struct tw_message *message) {
    memset(message, 0, sizeof(*message));
    message->kind = kind;
    const struct tw_id id = tw_sample_id(rng), other = tw_sample_id(rng);
    const uint64_t a = draw_u64(rng), b = draw_u64(rng);
    const uint32_t fragment = draw_between(rng, 0, TW_FRAGMENTS_MAX - 1);
    switch (kind) {
    case TW_MSG_STATUS: sample_status(rng, &message->u.status); break;
    case TW_MSG_PEERS: sample_peers(rng, &message->u.peers); break;
    case TW_MSG_LINKS: sample_links(rng, &message->u.links); break;
    case TW_MSG_LEAVE: message->u.leave.reason = draw_between(rng, 0, 255); break;
    case TW_MSG_JOIN:
        message->u.join = (struct tw_msg_join){id, a, b, draw_u32(rng), {0}};
        sample_signature(rng, message->u.join.signature);
        break;
    case TW_MSG_CONTRIB: sample_contrib(rng, &message->u.contrib); break;
    case TW_MSG_RESULT: sample_result(rng, &message->u.result); break;
    case TW_MSG_PREPARE: message->u.prepare = (struct tw_msg_prepare){id, a, b}; break;
    case TW_MSG_PROMISE: sample_promise(rng, &message->u.promise); break;
    case TW_MSG_PROPOSE: sample_propose(rng, &message->u.propose); break;
    case TW_MSG_LOCK: sample_lock(rng, &message->u.lock); break;
    case TW_MSG_EVIDENCE: sample_evidence(rng, &message->u.evidence); break;
    case TW_MSG_ACCEPT:
        message->u.accept =
            (struct tw_msg_accept){.lineage = id,
                                   .round = a,
                                   .ballot = b,
                                   .phase = a % 2 == 0 ? TW_VOTE_ACCEPT : TW_VOTE_COMMIT,
                                   .digest = other};
        sample_signature(rng, message->u.accept.signature);
        break;
    case TW_MSG_NACK: message->u.nack = (struct tw_msg_nack){id, a, b, (uint32_t)a & 0xFFFF}; break;
    case TW_MSG_COMMIT:
        sample_any_close(rng, &message->u.commit.record);
        sample_proof(rng, &message->u.commit.proof);
        break;
    case TW_MSG_LOG_GET: message->u.log_get = (struct tw_msg_log_get){id, a}; break;
    case TW_MSG_LOG_NONE: message->u.log_none = (struct tw_msg_log_none){id, a, b}; break;
    case TW_MSG_STATE_GET:
        message->u.state_get.lineage = id;
        message->u.state_get.digest = other;
        message->u.state_get.fragment = fragment;
        break;
    case TW_MSG_STATE: sample_state(rng, &message->u.state); break;
    case TW_MSG_GATHER: message->u.gather = (struct tw_msg_gather){id, a}; break;
    case TW_MSG_CREW: sample_crew(rng, &message->u.crew); break;
    case TW_MSG_CREW_GET: message->u.crew_get = (struct tw_msg_crew_get){id, other, a, id}; break;
    case TW_MSG_PULL: sample_pull(rng, &message->u.pull); break;
    case TW_MSG_MISSING:
        message->u.missing = (struct tw_msg_missing){id, (uint32_t)(a % (TW_RETRY_S_MAX + 1))};
        break;
    case TW_MSG_PAIR_REQUEST:
        message->u.pair_request = (struct tw_msg_pair_request){{a, b}, fragment, (uint32_t)(a & 1)};
        break;
    case TW_MSG_PAIR_ACCEPT:
        message->u.pair_accept = (struct tw_msg_pair_accept){{a, b}, (uint32_t)(b & 1)};
        break;
    case TW_MSG_PAIR_BUSY: message->u.pair_busy.pair = (struct tw_pair_id){a, b}; break;
    case TW_MSG_PROBE: message->u.probe.token = a; break;
    case TW_MSG_PROBED:
        message->u.probed.token = a;
        message->u.probed.outcome = (enum tw_probe_outcome)(b % TW_PROBE_OUTCOMES);
        (void)snprintf(message->u.probed.addr, TW_ADDR_BYTES, "10.0.0.%u:%u", (unsigned)(a % 255),
                       (unsigned)(b % 60000 + 1));
        break;
    case TW_MSG_RELAY_CALL:
        message->u.relay_call.from = id;
        memcpy(message->u.relay_call.token, other.bytes, TW_RELAY_TOKEN_BYTES);
        break;
    case TW_MSG_PUNCH:
        message->u.punch.stage = (enum tw_punch_stage)(b % TW_PUNCH_STAGES);
        message->u.punch.token = a;
        (void)snprintf(message->u.punch.control, TW_ADDR_BYTES, "10.0.0.%u:%u", (unsigned)(a % 255),
                       (unsigned)(b % 60000 + 1));
        if (message->u.punch.stage != TW_PUNCH_SEEN)
            (void)snprintf(message->u.punch.bulk, TW_ADDR_BYTES, "[2001:db8::%x]:4747",
                           (unsigned)(a % 4096));
        break;
    case TW_MSG_ACCUSE:
        message->u.accuse = (struct tw_msg_accuse){id, a, (uint32_t)(b % TW_PARTS_MAX),
                                                   (uint32_t)(a % (TW_MEMBERS_MAX + 1))};
        break;
    case TW_MSG_PAIR_OFFER: {
        struct tw_msg_pair_offer *offer = &message->u.pair_offer;
        *offer = (struct tw_msg_pair_offer){
            .pair = {a, b}, .clock_tokens = draw_u64(rng), .delta_hash = id, .phi_hash = other};
        offer->delta_bytes = draw_between(rng, 1, TW_PAYLOAD_BYTES_MAX);
        offer->phi_bytes = draw_between(rng, 1, TW_PAYLOAD_BYTES_MAX);
        break;
    }
    }
}
