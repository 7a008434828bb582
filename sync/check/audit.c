/* audit.c - findings of this node about others: stalls and strikes in the open round, audits
 * of merges, checks of training. */
#include "sync/check/audit.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/median.h"
#include "sync/check/veto.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/round/result.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"

/* ==== stalls and strikes of the open round ==================================================== */

/* True if the owner of part k lists contributors without their signatures, and did not answer this
 * node's question for them (vote/proposer.c). */
static bool is_withheld(const struct tw_node *node, uint32_t k) {
    const uint64_t asked_us = node->round.results[k].asked_us;
    return asked_us != 0 && node->now_us >= asked_us + RETRY_US && !tw_result_is_provable(node, k);
}

/* True if the owner of part k delayed the round: its result was announced late or never, or its
 * bytes or signatures did not arrive in time. */
static bool is_stalled(struct tw_node *node, const struct tw_record *record, uint32_t k) {
    const struct round *round = &node->round;
    const struct tw_msg_result *announced = &round->results[k].announced;
    const bool is_sent = round->results[k].has && !round->results[k].is_shown;
    const uint64_t due_us = tw_result_due_us(node, k);
    if (is_withheld(node, k)) return true;
    if (node->now_us >= due_us && (!is_sent || round->results[k].announced_us >= due_us))
        return true;
    /* The record lists the result, although its owner did not send it to this node. The owner
     * stalled the round if it had to wait RETRY_US after all other results had arrived. */
    if (record->parts[k].bytes > 0) {
        const uint64_t others_us = tw_result_others_us(node, k);
        return !is_sent && others_us != UINT64_MAX && node->now_us >= others_us + RETRY_US;
    }
    if (node->now_us < round->active_us + node->pace.patience_us)
        return false; /* the owner still has time */
    if (!round->results[k].has) return true;
    const struct payload *payload = tw_payload_find(node, &announced->hash);
    return announced->bytes > 0 && (payload == NULL || payload->state == PAYLOAD_WANTED);
}

void tw_findings_note_stalls(struct tw_node *node, const struct tw_record *record) {
    const struct round *round = &node->round;
    if (record->parts_count != round->owners_count || round->active_us == 0) return;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const uint32_t owner = round->owners[k];
        const struct contribution *entry = &round->contributions[owner];
        if (round->count[k] == 0 || (int)owner == round->self_idx) continue;
        const bool is_idle = !entry->has || entry->is_absent;
        if (is_idle && !tw_membership_reduces(node, owner))
            continue; /* this owner gets no part in the next round anyway */
        if (!tw_membership_is_live(node, owner) || !is_stalled(node, record, k)) continue;
        tw_conduct_stall(node, TW_PENALTY_STALL_OWNER, &node->roster.members[owner].id);
    }
}

void tw_findings_note_strikes(struct tw_node *node, const struct tw_record *record) {
    struct round *round = &node->round;
    if (record->parts_count != round->owners_count) return;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_msg_result *announced = &round->results[k].announced;
        if (record->parts[k].bytes > 0 || !round->results[k].has || announced->bytes == 0) continue;
        if (!tw_payload_is_refused(node, &announced->hash, round->count[k])) continue;
        const bool is_unfit = tw_payload_find(node, &announced->hash)->state == PAYLOAD_UNFIT ||
                              TW_IS_MUTANT(node, TW_MUTANT_SIZE_PROVES);
        tw_conduct_strike(node, &node->roster.members[record->parts[k].owner_idx].id, is_unfit,
                          record->round, k);
    }
}

/* ==== audits of merges ======================================================================== */

/* Audits: checks that a result is the merge of its listed contributions.
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
 * owner announced (veto.c). An honest owner must not be struck for them.
 *
 * An accusation only tells where to look. A false one costs every member a merge, so its sender is
 * ignored for a while. One audit runs at a time, and one accusation may wait. */

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

/* Returns a committed round whose contributions are still known, or NULL. */
static const struct past_round *find_past(const struct tw_node *node, uint64_t round) {
    const struct past_round *past = &node->audits.past[round % AUDIT_ROUNDS];
    return past->round == round + 1 ? past : NULL;
}

