/* log.c - the committed rounds of the lineage: learned, passed on, applied.
 *
 * Rounds are committed in order. They are applied later, per fragment. Fragment p, of P, has
 * applied all its rounds below at.fragment_rounds[p]. Its next due round is the first one from
 * there on whose number modulo P is p. A round is applied whole, once all its results are held, or
 * not at all. */
#include "sync/history/log.h"

#include "base/assert.h"
#include "base/median.h"
#include "proto/run/layout.h"
#include "sync/check/audit.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/core/voters.h"
#include "sync/crew/crew.h"
#include "sync/pair/pair.h"
#include "sync/round/proposal.h"
#include "sync/round/result.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"
#include "sync/transfer/state_proof.h"
#include "sync/transfer/state_transfer.h"
#include "sync/vote/acceptor.h"
#include "sync/vote/evidence.h"

enum {
    LOG_PER_REPLY_MAX = 16,
    MISSED_MAX = 12, /* number of missed rounds in a row after which this node waits for a member in
                        every 64th round only */
};

#define PATIENCE_CEILING_US (3600 * SECOND_US)
#define FORK_ASK_US                                                                                \
    (60 * SECOND_US) /* time between two requests to a peer whose last record differs from ours */

/* Updates at.held, the newest record such that (phi, u) contains all rounds up to it. A receiver
 * knows rounds whose state has yet to arrive, and a node without a worker knows rounds that it has
 * not applied. at.held does not change while a fragment is not held, or while theta belongs to
 * another lineage. No older state is loaded (state_transfer.c). */
void tw_log_note_held(struct tw_node *node) {
    struct tw_position *at = &node->at;
    uint64_t rounds = at->rounds;
    if (at->is_moving != 0) return;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        if (node->lineage.needs_tip || at->fragment_rounds[p] == NOT_HELD) return;
        const uint64_t due = tw_progress_due(node, p);
        if (due < rounds) rounds = due;
    }
    const struct tw_record *held = rounds > 0 ? tw_progress_record(node, rounds - 1) : NULL;
    if (rounds > 0 && held == NULL) return;
    const bool is_known = held != NULL && at->has_held != 0 && at->held.round == held->round &&
                          tw_id_equal(&at->held.lineage, &held->lineage);
    at->has_held = held != NULL;
    if (held != NULL && held->parts_count > 0) node->lineage.was_shared = true;
    if (held != NULL && !is_known) at->held = *held;
}

void tw_log_begin_at(struct tw_node *node, const struct tw_record *tip,
                     const struct tw_proof *proof) {
    node->at.has_tip = tip != NULL;
    node->at.tip_proof = proof != NULL ? *proof : (struct tw_proof){.ballot = 0};
    node->at.rounds = tip != NULL ? tip->round + 1 : 0;
    node->log.begin = tip != NULL ? tip->round : 0;
    node->log.is_begin_told = false;
    node->tip_digest = (struct tw_id){{0}};
    if (tip == NULL) return;
    node->log.records[tip->round % TW_ROUNDS_KEPT] = *tip;
    node->log.proofs[tip->round % TW_ROUNDS_KEPT] = node->at.tip_proof;
    node->at.tip = *tip;
    node->tip_digest = tw_record_digest(tip);
}

/* True if the round can be replayed. Solo rounds cannot, because they have no results. */
static bool has_parts(const struct tw_record *record) {
    return record->parts_count > 0 || record->contributors_count == 0;
}

bool tw_log_is_close(const struct tw_node *node) {
    const uint32_t count = node->cfg.fragments_count;
    enum {
        OUTER_STEPS = 2
    }; /* allowed lag per fragment, in its rounds: half of the rounds whose results are kept */
    if (node->lineage.needs_tip || node->at.is_moving != 0) return false;
    for (uint32_t p = 0; p < count; p++) {
        /* This fragment is not held, or its state has rounds that are not in the log yet. */
        if (node->at.fragment_rounds[p] > node->at.rounds) return false;
        const uint64_t due = tw_progress_due(node, p);
        if (due == UINT64_MAX) continue;
        if (due + (uint64_t)OUTER_STEPS * count < node->at.rounds) return false;
        for (uint64_t round = due; round < node->at.rounds; round += count) {
            const struct tw_record *record = tw_progress_record(node, round);
            if (record == NULL || !has_parts(record)) return false;
        }
    }
    return true;
}

/* Sends FINISH once this node holds the state that the clock counts. A node may have to train on
 * before and after it follows a finished lineage. */
static void send_finish(struct tw_node *node) {
    const bool is_over = tw_progress_is_final(node);
    if (!node->worker.is_up || is_over == node->log.is_finish_sent || node->lineage.needs_tip)
        return;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        if (node->at.fragment_rounds[p] == NOT_HELD) return;
    if (node->at.is_moving != 0) return;
    node->log.is_finish_sent = is_over;
    tw_act_body(node, TW_ACT_FINISH)->u.finish.goes_on = !is_over;
}

