/* state_proof.c - states that decided records prove. */
#include "sync/transfer/state_proof.h"

#include "base/assert.h"
#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/transfer/state_transfer.h"

/* ---- the end of the run: all digests, whose root is in the closing record ---------------------
 */

/* The closing record has one digest for all fragments, so that a node with the newest record alone,
 * as after a restart, can prove the whole model. A node that fetches the state asks one donor for
 * the digest of each fragment. If their root is the record's, all are proven. Otherwise the donor
 * lies, and another one is asked. */

enum { LIST_ASKED_MAX = 32 }; /* fragments asked for in one event */
#define LIST_LOST_US                                                                               \
    (10 * SECOND_US) /* time without an answer after which another donor is asked */

/* True if a closing record is decided. */
static bool is_closed(const struct tw_node *node) {
    return node->at.has_tip != 0 && tw_progress_is_closing(node, &node->at.tip) &&
           !tw_id_is_zero(&node->at.tip.base);
}

static bool is_list_proven(const struct tw_node *node) {
    return tw_id_equal(&node->list.tip, &node->tip_digest);
}

static void begin_list(struct tw_node *node, const struct tw_id *from) {
    node->list.from = *from;
    node->list.told = (struct tw_fragment_set){{0}};
    node->list.told_count = 0;
    node->list.asked_us = 0;
    node->list.fed_us = node->now_us;
    node->list.rounds = node->at.rounds;
}

/* Returns the donor that tells its digests, or NO_PEER. */
static uint16_t choose_teller(struct tw_node *node) {
    const uint16_t before = tw_peers_find(node, &node->list.from);
    if (before != NO_PEER && tw_peers_is_donor(node, before) &&
        node->list.rounds == node->at.rounds && node->now_us < node->list.fed_us + LIST_LOST_US)
        return before;
    const uint16_t peer = tw_state_choose_donor(node);
    if (peer != NO_PEER) begin_list(node, &node->links[peer].id);
    return peer;
}

/* Asks one donor for the digests that it has not told. True once all are proven. */
static bool ask_list(struct tw_node *node) {
    struct state_list *list = &node->list;
    if (is_list_proven(node)) return true;
    const uint16_t peer = choose_teller(node);
    if (peer == NO_PEER) return false;
    if (list->asked_us != 0 && node->now_us < list->asked_us + ASK_US) {
        tw_act_wake(node, list->asked_us + ASK_US);
        return false;
    }
    uint32_t left = LIST_ASKED_MAX;
    for (uint32_t p = 0; p < node->cfg.fragments_count && left > 0; p++) {
        if (tw_fragment_set_has(&list->told, p)) continue;
        struct tw_message *message = tw_act_message(node, TW_MSG_STATE_GET);
        if (message == NULL) break;
        message->u.state_get = (struct tw_msg_state_get){.lineage = node->at.lineage,
                                                         .digest = node->at.tip.base,
                                                         .wanted = node->at.tip.base,
                                                         .rounds = node->at.rounds,
                                                         .fragment = p};
        tw_act_send(node, message, peer);
        left--;
    }
    list->asked_us = node->now_us;
    tw_act_wake(node, list->asked_us + ASK_US);
    return false;
}

void tw_state_told(struct tw_node *node, uint16_t peer, const struct tw_msg_state *state) {
    struct state_list *list = &node->list;
    if (!is_closed(node) || is_list_proven(node) || state->bytes != 0) return;
    if (list->asked_us == 0 || !tw_id_equal(&node->links[peer].id, &list->from)) return;
    if (state->rounds != list->rounds || list->rounds != node->at.rounds) return;
    if (tw_fragment_set_has(&list->told, state->fragment)) return;
    tw_fragment_set_add(&list->told, state->fragment);
    list->digests[state->fragment] = state->digest;
    list->fed_us = node->now_us;
    if (++list->told_count % LIST_ASKED_MAX == 0) list->asked_us = 0;
    if (list->told_count < node->cfg.fragments_count) return;
    const struct tw_id root = tw_record_root(list->digests, node->cfg.fragments_count);
    if (tw_id_equal(&root, &node->at.tip.base) || TW_IS_MUTANT(node, TW_MUTANT_ANY_END)) {
        list->tip = node->tip_digest;
        return;
    }
    tw_state_accuse(node, &list->from, state->fragment);
    list->from = (struct tw_id){{0}};
}

/* ---- the verdict of decided records ----------------------------------------------------------
 */

