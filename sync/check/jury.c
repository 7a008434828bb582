/* jury.c - does a member train on the data that it says?
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
 * (round/round.c), as a proposer it gives the member no part (trust/conduct.c), and it reports it.
 * A member that never says where it is in its data is treated like that after UNPLACED_MAX rounds:
 * until then it may still be fetching its data. The check proves nothing about additions to a Delta
 * that was trained on its data; that is bounded by the guard and the merge rule. */
#include "sync/check/jury.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/median.h"
#include "sync/check/audit.h"
#include "sync/core/actions.h"
#include "sync/core/peers.h"
#include "sync/core/progress.h"
#include "sync/round/contributor.h"
#include "sync/transfer/payload.h"
#include "sync/trust/conduct.h"

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

/* ---- choosing ------------------------------------------------------------------------------- */

static void begin(struct tw_node *node, uint64_t round, uint32_t seat, bool is_hinted) {
    struct jury_check *check = &node->jury.running;
    const struct tw_record *record = tw_progress_record(node, round);
    const struct past_round *past = tw_audit_past(node, round);
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
    const struct past_round *past = tw_audit_past(node, round);
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

void tw_jury_hint(struct tw_node *node, uint16_t peer, const struct tw_msg_accuse *accuse) {
    const struct link *link = &node->links[peer];
    if (node->cfg.jury_millionths == 0 || node->jury.hint.is_there) return;
    if (!tw_id_equal(&accuse->lineage, &node->at.lineage)) return;
    if (tw_roster_find(&node->roster, &link->id) < 0 || tw_audit_past(node, accuse->round) == NULL)
        return;
    struct jury_row *by = row_of(node, &link->id);
    if (by->hinted_round != 0 && accuse->round + 1 < by->hinted_round + HINT_ROUNDS) return;
    by->hinted_round = accuse->round + 1;
    node->jury.hint.is_there = true;
    node->jury.hint.round = accuse->round;
    node->jury.hint.seat = accuse->trainer - 1;
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

/* ---- verdicts ------------------------------------------------------------------------------- */

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

void tw_jury_judged(struct tw_node *node, const struct tw_event *event) {
    struct jury_check *check = &node->jury.running;
    const int32_t told = event->u.judged.score;
    const int64_t score = told > SCORE_MAX ? SCORE_MAX : told < -SCORE_MAX ? -SCORE_MAX : told;
    const int64_t share = event->u.judged.share;
    if (check->phase != JURY_MEASURING || event->u.judged.round != check->round) return;
    if (event->ok && share > 0 && share <= 1000) {
        struct jury_row *row = row_of(node, &check->id);
        node->jury.checks++;
        /* Only drawn checks count for the strength: doubts would add many of one member. */
        if (!check->is_hinted) add_score(row, score, share);
        weigh(node, row, score, share);
    }
    check->phase = JURY_IDLE;
}

/* ---- the running check ---------------------------------------------------------------------- */

void tw_jury_forget(struct tw_node *node) {
    node->jury.running.phase = JURY_IDLE;
    node->jury.hint.is_there = false;
}

/* Fetches the missing parts of the contribution. Returns true when this node holds all. */
static bool fetch_parts(struct tw_node *node, const struct past_round *past, uint32_t parts_count) {
    struct jury_check *check = &node->jury.running;
    const struct tw_msg_contrib *contrib = &past->contributions[check->seat].announced;
    bool is_complete = true;
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
    const struct past_round *past = tw_audit_past(node, check->round);
    const struct tw_record *record = tw_progress_record(node, check->round);
    if (past == NULL || record == NULL) {
        check->phase = JURY_IDLE; /* so many rounds were decided since that it is forgotten */
    } else if (fetch_parts(node, past, record->parts_count)) {
        request_check(node, past, record);
    }
}