void tw_log_clock(struct tw_node *node) {
    if (!node->worker.is_up) return;
    const bool has_tip = node->at.has_tip != 0;
    struct tw_action *action = tw_act_body(node, TW_ACT_CLOCK);
    action->u.clock.clock_tokens = has_tip ? node->at.tip.clock_tokens : 0;
    action->u.clock.tokens_listed = node->at.tokens_listed;
    action->u.clock.contributors = has_tip ? node->at.tip.contributors_count : 0;
    if (tw_progress_is_apart(node)) action->u.clock.contributors = node->cfg.alone_nodes;
    if (node->cfg.is_pair)
        action->u.clock.contributors = (uint32_t)((tw_pair_clock_factor(node) + 512) / 1024);
}

static void note_mixed(struct tw_node *node, const struct tw_record *record) {
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const uint32_t idx = record->contributors[i].member_idx;
        if (idx >= node->roster.count) continue;
        tw_peers_note_mixed(node, &node->roster.members[idx].id, record->round);
    }
}

/* Returns true, and notes the owner, if an owner had our contribution to this round and refused it
 * for its size. Other reasons for which a record does not list us say nothing about the size: no
 * link to the owner, a late arrival, a lost result. */
static bool note_refused(struct tw_node *node, const struct tw_record *record) {
    const struct round *round = &node->round;
    if (round->self_idx < 0) return false;
    for (uint32_t k = 0; k < record->parts_count && k < round->owners_count; k++) {
        const struct tw_msg_result *announced = &round->results[k].announced;
        if (!round->results[k].has || (announced->refused >> round->self_idx & 1) == 0) continue;
        if (!tw_id_equal(&announced->hash, &record->parts[k].result)) continue;
        node->log.refused_count++;
        node->log.refused_by = node->roster.members[round->owners[k]].id;
        return true;
    }
    return false;
}

/* Counts rounds in which a member announced a contribution but did not deliver it: that member is
 * waited for in fewer and fewer rounds. An owner counts only its own arrivals, in rounds in which
 * it waited. A path may be dead to one owner alone, and a slow member that was not waited for may
 * have been in time elsewhere. No round waits for a receiver, so a receiver misses nothing. */
static void note_deliveries(struct tw_node *node, const struct tw_record *record,
                            const struct tw_proof *proof) {
    const struct round *round = &node->round;
    const bool is_owner = round->self_part >= 0 && round->count[round->self_part] > 0;
    const bool has_roles = tw_membership_has_roles(node);
    uint64_t listed = 0, merged = 0;
    for (uint32_t i = 0; i < record->contributors_count; i++)
        listed |= UINT64_C(1) << record->contributors[i].member_idx;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (record->parts[k].bytes > 0) merged |= UINT64_C(1) << record->parts[k].owner_idx;
    }
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct contribution *entry = &round->contributions[i];
        struct seat *seat = &node->seats[i];
        const bool is_listed = (listed >> i & 1) != 0, is_said = entry->has && !entry->is_absent;
        const bool is_here = !is_owner || !is_said || entry->ready_us != 0;
        const bool was_awaited = round->intake_closed && tw_round_awaits(node, i) &&
                                 entry->received_us <= round->intake_closed_us;
        if (((listed | merged) >> i & 1) !=
            0) { /* its work has arrived, perhaps without a link to us */
            seat->seen_us = seat->live_us = node->now_us;
            seat->unlisted = 0;
        } else if (has_roles && (proof->voters >> i & 1) != 0) {
            seat->unlisted = 0; /* its vote is all that a member without work gives */
        } else if (seat->unlisted < UINT8_MAX) {
            seat->unlisted++;
        }
        if (is_listed && is_here) {
            node->seats[i].missed = 0;
        } else if (is_said && (is_owner ? was_awaited : !is_listed) &&
                   node->seats[i].missed < MISSED_MAX && tw_membership_is_live(node, i)) {
            node->seats[i].missed++;
        }
    }
}

/* True if a live member announced a contribution. */
static bool was_offered(const struct tw_node *node) {
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct contribution *entry = &node->round.contributions[i];
        if (entry->has && !entry->is_absent && !entry->is_bad && tw_membership_is_live(node, i))
            return true;
    }
    return false;
}

/* Returns the time from the start of the round to the arrival of the contributions of all live
 * members that set the pace, except as many as may lie. UINT64_MAX: they did not all arrive. */
