/* control_encode.c - converts control messages to protobuf bodies. The generated structs borrow
 * their bytes from the message. */
#include "proto/control.h"

#include <string.h>

#include "base/assert.h"
#include "proto/thinwire.pb-c.h"

/* Output buffer of a body. */
struct out {
    uint8_t *body;
    size_t capacity, size;
};

static enum tw_status pack(const ProtobufCMessage *message, struct out *out, struct tw_error *err) {
    out->size = protobuf_c_message_get_packed_size(message);
    TW_ASSERT(out->size <= TW_CONTROL_BYTES_MAX);
    if (out->size > out->capacity)
        return tw_fail(err, TW_LIMIT, "message of %zu bytes, room for %zu", out->size,
                       out->capacity);
    (void)protobuf_c_message_pack(message, out->body);
    return TW_OK;
}

/* The cast removes const, which protobuf-c's structs lack; packing only reads the bytes. */
static ProtobufCBinaryData borrow(const void *bytes, size_t size) {
    return (ProtobufCBinaryData){.len = size, .data = (uint8_t *)bytes};
}

static ProtobufCBinaryData borrow_id(const struct tw_id *id) {
    return borrow(id->bytes, sizeof(id->bytes));
}

static enum tw_status put_status(const struct tw_msg_status *from, struct out *out,
                                 struct tw_error *err) {
    Thinwire__Status to = THINWIRE__STATUS__INIT;
    to.state = (Thinwire__NodeState)from->state;
    to.lineage = borrow_id(&from->lineage);
    to.tip = borrow_id(&from->tip);
    to.rounds = from->rounds;
    to.clock_tokens = from->clock_tokens;
    to.step = from->step;
    to.tokens = from->tokens;
    to.tokens_per_s = from->tokens_per_s;
    to.upload_kib_s = from->upload_kib_s;
    to.boot = from->boot;
    to.nonce = from->nonce;
    to.role = (Thinwire__NodeRole)from->role;
    to.origin = from->origin;
    to.waits = from->waits;
    return pack(&to.base, out, err);
}

static enum tw_status put_peers(const struct tw_msg_peers *from, struct out *out,
                                struct tw_error *err) {
    Thinwire__Record records[TW_MEMBER_ROWS_PER_MESSAGE], *list[TW_MEMBER_ROWS_PER_MESSAGE];
    ProtobufCBinaryData addrs[TW_MEMBER_ROWS_PER_MESSAGE][TW_ADDRS_MAX];
    Thinwire__Peers to = THINWIRE__PEERS__INIT;
    for (uint32_t i = 0; i < from->count; i++) {
        list[i] = &records[i];
        thinwire__record__init(&records[i]);
        records[i].id = borrow_id(&from->rows[i].id);
        records[i].addrs = addrs[i];
        for (uint32_t k = 0; k < TW_ADDRS_MAX; k++) {
            const char *addr = from->rows[i].addrs[k];
            if (addr[0] != '\0') addrs[i][records[i].n_addrs++] = borrow(addr, strlen(addr));
        }
    }
    to.n_records = from->count;
    to.records = list;
    return pack(&to.base, out, err);
}

static enum tw_status put_leave(const struct tw_msg_leave *from, struct out *out,
                                struct tw_error *err) {
    Thinwire__Leave to = THINWIRE__LEAVE__INIT;
    to.reason = from->reason;
    return pack(&to.base, out, err);
}

static enum tw_status put_join(const struct tw_msg_join *from, struct out *out,
                               struct tw_error *err) {
    Thinwire__Join to = THINWIRE__JOIN__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.rounds = from->rounds;
    to.nonce = from->nonce;
    to.weight = from->weight;
    to.signature = borrow(from->signature, sizeof(from->signature));
    return pack(&to.base, out, err);
}

/* An all-zero signature becomes an empty field. */
static ProtobufCBinaryData borrow_signature(const uint8_t signature[TW_SIGNATURE_BYTES]) {
    static const uint8_t none[TW_SIGNATURE_BYTES];
    return borrow(signature, memcmp(signature, none, sizeof(none)) == 0 ? 0 : sizeof(none));
}

