/* round.c - the open round: our contribution and its counts, the merge of the part we own. */
#include "sync/round/round.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/median.h"
#include "proto/run/layout.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/core/voters.h"
#include "sync/round/result.h"
#include "sync/transfer/payload.h"
#include "sync/transfer/state_transfer.h"

/* ==== tokens and steps of this node =========================================================== */

/* This node's tokens and steps: those already listed, and those yet to be sent.
 *
 * There are two counts. The run clock counts each token once, in the first listed contribution to
 * any fragment: one mark, `tokens_listed`. A contribution is the Delta of one fragment, and holds
 * the work of all steps since that fragment was last merged. So each fragment has marks of its own,
 * `delta_tokens` and `delta_steps`, like c_tokens[p] and c_steps[p] of Decoupled DiLoCo (arXiv
 * 2604.21428). Weights and the guard use these. With the clock's count as the weight, a node that
 * missed m of P rounds (P fragments) would weigh too much in its next round, and too little in the
 * P - 1 after it.
 *
 *   event of the fragment                Delta                            mark
 *   listed (in at least one part)        starts where it was sent         at the sent step
 *   not listed: SHIFT                    keeps all its work               unchanged
 *   alone: phi := theta                  starts now                       now
 *   state loaded, theta := phi           starts now                       now
 *   state loaded, theta kept             clipped to the usual norm        at the change of lineage
 *   state loaded, theta shifted          keeps all its work               unchanged */

void tw_account_settle_clock(struct tw_node *node) {
    /* Without a worker the present count is not known, so the mark is set to the largest number.
     * tw_account_greet() lowers it. */
    node->at.tokens_listed = node->worker.is_up ? node->worker.tokens : UINT64_MAX;
}

void tw_account_settle_delta(struct tw_node *node, uint32_t fragment) {
    TW_ASSERT(fragment < node->cfg.fragments_count);
    node->at.delta_tokens[fragment] = node->worker.is_up ? node->worker.tokens : UINT64_MAX;
    node->at.delta_steps[fragment] = node->worker.is_up ? node->worker.step : UINT64_MAX;
}

void tw_account_settle(struct tw_node *node) {
    tw_account_settle_clock(node);
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) tw_account_settle_delta(node, p);
}

void tw_account_greet(struct tw_node *node) {
    struct tw_position *at = &node->at;
    /* The snapshot may be older than the listed contribution: those tokens are trained again. */
    at->tokens_listed = at_most(at->tokens_listed, node->worker.tokens);
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        at->delta_tokens[p] = at_most(at->delta_tokens[p], node->worker.tokens);
        at->delta_steps[p] = at_most(at->delta_steps[p], node->worker.step);
    }
}

uint64_t tw_account_tokens_max(const struct tw_node *node) {
    enum { PERIODS_MAX = 64 };
    const uint64_t steps =
        (uint64_t)PERIODS_MAX * node->cfg.fragments_count * node->cfg.period_steps; /* below 2^45 */
    if (node->cfg.step_tokens == 0 || node->cfg.step_tokens > TOKENS_MAX / steps) return TOKENS_MAX;
    return steps * node->cfg.step_tokens;
}

uint32_t tw_account_nodes_max(const struct tw_node *node) {
    return node->cfg.crew_max > 1 ? node->cfg.crew_max : 1;
}

bool tw_account_is_possible(const struct tw_node *node, const struct tw_contributor *row,
                            uint32_t nodes) {
    const uint64_t most = tw_account_tokens_max(node), step = node->cfg.step_tokens;
    TW_ASSERT(nodes >= 1);
    if (row->tokens > most || row->fragment_tokens > most) return false;
    if (step == 0 || node->cfg.has_own_start) return true;
    const uint64_t steps = row->fragment_steps;
    const uint64_t least_tokens = steps > most / step ? most : steps * step;
    const uint64_t all_tokens = steps * nodes > most / step ? most : steps * nodes * step;
    if (row->fragment_tokens < least_tokens || row->fragment_tokens > all_tokens) return false;
    return (row->tokens % step == 0 || row->tokens == most) &&
           (row->fragment_tokens % step == 0 || row->fragment_tokens == most);
}

static uint64_t count_since(uint64_t now, uint64_t mark) {
    return now > mark ? now - mark : 0;
}

void tw_account_row(const struct tw_node *node, uint32_t fragment, struct tw_contributor *row) {
    const struct round *round = &node->round;
    const uint64_t most = tw_account_tokens_max(node);
    TW_ASSERT(fragment < node->cfg.fragments_count);
    row->tokens = at_most(count_since(round->own_tokens, node->at.tokens_listed), most);
    row->fragment_tokens =
        at_most(count_since(round->own_tokens, node->at.delta_tokens[fragment]), most);
    row->fragment_steps =
        (uint32_t)at_most(count_since(round->own_step, node->at.delta_steps[fragment]), UINT32_MAX);
}

/* True if the record lists the member with this roster index. */
static bool is_listed(const struct tw_record *record, int seat) {
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        if ((int)record->contributors[i].member_idx == seat) return true;
    }
    return false;
}

/* Moves the marks, because our contribution is in the anchor. Delta continues from the step at
 * which the contribution was encoded, or from the worker's snapshot if that is older. */
static void note_listed(struct tw_node *node, uint32_t fragment) {
    const struct round *round = &node->round;
    struct tw_position *at = &node->at;
    if (!TW_IS_MUTANT(node, TW_MUTANT_TOKENS_TWICE)) at->tokens_listed = round->own_tokens;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        if (p != fragment && !TW_IS_MUTANT(node, TW_MUTANT_ONE_MARK)) continue;
        at->delta_tokens[p] = at_most(round->own_tokens, node->worker.tokens);
        at->delta_steps[p] = at_most(round->own_step, node->worker.step);
    }
}

