#include "proto/message.h"

#include <stdbool.h>
#include <string.h>

const char *tw_message_name(enum tw_message_kind kind) {
    switch (kind) {
#define X(name, value, member)                                                                     \
    case TW_MSG_##name: return #name;
        TW_MESSAGE_LIST(X)
#undef X
    }
    return "?";
}

/* Fails with the message kind and the field. */
static enum tw_status bad(const struct tw_message *message, const char *field,
                          struct tw_error *err) {
    return tw_fail(err, TW_PROTO, "message %s: field %s is out of bounds",
                   tw_message_name(message->kind), field);
}

/* Returns true if the address is visible ASCII, not empty, and ends with a NUL inside the array. */
static bool is_address(const char addr[TW_ADDR_BYTES]) {
    const char *end = memchr(addr, '\0', TW_ADDR_BYTES);
    if (end == NULL || end == addr) return false;
    for (const char *c = addr; c < end; c++) {
        if (*c <= ' ' || *c > '~') return false;
    }
    return true;
}

static enum tw_status check_punch(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_punch *punch = &message->u.punch;
    if ((unsigned)punch->stage >= TW_PUNCH_STAGES) return bad(message, "stage", err);
    if (!is_address(punch->control)) return bad(message, "control", err);
    const bool has_bulk = punch->stage != TW_PUNCH_SEEN;
    if (has_bulk ? !is_address(punch->bulk) : punch->bulk[0] != '\0')
        return bad(message, "bulk", err);
    return TW_OK;
}

static enum tw_status check_peers(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_peers *peers = &message->u.peers;
    if (peers->count > TW_MEMBER_ROWS_PER_MESSAGE) return bad(message, "records", err);
    for (uint32_t i = 0; i < peers->count; i++) {
        const struct tw_member_row *record = &peers->rows[i];
        if (tw_id_is_zero(&record->id)) return bad(message, "records.id", err);
        bool is_over = false;
        for (uint32_t k = 0; k < TW_ADDRS_MAX; k++) {
            const bool is_empty = record->addrs[k][0] == '\0';
            if (!is_empty && (is_over || !is_address(record->addrs[k])))
                return bad(message, "records.addrs", err);
            is_over = is_over || is_empty;
        }
    }
    return TW_OK;
}

static enum tw_status check_contrib(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_contrib *contrib = &message->u.contrib;
    if (contrib->parts_count == 0 || contrib->parts_count > TW_PARTS_MAX)
        return bad(message, "parts", err);
    if (contrib->crew_count > TW_CREW_MAX ||
        (contrib->crew_count == 0) != tw_id_is_zero(&contrib->crew_root))
        return bad(message, "crew_count", err);
    for (uint32_t k = 0; k < contrib->parts_count; k++) {
        if (contrib->bytes[k] > TW_PAYLOAD_BYTES_MAX) return bad(message, "parts.bytes", err);
    }
    return TW_OK;
}

static enum tw_status check_result(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_result *result = &message->u.result;
    const bool is_absent = result->bytes == 0;
    if (result->part >= TW_PARTS_MAX) return bad(message, "part", err);
    if (result->bytes > TW_PAYLOAD_BYTES_MAX) return bad(message, "bytes", err);
    if (tw_id_is_zero(&result->hash) != is_absent) return bad(message, "hash", err);
    if (result->contributors_count > TW_MEMBERS_MAX ||
        (result->contributors_count == 0) != is_absent)
        return bad(message, "contributors", err);
    for (uint32_t i = 0; i < result->contributors_count; i++) {
        const uint32_t idx = result->contributors[i].member_idx;
        if (idx >= TW_MEMBERS_MAX || (i > 0 && idx <= result->contributors[i - 1].member_idx))
            return bad(message, "contributors.member_idx", err);
        if ((result->refused >> idx & 1) != 0) return bad(message, "refused", err);
    }
    return TW_OK;
}

