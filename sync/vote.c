/* vote.c - one close manifest per round: single-decree Paxos among the roster.
 *
 * Acceptor, per round: promised ballot, accepted (ballot, manifest); durable before told. It
 * accepts a manifest only when it holds and has verified every result it names: a committed round
 * can be had from a majority. Closer: IDLE -> STORING (its own promise, so that no ballot is ever
 * used twice) -> PREPARING (ask a majority what they accepted) -> PROPOSING. The first closer in
 * hash order skips PREPARING at its first ballot, the lowest of the round, which nobody can have
 * accepted anything before. */
#include "sync/node_internal.h"

static uint32_t majority(const struct tw_node *node) {
    if (TW_PLANTED(node, TW_PLANT_HALF_QUORUM)) return (node->roster.count + 1) / 2;
    return node->roster.count / 2 + 1;
}

static uint32_t bits(uint64_t set) {
    return (uint32_t)__builtin_popcountll(set);
}

bool tw_node_is_voter(const struct tw_node *node) {
    return !node->has_left && !node->needs_tip && node->round.self_idx >= 0 &&
           node->at.rounds >= node->vote_floor && node->state != TW_STATE_FINISHED;
}

/* ---- durable ballots ------------------------------------------------------------------------ */

static uint64_t store(struct tw_node *node) {
    struct tw_action *action = tw_act_body(node, TW_ACT_STORE_VOTE);
    action->u.store.seq = ++node->store_seq;
    action->u.store.vote = &node->vote;
    return node->store_seq;
}

void tw_vote_reset(struct tw_node *node) {
    node->vote.lineage = node->at.lineage;
    node->vote.nonce = node->at.nonce;
    node->vote.round = 0;
    node->vote.promised = 0;
    node->vote.accepted_ballot = 0;
    node->vote.has_accepted = 0;
    node->vote_floor = 0;
    node->replies_count = 0;
    node->nonce_seq = store(node);
}

/* Makes the vote be about the open round; older rounds are decided and need no memory. */
static void turn_to_round(struct tw_node *node) {
    if (node->vote.round == node->at.rounds) return;
    node->vote.round = node->at.rounds;
    node->vote.promised = 0;
    node->vote.accepted_ballot = 0;
    node->vote.has_accepted = 0;
    node->replies_count = 0;
}

bool tw_vote_has_nonce(struct tw_node *node) {
    if (node->stored_seq >= node->nonce_seq) return true;
    if (node->store_failed_us == 0) return false; /* on its way */
    if (node->now_us < node->store_failed_us + RETRY_US) {
        tw_node_wake(node, node->store_failed_us + RETRY_US);
        return false;
    }
    node->store_failed_us = 0;
    node->nonce_seq = store(node);
    return false;
}

static void reply_later(struct tw_node *node, enum reply_kind kind, uint16_t peer,
                        uint64_t ballot) {
    const uint64_t seq = store(node);
    /* Full: the oldest asker repeats itself. */
    if (node->replies_count == REPLIES_MAX) {
        for (uint32_t i = 1; i < node->replies_count; i++) node->replies[i - 1] = node->replies[i];
        node->replies_count--;
    }
    struct reply *reply = &node->replies[node->replies_count++];
    *reply = (struct reply){.kind = kind, .to_self = peer == NO_PEER, .ballot = ballot, .seq = seq};
    if (peer != NO_PEER) reply->to = node->links[peer].id;
    if (TW_PLANTED(node, TW_PLANT_LOST_ACK)) tw_vote_stored(node, seq, true);
}

