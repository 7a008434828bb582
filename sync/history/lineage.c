/* lineage.c - the lineage that a node follows, its prospects, and the way into another one. */
#include "sync/history/lineage.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "sync/check/audit.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/core/voters.h"
#include "sync/history/claim.h"
#include "sync/history/log.h"
#include "sync/pair/pair.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"
#include "sync/transfer/state_transfer.h"
#include "sync/vote/acceptor.h"

/* ==== prospects =============================================================================== */

/* Whether the lineage that this node follows can still go on, for all it knows.
 *
 * All questions are about time and links alone. A wrong yes costs a fork, which never contradicts a
 * decided round. A wrong no costs the wait of an orphan (cfg.orphan_us). */

/* True if all other members of the roster are linked, and none of them serves the state. So nobody
 * can: no donor is worth waiting for. `is_here`: each must be a receiver in this lineage, or claim
 * a run clock below that of this node's state. */
static bool is_unserved(const struct tw_node *node, bool is_here) {
    if (node->roster.count < 2 || node->lineage.needs_tip) return false;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *const id = &node->roster.members[i].id;
        if (tw_id_equal(id, &node->cfg.self)) continue;
        const uint16_t peer = tw_peers_find(node, id);
        if (peer == NO_PEER || !tw_peers_is_live(node, peer) || tw_peers_is_donor(node, peer))
            return false;
        if (is_here && !tw_peers_in_lineage(node, peer) &&
            node->links[peer].status.clock_tokens >= tw_progress_held_tokens(node))
            return false;
    }
    return true;
}

/* True if so many voters have left that the remaining ones are no majority, and no member has a
 * round that this node lacks. */
static bool is_left_behind(struct tw_node *node) {
    uint32_t staying_count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_in_lineage(node, i) && node->links[i].status.rounds > node->at.rounds)
            return false;
    }
    for (uint32_t i = 0; i < node->roster.count; i++)
        staying_count += (node->voters >> i & 1) != 0 && !tw_membership_is_parted(node, i);
    return staying_count < tw_membership_votes_needed(node);
}

/* True if no member of the roster can be ahead of this node in the lineage, as far as links tell.
 * Every member must be linked; or, with `is_most`, so many voters that the others are no majority
 * without them. */
static bool is_nobody_ahead(const struct tw_node *node, bool is_most) {
    uint32_t voters = 0;
    bool is_all = true;
    if (tw_roster_find(&node->roster, &node->cfg.self) < 0 || node->lineage.needs_tip) return false;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *id = &node->roster.members[i].id;
        const bool is_self = tw_id_equal(id, &node->cfg.self);
        const uint16_t peer = is_self ? NO_PEER : tw_peers_find(node, id);
        if (!is_self && (peer == NO_PEER || !tw_peers_is_live(node, peer))) {
            is_all = false;
            continue;
        }
        voters += (uint32_t)(node->voters >> i & 1);
        if (!is_self && tw_peers_in_lineage(node, peer) &&
            node->links[peer].status.rounds > node->at.rounds)
            return false;
    }
    return is_all || (is_most && voters >= tw_membership_votes_needed(node));
}

/* True if the members that hold this node's round are so few that the others do not take their
 * word for it (log.c), and this node's log does not reach back to the others to prove it. So it is
 * after a restart of the whole group in which few members have the newest checkpoint. */
static bool is_disbelieved(const struct tw_node *node) {
    uint32_t count = 1;
    bool is_behind = false;
    /* Without a search in the roster first: this is asked at each event, and rarely true. */
    for (uint16_t i = 0; i < node->links_end && !is_behind; i++) {
        const struct tw_msg_status *const status = &node->links[i].status;
        is_behind = status->state == TW_STATE_RECEIVER && status->rounds < node->log.begin &&
                    tw_peers_in_lineage(node, i);
    }
    if (!is_behind) return false;
    is_behind = false;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const struct tw_msg_status *const status = &node->links[i].status;
        if (!tw_peers_in_lineage(node, i) || tw_roster_find(&node->roster, &node->links[i].id) < 0)
            continue;
        count += status->state != TW_STATE_RECEIVER;
        is_behind |= status->state == TW_STATE_RECEIVER && status->rounds < node->log.begin;
    }
    return is_behind && count <= tw_membership_liars_max(node);
}

