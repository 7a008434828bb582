/* acceptor.c - the acceptor of the open round: the ballot lease, promises, votes, and their way to
 * disk. */
#include "sync/vote/acceptor.h"

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
#include "sync/vote/evidence.h"

/* ==== the ballot lease ======================================================================== */

/* The ballot lease: for a time, an acceptor promises only one proposer's ballots.
 *
 * A promise for one ballot ends all lower ballots. Without a lease, a member that sends PREPARE
 * whenever another one proposes could end every ballot for ever.
 *
 *   L1  The proposer whose ballot was promised holds the lease for LEASE_US, and for LEASE_US more
 *       once it has proposed. Meanwhile no honest proposer begins a ballot, and a proposal without
 *       a promise is ignored.
 *   L2  The lease ends early when its holder is gone, or is passed over for a refused proposal
 *       (check/veto.c), or when the ballot is our own and we have given it up.
 *   L3  A higher ballot is promised nevertheless: its proposer may have to propose a locked record
 *       again. But a proposer gets a stall (core/conduct.c) if it holds the lease and proposes
 *       nothing; if it takes the lease from another and leaves the round open; if it is silent in
 *       its turn; or if it is passed over because it made no use of its votes, or because its
 *       proposal left out most of the round (check/veto.c).
 *   L4  A proposer that has stalled before, or was proven false, is not waited for: its lease
 *       delays no trusted proposer. Its PREPAREs wait for LEASE_US and for the present holder, and
 *       so do the proposals of a proposer that was proven false. The wait doubles with each
 *       promise to such a proposer in a round, so that all of them together end few ballots. After
 *       the wait they are answered: otherwise two nodes that distrust each other would never
 *       decide a round.
 *   L5  No PREPARE is promised before enough results are announced (tw_proposal_is_early).
 *
 * To promise late, or never, is always safe. */

/* Time for a round trip, votes written to slow disks, and a lock. */
#define LEASE_US (5 * SECOND_US)
#define BLAME_US (3 * SECOND_US) /* time within which a holder can be expected to propose */

enum { DOUBLINGS_MAX = 3 };

static uint64_t stalled_us(const struct tw_node *node, uint32_t member) {
    return tw_conduct_stall_left_us(node, TW_PENALTY_STALL_PROPOSER,
                                    &node->roster.members[member].id);
}

/* True for every member that was proven false, and for the stalled members with the longest
 * penalties: at most as many as may lie, or (n - 1) / 2 of n voters that are too few for a liar. If
 * more members stalled, the cause is the network, or proposers that did not wait for each other. If
 * nobody were waited for then, proposers would go on colliding. */
bool tw_lease_is_distrusted(const struct tw_node *node, uint32_t member) {
    const uint64_t left_us = stalled_us(node, member);
    const uint32_t count = tw_bits(node->voters), liars = tw_membership_liars_max(node);
    const uint32_t most = liars > 0 ? liars : (count - 1) / 2;
    uint32_t worse = 0;
    TW_ASSERT(member < node->roster.count);
    if (tw_conduct_is_proven_false(node, &node->roster.members[member].id)) return true;
    if (left_us == 0) return false;
    for (uint32_t i = 0; i < node->roster.count; i++)
        worse += (node->voters >> i & 1) != 0 && stalled_us(node, i) > left_us;
    return worse < most;
}

/* True if the proposer of this rank was passed over, because its proposal left out most of the
 * round. */
static bool is_empty_proposer(struct tw_node *node, uint32_t rank) {
    return (node->round.empty_ranks >> rank & 1) != 0 && tw_veto_is_passed(node, rank);
}

/* True if the lease has a holder (L1 and L2). */
static bool is_held(struct tw_node *node) {
    const struct lease *lease = &node->lease;
    if (!lease->is_taken || node->now_us >= lease->until_us) return false;
    if ((int)lease->member == node->round.self_idx) return node->round.phase != PROPOSER_IDLE;
    return tw_membership_is_live(node, lease->member) &&
           !tw_veto_is_passed(node, tw_ballot_rank(lease->ballot));
}

bool tw_lease_is_others(struct tw_node *node, uint32_t member) {
    if (node->lease.member == member || !is_held(node)) return false;
    if (tw_lease_is_distrusted(node, node->lease.member) && !tw_lease_is_distrusted(node, member))
        return false;
    tw_act_wake(node, node->lease.until_us);
    return true;
}

/* True if all results were announced so long ago that other ranks may propose. */
static bool is_late(const struct tw_node *node) {
    const uint64_t results_us = node->round.results_us;
    return results_us != 0 && node->now_us >= results_us + TAKEOVER_STEP_US;
}

