/* pair.c - topology pair: each node's own run clock, and exchanges with one other node at a time.
 */
#include "sync/pair/pair.h"

#include <string.h>

#include "base/assert.h"
#include "base/median.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"

/* ==== the run clock of a node ================================================================= */

/* Topology pair: each node's own run clock, and the peers with newer states.
 *
 * No node knows the tokens of all nodes. It counts its own tokens exactly, and the tokens of other
 * nodes by the rates that they report. A partner that is ahead lifts this node's clock, by at most
 * half of the node's own advance in that round. */

/* Ceilings of a step's time, and of the rate of all nodes together. */
#define STEP_US_MAX (3600 * SECOND_US)
#define STEP_RATE_MAX (UINT64_C(1) << 40) /* tokens per second */

static uint64_t own_clock(const struct tw_node *node) {
    return node->at.has_tip != 0 ? node->at.tip.clock_tokens : 0;
}

static uint32_t live_count(const struct tw_node *node) {
    uint32_t count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) count += tw_peers_is_live(node, i);
    return count;
}

/* Returns the tokens that all linked nodes train in two periods. */
static uint64_t slack_of(const struct tw_node *node) {
    const uint64_t period_steps = (uint64_t)node->cfg.period_steps * node->cfg.fragments_count;
    return 2 * period_steps * node->cfg.step_tokens * (1 + live_count(node));
}

/* True if `clock` is less than half of `other`, and lags by more than the tokens of two periods of
 * all nodes. A merge with such an old anchor would only set the other node back. */
static bool is_far_behind(const struct tw_node *node, uint64_t clock, uint64_t other) {
    return other / 2 > clock && other - 2 * clock > slack_of(node);
}

/* Returns the tokens per second of all other nodes together, and their number in *count. Each node
 * reports its own rate; a report counts as at most 64 times our rate. */
static uint64_t others_rate(const struct tw_node *node, uint64_t *count) {
    enum { RATE_TIMES_MAX = 64 };
    const uint64_t most = RATE_TIMES_MAX * (uint64_t)node->worker.tokens_per_s;
    uint64_t rate = 0;
    *count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!tw_peers_is_live(node, i)) continue;
        if (node->links[i].status.state == TW_STATE_FINISHED) continue;
        const uint64_t announced = node->links[i].status.tokens_per_s;
        rate += announced < most ? announced : most;
        ++*count;
    }
    return rate;
}

uint64_t tw_pair_clock_factor(const struct tw_node *node) {
    enum { UNIT = 1024, FACTOR_MAX = TW_PEERS_MAX * 64 };
    uint64_t count;
    const uint64_t others = others_rate(node, &count);
    /* While this node's rate is not measured, all nodes count as equally fast. */
    if (node->worker.tokens_per_s == 0) return (1 + count) * UNIT;
    const uint64_t factor = (node->worker.tokens_per_s + others) * UNIT / node->worker.tokens_per_s;
    return factor < FACTOR_MAX * UNIT ? factor : FACTOR_MAX * UNIT;
}

/* Adds the tokens that the other nodes trained during this step: their rates times its duration.
 * Scaling our own tokens by the ratio of rates would be wrong while this machine is briefly slow.
 */
void tw_pair_stepped(struct tw_node *node, uint64_t took_us, uint64_t tokens) {
    uint64_t count;
    uint64_t others = others_rate(node, &count);
    if (others > STEP_RATE_MAX) others = STEP_RATE_MAX;
    if (took_us > STEP_US_MAX) took_us = STEP_US_MAX;
    if (tokens > TOKENS_MAX) tokens = TOKENS_MAX;
    const uint64_t gained =
        node->worker.tokens_per_s == 0 ? tokens * count : others * (took_us / 1000) / 1000;
    if (node->pair.gained_tokens < UINT64_MAX / 8) node->pair.gained_tokens += gained;
}

/* Returns the present clock, including the tokens since the last round. */
static uint64_t clock_now(const struct tw_node *node) {
    const uint64_t tokens = node->worker.tokens > node->at.tokens_listed
                                ? node->worker.tokens - node->at.tokens_listed
                                : 0;
    const uint64_t clock = own_clock(node);
    if (clock > UINT64_MAX / 4 || tokens > TOKENS_MAX) return clock;
    return clock + tokens + node->pair.gained_tokens;
}

/* Returns the clock after a round in which this node trained `tokens`. */
static uint64_t clock_after(const struct tw_node *node, uint64_t tokens) {
    const uint64_t clock = own_clock(node);
    if (tokens > TOKENS_MAX) tokens = TOKENS_MAX;
    const uint64_t advance = tokens + node->pair.counted_tokens;
    if (clock > UINT64_MAX / 4) return clock; /* this node adopted a false clock: the run is over */
    const struct pair *pair = &node->pair;
    const uint64_t lifted = pair->is_merging ? pair->theirs.clock_tokens : 0;
    if (lifted <= clock + advance) return clock + advance;
    if (TW_IS_MUTANT(node, TW_MUTANT_FREE_LIFT)) return lifted;
    const uint64_t most = clock + advance + advance / 2;
    return lifted < most ? lifted : most;
}

