/* claim.c - the claim of a peer that it is in a better lineage, and its proof.
 *
 * STATUS is only a claim. Before this node follows another lineage, it asks a peer of that lineage
 * for the newest records (LOG_GET), while it stays a member of its own. Each record names the
 * digest of the one before it, and is proven by votes of the roster in that earlier record. So the
 * newest record, its clock and its roster are as true as the nodes that signed.
 *
 * Supporters are the nodes that signed one of these records, as voters or as contributors, and
 * have a vote in the newest roster. Signatures do not age. A linked node therefore speaks for
 * itself: it supports the lineage that its STATUS names, and no other. Keys cost nothing. A node
 * that is neither linked nor in our own roster is counted apart (struct support): it may be
 * invented.
 *
 * The first record of an answer cannot be checked, because the roster that decided it is in the
 * record before. Its signers count if the roster did not change; otherwise it only gives the next
 * roster. A node that adopts the lineage keeps such a record unchecked, so a signature in it proves
 * nobody false. */
#include "sync/history/claim.h"

#include "base/assert.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/voters.h"
#include "sync/history/lineage.h"
#include "sync/round/result.h"

#define CLAIM_AGAIN_US (10 * SECOND_US) /* time between two checks of one lineage */
/* The same, if the peer left the lineage without an answer, or if this node has no donor. */
#define CLAIM_SOON_US SECOND_US

enum {
    CLAIM_ROUNDS = 8
}; /* newest records to ask for: within so many rounds, nearly every member
      has signed */

/* ---- the question ---------------------------------------------------------------------------- */

/* True if the peer of the claim is still linked and in that lineage, and this node does not refuse
 * the lineage by now. */
static bool is_peer_there(const struct tw_node *node) {
    const struct claim *claim = &node->lineage.claim;
    const struct link *link = &node->links[claim->peer];
    return tw_peers_is_live(node, claim->peer) && tw_id_equal(&link->id, &claim->from) &&
           tw_id_equal(&link->status.lineage, &claim->lineage) &&
           link->status.state != TW_STATE_RECEIVER && !tw_lineage_is_refused(node, &claim->lineage);
}

/* Returns the time between two checks of one lineage. A receiver without a donor asks often: it may
 * follow that lineage as soon as links show that nobody serves its own. */
static uint64_t again_us(const struct tw_node *node) {
    const bool is_waiting = node->state == TW_STATE_RECEIVER &&
                            node->now_us >= node->lineage.donor_us + 2 * TW_HEARTBEAT_US;
    return is_waiting ? CLAIM_SOON_US : CLAIM_AGAIN_US;
}

static bool may_be_asked(const struct tw_node *node, uint16_t peer) {
    const struct link *link = &node->links[peer];
    if (!tw_peers_is_live(node, peer) || tw_peers_in_lineage(node, peer)) return false;
    if (link->status.state == TW_STATE_RECEIVER || link->status.rounds == 0) return false;
    if (tw_lineage_is_refused(node, &link->status.lineage)) return false;
    if (link->claim_us != 0 && node->now_us < link->claim_us + again_us(node)) return false;
    return !tw_conduct_is_disbelieved(node, &link->id);
}

static uint32_t count_claimants(const struct tw_node *node, const struct tw_id *lineage) {
    uint32_t count = 0;
    for (uint16_t i = 0; i < node->links_end; i++)
        count += tw_peers_is_live(node, i) && tw_id_equal(&node->links[i].status.lineage, lineage);
    return count;
}

/* Chooses a peer of the lineage with the most claimants, and among equals of the largest clock. */
static uint16_t choose_peer(const struct tw_node *node) {
    uint16_t best = NO_PEER;
    uint32_t best_count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!may_be_asked(node, i)) continue;
        const struct tw_msg_status *status = &node->links[i].status;
        const uint32_t count = count_claimants(node, &status->lineage);
        if (best != NO_PEER &&
            (count < best_count || (count == best_count &&
                                    status->clock_tokens <= node->links[best].status.clock_tokens)))
            continue;
        best = i;
        best_count = count;
    }
    return best;
}

static bool send_question(struct tw_node *node) {
    const struct claim *claim = &node->lineage.claim;
    struct tw_message *message = tw_act_message(node, TW_MSG_LOG_GET);
    if (message == NULL) return false;
    message->u.log_get =
        (struct tw_msg_log_get){.lineage = claim->lineage, .round = claim->next_round};
    tw_act_send(node, message, claim->peer);
    return true;
}