bool tw_account_commit(struct tw_node *node, const struct tw_record *record) {
    const int self = node->round.self_idx;
    const bool is_ours = self >= 0 && is_listed(record, self);
    if (is_ours && node->round.own == OWN_SENT) {
        note_listed(node, record->fragment);
    } else if (is_ours) { /* the contribution was sent before a restart: it contains all tokens so
                             far */
        tw_account_settle_clock(node);
        tw_account_settle_delta(node, record->fragment);
    }
    /* The record lists this node under a former nonce: that work is in the anchor, and also still
     * in Delta. */
    const int seat = tw_roster_find(&node->roster, &node->cfg.self);
    if (seat >= 0 && seat != self && is_listed(record, seat)) tw_account_settle_clock(node);
    if (is_ours) node->log.contributed_count++;
    const bool trains = node->cfg.role == TW_NODE_ROLE_TRAIN;
    if (!is_ours && self >= 0 && record->parts_count > 0 && trains) node->log.missed_count++;
    return is_ours;
}

/* ==== the open round ========================================================================== */

/* The open round: our outer gradient, the merge of the part we own, the results.
 *
 * A round has no coordinator. It becomes active when this node contributes, or when so many members
 * have sent something about it that one of them does not lie. All bounded waits and checks count
 * from then: a single member cannot make them end before the other members are due. Every owner
 * pulls its part of each contribution. It merges when all live members have answered, or when the
 * quorum has delivered and the grace is over. It then announces the result. A member without a
 * contribution (not encoded, or over budget) announces that once the round is active, and thus has
 * answered: the grace is for late members. The vote ends the round (vote/). */

#define GRACE_FLOOR_US UINT64_C(200000)

uint64_t tw_round_keep(const struct tw_node *node) {
    /* Results are kept for four outer steps of each fragment. A node that missed them replays them
     * instead of fetching (phi, u), which has eight times the bytes. The bounds are the payload
     * table, and memory (tw_progress_kept). */
    uint64_t rounds = 4 * (uint64_t)node->cfg.fragments_count;
    const uint64_t owners_count = node->round.owners_count > 0 ? node->round.owners_count : 1;
    const uint64_t rows = TW_PAYLOADS_MAX / 2 / owners_count;
    if (rounds > rows) rounds = rows;
    const struct tw_kept kept = tw_progress_kept(node);
    if (rounds > kept.rounds) rounds = kept.rounds;
    return node->at.rounds + rounds;
}

/* Ranks the voters as proposers by a hash of the round, so that each round has another first. */
static void rank_proposers(struct tw_node *node) {
    struct round *round = &node->round;
    struct tw_id keys[TW_MEMBERS_MAX];
    uint8_t bytes[72];
    memcpy(bytes, node->at.lineage.bytes, 32);
    for (unsigned i = 0; i < 8; i++) bytes[32 + i] = (uint8_t)(node->at.rounds >> (8 * i));
    uint32_t ranks_count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((node->voters >> i & 1) == 0) continue;
        memcpy(bytes + 40, node->roster.members[i].id.bytes, 32);
        keys[i] = tw_sha256(bytes, sizeof(bytes));
        uint32_t at = ranks_count++; /* insertion sort of at most 64 members */
        while (at > 0 && tw_id_compare(&keys[round->rank[at - 1]], &keys[i]) > 0) {
            round->rank[at] = round->rank[at - 1];
            at--;
        }
        round->rank[at] = i;
    }
    TW_ASSERT(ranks_count == tw_bits(node->voters));
    for (uint32_t i = 0; i < ranks_count; i++) {
        if ((int)round->rank[i] == round->self_idx) round->self_rank = (int)i;
    }
}

static void divide_parts(struct tw_node *node) {
    struct round *round = &node->round;
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    uint32_t weights[TW_PARTS_MAX];
    uint64_t elements = 0;
    round->owners_count = tw_roster_owners(&node->roster, round->owners);
    TW_ASSERT(round->owners_count <= TW_PARTS_MAX);
    for (uint32_t k = 0; k < round->owners_count; k++)
        weights[k] = node->roster.members[round->owners[k]].weight;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        tw_layout_part(node->cfg.fragment_elements[fragment], weights, round->owners_count, k,
                       &round->begin[k], &round->count[k]);
        if ((int)round->owners[k] == round->self_idx) round->self_part = (int)k;
        elements += round->count[k];
    }
    TW_ASSERT(round->owners_count == 0 || elements == node->cfg.fragment_elements[fragment]);
}

void tw_round_open(struct tw_node *node) {
    struct round *round = &node->round;
    /* The large arrays are guarded by their `has` flags: clearing those is enough. */
    round->active_us = round->begun = 0;
    round->self_idx = round->self_part = round->self_rank = -1;
    round->owners_count = 0;
    round->own = OWN_IDLE;
    round->own_retry_us = 0;
    node->crew.phase = CREW_NONE;
    node->crew.is_called = false;
    for (uint32_t i = 0; i < node->cfg.crew_max; i++) node->crew.hands[i].has = false;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) round->contributions[i].has = false;
    round->intake_closed = round->is_reducing = round->is_reduced = false;
    round->has_waited_in_vain = false;
    round->merged = round->refused = 0;
    for (uint32_t k = 0; k < TW_PARTS_MAX; k++) round->results[k].has = false;
    round->results_us = round->turn_us = round->voted_us = round->result_seq = 0;
    round->has_offer = round->is_lost = false;
    round->left_out = 0;
    memset(round->refused_by, 0, sizeof(round->refused_by));
    round->refused_ranks = round->refused_us = round->reported = 0;
    round->best_lock.ballot = 0;
    round->empty_ranks = 0;
    tw_lease_clear(&node->lease);
    round->phase = PROPOSER_IDLE;
    round->attempt = 0;
    round->ballot = 0;
    round->retry_us = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        struct link *link = &node->links[i];
        link->was_sent_contrib = link->was_sent_result = link->was_shown = false;
        link->sent_prepare = link->sent_propose = link->sent_lock = 0;
    }
    const int idx = tw_roster_find(&node->roster, &node->cfg.self);
    if (idx >= 0 && node->roster.members[idx].nonce == node->at.nonce) round->self_idx = idx;
    rank_proposers(node);
    divide_parts(node);
    TW_ASSERT(round->self_part < 0 || round->self_idx >= 0);
    TW_ASSERT(round->self_rank < 0 || round->self_idx >= 0);
}

