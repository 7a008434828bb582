/* lineage.c - the lineage that this node follows, and its way into another one.
 *
 * One node founds a lineage: at a fresh start, after a restart alone, or without a majority for too
 * long. The lineage grows by admission. When two lineages meet, the one whose clock counts more
 * tokens wins; on a tie, the smaller id. This order is total and clocks only grow. A node that
 * decides to leave stops deciding rounds in the same event, so two nodes cannot swap places.
 *
 * To follow another lineage, a node fetches its newest record. Then it fetches (phi, u) of each
 * fragment from members (transfer/state_transfer.c), and replays the rounds decided meanwhile. Last
 * it sends JOIN until a record lists it under its new nonce.
 *
 * A model belongs to one lineage. (phi, u) arrive fragment by fragment, because a second copy of
 * all may not fit in memory, and are kept up to date. Theta stays in the old lineage until all
 * fragments are here (at.is_moving):
 *
 *   adopt     is_moving is set; each LOAD keeps theta, and each APPLY leaves it (TW_APPLY_STAY)
 *   all here  theta := phi of all at one step boundary (TW_LOAD_TURN), or kept as the next Delta
 *   given up  phi := theta, u := 0 of all (TW_LOAD_BACK): a child continues from the old theta
 *
 * The last two end is_moving. Until then the node is no member, and at.held stays the same. */
#include "sync/history/lineage.h"

#include <string.h>

#include "base/hash.h"
#include "sync/check/audit.h"
#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/peers.h"
#include "sync/core/progress.h"
#include "sync/core/state/node.h"
#include "sync/core/vote_proof.h"
#include "sync/history/log.h"
#include "sync/pair/pair.h"
#include "sync/pair/pair_clock.h"
#include "sync/round/account.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"
#include "sync/transfer/state_transfer.h"
#include "sync/trust/conduct.h"
#include "sync/vote/acceptor.h"

#define JOIN_US SECOND_US             /* between two JOINs */
#define PART_HOLD_US (10 * SECOND_US) /* before parting: the others may still need its results */

uint64_t tw_lineage_nonce(struct tw_node *node) {
    return tw_rng_next(&node->rng) | 1; /* never 0 */
}

static void forget_fetches(struct tw_node *node) {
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        node->fetch[p] = (struct state_fetch){.mode = node->fetch[p].mode};
        node->exports[p] = (struct state_export){.waiting = 0};
    }
    for (uint32_t j = 0; j < JOINS_MAX; j++) node->lineage.joins[j].received_us = 0;
}

/* Id of the lineage that this node founds, or founded, under its present nonce. */
static struct tw_id founded_name(const struct tw_node *node) {
    uint8_t bytes[24 + 32 + 32 + 8] = "thinwire-lineage-v1";
    memcpy(bytes + 24, node->at.lineage_parent.bytes, 32);
    memcpy(bytes + 56, node->cfg.self.bytes, 32);
    for (unsigned i = 0; i < 8; i++) bytes[88 + i] = (uint8_t)(node->at.nonce >> (8 * i));
    return tw_sha256(bytes, sizeof(bytes));
}

bool tw_lineage_is_ours(const struct tw_node *node) {
    const struct tw_id name = founded_name(node);
    return tw_id_equal(&name, &node->at.lineage);
}

bool tw_lineage_is_refused(const struct tw_node *node, const struct tw_id *lineage) {
    for (uint32_t i = 0; i < node->cfg.refused_count; i++) {
        if (tw_id_equal(&node->cfg.refused[i], lineage)) return true;
    }
    return false;
}

/* The oldest of the refused lineages makes room. */
static void refuse_lineage(struct tw_node *node, const struct tw_id *lineage) {
    struct tw_id *const refused = node->cfg.refused;
    if (node->cfg.refused_count == TW_REFUSED_MAX) {
        memmove(&refused[0], &refused[1], (TW_REFUSED_MAX - 1) * sizeof(refused[0]));
        node->cfg.refused_count--;
    }
    refused[node->cfg.refused_count++] = *lineage;
}