/* True if waiting for a majority is futile: for example, all members were killed in one round. A
 * member then has an accepted record whose results are lost with every pool. A receiver lacks
 * rounds in which it may have voted, and which no node can serve. No other record may be decided in
 * those rounds. But a child lineage can begin at once if all members are linked and have told their
 * rounds, because no missing member could know more. If some are missing, the others wait for
 * LINEAGE_LOST_US: the missing ones may have a newer state, but decide nothing without the others.
 */
static bool are_members_gone(struct tw_node *node) {
    if (node->state == TW_STATE_MEMBER) {
        const bool is_late = node->now_us >= node->lineage.majority_us + LINEAGE_LOST_US &&
                             node->now_us >= node->pace.last_commit_us + LINEAGE_LOST_US;
        return is_left_behind(node) ||
               ((node->round.is_lost || is_disbelieved(node)) && is_nobody_ahead(node, is_late));
    }
    if (!tw_voters_are_awaited(node) && is_unserved(node, true))
        return is_nobody_ahead(node, false);
    return node->now_us >= node->lineage.donor_us + LINEAGE_LOST_US && is_nobody_ahead(node, true);
}

/* True if linked donors are ahead, and no donor's log reaches back to this node's round. */
static bool is_log_gone(const struct tw_node *node) {
    bool is_gone = false;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!tw_peers_is_donor(node, i) || node->links[i].status.rounds <= node->at.rounds)
            continue;
        if (node->links[i].log_begin <= node->at.rounds) return false;
        is_gone = true;
    }
    return is_gone;
}

/* True if donors of the lineage are linked but deliver nothing, neither a record nor a chunk of
 * state, for 2 * cfg.orphan_us. A lie about a lineage thus does not hold a node for ever. The peer
 * whose claim this node followed is then not believed for a while. */
static bool is_starved(struct tw_node *node) {
    const bool is_gone = is_log_gone(node);
    bool is_owed = node->lineage.needs_tip || is_gone, has_donor = false;
    if ((node->state != TW_STATE_RECEIVER && !is_gone) || node->has_left) {
        node->lineage.moved_us = node->now_us;
        return false;
    }
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        is_owed |= node->at.fragment_rounds[p] == NOT_HELD;
    for (uint16_t i = 0; i < node->links_end; i++) has_donor |= tw_peers_is_donor(node, i);
    if (!is_owed || !node->worker.is_up || !tw_fragment_set_is_empty(&node->worker.applying))
        node->lineage.moved_us = node->now_us;
    if (!has_donor) return false;
    const uint64_t starved_us = node->lineage.moved_us + 2 * node->cfg.orphan_us;
    if (node->now_us < starved_us) {
        tw_act_wake(node, starved_us);
        return false;
    }
    if (!tw_id_is_zero(&node->lineage.leader))
        tw_conduct_note_false_claim(node, &node->lineage.leader);
    return true;
}

/* ==== the lineage ============================================================================= */

/* The lineage that this node follows, and its way into another one.
 *
 * One node founds a lineage: at a fresh start, after a restart alone, or without a majority for too
 * long. The lineage grows by admission. When two lineages meet, the one with far more supporters
 * wins, then the one whose clock counts more tokens; at clock zero the one that has trained far
 * more; then the smaller id. A node that decides to leave stops deciding rounds in the same event,
 * so two nodes cannot swap places. DESIGN.md has the argument.
 *
 * To follow another lineage, a node first has that lineage's newest record proven (claim.c). Then
 * it fetches (phi, u) of each fragment from members (transfer/state_transfer.c), and replays the
 * rounds decided meanwhile. Finally it sends JOIN until a record lists it under its new nonce.
 *
 * A model belongs to one lineage. (phi, u) arrive fragment by fragment, because a second copy of
 * all may not fit in memory, and are kept up to date. Theta stays in the old lineage until all
 * fragments have arrived (at.is_moving):
 *
 *   adopt     is_moving is set; each LOAD keeps theta, and each APPLY leaves it (TW_APPLY_STAY)
 *   complete  theta := phi of all at one step boundary (TW_LOAD_TURN), or kept as the next Delta
 *   given up  phi := theta, u := 0 of all (TW_LOAD_BACK): a child continues from the old theta
 *
 * The last two end is_moving. Until then the node is no member, and at.held stays the same. */

#define JOIN_US SECOND_US             /* time between two JOINs of one round */
#define JOIN_SOON_US (SECOND_US / 20) /* between two JOINs */
#define PART_HOLD_US                                                                               \
    (10 * SECOND_US) /* time for which a node still serves results before it trains alone */

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

/* Returns the id of the lineage that this node founds, or has founded, under its present nonce. */
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