struct tw_part tw_result_part(const struct tw_msg_result *result) {
    struct tw_part part = {.bytes = result->bytes, .result = result->hash};
    for (uint32_t i = 0; i < result->contributors_count; i++)
        part.contributors |= UINT64_C(1) << result->contributors[i].member_idx;
    return part;
}

static enum tw_status check_promise(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_promise *promise = &message->u.promise;
    if (promise->lock.ballot == 0) return TW_OK;
    if (!tw_id_equal(&promise->locked.lineage, &promise->lineage) ||
        promise->locked.round != promise->round)
        return bad(message, "locked", err);
    return tw_record_check(&promise->locked, err);
}

/* A proposal with a lock must contain the promises that report it. */
static enum tw_status check_propose(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_propose *propose = &message->u.propose;
    if (propose->lock.ballot != 0 && propose->promises.voters == 0)
        return bad(message, "promises", err);
    if (propose->joins_count > (propose->lock.ballot != 0 ? 0 : TW_JOINS_MAX))
        return bad(message, "joins", err);
    return tw_record_check(&propose->record, err);
}

static enum tw_status check_accept(const struct tw_message *message, struct tw_error *err) {
    const enum tw_vote_phase phase = message->u.accept.phase;
    if (phase != TW_VOTE_ACCEPT && phase != TW_VOTE_COMMIT) return bad(message, "phase", err);
    return TW_OK;
}

static enum tw_status check_evidence(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_evidence *evidence = &message->u.evidence;
    const struct tw_statement *a = &evidence->first, *b = &evidence->second;
    const bool is_promise = evidence->phase == TW_VOTE_PROMISE;
    if ((unsigned)evidence->phase > TW_VOTE_RESULT) return bad(message, "phase", err);
    if (is_promise != (tw_id_is_zero(&a->digest) && tw_id_is_zero(&b->digest)))
        return bad(message, "digest", err);
    if (!is_promise && (a->lock_ballot != 0 || b->lock_ballot != 0))
        return bad(message, "lock", err);
    if (is_promise ? a->lock_ballot == b->lock_ballot : tw_id_equal(&a->digest, &b->digest))
        return bad(message, "statement", err);
    return TW_OK;
}

static enum tw_status check_state(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_state *state = &message->u.state;
    if (state->fragment >= TW_FRAGMENTS_MAX) return bad(message, "fragment", err);
    if (state->bytes > TW_PAYLOAD_BYTES_MAX) return bad(message, "bytes", err);
    if (tw_id_is_zero(&state->hash) != (state->bytes == 0)) return bad(message, "hash", err);
    return TW_OK;
}

static enum tw_status check_pull(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_pull *pull = &message->u.pull;
    if (pull->first >= TW_CHUNKS_MAX) return bad(message, "first", err);
    if (pull->count == 0 || pull->count > TW_CHUNKS_MAX - pull->first)
        return bad(message, "count", err);
    return TW_OK;
}

static enum tw_status check_pair_offer(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_pair_offer *offer = &message->u.pair_offer;
    if (offer->delta_bytes == 0 || offer->delta_bytes > TW_PAYLOAD_BYTES_MAX)
        return bad(message, "delta_bytes", err);
    if (offer->phi_bytes == 0 || offer->phi_bytes > TW_PAYLOAD_BYTES_MAX)
        return bad(message, "phi_bytes", err);
    return TW_OK;
}

static enum tw_status check_links(const struct tw_message *message, struct tw_error *err) {
    const struct tw_msg_links *links = &message->u.links;
    if (links->is_relay > 1) return bad(message, "is_relay", err);
    if (links->direct_count > TW_PEERS_MAX) return bad(message, "direct", err);
    if (links->relayed_count > TW_PEERS_MAX - links->direct_count)
        return bad(message, "relayed", err);
    return TW_OK;
}

