/* proposer.c - the proposer of the open round, and the vote as a whole. acceptor.c is the other
 * side, and has the proof.
 *
 *   IDLE -> STORING         it is this node's turn: stores its own promise, so that no ballot is
 *                           used twice
 *   STORING -> PREPARING    the promise is on disk: asks for promises, which report locks
 *   PREPARING -> PROPOSING  enough promises: proposes the record of the newest lock in them, or its
 *                           own record if there is no lock
 *   PROPOSING -> LOCKING    enough votes of phase 1: sends them as the lock
 *   any -> IDLE             nacked, refused (check/veto.c) or too late; tries again after a pause
 *
 * Enough votes of phase 2 decide the round. The first rank skips PREPARING at its first ballot, the
 * lowest of the round: no lock can exist before it. */
#include "sync/vote/proposer.h"

#include <string.h>

#include "base/assert.h"
#include "sync/check/veto.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/core/voters.h"
#include "sync/round/proposal.h"
#include "sync/round/result.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"
#include "sync/vote/acceptor.h"
#include "sync/vote/evidence.h"

/* Wait for each rank skipped without a proof, and after a distrusted proposer's ballot. */
#define SKIP_US (SECOND_US / 4)
#define SIGNATURE_US (SECOND_US / 10) /* wait for a slow CONTRIB to bring the signature */

void tw_proposer_write(struct tw_node *node) {
    struct round *round = &node->round;
    tw_proposal_draft(node);
    round->left_out |= tw_veto_find(node, &round->proposal);
    tw_proposal_write(node);
}

/* Fills every field, because the message slot still has the bytes of an earlier message. */
static void write_propose(const struct round *round, struct tw_msg_propose *propose) {
    const bool is_free = round->best_lock.ballot == 0;
    propose->ballot = round->ballot;
    propose->record = round->proposal;
    propose->promises = round->promises;
    propose->lock = round->best_lock;
    propose->joins_count = is_free ? round->joins_count : 0;
    memcpy(propose->joins, round->joins, sizeof(propose->joins));
    memset(propose->results, 0, sizeof(propose->results));
    for (uint32_t k = 0; k < round->proposal.parts_count && is_free; k++) {
        if (round->proposal.parts[k].bytes > 0)
            memcpy(propose->results[k], round->results[k].announced.signature, TW_SIGNATURE_BYTES);
    }
}

static void write_lock(const struct tw_node *node, struct tw_msg_lock *lock) {
    *lock = (struct tw_msg_lock){.lineage = node->at.lineage,
                                 .round = node->at.rounds,
                                 .digest = tw_record_digest(&node->round.proposal),
                                 .proof = node->round.lock};
}

static void start_proposing(struct tw_node *node) {
    struct round *round = &node->round;
    TW_ASSERT(round->phase == PROPOSER_PREPARING || round->phase == PROPOSER_STORING);
    round->phase = PROPOSER_PROPOSING;
    round->phase_us = node->now_us;
    round->accepted_by = 0;
    if (round->best_lock.ballot != 0 && !TW_IS_MUTANT(node, TW_MUTANT_OTHER_VALUE)) {
        round->proposal = round->best;
    } else {
        tw_proposer_write(node);
    }
    struct tw_msg_propose propose;
    write_propose(round, &propose);
    (void)tw_acceptor_propose(node, NO_PEER, &propose);
}

/* Proposes once enough members have promised. */
static void consider_promises(struct tw_node *node) {
    struct round *round = &node->round;
    if (round->phase != PROPOSER_PREPARING ||
        tw_bits(round->promised_by) < tw_membership_votes_needed(node))
        return;
    start_proposing(node);
}

static void start_ballot(struct tw_node *node) {
    struct round *round = &node->round;
    TW_ASSERT(round->phase == PROPOSER_IDLE);
    TW_ASSERT(round->self_rank >= 0);
    tw_acceptor_turn(node);
    const uint64_t attempts = node->vote.promised / TW_MEMBERS_MAX;
    const uint64_t rank = (uint64_t)round->self_rank;
    round->ballot =
        rank == 0 && node->vote.promised == 0 ? 1 : (attempts + 1) * TW_MEMBERS_MAX + rank;
    TW_ASSERT(round->ballot > node->vote.promised);
    node->vote.promised = round->ballot;
    tw_lease_take(node, (uint32_t)round->self_idx, round->ballot);
    round->ballot_seq = tw_acceptor_store(node);
    round->phase = PROPOSER_STORING;
    round->phase_us = node->now_us;
    round->promised_by = round->nacked_by = 0;
    round->promises = (struct tw_promises){.voters = 0};
    round->best_lock = (struct tw_proof){.ballot = 0};
    round->attempt++;
}

