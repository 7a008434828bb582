/* audit.c - audits: checks that a result is the merge of its listed contributions.
 *
 * A merge gives the same bits on every machine. The record and CONTRIB name the contributions by
 * hash. Every member of the round can therefore repeat a merge. After each commit, the hash of the
 * record selects one part in sixteen, and the member that audits it. The selection is not known
 * before the result is decided.
 *
 * A result that this node refuses for its size proves nothing against its owner: merges are large
 * if few members were in time, if the machines slept, or if this node compares with another
 * history. So this node audits it. The owner of a false merge is struck; an honest owner loses the
 * strike that the size alone gave it. One such audit runs in DOUBT_ROUNDS rounds, so that members
 * with large work cost no more than the drawn audits.
 *
 *   IDLE -> FETCHING     the record's hash selects this node, another member sent ACCUSE, or this
 *                        node refuses a result
 *   FETCHING -> MERGING  this node holds all contributions to the part
 *   MERGING -> IDLE      same hash: the owner is honest. Another hash: the owner is struck; unless
 *                        another member accused it, this node sends ACCUSE
 *   any -> IDLE          a contribution is lost, the worker died, or it takes too long: no verdict,
 *                        no strike
 *
 * A member audits a part only if the owner itself announced to it the result and contributions of
 * the record. In a round that stays open for long, a record may be accepted with results that no
 * owner announced (proposal_check.c). An honest owner must not be struck for them.
 *
 * An accusation only tells where to look. A false one costs every member a merge, so its sender is
 * ignored for a while. One audit runs at a time, and one accusation may wait. */
#include "sync/check/audit.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "sync/check/proposal_check.h"
#include "sync/core/actions.h"
#include "sync/core/peers.h"
#include "sync/core/progress.h"
#include "sync/core/state/node.h"
#include "sync/round/contributor.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"
#include "sync/trust/conduct.h"

enum {
    AUDIT_ONE_IN = 16, /* one part in this many is audited, by one member */
    DOUBT_ROUNDS = 16, /* rounds between two audits of refused results */
};

#define IGNORE_US (600 * SECOND_US) /* time for which a false accuser is ignored */
#define AUDIT_KEEP_US (10 * SECOND_US)
#define AUDIT_PATIENCE_US (120 * SECOND_US)

/* True if the owner of part k announced to this node the same result and contributions that the
 * record lists. */
static bool is_announced(const struct tw_node *node, const struct tw_record *record, uint32_t k) {
    const struct tw_msg_result *announced = &node->round.results[k].announced;
    if (!node->round.results[k].has || tw_proposal_is_rigged_part(node, record, k)) return false;
    for (uint32_t i = 0; i < announced->contributors_count; i++) {
        const struct tw_contributor *by = &announced->contributors[i];
        const struct tw_contributor *row = tw_contributor_row(record, by->member_idx);
        if (row == NULL || !tw_id_equal(&row->root, &by->root) ||
            row->fragment_tokens != by->fragment_tokens ||
            row->fragment_steps != by->fragment_steps)
            return false;
    }
    return true;
}

static void remember_round(struct tw_node *node, const struct tw_record *record) {
    const struct round *round = &node->round;
    struct past_round *past = &node->audits.past[record->round % AUDIT_ROUNDS];
    past->round = record->round + 1;
    past->roster = node->roster;
    memcpy(past->begin, round->begin, sizeof(past->begin));
    memcpy(past->count, round->count, sizeof(past->count));
    memcpy(past->contributions, round->contributions, sizeof(past->contributions));
    past->announced = 0;
    for (uint32_t k = 0; k < record->parts_count; k++)
        past->announced |= (uint32_t)is_announced(node, record, k) << k;
}

const struct past_round *tw_audit_past(const struct tw_node *node, uint64_t round) {
    const struct past_round *past = &node->audits.past[round % AUDIT_ROUNDS];
    return past->round == round + 1 ? past : NULL;
}

/* Adds the contribution of a listed contributor to the inputs of the audit. Returns false if this
 * node did not receive its CONTRIB, or if the record lists it with other hashes or counts. */