/* Adds the lineage to the refused ones, in place of the oldest if the list is full. */
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
    if (node->at.has_tip == 0) return alone;
    const struct tw_roster *const before = &node->at.tip.next;
    const int at = tw_roster_find(before, &node->cfg.self);
    alone.number = before->number + 1;
    if (at >= 0) alone.members[0].merges = before->members[at].merges;
    return alone;
}

/* Founds a child lineage of this node alone, from the state that it holds. */
static void fork_lineage(struct tw_node *node) {
    tw_pair_abandon(node);
    node->pair.is_donor_lost = false;
    node->at.lineage_parent = tw_id_is_zero(&node->at.lineage) ? node->cfg.run : node->at.lineage;
    node->at.nonce = tw_lineage_nonce(node);
    node->at.lineage = founded_name(node);
    /* Committed rounds that are not in our weights are not part of the child's past. A clock that
     * counted them would attract other nodes to weights with less training than it shows. */
    tw_log_note_held(node);
    node->lineage.needs_tip = false;
    node->lineage.leader = (struct tw_id){{0}};
    if (!TW_IS_MUTANT(node, TW_MUTANT_BORROWED_CLOCK))
        tw_log_begin_at(node, node->at.has_held != 0 ? &node->at.held : NULL, NULL);
    node->at.first_round = node->at.rounds;
    tw_payload_drop_all(node);
    forget_fetches(node);
    tw_audit_forget(node);
    tw_jury_forget(node);
    /* The state that we hold becomes that of the new lineage, so LOAD changes nothing. If it is an
     * incomplete state of another lineage, LOAD sets phi := theta. */
    const bool is_moving = node->at.is_moving != 0 && !TW_IS_MUTANT(node, TW_MUTANT_HALF_A_STATE);
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        if (!is_moving && node->at.fragment_rounds[p] <= node->at.rounds)
            continue; /* this fragment is held, and stays so */
        node->at.fragment_rounds[p] = NOT_HELD;
        node->fetch[p].mode = is_moving ? TW_LOAD_BACK : TW_LOAD_KEEP;
        node->fetch[p].has_offer = true;
        node->fetch[p].donor = node->cfg.self;
        node->fetch[p].offer = (struct tw_msg_state){.fragment = p, .rounds = node->at.rounds};
    }
    tw_acceptor_reset(node);
    for (uint16_t i = 0; i < node->links_end; i++) node->links[i].claim_us = 0;
    const struct tw_roster alone = tw_lineage_founder(node);
    tw_round_set_roster(node, &alone);
    TW_ASSERT(node->round.self_idx == 0 && tw_lineage_is_ours(node));
    tw_log_clock(node);
    tw_act_report(node, TW_REPORT_LINEAGE, &node->at.lineage);
    node->status_us = 0;
}

/* Moves theta once all of the new lineage's state has arrived. Work of a node that was in a group
 * is kept as the next Delta; work of a fresh start is not. In pairs no work is kept: nothing clips
 * such a Delta, which would take the whole anchor back, and partners would refuse it. */
static void move_theta(struct tw_node *node) {
    TW_ASSERT(!node->worker.is_turning || !tw_fragment_set_is_empty(&node->worker.applying));
    if (node->at.is_moving == 0 || node->lineage.needs_tip ||
        !tw_fragment_set_is_empty(&node->worker.applying))
        return;
    if (!node->worker.is_up) return;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        if (node->at.fragment_rounds[p] == NOT_HELD) return;
    if ((node->lineage.was_shared && !node->cfg.is_pair) || tw_lineage_is_ours(node)) {
        tw_lineage_turned(node, true);
        return;
    }
    struct tw_action *action = tw_act_body(node, TW_ACT_LOAD);
    action->u.load.fragment = 0;
    action->u.load.rounds = node->at.fragment_rounds[0];
    action->u.load.digest = node->at.fragment_digests[0];
    action->u.load.mode = TW_LOAD_TURN;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        tw_fragment_set_add(&node->worker.applying, p);
    node->worker.is_turning = true;
}

void tw_lineage_turned(struct tw_node *node, bool ok) {
    const bool was_turning = node->worker.is_turning;
    node->worker.is_turning = node->worker.is_solo_pending = false;
    node->worker.applying = (struct tw_fragment_set){{0}};
    if (!ok) { /* the worker lacks the state that it reported: fetch all fragments again */
        tw_state_refetch(node, 0, TW_LOAD_KEEP);
        return;
    }
    node->at.is_moving = 0;
    for (uint32_t p = 0; p < node->cfg.fragments_count && was_turning; p++)
        tw_account_settle_delta(node, p);
    tw_log_note_held(node);
    tw_membership_derive_state(node);
}

