/* node.c - the core as a whole: start, dispatch of events, the walk over all concerns, the view. */
#include "sync/node.h"

#include <string.h>

#include "base/assert.h"
#include "sync/check/audit.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/core/voters.h"
#include "sync/crew/crew.h"
#include "sync/history/claim.h"
#include "sync/history/lineage.h"
#include "sync/history/log.h"
#include "sync/pair/pair.h"
#include "sync/round/result.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"
#include "sync/transfer/state_transfer.h"
#include "sync/vote/acceptor.h"
#include "sync/vote/evidence.h"
#include "sync/vote/proposer.h"

/* The core as a whole: start, dispatch of events, and the advance() that follows each
 * event and lets every file of the core request the data that it lacks. */

#define PATIENCE_START_US (60 * SECOND_US)
#define RATE_WINDOW_US (5 * SECOND_US)
#define BURST_GAP_US                                                                               \
    (SECOND_US / 20) /* steps that end closer together than this came late, in a burst */

size_t tw_node_bytes(void) {
    return sizeof(struct tw_node);
}

void tw_node_rebind(struct tw_node *node, const struct tw_signing *signing,
                    const struct tw_sizes *sizes, struct tw_rate *download) {
    node->cfg.signing = *signing;
    node->cfg.sizes = *sizes;
    node->cfg.download = download;
}

/* Sets the node to zero. Memory that is zero already, as fresh memory is, is not written: tables of
 * which the node uses a small part, such as those of fragments and links, then take no room. */
static void clear(struct tw_node *node) {
    enum { PAGE_BYTES = 4096 };
    static const uint8_t zeros[PAGE_BYTES];
    uint8_t *bytes = (uint8_t *)node;
    for (size_t at = 0; at < sizeof(*node); at += PAGE_BYTES) {
        const size_t left = sizeof(*node) - at, size = left < PAGE_BYTES ? left : PAGE_BYTES;
        if (memcmp(bytes + at, zeros, size) != 0) memset(bytes + at, 0, size);
    }
}

/* Chooses how each fragment that this node lacks will be loaded. */
static void resume_fetches(struct tw_node *node) {
    const struct tw_position *at = &node->at;
    node->lineage.was_shared = at->has_held != 0 && at->held.parts_count > 0;
    const enum tw_load_mode mode = at->is_moving != 0 ? TW_LOAD_KEEP : TW_LOAD_SHIFT;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) node->fetch[p].mode = mode;
}

/* Continues from a position on disk. A node that is alone founds a new lineage: rounds after the
 * checkpoint are lost, and must not be decided differently under the old lineage id. */
static void resume_position(struct tw_node *node, const struct tw_position *position,
                            const struct tw_vote *vote) {
    node->at = *position;
    resume_fetches(node);
    TW_ASSERT(position->rounds == (position->has_tip != 0 ? position->tip.round + 1 : 0));
    tw_log_begin_at(node, position->has_tip != 0 ? &position->tip : NULL, &position->tip_proof);
    const bool has_vote = vote != NULL && tw_id_equal(&vote->lineage, &position->lineage) &&
                          vote->nonce == position->nonce;
    if (has_vote) {
        node->vote = *vote;
        node->acceptor.vote_floor = vote->round;
        if (TW_IS_MUTANT(node, TW_MUTANT_FORGOTTEN_VOTE)) node->vote.round = UINT64_MAX;
    }
    struct tw_roster roster = {.count = 0};
    if (position->has_tip != 0 && tw_id_equal(&position->tip.lineage, &position->lineage))
        roster = position->tip.next;
    tw_voters_note(node, &position->held.next);
    tw_voters_note(node, &roster);
    const bool is_alone =
        roster.count == 0 ||
        (roster.count == 1 && tw_id_equal(&roster.members[0].id, &node->cfg.self));
    const bool was_told = has_vote && vote->has_accepted != 0 && vote->round >= position->rounds;
    const bool must_begin = is_alone && !was_told && !TW_IS_MUTANT(node, TW_MUTANT_KEPT_NAME);
    if (must_begin || tw_lineage_is_refused(node, &position->lineage)) {
        tw_lineage_found(node);
        return;
    }
    /* The checkpoint has no record yet of the lineage that this node founded. */
    if (roster.count == 0 && tw_lineage_is_ours(node)) roster = tw_lineage_founder(node);
    tw_round_set_roster(node, &roster);
    if (!has_vote) { /* votes may be lost: the node returns as a new member */
        node->at.nonce = tw_lineage_nonce(node);
        tw_acceptor_reset(node);
        tw_round_set_roster(node, &roster);
    }
}