/* ---- peers that are ahead -------------------------------------------------------------------- */

/* Returns the largest clock that is believed: four times the median of the linked nodes that are no
 * newcomers. With one or two linked nodes there is no median: either may be the only one that has
 * trained for long. */
static uint64_t clock_max(const struct tw_node *node) {
    enum { JUDGES_MIN = 3, TIMES_MAX = 4 };
    const uint64_t slack = slack_of(node);
    uint64_t clocks[TW_PEERS_MAX];
    uint32_t count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!tw_peers_is_live(node, i)) continue;
        if (node->links[i].status.clock_tokens > slack)
            clocks[count++] = node->links[i].status.clock_tokens;
    }
    if (count < JUDGES_MIN) return UINT64_MAX;
    tw_sort_u64(clocks, count);
    const uint64_t median = clocks[(count - 1) / 2];
    return median < UINT64_MAX / TIMES_MAX ? TIMES_MAX * median : UINT64_MAX;
}

/* True if the node has not yet merged, nor taken over a state. After a restart it counts as if it
 * had. */
static bool is_newborn(const struct tw_node *node) {
    return !node->lineage.was_shared && (node->state == TW_STATE_RECEIVER ||
                                         tw_id_equal(&node->at.lineage_parent, &node->cfg.run));
}

/* Returns the node that a newborn node follows, or NO_PEER, in runs where every node has first
 * weights of its own. That node is first in the order of lineages: most tokens, then smallest id.
 * Otherwise anchors with different origins would be pulled together for many rounds. */
static uint16_t find_first(const struct tw_node *node, uint64_t clock) {
    const uint64_t most = clock_max(node);
    uint16_t first = NO_PEER;
    struct tw_id lineage = node->at.lineage;
    for (uint16_t peer = 0; peer < node->links_end; peer++) {
        const struct tw_msg_status *status = &node->links[peer].status;
        if (!tw_peers_is_live(node, peer) || tw_peers_in_lineage(node, peer)) continue;
        if (status->state == TW_STATE_RECEIVER || status->clock_tokens < clock) continue;
        if (status->clock_tokens > most) continue;
        if (tw_conduct_is_resting(node, &node->links[peer].id)) continue;
        if (status->clock_tokens == clock && tw_id_compare(&status->lineage, &lineage) > 0)
            continue;
        clock = status->clock_tokens;
        lineage = status->lineage;
        first = peer;
    }
    return first;
}

uint16_t tw_pair_find_ahead(struct tw_node *node) {
    const bool is_lost =
        node->state == TW_STATE_RECEIVER &&
        (node->pair.is_donor_lost || node->now_us >= node->lineage.donor_us + LINEAGE_LOST_US);
    if ((node->state != TW_STATE_SOLO && !is_lost) || node->links_end == 0) return NO_PEER;
    if (TW_IS_MUTANT(node, TW_MUTANT_LEFT_BEHIND)) return NO_PEER;
    if (node->cfg.has_own_start && is_newborn(node)) return find_first(node, own_clock(node));
    uint64_t clock = is_lost ? own_clock(node) : clock_now(node);
    if (clock < tw_progress_held_tokens(node)) clock = tw_progress_held_tokens(node);
    const uint64_t most = clock_max(node);
    /* Any node ahead will do, but newcomers should not all choose the same one. */
    const uint16_t start = (uint16_t)tw_rng_below(&node->rng, node->links_end);
    for (uint16_t i = 0; i < node->links_end; i++) {
        const uint16_t peer = (uint16_t)((start + i) % node->links_end);
        if (!tw_peers_is_live(node, peer) || tw_peers_in_lineage(node, peer)) continue;
        const struct tw_msg_status *status = &node->links[peer].status;
        if (status->state == TW_STATE_RECEIVER || status->rounds == 0) continue;
        if (status->clock_tokens > most) continue;
        if (tw_conduct_is_resting(node, &node->links[peer].id)) continue;
        if (is_lost ? status->clock_tokens >= clock
                    : is_far_behind(node, clock, status->clock_tokens))
            return peer;
    }
    return NO_PEER;
}

/* ==== exchanges =============================================================================== */