/* True if this lineage has merged each fragment several times: leaving it loses something. */
static bool is_grown(const struct tw_node *node) {
    enum { GROWN_MERGES = 3 };
    return node->at.rounds - node->at.first_round >=
           (uint64_t)GROWN_MERGES * node->cfg.fragments_count;
}

/* True if this node and the linked voters of its lineage are more than half of the voters. */
static bool is_among_most(const struct tw_node *node) {
    uint32_t here = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *const id = &node->roster.members[i].id;
        const uint16_t peer = tw_peers_find(node, id);
        if ((node->voters >> i & 1) == 0) continue;
        here +=
            tw_id_equal(id, &node->cfg.self) ||
            (peer != NO_PEER && tw_peers_is_live(node, peer) && tw_peers_in_lineage(node, peer));
    }
    return node->roster.count > 1 && 2 * here > tw_bits(node->voters);
}

void tw_lineage_await(struct tw_node *node) {
    TW_ASSERT(!tw_id_is_zero(&node->cfg.awaited));
    tw_payload_drop_all(node);
    forget_fetches(node);
    node->at.lineage_parent = node->cfg.run;
    node->at.lineage = node->cfg.awaited;
    node->at.nonce = tw_lineage_nonce(node);
    node->at.first_round = 0;
    node->at.is_moving = 1;
    node->lineage.needs_tip = false;
    node->lineage.leader = (struct tw_id){{0}};
    tw_log_begin_at(node, NULL, NULL);
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        tw_state_refetch(node, p, TW_LOAD_KEEP);
    tw_acceptor_reset(node);
    const struct tw_roster unknown = {.count = 0};
    tw_round_set_roster(node, &unknown);
    tw_act_report(node, TW_REPORT_LINEAGE, &node->at.lineage);
    node->status_us = 0;
}

/* True if this node waits for the state of the run, or follows a lineage that has yet to deliver
 * it. */
static bool is_awaiting(const struct tw_node *node) {
    return !tw_id_is_zero(&node->cfg.awaited) && node->at.is_moving != 0 && node->at.has_held == 0;
}

static bool has_nobody_to_follow(const struct tw_node *node) {
    return tw_id_equal(&node->at.lineage, &node->cfg.awaited);
}

/* Follows the lineage of `peer` from now on. `claim` is its proof, or NULL if that lineage has no
 * round yet. */
static void adopt_lineage(struct tw_node *node, uint16_t peer, const struct claim *claim) {
    TW_ASSERT(tw_peers_is_live(node, peer));
    const struct tw_msg_status *status = &node->links[peer].status;
    const bool is_return = tw_id_equal(&status->lineage, &node->at.lineage_parent);
    if (!node->cfg.is_pair && is_grown(node) && !is_return && is_among_most(node))
        tw_act_report(node, TW_REPORT_LEFT, &node->links[peer].id);
    node->lineage.support = claim != NULL ? tw_claim_support(node) : (struct support){.met = 0};
    node->lineage.leader = node->links[peer].id;
    node->lineage.moved_us = node->now_us;
    tw_pair_abandon(node);
    node->pair.is_donor_lost = false;
    node->pair.gained_tokens = 0;
    if (node->cfg.is_pair) tw_conduct_note_donor(node, &node->links[peer].id);
    tw_payload_drop_all(node);
    forget_fetches(node);
    tw_audit_forget(node);
    tw_jury_forget(node);
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
    if (claim != NULL) tw_log_adopt_tip(node, &claim->record, &claim->proof);
    node->log.is_begin_told = claim != NULL;
    tw_act_report(node, TW_REPORT_LINEAGE, &node->at.lineage);
    node->status_us = 0;
}

/* ---- the better lineage ---------------------------------------------------------------------- */

/* The properties by which a lineage is compared with others. */
struct standing {
    bool has_voter;    /* a supporter is known to have a vote, by its certificate or our roster */
    bool is_ours;      /* this node has voted in it */
    uint32_t met, all; /* classes (support_class) of the counts in struct support; a larger class
                          wins */
    uint64_t clock_tokens;
    uint32_t trained; /* trained_class while its clock counts no work, else 0 */
    struct tw_id lineage;
};