static void send_reply(struct tw_node *node, const struct reply *reply) {
    const uint16_t peer = reply->to_self ? NO_PEER : tw_peers_find(node, &reply->to);
    if (!reply->to_self && peer == NO_PEER) return;
    if (reply->kind == REPLY_PROMISE) {
        struct tw_msg_promise promise = {.lineage = node->vote.lineage,
                                         .round = node->vote.round,
                                         .ballot = reply->ballot,
                                         .has_accepted = node->vote.has_accepted,
                                         .accepted_ballot = node->vote.accepted_ballot};
        if (promise.has_accepted != 0) promise.accepted = node->vote.accepted;
        if (reply->to_self) {
            tw_vote_promise(node, NO_PEER, &promise);
            return;
        }
        struct tw_message *message = tw_act_message(node, TW_MSG_PROMISE);
        if (message == NULL) return;
        message->u.promise = promise;
        tw_act_send(node, message, peer);
        return;
    }
    const struct tw_msg_accept accept = {.lineage = node->vote.lineage,
                                         .round = node->vote.round,
                                         .ballot = reply->ballot,
                                         .digest = tw_close_digest(&node->vote.accepted)};
    if (reply->to_self) {
        tw_vote_accept(node, NO_PEER, &accept);
        return;
    }
    struct tw_message *message = tw_act_message(node, TW_MSG_ACCEPT);
    if (message == NULL) return;
    message->u.accept = accept;
    tw_act_send(node, message, peer);
}

void tw_vote_stored(struct tw_node *node, uint64_t seq, bool ok) {
    if (!ok) { /* what the disk holds is unknown: say nothing, ask again later */
        node->replies_count = 0;
        node->store_failed_us = node->now_us;
        return;
    }
    if (seq > node->stored_seq) node->stored_seq = seq;
    while (node->replies_count > 0 && node->replies[0].seq <= node->stored_seq) {
        const struct reply reply = node->replies[0];
        node->replies_count--;
        for (uint32_t i = 0; i < node->replies_count; i++) node->replies[i] = node->replies[i + 1];
        /* A later promise may have overtaken this one: then it is no longer true. */
        const bool is_true =
            reply.kind == REPLY_PROMISE
                ? reply.ballot == node->vote.promised
                : node->vote.has_accepted != 0 && reply.ballot == node->vote.accepted_ballot;
        if (is_true && node->vote.round == node->at.rounds) send_reply(node, &reply);
    }
}

/* ---- acceptor ------------------------------------------------------------------------------- */

static void nack(struct tw_node *node, uint16_t peer) {
    if (peer == NO_PEER) return;
    struct tw_message *message = tw_act_message(node, TW_MSG_NACK);
    if (message == NULL) return;
    message->u.nack = (struct tw_msg_nack){
        .lineage = node->at.lineage, .round = node->at.rounds, .promised = node->vote.promised};
    tw_act_send(node, message, peer);
}

/* A ballot names its closer, so that no two ever use the same one, and follows those before it. */
static bool is_ballot_of(const struct tw_node *node, uint16_t peer, uint64_t ballot) {
    const struct round *round = &node->round;
    const uint64_t rank = ballot == 1 ? 0 : ballot % TW_MEMBERS_MAX;
    if (ballot == 0 || (ballot > 1 && ballot < TW_MEMBERS_MAX)) return false;
    if (ballot > node->vote.promised && ballot - node->vote.promised > BALLOT_LEAP_MAX)
        return false;
    return rank < node->roster.count &&
           tw_id_equal(&node->roster.members[round->rank[rank]].id, &node->links[peer].id);
}

void tw_vote_prepare(struct tw_node *node, uint16_t peer, const struct tw_msg_prepare *prepare) {
    if (!tw_log_is_at(node, peer, &prepare->lineage, prepare->round)) return;
    if (!tw_node_is_voter(node)) return;
    if (tw_roster_find(&node->roster, &node->links[peer].id) < 0) return;
    turn_to_round(node);
    if (!is_ballot_of(node, peer, prepare->ballot)) return;
    tw_round_touch(node);
    if (prepare->ballot <= node->vote.promised && !TW_PLANTED(node, TW_PLANT_STALE_PROMISE)) {
        nack(node, peer);
        return;
    }
    node->vote.promised = prepare->ballot;
    reply_later(node, REPLY_PROMISE, peer, prepare->ballot);
}