static uint64_t delivered_us(const struct tw_node *node) {
    const struct round *round = &node->round;
    const uint64_t pacers = tw_membership_pacers(node);
    const uint32_t liars = pacers != 0 ? tw_liars_max(tw_bits(pacers)) : 0;
    uint64_t times[TW_MEMBERS_MAX];
    uint32_t count = 0, live_count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct contribution *entry = &round->contributions[i];
        if ((pacers >> i & 1) == 0) continue;
        live_count += tw_membership_is_live(node, i);
        if (entry->has && entry->ready_us != 0) times[count++] = entry->ready_us;
    }
    if (live_count <= liars || count < live_count - liars) return UINT64_MAX;
    TW_ASSERT(count <= node->roster.count);
    tw_sort_u64(times, count);
    const uint64_t last_us = times[live_count - liars - 1];
    return last_us > round->active_us ? last_us - round->active_us : 0;
}

/* True if this node learns from the lateness of every member. Without certificates, ids are free,
 * and it learns from voters alone. */
static bool do_all_teach(const struct tw_node *node) {
    return node->cfg.has_rights || tw_bits(node->voters) == node->roster.count;
}

/* Number of live owners whose results were not in time. */
static uint32_t count_late(struct tw_node *node, const struct tw_record *record) {
    const bool is_any = do_all_teach(node);
    uint32_t count = 0;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (!is_any && (node->voters >> node->round.owners[k] & 1) == 0) continue;
        if (record->parts[k].bytes != 0 || node->round.count[k] == 0) continue;
        /* This result arrived in time and was refused. */
        const struct tw_msg_result *announced = &node->round.results[k].announced;
        if (node->round.results[k].has && tw_payload_is_held(node, &announced->hash)) continue;
        if (!tw_membership_is_live(node, node->round.owners[k])) continue;
        count += !tw_conduct_is_stalled(node, TW_PENALTY_STALL_OWNER,
                                        &node->roster.members[node->round.owners[k]].id);
    }
    return count;
}

static void double_patience(struct tw_node *node) {
    node->pace.patience_us = at_most(2 * node->pace.patience_us, PATIENCE_CEILING_US);
}

/* Moves patience towards four times the time that parts took. */
static void learn_time(struct tw_node *node, uint64_t took_us) {
    const uint64_t wanted_us = 4 * took_us + PATIENCE_FLOOR_US;
    node->pace.patience_us =
        at_most((3 * node->pace.patience_us + wanted_us) / 4, PATIENCE_CEILING_US);
}

/* Learns from the results of other owners, but only that parts take less time. Liars may own more
 * parts than others and send them late, so this node does not learn that parts take more time. */
static void learn_results(struct tw_node *node) {
    const uint64_t last_us = tw_result_others_us(node, TW_PARTS_MAX);
    if (last_us == UINT64_MAX || last_us < node->round.active_us) return;
    const uint64_t took_us = last_us - node->round.active_us;
    if (4 * took_us + PATIENCE_FLOOR_US < node->pace.patience_us) learn_time(node, took_us);
}

/* Learns how long parts take where members may lie. The length of the round is no measure, because
 * a liar can make it as long as patience. This node instead counts the time in which contributions
 * to its own part arrived, twice because results travel too, and the time of its own merge. */
static void learn_delivery(struct tw_node *node) {
    const struct round *round = &node->round;
    if (round->self_part < 0 || !round->intake_closed) {
        learn_results(node);
        return;
    }
    const uint64_t took_us = delivered_us(node);
    if (took_us == UINT64_MAX) { /* not as many members delivered in time as must be honest */
        if (round->has_waited_in_vain) double_patience(node);
        return;
    }
    const uint64_t merged_us = round->results[round->self_part].announced_us;
    const bool is_merged = round->is_reduced && merged_us > round->intake_closed_us;
    learn_time(node, 2 * took_us + (is_merged ? merged_us - round->intake_closed_us : 0));
}

/* Learns from this round how long parts take. Patience doubles if live owners had too little time.
 * Two kinds of rounds teach nothing: a round without a contribution, which lasts as long as
 * patience; and a round that was already over when this node learned of it. */
static void learn_patience(struct tw_node *node, const struct tw_record *record) {
    if (record->parts_count == 0 || node->round.active_us == 0) return;
    if (record->contributors_count == 0 && !was_offered(node)) return;
    const bool is_any = do_all_teach(node);
    const uint32_t liars =
        is_any ? tw_liars_max(node->roster.count) : tw_membership_liars_max(node);
    const uint64_t now_us = node->now_us, began_us = node->round.active_us;
    if (count_late(node, record) > liars) {
        double_patience(node);
    } else if (liars > 0 || !is_any) {
        learn_delivery(node);
    } else {
        learn_time(node, now_us > began_us ? now_us - began_us : 0);
    }
}

static void move_begin(struct tw_node *node, uint64_t round) {
    TW_ASSERT(round > node->log.begin);
    node->log.begin = round;
    node->log.is_begin_told = false;
}