static bool add_input(struct audit *audit, const struct past_round *past,
                      const struct tw_contributor *by) {
    const struct contribution *heard = &past->contributions[by->member_idx];
    if (!heard->has) return false;
    /* The record has one row per contributor, from the first owner that lists it. Even if that row
     * is wrong, the other owners may have merged the contribution that its CONTRIB announced. The
     * row proves nothing against them. */
    if (!tw_contributor_is_of(heard, by) || heard->announced.bytes[audit->part] == 0) return false;
    audit->inputs[audit->inputs_count++] =
        (struct audit_input){.from = past->roster.members[by->member_idx].id,
                             .hash = heard->announced.hashes[audit->part],
                             .bytes = heard->announced.bytes[audit->part],
                             .tokens = by->fragment_tokens,
                             .steps = by->fragment_steps};
    return true;
}

static struct audit audit_of(const struct tw_node *node, const struct past_round *past,
                             const struct tw_record *record, uint32_t part,
                             const struct tw_id *result) {
    TW_ASSERT(record->parts[part].owner_idx < past->roster.count);
    return (struct audit){.round = record->round,
                          .part = part,
                          .fragment = record->fragment,
                          .begin = past->begin[part],
                          .count = past->count[part],
                          .owner = past->roster.members[record->parts[part].owner_idx].id,
                          .result = *result,
                          .began_us = node->now_us};
}

/* Starts the audit of a part of a committed round. Stays idle if this node cannot audit it. */
static void begin_audit(struct tw_node *node, uint64_t round, uint32_t part) {
    struct audit *audit = &node->audits.running;
    const struct tw_record *record = tw_progress_record(node, round);
    const struct past_round *past = tw_audit_past(node, round);
    if (record == NULL || past == NULL || part >= record->parts_count) return;
    const struct tw_part *what = &record->parts[part];
    if (what->bytes == 0 || what->owner_idx >= past->roster.count) return;
    if ((past->announced >> part & 1) == 0) return;
    *audit = audit_of(node, past, record, part, &what->result);
    if (tw_id_equal(&audit->owner, &node->cfg.self)) return;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const struct tw_contributor *by = &record->contributors[i];
        if ((what->contributors >> by->member_idx & 1) == 0) continue;
        if (by->member_idx >= past->roster.count || !add_input(audit, past, by)) return;
    }
    if (audit->inputs_count > 0) audit->phase = AUDIT_FETCHING;
}

/* Starts the audit of the result that the owner of part k announced for the open round, by the
 * owner's own list of contributors. */
static void begin_announced(struct tw_node *node, const struct tw_record *record, uint32_t k) {
    struct audit *audit = &node->audits.running;
    const struct past_round *past = tw_audit_past(node, record->round);
    const struct tw_msg_result *announced = &node->round.results[k].announced;
    TW_ASSERT(past != NULL);
    *audit = audit_of(node, past, record, k, &announced->hash);
    if (tw_id_equal(&audit->owner, &node->cfg.self)) return;
    audit->is_unlisted =
        record->parts[k].bytes == 0 || !tw_id_equal(&record->parts[k].result, &announced->hash);
    for (uint32_t i = 0; i < announced->contributors_count; i++) {
        const struct tw_contributor *by = &announced->contributors[i];
        if (by->member_idx >= past->roster.count || !add_input(audit, past, by)) return;
    }
    if (audit->inputs_count > 0) audit->phase = AUDIT_FETCHING;
}

void tw_audit_note(struct tw_node *node, const struct tw_record *record) {
    if (record->parts_count == 0 || node->round.self_idx < 0) return;
    remember_round(node, record);
}

/* True if this node may start an audit of a result that it refuses. */
static bool may_doubt(const struct tw_node *node, uint64_t round) {
    return node->audits.running.phase == AUDIT_IDLE && round >= node->audits.doubt_round;
}

/* Notes the round of an audit that has just begun, if it has. */
static void note_doubt(struct tw_node *node, uint64_t round) {
    if (node->audits.running.phase != AUDIT_IDLE) node->audits.doubt_round = round + DOUBT_ROUNDS;
}