/* Returns the digest that the record of the fragment's next round names for the state after
 * `rounds`, or NULL if that record is not known or tells none. */
static const struct tw_id *named_by_next(const struct tw_node *node, uint32_t fragment,
                                         uint64_t rounds) {
    const struct tw_record *record =
        tw_progress_record(node, tw_progress_from(node, fragment, rounds));
    if (record == NULL || tw_progress_is_closing(node, record)) return NULL;
    return tw_id_is_zero(&record->base) ? NULL : &record->base;
}

enum tw_proof_of_state tw_state_prove(struct tw_node *node, uint32_t fragment) {
    const struct state_fetch *fetch = &node->fetch[fragment];
    TW_ASSERT(fetch->has_offer);
    const struct tw_id *digest = named_by_next(node, fragment, fetch->offer.rounds);
    const bool is_last = tw_progress_next(node, fragment, fetch->offer.rounds) == UINT64_MAX;
    if (digest == NULL && is_closed(node) && is_last) {
        if (!ask_list(node)) return TW_STATE_AWAITED;
        digest = &node->list.digests[fragment];
    }
    if (digest == NULL) return TW_STATE_UNPROVEN;
    return tw_id_equal(digest, &fetch->offer.digest) ? TW_STATE_PROVEN : TW_STATE_REFUTED;
}

/* Linked other voters that say that they lack the run's state. As many as may lie do not count. */
static uint32_t count_voters_behind(const struct tw_node *node) {
    uint32_t behind = 0;
    if (TW_IS_MUTANT(node, TW_MUTANT_BEHIND_DECIDES)) return 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const struct link *link = &node->links[i];
        if (!link->is_up || !link->has_status || link->status.state != TW_STATE_RECEIVER) continue;
        behind += tw_membership_voter(node, i) >= 0;
    }
    return behind > tw_membership_liars_max(node) ? behind : 0;
}

bool tw_state_is_provable(struct tw_node *node, uint32_t fragment) {
    const uint64_t next = tw_progress_from(node, fragment, node->fetch[fragment].offer.rounds);
    const uint64_t end_us = node->pace.last_commit_us + node->cfg.orphan_us;
    const uint32_t voters = tw_bits(node->voters);
    const bool is_ours = tw_membership_voter(node, NO_PEER) >= 0;
    if (next < node->at.rounds) return false; /* that round was decided, and tells no digest */
    if (voters < 2) return false;
    const uint32_t missing = count_voters_behind(node) + (is_ours ? 1 : 0);
    if (voters < tw_membership_votes_needed(node) + missing) return false;
    if (node->now_us >= end_us) return false;
    tw_act_wake(node, end_us);
    return true;
}

/* ---- this node's own state --------------------------------------------------------------------
 */

/* Fetches a fragment again whose state is not the one that a record names. */
static void replace(struct tw_node *node, uint32_t fragment) {
    struct state_fetch *fetch = &node->fetch[fragment];
    if (fetch->is_unproven) {
        tw_state_accuse(node, &fetch->donor, fragment);
    } else {
        struct tw_report *report = tw_act_report(node, TW_REPORT_DIFFERS, &node->cfg.self);
        if (report != NULL) report->part = fragment;
        if (report != NULL) report->round = node->at.rounds;
    }
    fetch->is_unproven = false;
    tw_state_refetch(node, fragment, TW_LOAD_SHIFT);
}

bool tw_state_agrees(struct tw_node *node, const struct tw_record *record) {
    const uint32_t fragment = record->fragment;
    TW_ASSERT(node->at.fragment_rounds[fragment] != NOT_HELD);
    if (tw_id_is_zero(&record->base) || tw_progress_is_closing(node, record)) return true;
    if (tw_id_equal(&record->base, &node->at.fragment_digests[fragment])) {
        node->fetch[fragment].is_unproven = false;
        return true;
    }
    replace(node, fragment);
    return false;
}

void tw_state_check_end(struct tw_node *node) {
    if (!is_closed(node) || !node->worker.is_up || !tw_progress_is_current(node)) return;
    if (!tw_fragment_set_is_empty(&node->worker.applying)) return;
    const struct tw_id root = tw_record_root(node->at.fragment_digests, node->cfg.fragments_count);
    const bool is_right = tw_id_equal(&root, &node->at.tip.base);
    if (!is_right && !ask_list(node)) return;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        if (is_right || tw_id_equal(&node->list.digests[p], &node->at.fragment_digests[p]))
            node->fetch[p].is_unproven = false;
        else
            replace(node, p);
    }
}