/* Could an honest closer have proposed this for the open round? */
bool tw_vote_is_sound(const struct tw_node *node, const struct tw_close *close) {
    const struct tw_close *tip = node->at.has_tip != 0 ? &node->at.tip : NULL;
    uint64_t clock_tokens = tip != NULL ? tip->clock_tokens : 0, contributors = 0;
    const uint32_t finals = tw_round_is_final(node) ? tip->finals + 1 : 0;
    for (uint32_t i = 0; i < close->contributors_count; i++) {
        const struct tw_contributor *by = &close->contributors[i];
        if (by->member_idx >= node->roster.count || by->tokens > TOKENS_MAX) return false;
        contributors |= UINT64_C(1) << by->member_idx;
        clock_tokens += by->tokens * tw_round_share(node);
    }
    for (uint32_t k = 0; k < close->parts_count; k++) {
        if (close->parts[k].owner_idx != node->round.owners[k]) return false;
        if ((close->parts[k].contributors & ~contributors) != 0) return false;
        if (close->parts[k].bytes > 0 && node->round.count[k] == 0) return false;
    }
    const bool has_parts = close->parts_count == node->round.owners_count;
    const bool is_solo = node->roster.count == 1 && close->parts_count == 0;
    const bool has_none = close->parts_count == 0 && close->contributors_count == 0;
    uint32_t owners[TW_PARTS_MAX];
    if (tw_roster_owners(&close->next, owners) == 0) return false;
    return tw_id_equal(&close->lineage, &node->at.lineage) &&
           tw_id_equal(&close->parent, &node->tip_digest) && close->round == node->at.rounds &&
           close->fragment == tw_round_fragment(node, close->round) &&
           close->roster_number == node->roster.number && close->clock_tokens == clock_tokens &&
           close->finals == finals && (has_parts || has_none || is_solo);
}

/* Does it name the contributions this node has heard of? Only asked of a round's first ballot: a
 * member that restarts contributes anew, and what a majority may have accepted before must still
 * be carried through by later ballots. */
static bool is_as_heard(const struct tw_node *node, const struct tw_close *close) {
    for (uint32_t i = 0; i < close->contributors_count; i++) {
        const struct tw_contributor *by = &close->contributors[i];
        const struct contribution *heard = &node->round.contributions[by->member_idx];
        if (!heard->has || heard->is_absent) continue;
        const struct tw_id root = tw_contribution_root(heard->said.hashes, heard->said.parts_count);
        if (!tw_id_equal(&root, &by->root)) return false;
    }
    return true;
}

void tw_vote_propose(struct tw_node *node, uint16_t peer, const struct tw_msg_propose *propose) {
    struct round *round = &node->round;
    if (peer != NO_PEER && !tw_log_is_at(node, peer, &propose->close.lineage, propose->close.round))
        return;
    if (!tw_node_is_voter(node)) return;
    if (peer != NO_PEER && tw_roster_find(&node->roster, &node->links[peer].id) < 0) return;
    turn_to_round(node);
    if (peer != NO_PEER && !is_ballot_of(node, peer, propose->ballot)) return;
    tw_round_touch(node);
    if (propose->ballot < node->vote.promised && !TW_PLANTED(node, TW_PLANT_BALLOT_IGNORED)) {
        nack(node, peer);
        return;
    }
    if (!tw_vote_is_sound(node, &propose->close)) {
        if (peer != NO_PEER) tw_act_report(node, TW_REPORT_MISBEHAVED, &node->links[peer].id);
        return;
    }
    /* No fault of the closer's: a contributor that was restarted contributes anew. */
    if (propose->ballot == 1 && !is_as_heard(node, &propose->close)) return;
    if (round->has_offer && round->offer_ballot > propose->ballot) return;
    round->has_offer = true;
    round->offer_from = peer;
    round->offer_ballot = propose->ballot;
    round->offer = propose->close;
}

/* Every result in the offer is here and verified; what is missing is asked for. */
static bool is_offer_complete(struct tw_node *node) {
    struct round *round = &node->round;
    bool is_complete = true;
    for (uint32_t k = 0; k < round->offer.parts_count; k++) {
        const struct tw_part *part = &round->offer.parts[k];
        if (part->bytes == 0) continue;
        struct payload *payload = tw_payload_want_result(node, part, round->offer.fragment,
                                                         round->begin[k], round->count[k]);
        is_complete &= payload != NULL && payload->state == PAYLOAD_HELD &&
                       payload->bytes == part->bytes &&
                       tw_payload_is_as(node, payload, TW_CONTENT_RESULT, round->count[k]);
        if (payload == NULL) continue;
        round->is_lost |= payload->state == PAYLOAD_WANTED && payload->cycles > LOST_CYCLES;
        payload->from = node->roster.members[part->owner_idx].id;
    }
    return is_complete;
}