/* Notes that `member` sent PREPARE for a ballot above all that we have promised. */
static void ask_lease(struct tw_node *node, uint32_t member, uint64_t ballot) {
    TW_ASSERT(member < node->roster.count);
    TW_ASSERT(ballot > 0);
    if (!is_late(node)) node->lease.active |= UINT64_C(1) << member;
    node->lease.asked[member].ballot = ballot;
    node->lease.asked[member].asked_us = node->now_us;
}

/* Time that a distrusted proposer waits (L4). */
static uint64_t distrust_us(const struct tw_node *node) {
    return LEASE_US << at_most(node->lease.distrusted_count, DOUBLINGS_MAX);
}

bool tw_lease_must_wait(struct tw_node *node, uint32_t member, uint64_t since_us) {
    const uint64_t due_us = since_us + distrust_us(node);
    if (node->now_us < due_us) tw_act_wake(node, due_us);
    return node->now_us < due_us || tw_lease_is_others(node, member);
}

/* Removes and returns the PREPARE to promise now. Returns false if there is none. */
static bool next_prepare(struct tw_node *node, uint32_t *member, uint64_t *ballot) {
    struct lease *lease = &node->lease;
    uint32_t first = TW_MEMBERS_MAX;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (lease->asked[i].ballot == 0) continue;
        const uint64_t asked_us = lease->asked[i].asked_us;
        /* by now, the proposer has given this ballot up */
        if (node->now_us > asked_us + distrust_us(node) + LEASE_US) {
            lease->asked[i].ballot = 0;
            continue;
        }
        if (tw_lease_is_distrusted(node, i) && tw_lease_must_wait(node, i, asked_us)) continue;
        if (tw_proposal_is_early(node, NULL)) continue;
        if (first == TW_MEMBERS_MAX || asked_us < lease->asked[first].asked_us) first = i;
    }
    if (first == TW_MEMBERS_MAX) return false;
    *member = first;
    *ballot = lease->asked[first].ballot;
    lease->asked[first].ballot = 0;
    return true;
}

/* Gives a stall to a live holder that made no use of the lease (L3). */
static void blame_holder(struct tw_node *node) {
    const struct lease *lease = &node->lease;
    if (!lease->is_taken || (lease->has_proposed && !lease->has_robbed)) return;
    if ((int)lease->member == node->round.self_idx) return;
    if (!tw_membership_is_live(node, lease->member)) return;
    tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[lease->member].id);
}

void tw_lease_take(struct tw_node *node, uint32_t member, uint64_t ballot) {
    struct lease *lease = &node->lease;
    const bool is_again = lease->is_taken && lease->member == member;
    TW_ASSERT(member < node->roster.count);
    if (!is_again && node->now_us >= lease->began_us + BLAME_US) blame_holder(node);
    if (!is_again) lease->has_robbed = is_held(node);
    if (!is_again || lease->has_proposed) lease->until_us = node->now_us + LEASE_US;
    if (!is_again) lease->began_us = node->now_us;
    lease->until_us = at_most(lease->until_us, lease->began_us + 2 * LEASE_US);
    TW_ASSERT(lease->began_us <= node->now_us);
    lease->is_taken = true;
    lease->has_proposed = false;
    lease->distrusted_count += !is_again && tw_lease_is_distrusted(node, member);
    lease->member = member;
    lease->ballot = ballot;
}

/* Notes that `member` proposed a sound record. */
static void note_proposed(struct tw_node *node, uint32_t member, uint64_t ballot) {
    struct lease *lease = &node->lease;
    TW_ASSERT(member < node->roster.count);
    lease->active |= UINT64_C(1) << member;
    if (!lease->is_taken || lease->member != member || lease->ballot != ballot)
        tw_lease_take(node, member, ballot);
    if (lease->has_proposed) return;
    lease->has_proposed = true;
    lease->until_us = at_most(node->now_us + LEASE_US, lease->began_us + 2 * LEASE_US);
}

/* Passes over a proposer that got our vote and did not use it in the time that a round usually
 * takes. If the proposer is live, it also gets a stall (L3). */
static void pass_silent(struct tw_node *node) {
    struct round *round = &node->round;
    if (round->voted_us == 0) return;
    const uint64_t due_us = round->voted_us + BALLOT_TIMEOUT_US + node->pace.patience_us / 4;
    if (node->now_us < due_us) {
        tw_act_wake(node, due_us);
        return;
    }
    const uint64_t ballot = node->vote.accepted_ballot;
    const uint32_t member = round->rank[tw_ballot_rank(ballot)];
    round->voted_us = 0;
    tw_veto_pass(node, ballot);
    if (tw_membership_is_live(node, member))
        tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[member].id);
}

void tw_lease_advance(struct tw_node *node) {
    struct lease *lease = &node->lease;
    pass_silent(node);
    if (!lease->is_taken) return;
    if (node->now_us < lease->until_us) {
        tw_act_wake(node, lease->until_us);
        return;
    }
    blame_holder(node);
    lease->is_taken = false;
}

