/* state_witness.c - the word of other voters on a state that one donor offers. */
#include "sync/transfer/state_witness.h"

#include "base/bytes.h"
#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/peers.h"
#include "sync/core/progress.h"
#include "sync/trust/conduct.h"

#define WITNESS_ASK_US (5 * SECOND_US) /* time between two questions to one voter */
/* Time after which a state that too few voters spoke of is given up, or taken. */
#define WITNESS_PATIENCE_US (15 * SECOND_US)
/* Time for which links to more voters are awaited, once for all fragments of a state. */
#define WITNESS_LINKS_US (15 * SECOND_US)

/* ---- the witness ----------------------------------------------------------------------------- */

uint64_t tw_witness_rounds(const struct tw_node *node, uint32_t fragment) {
    const uint64_t rounds = node->at.fragment_rounds[fragment];
    return rounds < node->at.first_round ? node->at.first_round : rounds;
}

static uint64_t key_of(const struct tw_node *node) {
    return tw_get_u64(node->at.lineage.bytes);
}

void tw_witness_remember(struct tw_node *node, uint32_t fragment) {
    struct state_memory *const newest = &node->memory[fragment];
    if (node->at.fragment_rounds[fragment] == NOT_HELD) return;
    const struct state_memory state = {.lineage_key = key_of(node),
                                       .rounds = tw_witness_rounds(node, fragment),
                                       .digest = node->at.fragment_digests[fragment],
                                       .fragment = fragment};
    if (!tw_id_is_zero(&newest->digest) && !tw_id_equal(&newest->digest, &state.digest)) {
        node->old_states.rows[node->old_states.next] = *newest;
        node->old_states.next = (node->old_states.next + 1) % TW_ROUNDS_KEPT;
    }
    *newest = state;
}

/* True if the fragment has the same state after so many rounds of the lineage: they differ only in
 * rounds of other fragments. */
static bool is_same_state(const struct tw_node *node, uint32_t fragment, uint64_t rounds,
                          uint64_t others) {
    return tw_progress_from(node, fragment, rounds) == tw_progress_from(node, fragment, others);
}

/* Returns the digest of this node's (phi, u) of the fragment after so many rounds, or NULL. */
static const struct tw_id *remembered(const struct tw_node *node, uint32_t fragment,
                                      uint64_t rounds) {
    if (node->at.fragment_rounds[fragment] != NOT_HELD &&
        is_same_state(node, fragment, tw_witness_rounds(node, fragment), rounds))
        return &node->at.fragment_digests[fragment];
    for (uint32_t i = 0; i < TW_ROUNDS_KEPT; i++) {
        const struct state_memory *const row = &node->old_states.rows[i];
        if (row->fragment == fragment && row->lineage_key == key_of(node) &&
            !tw_id_is_zero(&row->digest) && is_same_state(node, fragment, row->rounds, rounds))
            return &row->digest;
    }
    return NULL;
}

void tw_witness_answer(struct tw_node *node, uint16_t peer, const struct tw_msg_state_get *get) {
    if (get->rounds > ROUNDS_MAX) return;
    const struct tw_id *digest = remembered(node, get->fragment, get->rounds);
    if (digest == NULL || node->fetch[get->fragment].is_unproven) return;
    struct tw_message *message = tw_act_message(node, TW_MSG_STATE);
    if (message == NULL) return;
    message->u.state = (struct tw_msg_state){.lineage = node->at.lineage,
                                             .fragment = get->fragment,
                                             .rounds = get->rounds,
                                             .digest = *digest};
    tw_act_send(node, message, peer);
}

/* ---- the node that fetches ------------------------------------------------------------------- */

/* Set of linked peers whose word counts: voters of the lineage that hold their state. */
static uint64_t witnesses(const struct tw_node *node) {
    uint64_t peers = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i) && tw_membership_voter(node, i) >= 0)
            peers |= UINT64_C(1) << i;
    }
    return peers;
}

void tw_witness_begin(struct tw_node *node, uint32_t fragment, uint16_t peer) {
    struct state_fetch *fetch = &node->fetch[fragment];
    fetch->agreeing = UINT64_C(1) << peer;
    fetch->objecting = 0;
    fetch->witness_us = fetch->here_us = 0;
}

void tw_witness_hear(struct tw_node *node, uint16_t peer, const struct tw_msg_state *state) {
    struct state_fetch *fetch = &node->fetch[state->fragment];
    const uint64_t bit = UINT64_C(1) << peer;
    if (!fetch->has_offer || state->rounds != fetch->offer.rounds) return;
    if (((fetch->agreeing | fetch->objecting) & bit) != 0) return; /* its first word counts */
    if (tw_id_equal(&state->digest, &fetch->offer.digest))
        fetch->agreeing |= bit;
    else
        fetch->objecting |= bit;
}

void tw_witness_peer_down(struct tw_node *node, uint16_t peer) {
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        node->fetch[p].agreeing &= ~(UINT64_C(1) << peer);
        node->fetch[p].objecting &= ~(UINT64_C(1) << peer);
    }
}