/* It was accepted before, or is ours to carry on: to be accepted whatever its results are. */
static bool is_offer_settled(const struct tw_node *node) {
    const struct round *round = &node->round;
    if (round->offer_from == NO_PEER && round->has_best && round->offer_ballot == round->ballot)
        return true;
    if (node->vote.has_accepted == 0 || node->vote.round != node->at.rounds) return false;
    const struct tw_id before = tw_close_digest(&node->vote.accepted);
    const struct tw_id now = tw_close_digest(&round->offer);
    return tw_id_equal(&before, &now);
}

/* Accepts the offer once every result in it is here and verified. */
static void consider_offer(struct tw_node *node) {
    struct round *round = &node->round;
    round->is_lost = false;
    if (!round->has_offer) return;
    const bool is_complete = is_offer_complete(node), is_settled = is_offer_settled(node);
    const uint32_t refused = is_settled ? 0 : tw_refuse_find(node, &round->offer);
    if (refused != 0) {
        tw_refuse_offer(node, refused);
        return;
    }
    if (!is_complete) return;
    round->has_offer = false;
    /* One ballot, one manifest: a closer that says two things is a liar. */
    if (!is_settled && node->vote.has_accepted != 0 && node->vote.round == node->at.rounds &&
        round->offer_ballot == node->vote.accepted_ballot)
        return;
    if (round->offer_ballot < node->vote.promised && !TW_PLANTED(node, TW_PLANT_BALLOT_IGNORED)) {
        nack(node, round->offer_from);
        return;
    }
    node->vote.promised = round->offer_ballot;
    node->vote.accepted_ballot = round->offer_ballot;
    node->vote.has_accepted = 1;
    node->vote.accepted = round->offer;
    reply_later(node, REPLY_ACCEPT, round->offer_from, round->offer_ballot);
}

/* ---- closer --------------------------------------------------------------------------------- */

static int sender_idx(const struct tw_node *node, uint16_t peer) {
    if (peer == NO_PEER) return node->round.self_idx;
    return tw_roster_find(&node->roster, &node->links[peer].id);
}

static bool is_silent(const struct tw_node *node, uint32_t idx) {
    return (int)idx != node->round.self_idx &&
           (node->member_left[idx] || node->now_us - node->member_seen_us[idx] > MEMBER_DEAD_US);
}

/* How long a member keeps its seat while it fetches (phi, u). To get a new one it would have to be
 * at the newest round with everything applied, which on a full link takes longer than the fetch.
 * Nobody waits for it, so the seat costs nothing while the others are a majority without it; else
 * rounds would go at the pace of its link. And who cannot fetch cannot vote either: a seat that
 * stays silent for good brings the group closer to having no majority, so there is an end. */
static uint64_t receiver_seat_us(const struct tw_node *node) {
    uint32_t seats_count = 0, live_count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (is_silent(node, i)) continue;
        seats_count++;
        live_count += tw_peers_member_live(node, i);
    }
    return live_count > seats_count / 2 ? node->cfg.orphan_us : MEMBER_DEAD_US;
}

/* Whole, as far as we know: to be trusted with a part. */
static bool can_own(const struct tw_node *node, uint32_t idx) {
    if ((int)idx == node->round.self_idx) return node->state != TW_STATE_RECEIVER;
    if (tw_strike_is(node, &node->roster.members[idx].id)) return false;
    return tw_peers_member_live(node, idx);
}

