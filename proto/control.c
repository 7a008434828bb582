/* control.c - converts control messages to protobuf bodies and back. The fields of a message are
 * listed once; encoder and decoder expand from the list.
 *
 * The generated structs of an encoder borrow their bytes from the message. A decoder unpacks the
 * untrusted body into an arena on the stack, whose size is limited by the size of the body: a body
 * that needs more memory is refused. Then each field is checked and copied, and at the end
 * tw_message_check checks the message as a whole. */
#include "proto/control.h"

#include <stdalign.h>
#include <string.h>

#include "base/assert.h"
#include "proto/thinwire.pb-c.h"

/* Output buffer of a body, and memory that the generated structs borrow until it is packed. */
struct out {
    uint8_t *body;
    size_t capacity, size;
    size_t bytes_used;
    uint8_t bytes[TW_RECORD_BYTES_MAX + TW_PROOF_BYTES_MAX + TW_PROMISES_BYTES_MAX +
                  TW_PARTS_MAX * TW_SIGNATURE_BYTES];
    union {
        struct {
            Thinwire__MemberRow rows[TW_MEMBER_ROWS_PER_MESSAGE], *list[TW_MEMBER_ROWS_PER_MESSAGE];
            ProtobufCBinaryData addrs[TW_MEMBER_ROWS_PER_MESSAGE][TW_ADDRS_MAX];
        } peers;
        struct {
            Thinwire__ContribPart parts[TW_PARTS_MAX], *list[TW_PARTS_MAX];
        } contrib;
        struct {
            Thinwire__CrewRow rows[TW_CREW_MAX], *list[TW_CREW_MAX];
        } crew;
        struct {
            Thinwire__Contributor contributors[TW_MEMBERS_MAX], *list[TW_MEMBERS_MAX];
        } result;
        struct {
            ProtobufCBinaryData direct[TW_PEERS_MAX], relayed[TW_PEERS_MAX];
        } links;
    } of;
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

/* ---- values of fields ----------------------------------------------------------------------- */

/* The cast removes const, which protobuf-c's structs lack; packing only reads the bytes. */
static ProtobufCBinaryData borrow(const void *bytes, size_t size) {
    return (ProtobufCBinaryData){.len = size, .data = (uint8_t *)bytes};
}

/* All zeros become an empty field. */
static ProtobufCBinaryData borrow_unless_zero(const uint8_t *bytes, size_t size) {
    static const uint8_t zeros[TW_SIGNATURE_BYTES];
    TW_ASSERT(size <= sizeof(zeros));
    return borrow(bytes, memcmp(bytes, zeros, size) == 0 ? 0 : size);
}

/* Returns room for at most `most` bytes that the caller encodes, then takes with borrow_room. */
static uint8_t *room_for(struct out *out, size_t most) {
    TW_ASSERT(most <= sizeof(out->bytes) - out->bytes_used);
    return out->bytes + out->bytes_used;
}

static ProtobufCBinaryData borrow_room(struct out *out, size_t size) {
    uint8_t *const bytes = out->bytes + out->bytes_used;
    out->bytes_used += size;
    TW_ASSERT(out->bytes_used <= sizeof(out->bytes));
    return borrow(bytes, size);
}

static ProtobufCBinaryData borrow_proof(struct out *out, const struct tw_proof *proof) {
    return borrow_room(out, tw_proof_encode(proof, room_for(out, TW_PROOF_BYTES_MAX)));
}

static ProtobufCBinaryData borrow_record(struct out *out, const struct tw_record *record) {
    return borrow_room(out, tw_record_encode(record, room_for(out, TW_RECORD_BYTES_MAX)));
}

static enum tw_status get_bytes(const char *field, const ProtobufCBinaryData *from, uint8_t *to,
                                size_t size, struct tw_error *err) {
    if (from->len != size)
        return tw_fail(err, TW_PROTO, "message field %s has %zu bytes where %zu belong", field,
                       from->len, size);
    memcpy(to, from->data, size);
    return TW_OK;
}

/* An empty field is all zeros, and `to` is zero already. */
static enum tw_status get_bytes_or_none(const char *field, const ProtobufCBinaryData *from,
                                        uint8_t *to, size_t size, struct tw_error *err) {
    return from->len > 0 ? get_bytes(field, from, to, size, err) : TW_OK;
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

/* An empty field means no proof. */
static enum tw_status get_proof(const ProtobufCBinaryData *from, struct tw_proof *proof,
                                struct tw_error *err) {
    return from->len > 0 ? tw_proof_decode(from->data, from->len, proof, err) : TW_OK;
}

static enum tw_status check_count(const char *field, size_t count, size_t most,
                                  struct tw_error *err) {
    if (count <= most) return TW_OK;
    return tw_fail(err, TW_PROTO, "message field %s has %zu elements, at most %zu belong", field,
                   count, most);
}

/* ---- kinds of fields: X(KIND, name), or X(KIND_AS, name in thinwire.proto, name here) ---------
 */

#define PUT(KIND, ...) PUT_##KIND(__VA_ARGS__)
#define GET(KIND, ...) GET_##KIND(__VA_ARGS__)

#define PUT_NUMBER_AS(p, c) to.p = from->c;
#define GET_NUMBER_AS(p, c) to->c = from->p;
#define PUT_NUMBER(f) PUT_NUMBER_AS(f, f)
#define GET_NUMBER(f) GET_NUMBER_AS(f, f)
/* an enum here, whose value is checked by tw_message_check */
#define PUT_ENUM(f, type, wire) to.f = (wire)from->f;
#define GET_ENUM(f, type, wire) to->f = (type)from->f;
#define PUT_BYTES_AS(p, c) to.p = borrow(from->c, sizeof(from->c));
#define GET_BYTES_AS(p, c) TW_TRY(get_bytes(#p, &from->p, to->c, sizeof(to->c), err));
#define PUT_BYTES(f) PUT_BYTES_AS(f, f)
#define GET_BYTES(f) GET_BYTES_AS(f, f)
#define PUT_BYTES_OR_NONE_AS(p, c) to.p = borrow_unless_zero(from->c, sizeof(from->c));
#define GET_BYTES_OR_NONE_AS(p, c)                                                                 \
    TW_TRY(get_bytes_or_none(#p, &from->p, to->c, sizeof(to->c), err));
#define PUT_BYTES_OR_NONE(f) PUT_BYTES_OR_NONE_AS(f, f)
#define GET_BYTES_OR_NONE(f) GET_BYTES_OR_NONE_AS(f, f)
#define PUT_ID(f) PUT_BYTES_AS(f, f.bytes)
#define GET_ID(f) GET_BYTES_AS(f, f.bytes)
#define PUT_ADDR(f) to.f = borrow(from->f, strlen(from->f));
#define GET_ADDR(f) TW_TRY(get_addr(#f, &from->f, to->f, err));
#define PUT_ADDR_OR_NONE(f) PUT_ADDR(f)
#define GET_ADDR_OR_NONE(f)                                                                        \
    if (from->f.len > 0) GET_ADDR(f)
#define PUT_PROOF(f) to.f = borrow_proof(out, &from->f);
#define GET_PROOF(f) TW_TRY(get_proof(&from->f, &to->f, err));
#define PUT_RECORD(f) to.f = borrow_record(out, &from->f);
#define GET_RECORD(f) TW_TRY(tw_record_decode(from->f.data, from->f.len, &to->f, err));
/* a list or a relation of fields: has functions of its own */
#define PUT_BY(name) put_##name(from, &to, out);
#define GET_BY(name) TW_TRY(get_##name(from, to, err));

/* Defines encode_MEMBER and decode_MEMBER of a message. */
#define MESSAGE(member, Type, TYPE, FIELDS)                                                        \
    static enum tw_status encode_##member(const struct tw_msg_##member *from, struct out *out,     \
                                          struct tw_error *err) {                                  \
        Thinwire__##Type to = THINWIRE__##TYPE##__INIT;                                            \
        FIELDS(PUT)                                                                                \
        return pack(&to.base, out, err);                                                           \
    }                                                                                              \
    static enum tw_status decode_##member(const void *body, struct tw_msg_##member *to,            \
                                          struct tw_error *err) {                                  \
        const Thinwire__##Type *from = body;                                                       \
        (void)err;                                                                                 \
        FIELDS(GET)                                                                                \
        return TW_OK;                                                                              \
    }

/* ---- position and membership ---------------------------------------------------------------- */

#define STATUS_FIELDS(X)                                                                           \
    X(ENUM, state, enum tw_node_state, Thinwire__NodeState)                                        \
    X(ID, lineage)                                                                                 \
    X(ID, tip)                                                                                     \
    X(NUMBER, rounds)                                                                              \
    X(NUMBER, clock_tokens)                                                                        \
    X(NUMBER, step)                                                                                \
    X(NUMBER, tokens)                                                                              \
    X(NUMBER, tokens_per_s)                                                                        \
    X(NUMBER, upload_kib_s)                                                                        \
    X(NUMBER, boot)                                                                                \
    X(NUMBER, nonce)                                                                               \
    X(ENUM, role, enum tw_node_role, Thinwire__NodeRole)                                           \
    X(NUMBER, origin)                                                                              \
    X(NUMBER, waits)
MESSAGE(status, Status, STATUS, STATUS_FIELDS)

static void put_rows(const struct tw_msg_peers *from, Thinwire__Peers *to, struct out *out) {
    for (uint32_t i = 0; i < from->count; i++) {
        Thinwire__MemberRow *const row = out->of.peers.list[i] = &out->of.peers.rows[i];
        thinwire__member_row__init(row);
        row->id = borrow(from->rows[i].id.bytes, sizeof(from->rows[i].id.bytes));
        row->addrs = out->of.peers.addrs[i];
        for (uint32_t k = 0; k < TW_ADDRS_MAX; k++) {
            const char *addr = from->rows[i].addrs[k];
            if (addr[0] != '\0') row->addrs[row->n_addrs++] = borrow(addr, strlen(addr));
        }
    }
    to->n_records = from->count;
    to->records = out->of.peers.list;
}

static enum tw_status get_rows(const Thinwire__Peers *from, struct tw_msg_peers *to,
                               struct tw_error *err) {
    TW_TRY(check_count("records", from->n_records, TW_MEMBER_ROWS_PER_MESSAGE, err));
    to->count = (uint32_t)from->n_records;
    for (size_t i = 0; i < from->n_records; i++) {
        const Thinwire__MemberRow *row = from->records[i];
        TW_TRY(get_bytes("records.id", &row->id, to->rows[i].id.bytes, 32, err));
        TW_TRY(check_count("records.addrs", row->n_addrs, TW_ADDRS_MAX, err));
        for (size_t k = 0; k < row->n_addrs; k++)
            TW_TRY(get_addr("records.addrs", &row->addrs[k], to->rows[i].addrs[k], err));
    }
    return TW_OK;
}

#define PEERS_FIELDS(X) X(BY, rows)
MESSAGE(peers, Peers, PEERS, PEERS_FIELDS)

#define LEAVE_FIELDS(X) X(NUMBER, reason)
MESSAGE(leave, Leave, LEAVE, LEAVE_FIELDS)

#define JOIN_FIELDS(X)                                                                             \
    X(ID, lineage) X(NUMBER, rounds) X(NUMBER, nonce) X(NUMBER, weight) X(BYTES, signature)
MESSAGE(join, Join, JOIN, JOIN_FIELDS)

/* ---- contributions and results -------------------------------------------------------------- */

static void put_parts(const struct tw_msg_contrib *from, Thinwire__Contrib *to, struct out *out) {
    for (uint32_t k = 0; k < from->parts_count; k++) {
        Thinwire__ContribPart *const part = out->of.contrib.list[k] = &out->of.contrib.parts[k];
        thinwire__contrib_part__init(part);
        part->hash = borrow(from->hashes[k].bytes, sizeof(from->hashes[k].bytes));
        part->bytes = from->bytes[k];
    }
    to->n_parts = from->parts_count;
    to->parts = out->of.contrib.list;
}

static enum tw_status get_parts(const Thinwire__Contrib *from, struct tw_msg_contrib *to,
                                struct tw_error *err) {
    TW_TRY(check_count("parts", from->n_parts, TW_PARTS_MAX, err));
    to->parts_count = (uint32_t)from->n_parts;
    for (size_t k = 0; k < from->n_parts; k++) {
        to->bytes[k] = from->parts[k]->bytes;
        TW_TRY(get_bytes("parts.hash", &from->parts[k]->hash, to->hashes[k].bytes, 32, err));
    }
    return TW_OK;
}

#define CONTRIB_FIELDS(X)                                                                          \
    X(BY, parts)                                                                                   \
    X(ID, lineage)                                                                                 \
    X(NUMBER, round)                                                                               \
    X(BYTES_AS, base_digest, base.bytes)                                                           \
    X(NUMBER, tokens)                                                                              \
    X(NUMBER, fragment_tokens)                                                                     \
    X(NUMBER, fragment_steps)                                                                      \
    X(NUMBER, cursor)                                                                              \
    X(NUMBER, crew_count)                                                                          \
    X(BYTES_OR_NONE_AS, crew_root, crew_root.bytes)                                                \
    X(BYTES_OR_NONE, signature)
MESSAGE(contrib, Contrib, CONTRIB, CONTRIB_FIELDS)

#define GATHER_FIELDS(X) X(ID, lineage) X(NUMBER, round)
MESSAGE(gather, Gather, GATHER, GATHER_FIELDS)

static void put_crew(const struct tw_msg_crew *from, Thinwire__Crew *to, struct out *out) {
    for (uint32_t i = 0; i < from->rows_count; i++) {
        Thinwire__CrewRow *const row = out->of.crew.list[i] = &out->of.crew.rows[i];
        thinwire__crew_row__init(row);
        row->key = from->rows[i].key;
        row->leaf = borrow(from->rows[i].leaf.bytes, sizeof(from->rows[i].leaf.bytes));
    }
    to->n_rows = from->rows_count;
    to->rows = out->of.crew.list;
}

static enum tw_status get_crew(const Thinwire__Crew *from, struct tw_msg_crew *to,
                               struct tw_error *err) {
    TW_TRY(check_count("rows", from->n_rows, TW_CREW_MAX, err));
    to->rows_count = (uint32_t)from->n_rows;
    for (size_t i = 0; i < from->n_rows; i++) {
        to->rows[i].key = from->rows[i]->key;
        TW_TRY(get_bytes("rows.leaf", &from->rows[i]->leaf, to->rows[i].leaf.bytes, 32, err));
    }
    return TW_OK;
}

#define CREW_FIELDS(X) X(BY, crew) X(ID, lineage) X(NUMBER, round) X(ID, head) X(ID, parts_root)
MESSAGE(crew, Crew, CREW, CREW_FIELDS)

#define CREW_GET_FIELDS(X) X(ID, lineage) X(NUMBER, round) X(ID, head) X(ID, root)
MESSAGE(crew_get, CrewGet, CREW_GET, CREW_GET_FIELDS)

#define CONTRIBUTOR_FIELDS(X)                                                                      \
    X(NUMBER, member_idx)                                                                          \
    X(NUMBER, fragment_steps)                                                                      \
    X(NUMBER, tokens)                                                                              \
    X(NUMBER, fragment_tokens)                                                                     \
    X(ID, root)                                                                                    \
    X(BYTES_OR_NONE, signature)

static Thinwire__Contributor contributor_of(const struct tw_contributor *from) {
    Thinwire__Contributor to = THINWIRE__CONTRIBUTOR__INIT;
    CONTRIBUTOR_FIELDS(PUT)
    return to;
}

static void put_contributors(const struct tw_msg_result *from, Thinwire__Result *to,
                             struct out *out) {
    for (uint32_t i = 0; i < from->contributors_count; i++) {
        out->of.result.contributors[i] = contributor_of(&from->contributors[i]);
        out->of.result.list[i] = &out->of.result.contributors[i];
    }
    to->n_contributors = from->contributors_count;
    to->contributors = out->of.result.list;
}

static enum tw_status get_contributor(const Thinwire__Contributor *from, struct tw_contributor *to,
                                      struct tw_error *err) {
    CONTRIBUTOR_FIELDS(GET)
    return TW_OK;
}

static enum tw_status get_contributors(const Thinwire__Result *from, struct tw_msg_result *to,
                                       struct tw_error *err) {
    TW_TRY(check_count("contributors", from->n_contributors, TW_MEMBERS_MAX, err));
    to->contributors_count = (uint32_t)from->n_contributors;
    for (size_t i = 0; i < from->n_contributors; i++)
        TW_TRY(get_contributor(from->contributors[i], &to->contributors[i], err));
    return TW_OK;
}

#define RESULT_FIELDS(X)                                                                           \
    X(BY, contributors)                                                                            \
    X(ID, lineage)                                                                                 \
    X(NUMBER, round)                                                                               \
    X(NUMBER, part)                                                                                \
    X(NUMBER, bytes)                                                                               \
    X(ID, hash)                                                                                    \
    X(NUMBER, refused)                                                                             \
    X(BYTES_OR_NONE, signature)
MESSAGE(result, Result, RESULT, RESULT_FIELDS)

/* ---- decisions ------------------------------------------------------------------------------ */

#define PREPARE_FIELDS(X) X(ID, lineage) X(NUMBER, round) X(NUMBER, ballot)
MESSAGE(prepare, Prepare, PREPARE, PREPARE_FIELDS)

/* The record of a lock is present if the lock is. */
static void put_locked(const struct tw_msg_promise *from, Thinwire__Promise *to, struct out *out) {
    if (from->lock.ballot != 0) to->locked = borrow_record(out, &from->locked);
}

static enum tw_status get_locked(const Thinwire__Promise *from, struct tw_msg_promise *to,
                                 struct tw_error *err) {
    if (from->lock.len == 0) return TW_OK;
    return tw_record_decode(from->locked.data, from->locked.len, &to->locked, err);
}

#define PROMISE_FIELDS(X)                                                                          \
    X(ID, lineage)                                                                                 \
    X(NUMBER, round)                                                                               \
    X(NUMBER, ballot)                                                                              \
    X(BYTES, signature)                                                                            \
    X(PROOF, lock)                                                                                 \
    X(BY, locked)
MESSAGE(promise, Promise, PROMISE, PROMISE_FIELDS)

static void put_promises(const struct tw_msg_propose *from, Thinwire__Propose *to,
                         struct out *out) {
    uint8_t *const bytes = room_for(out, TW_PROMISES_BYTES_MAX);
    to->promises = borrow_room(out, tw_promises_encode(&from->promises, bytes));
}

static enum tw_status get_promises(const Thinwire__Propose *from, struct tw_msg_propose *to,
                                   struct tw_error *err) {
    if (from->promises.len == 0) return TW_OK;
    return tw_promises_decode(from->promises.data, from->promises.len, &to->promises, err);
}

static void put_joins(const struct tw_msg_propose *from, Thinwire__Propose *to, struct out *out) {
    (void)out;
    to->joins = borrow(from->joins, from->joins_count * sizeof(from->joins[0]));
}

static enum tw_status get_joins(const Thinwire__Propose *from, struct tw_msg_propose *to,
                                struct tw_error *err) {
    if (from->joins.len % TW_SIGNATURE_BYTES != 0 || from->joins.len > sizeof(to->joins))
        return tw_fail(err, TW_PROTO, "PROPOSE with joins of %zu bytes", from->joins.len);
    to->joins_count = (uint32_t)(from->joins.len / TW_SIGNATURE_BYTES);
    if (to->joins_count > 0) memcpy(to->joins, from->joins.data, from->joins.len);
    return TW_OK;
}

/* The signatures of the parts that are not ABSENT, in part order. A proposal with a lock has none.
 */
static void put_results(const struct tw_msg_propose *from, Thinwire__Propose *to, struct out *out) {
    uint8_t *const bytes = room_for(out, TW_PARTS_MAX * TW_SIGNATURE_BYTES);
    size_t size = 0;
    for (uint32_t k = 0; k < from->record.parts_count && from->lock.ballot == 0; k++) {
        if (from->record.parts[k].bytes == 0) continue;
        memcpy(bytes + size, from->results[k], TW_SIGNATURE_BYTES);
        size += TW_SIGNATURE_BYTES;
    }
    to->results = borrow_room(out, size);
}

static enum tw_status get_results(const Thinwire__Propose *from, struct tw_msg_propose *to,
                                  struct tw_error *err) {
    size_t at = 0;
    for (uint32_t k = 0; k < to->record.parts_count && to->lock.ballot == 0; k++) {
        if (to->record.parts[k].bytes == 0) continue;
        if (from->results.len - at < TW_SIGNATURE_BYTES)
            return tw_fail(err, TW_PROTO, "PROPOSE with too few signatures of results");
        memcpy(to->results[k], from->results.data + at, TW_SIGNATURE_BYTES);
        at += TW_SIGNATURE_BYTES;
    }
    if (at < from->results.len)
        return tw_fail(err, TW_PROTO, "PROPOSE with too many signatures of results");
    return TW_OK;
}

#define PROPOSE_FIELDS(X)                                                                          \
    X(NUMBER, ballot)                                                                              \
    X(BY, promises)                                                                                \
    X(PROOF, lock)                                                                                 \
    X(RECORD, record)                                                                              \
    X(BY, joins)                                                                                   \
    X(BY, results)
MESSAGE(propose, Propose, PROPOSE, PROPOSE_FIELDS)

#define ACCEPT_FIELDS(X)                                                                           \
    X(ID, lineage)                                                                                 \
    X(NUMBER, round)                                                                               \
    X(NUMBER, ballot)                                                                              \
    X(ENUM, phase, enum tw_vote_phase, uint32_t)                                                   \
    X(ID, digest)                                                                                  \
    X(BYTES, signature)
MESSAGE(accept, Accept, ACCEPT, ACCEPT_FIELDS)

#define LOCK_FIELDS(X) X(ID, lineage) X(NUMBER, round) X(ID, digest) X(PROOF, proof)
MESSAGE(lock, Lock, LOCK, LOCK_FIELDS)

#define EVIDENCE_FIELDS(X)                                                                         \
    X(ID, author)                                                                                  \
    X(ID, lineage)                                                                                 \
    X(NUMBER, round)                                                                               \
    X(NUMBER, nonce)                                                                               \
    X(NUMBER, ballot)                                                                              \
    X(ENUM, phase, enum tw_vote_phase, uint32_t)                                                   \
    X(NUMBER_AS, first_lock, first.lock_ballot)                                                    \
    X(BYTES_AS, first_digest, first.digest.bytes)                                                  \
    X(BYTES_AS, first_signature, first.signature)                                                  \
    X(NUMBER_AS, second_lock, second.lock_ballot)                                                  \
    X(BYTES_AS, second_digest, second.digest.bytes)                                                \
    X(BYTES_AS, second_signature, second.signature)
MESSAGE(evidence, Evidence, EVIDENCE, EVIDENCE_FIELDS)

#define NACK_FIELDS(X) X(ID, lineage) X(NUMBER, round) X(NUMBER, promised) X(NUMBER, refused_parts)
MESSAGE(nack, Nack, NACK, NACK_FIELDS)

#define COMMIT_FIELDS(X) X(PROOF, proof) X(RECORD, record)
MESSAGE(commit, Commit, COMMIT, COMMIT_FIELDS)

#define ACCUSE_FIELDS(X) X(ID, lineage) X(NUMBER, round) X(NUMBER, part) X(NUMBER, trainer)
MESSAGE(accuse, Accuse, ACCUSE, ACCUSE_FIELDS)

/* ---- history, state, payloads --------------------------------------------------------------- */

#define LOG_GET_FIELDS(X) X(ID, lineage) X(NUMBER, round)
MESSAGE(log_get, LogGet, LOG_GET, LOG_GET_FIELDS)

#define LOG_NONE_FIELDS(X) X(ID, lineage) X(NUMBER, oldest_round) X(NUMBER, rounds)
MESSAGE(log_none, LogNone, LOG_NONE, LOG_NONE_FIELDS)

#define STATE_GET_FIELDS(X)                                                                        \
    X(ID, lineage)                                                                                 \
    X(NUMBER, fragment)                                                                            \
    X(ID, digest)                                                                                  \
    X(BYTES_OR_NONE_AS, wanted, wanted.bytes)                                                      \
    X(NUMBER, rounds)
MESSAGE(state_get, StateGet, STATE_GET, STATE_GET_FIELDS)

#define STATE_FIELDS(X)                                                                            \
    X(ID, lineage)                                                                                 \
    X(NUMBER, fragment) X(NUMBER, rounds) X(ID, digest) X(ID, hash) X(NUMBER, bytes)
MESSAGE(state, State, STATE, STATE_FIELDS)

#define PULL_FIELDS(X) X(ID, hash) X(NUMBER, first) X(NUMBER, count)
MESSAGE(pull, Pull, PULL, PULL_FIELDS)

#define MISSING_FIELDS(X) X(ID, hash) X(NUMBER, retry_s)
MESSAGE(missing, Missing, MISSING, MISSING_FIELDS)

/* ---- pairs ---------------------------------------------------------------------------------- */

#define PAIR_FIELDS(X) X(NUMBER_AS, pair_high, pair.high) X(NUMBER_AS, pair_low, pair.low)
MESSAGE(pair_busy, PairBusy, PAIR_BUSY, PAIR_FIELDS)

#define PAIR_ACCEPT_FIELDS(X) PAIR_FIELDS(X) X(NUMBER, wants_whole)
MESSAGE(pair_accept, PairAccept, PAIR_ACCEPT, PAIR_ACCEPT_FIELDS)

#define PAIR_REQUEST_FIELDS(X) PAIR_ACCEPT_FIELDS(X) X(NUMBER, fragment)
MESSAGE(pair_request, PairRequest, PAIR_REQUEST, PAIR_REQUEST_FIELDS)

#define PAIR_OFFER_FIELDS(X)                                                                       \
    PAIR_FIELDS(X)                                                                                 \
    X(NUMBER, clock_tokens)                                                                        \
    X(ID, delta_hash)                                                                              \
    X(NUMBER, delta_bytes)                                                                         \
    X(ID, phi_hash)                                                                                \
    X(NUMBER, phi_bytes)
MESSAGE(pair_offer, PairOffer, PAIR_OFFER, PAIR_OFFER_FIELDS)

/* ---- links ---------------------------------------------------------------------------------- */

#define PROBE_FIELDS(X) X(NUMBER, token)
MESSAGE(probe, Probe, PROBE, PROBE_FIELDS)

#define PROBED_FIELDS(X)                                                                           \
    X(NUMBER, token) X(ENUM, outcome, enum tw_probe_outcome, uint32_t) X(ADDR, addr)
MESSAGE(probed, Probed, PROBED, PROBED_FIELDS)

static void put_ids(const struct tw_msg_links *from, Thinwire__Links *to, struct out *out) {
    ProtobufCBinaryData *const direct = out->of.links.direct, *const relayed =
                                                                  out->of.links.relayed;
    for (uint32_t i = 0; i < from->direct_count; i++)
        direct[i] = borrow(from->direct[i].bytes, sizeof(from->direct[i].bytes));
    for (uint32_t i = 0; i < from->relayed_count; i++)
        relayed[i] = borrow(from->relayed[i].bytes, sizeof(from->relayed[i].bytes));
    to->n_direct = from->direct_count;
    to->direct = direct;
    to->n_relayed = from->relayed_count;
    to->relayed = relayed;
}

static enum tw_status get_ids(const Thinwire__Links *from, struct tw_msg_links *to,
                              struct tw_error *err) {
    TW_TRY(check_count("direct", from->n_direct, TW_PEERS_MAX, err));
    TW_TRY(check_count("relayed", from->n_relayed, TW_PEERS_MAX, err));
    to->direct_count = (uint32_t)from->n_direct;
    to->relayed_count = (uint32_t)from->n_relayed;
    for (size_t i = 0; i < from->n_direct; i++)
        TW_TRY(get_bytes("direct", &from->direct[i], to->direct[i].bytes, 32, err));
    for (size_t i = 0; i < from->n_relayed; i++)
        TW_TRY(get_bytes("relayed", &from->relayed[i], to->relayed[i].bytes, 32, err));
    return TW_OK;
}

#define LINKS_FIELDS(X) X(NUMBER, is_relay) X(BY, ids)
MESSAGE(links, Links, LINKS, LINKS_FIELDS)

#define RELAY_CALL_FIELDS(X) X(ID, from) X(BYTES, token)
MESSAGE(relay_call, RelayCall, RELAY_CALL, RELAY_CALL_FIELDS)

#define PUNCH_FIELDS(X)                                                                            \
    X(ENUM, stage, enum tw_punch_stage, uint32_t)                                                  \
    X(NUMBER, token)                                                                               \
    X(ADDR_OR_NONE, bulk)                                                                          \
    X(ADDR, control)
MESSAGE(punch, Punch, PUNCH, PUNCH_FIELDS)

/* ---- bodies --------------------------------------------------------------------------------- */

enum tw_status tw_control_encode(const struct tw_message *message, uint8_t *body, size_t capacity,
                                 size_t *size_out, struct tw_error *err) {
    struct out out;
    enum tw_status status = TW_PROTO;
    TW_ASSERT(tw_message_check(message, NULL) == TW_OK);
    out.body = body;
    out.capacity = capacity;
    out.size = out.bytes_used = 0;
    switch (message->kind) {
#define X(name, value, member)                                                                     \
    case TW_MSG_##name: status = encode_##member(&message->u.member, &out, err); break;
        TW_MESSAGE_LIST(X)
#undef X
    }
    *size_out = out.size;
    return status;
}

static const ProtobufCMessageDescriptor *descriptor_of(uint16_t kind) {
    switch (kind) {
#define X(name, value, member)                                                                     \
    case TW_MSG_##name: return &thinwire__##member##__descriptor;
        TW_MESSAGE_LIST(X)
#undef X
    default: return NULL;
    }
}

static enum tw_status decode(const void *unpacked, struct tw_message *to, struct tw_error *err) {
    switch (to->kind) {
#define X(name, value, member)                                                                     \
    case TW_MSG_##name: return decode_##member(unpacked, &to->u.member, err);
        TW_MESSAGE_LIST(X)
#undef X
    }
    return TW_PROTO;
}

enum { ARENA_FACTOR = 4, ARENA_EXTRA = 16 * 1024, ARENA_ALIGN = 16 };

/* Bump allocator; freeing does nothing. */
struct arena {
    size_t used, limit; /* both are multiples of ARENA_ALIGN */
    alignas(ARENA_ALIGN) uint8_t bytes[ARENA_FACTOR * TW_CONTROL_BYTES_MAX + ARENA_EXTRA];
};

static void *arena_alloc(void *user, size_t size) {
    struct arena *arena = user;
    if (size > arena->limit - arena->used) return NULL; /* rounding up cannot exceed the limit */
    const size_t rounded = (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    void *memory = arena->bytes + arena->used;
    arena->used += rounded;
    TW_ASSERT(arena->used <= arena->limit);
    return memory;
}

static void arena_free(void *user, void *memory) {
    (void)user;
    (void)memory;
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
    TW_TRY(decode(unpacked, &decoded, err));
    TW_TRY(tw_message_check(&decoded, err));
    *message = decoded;
    return TW_OK;
}