void tw_round_set_roster(struct tw_node *node, const struct tw_roster *roster) {
    struct seat seats[TW_MEMBERS_MAX];
    TW_ASSERT(roster->count <= TW_MEMBERS_MAX);
    for (uint32_t i = 0; i < roster->count; i++) {
        const struct tw_member *member = &roster->members[i];
        const int before = tw_roster_find(&node->roster, &member->id);
        const uint16_t peer = tw_peers_find(node, &member->id);
        const bool is_same = before >= 0 && node->roster.members[before].nonce == member->nonce;
        seats[i] = (struct seat){.seen_us = node->now_us, .live_us = node->now_us};
        if (is_same) seats[i] = node->seats[before];
        seats[i].has_left |= peer != NO_PEER && node->links[peer].has_left;
        seats[i].missed = before >= 0 ? node->seats[before].missed : 0;
    }
    memcpy(node->seats, seats, roster->count * sizeof(seats[0]));
    node->roster.number = roster->number;
    node->roster.count = roster->count;
    memcpy(node->roster.members, roster->members, roster->count * sizeof(roster->members[0]));
    node->voters = tw_roster_voters(&node->roster);
    tw_voters_note(node, &node->roster);
    tw_reach_set_roster(node);
    tw_round_open(node);
    tw_membership_derive_state(node);
}

/* Returns the start of the round if a message about it arrives now. With sync.pace = clock, the
 * round does not start before it is due by this node's clock. Otherwise an early member would be
 * merged alone, and delay the next round of all others. A newcomer starts when the other members
 * do. */
static uint64_t begin_us(const struct tw_node *node) {
    const uint64_t due_us = node->pace.last_commit_us + node->cfg.pace_us;
    const bool is_timed =
        node->cfg.pace_us > 0 && node->pace.was_active && !tw_progress_is_final(node);
    return is_timed && due_us > node->now_us ? due_us : node->now_us;
}

/* A node that cannot tell from its own steps when the round is due starts it at the first
 * message. */
void tw_round_touch(struct tw_node *node, uint32_t idx) {
    struct round *round = &node->round;
    const bool has_steps = node->worker.is_up && node->state == TW_STATE_MEMBER;
    const uint32_t liars = has_steps ? tw_membership_lying_trainers(node) : 0;
    const bool is_own = (int)idx == round->self_idx;
    TW_ASSERT(idx < node->roster.count);
    if (!is_own && !tw_membership_trains(node, idx) && tw_membership_has_trainer(node)) return;
    round->begun |= UINT64_C(1) << idx;
    if (round->active_us == 0 && (is_own || tw_bits(round->begun) > liars))
        round->active_us = begin_us(node);
}

/* ---- messages of other members --------------------------------------------------------------- */

/* True if this node owns no part, and all owners (more voters among them than may lie) have this
 * anchor. Then no Delta to our own anchor can be merged. A node behind NAT that is linked to the
 * owners alone never receives half of the contributions, so the owners' anchors must suffice. */
static bool is_base_of_owners(const struct tw_node *node, const struct tw_id *base) {
    const struct round *round = &node->round;
    if (round->self_part >= 0) return false;
    uint32_t voters = 0;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        const struct contribution *entry = &round->contributions[round->owners[k]];
        if (!entry->has || !tw_id_equal(&entry->announced.base, base)) return false;
        voters += (node->voters >> round->owners[k] & 1) != 0;
    }
    return voters > tw_membership_liars_max(node); /* otherwise all of them may lie */
}

/* Reports that this node, or member `id`, has another anchor of the open round's fragment. */
static void report_differs(struct tw_node *node, const struct tw_id *id) {
    struct tw_report *report = tw_act_report(node, TW_REPORT_DIFFERS, id);
    if (report == NULL) return;
    report->round = node->at.rounds;
    report->part = tw_progress_fragment(node, node->at.rounds);
}

/* Fetches the anchor again if more than half of the voters, or all owners, have another one. If it
 * was loaded since this node last had the anchor of the others, its donor gave a false one. */
static void check_anchor(struct tw_node *node, const struct tw_id *base) {
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    const bool is_own = tw_id_equal(base, &node->at.fragment_digests[fragment]);
    struct state_fetch *fetch = &node->fetch[fragment];
    if (tw_progress_due(node, fragment) != UINT64_MAX ||
        node->at.fragment_rounds[fragment] == NOT_HELD || (is_own && !fetch->is_unproven))
        return;
    uint32_t agreeing_count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct contribution *entry = &node->round.contributions[i];
        agreeing_count +=
            (node->voters >> i & 1) != 0 && entry->has && tw_id_equal(&entry->announced.base, base);
    }
    if (agreeing_count <= tw_bits(node->voters) / 2 && !is_base_of_owners(node, base)) return;
    const bool is_given = fetch->is_unproven;
    fetch->is_unproven = false;
    if (is_own) return;
    if (is_given)
        tw_state_accuse(node, &fetch->donor, fragment); /* it gave this node its anchor */
    else
        report_differs(node, &node->cfg.self);
    tw_state_refetch(node, fragment, TW_LOAD_SHIFT);
}