void tw_lease_note_turns(struct tw_node *node) {
    const struct round *round = &node->round;
    for (uint32_t rank = 0; rank < tw_bits(node->voters); rank++) {
        const uint32_t member = round->rank[rank];
        if (is_empty_proposer(node, rank) && tw_membership_is_live(node, member))
            tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[member].id);
    }
    if (!is_late(node)) return;
    for (uint32_t rank = 0; rank < tw_bits(node->voters); rank++) {
        const uint32_t member = round->rank[rank];
        if ((int)member == round->self_idx || (node->lease.active >> member & 1) != 0) return;
        if (!tw_membership_is_live(node, member) || tw_lease_is_distrusted(node, member)) continue;
        if (!tw_reach_has_majority(node, member)) continue;
        tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[member].id);
        return;
    }
}

/* ==== the acceptor ============================================================================ */

/* The acceptor of the open round. proposer.c is the other side.
 *
 * A ballot has two phases, as in PBFT, because members may lie. State per round: promised ballot,
 * accepted (ballot, record), lock. Each change is on disk before it is sent.
 *
 *   phase 1  A member accepts a record once it holds and has verified every result in it. Enough
 *            members can thus always serve a committed round. check/veto.c has the refusals.
 *   lock     Enough votes of phase 1. No other record gets as many at this ballot.
 *   phase 2  A member that has the lock votes to commit. Enough such votes decide the round.
 *
 * A ballot above the lowest begins with signed promises, each with the newest lock of its member.
 * The proposal must be the record of the newest of these locks. Without a lock it may be any
 * record.
 *
 * Why only one record is decided: let record v be decided at ballot b. Of its voters in phase 2,
 * all but f are honest and have the lock. Enough promises for a ballot above b include one of these
 * members. That member promised after it had voted, because it votes for no ballot below its
 * promise. So it reports a lock of ballot b or later. By induction, all locks from ballot b on are
 * for v, and so is the proposal.
 *
 * A member that accepts another record at a later ballot drops its lock. Enough members promised
 * that ballot without this lock, or with a newer one. So the record of the dropped lock was not
 * decided and cannot be. */

/* ---- durable ballots ------------------------------------------------------------------------- */

uint64_t tw_acceptor_store(struct tw_node *node) {
    TW_ASSERT(node->vote.lock.ballot == 0 || node->vote.has_accepted != 0);
    struct tw_action *action = tw_act_body(node, TW_ACT_STORE_VOTE);
    action->u.store.seq = ++node->acceptor.store_seq;
    action->u.store.vote = &node->vote;
    return node->acceptor.store_seq;
}

void tw_acceptor_reset(struct tw_node *node) {
    node->vote.lineage = node->at.lineage;
    node->vote.nonce = node->at.nonce;
    node->vote.round = 0;
    node->vote.promised = 0;
    node->vote.accepted_ballot = 0;
    node->vote.has_announced = 0;
    node->vote.has_accepted = 0;
    node->vote.lock = (struct tw_proof){.ballot = 0};
    node->acceptor.vote_floor = 0;
    node->acceptor.replies_count = 0;
    node->acceptor.nonce_seq = tw_acceptor_store(node);
}

void tw_acceptor_turn(struct tw_node *node) {
    if (node->vote.round == node->at.rounds) return;
    node->vote.round = node->at.rounds;
    node->vote.promised = 0;
    node->vote.accepted_ballot = 0;
    node->vote.has_announced = 0;
    node->vote.has_accepted = 0;
    node->vote.lock = (struct tw_proof){.ballot = 0};
    node->acceptor.replies_count = 0;
}

/* True if the vote of STORE_VOTE number *seq is on disk. After a failed write, stores the vote
 * again and updates *seq. */
static bool is_stored(struct tw_node *node, uint64_t *seq) {
    if (node->acceptor.stored_seq >= *seq) return true;
    if (node->acceptor.store_failed_us == 0) return false; /* on its way */
    if (node->now_us < node->acceptor.store_failed_us + RETRY_US) {
        tw_act_wake(node, node->acceptor.store_failed_us + RETRY_US);
        return false;
    }
    node->acceptor.store_failed_us = 0;
    *seq = tw_acceptor_store(node);
    return false;
}

bool tw_acceptor_has_nonce(struct tw_node *node) {
    return is_stored(node, &node->acceptor.nonce_seq);
}

void tw_acceptor_keep_result(struct tw_node *node) {
    struct round *round = &node->round;
    if (round->self_part < 0 || !round->is_reduced || round->results[round->self_part].has) return;
    if (round->result_seq == 0) {
        tw_acceptor_turn(node);
        node->vote.has_announced = 1;
        round->result_seq = tw_acceptor_store(node);
    } else {
        (void)is_stored(node, &round->result_seq);
    }
}