static enum tw_status put_contrib(const struct tw_msg_contrib *from, struct out *out,
                                  struct tw_error *err) {
    Thinwire__ContribPart parts[TW_PARTS_MAX], *list[TW_PARTS_MAX];
    Thinwire__Contrib to = THINWIRE__CONTRIB__INIT;
    for (uint32_t k = 0; k < from->parts_count; k++) {
        list[k] = &parts[k];
        thinwire__contrib_part__init(&parts[k]);
        parts[k].hash = borrow_id(&from->hashes[k]);
        parts[k].bytes = from->bytes[k];
    }
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    to.base_digest = borrow_id(&from->base);
    to.tokens = from->tokens;
    to.fragment_tokens = from->fragment_tokens;
    to.fragment_steps = from->fragment_steps;
    to.cursor = from->cursor;
    to.n_parts = from->parts_count;
    to.parts = list;
    to.signature = borrow_signature(from->signature);
    return pack(&to.base, out, err);
}

static enum tw_status put_result(const struct tw_msg_result *from, struct out *out,
                                 struct tw_error *err) {
    Thinwire__Contributor contributors[TW_MEMBERS_MAX], *list[TW_MEMBERS_MAX];
    Thinwire__Result to = THINWIRE__RESULT__INIT;
    for (uint32_t i = 0; i < from->contributors_count; i++) {
        list[i] = &contributors[i];
        thinwire__contributor__init(&contributors[i]);
        contributors[i].member_idx = from->contributors[i].member_idx;
        contributors[i].fragment_steps = from->contributors[i].fragment_steps;
        contributors[i].tokens = from->contributors[i].tokens;
        contributors[i].fragment_tokens = from->contributors[i].fragment_tokens;
        contributors[i].root = borrow_id(&from->contributors[i].root);
        contributors[i].signature = borrow_signature(from->contributors[i].signature);
    }
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    to.part = from->part;
    to.bytes = from->bytes;
    to.hash = borrow_id(&from->hash);
    to.n_contributors = from->contributors_count;
    to.contributors = list;
    to.refused = from->refused;
    to.signature = borrow_signature(from->signature);
    return pack(&to.base, out, err);
}

static enum tw_status put_prepare(const struct tw_msg_prepare *from, struct out *out,
                                  struct tw_error *err) {
    Thinwire__Prepare to = THINWIRE__PREPARE__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    to.ballot = from->ballot;
    return pack(&to.base, out, err);
}

static enum tw_status put_promise(const struct tw_msg_promise *from, struct out *out,
                                  struct tw_error *err) {
    uint8_t manifest[TW_RECORD_BYTES_MAX], lock[TW_PROOF_BYTES_MAX];
    Thinwire__Promise to = THINWIRE__PROMISE__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    to.ballot = from->ballot;
    if (from->lock.ballot != 0) {
        to.lock = borrow(lock, tw_proof_encode(&from->lock, lock));
        to.locked = borrow(manifest, tw_record_encode(&from->locked, manifest));
    }
    to.signature = borrow(from->signature, sizeof(from->signature));
    return pack(&to.base, out, err);
}

static enum tw_status put_propose(const struct tw_msg_propose *from, struct out *out,
                                  struct tw_error *err) {
    uint8_t manifest[TW_RECORD_BYTES_MAX], promises[TW_PROMISES_BYTES_MAX];
    uint8_t lock[TW_PROOF_BYTES_MAX], results[TW_PARTS_MAX * TW_SIGNATURE_BYTES];
    size_t results_bytes = 0;
    Thinwire__Propose to = THINWIRE__PROPOSE__INIT;
    for (uint32_t k = 0; k < from->record.parts_count && from->lock.ballot == 0; k++) {
        if (from->record.parts[k].bytes == 0) continue;
        memcpy(results + results_bytes, from->results[k], TW_SIGNATURE_BYTES);
        results_bytes += TW_SIGNATURE_BYTES;
    }
    to.results = borrow(results, results_bytes);
    to.joins = borrow(from->joins, from->joins_count * TW_SIGNATURE_BYTES);
    to.ballot = from->ballot;
    to.record = borrow(manifest, tw_record_encode(&from->record, manifest));
    to.promises = borrow(promises, tw_promises_encode(&from->promises, promises));
    to.lock = borrow(lock, tw_proof_encode(&from->lock, lock));
    return pack(&to.base, out, err);
}

static enum tw_status put_accept(const struct tw_msg_accept *from, struct out *out,
                                 struct tw_error *err) {
    Thinwire__Accept to = THINWIRE__ACCEPT__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    to.ballot = from->ballot;
    to.phase = (uint32_t)from->phase;
    to.digest = borrow_id(&from->digest);
    to.signature = borrow(from->signature, sizeof(from->signature));
    return pack(&to.base, out, err);
}