/* True if the CONTRIB has no payload: its sender sits the round out. */
static bool is_of_nothing(const struct tw_msg_contrib *contrib) {
    for (uint32_t k = 0; k < contrib->parts_count; k++) {
        if (contrib->bytes[k] > 0) return false;
    }
    return true;
}

/* True if every part of the contribution has a size that its codec can produce. */
static bool is_possible(const struct tw_node *node, const struct tw_msg_contrib *contrib) {
    for (uint32_t k = 0; k < contrib->parts_count; k++) {
        if (!tw_payload_is_possible(node, TW_CONTENT_DELTA, node->round.count[k],
                                    contrib->bytes[k]))
            return false;
    }
    return true;
}

enum tw_drop tw_round_contrib(struct tw_node *node, uint16_t peer,
                              const struct tw_msg_contrib *contrib) {
    struct round *round = &node->round;
    const int idx = tw_roster_find(&node->roster, &node->links[peer].id);
    if (idx < 0) return TW_DROP_NO_SEAT;
    if (contrib->parts_count != round->owners_count) return TW_DROP_IMPOSSIBLE;
    /* To a node of a run without crews, or of a version without them, the root would be another. */
    if (contrib->crew_count > node->cfg.crew_max) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    const struct tw_contributor row = tw_contributor_of((uint32_t)idx, contrib);
    if (!tw_account_is_possible(node, &row, contrib->crew_count > 0 ? contrib->crew_count : 1)) {
        tw_act_accuse(node, &node->links[peer].id, TW_PROTO);
        return TW_DROP_FALSE;
    }
    if (!is_possible(node, contrib)) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    struct contribution *entry = &round->contributions[idx];
    /* A member that announced no contribution may have restarted and have one after all. */
    if (entry->has && (!entry->is_absent || is_of_nothing(contrib))) return TW_DROP_TWICE;
    if (!is_of_nothing(contrib) && !tw_contributor_is_signed(node, &row)) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    *entry = (struct contribution){.has = true,
                                   .is_absent = is_of_nothing(contrib),
                                   .received_us = begin_us(node),
                                   .announced = *contrib};
    if (!entry->is_absent) tw_round_touch(node, (uint32_t)idx);
    if (!entry->is_absent) tw_result_contributed(node, (uint32_t)idx);
    check_anchor(node, &contrib->base);
    return TW_DROP_NONE;
}

/* ---- our own outer gradient ------------------------------------------------------------------ */

static bool is_past(struct tw_node *node, uint64_t due_us) {
    if (node->now_us < due_us) tw_act_wake(node, due_us);
    return node->now_us >= due_us;
}

/* True if a hand's work is due: a period is over, or nearly, when the head calls for it. */
static bool is_hand_due(struct tw_node *node) {
    const uint32_t early = node->crew.is_called ? node->cfg.period_steps / 4 : 0;
    if (node->cfg.pace_us > 0 && node->crew.is_called) return true;
    if (node->cfg.pace_us > 0) return is_past(node, node->pace.last_commit_us + node->cfg.pace_us);
    return node->worker.step >= node->worker.last_send_step + node->cfg.period_steps - early;
}

/* True if our contribution is due. */
bool tw_round_is_due(struct tw_node *node) {
    if (tw_progress_is_final(node)) return true;
    /* A receiver would always be due, but a round that it opened would have no other contribution.
     */
    if (node->cfg.is_hand) return is_hand_due(node);
    if (node->state == TW_STATE_RECEIVER && node->round.active_us == 0) return false;
    if (node->cfg.pace_us > 0) return is_past(node, node->pace.last_commit_us + node->cfg.pace_us);
    /* The first node whose period is over opens the round, and the other nodes join it up to a
     * quarter of a period early. Otherwise equal machines would keep their phases, and the last one
     * would miss every round. */
    const uint32_t early = node->round.active_us != 0 ? node->cfg.period_steps / 4 : 0;
    /* A newcomer, without a whole period behind it, would always be due. It opens no round, because
     * the other nodes are somewhere in their periods. */
    const bool is_new = node->worker.step < node->worker.entered_step + node->cfg.period_steps;
    if (is_new && node->round.active_us == 0) return false;
    return node->worker.step >= node->worker.last_send_step + node->cfg.period_steps - early;
}

/* True if this node should encode its contribution now. With sync.pace = clock, that is one step
 * before the contribution is due. Otherwise a round could open and end between two boundaries of
 * long steps. */
static bool is_due_soon(struct tw_node *node) {
    const uint64_t early_us =
        node->worker.step_us < node->cfg.pace_us ? node->worker.step_us : node->cfg.pace_us;
    if (node->cfg.pace_us == 0 || tw_progress_is_final(node)) return tw_round_is_due(node);
    if (node->state == TW_STATE_RECEIVER && node->round.active_us == 0) return false;
    return is_past(node, node->pace.last_commit_us + node->cfg.pace_us - early_us);
}

/* Resets our entry of this round to one without a contribution. Returns its CONTRIB. */
struct tw_msg_contrib *tw_round_entry(struct tw_node *node) {
    struct contribution *entry = &node->round.contributions[node->round.self_idx];
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    TW_ASSERT(node->round.self_idx >= 0);
    *entry = (struct contribution){.has = false};
    entry->announced = (struct tw_msg_contrib){.lineage = node->at.lineage,
                                               .round = node->at.rounds,
                                               .base = node->at.fragment_digests[fragment],
                                               .parts_count = node->round.owners_count};
    return &entry->announced;
}

/* Begins a round for a node that asks for a seat, if no live member trains: no contribution would
 * ever begin one. */