static void reply_later(struct tw_node *node, enum reply_kind kind, uint16_t peer,
                        uint64_t ballot) {
    const uint64_t seq = tw_acceptor_store(node);
    /* If the table is full, the oldest reply is dropped, and its proposer asks again. */
    if (node->acceptor.replies_count == REPLIES_MAX) {
        for (uint32_t i = 1; i < node->acceptor.replies_count; i++)
            node->acceptor.replies[i - 1] = node->acceptor.replies[i];
        node->acceptor.replies_count--;
    }
    TW_ASSERT(node->acceptor.replies_count < REPLIES_MAX);
    struct reply *reply = &node->acceptor.replies[node->acceptor.replies_count++];
    *reply = (struct reply){.kind = kind, .to_self = peer == NO_PEER, .ballot = ballot, .seq = seq};
    if (peer != NO_PEER) reply->to = node->links[peer].id;
    if (TW_IS_MUTANT(node, TW_MUTANT_LOST_ACK)) node->acceptor.stored_seq = seq;
}

void tw_acceptor_write_promise(const struct tw_node *node, uint64_t ballot,
                               struct tw_msg_promise *promise) {
    const struct tw_vote *vote = &node->vote;
    *promise =
        (struct tw_msg_promise){.lineage = vote->lineage, .round = vote->round, .ballot = ballot};
    if (vote->lock.ballot != 0 && !TW_IS_MUTANT(node, TW_MUTANT_LOCK_HIDDEN)) {
        promise->lock = vote->lock;
        promise->locked = vote->accepted;
    }
    tw_vote_proof_sign_promise(node, promise);
}

static void send_promise(struct tw_node *node, const struct reply *reply) {
    const uint16_t peer = tw_peers_find(node, &reply->to);
    struct tw_message *message = peer != NO_PEER ? tw_act_message(node, TW_MSG_PROMISE) : NULL;
    if (message == NULL) return;
    tw_acceptor_write_promise(node, reply->ballot, &message->u.promise);
    tw_act_send(node, message, peer);
}

static void send_accept(struct tw_node *node, const struct reply *reply,
                        const struct tw_msg_accept *accept) {
    const uint16_t peer = tw_peers_find(node, &reply->to);
    struct tw_message *message = peer != NO_PEER ? tw_act_message(node, TW_MSG_ACCEPT) : NULL;
    if (message == NULL) return;
    message->u.accept = *accept;
    tw_act_send(node, message, peer);
}

void tw_acceptor_stored(struct tw_node *node, uint64_t seq, bool ok) {
    if (!ok) { /* the content of the disk is unknown: send nothing, store again later */
        node->acceptor.replies_count = 0;
        node->acceptor.store_failed_us = node->now_us;
        return;
    }
    /* The recording of a node that decided otherwise may answer a store that this one never asked
     * for. */
    if (seq > node->acceptor.store_seq) return;
    if (seq > node->acceptor.stored_seq) node->acceptor.stored_seq = seq;
}

/* True if the reply still agrees with the stored vote. A later promise may have overtaken it. So
 * may a vote at the ballot of a promise: then the lock that the promise names may be gone, and the
 * proposer already has enough promises. */
static bool is_true(const struct tw_vote *vote, const struct reply *reply) {
    const bool has_vote = vote->has_accepted != 0 && reply->ballot == vote->accepted_ballot;
    if (reply->kind == REPLY_PROMISE) return reply->ballot == vote->promised && !has_vote;
    if (reply->kind == REPLY_COMMIT) return reply->ballot == vote->lock.ballot;
    return has_vote;
}

bool tw_acceptor_reply(struct tw_node *node, struct tw_msg_accept *own) {
    const struct tw_vote *vote = &node->vote;
    while (node->acceptor.replies_count > 0 &&
           node->acceptor.replies[0].seq <= node->acceptor.stored_seq) {
        const struct reply reply = node->acceptor.replies[0];
        node->acceptor.replies_count--;
        for (uint32_t i = 0; i < node->acceptor.replies_count; i++)
            node->acceptor.replies[i] = node->acceptor.replies[i + 1];
        if (!is_true(vote, &reply) || vote->round != node->at.rounds) continue;
        if (reply.kind == REPLY_PROMISE) {
            send_promise(node, &reply);
            continue;
        }
        *own = (struct tw_msg_accept){.lineage = vote->lineage,
                                      .round = vote->round,
                                      .ballot = reply.ballot,
                                      .phase = reply.kind == REPLY_COMMIT ? TW_VOTE_COMMIT
                                                                          : TW_VOTE_ACCEPT,
                                      .digest = tw_record_digest(&vote->accepted)};
        tw_vote_proof_sign(node, own);
        if (reply.to_self) return true;
        send_accept(node, &reply, own);
    }
    return false;
}

/* ---- acceptor -------------------------------------------------------------------------------- */