static enum tw_status put_lock(const struct tw_msg_lock *from, struct out *out,
                               struct tw_error *err) {
    uint8_t proof[TW_PROOF_BYTES_MAX];
    Thinwire__Lock to = THINWIRE__LOCK__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    to.digest = borrow_id(&from->digest);
    to.proof = borrow(proof, tw_proof_encode(&from->proof, proof));
    return pack(&to.base, out, err);
}

static enum tw_status put_evidence(const struct tw_msg_evidence *from, struct out *out,
                                   struct tw_error *err) {
    Thinwire__Evidence to = THINWIRE__EVIDENCE__INIT;
    to.author = borrow_id(&from->author);
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    to.nonce = from->nonce;
    to.ballot = from->ballot;
    to.phase = (uint32_t)from->phase;
    to.first_lock = from->first.lock_ballot;
    to.first_digest = borrow_id(&from->first.digest);
    to.first_signature = borrow(from->first.signature, sizeof(from->first.signature));
    to.second_lock = from->second.lock_ballot;
    to.second_digest = borrow_id(&from->second.digest);
    to.second_signature = borrow(from->second.signature, sizeof(from->second.signature));
    return pack(&to.base, out, err);
}

static enum tw_status put_nack(const struct tw_msg_nack *from, struct out *out,
                               struct tw_error *err) {
    Thinwire__Nack to = THINWIRE__NACK__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    to.promised = from->promised;
    to.refused_parts = from->refused_parts;
    return pack(&to.base, out, err);
}

static enum tw_status put_commit(const struct tw_msg_commit *from, struct out *out,
                                 struct tw_error *err) {
    uint8_t manifest[TW_RECORD_BYTES_MAX], proof[TW_PROOF_BYTES_MAX];
    Thinwire__Commit to = THINWIRE__COMMIT__INIT;
    to.record = borrow(manifest, tw_record_encode(&from->record, manifest));
    to.proof = borrow(proof, tw_proof_encode(&from->proof, proof));
    return pack(&to.base, out, err);
}

static enum tw_status put_log_get(const struct tw_msg_log_get *from, struct out *out,
                                  struct tw_error *err) {
    Thinwire__LogGet to = THINWIRE__LOG_GET__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    return pack(&to.base, out, err);
}

static enum tw_status put_log_none(const struct tw_msg_log_none *from, struct out *out,
                                   struct tw_error *err) {
    Thinwire__LogNone to = THINWIRE__LOG_NONE__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.oldest_round = from->oldest_round;
    to.rounds = from->rounds;
    return pack(&to.base, out, err);
}

static enum tw_status put_state_get(const struct tw_msg_state_get *from, struct out *out,
                                    struct tw_error *err) {
    Thinwire__StateGet to = THINWIRE__STATE_GET__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.fragment = from->fragment;
    to.digest = borrow_id(&from->digest);
    if (!tw_id_is_zero(&from->wanted)) to.wanted = borrow_id(&from->wanted);
    to.rounds = from->rounds;
    return pack(&to.base, out, err);
}

static enum tw_status put_state(const struct tw_msg_state *from, struct out *out,
                                struct tw_error *err) {
    Thinwire__State to = THINWIRE__STATE__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.fragment = from->fragment;
    to.rounds = from->rounds;
    to.digest = borrow_id(&from->digest);
    to.hash = borrow_id(&from->hash);
    to.bytes = from->bytes;
    return pack(&to.base, out, err);
}

static enum tw_status put_pull(const struct tw_msg_pull *from, struct out *out,
                               struct tw_error *err) {
    Thinwire__Pull to = THINWIRE__PULL__INIT;
    to.hash = borrow_id(&from->hash);
    to.first = from->first;
    to.count = from->count;
    return pack(&to.base, out, err);
}

static enum tw_status put_missing(const struct tw_msg_missing *from, struct out *out,
                                  struct tw_error *err) {
    Thinwire__Missing to = THINWIRE__MISSING__INIT;
    to.hash = borrow_id(&from->hash);
    to.retry_s = from->retry_s;
    return pack(&to.base, out, err);
}

static enum tw_status put_pair_request(const struct tw_msg_pair_request *from, struct out *out,
                                       struct tw_error *err) {
    Thinwire__PairRequest to = THINWIRE__PAIR_REQUEST__INIT;
    to.pair_high = from->pair.high;
    to.pair_low = from->pair.low;
    to.fragment = from->fragment;
    to.wants_whole = from->wants_whole;
    return pack(&to.base, out, err);
}