/* Returns the reason to drop an answer to the ballot of another round than the open one. */
static enum tw_drop drop_of_round(const struct tw_node *node, const struct tw_id *lineage,
                                  uint64_t round) {
    if (!tw_id_equal(lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (round == node->at.rounds) return TW_DROP_NONE;
    return round < node->at.rounds ? TW_DROP_OLD_ROUND : TW_DROP_ROUND_TO_COME;
}

enum tw_drop tw_proposer_promise(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_promise *promise) {
    struct round *round = &node->round;
    const enum tw_drop old = drop_of_round(node, &promise->lineage, promise->round);
    if (old != TW_DROP_NONE) return old;
    const int idx = tw_membership_voter(node, peer);
    if (idx < 0) return TW_DROP_NO_VOTE;
    if (round->phase != PROPOSER_PREPARING || promise->ballot != round->ballot)
        return TW_DROP_NO_BALLOT;
    tw_evidence_promise(node, (uint32_t)idx, promise, false);
    if ((round->promised_by >> idx & 1) != 0) return TW_DROP_TWICE;
    if (promise->lock.ballot != 0 && !tw_record_is_sound(node, &promise->locked))
        return TW_DROP_IMPOSSIBLE;
    if (!tw_vote_proof_is_promise(node, (uint32_t)idx, promise)) {
        if (peer != NO_PEER) tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    tw_evidence_promise(node, (uint32_t)idx, promise, true);
    round->promised_by |= UINT64_C(1) << idx;
    round->promises.voters = round->promised_by;
    TW_ASSERT((round->promised_by & ~node->voters) == 0);
    round->promises.lock_ballots[idx] = promise->lock.ballot;
    memcpy(round->promises.signatures[idx], promise->signature, TW_SIGNATURE_BYTES);
    if (promise->lock.ballot > round->best_lock.ballot) {
        round->best_lock = promise->lock;
        round->best = promise->locked;
    }
    consider_promises(node);
    return TW_DROP_NONE;
}

/* Sends the lock to all members, this node included, once enough of them voted in phase 1. */
static void start_locking(struct tw_node *node) {
    struct round *round = &node->round;
    TW_ASSERT(round->phase == PROPOSER_PROPOSING);
    TW_ASSERT(tw_bits(round->proof.voters) >= tw_membership_votes_needed(node));
    round->phase = PROPOSER_LOCKING;
    round->phase_us = node->now_us;
    round->lock = round->proof;
    round->accepted_by = 0;
    round->proof = (struct tw_proof){.ballot = 0};
    struct tw_msg_lock lock;
    write_lock(node, &lock);
    (void)tw_acceptor_lock(node, NO_PEER, &lock);
}

static void send_commit(struct tw_node *node) {
    struct tw_message *message = tw_act_message(node, TW_MSG_COMMIT);
    TW_ASSERT(node->round.phase == PROPOSER_LOCKING);
    if (message == NULL) return;
    message->u.commit.record = node->round.proposal;
    message->u.commit.proof = node->round.proof;
    tw_peers_broadcast(node, message);
}

enum tw_drop tw_proposer_accept(struct tw_node *node, uint16_t peer,
                                const struct tw_msg_accept *accept, bool *is_chosen) {
    struct round *round = &node->round;
    *is_chosen = false;
    const enum tw_drop old = drop_of_round(node, &accept->lineage, accept->round);
    if (old != TW_DROP_NONE) return old;
    const enum proposer_phase phase =
        accept->phase == TW_VOTE_COMMIT ? PROPOSER_LOCKING : PROPOSER_PROPOSING;
    const int idx = tw_membership_voter(node, peer);
    if (idx < 0) return TW_DROP_NO_VOTE;
    if (accept->ballot != round->ballot) return TW_DROP_NO_BALLOT;
    tw_evidence_vote(node, (uint32_t)idx, accept, false);
    if (round->phase != phase) return TW_DROP_NO_BALLOT;
    const struct tw_id digest = tw_record_digest(&round->proposal);
    if (!tw_id_equal(&digest, &accept->digest)) return TW_DROP_OTHER_HISTORY;
    if (!tw_vote_proof_is_vote(node, (uint32_t)idx, accept)) {
        if (peer != NO_PEER) tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    tw_evidence_vote(node, (uint32_t)idx, accept, true);
    round->accepted_by |= UINT64_C(1) << idx;
    memcpy(round->proof.signatures[idx], accept->signature, TW_SIGNATURE_BYTES);
    if (tw_bits(round->accepted_by) < tw_membership_votes_needed(node)) return TW_DROP_NONE;
    round->proof.ballot = round->ballot;
    round->proof.voters = round->accepted_by;
    TW_ASSERT((round->accepted_by & ~node->voters) == 0);
    if (phase == PROPOSER_PROPOSING) {
        start_locking(node);
        return TW_DROP_NONE;
    }
    send_commit(node);
    *is_chosen = true;
    return TW_DROP_NONE;
}

static void back_off(struct tw_node *node) {
    struct round *round = &node->round;
    round->phase = PROPOSER_IDLE;
    const uint64_t wait_us = BALLOT_TIMEOUT_US << (round->attempt < 5 ? round->attempt : 5);
    round->retry_us = node->now_us + wait_us / 2 + tw_rng_below(&node->rng, wait_us);
}

/* Number of members that have promised or accepted our ballot, or still may. */
static uint32_t count_supporters(const struct tw_node *node) {
    const struct round *round = &node->round;
    const uint64_t yes =
        round->phase == PROPOSER_PREPARING ? round->promised_by : round->accepted_by;
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((node->voters >> i & 1) == 0) continue;
        count += (yes >> i & 1) != 0 ||
                 ((round->nacked_by >> i & 1) == 0 && tw_membership_is_seated(node, i));
    }
    return count;
}

static void consider_refusals(struct tw_node *node) {
    struct round *round = &node->round;
    if (round->phase != PROPOSER_PROPOSING || !tw_veto_is_ballot_lost(node)) return;
    const uint64_t next = round->ballot + TW_MEMBERS_MAX;
    /* The record of a lock must be proposed unchanged. A proposal that we would refuse ourselves as
     * empty waits until others have tried. */
    if (round->best_lock.ballot != 0 || tw_proposal_is_empty(node, &round->proposal, next)) {
        back_off(node);
        return;
    }
    round->phase = PROPOSER_IDLE;
    round->retry_us = node->now_us;
}

enum tw_drop tw_proposer_nack(struct tw_node *node, uint16_t peer, const struct tw_msg_nack *nack) {
    struct round *round = &node->round;
    const enum tw_drop old = drop_of_round(node, &nack->lineage, nack->round);
    if (old != TW_DROP_NONE) return old;
    const int idx = tw_membership_voter(node, peer);
    if (idx < 0) return TW_DROP_NO_VOTE;
    if (round->phase == PROPOSER_IDLE) return TW_DROP_NO_BALLOT;
    const bool is_refusal = nack->promised == round->ballot && nack->refused_parts != 0 &&
                            round->phase == PROPOSER_PROPOSING;
    if (is_refusal) {
        tw_veto_refused(node, (uint32_t)idx, nack->refused_parts);
        consider_refusals(node);
    }
    if (nack->promised <= round->ballot) return is_refusal ? TW_DROP_NONE : TW_DROP_NO_BALLOT;
    if (nack->promised - round->ballot > BALLOT_LEAP_MAX) return TW_DROP_IMPOSSIBLE;
    /* A single NACK may be a lie. NACKs count once too few other members are left for a majority.
     */
    round->nacked_by |= UINT64_C(1) << idx;
    if (count_supporters(node) >= tw_membership_votes_needed(node)) return TW_DROP_NONE;
    /* Another ballot is ahead: wait for it, then try a higher one. Being overtaken is no failed
     * attempt. */
    tw_acceptor_turn(node);
    if (node->vote.promised < nack->promised) node->vote.promised = nack->promised;
    if (round->attempt > 0) round->attempt--;
    back_off(node);
    const uint32_t rank = tw_ballot_rank(nack->promised);
    if (rank < tw_bits(node->voters) && tw_lease_is_distrusted(node, round->rank[rank]))
        round->retry_us = node->now_us + SKIP_US; /* do not wait for that ballot's proposer */
    return TW_DROP_NONE;
}

static bool is_awaited(struct tw_node *node, uint32_t k) {
    if (!tw_round_is_unannounced(node, k)) return false;
    const uint64_t due_us = tw_result_due_us(node, k);
    if (node->now_us < due_us && due_us != UINT64_MAX) tw_act_wake(node, due_us);
    return node->now_us < due_us;
}

/* True if no missing result is worth waiting for. */
static bool has_all_results(struct tw_node *node) {
    const struct round *round = &node->round;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        if (is_awaited(node, k) && tw_membership_is_live(node, round->owners[k])) return false;
    }
    return true;
}

/* True if all results are announced, and no proposal has arrived. A linked proposer with a full
 * disk, or one that stopped after PREPARE, must not delay other proposers for all of
 * pace.patience_us. */
static bool is_proposer_mute(struct tw_node *node) {
    struct round *round = &node->round;
    const bool has_voted = node->vote.round == node->at.rounds && node->vote.has_accepted != 0;
    if (tw_acceptor_has_offer(node)) return false;
    if (has_voted && !tw_veto_is_passed(node, tw_ballot_rank(node->vote.accepted_ballot)))
        return false;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        if (is_awaited(node, k)) return false;
    }
    if (round->results_us == 0) round->results_us = node->now_us;
    return true;
}

/* True for a stalled or struck proposer, which is not waited for. With fewer voters than judges_min
 * (veto.c), a strike without proof does not count: the struck node would go on proposing, and two
 * proposers at once delay each other. */
static bool is_proposer_skipped(const struct tw_node *node, uint32_t member) {
    const struct tw_id *const id = &node->roster.members[member].id;
    if (tw_lease_is_distrusted(node, member)) return true;
    return tw_bits(node->voters) < node->cfg.judges_min ? tw_conduct_is_proven_false(node, id)
                                                        : tw_conduct_is_struck(node, id);
}

/* True if enough members are linked to decide a round. */
static bool has_voters(const struct tw_node *node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++)
        count += (node->voters >> i & 1) != 0 && tw_membership_is_seated(node, i);
    return count >= tw_membership_votes_needed(node);
}