void tw_lineage_heard(struct tw_node *node, uint16_t peer) {
    struct link *const link = &node->links[peer];
    const struct tw_id *const lineage = &link->status.lineage;
    if (node->cfg.refused_count == 0 || !link->has_status) return;
    if (tw_lineage_is_refused(node, lineage)) {
        link->was_refused = true;
        return;
    }
    if (!link->was_refused || link->status.state == TW_STATE_RECEIVER) return;
    bool is_clean = tw_id_equal(lineage, &node->at.lineage);
    for (uint16_t i = 0; i < node->links_end && !is_clean; i++) {
        is_clean = i != peer && tw_peers_is_live(node, i) && !node->links[i].was_refused &&
                   tw_id_equal(lineage, &node->links[i].status.lineage);
    }
    if (is_clean)
        link->was_refused = false;
    else
        refuse_lineage(node, lineage);
}

struct tw_roster tw_lineage_founder(const struct tw_node *node) {
    struct tw_roster alone = {.number = 0, .count = 1};
    alone.members[0] =
        (struct tw_member){.id = node->cfg.self, .nonce = node->at.nonce, .weight = 1};
    if (node->at.has_tip != 0) alone.number = node->at.tip.next.number + 1;
    return alone;
}

void tw_lineage_fork(struct tw_node *node) {
    tw_pair_abandon(node);
    node->pair.is_donor_lost = false;
    node->at.lineage_parent = tw_id_is_zero(&node->at.lineage) ? node->cfg.run : node->at.lineage;
    node->at.nonce = tw_lineage_nonce(node);
    node->at.lineage = founded_name(node);
    /* Committed rounds that are not in our weights are not part of the child's past. A clock that
     * counted them would attract others to weights with less training than it shows. */
    tw_log_note_held(node);
    node->lineage.needs_tip = false;
    if (!TW_IS_MUTANT(node, TW_MUTANT_BORROWED_CLOCK))
        tw_log_begin_at(node, node->at.has_held != 0 ? &node->at.held : NULL, NULL);
    node->at.first_round = node->at.rounds;
    tw_payload_drop_all(node);
    forget_fetches(node);
    tw_audit_forget(node);
    /* The state that we hold becomes that of the new lineage, so LOAD changes nothing. If it is an
     * incomplete state of another lineage, LOAD sets phi := theta. */
    const bool is_moving = node->at.is_moving != 0 && !TW_IS_MUTANT(node, TW_MUTANT_HALF_A_STATE);
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        if (!is_moving && node->at.fragment_rounds[p] <= node->at.rounds)
            continue; /* nor is it set to NOT_HELD */
        node->at.fragment_rounds[p] = NOT_HELD;
        node->fetch[p].mode = is_moving ? TW_LOAD_BACK : TW_LOAD_KEEP;
        node->fetch[p].has_offer = true;
        node->fetch[p].offer = (struct tw_msg_state){.fragment = p, .rounds = node->at.rounds};
    }
    tw_acceptor_reset(node);
    const struct tw_roster alone = tw_lineage_founder(node);
    tw_round_set_roster(node, &alone);
    tw_log_clock(node);
    tw_act_report(node, TW_REPORT_LINEAGE, &node->at.lineage);
    node->status_us = 0;
}

/* Moves theta once all of the new lineage's state is here. Work that was part of a group is kept as
 * the next Delta; that of a fresh start is not. */
static void move_theta(struct tw_node *node) {
    if (node->at.is_moving == 0 || node->lineage.needs_tip || node->worker.applying != 0) return;
    if (!node->worker.is_up) return;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        if (node->at.fragment_rounds[p] == NOT_HELD) return;
    if (node->lineage.was_shared || tw_lineage_is_ours(node)) {
        tw_lineage_turned(node, true);
        return;
    }
    struct tw_action *action = tw_act_body(node, TW_ACT_LOAD);
    action->u.load.fragment = 0;
    action->u.load.rounds = node->at.fragment_rounds[0];
    action->u.load.digest = node->at.fragment_digests[0];
    action->u.load.mode = TW_LOAD_TURN;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        node->worker.applying |= UINT64_C(1) << p;
    node->worker.is_turning = true;
}