static void send_nack(struct tw_node *node, uint16_t peer, uint64_t promised) {
    TW_ASSERT(promised > 0);
    if (peer == NO_PEER) return;
    struct tw_message *message = tw_act_message(node, TW_MSG_NACK);
    if (message == NULL) return;
    message->u.nack = (struct tw_msg_nack){
        .lineage = node->at.lineage, .round = node->at.rounds, .promised = promised};
    tw_act_send(node, message, peer);
}

/* True if the ballot contains the rank of this peer, so that no two proposers use the same one. It
 * must also be at most BALLOT_LEAP_MAX above the promised ballot. */
static bool is_ballot_of(const struct tw_node *node, uint16_t peer, uint64_t ballot) {
    const struct round *round = &node->round;
    const uint32_t rank = tw_ballot_rank(ballot);
    if (ballot == 0 || (ballot > 1 && ballot < TW_MEMBERS_MAX)) return false;
    if (ballot > node->vote.promised && ballot - node->vote.promised > BALLOT_LEAP_MAX)
        return false;
    return rank < tw_bits(node->voters) &&
           tw_id_equal(&node->roster.members[round->rank[rank]].id, &node->links[peer].id);
}

enum tw_drop tw_acceptor_prepare(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_prepare *prepare) {
    if (!tw_membership_is_voter(node)) return TW_DROP_NOT_VOTING;
    const int idx = tw_membership_voter(node, peer);
    if (idx < 0) return TW_DROP_NO_VOTE;
    tw_acceptor_turn(node);
    if (!is_ballot_of(node, peer, prepare->ballot)) return TW_DROP_NO_BALLOT;
    tw_round_touch(node, (uint32_t)idx);
    if (prepare->ballot <= node->vote.promised && !TW_IS_MUTANT(node, TW_MUTANT_STALE_PROMISE)) {
        send_nack(node, peer, node->vote.promised);
        return TW_DROP_LOW_BALLOT;
    }
    ask_lease(node, (uint32_t)idx, prepare->ballot);
    return TW_DROP_NONE;
}

void tw_acceptor_promise(struct tw_node *node) {
    uint32_t member = 0;
    uint64_t ballot = 0;
    while (next_prepare(node, &member, &ballot)) {
        const uint16_t peer = tw_peers_find(node, &node->roster.members[member].id);
        if (peer == NO_PEER) continue;
        if (ballot <= node->vote.promised && !TW_IS_MUTANT(node, TW_MUTANT_STALE_PROMISE)) {
            send_nack(node, peer, node->vote.promised);
            continue;
        }
        node->vote.promised = ballot;
        tw_lease_take(node, member, ballot);
        reply_later(node, REPLY_PROMISE, peer, ballot);
    }
}

/* Drops the offer. Results that only the offer listed are no longer fetched. */
static void forget_offer(struct tw_node *node) {
    struct round *round = &node->round;
    for (uint32_t k = 0; round->has_offer && k < round->offer.parts_count; k++) {
        struct payload *payload = tw_payload_find(node, &round->offer.parts[k].result);
        const bool is_announced =
            round->results[k].has &&
            tw_id_equal(&round->results[k].announced.hash, &round->offer.parts[k].result);
        if (payload != NULL && payload->state == PAYLOAD_WANTED && !is_announced)
            payload->keep_round =
                0; /* freed now; if the node needs it after all, it is requested again */
    }
    round->has_offer = false;
}

/* True if the offer is the record that this node accepted last. */
static bool is_offer_accepted(const struct tw_node *node) {
    if (node->vote.has_accepted == 0 || node->vote.round != node->at.rounds) return false;
    const struct tw_id before = tw_record_digest(&node->vote.accepted);
    const struct tw_id now = tw_record_digest(&node->round.offer);
    return tw_id_equal(&before, &now);
}

/* True if the offer was accepted before, or has a lock. It may be decided, so it is then accepted
 * whatever its results are. */
static bool is_offer_settled(const struct tw_node *node) {
    const struct round *round = &node->round;
    return round->is_offer_carried || round->offer_lock.ballot != 0 || is_offer_accepted(node);
}

/* True if the offer is another record at the ballot of our vote. A lock of an earlier ballot does
 * not justify such an offer: a proposer with promises for both records could get a lock for each,
 * from members that vote twice. */
static bool is_second_offer(const struct tw_node *node) {
    return node->vote.has_accepted != 0 && node->vote.round == node->at.rounds &&
           node->round.offer_ballot == node->vote.accepted_ballot && !is_offer_accepted(node) &&
           !TW_IS_MUTANT(node, TW_MUTANT_SECOND_VOTE);
}

/* True if the offer must wait until others have had time to propose, because its proposer was
 * proven false. */
static bool must_offer_wait(struct tw_node *node) {
    const struct round *round = &node->round;
    const uint32_t proposer = round->rank[tw_ballot_rank(round->offer_ballot)];
    if (round->offer_from == NO_PEER || is_offer_settled(node)) return false;
    return tw_conduct_is_proven_false(node, &node->roster.members[proposer].id) &&
           tw_lease_must_wait(node, proposer, round->offer_us);
}