static void ask_signatures(struct tw_node *node, uint32_t k, uint16_t peer) {
    struct tw_message *message = tw_act_message(node, TW_MSG_NACK);
    TW_ASSERT(k < node->round.owners_count);
    if (message == NULL) return;
    message->u.nack = (struct tw_msg_nack){
        .lineage = node->at.lineage, .round = node->at.rounds, .refused_parts = 1u << k};
    tw_act_send(node, message, peer);
    node->round.results[k].asked_us = node->now_us;
}

/* Asks the owners, once in a round, for contributors' signatures that this node lacks. A
 * contributor that lies may send its CONTRIB to some members only, or different ones to different
 * members. Returns true while signatures may still come. A stalled owner is asked, but its answer
 * is not waited for. */
static bool await_signatures(struct tw_node *node) {
    const struct round *round = &node->round;
    bool is_waiting = false;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        const struct tw_id *const owner = &node->roster.members[round->owners[k]].id;
        const uint16_t peer = tw_peers_find(node, owner);
        if (peer == NO_PEER || tw_result_is_provable(node, k)) continue;
        uint64_t end_us = round->results[k].announced_us + SIGNATURE_US;
        if (round->results[k].asked_us == 0 && node->now_us >= end_us)
            ask_signatures(node, k, peer);
        if (round->results[k].asked_us != 0 &&
            !tw_conduct_is_stalled(node, TW_PENALTY_STALL_OWNER, owner))
            end_us = round->results[k].asked_us + RETRY_US;
        if (node->now_us < end_us) tw_act_wake(node, end_us);
        is_waiting |= node->now_us < end_us;
    }
    return is_waiting;
}