void tw_node_init(struct tw_node *node, const struct tw_node_config *config,
                  const struct tw_position *position, const struct tw_vote *vote, uint64_t now_us) {
    TW_ASSERT(config->fragments_count >= 1 && config->fragments_count <= TW_FRAGMENTS_MAX);
    TW_ASSERT(config->period_steps >= 1 && config->weight > 0);
    TW_ASSERT(config->refused_count <= TW_REFUSED_MAX);
    TW_ASSERT(config->members_max >= 1 && config->members_max <= TW_MEMBERS_MAX);
    clear(node);
    node->cfg = *config;
    node->now_us = node->lineage.majority_us = node->lineage.donor_us = node->pace.last_commit_us =
        now_us;
    node->lineage.solo_hold_us = now_us + SOLO_HOLD_US;
    node->pace.patience_us = node->pair.patience_us = PATIENCE_START_US;
    node->state = TW_STATE_RECEIVER;
    node->round.self_idx = node->round.self_part = node->round.self_rank = -1;
    tw_rng_seed(&node->rng, config->seed ^ (UINT64_C(0x9E3779B97F4A7C15) * config->boot));
    if (position != NULL) {
        resume_position(node, position, vote);
    } else if (!tw_id_is_zero(&config->awaited)) {
        tw_lineage_await(node);
    } else {
        tw_lineage_found(node);
    }
    const uint32_t supporters = tw_bits(node->voters);
    node->lineage.support = (struct support){.met = supporters, .all = supporters};
    node->deadline_us = now_us;
    TW_ASSERT(node->roster.count <= TW_MEMBERS_MAX);
    TW_ASSERT(node->at.rounds == (node->at.has_tip != 0 ? node->at.tip.round + 1 : 0));
}

/* True if runs of this topology do not use the message. */
static bool is_of_another_run(const struct tw_node *node, enum tw_message_kind kind) {
    const bool is_solo = node->cfg.alone_nodes > 0 && node->cfg.together_tokens == 0;
    const bool has_group = !node->cfg.is_pair && !is_solo;
    if ((kind >= TW_MSG_JOIN && kind <= TW_MSG_NACK) || kind == TW_MSG_ACCUSE ||
        kind == TW_MSG_LOCK || kind == TW_MSG_EVIDENCE)
        return !has_group;
    return kind >= TW_MSG_PAIR_REQUEST && kind <= TW_MSG_PAIR_OFFER && !node->cfg.is_pair;
}

/* Returns NONE if the message is about the open round. Otherwise one side is behind: this node
 * sends its log to the sender, or asks the sender for its log. */
static enum tw_drop drop_of_round(struct tw_node *node, uint16_t peer,
                                  const struct tw_message *message) {
    const struct tw_id *lineage = NULL;
    uint64_t round = 0;
    if (message->kind == TW_MSG_CONTRIB) {
        lineage = &message->u.contrib.lineage;
        round = message->u.contrib.round;
    } else if (message->kind == TW_MSG_GATHER) {
        lineage = &message->u.gather.lineage;
        round = message->u.gather.round;
    } else if (message->kind == TW_MSG_RESULT) {
        lineage = &message->u.result.lineage;
        round = message->u.result.round;
    } else if (message->kind == TW_MSG_PREPARE) {
        lineage = &message->u.prepare.lineage;
        round = message->u.prepare.round;
    } else if (message->kind == TW_MSG_PROPOSE) {
        lineage = &message->u.propose.record.lineage;
        round = message->u.propose.record.round;
    } else if (message->kind == TW_MSG_LOCK) {
        lineage = &message->u.lock.lineage;
        round = message->u.lock.round;
    }
    return lineage == NULL ? TW_DROP_NONE : tw_log_is_at(node, peer, lineage, round);
}