/* The next roster: who is here or was lately, and who asks to come in. */
static void next_roster(struct tw_node *node, const struct tw_close *close,
                        struct tw_roster *next) {
    const uint64_t seat_us = receiver_seat_us(node);
    uint64_t contributed = 0, absent = 0;
    bool is_changed = false;
    next->count = 0;
    for (uint32_t k = 0; k < close->parts_count; k++) {
        if (close->parts[k].bytes == 0 && node->round.count[k] > 0)
            absent |= UINT64_C(1) << close->parts[k].owner_idx;
    }
    for (uint32_t i = 0; i < close->contributors_count; i++)
        contributed |= UINT64_C(1) << close->contributors[i].member_idx;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        struct tw_member member = node->roster.members[i];
        const bool is_gone =
            is_silent(node, i) ||
            ((int)i != node->round.self_idx && node->now_us - node->member_live_us[i] > seat_us);
        is_changed |= is_gone;
        if (is_gone) continue;
        /* Who met the deadline owns a part next time; if nobody did, everybody may try. */
        const bool is_in_time = contributed == 0 || ((contributed & ~absent) >> i & 1) != 0;
        member.weight = is_in_time && can_own(node, i) ? 1 : 0;
        next->members[next->count++] = member;
    }
    for (uint32_t j = 0; j < JOINS_MAX; j++) {
        const struct tw_msg_join *join = &node->joins[j].said;
        if (node->joins[j].heard_us == 0 || node->now_us - node->joins[j].heard_us > JOIN_VALID_US)
            continue;
        if (!tw_id_equal(&join->lineage, &node->at.lineage) || join->rounds != node->at.rounds)
            continue;
        const int idx = tw_roster_find(next, &node->joins[j].id);
        if (idx >= 0 && next->members[idx].nonce == join->nonce) continue;
        is_changed = true;
        if (idx >= 0) { /* the same node without its memory: a new member under the old id */
            next->members[idx].nonce = join->nonce;
            next->members[idx].weight = 0;
            continue;
        }
        if (next->count >= node->cfg.members_max || next->count >= TW_MEMBERS_MAX) continue;
        uint32_t at = next->count++;
        for (; at > 0 && tw_id_compare(&next->members[at - 1].id, &node->joins[j].id) > 0; at--)
            next->members[at] = next->members[at - 1];
        next->members[at] =
            (struct tw_member){.id = node->joins[j].id, .nonce = join->nonce, .weight = 0};
    }
    bool has_owner = false;
    for (uint32_t i = 0; i < next->count; i++) has_owner |= next->members[i].weight > 0;
    for (uint32_t i = 0; i < next->count && !has_owner; i++) next->members[i].weight = 1;
    tw_share_weigh(node, next);
    next->number = node->roster.number + (is_changed ? 1 : 0);
}

static void add_contributors(const struct tw_node *node, struct tw_close *close,
                             const struct tw_msg_result *result) {
    for (uint32_t i = 0; i < result->contributors_count; i++) {
        const struct tw_contributor *by = &result->contributors[i];
        uint32_t at = 0;
        while (at < close->contributors_count &&
               close->contributors[at].member_idx < by->member_idx)
            at++;
        if (at < close->contributors_count &&
            close->contributors[at].member_idx == by->member_idx &&
            !TW_PLANTED(node, TW_PLANT_LISTED_TWICE))
            continue;
        for (uint32_t j = close->contributors_count++; j > at; j--)
            close->contributors[j] = close->contributors[j - 1];
        close->contributors[at] = *by;
    }
}

/* Results that are here and that we do not take are left out from the start. */
static void leave_out(struct tw_node *node) {
    struct round *round = &node->round;
    struct tw_close *heard = &round->proposal; /* overwritten by what is written next */
    heard->parts_count = round->owners_count;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        heard->parts[k] = (struct tw_part){.owner_idx = round->owners[k]};
        if (!round->results[k].has) continue;
        heard->parts[k].bytes = round->results[k].said.bytes;
        heard->parts[k].result = round->results[k].said.hash;
    }
    round->left_out |= tw_refuse_find(node, heard);
}