/* True if no lower rank is worth waiting for. Members differ in the ranks that they skip without a
 * proof, so each skipped rank costs a short wait. Otherwise all would begin a ballot at once, and
 * end each other's. */
static bool is_my_turn(struct tw_node *node) {
    struct round *round = &node->round;
    uint64_t skipped = 0;
    for (int rank = 0; rank < round->self_rank; rank++) {
        if (!tw_membership_is_live(node, round->rank[rank]) ||
            !tw_reach_has_majority(node, round->rank[rank]) ||
            tw_veto_is_passed(node, (uint32_t)rank))
            continue;
        if (!is_proposer_skipped(node, round->rank[rank])) return false;
        skipped += !tw_conduct_is_proven_false(node, &node->roster.members[round->rank[rank]].id);
    }
    if (await_signatures(node) || !has_all_results(node)) return false;
    if (round->turn_us == 0) round->turn_us = node->now_us;
    const uint64_t due_us = round->turn_us + skipped * SKIP_US;
    if (node->now_us < due_us) tw_act_wake(node, due_us);
    return node->now_us >= due_us;
}

/* True if this node should propose now. */
static bool should_propose(struct tw_node *node) {
    const struct round *round = &node->round;
    if (node->worker.is_solo_pending) return false;
    if (node->roster.count == 1) {
        /* A dead worker may have done a solo round: no other round may be decided in its place. */
        if (!node->worker.is_up) return false;
        if (tw_membership_is_asked(node)) return true;
        /* Only this node can finish a record that it accepted before a restart. */
        return node->vote.has_accepted != 0 && node->vote.round == node->at.rounds;
    }
    if (round->active_us == 0) return false;
    if (tw_progress_closes(node) && !tw_progress_is_current(node)) return false;
    if (node->now_us < round->retry_us) {
        tw_act_wake(node, round->retry_us);
        return false;
    }
    if (tw_lease_is_others(node, (uint32_t)round->self_idx)) return false;
    if (!has_voters(node)) return false;
    if (is_my_turn(node)) return true;
    const uint64_t step_us = (uint64_t)round->self_rank * TAKEOVER_STEP_US;
    uint64_t late_us = round->active_us + 2 * node->pace.patience_us + step_us;
    if (is_proposer_mute(node) && round->results_us + step_us < late_us)
        late_us = round->results_us + step_us;
    const bool is_near = node->now_us + TAKEOVER_STEP_US >= late_us;
    if (is_near && await_signatures(node)) return false;
    if (node->now_us < late_us) tw_act_wake(node, late_us);
    return node->now_us >= late_us;
}