void tw_lineage_turned(struct tw_node *node, bool ok) {
    const bool was_turning = node->worker.is_turning;
    node->worker.is_turning = node->worker.is_solo_pending = false;
    node->worker.applying = 0;
    if (!ok) { /* the worker's state is not as it reported: fetch again */
        tw_state_refetch(node, 0, TW_LOAD_KEEP);
        return;
    }
    node->at.is_moving = 0;
    for (uint32_t p = 0; p < node->cfg.fragments_count && was_turning; p++)
        tw_account_settle_delta(node, p);
    tw_log_note_held(node);
    tw_membership_derive_state(node);
}

/* Most members of the roster are here, this node included. */
static bool is_among_most(const struct tw_node *node) {
    uint32_t here = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *const id = &node->roster.members[i].id;
        const uint16_t peer = tw_peers_find(node, id);
        here +=
            tw_id_equal(id, &node->cfg.self) ||
            (peer != NO_PEER && tw_peers_is_live(node, peer) && tw_peers_in_lineage(node, peer));
    }
    return node->roster.count > 1 && 2 * here > node->roster.count;
}

/* Follows the lineage of `peer` from now on. */
static void adopt_lineage(struct tw_node *node, uint16_t peer) {
    const struct tw_msg_status *status = &node->links[peer].status;
    if (!node->cfg.is_pair && is_among_most(node))
        tw_act_report(node, TW_REPORT_LEFT, &node->links[peer].id);
    tw_pair_abandon(node);
    node->pair.is_donor_lost = false;
    node->pair.gained_tokens = 0;
    if (node->cfg.is_pair) tw_conduct_note_donor(node, &node->links[peer].id);
    tw_payload_drop_all(node);
    forget_fetches(node);
    tw_audit_forget(node);
    node->at.lineage_parent = node->at.lineage;
    node->at.lineage = status->lineage;
    node->at.nonce = tw_lineage_nonce(node);
    node->at.first_round = 0;
    node->at.is_moving = 1;
    tw_log_begin_at(node, NULL, NULL);
    node->lineage.needs_tip = status->rounds > 0;
    node->worker.is_solo_pending = false;
    tw_account_settle(node);
    node->lineage.donor_us = node->now_us;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        tw_state_refetch(node, p, TW_LOAD_KEEP);
    tw_acceptor_reset(node);
    const struct tw_roster unknown = {.count = 0};
    tw_round_set_roster(node, &unknown);
    tw_act_report(node, TW_REPORT_LINEAGE, &node->at.lineage);
    node->status_us = 0;
}

static bool is_better(uint64_t clock_a, const struct tw_id *id_a, uint64_t clock_b,
                      const struct tw_id *id_b) {
    if (clock_a != clock_b) return clock_a > clock_b;
    return tw_id_compare(id_a, id_b) < 0;
}

static uint64_t claim_of(const struct tw_node *node, const struct tw_msg_status *status) {
    if (TW_IS_MUTANT(node, TW_MUTANT_ROUNDS_COMPARED)) return status->rounds;
    return status->clock_tokens;
}

/* No donor of the lineage has been here for LINEAGE_LOST_US. */
static bool is_without_donor(const struct tw_node *node) {
    return node->state == TW_STATE_RECEIVER &&
           node->now_us >= node->lineage.donor_us + LINEAGE_LOST_US;
}

/* The peer whose lineage should be followed instead of ours, or NO_PEER. */
static uint16_t find_better(const struct tw_node *node) {
    const bool is_lost = is_without_donor(node);
    uint64_t clock_tokens = node->at.has_tip != 0 ? node->at.tip.clock_tokens : 0;
    if (TW_IS_MUTANT(node, TW_MUTANT_ROUNDS_COMPARED)) clock_tokens = node->at.rounds;
    struct tw_id lineage = node->at.lineage;
    bool has_standing = !is_lost;
    uint16_t best = NO_PEER;
    /* A receiver counts with the clock of its lineage, not with its own progress. Otherwise it
     * would go back and forth between lineages. */
    for (uint16_t i = 0; i < node->links_end && has_standing; i++) {
        if (!tw_peers_is_donor(node, i)) continue;
        const uint64_t ours = claim_of(node, &node->links[i].status);
        if (ours > clock_tokens) clock_tokens = ours;
    }
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!tw_peers_is_live(node, i) || tw_peers_in_lineage(node, i)) continue;
        const struct tw_msg_status *status = &node->links[i].status;
        if (status->state == TW_STATE_RECEIVER) continue;
        if (tw_lineage_is_refused(node, &status->lineage)) continue;
        const uint64_t theirs = claim_of(node, status);
        if (is_lost && theirs < tw_progress_held_tokens(node))
            continue; /* we hold a newer state than that */
        /* At an equal clock, a node does not return to the lineage that it left. */
        if (has_standing && theirs == clock_tokens &&
            tw_id_equal(&status->lineage, &node->at.lineage_parent))
            continue;
        if (has_standing && is_better(theirs, &status->lineage, clock_tokens, &lineage) ==
                                TW_IS_MUTANT(node, TW_MUTANT_SMALLER_CLOCK))
            continue;
        has_standing = true;
        clock_tokens = theirs;
        lineage = status->lineage;
        best = i;
    }
    return best;
}