/* True for a weak offer: its proposer was proven false and must still wait, or its ballot is not
 * promised and an honest proposer would not have made it. A weak offer gets a vote only if no
 * better offer arrives, and this node does not wait for it. */
static bool is_offer_weak(struct tw_node *node) {
    const struct round *round = &node->round;
    if (must_offer_wait(node)) return true;
    return round->offer_from != NO_PEER && round->offer_ballot > node->vote.promised &&
           !is_offer_settled(node) &&
           tw_proposal_is_rigged(node, &round->offer, round->offer_ballot);
}

bool tw_acceptor_has_offer(struct tw_node *node) {
    return node->round.has_offer && !is_offer_weak(node);
}

/* Gives the lease, once, to the proposer of an offer that is not weak. */
static void lease_offer(struct tw_node *node) {
    struct round *round = &node->round;
    TW_ASSERT(round->has_offer);
    if (round->is_offer_leased || is_offer_weak(node)) return;
    round->is_offer_leased = true;
    const uint32_t proposer = round->rank[tw_ballot_rank(round->offer_ballot)];
    note_proposed(node, proposer, round->offer_ballot);
}

/* True if the promises allow the proposal. The lowest ballot needs none: no member can have voted
 * before it. */
static bool is_justified(const struct tw_node *node, const struct tw_msg_propose *propose) {
    const bool needs_promises = propose->ballot > 1 || propose->promises.voters != 0;
    return !needs_promises || TW_IS_MUTANT(node, TW_MUTANT_OTHER_VALUE) ||
           TW_IS_MUTANT(node, TW_MUTANT_PROMISES_UNCHECKED) ||
           tw_vote_proof_justifies(node, propose);
}

/* True if each new member signed a JOIN for this round under its nonce. A seat whose member does
 * not know of it casts no vote: with a few such seats, the group could decide nothing. */
static bool are_joins_signed(const struct tw_node *node, const struct tw_msg_propose *propose) {
    const struct tw_roster *next = &propose->record.next;
    uint32_t count = 0;
    /* Real liars hold the keys of the nodes that they invent. The simulator's do not, so these two
     * mutants skip the check. */
    if (TW_IS_MUTANT(node, TW_MUTANT_ANY_COMPANY) || TW_IS_MUTANT(node, TW_MUTANT_STRANGERS_KNOWN))
        return true;
    for (uint32_t i = 0; i < next->count; i++) {
        const struct tw_member *member = &next->members[i];
        if (tw_proposal_has_member(&node->roster, member)) continue;
        if (count == propose->joins_count ||
            !tw_vote_proof_is_join(node, &member->id, member->nonce, node->at.rounds,
                                   propose->joins[count]))
            return false;
        count++;
    }
    return count == propose->joins_count;
}

/* True if promises allow this proposal, contributors signed their rows, owners their results, and
 * new members their JOINs. Otherwise an owner could list a contribution that nobody made, and no
 * audit could repeat the merge. A record with a lock needs no check of signatures: the voters in
 * the lock made it. */
static bool is_proven(const struct tw_node *node, const struct tw_msg_propose *propose) {
    const struct tw_record *record = &propose->record;
    if (!is_justified(node, propose)) return false;
    if (propose->lock.ballot != 0) return true;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        if (!tw_contributor_is_signed(node, &record->contributors[i]) &&
            !TW_IS_MUTANT(node, TW_MUTANT_ROW_UNSIGNED))
            return false;
    }
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (record->parts[k].bytes > 0 &&
            !tw_result_is_signed(node, record, k, propose->results[k]))
            return false;
    }
    return are_joins_signed(node, propose);
}

/* Learns the results of a proven proposal, which their owners may have announced to its proposer
 * alone. */
static void learn_results(struct tw_node *node, const struct tw_msg_propose *propose) {
    for (uint32_t k = 0; k < propose->record.parts_count && propose->lock.ballot == 0; k++) {
        const struct tw_part *part = &propose->record.parts[k];
        if (part->bytes == 0) continue;
        tw_evidence_result(node, part->owner_idx, k, part, propose->results[k], true);
        tw_result_learn(node, &propose->record, k, propose->results[k]);
    }
}