static void write_proposal(struct tw_node *node, struct tw_close *close) {
    const struct round *round = &node->round;
    const struct tw_close *tip = node->at.has_tip != 0 ? &node->at.tip : NULL;
    close->lineage = node->at.lineage;
    close->parent = node->tip_digest;
    close->round = node->at.rounds;
    close->fragment = tw_round_fragment(node, node->at.rounds);
    close->roster_number = node->roster.number;
    close->finals = tw_round_is_final(node) ? tip->finals + 1 : 0;
    close->contributors_count = 0;
    close->parts_count = node->roster.count == 1 ? 0 : round->owners_count;
    for (uint32_t k = 0; k < close->parts_count; k++) {
        struct tw_part *part = &close->parts[k];
        *part = (struct tw_part){.owner_idx = round->owners[k]};
        const struct tw_msg_result *result = &round->results[k].said;
        if (!round->results[k].has || result->bytes == 0) continue;
        /* Announced by an owner that died before we had it: nobody could accept it. */
        if (!tw_payload_is_held(node, &result->hash) &&
            !tw_peers_member_live(node, round->owners[k]))
            continue;
        if ((round->left_out >> k & 1) != 0) continue;
        part->bytes = result->bytes;
        part->result = result->hash;
        for (uint32_t i = 0; i < result->contributors_count; i++)
            part->contributors |= UINT64_C(1) << result->contributors[i].member_idx;
        add_contributors(node, close, result);
    }
    close->clock_tokens = tip != NULL ? tip->clock_tokens : 0;
    for (uint32_t i = 0; i < close->contributors_count; i++)
        close->clock_tokens += close->contributors[i].tokens;
    next_roster(node, close, &close->next);
}

static void start_proposing(struct tw_node *node) {
    struct round *round = &node->round;
    round->phase = CLOSER_PROPOSING;
    round->phase_us = node->now_us;
    round->accepted_by = 0;
    if (round->has_best && !TW_PLANTED(node, TW_PLANT_OTHER_VALUE)) {
        round->proposal = round->best;
    } else {
        leave_out(node);
        write_proposal(node, &round->proposal);
    }
    struct tw_msg_propose *propose = &(struct tw_msg_propose){.ballot = round->ballot};
    propose->close = round->proposal;
    tw_vote_propose(node, NO_PEER, propose);
}

/* A majority has promised: what to propose is known, or more promises will tell. */
static void consider_promises(struct tw_node *node) {
    struct round *round = &node->round;
    bool is_open = false;
    if (round->phase != CLOSER_PREPARING || bits(round->promised_by) < majority(node)) return;
    if (round->has_best) round->has_best = tw_refuse_must_carry(node, &is_open) || is_open;
    if (!is_open) start_proposing(node);
}

static void start_ballot(struct tw_node *node) {
    struct round *round = &node->round;
    turn_to_round(node);
    const uint64_t attempts = node->vote.promised / TW_MEMBERS_MAX;
    const uint64_t rank = (uint64_t)round->self_rank;
    round->ballot =
        rank == 0 && node->vote.promised == 0 ? 1 : (attempts + 1) * TW_MEMBERS_MAX + rank;
    TW_ASSERT(round->ballot > node->vote.promised);
    node->vote.promised = round->ballot;
    round->ballot_seq = store(node);
    round->phase = CLOSER_STORING;
    round->phase_us = node->now_us;
    round->promised_by = 0;
    round->has_best = false;
    round->attempt++;
}

void tw_vote_promise(struct tw_node *node, uint16_t peer, const struct tw_msg_promise *promise) {
    struct round *round = &node->round;
    if (!tw_id_equal(&promise->lineage, &node->at.lineage)) return;
    if (promise->round != node->at.rounds || round->phase != CLOSER_PREPARING) return;
    const int idx = sender_idx(node, peer);
    if (idx < 0 || promise->ballot != round->ballot) return;
    if (promise->has_accepted != 0 && promise->accepted_ballot >= promise->ballot) return;
    if (promise->has_accepted != 0 && !tw_vote_is_sound(node, &promise->accepted)) return;
    round->promised_by |= UINT64_C(1) << idx;
    round->promised_digest[idx] = (struct tw_id){{0}};
    if (promise->has_accepted != 0)
        round->promised_digest[idx] = tw_close_digest(&promise->accepted);
    if (promise->has_accepted != 0 &&
        (!round->has_best || promise->accepted_ballot > round->best_ballot)) {
        round->has_best = true;
        round->best_ballot = promise->accepted_ballot;
        round->best = promise->accepted;
    }
    consider_promises(node);
}