enum tw_status tw_message_check(const struct tw_message *message, struct tw_error *err) {
    switch (message->kind) {
    case TW_MSG_STATUS:
        if ((unsigned)message->u.status.state > TW_STATE_FINISHED)
            return bad(message, "state", err);
        if ((unsigned)message->u.status.role > TW_NODE_ROLE_REDUCE)
            return bad(message, "role", err);
        return TW_OK;
    case TW_MSG_LEAVE:
        if (message->u.leave.reason > UINT8_MAX) return bad(message, "reason", err);
        return TW_OK;
    case TW_MSG_STATE_GET:
        if (message->u.state_get.fragment >= TW_FRAGMENTS_MAX) return bad(message, "fragment", err);
        return TW_OK;
    case TW_MSG_PEERS: return check_peers(message, err);
    case TW_MSG_CONTRIB: return check_contrib(message, err);
    case TW_MSG_RESULT: return check_result(message, err);
    case TW_MSG_PROMISE: return check_promise(message, err);
    case TW_MSG_PROPOSE: return check_propose(message, err);
    case TW_MSG_ACCEPT: return check_accept(message, err);
    case TW_MSG_EVIDENCE: return check_evidence(message, err);
    case TW_MSG_LOCK:
        if (message->u.lock.proof.ballot == 0) return bad(message, "proof", err);
        return TW_OK;
    case TW_MSG_COMMIT:
        if ((message->u.commit.proof.ballot == 0) != (message->u.commit.proof.voters == 0))
            return bad(message, "proof", err);
        return tw_record_check(&message->u.commit.record, err);
    case TW_MSG_STATE: return check_state(message, err);
    case TW_MSG_PULL: return check_pull(message, err);
    case TW_MSG_PAIR_REQUEST:
        if (message->u.pair_request.fragment >= TW_FRAGMENTS_MAX)
            return bad(message, "fragment", err);
        if (message->u.pair_request.wants_whole > 1) return bad(message, "wants_whole", err);
        return TW_OK;
    case TW_MSG_PAIR_ACCEPT:
        if (message->u.pair_accept.wants_whole > 1) return bad(message, "wants_whole", err);
        return TW_OK;
    case TW_MSG_PAIR_OFFER: return check_pair_offer(message, err);
    case TW_MSG_ACCUSE:
        if (message->u.accuse.part >= TW_PARTS_MAX) return bad(message, "part", err);
        if (message->u.accuse.trainer > TW_MEMBERS_MAX) return bad(message, "trainer", err);
        return TW_OK;
    case TW_MSG_NACK:
        if (message->u.nack.refused_parts >> TW_PARTS_MAX != 0)
            return bad(message, "refused_parts", err);
        return TW_OK;
    case TW_MSG_PROBED:
        if ((unsigned)message->u.probed.outcome >= TW_PROBE_OUTCOMES)
            return bad(message, "outcome", err);
        if (!is_address(message->u.probed.addr)) return bad(message, "addr", err);
        return TW_OK;
    case TW_MSG_LINKS: return check_links(message, err);
    case TW_MSG_RELAY_CALL:
        if (tw_id_is_zero(&message->u.relay_call.from)) return bad(message, "from", err);
        return TW_OK;
    case TW_MSG_PUNCH: return check_punch(message, err);
    case TW_MSG_PROBE:
    case TW_MSG_PAIR_BUSY:
    case TW_MSG_JOIN:
    case TW_MSG_PREPARE:
    case TW_MSG_LOG_GET:
    case TW_MSG_GATHER:
    case TW_MSG_CREW_GET:
    case TW_MSG_LOG_NONE: return TW_OK;
    case TW_MSG_CREW:
        if (message->u.crew.rows_count == 0 || message->u.crew.rows_count > TW_CREW_MAX)
            return bad(message, "rows", err);
        return TW_OK;
    case TW_MSG_MISSING:
        if (message->u.missing.retry_s > TW_RETRY_S_MAX) return bad(message, "retry_s", err);
        return TW_OK;
    }
    return tw_fail(err, TW_PROTO, "message kind %u is unknown", (unsigned)message->kind);
}