/* ---- joining -------------------------------------------------------------------------------- */

/* Every seat of the roster is taken, none by `id`. */
static bool is_full(const struct tw_node *node, const struct tw_id *id) {
    return node->roster.count >= node->cfg.members_max && tw_roster_find(&node->roster, id) < 0;
}

/* Reports a JOIN to a full roster. It needs no answer: the sender knows that the roster is full. */
static void note_full(struct tw_node *node, uint32_t row) {
    const struct tw_id *id = &node->lineage.joins[row].id;
    uint64_t *full_us = &node->lineage.joins[row].full_us;
    if (node->state != TW_STATE_MEMBER || !is_full(node, id)) return;
    if (*full_us != 0 && node->now_us < *full_us + FULL_US) return;
    *full_us = node->now_us;
    tw_act_report(node, TW_REPORT_FULL, id);
}

void tw_lineage_join(struct tw_node *node, uint16_t peer, const struct tw_msg_join *join) {
    if (!tw_id_equal(&join->lineage, &node->at.lineage) || tw_progress_is_apart(node)) return;
    if (node->links[peer].has_left) return;
    uint32_t row = 0, oldest = 0;
    for (; row < JOINS_MAX && !tw_id_equal(&node->lineage.joins[row].id, &node->links[peer].id);
         row++) {
        if (node->lineage.joins[row].received_us < node->lineage.joins[oldest].received_us)
            oldest = row;
    }
    if (row == JOINS_MAX) {
        row = oldest;
        node->lineage.joins[row].full_us = 0;
    }
    node->lineage.joins[row].id = node->links[peer].id;
    node->lineage.joins[row].join = *join;
    node->lineage.joins[row].received_us = node->now_us;
    if (join->rounds == node->at.rounds) tw_peers_hold_solo(node, SOLO_HOLD_US);
    note_full(node, row);
}

static void ask_to_join(struct tw_node *node) {
    const bool is_ready = tw_log_is_close(node) ||
                          (TW_IS_MUTANT(node, TW_MUTANT_EARLY_JOIN) && !node->lineage.needs_tip);
    if (node->state != TW_STATE_RECEIVER) node->lineage.is_shut_out = false;
    if (node->state != TW_STATE_RECEIVER || !is_ready || node->has_left) return;
    if (node->round.self_idx >= 0 || !tw_acceptor_has_nonce(node)) return;
    if (node->now_us < node->lineage.join_us + JOIN_US && node->lineage.join_us != 0) {
        tw_act_wake(node, node->lineage.join_us + JOIN_US);
        return;
    }
    struct tw_message *message = tw_act_message(node, TW_MSG_JOIN);
    if (message == NULL) return;
    node->lineage.join_us = node->now_us;
    message->u.join = (struct tw_msg_join){.lineage = node->at.lineage,
                                           .rounds = node->at.rounds,
                                           .nonce = node->at.nonce,
                                           .weight = node->cfg.weight};
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i)) tw_act_send(node, message, i);
    }
    tw_act_wake(node, node->lineage.join_us + JOIN_US);
    const bool was_shut_out = node->lineage.is_shut_out;
    node->lineage.is_shut_out = is_full(node, &node->cfg.self);
    if (node->lineage.is_shut_out && !was_shut_out)
        tw_act_report(node, TW_REPORT_FULL, &node->cfg.self);
}