static void begin_for_join(struct tw_node *node) {
    if (node->round.active_us != 0 || node->cfg.role == TW_NODE_ROLE_TRAIN) return;
    if (tw_membership_has_trainer(node) || !tw_membership_is_asked(node)) return;
    tw_round_touch(node, (uint32_t)node->round.self_idx);
}

/* Answers, at a node that takes no steps, a round that others have begun: members of a version
 * without roles wait for its answer. */
static void decline(struct tw_node *node) {
    struct round *round = &node->round;
    if (round->own != OWN_IDLE || round->active_us == 0 || round->self_idx < 0) return;
    (void)tw_round_entry(node);
    round->own = OWN_FAILED;
}

/* Begins the round that closes the run: it merges nothing, and every member says so. It says so
 * with the digest of its anchor, and so not before it has applied all rounds: to members that have,
 * an older digest looks like another model. */
static void close_run(struct tw_node *node) {
    if (node->round.own != OWN_IDLE || node->round.self_idx < 0) return;
    if (!tw_progress_is_current(node)) return;
    (void)tw_round_entry(node);
    node->round.own = OWN_FAILED;
    tw_round_touch(node, (uint32_t)node->round.self_idx);
}

/* True if this node contributes together with its hands (crew/crew.h). */
static bool has_crew(const struct tw_node *node) {
    for (uint32_t i = 0; i < node->cfg.crew_max && !node->cfg.is_hand; i++) {
        if (!tw_id_is_zero(&node->crew.hands[i].id)) return true;
    }
    return false;
}

static void start_encoding(struct tw_node *node) {
    struct round *round = &node->round;
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    const bool is_free =
        round->own == OWN_IDLE || (round->own == OWN_FAILED && round->active_us == 0);
    if (tw_progress_is_apart(node)) return;
    /* A change to another lineage is under way, which may discard this work. */
    if (node->at.is_moving != 0) return;
    if (tw_progress_closes(node)) {
        close_run(node);
        return;
    }
    if (node->cfg.role != TW_NODE_ROLE_TRAIN) {
        decline(node);
        return;
    }
    if (!is_free || !node->worker.is_up || tw_progress_is_applying(node, fragment)) return;
    if (round->owners_count == 0 || tw_progress_due(node, fragment) != UINT64_MAX) return;
    if (node->at.fragment_rounds[fragment] == NOT_HELD || !is_due_soon(node)) return;
    if (node->now_us < round->own_retry_us) {
        tw_act_wake(node, round->own_retry_us);
        return;
    }
    round->own = OWN_ENCODING;
    struct tw_action *action = tw_act_body(node, TW_ACT_ENCODE);
    action->u.encode.round = node->at.rounds;
    action->u.encode.fragment = fragment;
    if (has_crew(node)) { /* its work is one input of the crew's: crew/crew.c */
        node->crew.phase = CREW_ENCODING;
        action->u.encode.parts_count = 1;
        action->u.encode.parts[0].count = node->cfg.fragment_elements[fragment];
        return;
    }
    action->u.encode.parts_count = round->owners_count;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        action->u.encode.parts[k].begin = round->begin[k];
        action->u.encode.parts[k].count = round->count[k];
    }
}

enum tw_drop tw_round_encoded(struct tw_node *node, const struct tw_event *event) {
    struct round *round = &node->round;
    TW_ASSERT(node->crew.phase != CREW_ENCODING);
    const bool is_now = event->u.encoded.round == node->at.rounds && round->own == OWN_ENCODING;
    /* The encoded bytes are held in any case; if not needed, they are dropped later. */
    for (uint32_t k = 0; event->ok && k < event->u.encoded.parts_count; k++) {
        if (event->u.encoded.bytes[k] == 0) continue;
        tw_payload_hold(node, &event->u.encoded.hashes[k], event->u.encoded.bytes[k],
                        is_now ? TW_CONTENT_DELTA : TW_CONTENT_OPAQUE, is_now ? round->count[k] : 0,
                        is_now ? node->at.rounds + AUDIT_ROUNDS : 0);
    }
    if (!is_now) return TW_DROP_UNASKED;
    node->worker.last_send_step = node->worker.step;
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    struct tw_msg_contrib *announced = tw_round_entry(node);
    /* A failed encoding is tried again later. Otherwise a round in which no member encoded would
     * never start. */
    round->own = OWN_FAILED;
    round->own_retry_us = node->now_us + PATIENCE_FLOOR_US;
    if (!event->ok || event->u.encoded.parts_count != round->owners_count) return TW_DROP_NONE;
    round->own = OWN_READY;
    round->own_step = event->u.encoded.step;
    round->own_tokens = event->u.encoded.tokens;
    node->worker.last_send_step = round->own_step;

    struct tw_contributor row;
    tw_account_row(node, fragment, &row);
    announced->tokens = row.tokens;
    announced->fragment_tokens = row.fragment_tokens;
    announced->fragment_steps = row.fragment_steps;
    announced->cursor = node->cfg.jury_millionths > 0 ? event->u.encoded.cursor : 0;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        announced->hashes[k] = event->u.encoded.hashes[k];
        announced->bytes[k] = event->u.encoded.bytes[k];
    }
    tw_contributor_sign(node, announced);
    return TW_DROP_NONE;
}

/* Counts our contribution once it is due or another member has begun the round. */
static void enter_round(struct tw_node *node) {
    struct contribution *entry = &node->round.contributions[node->round.self_idx];
    if (node->round.own == OWN_FAILED && node->round.active_us != 0 && !entry->has) {
        entry->has = entry->is_absent = true;
        entry->received_us = node->now_us;
    }
    if (node->round.own != OWN_READY) return;
    if (node->cfg.pace_us > 0 && node->round.active_us == 0 && !tw_round_is_due(node)) return;
    node->round.own = OWN_SENT;
    entry->has = true;
    entry->received_us = entry->ready_us = node->now_us;
    tw_round_touch(node, (uint32_t)node->round.self_idx);
}