/* Topology pair: a node merges with one other node at a time, or alone without one.
 *
 * Every node is a lineage of one, with its own anchors and its own record per round. When a round
 * is due, the node looks for a partner among the linked nodes. Both encode and trade payloads, and
 * each takes the pair step for itself (NoLoCo, arXiv 2506.10911). After a failure the step is taken
 * alone. There is no queue, no pause in training and no second phase.
 *
 *   IDLE --our round is due--> ASKING                    (no node linked: SOLO, then APPLYING)
 *   IDLE --PAIR_REQUEST that suits--> ENCODING           (else PAIR_BUSY)
 *   ASKING --PAIR_ACCEPT--> ENCODING
 *   ASKING --PAIR_BUSY, link down, 2 s--> ASKING the next, or APPLYING alone after four
 *   ENCODING --ENCODED--> TRADING, or APPLYING alone if the partner is lost or nothing was encoded
 *   TRADING --offer received, both its payloads verified--> APPLYING
 *   TRADING --deadline, PAIR_BUSY, link down--> APPLYING alone, with the encoded Delta
 *   APPLYING --APPLIED--> IDLE, and the record of the round is committed
 *   any --worker gone, other lineage, LEAVE--> IDLE
 *
 * P1  At most one exchange at a time; each is applied at most once, in its round. P2  Every wait
 * for a partner has a deadline, and inner steps wait for nothing. P3  Only payloads that were
 * offered in this exchange and verified by name enter the step. A
 *     partner with unreadable or far too large payloads is struck (core/conduct.c): for a while
 *     it is neither asked nor accepted.
 * P4  The clock never goes back. A partner lifts it by at most half of the node's own advance in
 * that round. */

enum {
    PAIR_CANDIDATES_MAX = 4, /* number of failed requests after which the step is taken alone */
    PAIRS_MISSED_MAX = 6,    /* number of missed exchanges after which a peer is asked in every 64th
                                round */
};

#define PAIR_ANSWER_US (2 * SECOND_US) /* longest wait for an answer to PAIR_REQUEST */
#define PAIR_PATIENCE_CEILING_US (600 * SECOND_US)

/* ---- the exchange and its partner ------------------------------------------------------------ */

static bool is_pair_id(const struct tw_pair_id *a, const struct tw_pair_id *b) {
    return a->high == b->high && a->low == b->low;
}

/* True if the peer and the id belong to the exchange under way. */
static bool is_ours(const struct tw_node *node, uint16_t peer, const struct tw_pair_id *id) {
    const struct pair *pair = &node->pair;
    return pair->phase != PAIR_IDLE && pair->has_partner && is_pair_id(&pair->id, id) &&
           tw_id_equal(&pair->partner, &node->links[peer].id);
}

