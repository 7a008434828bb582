/* progress.c - questions about the position: rounds known, rounds due, the run clock. */
#include "sync/core/progress.h"

#include "sync/core/bounds.h"
#include "sync/core/state/node.h"

#define SPEED_IDLE_US (15 * SECOND_US) /* least time without a step that counts as a pause */

uint32_t tw_progress_fragment(const struct tw_node *node, uint64_t round) {
    return (uint32_t)(round % node->cfg.fragments_count);
}

const struct tw_record *tw_progress_record(const struct tw_node *node, uint64_t round) {
    if (round < node->log.begin || round >= node->at.rounds) return NULL;
    return &node->log.records[round % TW_ROUNDS_KEPT];
}

uint64_t tw_progress_due(const struct tw_node *node, uint32_t fragment) {
    return tw_progress_next(node, fragment, node->at.fragment_rounds[fragment]);
}

uint64_t tw_progress_from(const struct tw_node *node, uint32_t fragment, uint64_t round) {
    if (round < node->at.first_round) round = node->at.first_round;
    const uint32_t count = node->cfg.fragments_count;
    const uint32_t residue = (uint32_t)(round % count);
    return round + (fragment + count - residue) % count;
}

uint64_t tw_progress_next(const struct tw_node *node, uint32_t fragment, uint64_t round) {
    /* In a pair run, rounds are applied before they are committed, so none is ever due. */
    if (round == NOT_HELD || node->cfg.is_pair) return UINT64_MAX;
    round = tw_progress_from(node, fragment, round);
    return round < node->at.rounds ? round : UINT64_MAX;
}

bool tw_progress_is_applying(const struct tw_node *node, uint32_t fragment) {
    return tw_fragment_set_has(&node->worker.applying, fragment);
}

bool tw_progress_is_current(const struct tw_node *node) {
    if (node->lineage.needs_tip || node->at.is_moving != 0) return false;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        if (node->at.fragment_rounds[p] == NOT_HELD || tw_progress_due(node, p) != UINT64_MAX)
            return false;
    }
    return true;
}

uint64_t tw_progress_held_tokens(const struct tw_node *node) {
    return node->at.has_held != 0 ? node->at.held.clock_tokens : 0;
}

/* After together_tokens, a node learns nothing about the training of other nodes. The run clock
 * assumes that each of them trains as many tokens as this node. */
uint64_t tw_progress_clock_tokens(const struct tw_node *node) {
    if (node->at.has_tip == 0) return 0;
    const uint64_t listed = node->at.tip.clock_tokens;
    const bool is_ours = node->roster.count == 1 && node->round.self_idx == 0;
    if (!tw_progress_is_apart(node) || !is_ours || node->worker.tokens <= node->at.tokens_listed)
        return listed;
    const uint64_t own = node->worker.tokens - node->at.tokens_listed,
                   share = tw_progress_share(node);
    return own < (UINT64_MAX - listed) / share ? listed + own * share : UINT64_MAX;
}

uint32_t tw_progress_speed(const struct tw_node *node) {
    enum { IDLE_STEPS = 8 }; /* a step so many times as long as usual does not come */
    const uint64_t patience_us = SPEED_IDLE_US + IDLE_STEPS * node->worker.step_us;
    const bool is_idle = node->now_us > node->worker.stepped_us + patience_us;
    return is_idle ? 0 : node->worker.tokens_per_s;
}

bool tw_progress_is_final(const struct tw_node *node) {
    const uint64_t half = TW_IS_MUTANT(node, TW_MUTANT_EARLY_FINISH) ? 1 : 0;
    return node->at.has_tip != 0 &&
           tw_progress_clock_tokens(node) >= node->cfg.budget_tokens >> half;
}

bool tw_progress_is_apart(const struct tw_node *node) {
    if (node->cfg.alone_nodes == 0) return false;
    return node->cfg.together_tokens == 0 ||
           (node->at.has_tip != 0 && node->at.tip.clock_tokens >= node->cfg.together_tokens);
}

uint64_t tw_progress_share(const struct tw_node *node) {
    return tw_progress_is_apart(node) ? node->cfg.alone_nodes : 1;
}

uint64_t tw_progress_overlap(const struct tw_node *node) {
    const uint64_t most = node->cfg.overlap_steps;
    if (node->cfg.pace_us == 0 || node->worker.step_us == 0) return most;
    const uint64_t steps = node->cfg.overlap_us / node->worker.step_us;
    return steps < most ? steps : most;
}

struct tw_kept tw_progress_kept(const struct tw_node *node) {
    const struct tw_sizes *const sizes = &node->cfg.sizes;
    uint64_t elements = 0, largest = 0;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        if (node->cfg.fragment_elements[p] > largest) largest = node->cfg.fragment_elements[p];
        elements += node->cfg.fragment_elements[p];
    }
    const uint64_t bytes = sizes->bytes_max == NULL || largest == 0
                               ? 0
                               : sizes->bytes_max(sizes->run, TW_CONTENT_RESULT, largest);
    return tw_kept(elements, largest, bytes, TW_RESULT_ROUNDS_MAX);
}