void tw_log_commit(struct tw_node *node, const struct tw_record *record,
                   const struct tw_proof *proof) {
    TW_ASSERT(record->round == node->at.rounds);
    TW_ASSERT(tw_id_equal(&record->parent, &node->tip_digest));
    struct tw_record *entry = &node->log.records[record->round % TW_ROUNDS_KEPT];
    *entry = *record;
    node->log.proofs[record->round % TW_ROUNDS_KEPT] = node->at.tip_proof = *proof;
    if (node->at.rounds - node->log.begin >= TW_ROUNDS_KEPT)
        move_begin(node, node->at.rounds - TW_ROUNDS_KEPT + 1);
    node->log.was_refused[record->round % TW_ROUNDS_KEPT] = note_refused(node, entry);
    note_mixed(node, entry);
    note_deliveries(node, entry, proof);
    tw_crew_commit(node, entry);
    const bool is_listed = tw_account_commit(node, entry);
    tw_findings_note_stalls(node, entry);
    tw_lease_note_turns(node);
    learn_patience(node, entry);
    tw_findings_note_strikes(node, entry);
    tw_audit_note(node, entry);
    tw_audit_refused(node, entry);
    tw_round_note_missed(node, entry);
    const bool was_apart = tw_progress_is_apart(node);
    node->at.tip = *entry;
    node->at.has_tip = 1;
    /* From here on, this node's tokens stand for the tokens of all nodes. Earlier tokens that were
     * never listed must not be multiplied in this way. */
    if (!was_apart && tw_progress_is_apart(node) && !is_listed) tw_account_settle_clock(node);
    node->tip_digest = tw_record_digest(entry);
    node->at.rounds++;
    TW_ASSERT(node->at.rounds == node->at.tip.round + 1);
    TW_ASSERT(node->at.rounds - node->log.begin <= TW_ROUNDS_KEPT);
    tw_audit_choose(node, entry->round);
    tw_jury_choose(node, entry->round);
    node->pace.last_commit_us = node->now_us;
    node->pace.was_active = node->round.active_us != 0;
    node->lineage.majority_us = node->now_us;
    struct tw_action *report = tw_act_body(node, TW_ACT_REPORT);
    report->u.report.kind = TW_REPORT_ROUND_COMMITTED;
    report->u.report.reason = TW_OK;
    report->u.report.state = node->state;
    report->u.report.id = node->tip_digest;
    report->u.report.record = entry;
    node->log.is_reported = true;
    if (TW_IS_MUTANT(node, TW_MUTANT_WRONG_ROSTER) && node->roster.count > 1)
        tw_round_open(node);
    else
        tw_round_set_roster(node, &entry->next);
    tw_log_clock(node);
    node->status_us = 0; /* announce at once that we are at the next round */
}

static void request_log(struct tw_node *node, uint16_t peer, uint64_t round) {
    TW_ASSERT(round <= ROUNDS_MAX);
    struct link *link = &node->links[peer];
    if (!link->is_up) return;
    if (link->log_asked_us != 0 && node->now_us < link->log_asked_us + ASK_US) {
        tw_act_wake(node, link->log_asked_us + ASK_US);
        return;
    }
    struct tw_message *message = tw_act_message(node, TW_MSG_LOG_GET);
    if (message == NULL) return;
    link->log_asked_us = node->now_us;
    message->u.log_get = (struct tw_msg_log_get){.lineage = node->at.lineage, .round = round};
    tw_act_send(node, message, peer);
}

/* True if `count` members that say the same include one that does not lie. A node that sees fewer
 * trusts nobody's word: it founds a child lineage, and follows the other members by proof
 * (claim.c). */
static bool is_word_of_enough(const struct tw_node *node, uint32_t count) {
    if (TW_IS_MUTANT(node, TW_MUTANT_ONE_LOG) || node->roster.count == 0) return count > 0;
    return count > tw_membership_liars_max(node);
}

/* True if enough members of the known roster say that this record is the newest one: its sender,
 * and those whose STATUS names it. */
static bool is_tip_vouched(const struct tw_node *node, uint16_t peer, const struct tw_id *digest) {
    uint32_t count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const bool is_member = node->roster.count == 0 || tw_membership_voter(node, i) >= 0;
        count += is_member && tw_peers_is_donor(node, i) &&
                 (i == peer || tw_id_equal(&node->links[i].status.tip, digest));
    }
    return is_word_of_enough(node, count);
}

void tw_log_adopt_tip(struct tw_node *node, const struct tw_record *tip,
                      const struct tw_proof *proof) {
    node->lineage.needs_tip = false;
    tw_log_begin_at(node, tip, proof);
    node->pace.last_commit_us = node->now_us;
    node->pace.was_active = false;
    const struct tw_roster none = {.count = 0};
    const bool is_ours = tw_id_equal(&tip->lineage, &node->at.lineage);
    tw_round_set_roster(node, is_ours ? &tip->next : &none);
    tw_log_clock(node);
    node->status_us = 0;
}