static enum tw_status put_pair_accept(const struct tw_msg_pair_accept *from, struct out *out,
                                      struct tw_error *err) {
    Thinwire__PairAccept to = THINWIRE__PAIR_ACCEPT__INIT;
    to.pair_high = from->pair.high;
    to.pair_low = from->pair.low;
    to.wants_whole = from->wants_whole;
    return pack(&to.base, out, err);
}

static enum tw_status put_accuse(const struct tw_msg_accuse *from, struct out *out,
                                 struct tw_error *err) {
    Thinwire__Accuse to = THINWIRE__ACCUSE__INIT;
    to.lineage = borrow_id(&from->lineage);
    to.round = from->round;
    to.part = from->part;
    to.trainer = from->trainer;
    return pack(&to.base, out, err);
}

static enum tw_status put_pair_busy(const struct tw_msg_pair_busy *from, struct out *out,
                                    struct tw_error *err) {
    Thinwire__PairBusy to = THINWIRE__PAIR_BUSY__INIT;
    to.pair_high = from->pair.high;
    to.pair_low = from->pair.low;
    return pack(&to.base, out, err);
}

static enum tw_status put_pair_offer(const struct tw_msg_pair_offer *from, struct out *out,
                                     struct tw_error *err) {
    Thinwire__PairOffer to = THINWIRE__PAIR_OFFER__INIT;
    to.pair_high = from->pair.high;
    to.pair_low = from->pair.low;
    to.clock_tokens = from->clock_tokens;
    to.delta_hash = borrow_id(&from->delta_hash);
    to.delta_bytes = from->delta_bytes;
    to.phi_hash = borrow_id(&from->phi_hash);
    to.phi_bytes = from->phi_bytes;
    return pack(&to.base, out, err);
}

static enum tw_status put_probe(const struct tw_msg_probe *from, struct out *out,
                                struct tw_error *err) {
    Thinwire__Probe to = THINWIRE__PROBE__INIT;
    to.token = from->token;
    return pack(&to.base, out, err);
}

static enum tw_status put_probed(const struct tw_msg_probed *from, struct out *out,
                                 struct tw_error *err) {
    Thinwire__Probed to = THINWIRE__PROBED__INIT;
    to.token = from->token;
    to.outcome = (uint32_t)from->outcome;
    to.addr = borrow(from->addr, strlen(from->addr));
    return pack(&to.base, out, err);
}

static enum tw_status put_links(const struct tw_msg_links *from, struct out *out,
                                struct tw_error *err) {
    Thinwire__Links to = THINWIRE__LINKS__INIT;
    ProtobufCBinaryData direct[TW_PEERS_MAX], relayed[TW_PEERS_MAX];
    for (uint32_t i = 0; i < from->direct_count; i++) direct[i] = borrow_id(&from->direct[i]);
    for (uint32_t i = 0; i < from->relayed_count; i++) relayed[i] = borrow_id(&from->relayed[i]);
    to.is_relay = from->is_relay;
    to.n_direct = from->direct_count;
    to.direct = direct;
    to.n_relayed = from->relayed_count;
    to.relayed = relayed;
    return pack(&to.base, out, err);
}

static enum tw_status put_relay_call(const struct tw_msg_relay_call *from, struct out *out,
                                     struct tw_error *err) {
    Thinwire__RelayCall to = THINWIRE__RELAY_CALL__INIT;
    to.from = borrow_id(&from->from);
    to.token = borrow(from->token, sizeof(from->token));
    return pack(&to.base, out, err);
}

static enum tw_status put_punch(const struct tw_msg_punch *from, struct out *out,
                                struct tw_error *err) {
    Thinwire__Punch to = THINWIRE__PUNCH__INIT;
    to.stage = (uint32_t)from->stage;
    to.token = from->token;
    to.control = borrow(from->control, strlen(from->control));
    to.bulk = borrow(from->bulk, strlen(from->bulk));
    return pack(&to.base, out, err);
}

enum tw_status tw_control_encode(const struct tw_message *message, uint8_t *body, size_t capacity,
                                 size_t *size_out, struct tw_error *err) {
    struct out out = {body, capacity, 0};
    enum tw_status status = TW_PROTO;
    TW_ASSERT(tw_message_check(message, NULL) == TW_OK);
    switch (message->kind) {
#define X(name, value, member)                                                                     \
    case TW_MSG_##name: status = put_##member(&message->u.member, &out, err); break;
        TW_MESSAGE_LIST(X)
#undef X
    }
    *size_out = out.size;
    return status;
}