/* The peer of the claim went to another lineage before it answered. That lineage may be asked about
 * soon, but not at once: a liar that changes its lineage all the time must not be the only peer
 * that is asked. */
static void ask_soon(struct tw_node *node) {
    struct link *const link = &node->links[node->lineage.claim.peer];
    if (!tw_peers_is_live(node, node->lineage.claim.peer)) return;
    if (!tw_id_equal(&link->id, &node->lineage.claim.from) ||
        link->claim_us < CLAIM_AGAIN_US - CLAIM_SOON_US)
        return;
    link->claim_us -= CLAIM_AGAIN_US - CLAIM_SOON_US;
    tw_act_wake(node, node->now_us + CLAIM_SOON_US);
}

void tw_claim_close(struct tw_node *node) {
    node->lineage.claim.phase = CLAIM_NONE;
}

void tw_claim_advance(struct tw_node *node) {
    struct claim *claim = &node->lineage.claim;
    if (claim->phase == CLAIM_ASKED && node->now_us >= claim->asked_us + RETRY_US)
        tw_claim_close(node);
    if (claim->phase != CLAIM_NONE && !is_peer_there(node)) {
        if (claim->phase == CLAIM_ASKED) ask_soon(node);
        tw_claim_close(node);
    }
    if (claim->phase == CLAIM_ASKED) tw_act_wake(node, claim->asked_us + RETRY_US);
    if (claim->phase != CLAIM_NONE) return;
    const uint16_t peer = choose_peer(node);
    if (peer == NO_PEER) return;
    const struct tw_msg_status *status = &node->links[peer].status;
    claim->peer = peer;
    claim->from = node->links[peer].id;
    claim->lineage = status->lineage;
    claim->rounds = status->rounds;
    claim->next_round = status->rounds > CLAIM_ROUNDS ? status->rounds - CLAIM_ROUNDS : 0;
    claim->has_record = false;
    claim->signers = 0;
    if (!send_question(node)) return;
    claim->phase = CLAIM_ASKED;
    claim->asked_us = node->links[peer].claim_us = node->now_us;
    tw_act_wake(node, claim->asked_us + RETRY_US);
}

/* ---- the answer ------------------------------------------------------------------------------ */

static bool is_asked(const struct tw_node *node, uint16_t peer) {
    const struct claim *claim = &node->lineage.claim;
    return claim->phase == CLAIM_ASKED && claim->peer == peer && is_peer_there(node);
}

enum tw_drop tw_claim_none(struct tw_node *node, uint16_t peer,
                           const struct tw_msg_log_none *none) {
    struct claim *claim = &node->lineage.claim;
    if (!is_asked(node, peer) || !tw_id_equal(&none->lineage, &claim->lineage))
        return TW_DROP_UNASKED;
    if (claim->has_record || none->oldest_round <= claim->next_round ||
        none->oldest_round >= claim->rounds)
        return TW_DROP_UNASKED;
    claim->next_round = none->oldest_round;
    send_question(node);
    return TW_DROP_NONE;
}

/* Returns the set of members of the roster that signed this record, or 0 if it is not proven. */
static uint64_t find_signers(const struct tw_node *node, const struct tw_roster *roster,
                             uint64_t known, const struct tw_msg_commit *commit) {
    const struct tw_record *record = &commit->record;
    uint64_t signers = tw_vote_proof_voters(node, roster, TW_VOTE_COMMIT, record, &commit->proof);
    if (signers == 0) return 0;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const struct tw_contributor *row = &record->contributors[i];
        if (row->member_idx >= roster->count) continue;
        const uint64_t bit = UINT64_C(1) << row->member_idx;
        if (((signers | known) & bit) == 0 &&
            tw_contributor_has_signed(node, record, row, &roster->members[row->member_idx].id))
            signers |= bit;
    }
    return signers;
}

/* Converts a set of members of `roster` to the set of the same members in the next roster. */
static uint64_t carry_over(const struct tw_roster *roster, uint64_t set,
                           const struct tw_roster *next) {
    uint64_t carried = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        const int idx = tw_roster_find(roster, &next->members[i].id);
        if (idx >= 0 && (set >> idx & 1) != 0) carried |= UINT64_C(1) << i;
    }
    return carried;
}

