/* pair_clock.c - topology pair: each node's own run clock, and the peers with newer states.
 *
 * No node knows the tokens of all nodes. It counts its own tokens exactly, and the tokens of other
 * nodes by the rates that they report. A partner that is ahead lifts this node's clock, by at most
 * half of the node's own advance in that round. */
#include "sync/pair/pair_clock.h"

#include "base/median.h"
#include "sync/core/peers.h"
#include "sync/core/progress.h"
#include "sync/core/state/node.h"
#include "sync/trust/conduct.h"

/* Ceilings of a step's time, and of the rate of all nodes together. */
#define STEP_US_MAX (3600 * SECOND_US)
#define STEP_RATE_MAX (UINT64_C(1) << 40) /* tokens per second */

uint64_t tw_pair_clock(const struct tw_node *node) {
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

bool tw_pair_is_far_behind(const struct tw_node *node, uint64_t clock, uint64_t other) {
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

uint64_t tw_pair_clock_now(const struct tw_node *node) {
    const uint64_t tokens = node->worker.tokens > node->at.tokens_listed
                                ? node->worker.tokens - node->at.tokens_listed
                                : 0;
    const uint64_t clock = tw_pair_clock(node);
    if (clock > UINT64_MAX / 4 || tokens > TOKENS_MAX) return clock;
    return clock + tokens + node->pair.gained_tokens;
}

uint64_t tw_pair_clock_after(const struct tw_node *node, uint64_t tokens) {
    const uint64_t clock = tw_pair_clock(node);
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

/* ---- peers that are ahead ------------------------------------------------------------------- */

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
    if (node->cfg.has_own_start && is_newborn(node)) return find_first(node, tw_pair_clock(node));
    uint64_t clock = is_lost ? tw_pair_clock(node) : tw_pair_clock_now(node);
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
                    : tw_pair_is_far_behind(node, clock, status->clock_tokens))
            return peer;
    }
    return NO_PEER;
}