/* Returns the class of a number of supporters: 0 to 2, 3 to 5, 6 to 11, 12 to 23, and so on. Of 3f
 * + 1 nodes, f may lie: the liars alone are always in a lower class than the 2f + 1 honest nodes.
 */
static uint32_t support_class(uint32_t supporters) {
    uint32_t class = 0;
    for (uint32_t least = 3; supporters >= least; least *= 2) class ++;
    return class;
}

/* Returns the class of the most tokens that a member of the lineage is known to have trained: 0, 1,
 * 2 to 3, 4 to 7, and so on. A node knows its own tokens at once, and those of another later, when
 * they are more. So two founders never take each other for the better one; and classes soon agree
 * where the counts themselves, of two nodes that train, never would. */
static uint32_t trained_class(const struct tw_node *node, const struct tw_id *lineage) {
    uint64_t tokens = 0;
    uint32_t class = 0;
    if (tw_id_equal(lineage, &node->at.lineage) && node->state != TW_STATE_RECEIVER)
        tokens = node->worker.tokens;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const struct tw_msg_status *const status = &node->links[i].status;
        const bool is_member = tw_peers_is_live(node, i) && status->state != TW_STATE_RECEIVER &&
                               tw_id_equal(&status->lineage, lineage);
        if (is_member && status->tokens > tokens) tokens = status->tokens;
    }
    for (; tokens > 0; tokens /= 2) class ++;
    return class;
}

static struct standing standing_of(const struct tw_node *node, const struct support *support,
                                   const struct tw_record *tip, const struct tw_id *lineage) {
    struct standing standing = {.has_voter = support->met > 0,
                                .is_ours = support->is_ours,
                                .met = support_class(support->met),
                                .all = support_class(support->all),
                                .lineage = *lineage};
    if (tip != NULL) standing.clock_tokens = tip->clock_tokens;
    if (tip != NULL && TW_IS_MUTANT(node, TW_MUTANT_ROUNDS_COMPARED))
        standing.clock_tokens = tip->round + 1;
    if (standing.clock_tokens == 0 && !TW_IS_MUTANT(node, TW_MUTANT_STEPS_IGNORED))
        standing.trained = trained_class(node, lineage);
    return standing;
}

static bool is_better(const struct tw_node *node, const struct standing *a,
                      const struct standing *b) {
    if (a->met != b->met) return a->met > b->met;
    if (a->all != b->all) return a->all > b->all;
    if (a->clock_tokens != b->clock_tokens)
        return (a->clock_tokens > b->clock_tokens) != TW_IS_MUTANT(node, TW_MUTANT_SMALLER_CLOCK);
    if (a->trained != b->trained) return a->trained > b->trained;
    return tw_id_compare(&a->lineage, &b->lineage) < 0;
}

/* True if this node has no vote, and too few voters of its lineage were present for long. */
static bool is_deserted(const struct tw_node *node) {
    return tw_voters_are_awaited(node) && node->state == TW_STATE_MEMBER &&
           node->now_us >= node->lineage.majority_us + node->cfg.orphan_us;
}

/* Counts the supporters of our own lineage: all voters, without linked ones that announce another
 * lineage. A deserted node counts linked voters alone. */
static void note_own_support(struct tw_node *node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const uint16_t peer = tw_peers_find(node, &node->roster.members[i].id);
        if ((node->voters >> i & 1) == 0) continue;
        count += peer == NO_PEER || !tw_peers_is_live(node, peer) ? !is_deserted(node)
                                                                  : tw_peers_in_lineage(node, peer);
    }
    node->lineage.support = (struct support){.met = count, .all = count};
}

/* True if this node is a receiver, and no donor of its lineage was linked for LINEAGE_LOST_US, or
 * none can be. */
static bool is_without_donor(const struct tw_node *node) {
    return node->state == TW_STATE_RECEIVER &&
           (node->now_us >= node->lineage.donor_us + LINEAGE_LOST_US || is_unserved(node, false));
}

/* True if this node does not train, and its state contains no training by any node. */
static bool has_nothing_trained(const struct tw_node *node) {
    return node->cfg.role != TW_NODE_ROLE_TRAIN &&
           (node->at.has_tip == 0 || node->at.tip.clock_tokens == 0);
}

/* True if certificates forbid to follow the other lineage. A node follows only lineages in which it
 * knows a voter, because members that only train could invent others; or in which it has voted
 * itself, if it has lost the state. Voters without a state may also begin a lineage anew, far
 * behind. Members without a vote do not follow that one. */