/* ---- alone ---------------------------------------------------------------------------------- */

/* End of the hold. A peer that asks repeatedly without pulling new chunks does not extend it. */
static uint64_t hold_end_us(const struct tw_node *node) {
    uint64_t moved_us = node->lineage.hold_began_us;
    if (moved_us < node->pace.last_commit_us) moved_us = node->pace.last_commit_us;
    if (moved_us < node->lineage.fed_us) moved_us = node->lineage.fed_us;
    return at_most(node->lineage.solo_hold_us, moved_us + node->cfg.orphan_us);
}

/* In a lineage of one, phi follows theta, fragment by fragment, and the clock advances. */
static void solo_round(struct tw_node *node) {
    if (node->state != TW_STATE_SOLO || !node->worker.is_up || node->worker.applying != 0) return;
    const bool has_voted = node->vote.has_accepted != 0 && node->vote.round == node->at.rounds;
    if (node->round.phase != PROPOSER_IDLE || has_voted) return;
    if (!tw_progress_is_current(node)) return;
    const uint64_t held_until_us = hold_end_us(node);
    if (node->now_us < held_until_us) {
        tw_act_wake(node, held_until_us);
        return;
    }
    if (!tw_progress_is_final(node) &&
        node->worker.step < node->worker.last_send_step + node->cfg.period_steps)
        return;
    node->worker.last_send_step = node->worker.step;
    node->round.own_step = node->worker.step;
    node->round.own_tokens = node->worker.tokens;
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    node->worker.applying |= UINT64_C(1) << fragment;
    node->worker.is_solo_pending = true;
    struct tw_action *action = tw_act_body(node, TW_ACT_SOLO);
    action->u.solo.round = node->at.rounds;
    action->u.solo.fragment = fragment;
}

/* No other node votes on a solo round, and nothing is made durable: a restart alone founds a new
 * lineage. */
void tw_lineage_solo_done(struct tw_node *node) {
    const bool is_final = tw_progress_is_final(node);
    const struct tw_record *tip = node->at.has_tip != 0 ? &node->at.tip : NULL;
    struct tw_record record = {.lineage = node->at.lineage,
                               .parent = node->tip_digest,
                               .round = node->at.rounds,
                               .fragment = tw_progress_fragment(node, node->at.rounds),
                               .roster_number = node->roster.number,
                               .finals = is_final ? tip->finals + 1 : 0,
                               .contributors_count = 1,
                               .next = node->roster};
    tw_account_row(node, record.fragment, &record.contributors[0]);
    record.clock_tokens = tip != NULL ? tip->clock_tokens : 0;
    record.clock_tokens += record.contributors[0].tokens * tw_progress_share(node);
    node->round.own = OWN_SENT;
    struct tw_proof proof;
    tw_vote_proof_alone(node, &record, &proof);
    struct tw_message *message = tw_act_message(node, TW_MSG_COMMIT);
    if (message != NULL) {
        message->u.commit.record = record;
        message->u.commit.proof = proof;
        tw_peers_broadcast(node, message);
    }
    tw_log_commit(node, &record, &proof);
}

/* ---- the end of a lineage ------------------------------------------------------------------- */

/* So many members have parted that the rest is no majority, and has no round that we lack. */
static bool is_left_behind(struct tw_node *node) {
    uint32_t staying_count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_in_lineage(node, i) && node->links[i].status.rounds > node->at.rounds)
            return false;
    }
    for (uint32_t i = 0; i < node->roster.count; i++)
        staying_count += !tw_membership_is_parted(node, i);
    return staying_count < tw_membership_votes_needed(node);
}

/* Every member of the roster is linked, and none is ahead of this node in the lineage. */
static bool is_nobody_ahead(const struct tw_node *node) {
    if (tw_roster_find(&node->roster, &node->cfg.self) < 0 || node->lineage.needs_tip) return false;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *id = &node->roster.members[i].id;
        if (tw_id_equal(id, &node->cfg.self)) continue;
        const uint16_t peer = tw_peers_find(node, id);
        if (peer == NO_PEER || !tw_peers_is_live(node, peer)) return false;
        if (tw_peers_in_lineage(node, peer) && node->links[peer].status.rounds > node->at.rounds)
            return false;
    }
    return true;
}