/* ---- the part we own ------------------------------------------------------------------------- */

/* Fetches our part of every contribution, and notes which parts are complete and checked. */
static void collect_contributions(struct tw_node *node) {
    struct round *round = &node->round;
    const uint32_t part = (uint32_t)round->self_part;
    const struct tw_id *base =
        &node->at.fragment_digests[tw_progress_fragment(node, node->at.rounds)];
    TW_ASSERT(round->self_part >= 0);
    for (uint32_t i = 0; i < node->roster.count; i++) {
        struct contribution *entry = &round->contributions[i];
        if (!entry->has || entry->is_absent || entry->is_bad || entry->ready_us != 0) continue;
        if (!tw_id_equal(&entry->announced.base, base)) {
            entry->is_bad = true; /* a Delta to another anchor cannot be merged */
            report_differs(node, &node->roster.members[i].id);
            continue;
        }
        if (tw_conduct_is_untrained(node, &node->roster.members[i].id)) {
            entry->is_bad = true; /* checks showed that it does not train on its data */
            continue;
        }
        const struct tw_id *hash = &entry->announced.hashes[part];
        const struct payload *known = tw_payload_find(node, hash);
        /* This node knows the payload with another size or content: this CONTRIB must not undo that
         * transfer. */
        if (entry->announced.bytes[part] == 0 ||
            (known != NULL &&
             (known->bytes != entry->announced.bytes[part] ||
              !tw_payload_is_as(node, known, TW_CONTENT_DELTA, round->count[part])))) {
            entry->is_bad = true;
            continue;
        }
        struct payload *payload = tw_payload_want(node, hash, entry->announced.bytes[part],
                                                  TW_CONTENT_DELTA, round->count[part]);
        if (payload == NULL) continue;
        payload->from = node->roster.members[i].id;
        if (payload->keep_round < node->at.rounds) payload->keep_round = node->at.rounds;
        if (payload->state == PAYLOAD_HELD) entry->ready_us = node->now_us;
        if (tw_payload_is_lost(payload)) entry->is_bad = true;
    }
}

/* Returns the grace: the 60th percentile of recent delays plus 4 median absolute deviations. */
static uint64_t grace_us(const struct tw_node *node) {
    const struct pace *pace = &node->pace;
    uint64_t values[ARRIVALS_KEPT];
    const uint32_t count =
        pace->arrivals_count < ARRIVALS_KEPT ? pace->arrivals_count : ARRIVALS_KEPT;
    if (count < 8) return node->cfg.grace_us;
    memcpy(values, pace->arrivals_us, sizeof(values));
    tw_sort_u64(values, count);
    /* Not the median: of two members one is always first, so half of the delays are 0. */
    const uint64_t middle = values[count * 3 / 5];
    for (uint32_t i = 0; i < count; i++)
        values[i] = values[i] > middle ? values[i] - middle : middle - values[i];
    return at_most(middle + 4 * tw_median_u64(values, count) + GRACE_FLOOR_US, node->cfg.grace_us);
}

bool tw_round_awaits(const struct tw_node *node, uint32_t member) {
    TW_ASSERT(member < node->roster.count);
    return node->at.rounds % (UINT64_C(1) << node->seats[member].missed / 2) == 0;
}

/* True if no further contribution is worth waiting for. */
static bool intake_is_over(struct tw_node *node) {
    const struct round *round = &node->round;
    const uint64_t pacers = tw_membership_pacers(node);
    uint32_t live_count = 0, received_count = 0, ready_count = 0, pending_count = 0;
    uint32_t paced_count = 0;
    uint64_t first_us = UINT64_MAX;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct contribution *entry = &round->contributions[i];
        if (!tw_membership_trains(node, i)) continue;
        const bool is_live = tw_membership_is_live(node, i);
        live_count += is_live;
        paced_count += is_live && (pacers >> i & 1) != 0;
        if (!entry->has) continue;
        received_count += is_live;
        if (entry->is_absent) continue;
        if (entry->received_us < first_us) first_us = entry->received_us;
        ready_count += entry->ready_us != 0;
        pending_count +=
            is_live && !entry->is_bad && entry->ready_us == 0 && tw_round_awaits(node, i);
    }
    if (first_us == UINT64_MAX || first_us < round->active_us) first_us = round->active_us;
    /* As many members as may lie may also never answer, so do not wait for that many. */
    const uint32_t liars = pacers != 0 ? tw_liars_max(tw_bits(pacers)) : 0;
    TW_ASSERT(received_count <= live_count && paced_count <= live_count);
    const uint32_t most = paced_count > liars ? paced_count - liars : 0;
    const uint32_t wanted = node->cfg.quorum < most ? node->cfg.quorum : most;
    const uint64_t grace_end_us = first_us + grace_us(node);
    const uint64_t patience_end_us = first_us + node->pace.patience_us;
    if (node->now_us >= patience_end_us) {
        node->round.has_waited_in_vain = true;
        return true;
    }
    tw_act_wake(node, patience_end_us);
    if (pending_count > 0) return false;
    if (received_count >= live_count) return true;
    if (node->now_us >= grace_end_us) return ready_count >= wanted;
    tw_act_wake(node, grace_end_us);
    return false;
}

bool tw_round_is_late(struct tw_node *node, uint32_t k) {
    TW_ASSERT(k < TW_PARTS_MAX);
    return node->round.results[k].has &&
           is_past(node, node->round.results[k].announced_us + node->pace.patience_us);
}