/* True if this node may take part: it trains in a lineage of its own and holds every fragment. */
static bool is_able(const struct tw_node *node) {
    return node->state == TW_STATE_SOLO && node->worker.is_up && !node->has_left &&
           tw_progress_is_current(node);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void send_busy(struct tw_node *node, uint16_t peer, const struct tw_pair_id *id) {
    struct tw_message *message = tw_act_message(node, TW_MSG_PAIR_BUSY);
    if (message == NULL) return; /* the partner has its own deadline */
    message->u.pair_busy.pair = *id;
    tw_act_send(node, message, peer);
}

/* Sends the messages that the partner must get in this phase, as far as this event has room. */
static void send_owed(struct tw_node *node) {
    struct pair *pair = &node->pair;
    const uint16_t peer = pair->has_partner ? tw_peers_find(node, &pair->partner) : NO_PEER;
    if (peer == NO_PEER) return;
    struct tw_message *message = NULL;
    if (pair->owes_request && (message = tw_act_message(node, TW_MSG_PAIR_REQUEST)) != NULL) {
        message->u.pair_request =
            (struct tw_msg_pair_request){.pair = pair->id,
                                         .fragment = pair->fragment,
                                         .wants_whole = pair->needs_whole[pair->fragment]};
        tw_act_send(node, message, peer);
        pair->owes_request = false;
    }
    if (pair->owes_accept && (message = tw_act_message(node, TW_MSG_PAIR_ACCEPT)) != NULL) {
        message->u.pair_accept = (struct tw_msg_pair_accept){
            .pair = pair->id, .wants_whole = pair->needs_whole[pair->fragment]};
        tw_act_send(node, message, peer);
        pair->owes_accept = false;
    }
    if (pair->owes_accept || !pair->owes_offer) return;
    if ((message = tw_act_message(node, TW_MSG_PAIR_OFFER)) == NULL) return;
    message->u.pair_offer = pair->own;
    tw_act_send(node, message, peer);
    pair->owes_offer = false;
}

static void forget_partner(struct tw_node *node) {
    struct pair *pair = &node->pair;
    pair->has_partner = pair->has_theirs = false;
    pair->owes_request = pair->owes_accept = pair->owes_offer = false;
}

/* Sends PAIR_BUSY to the partner and gives up the exchange with it. */
static void leave_partner(struct tw_node *node) {
    if (!node->pair.has_partner) return;
    const uint16_t peer = tw_peers_find(node, &node->pair.partner);
    if (peer != NO_PEER && !TW_IS_MUTANT(node, TW_MUTANT_SILENT_LEAVE))
        send_busy(node, peer, &node->pair.id);
    forget_partner(node);
}

void tw_pair_abandon(struct tw_node *node) {
    if (node->pair.phase == PAIR_IDLE) return;
    leave_partner(node);
    node->pair.phase = PAIR_IDLE;
}

/* ---- the round ------------------------------------------------------------------------------- */

/* Chooses the fragment of the round: in the last rounds of the run in order, otherwise the fragment
 * merged longest ago. */
static uint32_t choose_fragment(const struct tw_node *node) {
    if (tw_progress_is_final(node)) return node->at.tip.finals % node->cfg.fragments_count;
    uint32_t oldest = 0;
    for (uint32_t p = 1; p < node->cfg.fragments_count; p++) {
        if (node->pair.synced_step[p] < node->pair.synced_step[oldest]) oldest = p;
    }
    return oldest;
}

static bool is_due(struct tw_node *node) {
    if (node->now_us < node->pair.retry_us) {
        tw_act_wake(node, node->pair.retry_us);
        return false;
    }
    if (tw_progress_is_final(node)) return true;
    if (node->cfg.pace_us > 0) {
        const uint64_t due_us = node->pace.last_commit_us + node->cfg.pace_us;
        if (node->now_us < due_us) tw_act_wake(node, due_us);
        return node->now_us >= due_us;
    }
    return node->worker.step >= node->worker.last_send_step + node->cfg.period_steps;
}

/* True if this node may ask for a partner now. Equal machines are due at the same time, and a node
 * that asks refuses requests. Each node therefore first accepts requests for a random pause, up to
 * an eighth of the time between rounds. */
static bool may_ask(struct tw_node *node) {
    struct pair *pair = &node->pair;
    if (!is_due(node)) {
        pair->ask_us = 0;
        return false;
    }
    if (pair->ask_us == 0) {
        const uint64_t spacing_us = node->now_us - node->pace.last_commit_us;
        pair->ask_us = node->now_us + tw_rng_below(&node->rng, 1 + spacing_us / 8);
    }
    if (node->now_us < pair->ask_us) tw_act_wake(node, pair->ask_us);
    return node->now_us >= pair->ask_us;
}

/* True if half a period has passed since this fragment was merged. Requests of others thus merge it
 * at most twice as often as planned. */
static bool is_time_again(const struct tw_node *node, uint32_t fragment) {
    if (tw_progress_is_final(node)) return fragment == choose_fragment(node);
    const uint64_t rounds = node->cfg.fragments_count;
    if (node->cfg.pace_us > 0)
        return node->now_us >= node->pair.synced_us[fragment] + node->cfg.pace_us * rounds / 2;
    return node->worker.step >=
           node->pair.synced_step[fragment] + node->cfg.period_steps * rounds / 2;
}

static void begin_exchange(struct tw_node *node, enum pair_phase phase, uint32_t fragment) {
    struct pair *pair = &node->pair;
    TW_ASSERT(phase == PAIR_ASKING || phase == PAIR_ENCODING);
    TW_ASSERT(fragment < node->cfg.fragments_count);
    TW_ASSERT(!pair->is_encoding);
    forget_partner(node);
    pair->phase = phase;
    pair->fragment = fragment;
    pair->asked = 0;
    pair->asked_count = 0;
    pair->ask_us = 0;
    pair->is_whole = pair->is_merging = pair->is_deserted = false;
    pair->began_us = node->now_us;
    pair->step = node->worker.step;
    pair->counted_tokens = pair->gained_tokens;
    node->round.own_step = node->worker.step;
    node->round.own_tokens = node->worker.tokens;
}

static void request_encode(struct tw_node *node) {
    struct pair *pair = &node->pair;
    TW_ASSERT(pair->has_partner);
    TW_ASSERT(!pair->is_encoding);
    pair->phase = PAIR_ENCODING;
    pair->began_us = node->now_us;
    pair->deadline_us = node->now_us + pair->patience_us;
    pair->is_encoding = true;
    struct tw_action *action = tw_act_body(node, TW_ACT_PAIR_ENCODE);
    action->partner = pair->partner;
    action->u.pair_encode.round = node->at.rounds;
    action->u.pair_encode.fragment = pair->fragment;
    action->u.pair_encode.is_whole = pair->is_whole;
}

/* Requests the step. For a step alone, the worker uses the Delta that it encoded in this round, or
 * the present one. */
static void request_step(struct tw_node *node, bool is_merging) {
    struct pair *pair = &node->pair;
    TW_ASSERT(!is_merging || (pair->has_partner && pair->has_theirs));
    TW_ASSERT(!tw_progress_is_applying(node, pair->fragment));
    pair->phase = PAIR_APPLYING;
    pair->is_merging = is_merging;
    tw_fragment_set_add(&node->worker.applying, node->pair.fragment);
    struct tw_action *action = tw_act_body(node, TW_ACT_PAIR_APPLY);
    action->u.pair_apply.round = node->at.rounds;
    action->u.pair_apply.version = node->at.rounds / node->cfg.fragments_count;
    action->u.pair_apply.min_step = is_merging ? pair->step + tw_progress_overlap(node) : 0;
    action->u.pair_apply.fragment = pair->fragment;
    action->u.pair_apply.is_alone = !is_merging;
    action->u.pair_apply.is_final = tw_progress_is_final(node);
    if (!is_merging) return;
    action->inputs[TW_PAIR_DELTA] = pair->own.delta_hash;
    action->inputs[TW_PAIR_PHI] = pair->own.phi_hash;
    action->inputs[TW_PAIR_THEIRS + TW_PAIR_DELTA] = pair->theirs.delta_hash;
    action->inputs[TW_PAIR_THEIRS + TW_PAIR_PHI] = pair->theirs.phi_hash;
}

/* Requests a solo round. Without any linked node this is ordinary training: phi := theta. */
static void request_solo(struct tw_node *node) {
    TW_ASSERT(node->pair.phase == PAIR_ASKING);
    node->pair.phase = PAIR_APPLYING;
    tw_fragment_set_add(&node->worker.applying, node->pair.fragment);
    struct tw_action *action = tw_act_body(node, TW_ACT_SOLO);
    action->u.solo.round = node->at.rounds;
    action->u.solo.fragment = node->pair.fragment;
}

/* ---- looking for a partner ------------------------------------------------------------------- */

/* True if this node can merge with the peer: neither clock is far behind the other. A peer whose
 * payloads did not arrive in time is asked only in every 2nd, 4th, ... 64th round. A struck peer is
 * not asked before its penalty ends. */
static bool is_match(const struct tw_node *node, uint16_t peer) {
    if (!tw_peers_is_live(node, peer)) return false;
    const struct link *link = &node->links[peer];
    return !tw_conduct_is_struck(node, &link->id) &&
           node->at.rounds % (UINT64_C(1) << link->pairs_missed) == 0 &&
           !is_far_behind(node, link->status.clock_tokens, own_clock(node)) &&
           !is_far_behind(node, clock_now(node), link->status.clock_tokens);
}

static bool is_candidate(const struct tw_node *node, uint16_t peer, bool may_be_outlier) {
    return is_match(node, peer) && (node->pair.asked >> peer & 1) == 0 &&
           (may_be_outlier || !tw_peers_is_outlier(node, peer)) &&
           node->links[peer].status.state == TW_STATE_SOLO;
}

static uint64_t find_candidates(const struct tw_node *node, bool may_be_outlier) {
    uint64_t set = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (is_candidate(node, i, may_be_outlier)) set |= UINT64_C(1) << i;
    }
    return set;
}