static bool is_ruled_out(const struct tw_node *node, const struct standing *other) {
    const uint64_t held_tokens = tw_progress_held_tokens(node);
    const bool is_lost = other->is_ours && held_tokens < other->clock_tokens / 2;
    if (!node->cfg.has_rights) return false;
    if (!other->has_voter && !is_lost) return true;
    return tw_voters_are_awaited(node) && other->clock_tokens < held_tokens / 2;
}

/* True if this node should leave its lineage and follow the other one. */
static bool is_to_follow(const struct tw_node *node, const struct standing *other) {
    if (is_ruled_out(node, other)) return false;
    if (is_deserted(node)) return true;
    if (has_nobody_to_follow(
            node)) /* but follow no node without training, because it waits as well */
        return other->clock_tokens > 0 || tw_voters_are_awaited(node);
    if (has_nothing_trained(node) && other->clock_tokens > 0) return true;
    if (is_without_donor(node)) /* follow the other lineage unless we hold a newer state */
        return other->clock_tokens >= tw_progress_held_tokens(node);
    const struct tw_record *tip = node->at.has_tip != 0 ? &node->at.tip : NULL;
    const struct standing own = standing_of(node, &node->lineage.support, tip, &node->at.lineage);
    /* At an equal clock, a node does not return to the lineage that it left. */
    if (other->met == own.met && other->all == own.all && other->clock_tokens == own.clock_tokens &&
        tw_id_equal(&other->lineage, &node->at.lineage_parent))
        return false;
    return is_better(node, other, &own);
}

/* Compares the lineages without a round, which have nothing to prove. Returns a peer in the best of
 * them if this node should follow it, otherwise NO_PEER. */
static uint16_t find_fresh(const struct tw_node *node) {
    const bool is_believed = TW_IS_MUTANT(node, TW_MUTANT_CLAIM_BELIEVED);
    const struct support none = {.met = 0};
    struct standing best;
    uint16_t peer = NO_PEER;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!tw_peers_is_live(node, i) || tw_peers_in_lineage(node, i)) continue;
        const struct tw_msg_status *status = &node->links[i].status;
        if (status->state == TW_STATE_RECEIVER || (status->rounds > 0 && !is_believed)) continue;
        if (tw_lineage_is_refused(node, &status->lineage)) continue;
        if (tw_conduct_is_disbelieved(node, &node->links[i].id)) continue;
        struct standing other =
            standing_of(node, is_believed ? &node->lineage.support : &none, NULL, &status->lineage);
        other.has_voter = tw_voters_may(node, i); /* its founder, because nobody else is in it */
        if (is_believed) other.clock_tokens = status->clock_tokens;
        if (!is_to_follow(node, &other)) continue;
        if (peer != NO_PEER && !is_better(node, &other, &best)) continue;
        best = other;
        peer = i;
    }
    return peer;
}

/* Follows a better lineage as soon as the worker has no open request. */
static void seek_better(struct tw_node *node) {
    const bool may_leave = !node->has_left && tw_fragment_set_is_empty(&node->worker.applying) &&
                           !node->log.is_reported;
    if (node->round.self_idx >= 0) note_own_support(node);
    tw_claim_advance(node);
    const struct claim *claim = tw_claim_proven(node);
    if (claim != NULL) {
        const struct support support = tw_claim_support(node);
        struct standing other = standing_of(node, &support, &claim->record, &claim->lineage);
        /* A lineage without a record of its own has one member, its founder. */
        const bool has_record = tw_id_equal(&claim->record.lineage, &claim->lineage);
        other.has_voter |= !has_record && tw_voters_may(node, claim->peer);
        if (!is_to_follow(node, &other)) claim = NULL;
        if (claim == NULL) tw_claim_close(node);
    }
    const uint16_t peer = claim != NULL ? claim->peer : find_fresh(node);
    node->lineage.is_settling = peer != NO_PEER && !node->has_left;
    if (peer != NO_PEER && node->log.is_reported) tw_act_wake(node, node->now_us + 1);
    if (peer == NO_PEER || !may_leave) return;
    adopt_lineage(node, peer, claim);
    tw_claim_close(node);
}

/* ---- joining --------------------------------------------------------------------------------- */

/* True if the roster is full and `id` is not in it. */
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