/* Adds the contribution of a listed contributor to the inputs of the audit. Returns false if this
 * node did not receive its CONTRIB, or if the record lists it with other hashes or counts. */
static bool add_input(struct audit *audit, const struct past_round *past,
                      const struct tw_contributor *by) {
    const struct contribution *heard = &past->contributions[by->member_idx];
    TW_ASSERT(audit->inputs_count < TW_MEMBERS_MAX);
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
    const struct past_round *past = find_past(node, round);
    TW_ASSERT(audit->phase == AUDIT_IDLE);
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
    const struct past_round *past = find_past(node, record->round);
    TW_ASSERT(audit->phase == AUDIT_IDLE);
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
    if (node->audits.running.phase == AUDIT_IDLE) return;
    node->audits.running.is_doubt = true;
    node->audits.doubt_round = round + DOUBT_ROUNDS;
}

void tw_audit_refused(struct tw_node *node, const struct tw_record *record) {
    const struct round *round = &node->round;
    if (find_past(node, record->round) == NULL) return;
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
    const struct past_round *past = find_past(node, round);
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

enum tw_drop tw_audit_accuse(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_accuse *accuse) {
    const struct link *link = &node->links[peer];
    if (!tw_id_equal(&accuse->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (node->now_us < link->ignored_until_us) return TW_DROP_TOO_SOON;
    if (tw_roster_find(&node->roster, &link->id) < 0) return TW_DROP_NO_SEAT;
    const struct past_round *past = find_past(node, accuse->round);
    if (past == NULL) return TW_DROP_UNKNOWN;
    if (TW_IS_MUTANT(node, TW_MUTANT_ACCUSER_BELIEVED)) {
        const struct tw_record *record = tw_progress_record(node, accuse->round);
        if (record != NULL && accuse->part < record->parts_count)
            tw_conduct_strike(node, &past->roster.members[record->parts[accuse->part].owner_idx].id,
                              true, accuse->round, accuse->part);
    }
    if (node->audits.hint.is_there) return TW_DROP_BUSY;
    node->audits.hint.is_there = true;
    node->audits.hint.accuser = link->id;
    node->audits.hint.round = accuse->round;
    node->audits.hint.part = accuse->part;
    return TW_DROP_NONE;
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

/* Notes whose work makes an honest merge large: a repeated merge shows sizes as an own one does,
 * and that of a result which this node refused shows the cause. */
static void note_sizes(struct tw_node *node, const struct tw_event *event) {
    const struct audit *audit = &node->audits.running;
    for (uint32_t i = 0; i < audit->inputs_count; i++) {
        const uint32_t size = event->u.reduced.sizes[i];
        if (!tw_id_equal(&audit->inputs[i].from, &node->cfg.self))
            tw_conduct_note_size(node, &audit->inputs[i].from, size, audit->is_doubt && size > 0);
    }
}

enum tw_drop tw_audit_reduced(struct tw_node *node, const struct tw_event *event) {
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
    if (!is_now) return TW_DROP_UNASKED;
    audit->phase = AUDIT_IDLE;
    if (!event->ok) return TW_DROP_NONE;
    node->audits.done_count++;
    if (is_same && audit->is_hinted) ignore_accuser(node);
    if (is_same) {
        tw_conduct_pardon(node, &audit->owner, audit->round, audit->part);
        note_sizes(node, event);
        return TW_DROP_NONE;
    }
    tw_conduct_strike(node, &audit->owner, true, audit->round, audit->part);
    if (!audit->is_hinted && !audit->is_unlisted) send_accusation(node);
    return TW_DROP_NONE;
}

/* Fetches missing contributions. Returns true when this node holds all of them. */
static bool fetch_inputs(struct tw_node *node) {
    struct audit *audit = &node->audits.running;
    bool is_complete = true;
    TW_ASSERT(audit->phase == AUDIT_FETCHING);
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
    TW_ASSERT(audit->phase == AUDIT_FETCHING);
    TW_ASSERT(audit->inputs_count > 0);
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

/* ==== checks of training ====================================================================== */

/* Does a member train on the data that it says?
 *
 * After each commit, the hash of the record draws a share of the listed contributions,
 * sync.jury, and a juror for each among the members. Nobody knows the draw before the contributions
 * are merged. The juror fetches the contribution and lets its worker compare the windows that its
 * sender says it trained on with windows that nobody has trained on yet (worker/loop/juror.h).
 *
 *   IDLE -> FETCHING       the record's hash selects this node, or another juror doubts
 *   FETCHING -> MEASURING  this node holds the contribution
 *   MEASURING -> IDLE      the worker answered: a score, or none
 *   any -> IDLE            a payload is lost, the worker died, or it takes too long: no verdict
 *
 * The score of an honest member is about m * s. The share s = sqrt(compared windows / windows
 * trained) is known. The strength m depends on model, data and rate, but hardly on the member. So
 * this node takes for m the upper median of its measurements of all members, itself included, which
 * less than half of them cannot move out of the range of the honest; or their mean, if that is
 * less: a median of few measurements may be far too high, and then honest scores look low. Then
 *
 *      doubt := max(0, doubt + mu * (mu / 2 - score) / VARIANCE),  mu = m * s
 *
 * the log-likelihood ratio of "other data" (mean 0) against "its data" (mean mu), as a CUSUM (Page
 * 1954). One check adds at most DOUBT_STEP, and DOUBT_MAX is a
 * verdict, so that no single bad score convicts. A juror with a low score tells the others, and
 * each of them repeats the check with windows of its own choice: no node's word counts for
 * another's verdict. A node that doubts checks the member's contribution to every round, until the
 * doubt is gone or a verdict.
 *
 * A verdict is this node's own. As an owner it leaves the member's contributions out for a while
 * (round/round.c), as a proposer it gives the member no part (core/conduct.c), and it reports it.
 * A member that never says where it is in its data is treated like that after UNPLACED_MAX rounds:
 * until then it may still be fetching its data. The check proves nothing about additions to a Delta
 * that was trained on its data; that is bounded by the guard and the merge rule. */

enum {
    MILLION = 1000000,
    YOUNG_ROUNDS = 32,  /* of a lineage: its first merges show no difference yet */
    CHECKS_MIN = 8,     /* checks of all members before a score tells anything */
    CERTAIN = 6,        /* standard errors by which the mean of all scores must be above 0 */
    SCORE_MAX = 20000,  /* thousandths */
    UNPLACED_MAX = 256, /* rounds in a row without a position */
    HINT_ROUNDS = 8,    /* between two doubts of one juror that this node follows */
    MU_MIN = 500,       /* thousandths: below, a score tells nothing */
    MU_HINT = 1500,     /* thousandths: below, one score is no reason to ask the others */
    VARIANCE = 2,       /* of the score of a member, as measured */
    DOUBT_STEP = 4000,  /* thousandths */
    DOUBT_MAX = 16000,  /* thousandths */
    SHARE_KEPT = 16,    /* a row's sums are halved beyond so many checks of the full share */
};

#define JURY_KEEP_US (10 * SECOND_US)
#define JURY_PATIENCE_US (300 * SECOND_US)

static struct jury_row *row_of(struct tw_node *node, const struct tw_id *id) {
    struct jury_row *rows = node->jury.rows, *oldest = &rows[0];
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if (tw_id_equal(&rows[i].id, id)) return &rows[i];
        if (tw_roster_find(&node->roster, &rows[i].id) < 0) oldest = &rows[i];
    }
    *oldest = (struct jury_row){.id = *id};
    return oldest;
}

/* The contribution as the record lists it, or NULL: this node did not hear it, or heard another. */
static const struct tw_msg_contrib *contribution_of(const struct past_round *past,
                                                    const struct tw_contributor *row) {
    if (row->member_idx >= past->roster.count) return NULL;
    const struct contribution *heard = &past->contributions[row->member_idx];
    return tw_contributor_is_of(heard, row) ? &heard->announced : NULL;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static void begin(struct tw_node *node, uint64_t round, uint32_t seat, bool is_hinted) {
    struct jury_check *check = &node->jury.running;
    const struct tw_record *record = tw_progress_record(node, round);
    const struct past_round *past = find_past(node, round);
    if (record == NULL || past == NULL || check->phase != JURY_IDLE) return;
    const struct tw_contributor *row = tw_contributor_row(record, seat);
    const struct tw_msg_contrib *contrib = row == NULL ? NULL : contribution_of(past, row);
    if (contrib == NULL || contrib->cursor == 0) return;
    *check = (struct jury_check){.phase = JURY_FETCHING,
                                 .round = round,
                                 .seat = seat,
                                 .id = past->roster.members[seat].id,
                                 .is_hinted = is_hinted,
                                 .began_us = node->now_us};
}

/* A member that trains can always say where it is in its data, once it has all of them. */
static void note_places(struct tw_node *node, const struct past_round *past,
                        const struct tw_record *record) {
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const struct tw_msg_contrib *contrib = contribution_of(past, &record->contributors[i]);
        if (contrib == NULL) continue;
        const struct tw_id *id = &past->roster.members[record->contributors[i].member_idx].id;
        struct jury_row *row = row_of(node, id);
        row->unplaced = contrib->cursor == 0 ? row->unplaced + 1 : 0;
        if (row->unplaced < UNPLACED_MAX || tw_id_equal(id, &node->cfg.self) ||
            tw_conduct_is_untrained(node, id))
            continue;
        row->unplaced = 0;
        tw_conduct_note_untrained(node, id, TW_LIMIT);
    }
}

/* A hash that all members know once the round is decided, and nobody before. */
static struct tw_id draw_of(const struct tw_node *node, const struct tw_record *record,
                            uint32_t seat, bool is_own) {
    uint8_t bytes[20 + 32 + 4 + 32] = "thinwire-jury-v1";
    const struct tw_id digest = tw_record_digest(record);
    memcpy(bytes + 20, digest.bytes, 32);
    tw_put_u32(bytes + 52, seat);
    if (is_own) memcpy(bytes + 56, node->cfg.self.bytes, 32);
    return tw_sha256(bytes, sizeof(bytes));
}

/* Starts the check of the contributor with the greatest doubt, if there is one: a doubt is followed
 * in every round, until it is gone or a verdict. */
static void begin_doubted(struct tw_node *node, const struct past_round *past,
                          const struct tw_record *record) {
    const struct tw_contributor *most = NULL;
    int64_t doubt = 0;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const struct tw_contributor *row = &record->contributors[i];
        if (row->member_idx >= past->roster.count) continue;
        const struct tw_id *id = &past->roster.members[row->member_idx].id;
        if (row_of(node, id)->doubt <= doubt) continue;
        doubt = row_of(node, id)->doubt;
        most = row;
    }
    if (most != NULL) begin(node, record->round, most->member_idx, true);
}

void tw_jury_choose(struct tw_node *node, uint64_t round) {
    const struct past_round *past = find_past(node, round);
    const struct tw_record *record = tw_progress_record(node, round);
    if (node->cfg.jury_millionths == 0 || past == NULL || record == NULL) return;
    if (record->round < YOUNG_ROUNDS || record->contributors_count < 2) return;
    note_places(node, past, record);
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const uint32_t seat = record->contributors[i].member_idx;
        const struct tw_id drawn = draw_of(node, record, seat, false);
        if (tw_get_u32(drawn.bytes) % MILLION >= node->cfg.jury_millionths) continue;
        const uint32_t by = tw_get_u32(drawn.bytes + 4) % record->contributors_count;
        if ((int)record->contributors[by].member_idx !=
            tw_roster_find(&past->roster, &node->cfg.self))
            continue;
        begin(node, round, seat, false);
    }
    if (node->jury.running.phase == JURY_IDLE) begin_doubted(node, past, record);
}

enum tw_drop tw_jury_hint(struct tw_node *node, uint16_t peer, const struct tw_msg_accuse *accuse) {
    const struct link *link = &node->links[peer];
    if (node->cfg.jury_millionths == 0) return TW_DROP_OTHER_RUN;
    if (node->jury.hint.is_there) return TW_DROP_BUSY;
    if (!tw_id_equal(&accuse->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (tw_roster_find(&node->roster, &link->id) < 0) return TW_DROP_NO_SEAT;
    if (find_past(node, accuse->round) == NULL) return TW_DROP_UNKNOWN;
    struct jury_row *by = row_of(node, &link->id);
    if (by->hinted_round != 0 && accuse->round + 1 < by->hinted_round + HINT_ROUNDS)
        return TW_DROP_TOO_SOON;
    by->hinted_round = accuse->round + 1;
    node->jury.hint.is_there = true;
    node->jury.hint.round = accuse->round;
    node->jury.hint.seat = accuse->trainer - 1;
    return TW_DROP_NONE;
}

static void tell_others(struct tw_node *node) {
    const struct jury_check *check = &node->jury.running;
    struct tw_message *message = tw_act_message(node, TW_MSG_ACCUSE);
    if (message == NULL) return;
    message->u.accuse = (struct tw_msg_accuse){
        .lineage = node->at.lineage, .round = check->round, .trainer = check->seat + 1};
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_in_lineage(node, i) && !tw_id_equal(&node->links[i].id, &check->id))
            tw_act_send(node, message, i);
    }
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* The strength of honest members as measured by this node, in thousandths; 0: scores have not shown
 * yet that they tell anything. */
static int64_t strength(const struct tw_node *node) {
    uint64_t values[TW_MEMBERS_MAX];
    uint32_t count = 0, checks = 0;
    int64_t gain = 0, share = 0;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        const struct jury_row *row = &node->jury.rows[i];
        if (row->share <= 0) continue;
        const int64_t value = row->gain * 1000 / row->share;
        values[count++] = value > 0 ? (uint64_t)value : 0;
        gain += row->gain / 1000;
        share += row->share;
        checks += row->checks;
    }
    /* The weighted sum of scores has a variance of the sum of squared shares. */
    if (count < 2 || checks < CHECKS_MIN || gain <= 0 ||
        gain * gain < (int64_t)CERTAIN * CERTAIN * share)
        return 0;
    tw_sort_u64(values, count);
    const int64_t median = (int64_t)values[count / 2], mean = gain * 1000000 / share;
    return median < mean ? median : mean;
}

static void add_score(struct jury_row *row, int64_t score, int64_t share) {
    if (row->share > SHARE_KEPT * INT64_C(1000000)) {
        row->share /= 2;
        row->gain /= 2;
    }
    row->gain += score * share;
    row->share += share * share;
    row->checks++;
}

static void weigh(struct tw_node *node, struct jury_row *row, int64_t score, int64_t share) {
    const int64_t mu = strength(node) * share / 1000;
    if (mu < MU_MIN || tw_id_equal(&row->id, &node->cfg.self)) return;
    const int64_t more = mu * (mu / 2 - score) / 1000 / VARIANCE;
    row->doubt += more > DOUBT_STEP ? DOUBT_STEP : more < -DOUBT_STEP ? -DOUBT_STEP : more;
    if (row->doubt < 0) row->doubt = 0;
    if (score < mu / 2 && mu >= MU_HINT && !node->jury.running.is_hinted) tell_others(node);
    if (row->doubt < DOUBT_MAX && (!TW_IS_MUTANT(node, TW_MUTANT_ONE_DOUBT) || row->doubt == 0))
        return;
    row->doubt = DOUBT_MAX / 2;
    if (tw_conduct_is_untrained(node, &row->id)) return;
    tw_conduct_note_untrained(node, &row->id, TW_CORRUPT);
    tell_others(node);
}

enum tw_drop tw_jury_judged(struct tw_node *node, const struct tw_event *event) {
    struct jury_check *check = &node->jury.running;
    const int32_t told = event->u.judged.score;
    const int64_t score = told > SCORE_MAX ? SCORE_MAX : told < -SCORE_MAX ? -SCORE_MAX : told;
    const int64_t share = event->u.judged.share;
    if (check->phase != JURY_MEASURING || event->u.judged.round != check->round)
        return TW_DROP_UNASKED;
    if (event->ok && share > 0 && share <= 1000) {
        struct jury_row *row = row_of(node, &check->id);
        node->jury.checks++;
        /* Only drawn checks count for the strength: doubts would add many of one member. */
        if (!check->is_hinted) add_score(row, score, share);
        weigh(node, row, score, share);
    }
    check->phase = JURY_IDLE;
    return TW_DROP_NONE;
}

/* ---- the running check ----------------------------------------------------------------------- */

void tw_jury_forget(struct tw_node *node) {
    node->jury.running.phase = JURY_IDLE;
    node->jury.hint.is_there = false;
}

/* Fetches the missing parts of the contribution. Returns true when this node holds all. */
static bool fetch_parts(struct tw_node *node, const struct past_round *past, uint32_t parts_count) {
    struct jury_check *check = &node->jury.running;
    const struct tw_msg_contrib *contrib = &past->contributions[check->seat].announced;
    bool is_complete = true;
    TW_ASSERT(check->phase == JURY_FETCHING);
    TW_ASSERT(parts_count <= TW_PARTS_MAX);
    for (uint32_t k = 0; k < parts_count; k++) {
        if (past->count[k] == 0) continue;
        struct payload *payload = tw_payload_want(node, &contrib->hashes[k], contrib->bytes[k],
                                                  TW_CONTENT_DELTA, past->count[k]);
        if (payload == NULL) return false;
        payload->from = check->id;
        payload->is_shared = true;
        if (payload->keep_us < node->now_us + JURY_KEEP_US)
            payload->keep_us = node->now_us + JURY_KEEP_US;
        if (tw_payload_is_lost(payload) ||
            !tw_payload_is_as(node, payload, TW_CONTENT_DELTA, past->count[k])) {
            check->phase = JURY_IDLE;
            return false;
        }
        is_complete &= payload->state == PAYLOAD_HELD;
    }
    return is_complete;
}

static void request_check(struct tw_node *node, const struct past_round *past,
                          const struct tw_record *record) {
    struct jury_check *check = &node->jury.running;
    const struct tw_msg_contrib *contrib = &past->contributions[check->seat].announced;
    const struct tw_id draw = draw_of(node, record, check->seat, true);
    struct tw_action *action = tw_act_body(node, TW_ACT_JUDGE);
    TW_ASSERT(check->phase == JURY_FETCHING);
    action->u.judge.round = check->round;
    action->u.judge.fragment = record->fragment;
    action->u.judge.seed = tw_get_u64(check->id.bytes);
    action->u.judge.cursor = contrib->cursor;
    action->u.judge.tokens = contrib->fragment_tokens;
    action->u.judge.draw = tw_get_u64(draw.bytes);
    action->u.judge.parts_count = record->parts_count;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        action->inputs[k] = contrib->hashes[k];
        action->u.judge.parts[k].begin = past->begin[k];
        action->u.judge.parts[k].count = past->count[k];
    }
    check->phase = JURY_MEASURING;
}

void tw_jury_advance(struct tw_node *node) {
    struct jury_check *check = &node->jury.running;
    if (node->cfg.jury_millionths == 0) return;
    if (!node->worker.is_up || node->state == TW_STATE_RECEIVER) return;
    if (check->phase == JURY_IDLE && node->jury.hint.is_there) {
        node->jury.hint.is_there = false;
        begin(node, node->jury.hint.round, node->jury.hint.seat, true);
    }
    if (check->phase == JURY_IDLE) return;
    if (node->now_us >= check->began_us + JURY_PATIENCE_US) {
        check->phase = JURY_IDLE;
        return;
    }
    tw_act_wake(node, check->began_us + JURY_PATIENCE_US);
    if (check->phase != JURY_FETCHING) return;
    const struct past_round *past = find_past(node, check->round);
    const struct tw_record *record = tw_progress_record(node, check->round);
    if (past == NULL || record == NULL) {
        check->phase = JURY_IDLE; /* so many rounds were decided since that it is forgotten */
    } else if (fetch_parts(node, past, record->parts_count)) {
        request_check(node, past, record);
    }
}
