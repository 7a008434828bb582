/* node_view.c - the read-only view of a node. */
#include "sync/node.h"

#include <string.h>

#include "sync/core/progress.h"
#include "sync/core/state/node.h"
#include "sync/core/voters.h"
#include "sync/history/lineage.h"
#include "sync/trust/conduct.h"

/* Copies the cause and remaining time of the peer's strike, if one is in force, into the view. */
static void view_strike(const struct tw_node *node, uint16_t peer, struct tw_node_view *view) {
    for (uint32_t row = 0; row < TW_MEMBERS_MAX; row++) {
        const struct tw_penalty *strike = &node->penalties.strikes[row];
        const struct strike_cause *cause = &node->penalties.causes[row];
        if (strike->count == 0 || strike->until_us <= node->now_us) continue;
        if (!tw_id_equal(&strike->id, &node->links[peer].id)) continue;
        view->peers[peer].strike.count = strike->count;
        view->peers[peer].strike.is_false = cause->is_proven;
        view->peers[peer].strike.round = cause->round;
        view->peers[peer].strike.part = cause->part;
        view->peers[peer].strike.left_us = strike->until_us - node->now_us;
    }
}

static void view_peer(const struct tw_node *node, uint16_t peer, struct tw_node_view *view) {
    const struct link *link = &node->links[peer];
    const struct tw_id *id = &link->id;
    view->alive += link->has_status;
    view->peers[peer].is_up = true;
    view->peers[peer].id = *id;
    view->peers[peer].status = link->status;
    view->peers[peer].received_us = link->received_us;
    view->peers[peer].owner_stall_us = tw_conduct_stall_left_us(node, TW_PENALTY_STALL_OWNER, id);
    view->peers[peer].proposer_stall_us =
        tw_conduct_stall_left_us(node, TW_PENALTY_STALL_PROPOSER, id);
    view->peers[peer].unmerged = tw_conduct_unmerged_rounds(node, id);
    view->peers[peer].is_member = tw_roster_find(&node->roster, id) >= 0;
    view_strike(node, peer, view);
    for (uint32_t row = 0; row < TW_MEMBERS_MAX; row++) {
        if (node->log.mixed[row].round != 0 && tw_id_equal(&node->log.mixed[row].id, id))
            view->peers[peer].last_mixed_round = node->log.mixed[row].round;
    }
}

/* Returns the bytes of a fragment's offered state that have arrived. */
static uint64_t arrived(const struct tw_node *node, uint32_t fragment) {
    const struct tw_msg_state *offer = &node->fetch[fragment].offer;
    if (node->at.fragment_rounds[fragment] != NOT_HELD || tw_progress_is_applying(node, fragment))
        return offer->bytes;
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        const struct payload *payload = &node->payloads[i];
        if (payload->state == PAYLOAD_FREE || !tw_id_equal(&payload->hash, &offer->hash)) continue;
        const uint64_t bytes = (uint64_t)payload->chunks_have * TW_CHUNK_BYTES_MAX;
        return bytes < offer->bytes ? bytes : offer->bytes;
    }
    return 0;
}

/* Sums the fragments' states, as far as their sizes are known. The rest is estimated by the bytes
 * per element of those. */
static void view_fetch(const struct tw_node *node, struct tw_node_view *view) {
    uint64_t elements = 0, unknown = 0;
    if (node->state != TW_STATE_RECEIVER) return;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        const struct state_fetch *fetch = &node->fetch[p];
        const bool is_held = node->at.fragment_rounds[p] != NOT_HELD;
        view->fetch_fragments += !is_held;
        const bool is_ours = tw_id_equal(&fetch->offer.lineage, &node->at.lineage);
        if (is_ours && (fetch->has_offer || is_held || tw_progress_is_applying(node, p))) {
            if (fetch->offer.bytes == 0) continue; /* nothing to transfer */
            elements += node->cfg.fragment_elements[p];
            view->fetch_bytes += fetch->offer.bytes;
            view->fetch_bytes_here += arrived(node, p);
        } else if (!is_held) {
            unknown += node->cfg.fragment_elements[p];
        }
    }
    if (elements > 0) view->fetch_bytes += view->fetch_bytes * 1000 / elements * unknown / 1000;
}

void tw_node_view(const struct tw_node *node, struct tw_node_view *view) {
    memset(view, 0, sizeof(*view));
    view->state = node->state;
    view->lineage = node->at.lineage;
    view->tip = node->tip_digest;
    view->is_founder = tw_lineage_is_ours(node);
    view->is_apart = tw_progress_is_apart(node);
    view->is_shut_out = node->lineage.is_shut_out;
    view->rounds = node->at.rounds;
    view->clock_tokens = tw_progress_clock_tokens(node);
    view->step = node->worker.step;
    view->tokens = node->worker.tokens;
    view->tokens_per_s = tw_progress_speed(node);
    view->rounds_contributed = node->log.contributed_count;
    view->rounds_missed = node->log.missed_count;
    view->rounds_refused = node->log.refused_count;
    view->refused_by = node->log.refused_by;
    if (node->state == TW_STATE_MEMBER && node->round.active_us != 0 &&
        node->now_us > node->round.active_us)
        view->open_us = node->now_us - node->round.active_us;
    if (node->lineage.seatless_us != 0)
        view->seatless_us = node->now_us - node->lineage.seatless_us;
    view_fetch(node, view);
    view->roster_count = node->roster.count;
    view->roster = node->roster;
    view->vote_merges = tw_voters_merges_left(node);
    view->is_contributing = node->round.own == OWN_SENT;
    view->audits = node->audits.done_count;
    view->checks = node->jury.checks;
    view->unmerged = node->penalties.unmerged_count;
    view->pairs.merged = node->pair.merged_count;
    view->pairs.alone = node->pair.alone_count;
    view->pairs.one_sided = node->pair.one_sided_count;
    view->pairs.short_of_bytes = node->pair.over_budget_count;
    view->pairs.refused = node->pair.refused_count;
    view->pairs.is_trading = node->pair.phase != PAIR_IDLE && node->pair.has_partner;
    const uint64_t window = 2 * (uint64_t)node->cfg.fragments_count;
    for (uint32_t row = 0; row < TW_MEMBERS_MAX; row++) {
        if (node->log.mixed[row].round == 0 ||
            tw_id_equal(&node->log.mixed[row].id, &node->cfg.self))
            continue;
        view->mixed += node->log.mixed[row].round + window > node->at.rounds;
    }
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (node->links[i].is_up) view_peer(node, i, view);
    }
}