/* Commits our proposal, for which a majority has voted twice. */
static void commit_chosen(struct tw_node *node) {
    tw_log_commit(node, &node->round.proposal, &node->round.proof);
}

static enum tw_drop receive_result(struct tw_node *node, uint16_t peer,
                                   const struct tw_msg_result *result) {
    bool is_checked = false;
    const enum tw_drop why = tw_result_received(node, peer, result, &is_checked);
    const uint32_t k = result->part;
    if (result->bytes == 0 || k >= node->round.owners_count) return why;
    const uint32_t owner = node->round.owners[k];
    const struct tw_part part = tw_result_part(result);
    if (tw_id_equal(&node->roster.members[owner].id, &node->links[peer].id))
        tw_evidence_result(node, owner, k, &part, result->signature, is_checked);
    return why;
}

static enum tw_drop receive_accept(struct tw_node *node, uint16_t peer,
                                   const struct tw_msg_accept *accept) {
    bool is_chosen = false;
    const enum tw_drop why = tw_proposer_accept(node, peer, accept, &is_chosen);
    if (is_chosen) commit_chosen(node);
    return why;
}

/* A NACK without a ballot asks for the signatures in our result. */
static enum tw_drop receive_nack(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_nack *nack) {
    if (nack->promised != 0) return tw_proposer_nack(node, peer, nack);
    if (!tw_id_equal(&nack->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (nack->round != node->at.rounds)
        return nack->round < node->at.rounds ? TW_DROP_OLD_ROUND : TW_DROP_ROUND_TO_COME;
    if (tw_roster_find(&node->roster, &node->links[peer].id) < 0) return TW_DROP_NO_SEAT;
    return tw_round_show(node, peer, nack->refused_parts);
}

static enum tw_drop receive_status(struct tw_node *node, uint16_t peer,
                                   const struct tw_msg_status *status) {
    const enum tw_drop why = tw_peers_status(node, peer, status);
    tw_lineage_heard(node, peer);
    tw_state_peer_status(node, peer);
    return why;
}

/* A record answers the question of a claim, or this node's own. */
static enum tw_drop receive_commit(struct tw_node *node, uint16_t peer,
                                   const struct tw_msg_commit *commit) {
    const enum tw_drop why = tw_claim_record(node, peer, commit);
    return why == TW_DROP_UNASKED ? tw_log_received(node, peer, commit) : why;
}

static enum tw_drop receive_none(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_log_none *none) {
    const enum tw_drop claim = tw_claim_none(node, peer, none);
    const enum tw_drop log = tw_log_none(node, peer, none);
    return claim == TW_DROP_NONE ? claim : log;
}

/* Returns the reason why the message has no effect, or NONE. */
static enum tw_drop handle_message(struct tw_node *node, uint16_t peer,
                                   const struct tw_message *message) {
    TW_ASSERT(node->links[peer].is_up);
    node->links[peer].received_us = node->now_us;
    if (is_of_another_run(node, message->kind)) return TW_DROP_OTHER_RUN;
    const enum tw_drop why = drop_of_round(node, peer, message);
    if (why != TW_DROP_NONE) return why;
    switch (message->kind) {
    case TW_MSG_STATUS: return receive_status(node, peer, &message->u.status);
    case TW_MSG_PROBE:
    case TW_MSG_PROBED:
    case TW_MSG_RELAY_CALL:
    case TW_MSG_PUNCH:
    case TW_MSG_PEERS: break; /* handled by the runtime, which has the member table */
    case TW_MSG_LINKS: tw_reach_received(node, peer, &message->u.links); break;
    case TW_MSG_LEAVE: tw_peers_left(node, peer); break;
    case TW_MSG_JOIN: return tw_lineage_join(node, peer, &message->u.join);
    case TW_MSG_CONTRIB:
        return tw_crew_is_hand(node, peer) ? tw_crew_contrib(node, peer, &message->u.contrib)
                                           : tw_round_contrib(node, peer, &message->u.contrib);
    case TW_MSG_GATHER: return tw_crew_called(node, peer);
    case TW_MSG_CREW: return tw_crew_list(node, peer, &message->u.crew);
    case TW_MSG_CREW_GET: return tw_crew_get(node, peer, &message->u.crew_get);
    case TW_MSG_RESULT: return receive_result(node, peer, &message->u.result);
    case TW_MSG_PREPARE: return tw_acceptor_prepare(node, peer, &message->u.prepare);
    case TW_MSG_PROMISE: return tw_proposer_promise(node, peer, &message->u.promise);
    case TW_MSG_PROPOSE: return tw_acceptor_propose(node, peer, &message->u.propose);
    case TW_MSG_EVIDENCE: return tw_evidence_received(node, peer, &message->u.evidence);
    case TW_MSG_LOCK: return tw_acceptor_lock(node, peer, &message->u.lock);
    case TW_MSG_ACCEPT: return receive_accept(node, peer, &message->u.accept);
    case TW_MSG_NACK: return receive_nack(node, peer, &message->u.nack);
    case TW_MSG_COMMIT: return receive_commit(node, peer, &message->u.commit);
    case TW_MSG_LOG_GET: return tw_log_get(node, peer, &message->u.log_get);
    case TW_MSG_LOG_NONE: return receive_none(node, peer, &message->u.log_none);
    case TW_MSG_STATE_GET: return tw_state_get(node, peer, &message->u.state_get);
    case TW_MSG_STATE: return tw_state_offer(node, peer, &message->u.state);
    case TW_MSG_PULL: return tw_payload_pull(node, peer, &message->u.pull);
    case TW_MSG_MISSING: return tw_payload_missing(node, peer, &message->u.missing.hash);
    case TW_MSG_PAIR_REQUEST: return tw_pair_request(node, peer, &message->u.pair_request);
    case TW_MSG_PAIR_ACCEPT: return tw_pair_accept(node, peer, &message->u.pair_accept);
    case TW_MSG_PAIR_BUSY: return tw_pair_busy(node, peer, &message->u.pair_busy);
    case TW_MSG_PAIR_OFFER: return tw_pair_offer(node, peer, &message->u.pair_offer);
    case TW_MSG_ACCUSE:
        return message->u.accuse.trainer > 0 ? tw_jury_hint(node, peer, &message->u.accuse)
                                             : tw_audit_accuse(node, peer, &message->u.accuse);
    }
    return TW_DROP_NONE;
}

static void forget_worker(struct tw_node *node) {
    tw_pair_abandon(node);
    node->pair.is_encoding = false;
    node->worker.is_up = false;
    node->worker.is_exporting = node->worker.is_solo_pending = node->worker.is_turning = false;
    node->worker.applying = (struct tw_fragment_set){{0}};
    node->worker.stepped_us = 0;
    if (node->round.own == OWN_ENCODING) node->round.own = OWN_IDLE;
    node->round.is_reducing = false;
    tw_crew_forget(node);
    tw_audit_forget(node);
    tw_jury_forget(node);
}

/* A node that reduces may own parts from now on, or no longer: it says so at once. */
static void note_role(struct tw_node *node) {
    if (node->cfg.role == TW_NODE_ROLE_REDUCE) node->status_us = 0;
}

static void greet_worker(struct tw_node *node, const struct tw_event *event) {
    forget_worker(node);
    node->worker.is_up = true;
    note_role(node);
    if (node->worker.step == 0)
        node->worker.entered_step = event->u.worker->step; /* first worker since the start */
    node->worker.step = event->u.worker->step;
    node->worker.tokens = event->u.worker->tokens;
    node->worker.rate_us = node->now_us;
    node->worker.rate_tokens = node->worker.tokens;
    node->worker.rate_step = node->worker.step;
    bool is_unknown = false;
    tw_account_greet(node);
    tw_crew_greet(node);
    if (node->worker.last_send_step > node->worker.step)
        node->worker.last_send_step = node->worker.step;
    if (node->worker.entered_step > node->worker.step)
        node->worker.entered_step = node->worker.step;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        const uint64_t rounds = event->u.worker->fragment_rounds[p];
        node->at.fragment_digests[p] = event->u.worker->fragment_digests[p];
        if (node->pair.synced_step[p] > node->worker.step)
            node->pair.synced_step[p] = node->worker.step;
        if (node->at.fragment_rounds[p] == NOT_HELD) continue;
        /* The worker's memory has the true count of rounds: an APPLY counts even if its answer was
         * lost. If this node lacks the record of that round (is_unknown), the weights belong to no
         * known round: a new lineage begins. */
        if (rounds <= node->at.fragment_rounds[p])
            continue; /* the state may have rounds that are not in the log yet */
        node->at.fragment_rounds[p] = rounds;
        is_unknown |= rounds > node->at.rounds;
    }
    if (is_unknown) tw_lineage_found(node);
    tw_payload_worker_up(node);
    tw_log_clock(node);
}

static void send_leave(struct tw_node *node) {
    node->has_left = true;
    struct tw_message *message = tw_act_message(node, TW_MSG_LEAVE);
    if (message == NULL) return;
    message->u.leave = (struct tw_msg_leave){.reason = TW_OK};
    for (uint16_t i = 0; i < node->links_end; i++) tw_act_send(node, message, i);
}

/* Measures tokens per second over windows of at least RATE_WINDOW_US, which end with the step
 * before this one. After the process was stopped, the steps of that time arrive in a burst. They
 * belong to the window that contains the stop, so it lasts until the burst is over. */
static void measure_rate(struct tw_node *node) {
    if (node->worker.stepped_us < node->worker.rate_us + RATE_WINDOW_US ||
        node->worker.step <= node->worker.rate_step)
        return;
    const uint64_t window_us = node->worker.stepped_us - node->worker.rate_us;
    const uint64_t usual_us = window_us / (node->worker.step - node->worker.rate_step);
    const uint64_t gap_us = usual_us / 2 < BURST_GAP_US ? usual_us / 2 : BURST_GAP_US;
    if (node->now_us < node->worker.stepped_us + gap_us ||
        node->worker.tokens < node->worker.rate_tokens)
        return;
    const uint64_t rate = (node->worker.tokens - node->worker.rate_tokens) * SECOND_US / window_us;
    node->worker.tokens_per_s = rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
    node->worker.rate_us = node->worker.stepped_us;
    node->worker.rate_tokens = node->worker.tokens;
    node->worker.rate_step = node->worker.step;
}

/* Measures the time of a step. Requests that wait for the next step boundary take as long. */
static void measure_step(struct tw_node *node, uint64_t step) {
    const uint64_t steps = step > node->worker.step ? step - node->worker.step : 1;
    const uint64_t took_us = (node->now_us - node->worker.stepped_us) / steps;
    if (node->worker.stepped_us != 0)
        node->worker.step_us =
            node->worker.step_us == 0 ? took_us : (3 * node->worker.step_us + took_us) / 4;
    node->worker.stepped_us = node->now_us;
}

/* Sends replies whose vote is on disk. Commits the round if this node's own vote decides it. */
static void send_replies(struct tw_node *node) {
    while (tw_vote_reply(node)) commit_chosen(node);
}

static void handle_applied(struct tw_node *node, const struct tw_event *event) {
    if (tw_pair_is_step(node, event)) {
        const uint64_t round = node->at.rounds;
        struct tw_record record;
        if (!tw_pair_applied(node, event, &record)) return;
        struct tw_proof proof;
        tw_vote_proof_alone(node, &record, &proof);
        tw_log_commit(node, &record, &proof);
        tw_pair_committed(node, round);
    } else if (node->worker.is_turning) {
        tw_lineage_turned(node, event->ok);
    } else {
        const bool was_solo = node->worker.is_solo_pending;
        tw_log_applied(node, event);
        if (was_solo && event->ok) tw_lineage_solo_done(node);
    }
}

static enum tw_drop handle_encoded(struct tw_node *node, const struct tw_event *event) {
    if (node->cfg.is_pair) return tw_pair_encoded(node, event);
    if (tw_crew_is_encoding(node)) return tw_crew_encoded(node, event);
    const enum tw_drop why = tw_round_encoded(node, event);
    if (node->round.self_idx >= 0) tw_crew_alone(node);
    return why;
}

/* Returns the reason why the event has no effect, or NONE. */
static enum tw_drop handle_event(struct tw_node *node, const struct tw_event *event) {
    switch (event->kind) {
    case TW_EV_TICK: break;
    case TW_EV_PEER_UP:
        tw_peers_up(node, event->peer, event);
        tw_reach_changed(node);
        break;
    case TW_EV_PEER_DOWN:
        tw_pair_peer_down(node, &node->links[event->peer].id);
        tw_peers_down(node, event->peer);
        tw_reach_changed(node);
        tw_state_peer_down(node, event->peer);
        tw_payload_peer_down(node, event->peer);
        break;
    case TW_EV_MESSAGE: return handle_message(node, event->peer, event->u.message);
    case TW_EV_CHUNK:
        return tw_payload_chunk(node, event->peer, &event->u.chunk.hash, event->u.chunk.idx);
    case TW_EV_VERIFIED: return tw_payload_verified(node, event);
    case TW_EV_WORKER_UP: greet_worker(node, event); break;
    case TW_EV_WORKER_DOWN:
        forget_worker(node);
        note_role(node);
        break;
    case TW_EV_STEP:
        if (node->cfg.is_pair) {
            const uint64_t took_us =
                node->worker.stepped_us != 0 ? node->now_us - node->worker.stepped_us : 0;
            const uint64_t tokens = event->u.step.tokens;
            tw_pair_stepped(node, took_us,
                            tokens > node->worker.tokens ? tokens - node->worker.tokens : 0);
        }
        measure_rate(node);
        measure_step(node, event->u.step.step);
        node->worker.step = event->u.step.step;
        node->worker.tokens = event->u.step.tokens;
        break;
    case TW_EV_ENCODED: return handle_encoded(node, event);
    case TW_EV_GATHERED: return tw_crew_gathered(node, event);
    case TW_EV_REDUCED:
        return event->u.reduced.is_audit ? tw_audit_reduced(node, event)
                                         : tw_round_reduced(node, event);
    case TW_EV_APPLIED: handle_applied(node, event); break;
    case TW_EV_EXPORTED: tw_state_exported(node, event); break;
    case TW_EV_STORED:
        tw_acceptor_stored(node, event->u.store_seq, event->ok);
        send_replies(node);
        break;
    case TW_EV_LEAVE: send_leave(node); break;
    case TW_EV_MEASURED:
        node->measured.upload_kib_s = event->u.measured.upload_kib_s;
        node->measured.outliers = event->u.measured.odd;
        node->measured.is_over_budget = event->u.measured.is_short;
        if (node->measured.is_relay != event->u.measured.is_relay) tw_reach_changed(node);
        node->measured.is_relay = event->u.measured.is_relay;
        break;
    case TW_EV_JUDGED: return tw_jury_judged(node, event);
    case TW_EV_REFUSED: tw_state_refused(node, event->peer); break;
    }
    return TW_DROP_NONE;
}

static void advance(struct tw_node *node) {
    node->deadline_us = UINT64_MAX;
    tw_log_note_held(node);
    tw_reach_note(node);
    tw_membership_derive_state(node);
    tw_lineage_advance(node);
    tw_log_advance(node);
    if (node->cfg.is_pair) {
        tw_pair_advance(node);
    } else {
        tw_round_advance(node);
        tw_crew_advance(node);
        tw_vote_advance(node);
        send_replies(node);
        tw_audit_advance(node);
        tw_jury_advance(node);
    }
    tw_payload_advance(node);
    tw_peers_drop_silent(node);
    tw_membership_note(node);
    tw_peers_send_status(node);
    tw_reach_send(node);
    TW_ASSERT(node->at.rounds >= node->log.begin);
    TW_ASSERT(node->payloads_end <= TW_PAYLOADS_MAX);
    TW_ASSERT(node->links_end <= TW_PEERS_MAX);
    TW_ASSERT(tw_bits(node->voters) <= node->roster.count);
}

void tw_node_event(struct tw_node *node, const struct tw_event *event, uint64_t now_us) {
    TW_ASSERT(now_us >= node->now_us);
    TW_ASSERT(event->peer < TW_PEERS_MAX);
    TW_ASSERT(node->queue.head == node->queue.tail);
    node->now_us = now_us;
    node->queue.head = node->queue.tail = 0;
    node->queue.messages_count = node->queue.bodies_count = 0;
    node->log.is_reported = false;
    node->drops.newest = TW_DROP_NONE;
    tw_act_drop(node, handle_event(node, event));
    const enum tw_drop why = node->drops.newest;
    advance(node);
    node->drops.newest = why; /* the walk has no message to drop */
}

enum tw_drop tw_node_dropped(const struct tw_node *node) {
    return node->drops.newest;
}

bool tw_node_is_state(const struct tw_node *node, const struct tw_id *hash) {
    return tw_payload_is_state(node, hash);
}

bool tw_node_is_pulling(const struct tw_node *node, uint16_t peer) {
    TW_ASSERT(peer < TW_PEERS_MAX);
    return node->links[peer].is_up && node->links[peer].pulls_count > 0;
}

uint64_t tw_node_deadline(const struct tw_node *node) {
    return node->deadline_us;
}

const struct tw_record *tw_node_round(const struct tw_node *node, uint64_t round,
                                      const struct tw_proof **proof) {
    const struct tw_record *const record = tw_progress_record(node, round);
    *proof = record != NULL ? &node->log.proofs[round % TW_ROUNDS_KEPT] : NULL;
    return record;
}

void tw_node_position(const struct tw_node *node, struct tw_position *position) {
    *position = node->at;
}

bool tw_node_next_action(struct tw_node *node, struct tw_action *action) {
    return tw_act_take(node, action);
}

bool tw_node_wants_chunk(const struct tw_node *node, uint16_t peer, const struct tw_id *hash,
                         uint32_t idx) {
    return tw_payload_wants_chunk(node, peer, hash, idx);
}

/* ---- the view -------------------------------------------------------------------------------- */

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
    const struct large_work *large = tw_conduct_large_work(node, id);
    if (large != NULL) {
        view->peers[peer].large.merges = large->merges;
        view->peers[peer].large.times = tw_bits(large->recent);
        view->peers[peer].large.tenths = large->tenths;
        view->peers[peer].large.is_often = tw_conduct_is_often_large(large);
    }
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
    for (uint32_t i = 0; i < TW_DROPS_COUNT; i++) view->dropped[i] = node->drops.counts[i];
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