/* Returns the peers of the set whose chunks arrive in half the median time or less
 * (payload.c). */
static uint64_t find_near(const struct tw_node *node, uint64_t set) {
    uint64_t values[TW_PEERS_MAX], near = 0;
    uint32_t known = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const uint64_t near_us = node->links[i].near_us;
        if ((set >> i & 1) == 0 || near_us == 0) continue;
        values[known++] = near_us;
    }
    const uint64_t middle_us = tw_median_u64(values, known);
    for (uint16_t i = 0; known > 0 && i < node->links_end; i++) {
        const uint64_t near_us = node->links[i].near_us;
        if ((set >> i & 1) != 0 && near_us > 0 && 2 * near_us <= middle_us)
            near |= UINT64_C(1) << i;
    }
    return near;
}

static uint16_t draw_peer(struct tw_node *node, uint64_t set) {
    uint32_t count = 0;
    TW_ASSERT(set != 0);
    for (uint64_t left = set; left != 0; left &= left - 1) count++;
    for (uint64_t past = tw_rng_below(&node->rng, count); past > 0; past--) set &= set - 1;
    uint16_t peer = 0;
    while ((set >> peer & 1) == 0) peer++;
    return peer;
}

/* True if the worker has no open request of the last exchange. */
static bool may_begin(const struct tw_node *node) {
    return tw_fragment_set_is_empty(&node->worker.applying) && !node->pair.is_encoding;
}

/* Asks the next peer: at random a near peer or any peer, so that regions neither wait for each
 * other nor drift apart. Peers with an outlier link are asked last. Returns false if no peer is
 * left. */
static bool ask_next(struct tw_node *node) {
    struct pair *pair = &node->pair;
    TW_ASSERT(pair->phase == PAIR_ASKING);
    TW_ASSERT(!pair->has_partner);
    if (node->measured.is_over_budget) { /* without budget, a partner would wait for our payloads in
                                            vain */
        pair->over_budget_count++;
        return false;
    }
    uint64_t set = find_candidates(node, false);
    if (set == 0) set = find_candidates(node, true);
    if (pair->asked_count == PAIR_CANDIDATES_MAX || set == 0) return false;
    const uint64_t near = find_near(node, set);
    if (near != 0 && tw_rng_below(&node->rng, 2) == 0) set = near;
    const uint16_t peer = draw_peer(node, set);
    pair->asked |= UINT64_C(1) << peer;
    pair->asked_count++;
    pair->has_partner = true;
    pair->partner = node->links[peer].id;
    if (pair->asked_count == 1 || !TW_IS_MUTANT(node, TW_MUTANT_OLD_NAME)) {
        pair->id.high = tw_rng_next(&node->rng);
        pair->id.low = tw_rng_next(&node->rng);
    }
    pair->owes_request = true;
    pair->deadline_us = node->now_us + PAIR_ANSWER_US;
    if (TW_IS_MUTANT(node, TW_MUTANT_NO_DEADLINE)) pair->deadline_us = UINT64_MAX;
    return true;
}