bool tw_round_is_unannounced(const struct tw_node *node, uint32_t k) {
    TW_ASSERT(k < node->round.owners_count);
    const struct tw_id *owner = &node->roster.members[node->round.owners[k]].id;
    if (node->round.count[k] == 0 || node->round.results[k].has) return false;
    return !tw_conduct_is_stalled(node, TW_PENALTY_STALL_OWNER, owner);
}

static void set_result(struct tw_node *node, const struct tw_id *hash, uint32_t bytes) {
    struct round *round = &node->round;
    const uint32_t part = (uint32_t)round->self_part;
    TW_ASSERT(round->self_part >= 0);
    TW_ASSERT(!round->is_reducing);
    struct tw_msg_result *announced = &round->results[part].announced;
    memset(announced->signature, 0, sizeof(announced->signature));
    announced->lineage = node->at.lineage;
    announced->round = node->at.rounds;
    announced->part = part;
    announced->bytes = bytes;
    announced->hash = *hash;
    announced->refused = round->refused;
    announced->contributors_count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (bytes == 0 || (round->merged >> i & 1) == 0) continue;
        const struct tw_msg_contrib *contrib = &round->contributions[i].announced;
        announced->contributors[announced->contributors_count++] = tw_contributor_of(i, contrib);
    }
    TW_ASSERT(announced->contributors_count == (bytes > 0 ? tw_bits(round->merged) : 0));
    round->results[part].bare = 0;
    round->is_reduced = true;
    if (bytes > 0) tw_vote_proof_sign_result(node, announced);
}

/* True if this node signed a result of its part before a restart and no longer knows it. A second
 * result would be evidence against this node. */
static bool has_signed_before(const struct tw_node *node) {
    return node->vote.has_announced != 0 && node->vote.round == node->at.rounds &&
           !node->round.is_reduced;
}

/* Announces our result once it is on disk that we signed one (acceptor.c). */
static void announce_own(struct tw_node *node) {
    struct round *round = &node->round;
    const uint32_t part = (uint32_t)round->self_part;
    TW_ASSERT(round->self_part >= 0);
    if (!round->is_reduced || round->results[part].has) return;
    const bool is_kept = round->result_seq != 0 && node->acceptor.stored_seq >= round->result_seq;
    if (round->results[part].announced.bytes > 0 && !is_kept) return;
    round->results[part].has = true;
    round->results[part].is_shown = false;
    round->results[part].announced_us = node->now_us;
}

static void request_merge(struct tw_node *node) {
    struct round *round = &node->round;
    const uint32_t part = (uint32_t)round->self_part;
    struct tw_action *action = tw_act_body(node, TW_ACT_REDUCE);
    TW_ASSERT(round->merged != 0);
    TW_ASSERT(!round->is_reducing && !round->is_reduced);
    action->u.reduce.round = node->at.rounds;
    action->u.reduce.fragment = tw_progress_fragment(node, node->at.rounds);
    action->u.reduce.part = part;
    action->u.reduce.begin = round->begin[part];
    action->u.reduce.count = round->count[part];
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((round->merged >> i & 1) == 0) continue;
        const struct tw_msg_contrib *contrib = &round->contributions[i].announced;
        action->inputs[count] = contrib->hashes[part];
        action->u.reduce.inputs[count].tokens = contrib->fragment_tokens;
        action->u.reduce.inputs[count].steps = contrib->fragment_steps;
        count++;
    }
    TW_ASSERT(count == tw_bits(round->merged));
    action->u.reduce.inputs_count = count;
    round->is_reducing = true;
}

/* True if the member has no vote where votes are earned, and had no work listed for long. Ids are
 * free there: members that never contribute would hold the others up in each round. */
static bool is_idle(const struct tw_node *node, uint32_t idx) {
    enum { IDLE_ROUNDS = 8 };
    return !node->cfg.has_rights && (node->voters >> idx & 1) == 0 &&
           node->seats[idx].unlisted > IDLE_ROUNDS;
}

/* A live member that is not listed was too late for every owner. It counts as an arrival at the
 * longest grace. A grace learned only from punctual members would exclude late members for good. */
void tw_round_note_missed(struct tw_node *node, const struct tw_record *record) {
    uint64_t listed = 0;
    if (record->contributors_count == 0) return;
    for (uint32_t i = 0; i < record->contributors_count; i++)
        listed |= UINT64_C(1) << record->contributors[i].member_idx;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((listed >> i & 1) != 0 || !tw_membership_is_live(node, i)) continue;
        if (!tw_membership_trains(node, i) || is_idle(node, i)) continue;
        if (node->round.contributions[i].is_absent)
            continue; /* the member announced in time that it has no contribution */
        node->pace.arrivals_us[node->pace.arrivals_count++ % ARRIVALS_KEPT] = node->cfg.grace_us;
    }
}

static void close_intake(struct tw_node *node) {
    struct round *round = &node->round;
    uint64_t first_us = UINT64_MAX;
    TW_ASSERT(!round->intake_closed);
    TW_ASSERT(round->merged == 0);
    round->intake_closed = true;
    round->intake_closed_us = node->now_us;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct contribution *entry = &round->contributions[i];
        if (entry->has && !entry->is_absent && entry->received_us < first_us)
            first_us = entry->received_us;
        if (entry->has && entry->ready_us != 0) round->merged |= UINT64_C(1) << i;
    }
    if (first_us < round->active_us) first_us = round->active_us;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const uint64_t received_us = round->contributions[i].received_us;
        if ((round->merged >> i & 1) == 0) continue;
        node->pace.arrivals_us[node->pace.arrivals_count++ % ARRIVALS_KEPT] =
            received_us > first_us ? received_us - first_us : 0;
    }
}