void tw_vote_accept(struct tw_node *node, uint16_t peer, const struct tw_msg_accept *accept) {
    struct round *round = &node->round;
    if (!tw_id_equal(&accept->lineage, &node->at.lineage)) return;
    if (accept->round != node->at.rounds || round->phase != CLOSER_PROPOSING) return;
    const int idx = sender_idx(node, peer);
    if (idx < 0 || accept->ballot != round->ballot) return;
    const struct tw_id digest = tw_close_digest(&round->proposal);
    if (!tw_id_equal(&digest, &accept->digest)) return;
    round->accepted_by |= UINT64_C(1) << idx;
    if (bits(round->accepted_by) < majority(node)) return;
    struct tw_message *message = tw_act_message(node, TW_MSG_COMMIT);
    if (message != NULL) {
        message->u.commit.close = round->proposal;
        tw_peers_broadcast(node, message);
    }
    tw_log_commit(node, &node->round.proposal);
}

void tw_vote_nack(struct tw_node *node, uint16_t peer, const struct tw_msg_nack *nack_said) {
    struct round *round = &node->round;
    if (!tw_id_equal(&nack_said->lineage, &node->at.lineage)) return;
    if (nack_said->round != node->at.rounds || round->phase == CLOSER_IDLE) return;
    const int idx = sender_idx(node, peer);
    if (idx >= 0 && nack_said->promised == round->ballot && nack_said->refused_parts != 0)
        tw_refuse_heard(node, (uint32_t)idx, nack_said->refused_parts);
    if (nack_said->promised <= round->ballot || idx < 0) return;
    if (nack_said->promised - round->ballot > BALLOT_LEAP_MAX) return;
    /* Somebody is ahead: let them finish, then try above them. */
    turn_to_round(node);
    if (node->vote.promised < nack_said->promised) node->vote.promised = nack_said->promised;
    round->phase = CLOSER_IDLE;
    const uint64_t wait_us = BALLOT_TIMEOUT_US << (round->attempt < 5 ? round->attempt : 5);
    round->retry_us = node->now_us + wait_us / 2 + tw_rng_below(&node->rng, wait_us);
}

/* Everything that can still come has come. */
static bool has_all_results(const struct tw_node *node) {
    const struct round *round = &node->round;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        if (round->count[k] == 0 || round->results[k].has) continue;
        if (tw_peers_member_live(node, round->owners[k])) return false;
    }
    return true;
}

/* All results are here and no closer has said a word about them: one that is linked, but cannot
 * write down its ballot (its disk is full), must not hold up the others for the whole patience. */
static bool is_closer_mute(struct tw_node *node) {
    struct round *round = &node->round;
    if (round->has_offer || (node->vote.round == node->at.rounds && node->vote.promised > 0))
        return false;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        if (round->count[k] > 0 && !round->results[k].has) return false;
    }
    if (round->results_us == 0) round->results_us = node->now_us;
    return true;
}

static bool is_my_turn(struct tw_node *node) {
    const struct round *round = &node->round;
    for (int rank = 0; rank < round->self_rank; rank++) {
        if (tw_peers_member_live(node, round->rank[rank]) &&
            !tw_refuse_is_passed(node, (uint32_t)rank) &&
            !tw_strike_is(node, &node->roster.members[round->rank[rank]].id))
            return false;
    }
    return true;
}

/* When this node, by its own watch, should try to close the round. */
static bool should_close(struct tw_node *node) {
    const struct round *round = &node->round;
    if (node->is_solo_pending) return false;
    if (node->roster.count == 1) {
        for (uint32_t j = 0; j < JOINS_MAX; j++) {
            if (node->joins[j].heard_us != 0 &&
                node->now_us - node->joins[j].heard_us <= JOIN_VALID_US &&
                node->joins[j].said.rounds == node->at.rounds &&
                tw_id_equal(&node->joins[j].said.lineage, &node->at.lineage))
                return true;
        }
        /* A manifest from before a restart that only we can finish. */
        return node->vote.has_accepted != 0 && node->vote.round == node->at.rounds;
    }
    if (round->active_us == 0) return false;
    if (node->now_us < round->retry_us) {
        tw_node_wake(node, round->retry_us);
        return false;
    }
    if (is_my_turn(node) && has_all_results(node)) return true;
    const uint64_t step_us = (uint64_t)round->self_rank * TAKEOVER_STEP_US;
    uint64_t late_us = round->active_us + 2 * node->patience_us + step_us;
    if (is_closer_mute(node) && round->results_us + step_us < late_us)
        late_us = round->results_us + step_us;
    if (node->now_us < late_us) tw_node_wake(node, late_us);
    return node->now_us >= late_us;
}