static bool is_alone(const struct tw_node *node) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_live(node, i)) return false;
    }
    return true;
}

static void find_partner(struct tw_node *node) {
    struct pair *pair = &node->pair;
    if (pair->has_partner && node->now_us >= pair->deadline_us) leave_partner(node);
    if (pair->has_partner || ask_next(node)) {
        tw_act_wake(node, pair->deadline_us);
    } else if (is_alone(node)) {
        request_solo(node);
    } else {
        request_step(node, false);
    }
}

enum tw_drop tw_pair_request(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_pair_request *request) {
    struct pair *pair = &node->pair;
    const struct tw_id *id = &node->links[peer].id;
    const bool is_crossing =
        pair->phase == PAIR_ASKING && pair->has_partner && tw_id_equal(&pair->partner, id);
    if (is_crossing && tw_id_compare(&node->cfg.self, id) < 0)
        return TW_DROP_BUSY; /* both nodes asked each other: the lower id's, ours, wins */
    if (is_crossing)
        leave_partner(node); /* our own request is void, even if the peer accepted it already */
    const bool is_free = (pair->phase == PAIR_IDLE && may_begin(node)) || is_crossing;
    if (!is_free || !is_able(node) || node->measured.is_over_budget || !is_match(node, peer) ||
        request->fragment >= node->cfg.fragments_count || !is_time_again(node, request->fragment)) {
        pair->refused_count++;
        send_busy(node, peer, &request->pair);
        return is_free ? TW_DROP_NOT_READY : TW_DROP_BUSY;
    }
    begin_exchange(node, PAIR_ENCODING,
                   TW_IS_MUTANT(node, TW_MUTANT_OTHER_FRAGMENT) ? choose_fragment(node)
                                                                : request->fragment);
    pair->has_partner = true;
    pair->partner = *id;
    pair->id = request->pair;
    pair->is_whole = request->wants_whole != 0;
    pair->owes_accept = true;
    request_encode(node);
    return TW_DROP_NONE;
}

enum tw_drop tw_pair_accept(struct tw_node *node, uint16_t peer,
                            const struct tw_msg_pair_accept *accept) {
    if (!is_ours(node, peer, &accept->pair) || node->pair.phase != PAIR_ASKING)
        return TW_DROP_UNASKED;
    node->pair.is_whole = accept->wants_whole != 0;
    request_encode(node);
    return TW_DROP_NONE;
}

static void count_one_sided(struct tw_node *node, const struct tw_id *with) {
    node->pair.one_sided_count++;
    tw_act_report(node, TW_REPORT_ONE_SIDED, with);
}

enum tw_drop tw_pair_busy(struct tw_node *node, uint16_t peer,
                          const struct tw_msg_pair_busy *busy) {
    struct pair *pair = &node->pair;
    if (is_ours(node, peer, &busy->pair)) {
        /* The peer took no step with us. The exchange counts as one-sided only once our step is
         * done: our step may still end without the partner. */
        pair->is_deserted = pair->phase == PAIR_APPLYING && pair->is_merging;
        forget_partner(node);
        return TW_DROP_NONE;
    }
    enum tw_drop why = TW_DROP_UNASKED;
    for (uint32_t i = 0; i < PAIRS_KEPT; i++) {
        if (!pair->merged[i].is_open || !is_pair_id(&pair->merged[i].id, &busy->pair) ||
            !tw_id_equal(&pair->merged[i].with, &node->links[peer].id))
            continue;
        pair->merged[i].is_open = false;
        why = TW_DROP_NONE;
        if (TW_IS_MUTANT(node, TW_MUTANT_UNCOUNTED)) continue;
        count_one_sided(node, &node->links[peer].id);
    }
    return why;
}

enum tw_drop tw_pair_offer(struct tw_node *node, uint16_t peer,
                           const struct tw_msg_pair_offer *offer) {
    struct pair *pair = &node->pair;
    if (!is_ours(node, peer, &offer->pair)) return TW_DROP_UNASKED;
    if (pair->has_theirs) return TW_DROP_TWICE;
    if (pair->phase != PAIR_ENCODING && pair->phase != PAIR_TRADING) return TW_DROP_UNASKED;
    const uint64_t elements = node->cfg.fragment_elements[pair->fragment];
    if (!tw_payload_is_possible(node, TW_CONTENT_DELTA, elements, offer->delta_bytes) ||
        !tw_payload_is_possible(node, TW_CONTENT_PHI, elements, offer->phi_bytes)) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    pair->theirs = *offer;
    pair->has_theirs = true;
    return TW_DROP_NONE;
}

void tw_pair_peer_down(struct tw_node *node, const struct tw_id *id) {
    struct pair *pair = &node->pair;
    if (pair->phase != PAIR_IDLE && pair->has_partner && tw_id_equal(&pair->partner, id))
        forget_partner(node);
}

/* ---- trading --------------------------------------------------------------------------------- */

static const enum tw_content contents[TW_PAIR_PAYLOADS] = {
    [TW_PAIR_DELTA] = TW_CONTENT_DELTA, [TW_PAIR_PHI] = TW_CONTENT_PHI};