void tw_audit_refused(struct tw_node *node, const struct tw_record *record) {
    const struct round *round = &node->round;
    if (tw_audit_past(node, record->round) == NULL) return;
    if (record->parts_count != round->owners_count) return;
    for (uint32_t i = 0; i < record->parts_count && may_doubt(node, record->round); i++) {
        /* Another part comes first in each round: a false result cannot hide behind others. */
        const uint32_t k = (uint32_t)((record->round + i) % record->parts_count);
        const struct tw_id *hash = &round->results[k].announced.hash;
        if (!round->results[k].has || round->results[k].announced.bytes == 0) continue;
        if (round->owners[k] != record->parts[k].owner_idx ||
            record->parts[k].owner_idx >= node->roster.count ||
            !tw_payload_is_refused(node, hash, round->count[k]) || !tw_payload_is_held(node, hash))
            continue;
        begin_announced(node, record, k);
        note_doubt(node, record->round);
    }
}

void tw_audit_doubt(struct tw_node *node, uint64_t round, uint32_t part) {
    if (!may_doubt(node, round)) return;
    begin_audit(node, round, part);
    note_doubt(node, round);
}

void tw_audit_choose(struct tw_node *node, uint64_t round) {
    const struct past_round *past = tw_audit_past(node, round);
    const struct tw_record *record = tw_progress_record(node, round);
    if (past == NULL || record == NULL || node->audits.running.phase != AUDIT_IDLE) return;
    uint8_t bytes[20 + 32 + 4] = "thinwire-audit-v1";
    memcpy(bytes + 20, node->tip_digest.bytes, 32);
    for (uint32_t k = 0; k < record->parts_count; k++) {
        tw_put_u32(bytes + 52, k);
        const struct tw_id drawn = tw_sha256(bytes, sizeof(bytes));
        if (drawn.bytes[0] % AUDIT_ONE_IN != 0) continue;
        const uint32_t member = tw_get_u32(drawn.bytes + 4) % past->roster.count;
        if (!tw_id_equal(&past->roster.members[member].id, &node->cfg.self)) continue;
        begin_audit(node, round, k);
        if (node->audits.running.phase != AUDIT_IDLE) return;
    }
}

void tw_audit_accuse(struct tw_node *node, uint16_t peer, const struct tw_msg_accuse *accuse) {
    const struct link *link = &node->links[peer];
    if (!tw_id_equal(&accuse->lineage, &node->at.lineage)) return;
    if (node->now_us < link->ignored_until_us) return;
    if (tw_roster_find(&node->roster, &link->id) < 0) return;
    const struct past_round *past = tw_audit_past(node, accuse->round);
    if (past == NULL) return;
    if (TW_IS_MUTANT(node, TW_MUTANT_ACCUSER_BELIEVED)) {
        const struct tw_record *record = tw_progress_record(node, accuse->round);
        if (record != NULL && accuse->part < record->parts_count)
            tw_conduct_strike(node, &past->roster.members[record->parts[accuse->part].owner_idx].id,
                              true, accuse->round, accuse->part);
    }
    if (node->audits.hint.is_there) return;
    node->audits.hint.is_there = true;
    node->audits.hint.accuser = link->id;
    node->audits.hint.round = accuse->round;
    node->audits.hint.part = accuse->part;
}

static void send_accusation(struct tw_node *node) {
    struct tw_message *message = tw_act_message(node, TW_MSG_ACCUSE);
    if (message == NULL) return;
    message->u.accuse = (struct tw_msg_accuse){.lineage = node->at.lineage,
                                               .round = node->audits.running.round,
                                               .part = node->audits.running.part};
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_in_lineage(node, i) &&
            !tw_id_equal(&node->links[i].id, &node->audits.running.owner))
            tw_act_send(node, message, i);
    }
}

/* Ignores the sender of a false accusation for a while. */
static void ignore_accuser(struct tw_node *node) {
    const uint16_t peer = tw_peers_find(node, &node->audits.running.accuser);
    if (peer == NO_PEER) return;
    node->links[peer].ignored_until_us = node->now_us + IGNORE_US;
    tw_act_accuse(node, &node->audits.running.accuser, TW_CORRUPT);
}

/* Reports the members whose work alone makes an honest merge far larger than the usual ones. */
static void report_large(struct tw_node *node, uint64_t inputs) {
    const struct audit *audit = &node->audits.running;
    for (uint32_t i = 0; i < audit->inputs_count; i++) {
        if ((inputs >> i & 1) != 0 && !tw_id_equal(&audit->inputs[i].from, &node->cfg.self))
            tw_act_report(node, TW_REPORT_LARGE, &audit->inputs[i].from);
    }
}