static bool is_proven(const struct tw_node *node, const struct tw_msg_commit *commit) {
    const bool is_early = TW_IS_MUTANT(node, TW_MUTANT_PHASE_IGNORED);
    return TW_IS_MUTANT(node, TW_MUTANT_UNPROVEN_COMMIT) ||
           (is_early &&
            tw_vote_proof_holds(node, TW_VOTE_ACCEPT, &commit->record, &commit->proof)) ||
           tw_vote_proof_holds(node, TW_VOTE_COMMIT, &commit->record, &commit->proof);
}

/* Takes over the newest record of a lineage that this node begins to follow, if it is one. */
static enum tw_drop receive_tip(struct tw_node *node, uint16_t peer,
                                const struct tw_msg_commit *commit) {
    const struct tw_record *record = &commit->record;
    const bool is_in_turn = record->fragment == tw_progress_fragment(node, record->round) ||
                            (node->cfg.is_pair && record->fragment < node->cfg.fragments_count);
    if (record->round >= ROUNDS_MAX || !is_in_turn) return TW_DROP_IMPOSSIBLE;
    if (record->round < node->at.rounds)
        return TW_DROP_OLD_ROUND; /* an answer to an old request, not the newest record */
    /* The tip of a fresh child lineage is still a record of its parent, so the digest decides. */
    const struct tw_id digest = tw_record_digest(record);
    if (!tw_peers_is_donor(node, peer)) return TW_DROP_UNASKED;
    if (!tw_id_equal(&digest, &node->links[peer].status.tip) &&
        !tw_id_equal(&record->lineage, &node->at.lineage))
        return TW_DROP_OTHER_LINEAGE;
    if (node->roster.count > 0 && !is_tip_vouched(node, peer, &digest)) return TW_DROP_UNCONFIRMED;
    tw_log_adopt_tip(node, record, &commit->proof);
    return TW_DROP_NONE;
}