static void hold_payload(struct tw_node *node, const struct tw_event *event, unsigned k) {
    const bool is_now = node->pair.phase == PAIR_TRADING;
    tw_payload_hold(node, &event->u.encoded.hashes[k], event->u.encoded.bytes[k], contents[k],
                    node->cfg.fragment_elements[node->pair.fragment], is_now ? node->at.rounds : 0);
    struct payload *payload = tw_payload_find(node, &event->u.encoded.hashes[k]);
    /* A slower partner may still pull the payload after our round. */
    if (is_now && payload != NULL && payload->keep_us < node->now_us + STATE_KEEP_US)
        payload->keep_us = node->now_us + STATE_KEEP_US;
}

enum tw_drop tw_pair_encoded(struct tw_node *node, const struct tw_event *event) {
    struct pair *pair = &node->pair;
    const bool is_now = pair->phase == PAIR_ENCODING && event->u.encoded.round == node->at.rounds;
    const bool is_good = event->ok && event->u.encoded.parts_count == TW_PAIR_PAYLOADS &&
                         event->u.encoded.bytes[TW_PAIR_DELTA] > 0 &&
                         event->u.encoded.bytes[TW_PAIR_PHI] > 0;
    if (is_now && is_good) pair->phase = PAIR_TRADING;
    for (unsigned k = 0; is_good && k < TW_PAIR_PAYLOADS; k++) hold_payload(node, event, k);
    pair->is_encoding = false;
    if (!is_now) return TW_DROP_UNASKED;
    if (!is_good) { /* the Delta is not finite, or the pool has no room; a step alone needs no
                       payload */
        leave_partner(node);
        request_step(node, false);
        return TW_DROP_NONE;
    }
    pair->step = event->u.encoded.step;
    pair->counted_tokens = pair->gained_tokens;
    node->round.own_step = event->u.encoded.step;
    node->round.own_tokens = event->u.encoded.tokens;
    pair->own = (struct tw_msg_pair_offer){
        .pair = pair->id,
        .clock_tokens = own_clock(node),
        .delta_hash = event->u.encoded.hashes[TW_PAIR_DELTA],
        .delta_bytes = event->u.encoded.bytes[TW_PAIR_DELTA],
        .phi_hash = event->u.encoded.hashes[TW_PAIR_PHI],
        .phi_bytes = event->u.encoded.bytes[TW_PAIR_PHI],
    };
    pair->owes_offer = true;
    return TW_DROP_NONE;
}

/* True if payload k of the partner has arrived. Sets *is_lost if it will not arrive. */
static bool want_payload(struct tw_node *node, unsigned k, bool *is_lost) {
    const struct tw_msg_pair_offer *offer = &node->pair.theirs;
    const bool is_delta = k == TW_PAIR_DELTA;
    struct payload *payload =
        tw_payload_want(node, is_delta ? &offer->delta_hash : &offer->phi_hash,
                        is_delta ? offer->delta_bytes : offer->phi_bytes, contents[k],
                        node->cfg.fragment_elements[node->pair.fragment]);
    if (payload == NULL) return false;
    /* This node knows the payload with another content or size. The partner's offer must not change
     * that: another transfer may depend on it. */
    if (payload->content != contents[k] ||
        payload->elements != node->cfg.fragment_elements[node->pair.fragment]) {
        *is_lost = true;
        return false;
    }
    if (payload->state != PAYLOAD_HELD) payload->from = node->pair.partner;
    if (payload->keep_round < node->at.rounds) payload->keep_round = node->at.rounds;
    if (payload->state == PAYLOAD_UNFIT)
        tw_conduct_strike(node, &node->pair.partner, true, node->at.rounds, 0);
    *is_lost |= payload->state == PAYLOAD_UNFIT ||
                (payload->state == PAYLOAD_WANTED && payload->failed_rounds > 0);
    return payload->state == PAYLOAD_HELD;
}

/* Notes that the offered payloads did not arrive, and the partner sent no PAIR_BUSY: this node then
 * prefers other partners. After a missed deadline, its patience doubles. */
static void note_late(struct tw_node *node) {
    struct pair *pair = &node->pair;
    if (node->now_us >= pair->deadline_us)
        pair->patience_us = at_most(2 * pair->patience_us, PAIR_PATIENCE_CEILING_US);
    const uint16_t peer = pair->has_partner ? tw_peers_find(node, &pair->partner) : NO_PEER;
    if (peer == NO_PEER || node->links[peer].pairs_missed == PAIRS_MISSED_MAX) return;
    node->links[peer].pairs_missed++;
}

static void advance_trade(struct tw_node *node) {
    struct pair *pair = &node->pair;
    bool is_here = false, is_lost = !pair->has_partner || node->now_us >= pair->deadline_us;
    TW_ASSERT(pair->phase == PAIR_ENCODING || pair->phase == PAIR_TRADING);
    if (!is_lost && pair->has_theirs) {
        is_here = want_payload(node, TW_PAIR_DELTA, &is_lost);
        is_here &= want_payload(node, TW_PAIR_PHI, &is_lost);
    }
    if (pair->phase == PAIR_ENCODING) {
        if (is_lost) leave_partner(node);
        return;
    }
    if (is_here) {
        request_step(node, true);
    } else if (is_lost) {
        note_late(node);
        leave_partner(node);
        request_step(node, false);
    }
}