enum tw_drop tw_acceptor_propose(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_propose *propose) {
    struct round *round = &node->round;
    if (!tw_membership_is_voter(node)) return TW_DROP_NOT_VOTING;
    const int idx = tw_membership_voter(node, peer);
    if (idx < 0) return TW_DROP_NO_VOTE;
    tw_acceptor_turn(node);
    if (peer != NO_PEER && !is_ballot_of(node, peer, propose->ballot)) return TW_DROP_NO_BALLOT;
    tw_evidence_promises(node, propose, false);
    tw_round_touch(node, (uint32_t)idx);
    if (propose->ballot < node->vote.promised && !TW_IS_MUTANT(node, TW_MUTANT_BALLOT_IGNORED)) {
        send_nack(node, peer, node->vote.promised);
        return TW_DROP_LOW_BALLOT;
    }
    if (!tw_record_is_sound(node, &propose->record)) {
        if (peer != NO_PEER) tw_act_accuse(node, &node->links[peer].id, TW_PROTO);
        return TW_DROP_FALSE;
    }
    /* A second record at the same ballot would be a lie. The same record may arrive over a new
     * link. */
    if (round->has_offer && round->offer_ballot == propose->ballot) {
        if (peer != NO_PEER) round->offer_from = peer;
        return TW_DROP_TWICE;
    }
    const bool has_offer = tw_acceptor_has_offer(node);
    if (has_offer && round->offer_ballot > propose->ballot) {
        send_nack(node, peer, round->offer_ballot);
        return TW_DROP_LOW_BALLOT;
    }
    /* Another proposer holds the lease, and this acceptor has not promised the ballot. Its vote is
     * not needed: a majority can accept the proposal without it. */
    const bool is_promised = propose->ballot <= node->vote.promised;
    if (!is_promised && tw_lease_is_others(node, (uint32_t)idx)) return TW_DROP_LEASED;
    if (!is_promised && has_offer && tw_proposal_is_rigged(node, &propose->record, propose->ballot))
        return TW_DROP_DISHONEST;
    if (peer != NO_PEER && !is_proven(node, propose)) {
        tw_act_accuse(node, &node->links[peer].id, TW_PROTO);
        tw_veto_pass(node, propose->ballot);
        return TW_DROP_FALSE;
    }
    if (propose->ballot > 1) tw_evidence_promises(node, propose, true);
    if (peer != NO_PEER) learn_results(node, propose);
    forget_offer(node);
    TW_ASSERT(!round->has_offer);
    round->is_offer_leased = false;
    round->has_offer = true;
    round->offer_from = peer;
    round->offer_ballot = propose->ballot;
    round->offer_us = node->now_us;
    round->offer = propose->record;
    round->is_offer_carried = propose->lock.ballot != 0;
    round->offer_lock = (struct tw_proof){.ballot = 0};
    lease_offer(node);
    return TW_DROP_NONE;
}

/* Fetches missing results of the offer. Returns true if this node holds all of them, verified. Sets
 * *is_lost if one of them is lost. */
static bool is_offer_complete(struct tw_node *node, bool *is_lost) {
    struct round *round = &node->round;
    bool is_complete = true;
    for (uint32_t k = 0; k < round->offer.parts_count; k++) {
        const struct tw_part *part = &round->offer.parts[k];
        if (part->bytes == 0) continue;
        struct payload *payload =
            tw_payload_want_result(node, part, round->offer.fragment, round->begin[k],
                                   round->count[k], tw_round_keep(node));
        is_complete &= payload != NULL && payload->state == PAYLOAD_HELD &&
                       payload->bytes == part->bytes &&
                       tw_payload_is_as(node, payload, TW_CONTENT_RESULT, round->count[k]);
        if (payload == NULL) continue;
        *is_lost |= payload->state == PAYLOAD_WANTED && tw_payload_is_lost(payload);
        payload->from = node->roster.members[part->owner_idx].id;
    }
    return is_complete;
}

/* True if a result of the offer is late or lost, or its owner is stalled. Another proposer may then
 * try meanwhile. */
static bool is_offer_silent(struct tw_node *node) {
    const struct round *round = &node->round;
    for (uint32_t k = 0; k < round->offer.parts_count; k++) {
        const struct tw_part *part = &round->offer.parts[k];
        const struct tw_id *owner = &node->roster.members[part->owner_idx].id;
        const struct payload *payload = tw_payload_find(node, &part->result);
        if (part->bytes == 0 || (payload != NULL && payload->state == PAYLOAD_HELD)) continue;
        if (payload != NULL && tw_payload_is_lost(payload)) return true;
        if (tw_conduct_is_stalled(node, TW_PENALTY_STALL_OWNER, owner) || tw_round_is_late(node, k))
            return true;
    }
    return false;
}

/* Votes for the offer: in phase 1, or in phase 2 if its lock has arrived already. */
static void accept_offer(struct tw_node *node) {
    struct round *round = &node->round;
    struct tw_vote *vote = &node->vote;
    bool is_same = false;
    TW_ASSERT(round->offer_ballot > 0);
    if (vote->has_accepted != 0) {
        const struct tw_id before = tw_record_digest(&vote->accepted);
        const struct tw_id now = tw_record_digest(&round->offer);
        is_same = tw_id_equal(&before, &now);
    }
    if (!is_same) vote->lock = (struct tw_proof){.ballot = 0};
    if (round->offer_lock.ballot != 0) vote->lock = round->offer_lock;
    vote->promised = vote->accepted_ballot = round->offer_ballot;
    vote->has_accepted = 1;
    round->voted_us = round->offer_from != NO_PEER ? node->now_us : 0;
    vote->accepted = round->offer;
    reply_later(node, round->offer_lock.ballot != 0 ? REPLY_COMMIT : REPLY_ACCEPT,
                round->offer_from, round->offer_ballot);
}