void tw_audit_reduced(struct tw_node *node, const struct tw_event *event) {
    struct audit *audit = &node->audits.running;
    const bool is_now = audit->phase == AUDIT_MERGING && event->u.reduced.round == audit->round &&
                        event->u.reduced.part == audit->part;
    const bool is_same = event->ok && tw_id_equal(&event->u.reduced.hash, &audit->result);
    /* The merged bytes are dropped unless they are a payload in use, such as the result itself. */
    const struct payload *known = tw_payload_find(node, &event->u.reduced.hash);
    if (event->ok)
        tw_payload_hold(node, &event->u.reduced.hash, event->u.reduced.bytes,
                        known != NULL ? known->content : TW_CONTENT_OPAQUE,
                        known != NULL ? known->elements : 0, 0);
    if (!is_now) return;
    audit->phase = AUDIT_IDLE;
    if (!event->ok) return;
    node->audits.done_count++;
    if (is_same && audit->is_hinted) ignore_accuser(node);
    if (is_same) {
        tw_conduct_pardon(node, &audit->owner, audit->round, audit->part);
        report_large(node, event->u.reduced.refused);
        return;
    }
    tw_conduct_strike(node, &audit->owner, true, audit->round, audit->part);
    if (!audit->is_hinted && !audit->is_unlisted) send_accusation(node);
}

/* Fetches missing contributions. Returns true when this node holds all of them. */
static bool fetch_inputs(struct tw_node *node) {
    struct audit *audit = &node->audits.running;
    bool is_complete = true;
    for (uint32_t i = 0; i < audit->inputs_count; i++) {
        const struct audit_input *input = &audit->inputs[i];
        struct payload *payload =
            tw_payload_want(node, &input->hash, input->bytes, TW_CONTENT_DELTA, audit->count);
        if (payload == NULL) return false;
        payload->from = input->from;
        payload->is_shared = true;
        if (payload->keep_us < node->now_us + AUDIT_KEEP_US)
            payload->keep_us = node->now_us + AUDIT_KEEP_US;
        if (tw_payload_is_lost(payload) ||
            !tw_payload_is_as(node, payload, TW_CONTENT_DELTA, audit->count)) {
            audit->phase = AUDIT_IDLE;
            return false;
        }
        is_complete &= payload->state == PAYLOAD_HELD;
    }
    return is_complete;
}

static void request_merge(struct tw_node *node) {
    struct audit *audit = &node->audits.running;
    struct tw_action *action = tw_act_body(node, TW_ACT_REDUCE);
    action->u.reduce.round = audit->round;
    action->u.reduce.fragment = audit->fragment;
    action->u.reduce.part = audit->part;
    action->u.reduce.begin = audit->begin;
    action->u.reduce.count = audit->count;
    action->u.reduce.is_audit = true;
    action->u.reduce.inputs_count = audit->inputs_count;
    for (uint32_t i = 0; i < audit->inputs_count; i++) {
        action->inputs[i] = audit->inputs[i].hash;
        action->u.reduce.inputs[i].tokens = audit->inputs[i].tokens;
        action->u.reduce.inputs[i].steps = audit->inputs[i].steps;
    }
    audit->phase = AUDIT_MERGING;
}

void tw_audit_forget(struct tw_node *node) {
    node->audits.running.phase = AUDIT_IDLE;
    node->audits.hint.is_there = false;
}

void tw_audit_advance(struct tw_node *node) {
    struct audit *audit = &node->audits.running;
    if (!node->worker.is_up || node->state == TW_STATE_RECEIVER) return;
    if (audit->phase == AUDIT_IDLE && node->audits.hint.is_there) {
        node->audits.hint.is_there = false;
        begin_audit(node, node->audits.hint.round, node->audits.hint.part);
        audit->is_hinted = true;
        audit->accuser = node->audits.hint.accuser;
    }
    if (audit->phase == AUDIT_IDLE) return;
    if (node->now_us >= audit->began_us + AUDIT_PATIENCE_US) {
        audit->phase = AUDIT_IDLE;
        return;
    }
    tw_act_wake(node, audit->began_us + AUDIT_PATIENCE_US);
    if (audit->phase == AUDIT_FETCHING && fetch_inputs(node)) request_merge(node);
}