/* Asks as many voters as could be needed at most. */
static void ask(struct tw_node *node, uint32_t fragment, uint64_t voters, uint32_t liars) {
    struct state_fetch *fetch = &node->fetch[fragment];
    const uint64_t silent = voters & ~(fetch->agreeing | fetch->objecting);
    uint32_t left = 2 * liars + 1;
    if (fetch->witness_us != 0 && node->now_us < fetch->witness_us + WITNESS_ASK_US) {
        tw_act_wake(node, fetch->witness_us + WITNESS_ASK_US);
        return;
    }
    if (silent == 0) return;
    fetch->witness_us = node->now_us;
    tw_act_wake(node, node->now_us + WITNESS_ASK_US);
    const uint32_t start = (uint32_t)tw_rng_below(&node->rng, TW_PEERS_MAX);
    for (uint32_t i = 0; i < TW_PEERS_MAX && left > 0; i++) {
        const uint16_t peer = (uint16_t)((start + i) % TW_PEERS_MAX);
        if ((silent >> peer & 1) == 0) continue;
        struct tw_message *message = tw_act_message(node, TW_MSG_STATE_GET);
        if (message == NULL) return;
        message->u.state_get = (struct tw_msg_state_get){.lineage = node->at.lineage,
                                                         .digest = fetch->offer.digest,
                                                         .wanted = fetch->offer.digest,
                                                         .rounds = fetch->offer.rounds,
                                                         .fragment = fragment};
        tw_act_send(node, message, peer);
        left--;
    }
}

/* Returns how many voters must agree: one more than may lie. If fewer are linked, all of them must,
 * but only after a while in which more may link: the first links may all be to liars. */
static uint32_t count_needed(struct tw_node *node, uint32_t linked) {
    /* A lineage that has decided no round has no voters yet. */
    const uint32_t needed = node->voters != 0 ? tw_membership_liars_max(node) + 1 : 0;
    if (linked >= needed) {
        node->few_witnesses_us = 0;
        return needed;
    }
    if (node->few_witnesses_us == 0) node->few_witnesses_us = node->now_us;
    const uint64_t end_us = node->few_witnesses_us + WITNESS_LINKS_US;
    if (node->now_us >= end_us) return linked;
    tw_act_wake(node, end_us);
    return needed;
}

/* True if another donor is linked and does not rest: somebody may bear out its state. */
static bool has_other_donor(const struct tw_node *node, const struct tw_id *donor) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i) && !tw_id_equal(&node->links[i].id, donor) &&
            !tw_conduct_is_resting(node, &node->links[i].id))
            return true;
    }
    return false;
}

enum tw_witness tw_witness_judge(struct tw_node *node, uint32_t fragment, bool is_here) {
    struct state_fetch *fetch = &node->fetch[fragment];
    if (node->cfg.is_pair || tw_id_equal(&fetch->donor, &node->cfg.self) ||
        TW_IS_MUTANT(node, TW_MUTANT_DONOR_BELIEVED))
        return TW_WITNESS_BORNE_OUT;
    const uint64_t voters = witnesses(node);
    const uint32_t liars = tw_membership_liars_max(node), linked = tw_bits(voters);
    const uint32_t agreeing = tw_bits(fetch->agreeing & voters),
                   objecting = tw_bits(fetch->objecting & voters);
    if (objecting > liars && objecting > agreeing) return TW_WITNESS_REFUTED;
    const uint32_t needed = count_needed(node, linked);
    if (agreeing >= needed && agreeing >= objecting) return TW_WITNESS_BORNE_OUT;
    ask(node, fragment, voters, liars);
    if (!is_here || linked < needed) return TW_WITNESS_WAITING;
    if (fetch->here_us == 0) fetch->here_us = node->now_us;
    if (node->now_us < fetch->here_us + WITNESS_PATIENCE_US) {
        tw_act_wake(node, fetch->here_us + WITNESS_PATIENCE_US);
        return TW_WITNESS_WAITING;
    }
    return objecting > 0 || has_other_donor(node, &fetch->donor) ? TW_WITNESS_CONTESTED
                                                                 : TW_WITNESS_BORNE_OUT;
}

bool tw_witness_is_proven(const struct tw_node *node, uint32_t fragment) {
    const struct state_fetch *fetch = &node->fetch[fragment];
    const uint32_t liars = tw_membership_liars_max(node);
    if (tw_id_equal(&fetch->donor, &node->cfg.self)) return true;
    return liars > 0 && tw_bits(fetch->agreeing & witnesses(node)) > liars;
}

void tw_witness_accuse(struct tw_node *node, uint32_t fragment) {
    struct state_fetch *fetch = &node->fetch[fragment];
    tw_conduct_note_donor(node, &fetch->donor);
    struct tw_report *report = tw_act_report(node, TW_REPORT_FALSE_STATE, &fetch->donor);
    if (report != NULL) report->part = fragment;
}