void tw_acceptor_consider(struct tw_node *node) {
    struct round *round = &node->round;
    round->is_lost = false;
    if (!round->has_offer) return;
    lease_offer(node);
    if (must_offer_wait(node)) return;
    bool is_lost = false;
    const bool is_complete = is_offer_complete(node, &is_lost), is_settled = is_offer_settled(node);
    /* The round is stuck only if a record that this node accepted has lost a result. Otherwise
     * another proposer leaves the result out. */
    round->is_lost = is_lost && is_settled;
    const uint32_t refused = is_settled ? 0 : tw_veto_find(node, &round->offer);
    if (refused != 0) {
        forget_offer(node);
        tw_veto_offer(node, refused);
        return;
    }
    if (!is_settled && round->offer_from != NO_PEER) {
        if (tw_proposal_is_early(node, &round->offer)) return;
        if (tw_proposal_base(node, &round->offer, round->offer_ballot) == TW_BASE_LATER) return;
        if (tw_proposal_is_rigged(node, &round->offer, round->offer_ballot)) {
            tw_veto_proposer(node);
            return;
        }
    }
    if (!is_complete) {
        if (!is_settled && round->offer_from != NO_PEER && is_offer_silent(node))
            tw_veto_pass(node, round->offer_ballot);
        return;
    }
    round->has_offer = false;
    if (is_second_offer(node)) return;
    if (round->offer_ballot < node->vote.promised &&
        !TW_IS_MUTANT(node, TW_MUTANT_BALLOT_IGNORED)) {
        send_nack(node, round->offer_from, node->vote.promised);
        return;
    }
    tw_veto_not(node);
    accept_offer(node);
}

/* ---- lock ------------------------------------------------------------------------------------ */

/* True if the vote is for the record of the lock, at its ballot. */
static bool has_accepted(const struct tw_vote *vote, const struct tw_msg_lock *lock) {
    if (vote->has_accepted == 0 || vote->accepted_ballot != lock->proof.ballot) return false;
    const struct tw_id digest = tw_record_digest(&vote->accepted);
    return tw_id_equal(&digest, &lock->digest);
}

/* True if the offer is the record of the lock, at its ballot, and waits for results. */
static bool is_offered(const struct round *round, const struct tw_msg_lock *lock) {
    if (!round->has_offer || round->offer_ballot != lock->proof.ballot) return false;
    const struct tw_id digest = tw_record_digest(&round->offer);
    return tw_id_equal(&digest, &lock->digest);
}

enum tw_drop tw_acceptor_lock(struct tw_node *node, uint16_t peer, const struct tw_msg_lock *lock) {
    struct round *round = &node->round;
    struct tw_vote *vote = &node->vote;
    if (!tw_membership_is_voter(node)) return TW_DROP_NOT_VOTING;
    if (tw_membership_voter(node, peer) < 0) return TW_DROP_NO_VOTE;
    tw_acceptor_turn(node);
    if (peer != NO_PEER && !is_ballot_of(node, peer, lock->proof.ballot)) return TW_DROP_NO_BALLOT;
    tw_evidence_lock(node, lock, false);
    if (lock->proof.ballot < vote->promised && !TW_IS_MUTANT(node, TW_MUTANT_BALLOT_IGNORED)) {
        send_nack(node, peer, vote->promised);
        return TW_DROP_LOW_BALLOT;
    }
    const bool has_vote = has_accepted(vote, lock);
    if (!has_vote && !is_offered(round, lock))
        return TW_DROP_UNKNOWN; /* the next ballot proposes the record again */
    const bool is_known = vote->lock.ballot == lock->proof.ballot && has_vote;
    if (!is_known &&
        !tw_vote_proof_holds(node, TW_VOTE_ACCEPT, has_vote ? &vote->accepted : &round->offer,
                             &lock->proof)) {
        if (peer != NO_PEER) tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    tw_evidence_lock(node, lock, true);
    if (!has_vote) {
        round->offer_lock = lock->proof; /* both votes are due once the results have arrived */
        return TW_DROP_NONE;
    }
    vote->promised = lock->proof.ballot;
    vote->lock = lock->proof;
    if (!is_known && peer != NO_PEER) round->voted_us = node->now_us;
    reply_later(node, REPLY_COMMIT, peer, lock->proof.ballot);
    return TW_DROP_NONE;
}