/* Returns the message of the present phase, or NULL if this event has no room for it. */
static struct tw_message *phase_message(struct tw_node *node) {
    const struct round *round = &node->round;
    const enum tw_message_kind kind = round->phase == PROPOSER_PREPARING ? TW_MSG_PREPARE
                                      : round->phase == PROPOSER_LOCKING ? TW_MSG_LOCK
                                                                         : TW_MSG_PROPOSE;
    struct tw_message *message = tw_act_message(node, kind);
    if (message == NULL) return NULL;
    if (kind == TW_MSG_LOCK) {
        write_lock(node, &message->u.lock);
    } else if (kind == TW_MSG_PROPOSE) {
        write_propose(round, &message->u.propose);
    } else {
        message->u.prepare = (struct tw_msg_prepare){
            .lineage = node->at.lineage, .round = node->at.rounds, .ballot = round->ballot};
    }
    return message;
}

static void send_phase(struct tw_node *node) {
    const struct round *round = &node->round;
    struct tw_message *message = NULL;
    for (uint16_t i = 0; i < node->links_end; i++) {
        struct link *link = &node->links[i];
        if (!tw_peers_is_at_round(node, i) || tw_membership_voter(node, i) < 0) continue;
        uint64_t *announced = round->phase == PROPOSER_PREPARING ? &link->sent_prepare
                              : round->phase == PROPOSER_LOCKING ? &link->sent_lock
                                                                 : &link->sent_propose;
        if (*announced == round->ballot) continue;
        if (message == NULL) message = phase_message(node);
        if (message == NULL) return;
        tw_act_send(node, message, i);
        *announced = round->ballot;
    }
}