/* Checks the next record and counts its signers. Returns false if no group can have decided it. */
static bool check_record(struct tw_node *node, const struct tw_msg_commit *commit) {
    struct claim *claim = &node->lineage.claim;
    const struct tw_record *record = &commit->record;
    TW_ASSERT(claim->phase == CLAIM_ASKED);
    TW_ASSERT(claim->next_round < claim->rounds);
    if (claim->has_record && !tw_id_equal(&record->parent, &claim->digest)) return false;
    if (record->fragment != tw_progress_fragment(node, record->round)) return false;
    const bool is_strict =
        claim->has_record && tw_id_equal(&claim->record.lineage, &record->lineage);
    if (!is_strict) claim->signers = 0;
    const bool is_same = record->next.number == record->roster_number;
    if (!is_strict && !is_same) return true;
    const struct tw_roster *roster = is_strict ? &claim->record.next : &record->next;
    const uint64_t signers = find_signers(node, roster, claim->signers, commit);
    if (is_strict && signers == 0) return false;
    claim->signers = carry_over(roster, claim->signers | signers, &record->next);
    return true;
}

/* Notes that no other peer needs to be asked about this lineage for a while. */
static void note_checked(struct tw_node *node) {
    TW_ASSERT(node->lineage.claim.phase == CLAIM_PROVEN);
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_live(node, i) &&
            tw_id_equal(&node->links[i].status.lineage, &node->lineage.claim.lineage))
            node->links[i].claim_us = node->now_us;
    }
}

enum tw_drop tw_claim_record(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_commit *commit) {
    struct claim *claim = &node->lineage.claim;
    if (!is_asked(node, peer) || commit->record.round != claim->next_round) return TW_DROP_UNASKED;
    if (!check_record(node, commit)) {
        tw_claim_close(node);
        tw_conduct_note_false_claim(node, &claim->from);
        tw_act_report(node, TW_REPORT_FORGED, &claim->from);
        tw_act_close(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    claim->has_record = true;
    claim->record = commit->record;
    claim->proof = commit->proof;
    claim->digest = tw_record_digest(&commit->record);
    claim->next_round++;
    TW_ASSERT(claim->next_round <= claim->rounds);
    if (claim->next_round == claim->rounds) {
        claim->phase = CLAIM_PROVEN;
        note_checked(node);
    }
    return TW_DROP_NONE;
}

/* ---- the outcome ----------------------------------------------------------------------------- */

const struct claim *tw_claim_proven(const struct tw_node *node) {
    const struct claim *claim = &node->lineage.claim;
    return claim->phase == CLAIM_PROVEN && is_peer_there(node) ? claim : NULL;
}

/* True if the linked peer decides rounds in the lineage that its STATUS names. With certificates, a
 * receiver does not: members without a vote can hold it in a lineage whose voters are gone. */
static bool supports(const struct tw_node *node, uint16_t peer) {
    return tw_voters_may(node, peer) &&
           (!node->cfg.has_rights || node->links[peer].status.state != TW_STATE_RECEIVER);
}

struct support tw_claim_support(const struct tw_node *node) {
    const struct claim *claim = &node->lineage.claim;
    const struct tw_roster *roster = &claim->record.next;
    const uint64_t supporters = claim->signers & tw_roster_voters(roster);
    struct support support = {.met = 0};
    if (!tw_id_equal(&claim->record.lineage, &claim->lineage)) return support;
    for (uint32_t i = 0; i < roster->count; i++) {
        const struct tw_id *id = &roster->members[i].id;
        if ((supporters >> i & 1) == 0) continue;
        if (tw_id_equal(id, &node->cfg.self)) {
            support.is_ours = true;
            continue;
        }
        const uint16_t peer = tw_peers_find(node, id);
        const bool is_here = peer != NO_PEER && tw_peers_is_live(node, peer);
        if (is_here && !tw_id_equal(&node->links[peer].status.lineage, &claim->lineage)) continue;
        if (is_here && !supports(node, peer)) continue;
        const int ours = node->round.self_idx >= 0 ? tw_roster_find(&node->roster, id) : -1;
        const bool is_ours = ours >= 0 && (node->voters >> ours & 1) != 0;
        support.all++;
        support.met += is_ours || (is_here && tw_voters_may_draw(node, id));
    }
    TW_ASSERT(support.met <= support.all);
    return support;
}
