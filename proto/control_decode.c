/* control_decode.c - converts untrusted protobuf bodies to control messages.
 *
 * protobuf-c unpacks into an arena on the stack, whose size is limited by the size of the body. A
 * body that needs more memory is refused. Then each field is checked and copied into a struct
 * tw_message. At the end tw_message_check checks the message as a whole. */
#include "proto/control.h"

#include <stdalign.h>
#include <string.h>

#include "proto/thinwire.pb-c.h"

enum { ARENA_FACTOR = 4, ARENA_EXTRA = 16 * 1024, ARENA_ALIGN = 16 };

/* Bump allocator; freeing does nothing. */
struct arena {
    size_t used, limit;
    alignas(ARENA_ALIGN) uint8_t bytes[ARENA_FACTOR * TW_CONTROL_BYTES_MAX + ARENA_EXTRA];
};

static void *arena_alloc(void *user, size_t size) {
    struct arena *arena = user;
    if (size > arena->limit - arena->used)
        return NULL; /* rounding up cannot exceed the limit: `limit` and `used` are multiples of
                        ARENA_ALIGN */
    const size_t rounded = (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    void *memory = arena->bytes + arena->used;
    arena->used += rounded;
    return memory;
}

static void arena_free(void *user, void *memory) {
    (void)user;
    (void)memory;
}

/* ---- fields -------------------------------------------------------------------------------- */

static enum tw_status get_id(const char *field, const ProtobufCBinaryData *from, struct tw_id *to,
                             struct tw_error *err) {
    if (from->len != sizeof(to->bytes))
        return tw_fail(err, TW_PROTO, "message field %s has %zu bytes where 32 belong", field,
                       from->len);
    memcpy(to->bytes, from->data, sizeof(to->bytes));
    return TW_OK;
}

static enum tw_status get_addr(const char *field, const ProtobufCBinaryData *from,
                               char to[TW_ADDR_BYTES], struct tw_error *err) {
    if (from->len == 0 || from->len >= TW_ADDR_BYTES)
        return tw_fail(err, TW_PROTO, "message field %s has %zu bytes, 1 to %d belong", field,
                       from->len, TW_ADDR_BYTES - 1);
    if (memchr(from->data, '\0', from->len) != NULL)
        return tw_fail(err, TW_PROTO, "message field %s holds a NUL", field);
    memcpy(to, from->data, from->len); /* the other bytes of `to` are already zero */
    return TW_OK;
}

static enum tw_status check_count(const char *field, size_t count, size_t most,
                                  struct tw_error *err) {
    if (count <= most) return TW_OK;
    return tw_fail(err, TW_PROTO, "message field %s has %zu elements, at most %zu belong", field,
                   count, most);
}

static enum tw_status get_manifest(const ProtobufCBinaryData *from, struct tw_record *to,
                                   struct tw_error *err) {
    return tw_record_decode(from->data, from->len, to, err);
}

/* ---- messages ------------------------------------------------------------------------------ */

static enum tw_status get_status(const void *body, struct tw_msg_status *to, struct tw_error *err) {
    const Thinwire__Status *from = body;
    to->state = (enum tw_node_state)from->state;
    to->rounds = from->rounds;
    to->clock_tokens = from->clock_tokens;
    to->step = from->step;
    to->tokens = from->tokens;
    to->tokens_per_s = from->tokens_per_s;
    to->upload_kib_s = from->upload_kib_s;
    to->boot = from->boot;
    to->nonce = from->nonce;
    to->role = (enum tw_node_role)from->role;
    to->origin = from->origin;
    to->waits = from->waits;
    TW_TRY(get_id("lineage", &from->lineage, &to->lineage, err));
    return get_id("tip", &from->tip, &to->tip, err);
}

static enum tw_status get_row(const Thinwire__Record *from, struct tw_member_row *to,
                              struct tw_error *err) {
    TW_TRY(get_id("records.id", &from->id, &to->id, err));
    TW_TRY(check_count("records.addrs", from->n_addrs, TW_ADDRS_MAX, err));
    for (size_t k = 0; k < from->n_addrs; k++)
        TW_TRY(get_addr("records.addrs", &from->addrs[k], to->addrs[k], err));
    return TW_OK;
}

static enum tw_status get_peers(const void *body, struct tw_msg_peers *to, struct tw_error *err) {
    const Thinwire__Peers *from = body;
    TW_TRY(check_count("records", from->n_records, TW_MEMBER_ROWS_PER_MESSAGE, err));
    to->count = (uint32_t)from->n_records;
    for (size_t i = 0; i < from->n_records; i++)
        TW_TRY(get_row(from->records[i], &to->rows[i], err));
    return TW_OK;
}

static enum tw_status get_signature(const ProtobufCBinaryData *from,
                                    uint8_t signature[TW_SIGNATURE_BYTES], struct tw_error *err) {
    if (from->len != TW_SIGNATURE_BYTES)
        return tw_fail(err, TW_PROTO, "message field signature has %zu bytes where %d belong",
                       from->len, TW_SIGNATURE_BYTES);
    memcpy(signature, from->data, TW_SIGNATURE_BYTES);
    return TW_OK;
}

/* An empty field is an all-zero signature. */
static enum tw_status get_optional_signature(const ProtobufCBinaryData *from,
                                             uint8_t signature[TW_SIGNATURE_BYTES],
                                             struct tw_error *err) {
    return from->len > 0 ? get_signature(from, signature, err) : TW_OK;
}

/* An empty field means no proof. */
static enum tw_status get_proof(const ProtobufCBinaryData *from, struct tw_proof *proof,
                                struct tw_error *err) {
    return from->len > 0 ? tw_proof_decode(from->data, from->len, proof, err) : TW_OK;
}

static enum tw_status get_leave(const void *body, struct tw_msg_leave *to, struct tw_error *err) {
    const Thinwire__Leave *from = body;
    (void)err;
    to->reason = from->reason;
    return TW_OK;
}

static enum tw_status get_join(const void *body, struct tw_msg_join *to, struct tw_error *err) {
    const Thinwire__Join *from = body;
    to->rounds = from->rounds;
    to->nonce = from->nonce;
    to->weight = from->weight;
    TW_TRY(get_signature(&from->signature, to->signature, err));
    return get_id("lineage", &from->lineage, &to->lineage, err);
}

static enum tw_status get_contrib(const void *body, struct tw_msg_contrib *to,
                                  struct tw_error *err) {
    const Thinwire__Contrib *from = body;
    TW_TRY(check_count("parts", from->n_parts, TW_PARTS_MAX, err));
    TW_TRY(get_id("lineage", &from->lineage, &to->lineage, err));
    TW_TRY(get_id("base_digest", &from->base_digest, &to->base, err));
    to->round = from->round;
    to->tokens = from->tokens;
    to->fragment_tokens = from->fragment_tokens;
    to->fragment_steps = from->fragment_steps;
    to->cursor = from->cursor;
    TW_TRY(get_optional_signature(&from->signature, to->signature, err));
    to->parts_count = (uint32_t)from->n_parts;
    for (size_t k = 0; k < from->n_parts; k++) {
        to->bytes[k] = from->parts[k]->bytes;
        TW_TRY(get_id("parts.hash", &from->parts[k]->hash, &to->hashes[k], err));
    }
    return TW_OK;
}

static enum tw_status get_result(const void *body, struct tw_msg_result *to, struct tw_error *err) {
    const Thinwire__Result *from = body;
    TW_TRY(check_count("contributors", from->n_contributors, TW_MEMBERS_MAX, err));
    TW_TRY(get_id("lineage", &from->lineage, &to->lineage, err));
    TW_TRY(get_id("hash", &from->hash, &to->hash, err));
    to->round = from->round;
    to->part = from->part;
    to->bytes = from->bytes;
    to->refused = from->refused;
    TW_TRY(get_optional_signature(&from->signature, to->signature, err));
    to->contributors_count = (uint32_t)from->n_contributors;
    for (size_t i = 0; i < from->n_contributors; i++) {
        const Thinwire__Contributor *contributor = from->contributors[i];
        to->contributors[i].member_idx = contributor->member_idx;
        to->contributors[i].fragment_steps = contributor->fragment_steps;
        to->contributors[i].tokens = contributor->tokens;
        to->contributors[i].fragment_tokens = contributor->fragment_tokens;
        TW_TRY(get_optional_signature(&contributor->signature, to->contributors[i].signature, err));
        TW_TRY(get_id("contributors.root", &contributor->root, &to->contributors[i].root, err));
    }
    return TW_OK;
}

static enum tw_status get_prepare(const void *body, struct tw_msg_prepare *to,
                                  struct tw_error *err) {
    const Thinwire__Prepare *from = body;
    to->round = from->round;
    to->ballot = from->ballot;
    return get_id("lineage", &from->lineage, &to->lineage, err);
}

static enum tw_status get_promise(const void *body, struct tw_msg_promise *to,
                                  struct tw_error *err) {
    const Thinwire__Promise *from = body;
    to->round = from->round;
    to->ballot = from->ballot;
    TW_TRY(get_id("lineage", &from->lineage, &to->lineage, err));
    TW_TRY(get_signature(&from->signature, to->signature, err));
    TW_TRY(get_proof(&from->lock, &to->lock, err));
    if (from->lock.len == 0) return TW_OK;
    return get_manifest(&from->locked, &to->locked, err);
}

/* Reads the signatures of the parts that are not ABSENT, in part order. A proposal with a lock has
 * none. */
static enum tw_status get_results(const ProtobufCBinaryData *from, struct tw_msg_propose *to,
                                  struct tw_error *err) {
    size_t at = 0;
    for (uint32_t k = 0; k < to->record.parts_count && to->lock.ballot == 0; k++) {
        if (to->record.parts[k].bytes == 0) continue;
        if (from->len - at < TW_SIGNATURE_BYTES)
            return tw_fail(err, TW_PROTO, "PROPOSE with too few signatures of results");
        memcpy(to->results[k], from->data + at, TW_SIGNATURE_BYTES);
        at += TW_SIGNATURE_BYTES;
    }
    if (at < from->len)
        return tw_fail(err, TW_PROTO, "PROPOSE with too many signatures of results");
    return TW_OK;
}

static enum tw_status get_propose(const void *body, struct tw_msg_propose *to,
                                  struct tw_error *err) {
    const Thinwire__Propose *from = body;
    to->ballot = from->ballot;
    if (from->promises.len > 0)
        TW_TRY(tw_promises_decode(from->promises.data, from->promises.len, &to->promises, err));
    TW_TRY(get_proof(&from->lock, &to->lock, err));
    TW_TRY(get_manifest(&from->record, &to->record, err));
    if (from->joins.len % TW_SIGNATURE_BYTES != 0 || from->joins.len > sizeof(to->joins))
        return tw_fail(err, TW_PROTO, "PROPOSE with joins of %zu bytes", from->joins.len);
    to->joins_count = (uint32_t)(from->joins.len / TW_SIGNATURE_BYTES);
    if (to->joins_count > 0) memcpy(to->joins, from->joins.data, from->joins.len);
    return get_results(&from->results, to, err);
}

static enum tw_status get_accept(const void *body, struct tw_msg_accept *to, struct tw_error *err) {
    const Thinwire__Accept *from = body;
    to->round = from->round;
    to->ballot = from->ballot;
    to->phase = from->phase == TW_VOTE_COMMIT ? TW_VOTE_COMMIT
                : from->phase == TW_VOTE_ACCEPT
                    ? TW_VOTE_ACCEPT
                    : TW_VOTE_PROMISE; /* tw_message_check refuses other values */
    TW_TRY(get_signature(&from->signature, to->signature, err));
    TW_TRY(get_id("lineage", &from->lineage, &to->lineage, err));
    return get_id("digest", &from->digest, &to->digest, err);
}

static enum tw_status get_lock(const void *body, struct tw_msg_lock *to, struct tw_error *err) {
    const Thinwire__Lock *from = body;
    to->round = from->round;
    TW_TRY(get_proof(&from->proof, &to->proof, err));
    TW_TRY(get_id("lineage", &from->lineage, &to->lineage, err));
    return get_id("digest", &from->digest, &to->digest, err);
}

static enum tw_status get_evidence(const void *body, struct tw_msg_evidence *to,
                                   struct tw_error *err) {
    const Thinwire__Evidence *from = body;
    if (from->phase > TW_VOTE_RESULT)
        return tw_fail(err, TW_PROTO, "EVIDENCE of phase %u", from->phase);
    to->phase = (enum tw_vote_phase)from->phase;
    to->round = from->round;
    to->nonce = from->nonce;
    to->ballot = from->ballot;
    to->first.lock_ballot = from->first_lock;
    to->second.lock_ballot = from->second_lock;
    TW_TRY(get_id("author", &from->author, &to->author, err));
    TW_TRY(get_id("lineage", &from->lineage, &to->lineage, err));
    TW_TRY(get_id("first_digest", &from->first_digest, &to->first.digest, err));
    TW_TRY(get_id("second_digest", &from->second_digest, &to->second.digest, err));
    TW_TRY(get_signature(&from->first_signature, to->first.signature, err));
    return get_signature(&from->second_signature, to->second.signature, err);
}

static enum tw_status get_nack(const void *body, struct tw_msg_nack *to, struct tw_error *err) {
    const Thinwire__Nack *from = body;
    to->round = from->round;
    to->promised = from->promised;
    to->refused_parts = from->refused_parts;
    return get_id("lineage", &from->lineage, &to->lineage, err);
}

static enum tw_status get_commit(const void *body, struct tw_msg_commit *to, struct tw_error *err) {
    const Thinwire__Commit *from = body;
    TW_TRY(get_proof(&from->proof, &to->proof, err));
    return get_manifest(&from->record, &to->record, err);
}

static enum tw_status get_log_get(const void *body, struct tw_msg_log_get *to,
                                  struct tw_error *err) {
    const Thinwire__LogGet *from = body;
    to->round = from->round;
    return get_id("lineage", &from->lineage, &to->lineage, err);
}

static enum tw_status get_log_none(const void *body, struct tw_msg_log_none *to,
                                   struct tw_error *err) {
    const Thinwire__LogNone *from = body;
    to->oldest_round = from->oldest_round;
    to->rounds = from->rounds;
    return get_id("lineage", &from->lineage, &to->lineage, err);
}

static enum tw_status get_state_get(const void *body, struct tw_msg_state_get *to,
                                    struct tw_error *err) {
    const Thinwire__StateGet *from = body;
    to->fragment = from->fragment;
    to->rounds = from->rounds;
    TW_TRY(get_id("lineage", &from->lineage, &to->lineage, err));
    if (from->wanted.len > 0) TW_TRY(get_id("wanted", &from->wanted, &to->wanted, err));
    return get_id("digest", &from->digest, &to->digest, err);
}

static enum tw_status get_state(const void *body, struct tw_msg_state *to, struct tw_error *err) {
    const Thinwire__State *from = body;
    to->fragment = from->fragment;
    to->rounds = from->rounds;
    to->bytes = from->bytes;
    TW_TRY(get_id("lineage", &from->lineage, &to->lineage, err));
    TW_TRY(get_id("digest", &from->digest, &to->digest, err));
    return get_id("hash", &from->hash, &to->hash, err);
}

static enum tw_status get_pull(const void *body, struct tw_msg_pull *to, struct tw_error *err) {
    const Thinwire__Pull *from = body;
    to->first = from->first;
    to->count = from->count;
    return get_id("hash", &from->hash, &to->hash, err);
}

static enum tw_status get_missing(const void *body, struct tw_msg_missing *to,
                                  struct tw_error *err) {
    const Thinwire__Missing *from = body;
    to->retry_s = from->retry_s;
    return get_id("hash", &from->hash, &to->hash, err);
}

static enum tw_status get_pair_request(const void *body, struct tw_msg_pair_request *to,
                                       struct tw_error *err) {
    const Thinwire__PairRequest *from = body;
    (void)err;
    to->pair = (struct tw_pair_id){from->pair_high, from->pair_low};
    to->fragment = from->fragment;
    to->wants_whole = from->wants_whole;
    return TW_OK;
}

static enum tw_status get_pair_accept(const void *body, struct tw_msg_pair_accept *to,
                                      struct tw_error *err) {
    const Thinwire__PairAccept *from = body;
    (void)err;
    to->pair = (struct tw_pair_id){from->pair_high, from->pair_low};
    to->wants_whole = from->wants_whole;
    return TW_OK;
}

static enum tw_status get_pair_busy(const void *body, struct tw_msg_pair_busy *to,
                                    struct tw_error *err) {
    const Thinwire__PairBusy *from = body;
    (void)err;
    to->pair = (struct tw_pair_id){from->pair_high, from->pair_low};
    return TW_OK;
}

static enum tw_status get_pair_offer(const void *body, struct tw_msg_pair_offer *to,
                                     struct tw_error *err) {
    const Thinwire__PairOffer *from = body;
    to->pair = (struct tw_pair_id){from->pair_high, from->pair_low};
    to->clock_tokens = from->clock_tokens;
    to->delta_bytes = from->delta_bytes;
    to->phi_bytes = from->phi_bytes;
    TW_TRY(get_id("delta_hash", &from->delta_hash, &to->delta_hash, err));
    return get_id("phi_hash", &from->phi_hash, &to->phi_hash, err);
}

static enum tw_status get_accuse(const void *body, struct tw_msg_accuse *to, struct tw_error *err) {
    const Thinwire__Accuse *from = body;
    to->round = from->round;
    to->part = from->part;
    to->trainer = from->trainer;
    if (from->trainer > TW_MEMBERS_MAX)
        return tw_fail(err, TW_PROTO, "an accusation of seat %u", from->trainer);
    return get_id("lineage", &from->lineage, &to->lineage, err);
}

static enum tw_status get_probe(const void *body, struct tw_msg_probe *to, struct tw_error *err) {
    const Thinwire__Probe *from = body;
    (void)err;
    to->token = from->token;
    return TW_OK;
}

static enum tw_status get_probed(const void *body, struct tw_msg_probed *to, struct tw_error *err) {
    const Thinwire__Probed *from = body;
    to->token = from->token;
    to->outcome = (enum tw_probe_outcome)from->outcome;
    return get_addr("addr", &from->addr, to->addr, err);
}

static enum tw_status get_links(const void *body, struct tw_msg_links *to, struct tw_error *err) {
    const Thinwire__Links *from = body;
    TW_TRY(check_count("direct", from->n_direct, TW_PEERS_MAX, err));
    TW_TRY(check_count("relayed", from->n_relayed, TW_PEERS_MAX, err));
    to->is_relay = from->is_relay;
    to->direct_count = (uint32_t)from->n_direct;
    to->relayed_count = (uint32_t)from->n_relayed;
    for (size_t i = 0; i < from->n_direct; i++)
        TW_TRY(get_id("direct", &from->direct[i], &to->direct[i], err));
    for (size_t i = 0; i < from->n_relayed; i++)
        TW_TRY(get_id("relayed", &from->relayed[i], &to->relayed[i], err));
    return TW_OK;
}

static enum tw_status get_relay_call(const void *body, struct tw_msg_relay_call *to,
                                     struct tw_error *err) {
    const Thinwire__RelayCall *from = body;
    if (from->token.len != sizeof(to->token))
        return tw_fail(err, TW_PROTO, "message field token has %zu bytes where %zu belong",
                       from->token.len, sizeof(to->token));
    memcpy(to->token, from->token.data, sizeof(to->token));
    return get_id("from", &from->from, &to->from, err);
}

static enum tw_status get_punch(const void *body, struct tw_msg_punch *to, struct tw_error *err) {
    const Thinwire__Punch *from = body;
    to->stage = (enum tw_punch_stage)from->stage;
    to->token = from->token;
    if (from->bulk.len > 0) TW_TRY(get_addr("bulk", &from->bulk, to->bulk, err));
    return get_addr("control", &from->control, to->control, err);
}

/* ---- bodies -------------------------------------------------------------------------------- */

static const ProtobufCMessageDescriptor *descriptor_of(uint16_t kind) {
    switch (kind) {
#define X(name, value, member)                                                                     \
    case TW_MSG_##name: return &thinwire__##member##__descriptor;
        TW_MESSAGE_LIST(X)
#undef X
    default: return NULL;
    }
}

static enum tw_status convert(const void *unpacked, struct tw_message *to, struct tw_error *err) {
    switch (to->kind) {
#define X(name, value, member)                                                                     \
    case TW_MSG_##name: return get_##member(unpacked, &to->u.member, err);
        TW_MESSAGE_LIST(X)
#undef X
    }
    return TW_PROTO;
}

enum tw_status tw_control_decode(uint16_t kind, const uint8_t *body, size_t body_bytes,
                                 struct tw_message *message, struct tw_error *err) {
    struct arena arena;
    struct tw_message decoded;
    ProtobufCAllocator allocator = {arena_alloc, arena_free, &arena};
    const ProtobufCMessageDescriptor *descriptor = descriptor_of(kind);
    if (descriptor == NULL) return tw_fail(err, TW_VERSION, "message kind %u is unknown", kind);
    if (body_bytes > TW_CONTROL_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "message of %zu bytes, at most %d", body_bytes,
                       TW_CONTROL_BYTES_MAX);
    arena.used = 0;
    arena.limit = (ARENA_FACTOR * body_bytes + ARENA_EXTRA) / ARENA_ALIGN * ARENA_ALIGN;
    memset(&decoded, 0, sizeof(decoded));
    decoded.kind = (enum tw_message_kind)kind;
    const void *unpacked = protobuf_c_message_unpack(descriptor, &allocator, body_bytes, body);
    if (unpacked == NULL)
        return tw_fail(err, TW_PROTO, "message %s: malformed protobuf, or too many fields",
                       tw_message_name(decoded.kind));
    TW_TRY(convert(unpacked, &decoded, err));
    TW_TRY(tw_message_check(&decoded, err));
    *message = decoded;
    return TW_OK;
}