/* Counts our own promise, which is on disk, unless a higher ballot was promised meanwhile. */
static void promise_self(struct tw_node *node) {
    if (node->vote.promised != node->round.ballot) return;
    struct tw_msg_promise own;
    tw_acceptor_write_promise(node, node->round.ballot, &own);
    tw_proposer_promise(node, NO_PEER, &own);
}

/* True if this node, as an acceptor, promised a higher ballot before it could vote for its own. */
static bool is_overtaken(const struct tw_node *node) {
    const struct round *round = &node->round;
    return round->phase == PROPOSER_PROPOSING && node->vote.promised > round->ballot &&
           node->vote.accepted_ballot < round->ballot;
}

/* True if this node cannot accept its own proposal: a result in it is lost, late or refused, or its
 * owner has been gone for RETRY_US. Another ballot leaves that result out. */
static bool is_hopeless(struct tw_node *node) {
    const struct round *round = &node->round;
    if (is_overtaken(node)) return true;
    if (round->phase != PROPOSER_PROPOSING || round->best_lock.ballot != 0) return false;
    if (tw_veto_find(node, &round->proposal) != 0) return true;
    for (uint32_t k = 0; k < round->proposal.parts_count; k++) {
        const struct tw_part *part = &round->proposal.parts[k];
        if (part->bytes == 0) continue;
        const struct payload *payload = tw_payload_find(node, &part->result);
        if (payload != NULL && tw_payload_is_lost(payload)) return true;
        if (payload != NULL && payload->state == PAYLOAD_HELD) continue;
        if (tw_round_is_late(node, k))
            return true; /* every node that holds the result had time to send it */
        if (tw_membership_is_live(node, part->owner_idx)) continue;
        const uint64_t dead_us = node->seats[part->owner_idx].seen_us + RETRY_US;
        if (node->now_us >= dead_us) return true;
        tw_act_wake(node, dead_us);
    }
    return false;
}

static void advance_proposer(struct tw_node *node) {
    struct round *round = &node->round;
    if (is_hopeless(node)) round->phase = PROPOSER_IDLE;
    consider_refusals(node);
    if (round->phase == PROPOSER_IDLE && should_propose(node)) start_ballot(node);
    if (round->phase == PROPOSER_STORING && node->acceptor.stored_seq >= round->ballot_seq) {
        if (round->ballot == 1) {
            start_proposing(node);
        } else {
            round->phase = PROPOSER_PREPARING;
            promise_self(node);
        }
    }
    consider_promises(node);
}

/* Sends the messages of the present phase, and ends the phase if it takes too long. */
static void announce_phase(struct tw_node *node) {
    struct round *round = &node->round;
    if (round->phase >= PROPOSER_PREPARING) send_phase(node);
    if (round->phase == PROPOSER_IDLE) return;
    const uint64_t timeout_us = (BALLOT_TIMEOUT_US << (round->attempt < 8 ? round->attempt : 8)) +
                                (round->phase == PROPOSER_PROPOSING ? node->pace.patience_us : 0);
    if (node->now_us < round->phase_us + timeout_us) {
        tw_act_wake(node, round->phase_us + timeout_us);
        return;
    }
    round->phase = PROPOSER_IDLE;
    round->retry_us = node->now_us + tw_rng_below(&node->rng, timeout_us);
    tw_act_wake(node, round->retry_us);
}

/* ---- the vote as a whole --------------------------------------------------------------------- */

bool tw_vote_reply(struct tw_node *node) {
    struct tw_msg_accept own;
    while (tw_acceptor_reply(node, &own)) {
        bool is_chosen = false;
        (void)tw_proposer_accept(node, NO_PEER, &own, &is_chosen);
        if (is_chosen) return true;
    }
    return false;
}

void tw_vote_advance(struct tw_node *node) {
    if (!tw_membership_takes_part(node)) return;
    tw_acceptor_keep_result(node);
    if (!tw_membership_is_voter(node)) return;
    tw_lease_advance(node);
    tw_acceptor_promise(node);
    advance_proposer(node);
    tw_acceptor_consider(node);
    announce_phase(node);
}