/* ---- the step is done ------------------------------------------------------------------------ */

static void write_record(struct tw_node *node, struct tw_record *record) {
    const bool is_final = tw_progress_is_final(node);
    TW_ASSERT(node->cfg.is_pair);
    *record = (struct tw_record){.lineage = node->at.lineage,
                                 .parent = node->tip_digest,
                                 .round = node->at.rounds,
                                 .fragment = node->pair.fragment,
                                 .roster_number = node->roster.number,
                                 .finals = is_final ? node->at.tip.finals + 1 : 0,
                                 .contributors_count = 1,
                                 .next = node->roster};
    tw_account_row(node, record->fragment, &record->contributors[0]);
    record->clock_tokens = clock_after(node, record->contributors[0].tokens);
    TW_ASSERT(node->pair.counted_tokens <= node->pair.gained_tokens);
    node->pair.gained_tokens -= node->pair.counted_tokens;
    node->round.own = OWN_SENT;
}

static void note_merged(struct tw_node *node, uint64_t round) {
    struct pair *pair = &node->pair;
    TW_ASSERT(pair->is_merging);
    pair->merged_count++;
    pair->needs_whole[pair->fragment] = false;
    node->lineage.was_shared = true;
    const uint64_t wanted_us = 4 * (node->now_us - pair->began_us) + PATIENCE_FLOOR_US;
    pair->patience_us = at_most((3 * pair->patience_us + wanted_us) / 4, PAIR_PATIENCE_CEILING_US);
    const uint32_t row = (uint32_t)(pair->merged_count % PAIRS_KEPT);
    pair->merged[row].is_open = pair->has_partner;
    pair->merged[row].id = pair->id;
    pair->merged[row].with = pair->partner;
    const uint16_t peer = tw_peers_find(node, &pair->partner);
    if (peer != NO_PEER) node->links[peer].pairs_missed = 0;
    tw_peers_note_mixed(node, &pair->partner, round);
    tw_act_report(node, TW_REPORT_PAIRED, &pair->partner);
    if (pair->is_deserted) count_one_sided(node, &pair->partner);
}

bool tw_pair_is_step(const struct tw_node *node, const struct tw_event *event) {
    return node->pair.phase == PAIR_APPLYING && event->u.applied.fragment == node->pair.fragment;
}

bool tw_pair_applied(struct tw_node *node, const struct tw_event *event, struct tw_record *record) {
    struct pair *pair = &node->pair;
    const uint32_t fragment = event->u.applied.fragment;
    const uint64_t round = node->at.rounds;
    TW_ASSERT(pair->phase == PAIR_APPLYING);
    tw_fragment_set_remove(&node->worker.applying, fragment);
    if (!event->ok || event->u.applied.rounds != round + 1) { /* nothing changed */
        tw_pair_abandon(node);
        pair->retry_us = node->now_us + PATIENCE_FLOOR_US;
        return false;
    }
    node->at.fragment_rounds[fragment] = event->u.applied.rounds;
    node->at.fragment_digests[fragment] = event->u.applied.digest;
    node->exports[fragment].is_valid = false;
    if (pair->is_merging && event->u.applied.is_alone) {
        pair->is_merging = false;
        if (event->u.applied.is_outlier) {
            tw_conduct_strike(node, &pair->partner, false, round, 0);
        } else {
            pair->needs_whole[fragment] = true;
        }
        leave_partner(node);
    }
    pair->synced_step[fragment] = pair->step;
    pair->synced_us[fragment] = node->now_us;
    node->worker.last_send_step = pair->step;
    write_record(node, record);
    return true;
}

void tw_pair_committed(struct tw_node *node, uint64_t round) {
    struct pair *pair = &node->pair;
    TW_ASSERT(pair->phase == PAIR_APPLYING);
    TW_ASSERT(node->at.rounds == round + 1);
    if (pair->is_merging) {
        note_merged(node, round);
    } else {
        pair->alone_count++;
    }
    forget_partner(node);
    pair->phase = PAIR_IDLE;
}

void tw_pair_advance(struct tw_node *node) {
    struct pair *pair = &node->pair;
    if (pair->phase != PAIR_APPLYING && !is_able(node)) {
        tw_pair_abandon(node);
        return;
    }
    if (pair->phase == PAIR_IDLE && may_begin(node) && may_ask(node))
        begin_exchange(node, PAIR_ASKING, choose_fragment(node));
    if (pair->phase == PAIR_ASKING) find_partner(node);
    if (pair->phase == PAIR_ENCODING || pair->phase == PAIR_TRADING) {
        advance_trade(node);
        if (node->now_us < pair->deadline_us) tw_act_wake(node, pair->deadline_us);
    }
    send_owed(node);
}