static void advance_own_part(struct tw_node *node) {
    struct round *round = &node->round;
    TW_ASSERT(round->self_part >= 0);
    if (round->count[round->self_part] == 0 || round->is_reduced) return;
    if (has_signed_before(node)) {
        if (round->active_us != 0) set_result(node, &(struct tw_id){{0}}, 0);
        return;
    }
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    if (tw_progress_due(node, fragment) != UINT64_MAX ||
        node->at.fragment_rounds[fragment] == NOT_HELD)
        return;
    if (!round->intake_closed) {
        collect_contributions(node);
        if (round->active_us == 0 || !intake_is_over(node)) return;
        close_intake(node);
    }
    if (round->is_reducing) return;
    if (round->merged == 0) {
        set_result(node, &(struct tw_id){{0}}, 0);
    } else if (node->worker.is_up) {
        request_merge(node);
    }
}

/* Notes the sizes of the contributions, and removes from the contributors each member whose input
 * the worker did not merge. */
static void judge_inputs(struct tw_node *node, const struct tw_event *event) {
    struct round *round = &node->round;
    uint32_t input = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((round->merged >> i & 1) == 0) continue;
        const struct tw_id *id = &node->roster.members[i].id;
        const bool is_merged = (event->u.reduced.refused >> input & 1) == 0;
        const uint32_t size = event->u.reduced.sizes[input++];
        tw_conduct_note_merged(node, id, is_merged);
        if (is_merged && (int)i != round->self_idx) tw_conduct_note_size(node, id, size, false);
        if (is_merged) continue;
        round->merged &= ~(UINT64_C(1) << i);
        round->refused |= UINT64_C(1) << i;
    }
}

enum tw_drop tw_round_reduced(struct tw_node *node, const struct tw_event *event) {
    struct round *round = &node->round;
    const bool is_now = round->is_reducing && event->u.reduced.round == node->at.rounds;
    if (event->ok) {
        tw_payload_hold(node, &event->u.reduced.hash, event->u.reduced.bytes,
                        is_now ? TW_CONTENT_RESULT : TW_CONTENT_OPAQUE,
                        is_now ? round->count[round->self_part] : 0,
                        is_now ? tw_round_keep(node) : 0);
    }
    if (!is_now) return TW_DROP_UNASKED;
    round->is_reducing = false;
    if (event->ok) judge_inputs(node, event);
    TW_ASSERT((round->merged & round->refused) == 0);
    if (event->ok && round->merged != 0) {
        set_result(node, &event->u.reduced.hash, event->u.reduced.bytes);
    } else {
        set_result(node, &(struct tw_id){{0}}, 0);
    }
    return TW_DROP_NONE;
}

/* True if this node has no contribution to the active round, and must announce that. */
static bool has_refused(const struct tw_node *node) {
    return node->round.own == OWN_FAILED && node->round.active_us != 0;
}

/* Drops the signatures that every member has: a contributor with a link to every other member has
 * sent its signed CONTRIB to all of them. */
static void drop_known_signatures(const struct tw_node *node, struct tw_msg_result *result) {
    for (uint32_t i = 0; i < result->contributors_count; i++) {
        struct tw_contributor *row = &result->contributors[i];
        if (tw_reach_count(node, row->member_idx) < node->roster.count) continue;
        memset(row->signature, 0, sizeof(row->signature));
    }
}

enum tw_drop tw_round_show(struct tw_node *node, uint16_t peer, uint32_t parts) {
    const struct round *round = &node->round;
    struct link *link = &node->links[peer];
    const int part = round->self_part;
    if (part < 0 || (parts >> part & 1) == 0 || !round->results[part].has) return TW_DROP_UNKNOWN;
    if (link->was_shown || !link->was_sent_result) return TW_DROP_TOO_SOON;
    struct tw_message *message = tw_act_message(node, TW_MSG_RESULT);
    if (message == NULL) return TW_DROP_NOT_READY;
    message->u.result = round->results[part].announced;
    tw_act_send(node, message, peer);
    link->was_shown = true;
    return TW_DROP_NONE;
}

/* Sends CONTRIB and RESULT to each acceptor at this round that was not sent them yet. */
static void send_announcements(struct tw_node *node) {
    struct round *round = &node->round;
    struct tw_message *contrib = NULL, *result = NULL;
    const bool has_answer = round->own == OWN_SENT || has_refused(node);
    const bool has_result = round->self_part >= 0 && round->results[round->self_part].has;
    for (uint16_t i = 0; i < node->links_end; i++) {
        struct link *link = &node->links[i];
        if (!tw_peers_is_at_round(node, i)) continue;
        if (has_answer && !link->was_sent_contrib) {
            if (contrib == NULL) contrib = tw_act_message(node, TW_MSG_CONTRIB);
            if (contrib == NULL) return;
            contrib->u.contrib = round->contributions[round->self_idx].announced;
            tw_act_send(node, contrib, i);
            link->was_sent_contrib = true;
        }
        if (has_result && !link->was_sent_result) {
            if (result == NULL) result = tw_act_message(node, TW_MSG_RESULT);
            if (result == NULL) return;
            result->u.result = round->results[round->self_part].announced;
            drop_known_signatures(node, &result->u.result);
            tw_act_send(node, result, i);
            link->was_sent_result = true;
        }
    }
}

void tw_round_advance(struct tw_node *node) {
    if (!tw_membership_takes_part(node) || node->roster.count < 2) return;
    begin_for_join(node);
    start_encoding(node);
    enter_round(node);
    if (node->round.self_part >= 0) {
        advance_own_part(node);
        announce_own(node);
    }
    if (node->round.own == OWN_SENT || has_refused(node) || node->round.is_reduced)
        send_announcements(node);
}