enum tw_drop tw_lineage_join(struct tw_node *node, uint16_t peer, const struct tw_msg_join *join) {
    if (!tw_id_equal(&join->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (tw_progress_is_apart(node)) return TW_DROP_NOT_READY;
    if (node->links[peer].has_left) return TW_DROP_LEFT;
    if (!tw_vote_proof_is_join(node, &node->links[peer].id, join->nonce, join->rounds,
                               join->signature)) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    uint32_t row = 0, oldest = 0;
    for (; row < JOINS_MAX && !tw_id_equal(&node->lineage.joins[row].id, &node->links[peer].id);
         row++) {
        if (node->lineage.joins[row].received_us < node->lineage.joins[oldest].received_us)
            oldest = row;
    }
    if (row == JOINS_MAX) {
        row = oldest;
        node->lineage.joins[row].full_us = node->lineage.joins[row].claimed = 0;
    }
    node->lineage.joins[row].id = node->links[peer].id;
    node->lineage.joins[row].join = *join;
    node->lineage.joins[row].received_us = node->now_us;
    if (join->rounds == node->at.rounds) tw_peers_hold_solo(node, SOLO_HOLD_US);
    note_full(node, row);
    return TW_DROP_NONE;
}

/* Returns the time of the next JOIN. A JOIN counts in its own round alone, so it is soon sent again
 * in a new round: rounds shorter than JOIN_US must have one, too. */
static uint64_t next_join_us(const struct tw_node *node) {
    const bool is_new_round = node->lineage.join_round != node->at.rounds;
    if (node->lineage.join_us == 0) return 0;
    return node->lineage.join_us + (is_new_round ? JOIN_SOON_US : JOIN_US);
}

static void ask_to_join(struct tw_node *node) {
    const bool is_ready = tw_log_is_close(node) ||
                          (TW_IS_MUTANT(node, TW_MUTANT_EARLY_JOIN) && !node->lineage.needs_tip);
    if (node->state != TW_STATE_RECEIVER) node->lineage.is_shut_out = false;
    if (node->state != TW_STATE_RECEIVER || !is_ready || node->has_left) {
        node->lineage.seatless_us = 0;
        return;
    }
    if (node->cfg.is_hand || node->round.self_idx >= 0 || !tw_acceptor_has_nonce(node)) return;
    const uint64_t due_us = next_join_us(node);
    if (node->now_us < due_us) {
        tw_act_wake(node, due_us);
        return;
    }
    struct tw_message *message = tw_act_message(node, TW_MSG_JOIN);
    if (message == NULL) return;
    if (node->lineage.seatless_us == 0) node->lineage.seatless_us = node->now_us;
    node->lineage.join_us = node->now_us;
    node->lineage.join_round = node->at.rounds;
    message->u.join = (struct tw_msg_join){.lineage = node->at.lineage,
                                           .rounds = node->at.rounds,
                                           .nonce = node->at.nonce,
                                           .weight = node->cfg.weight};
    tw_vote_proof_sign_join(node, &message->u.join);
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i)) tw_act_send(node, message, i);
    }
    tw_act_wake(node, node->lineage.join_us + JOIN_US);
    const bool was_shut_out = node->lineage.is_shut_out;
    node->lineage.is_shut_out = is_full(node, &node->cfg.self);
    if (node->lineage.is_shut_out && !was_shut_out)
        tw_act_report(node, TW_REPORT_FULL, &node->cfg.self);
}

/* ---- alone ----------------------------------------------------------------------------------- */

/* Returns the end of the hold. A peer that asks repeatedly without pulling new chunks does not
 * extend it. */
static uint64_t hold_end_us(const struct tw_node *node) {
    uint64_t moved_us = node->lineage.hold_began_us;
    if (moved_us < node->pace.last_commit_us) moved_us = node->pace.last_commit_us;
    if (moved_us < node->lineage.fed_us) moved_us = node->lineage.fed_us;
    return at_most(node->lineage.solo_hold_us, moved_us + node->cfg.orphan_us);
}

/* Starts a solo round: in a lineage of one, phi follows theta, fragment by fragment, and the clock
 * advances. */
static void solo_round(struct tw_node *node) {
    if (node->state != TW_STATE_SOLO || !node->worker.is_up ||
        !tw_fragment_set_is_empty(&node->worker.applying))
        return;
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
    TW_ASSERT(!node->worker.is_solo_pending);
    tw_fragment_set_add(&node->worker.applying, fragment);
    node->worker.is_solo_pending = true;
    struct tw_action *action = tw_act_body(node, TW_ACT_SOLO);
    action->u.solo.round = node->at.rounds;
    action->u.solo.fragment = fragment;
}

