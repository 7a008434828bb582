/* account.c - this node's tokens and steps: those already listed, and those yet to be sent.
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
#include "sync/round/account.h"

#include "sync/core/state/node.h"

void tw_account_settle_clock(struct tw_node *node) {
    /* Without a worker the present count is not known, so the mark is set to the largest number.
     * tw_account_greet() lowers it. */
    node->at.tokens_listed = node->worker.is_up ? node->worker.tokens : UINT64_MAX;
}

void tw_account_settle_delta(struct tw_node *node, uint32_t fragment) {
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

bool tw_account_is_possible(const struct tw_node *node, const struct tw_contributor *row) {
    const uint64_t most = tw_account_tokens_max(node), step = node->cfg.step_tokens;
    if (row->tokens > most || row->fragment_tokens > most) return false;
    if (step == 0 || node->cfg.has_own_start) return true;
    const uint64_t steps_tokens =
        row->fragment_steps > most / step ? most : row->fragment_steps * step;
    return row->fragment_tokens == steps_tokens && (row->tokens % step == 0 || row->tokens == most);
}

static uint64_t count_since(uint64_t now, uint64_t mark) {
    return now > mark ? now - mark : 0;
}

void tw_account_row(const struct tw_node *node, uint32_t fragment, struct tw_contributor *row) {
    const struct round *round = &node->round;
    const uint64_t most = tw_account_tokens_max(node);
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