static void tell(struct tw_node *node) {
    const struct round *round = &node->round;
    struct tw_message *message = NULL;
    for (uint16_t i = 0; i < node->links_end; i++) {
        struct link *link = &node->links[i];
        if (!tw_peers_is_at_round(node, i)) continue;
        uint64_t *told =
            round->phase == CLOSER_PREPARING ? &link->told_prepare : &link->told_propose;
        /* Ballots repeat from round to round: the mark holds both. */
        const uint64_t mark = node->at.rounds * UINT64_C(0x100000) + round->ballot;
        if (*told == mark) continue;
        if (message == NULL && round->phase == CLOSER_PREPARING) {
            message = tw_act_message(node, TW_MSG_PREPARE);
            if (message == NULL) return;
            message->u.prepare = (struct tw_msg_prepare){
                .lineage = node->at.lineage, .round = node->at.rounds, .ballot = round->ballot};
        } else if (message == NULL) {
            message = tw_act_message(node, TW_MSG_PROPOSE);
            if (message == NULL) return;
            message->u.propose.ballot = round->ballot;
            message->u.propose.close = round->proposal;
        }
        tw_act_send(node, message, i);
        *told = mark;
    }
}

/* Our own promise, already on disk, unless a higher ballot was promised meanwhile. */
static void promise_self(struct tw_node *node) {
    if (node->vote.promised != node->round.ballot) return;
    struct tw_msg_promise own = {.lineage = node->at.lineage,
                                 .round = node->at.rounds,
                                 .ballot = node->round.ballot,
                                 .has_accepted = node->vote.has_accepted,
                                 .accepted_ballot = node->vote.accepted_ballot};
    if (own.has_accepted != 0) own.accepted = node->vote.accepted;
    tw_vote_promise(node, NO_PEER, &own);
}

/* A result in our own proposal died with its owner before we had it, or came and is one we do not
 * take: not even we can accept it. Another ballot leaves it out. A link that breaks for a moment is
 * no death. */
static bool is_hopeless(struct tw_node *node) {
    const struct round *round = &node->round;
    if (round->phase != CLOSER_PROPOSING || round->has_best) return false;
    if (tw_refuse_find(node, &round->proposal) != 0) return true;
    for (uint32_t k = 0; k < round->proposal.parts_count; k++) {
        const struct tw_part *part = &round->proposal.parts[k];
        if (part->bytes == 0 || tw_payload_is_held(node, &part->result) ||
            tw_peers_member_live(node, part->owner_idx))
            continue;
        const uint64_t dead_us = node->member_seen_us[part->owner_idx] + RETRY_US;
        if (node->now_us >= dead_us) return true;
        tw_node_wake(node, dead_us);
    }
    return false;
}

void tw_vote_advance(struct tw_node *node) {
    struct round *round = &node->round;
    if (!tw_node_is_voter(node)) return;
    if (is_hopeless(node)) round->phase = CLOSER_IDLE;
    if (round->phase == CLOSER_IDLE && should_close(node)) start_ballot(node);
    if (round->phase == CLOSER_STORING && node->stored_seq >= round->ballot_seq) {
        if (round->ballot == 1) {
            start_proposing(node);
        } else {
            round->phase = CLOSER_PREPARING;
            promise_self(node);
        }
    }
    consider_promises(node);
    consider_offer(node);
    if (round->phase == CLOSER_PREPARING || round->phase == CLOSER_PROPOSING) tell(node);
    if (round->phase == CLOSER_IDLE) return;
    const uint64_t timeout_us = (BALLOT_TIMEOUT_US << (round->attempt < 8 ? round->attempt : 8)) +
                                (round->phase == CLOSER_PROPOSING ? node->patience_us : 0);
    if (node->now_us < round->phase_us + timeout_us) {
        tw_node_wake(node, round->phase_us + timeout_us);
        return;
    }
    round->phase = CLOSER_IDLE;
    round->retry_us = node->now_us + tw_rng_below(&node->rng, timeout_us);
    tw_node_wake(node, round->retry_us);
}