/* No other node votes on a solo round, and nothing is stored on disk: a node that restarts alone
 * founds a new lineage. */
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
    TW_ASSERT(node->roster.count == 1);
    tw_account_row(node, record.fragment, &record.contributors[0]);
    record.clock_tokens = tip != NULL ? tip->clock_tokens : 0;
    record.clock_tokens += record.contributors[0].tokens * tw_progress_share(node);
    if (tw_progress_is_closing(node, &record))
        record.base = tw_record_root(node->at.fragment_digests, node->cfg.fragments_count);
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

/* ---- the end of a lineage -------------------------------------------------------------------- */

/* Returns the lineage of nobody in which nodes without a vote wait for voters. */
static struct tw_id waiting_room(const struct tw_node *node) {
    uint8_t bytes[24 + 32] = "thinwire-voters-v1";
    memcpy(bytes + 24, node->cfg.run.bytes, 32);
    return tw_sha256(bytes, sizeof(bytes));
}

void tw_lineage_found(struct tw_node *node) {
    if (tw_voters_are_awaited(node) && tw_id_is_zero(&node->cfg.awaited))
        node->cfg.awaited = waiting_room(node);
    if (is_awaiting(node) || tw_voters_are_awaited(node))
        tw_lineage_await(node);
    else
        fork_lineage(node);
}

static void consider_fork(struct tw_node *node) {
    if (node->state != TW_STATE_MEMBER && node->state != TW_STATE_RECEIVER) return;
    if (has_nobody_to_follow(node)) return;
    const bool is_member = node->state == TW_STATE_MEMBER;
    const uint64_t orphan_us =
        (is_member ? node->lineage.majority_us : node->lineage.donor_us) + node->cfg.orphan_us;
    /* A deserted member keeps its state and trains on. It follows voters once it meets some. */
    const bool is_lost = (!is_member || !tw_voters_are_awaited(node)) &&
                         (node->now_us >= orphan_us || are_members_gone(node));
    if (is_lost || is_starved(node)) {
        node->lineage.is_settling = !node->has_left;
        if (!tw_fragment_set_is_empty(&node->worker.applying) || node->has_left) return;
        tw_lineage_found(node);
        /* The linked nodes are in the same position. They get time to join before the first solo
         * round changes phi. */
        node->lineage.solo_hold_us = node->now_us + SOLO_HOLD_US;
        return;
    }
    if (node->now_us < orphan_us) tw_act_wake(node, orphan_us);
    if (!is_member && node->now_us < node->lineage.donor_us + LINEAGE_LOST_US)
        tw_act_wake(node, node->lineage.donor_us + LINEAGE_LOST_US);
}

/* In pairs, founds a lineage of our own once the state taken over from another node is complete. */
static void found_own(struct tw_node *node) {
    if (node->state != TW_STATE_RECEIVER || !tw_fragment_set_is_empty(&node->worker.applying) ||
        node->has_left)
        return;
    if (tw_lineage_is_ours(node) || !tw_progress_is_current(node)) return;
    node->lineage.was_shared = true;
    fork_lineage(node);
}

/* Once the clock has passed together_tokens and all common rounds are applied, founds a lineage of
 * our own. A member first keeps serving nodes that still fetch those rounds: for PART_HOLD_US at
 * least, orphan_us at most. */
static void part_ways(struct tw_node *node) {
    if (node->state != TW_STATE_MEMBER && node->state != TW_STATE_RECEIVER) return;
    if (!tw_fragment_set_is_empty(&node->worker.applying) || node->has_left ||
        !tw_progress_is_current(node))
        return;
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
    fork_lineage(node);
    node->lineage.solo_hold_us =
        node->now_us + SOLO_HOLD_US; /* peers may still be copying the old lineage's state */
}

/* In pairs, takes over the state of a node that is far ahead. */
static void seek_ahead(struct tw_node *node) {
    const uint16_t peer = tw_pair_find_ahead(node);
    node->lineage.is_settling = peer != NO_PEER && !node->has_left;
    if (node->lineage.is_settling && tw_fragment_set_is_empty(&node->worker.applying))
        adopt_lineage(node, peer, NULL);
}

void tw_lineage_advance(struct tw_node *node) {
    node->lineage.is_settling = false;
    if (node->cfg.is_pair) {
        seek_ahead(node);
    } else if (!tw_progress_is_apart(node) || is_without_donor(node)) {
        seek_better(node);
    }
    consider_fork(node);
    if (tw_state_receive(node))
        tw_lineage_found(node); /* founding gives each fragment an offer: this
                                   node's own state */
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