/* Waiting for a majority is futile: all members were killed in one round. A member then has an
 * accepted record whose results are lost with every pool. A receiver lacks rounds in which it may
 * have voted, and which no node can serve. No other record may be decided in those rounds. But a
 * child lineage can begin at once, because no missing member could know more. */
static bool is_hopeless(struct tw_node *node) {
    if (node->state == TW_STATE_MEMBER)
        return is_left_behind(node) || (node->round.is_lost && is_nobody_ahead(node));
    return node->now_us >= node->lineage.donor_us + LINEAGE_LOST_US && is_nobody_ahead(node);
}

static void consider_fork(struct tw_node *node) {
    if (node->state != TW_STATE_MEMBER && node->state != TW_STATE_RECEIVER) return;
    const bool is_member = node->state == TW_STATE_MEMBER;
    const uint64_t orphan_us =
        (is_member ? node->lineage.majority_us : node->lineage.donor_us) + node->cfg.orphan_us;
    if (node->now_us >= orphan_us || is_hopeless(node)) {
        node->lineage.is_settling = !node->has_left;
        if (node->worker.applying != 0 || node->has_left) return;
        tw_lineage_fork(node);
        /* The others are in the same position: they can join before phi changes alone. */
        node->lineage.solo_hold_us = node->now_us + SOLO_HOLD_US;
        return;
    }
    tw_act_wake(node, orphan_us);
    if (!is_member && node->now_us < node->lineage.donor_us + LINEAGE_LOST_US)
        tw_act_wake(node, node->lineage.donor_us + LINEAGE_LOST_US);
}

/* Pairs: once the state taken over from another node is complete, founds a lineage of our own. */
static void found_own(struct tw_node *node) {
    if (node->state != TW_STATE_RECEIVER || node->worker.applying != 0 || node->has_left) return;
    if (tw_lineage_is_ours(node) || !tw_progress_is_current(node)) return;
    node->lineage.was_shared = true;
    tw_lineage_fork(node);
}

/* The clock has passed together_tokens: founds a lineage of our own once all common rounds are
 * applied. A member first keeps serving nodes that still fetch them: for PART_HOLD_US at least,
 * orphan_us at most. */
static void part_ways(struct tw_node *node) {
    if (node->state != TW_STATE_MEMBER && node->state != TW_STATE_RECEIVER) return;
    if (node->worker.applying != 0 || node->has_left || !tw_progress_is_current(node)) return;
    if (node->state == TW_STATE_MEMBER) {
        const uint64_t least_us = node->pace.last_commit_us + PART_HOLD_US;
        const uint64_t most_us = node->pace.last_commit_us + node->cfg.orphan_us;
        uint64_t due_us =
            node->lineage.solo_hold_us < most_us ? node->lineage.solo_hold_us : most_us;
        if (due_us < least_us) due_us = least_us;
        if (node->now_us < due_us) {
            tw_act_wake(node, due_us);
            return;
        }
    }
    node->lineage.was_shared = true;
    tw_lineage_fork(node);
    node->lineage.solo_hold_us =
        node->now_us + SOLO_HOLD_US; /* peers may still be copying the old lineage's state */
}

void tw_lineage_advance(struct tw_node *node) {
    uint16_t better = NO_PEER;
    if (node->cfg.is_pair) {
        better = tw_pair_find_ahead(node);
    } else if (!tw_progress_is_apart(node) || is_without_donor(node)) {
        better = find_better(node);
    }
    node->lineage.is_settling = better != NO_PEER && !node->has_left;
    if (node->lineage.is_settling && node->worker.applying == 0) adopt_lineage(node, better);
    consider_fork(node);
    if (tw_state_receive(node)) tw_lineage_fork(node); /* each fragment then has an offer */
    move_theta(node);
    tw_state_export(node);
    if (node->cfg.is_pair) {
        found_own(node);
    } else {
        if (tw_progress_is_apart(node)) {
            part_ways(node);
        } else {
            ask_to_join(node);
        }
        solo_round(node);
    }
}