enum tw_drop tw_log_received(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_commit *commit) {
    const struct tw_record *record = &commit->record;
    if (node->worker.is_solo_pending)
        return TW_DROP_BUSY; /* a solo round is under way, and only this node decides it */
    if (node->lineage.needs_tip) return receive_tip(node, peer, commit);
    if (node->cfg.is_pair) return TW_DROP_OTHER_RUN;
    if (!tw_id_equal(&record->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (record->round > node->at.rounds) {
        request_log(node, peer, node->at.rounds);
        return TW_DROP_ROUND_TO_COME;
    }
    if (record->round + 1 == node->at.rounds) tw_evidence_fork(node, commit);
    if (record->round < node->at.rounds) return TW_DROP_OLD_ROUND;
    /* A record of another history is no forgery: its sender may itself be the victim of a lie. */
    if (!tw_id_equal(&record->parent, &node->tip_digest)) return TW_DROP_OTHER_HISTORY;
    if (record->fragment != tw_progress_fragment(node, record->round) ||
        (node->roster.count > 0 &&
         (!tw_record_is_sound(node, record) || !is_proven(node, commit)))) {
        tw_act_report(node, TW_REPORT_FORGED, &node->links[peer].id);
        tw_act_close(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    node->links[peer].log_asked_us = 0;
    tw_log_commit(node, record, &commit->proof);
    return TW_DROP_NONE;
}

/* Returns the oldest round that this node serves to others. The record with which it adopted the
 * lineage is unchecked (claim.c). If that record were false, others would take this node for the
 * liar. */
static uint64_t oldest_given(const struct tw_node *node) {
    const bool may_lie = tw_membership_liars_max(node) > 0;
    return node->log.begin + (node->log.is_begin_told && may_lie);
}

enum tw_drop tw_log_get(struct tw_node *node, uint16_t peer, const struct tw_msg_log_get *get) {
    const uint64_t oldest = oldest_given(node);
    if (!tw_id_equal(&get->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (node->lineage.needs_tip || oldest >= node->at.rounds) return TW_DROP_NOT_READY;
    if (get->round >= node->at.rounds) return TW_DROP_ROUND_TO_COME;
    if (get->round < oldest) {
        struct tw_message *message = tw_act_message(node, TW_MSG_LOG_NONE);
        if (message == NULL) return TW_DROP_NONE;
        message->u.log_none = (struct tw_msg_log_none){
            .lineage = node->at.lineage, .oldest_round = oldest, .rounds = node->at.rounds};
        tw_act_send(node, message, peer);
        return TW_DROP_NONE;
    }
    for (uint32_t i = 0; i < LOG_PER_REPLY_MAX && get->round + i < node->at.rounds; i++) {
        struct tw_message *message = tw_act_message(node, TW_MSG_COMMIT);
        if (message == NULL) return TW_DROP_NONE;
        message->u.commit.record = *tw_progress_record(node, get->round + i);
        message->u.commit.proof = node->log.proofs[(get->round + i) % TW_ROUNDS_KEPT];
        tw_act_send(node, message, peer);
    }
    return TW_DROP_NONE;
}

/* Answers a message of an old round with records, because its sender has missed a round. An
 * attacker gains nothing by this: LOG_GET returns the same records. */
static void tell_late(struct tw_node *node, uint16_t peer, uint64_t round) {
    struct link *link = &node->links[peer];
    const bool is_member = tw_roster_find(&node->roster, &link->id) >= 0;
    if (!is_member && !tw_peers_in_lineage(node, peer)) return;
    if (link->log_told_us != 0 && node->now_us < link->log_told_us + ASK_US) return;
    link->log_told_us = node->now_us;
    const struct tw_msg_log_get get = {.lineage = node->at.lineage, .round = round};
    (void)tw_log_get(node, peer, &get);
}

enum tw_drop tw_log_is_at(struct tw_node *node, uint16_t peer, const struct tw_id *lineage,
                          uint64_t round) {
    if (!tw_id_equal(lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (node->lineage.needs_tip) return TW_DROP_NOT_READY;
    if (round == node->at.rounds) return TW_DROP_NONE;
    if (round > node->at.rounds) {
        request_log(node, peer, node->at.rounds);
        return TW_DROP_ROUND_TO_COME;
    }
    tell_late(node, peer, round);
    return TW_DROP_OLD_ROUND;
}

enum tw_drop tw_log_none(struct tw_node *node, uint16_t peer, const struct tw_msg_log_none *none) {
    if (node->cfg.is_pair)
        return TW_DROP_OTHER_RUN; /* no other node has our rounds: there is no log to ask for */
    if (!tw_id_equal(&none->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (node->lineage.needs_tip || !tw_peers_is_donor(node, peer)) return TW_DROP_UNASKED;
    if (none->oldest_round <= node->at.rounds) return TW_DROP_OLD_ROUND;
    node->links[peer].log_begin = none->oldest_round;
    for (uint16_t i = 0; i < node->links_end; i++) {
        /* The peer's log may be short because it joined late: others may have the missing rounds.
         */
        if (tw_peers_is_donor(node, i) && node->links[i].status.rounds > node->at.rounds &&
            node->links[i].log_begin <= node->at.rounds)
            return TW_DROP_NONE;
    }
    uint32_t short_count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const bool is_member = node->roster.count == 0 || tw_membership_voter(node, i) >= 0;
        short_count +=
            is_member && tw_peers_is_donor(node, i) && node->links[i].log_begin > node->at.rounds;
    }
    if (!is_word_of_enough(node, short_count)) return TW_DROP_UNCONFIRMED;
    /* Too far behind to replay: fetches the present state, and keeps our own work in theta. */
    node->lineage.needs_tip = true;
    node->lineage.moved_us = node->now_us;
    tw_account_settle_clock(node); /* skipped rounds may list us */
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        tw_state_refetch(node, p, TW_LOAD_SHIFT);
    tw_membership_derive_state(node);
    return TW_DROP_NONE;
}

/* True if the peer has decided another record of the last round: its proof may then name a liar. */
static bool is_forked(const struct tw_node *node, uint16_t peer) {
    const struct link *link = &node->links[peer];
    return !node->cfg.is_pair && node->at.rounds > 0 && link->status.rounds == node->at.rounds &&
           link->status.state != TW_STATE_RECEIVER && !tw_id_is_zero(&link->status.tip) &&
           !tw_id_equal(&link->status.tip, &node->tip_digest) &&
           (link->log_asked_us == 0 || node->now_us >= link->log_asked_us + FORK_ASK_US);
}

/* Asks peers for the missing part of the log. */
static void catch_up(struct tw_node *node) {
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!tw_peers_in_lineage(node, i)) continue;
        const struct tw_msg_status *status = &node->links[i].status;
        if (node->lineage.needs_tip) {
            if (status->state != TW_STATE_RECEIVER && status->rounds > 0 &&
                status->rounds >= node->at.rounds)
                request_log(node, i, status->rounds - 1);
        } else if (!node->cfg.is_pair && status->rounds > node->at.rounds &&
                   node->links[i].log_begin <= node->at.rounds) {
            request_log(node, i, node->at.rounds);
        } else if (is_forked(node, i)) {
            request_log(node, i, node->at.rounds - 1);
        }
    }
}

static bool has_results(struct tw_node *node, const struct tw_record *record,
                        const struct tw_action *division, bool *is_lost) {
    bool is_complete = true;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_part *part = &record->parts[k];
        if (part->bytes == 0) continue;
        /* Only the record of a round that this node did not check can contain such a size. */
        *is_lost |= !tw_payload_is_possible(node, TW_CONTENT_RESULT,
                                            division->u.apply.parts[k].count, part->bytes);
        if (*is_lost) return false;
        struct payload *payload =
            tw_payload_want_result(node, part, record->fragment, division->u.apply.parts[k].begin,
                                   division->u.apply.parts[k].count, tw_round_keep(node));
        if (payload == NULL) return false;
        tw_chunks_decided(node, payload);
        is_complete &= payload->state == PAYLOAD_HELD;
        *is_lost |=
            payload->state == PAYLOAD_HELD &&
            !tw_payload_is_as(node, payload, TW_CONTENT_RESULT, division->u.apply.parts[k].count);
        *is_lost |= tw_payload_is_lost(payload);
    }
    return is_complete;
}

/* Computes the range of each part of a committed round. Its owners' weights are in the roster of
 * the parent record, which may be known only from the log. */
static bool divide_parts(const struct tw_node *node, const struct tw_record *record,
                         struct tw_action *action) {
    const struct tw_record *parent =
        record->round > 0 ? tw_progress_record(node, record->round - 1) : NULL;
    if (parent == NULL) return false;
    uint32_t owners[TW_PARTS_MAX], weights[TW_PARTS_MAX];
    const uint32_t count = tw_roster_owners(&parent->next, owners);
    if (count != record->parts_count) return false;
    const int self = tw_roster_find(&parent->next, &node->cfg.self);
    const bool is_member = self >= 0 && parent->next.members[self].nonce == node->at.nonce;
    for (uint32_t k = 0; k < count; k++) weights[k] = parent->next.members[owners[k]].weight;
    for (uint32_t k = 0; k < count; k++) {
        struct tw_apply_part *part = &action->u.apply.parts[k];
        tw_layout_part(node->cfg.fragment_elements[record->fragment], weights, count, k,
                       &part->begin, &part->count);
        const bool is_ours = tw_crew_is_ours(node, record, k, is_member ? self : -1);
        part->mode = record->parts[k].bytes == 0 ? TW_APPLY_ABSENT
                     : is_ours                   ? TW_APPLY_MIX
                                                 : TW_APPLY_SHIFT;
        if (node->at.is_moving != 0 && part->mode != TW_APPLY_ABSENT) part->mode = TW_APPLY_STAY;
        if (TW_IS_MUTANT(node, TW_MUTANT_ABSENT_APPLIED) && part->mode == TW_APPLY_ABSENT)
            part->mode = TW_APPLY_SHIFT;
        if (TW_IS_MUTANT(node, TW_MUTANT_MIX_FOR_SHIFT) && part->mode == TW_APPLY_SHIFT)
            part->mode = TW_APPLY_MIX;
        if (part->mode != TW_APPLY_ABSENT) action->inputs[k] = record->parts[k].result;
        part->contributors = (uint32_t)__builtin_popcountll(record->parts[k].contributors);
    }
    return true;
}

/* Returns the inner steps in a round's Deltas: the mean over contributors, weighted by tokens. */
static uint32_t mean_steps(const struct tw_record *record) {
    enum { WEIGHT_BITS = 20 };
    uint64_t most = 0, weights = 0, steps = 0;
    uint32_t shift = 0;
    for (uint32_t i = 0; i < record->contributors_count; i++)
        if (record->contributors[i].fragment_tokens > most)
            most = record->contributors[i].fragment_tokens;
    while (most >> shift >> WEIGHT_BITS != 0) shift++;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const uint64_t weight = (record->contributors[i].fragment_tokens >> shift) + 1;
        weights += weight;
        steps += weight * record->contributors[i].fragment_steps;
    }
    return weights > 0 ? (uint32_t)((steps + weights / 2) / weights) : 0;
}

/* Reports results in a committed record that this node would not have accepted. */
static void report_outliers(struct tw_node *node, const struct tw_record *record,
                            const struct tw_action *division) {
    const struct tw_record *parent = tw_progress_record(node, record->round - 1);
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_part *part = &record->parts[k];
        if (part->bytes == 0 || part->owner_idx >= parent->next.count) continue;
        if (!tw_payload_is_refused(node, &part->result, division->u.apply.parts[k].count)) continue;
        tw_act_report(node, TW_REPORT_OUTLIER, &parent->next.members[part->owner_idx].id);
        tw_audit_doubt(node, record->round, k);
    }
}

static void request_apply(struct tw_node *node, const struct tw_record *record) {
    struct tw_action *action = tw_act_body(node, TW_ACT_APPLY);
    action->u.apply.round = record->round;
    action->u.apply.version = record->round / node->cfg.fragments_count;
    action->u.apply.fragment = record->fragment;
    action->u.apply.parts_count = record->parts_count;
    /* The parameters of a node that takes no steps are the anchor. */
    const bool is_anchor = record->finals > 0 || node->cfg.role != TW_NODE_ROLE_TRAIN;
    action->u.apply.is_final = is_anchor && node->at.is_moving == 0;
    action->u.apply.steps = mean_steps(record);
    action->u.apply.is_refused =
        record->round >= node->log.begin && node->log.was_refused[record->round % TW_ROUNDS_KEPT];
    action->u.apply.min_step = node->worker.last_send_step + tw_progress_overlap(node);
    if (record->parts_count > 0) {
        TW_ASSERT(divide_parts(node, record, action));
        report_outliers(node, record, action);
    }
    tw_fragment_set_add(&node->worker.applying, record->fragment);
}

void tw_log_applied(struct tw_node *node, const struct tw_event *event) {
    const uint32_t fragment = event->u.applied.fragment;
    TW_ASSERT(fragment < node->cfg.fragments_count);
    tw_fragment_set_remove(&node->worker.applying, fragment);
    node->worker.is_solo_pending = false;
    if (!event->ok) { /* the hashes are right, but the worker could not apply the round: fetch the
                         state from a peer */
        tw_state_refetch(node, fragment, TW_LOAD_SHIFT);
        return;
    }
    if (!TW_IS_MUTANT(node, TW_MUTANT_DOUBLE_APPLY) || node->roster.count < 2)
        node->at.fragment_rounds[fragment] = event->u.applied.rounds;
    node->at.fragment_digests[fragment] = event->u.applied.digest;
    tw_witness_remember(node, fragment);
    tw_state_loaded(node, fragment);
    node->exports[fragment].is_valid = false;
}

/* True if the results of the round are here, or partly here. */
static bool are_results_here(struct tw_node *node, const struct tw_record *record) {
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (record->parts[k].bytes == 0) continue;
        const struct payload *payload = tw_payload_find(node, &record->parts[k].result);
        if (payload == NULL || (payload->state == PAYLOAD_WANTED && payload->chunks_have == 0))
            return false;
    }
    return true;
}

/* Returns the oldest round that the fragment has to replay: on the state that it holds, or on the
 * one that is arriving. UINT64_MAX: none, or not known. */
static uint64_t first_replayed(const struct tw_node *node, uint32_t fragment) {
    const struct state_fetch *fetch = &node->fetch[fragment];
    if (node->at.fragment_rounds[fragment] != NOT_HELD) {
        const uint64_t due = tw_progress_due(node, fragment);
        const bool is_applying = due != UINT64_MAX && tw_progress_is_applying(node, fragment);
        return is_applying ? due + node->cfg.fragments_count : due;
    }
    if (!fetch->has_offer) return UINT64_MAX;
    return tw_progress_next(node, fragment, fetch->offer.rounds);
}

/* Fetches the results of all rounds that each fragment has to replay, and keeps those that it has.
 * A state may take longer than others keep the results: they are fetched while it arrives. */
static void fetch_results(struct tw_node *node) {
    const uint64_t kept_count = tw_round_keep(node) - node->at.rounds;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        uint64_t round = first_replayed(node, p);
        for (; round < node->at.rounds; round += node->cfg.fragments_count) {
            const struct tw_record *record = tw_progress_record(node, round);
            struct tw_action division;
            bool is_lost = false;
            if (record == NULL || record->parts_count == 0 ||
                !divide_parts(node, record, &division))
                continue;
            if (round + kept_count >= node->at.rounds || are_results_here(node, record))
                (void)has_results(node, record, &division, &is_lost);
        }
    }
}

void tw_log_advance(struct tw_node *node) {
    send_finish(node);
    catch_up(node);
    tw_state_check_end(node);
    if (node->lineage.needs_tip || !node->worker.is_up || node->lineage.is_settling) return;
    fetch_results(node);
    /* One round of each fragment is requested at a time, without waiting for a step boundary. A
     * slow worker seldom reaches one, and must apply all due rounds there at once to keep up. */
    uint64_t oldest = UINT64_MAX;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        const uint64_t due = tw_progress_due(node, p);
        if (due < oldest && !tw_progress_is_applying(node, p)) oldest = due;
    }
    if (oldest == UINT64_MAX || tw_crew_is_open(node, oldest)) return;
    const uint32_t fragment = tw_progress_fragment(node, oldest);
    const struct tw_record *record = tw_progress_record(node, oldest);
    /* No node keeps results for longer than this node does, so older ones are not requested. */
    const uint64_t kept_count = tw_round_keep(node) - node->at.rounds;
    bool is_lost = record == NULL ||
                   (oldest + kept_count < node->at.rounds && !are_results_here(node, record));
    struct tw_action division;
    if (record != NULL) {
        /* Without the roster of the round, its parts are not known. */
        is_lost |= !has_parts(record) ||
                   (record->parts_count > 0 && !divide_parts(node, record, &division));
    }
    if (!is_lost && has_results(node, record, &division, &is_lost)) {
        if (!tw_state_agrees(node, record)) return;
        request_apply(node, record);
        return;
    }
    if (is_lost) tw_state_refetch(node, fragment, TW_LOAD_SHIFT);
}
