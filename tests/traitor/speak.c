/* speak.c - false messages that traitors send although no honest core sent any. */
#include <string.h>

#include "tests/traitor/coven.h"

/* ---- speaking ------------------------------------------------------------------------------- */

struct speech {
    struct tw_traitor *traitor;
    const struct tw_traitor_view *view;
    tw_traitor_say *say;
    void *context;
};

static void say_to(const struct speech *speech, const struct tw_id *to,
                   const struct tw_message *message) {
    struct tw_error err;
    if (tw_message_check(message, &err) == TW_OK) speech->say(speech->context, to, message);
}

static const struct tw_id *draw_peer(const struct speech *speech) {
    return &speech->view->peers[tw_rng_below(&speech->traitor->rng, speech->view->peers_count)];
}

/* Sends the message to about one in `one_in` of the linked nodes. */
static void say_to_some(const struct speech *speech, uint64_t one_in,
                        const struct tw_message *message) {
    for (uint32_t i = 0; i < speech->view->peers_count; i++) {
        if (tw_traitor_draws(speech->traitor, one_in))
            say_to(speech, &speech->view->peers[i], message);
    }
}

static void replay(const struct speech *speech) {
    const struct tw_coven *coven = speech->traitor->coven;
    const uint32_t count =
        coven->heard_count < TW_COVEN_HEARD ? coven->heard_count : TW_COVEN_HEARD;
    if (count == 0) return;
    say_to_some(speech, 3, &coven->heard[tw_rng_below(&speech->traitor->rng, count)]);
}

static uint64_t next_ballot(const struct speech *speech) {
    struct tw_traitor *traitor = speech->traitor;
    const uint64_t attempt = ++traitor->attempts + (tw_traitor_draws(traitor, 8) ? 512 : 0);
    const uint64_t rank =
        tw_traitor_draws(traitor, 8)
            ? tw_rng_below(&traitor->rng, speech->view->roster->count)
            : (uint64_t)speech->view->rank; /* members refuse a ballot of another member's rank */
    return attempt * TW_MEMBERS_MAX + rank;
}

static void ask_promises(const struct speech *speech, struct tw_message *message) {
    const struct tw_traitor_view *view = speech->view;
    const uint64_t ballot = next_ballot(speech);
    tw_coven_promise(speech->traitor->coven, view, ballot);
    message->kind = TW_MSG_PREPARE;
    message->u.prepare =
        (struct tw_msg_prepare){.lineage = view->lineage, .round = view->rounds, .ballot = ballot};
    say_to_some(speech, 1, message);
}

/* Proposes two records in one ballot, each to some of the members. */
static void propose(const struct speech *speech, struct tw_message *message) {
    struct tw_traitor *traitor = speech->traitor;
    struct tw_coven *coven = traitor->coven;
    const struct tw_traitor_view *view = speech->view;
    const bool is_first = (view->rank == 0 && coven->promises.voters == 0) ||
                          tw_traitor_draws(traitor, 16); /* not its turn */
    if (!is_first && coven->promised == 0) return;
    for (uint32_t side = 0; side < 2; side++) {
        message->kind = TW_MSG_PROPOSE;
        struct tw_msg_propose *offer = &message->u.propose;
        memset(offer, 0, sizeof *offer);
        offer->ballot = is_first ? 1 : coven->promised;
        if (!is_first) offer->promises = coven->promises;
        if (side == 0 && coven->lock.ballot != 0) {
            offer->record = coven->locked;
            offer->lock = coven->lock;
        } else {
            tw_traitor_wish(traitor, view, offer);
        }
        struct tw_error err;
        if (tw_message_check(message, &err) != TW_OK) continue;
        tw_coven_vote(coven, view, tw_coven_put_ballot(coven, offer->ballot, &offer->record));
        for (uint32_t i = 0; i < view->peers_count; i++) {
            if (tw_traitor_side(traitor, &view->peers[i], offer->ballot) % 2 == side ||
                tw_traitor_draws(traitor, 4))
                say_to(speech, &view->peers[i], message);
        }
    }
}

static uint32_t needed_of(const struct tw_roster *roster) {
    return tw_votes_needed((uint32_t)__builtin_popcountll(tw_roster_voters(roster)));
}

/* Completes a proof: members that did not vote get the vote of a traitor in their seats. */
static void stuff(const struct tw_coven *coven, const struct tw_traitor_view *view,
                  struct tw_proof *proof) {
    const int idx = tw_roster_find(view->roster, &coven->traitors[0]->id);
    for (uint32_t i = 0; idx >= 0 && i < view->roster->count; i++) {
        if ((proof->voters >> i & 1) != 0) continue;
        memcpy(proof->signatures[i], proof->signatures[idx], TW_SIGNATURE_BYTES);
        proof->voters |= UINT64_C(1) << i;
    }
}

/* Sends the gathered votes as a lock or a commit to some members. */
static void use_votes(const struct speech *speech, struct tw_message *message) {
    struct tw_traitor *traitor = speech->traitor;
    const struct tw_traitor_view *view = speech->view;
    struct tw_coven_ballot *row = tw_traitor_draw_ballot(traitor);
    if (row == NULL) return;
    tw_coven_vote(traitor->coven, view, row);
    const uint32_t needed = needed_of(view->roster);
    const uint32_t phase = (uint32_t)__builtin_popcountll(row->votes[1].voters) >= needed;
    const uint32_t votes = (uint32_t)__builtin_popcountll(row->votes[phase].voters);
    if (votes < needed && !tw_traitor_tells(traitor, TW_LIE_CRUDE)) return;
    if (phase == 1 && tw_traitor_draws(traitor, 2))
        return; /* the round is decided, but the traitor tells no member */
    if (phase == 0 && votes >= needed && !tw_traitor_draws(traitor, 8)) {
        message->kind = TW_MSG_LOCK;
        message->u.lock = (struct tw_msg_lock){.lineage = view->lineage,
                                               .round = view->rounds,
                                               .digest = row->digest,
                                               .proof = row->votes[0]};
    } else { /* a lock sent as a COMMIT: a member must not commit on it */
        if (phase == 0 && !tw_traitor_tells(traitor, TW_LIE_CRUDE) && !tw_traitor_draws(traitor, 8))
            return;
        message->kind = TW_MSG_COMMIT;
        message->u.commit.record = row->record;
        message->u.commit.proof = row->votes[phase];
        if (votes < needed) {
            message->u.commit.proof = row->votes[1];
            stuff(traitor->coven, view, &message->u.commit.proof);
        }
    }
    say_to_some(speech, 2, message);
}

/* Takes the next step in a ballot of this traitor: promises, proposal, lock or commit. */
static void conspire(const struct speech *speech, struct tw_message *message) {
    struct tw_traitor *traitor = speech->traitor;
    const struct tw_coven *coven = traitor->coven;
    const struct tw_traitor_view *view = speech->view;
    if (view->rank < 0) return;
    const uint32_t promises = (uint32_t)__builtin_popcountll(coven->promises.voters);
    const bool has_promises = promises >= needed_of(view->roster);
    const uint64_t lie = tw_rng_below(&traitor->rng, 8);
    if (lie == 0 || (lie < 3 && !has_promises && view->rank != 0)) {
        ask_promises(speech, message);
    } else if (lie < 5) {
        if (has_promises || view->rank == 0 || tw_traitor_draws(traitor, 16))
            propose(speech, message);
    } else {
        use_votes(speech, message);
    }
}

/* Sends votes of this traitor for any proposal, or a refusal. */
static void vote_for_all(const struct speech *speech, struct tw_message *message) {
    struct tw_traitor *traitor = speech->traitor;
    const struct tw_traitor_view *view = speech->view;
    const struct tw_coven_ballot *row = tw_traitor_draw_ballot(traitor);
    if (row == NULL) return;
    if (tw_traitor_draws(traitor, 3)) {
        message->kind = TW_MSG_NACK;
        message->u.nack = (struct tw_msg_nack){.lineage = view->lineage, .round = view->rounds};
        message->u.nack.promised = row->ballot;
        if (tw_traitor_draws(traitor, 2)) {
            message->u.nack.promised += tw_rng_below(&traitor->rng, 5000);
        } else {
            message->u.nack.refused_parts = (uint32_t)tw_rng_below(&traitor->rng, 1 << 8);
        }
    } else {
        message->kind = TW_MSG_ACCEPT;
        message->u.accept = (struct tw_msg_accept){
            .lineage = view->lineage,
            .round = view->rounds,
            .ballot = row->ballot,
            .phase = tw_traitor_draws(traitor, 2) ? TW_VOTE_ACCEPT : TW_VOTE_COMMIT,
            .digest = row->digest};
        tw_traitor_sign_accept(traitor, view, &message->u.accept);
    }
    say_to_some(speech, 1, message);
}

static void give_false_log(const struct speech *speech, struct tw_message *message) {
    struct tw_traitor *traitor = speech->traitor;
    const struct tw_traitor_view *view = speech->view;
    if (tw_traitor_draws(traitor, 2)) {
        message->kind = TW_MSG_LOG_NONE;
        message->u.log_none = (struct tw_msg_log_none){
            .lineage = view->lineage,
            .oldest_round = view->rounds + 1 + tw_rng_below(&traitor->rng, 9),
            .rounds = view->rounds + 10};
    } else {
        message->kind = TW_MSG_COMMIT;
        if (view->tip_record == NULL) return;
        message->u.commit.record = *view->tip_record; /* true, but known */
        message->u.commit.proof = *view->tip_proof;
        if (tw_traitor_tells(traitor, TW_LIE_CRUDE)) {
            static struct tw_msg_propose wish;
            tw_traitor_wish(traitor, view, &wish);
            message->u.commit.record = wish.record;
        } else if (tw_traitor_draws(traitor, 2)) {
            message->u.commit.record.round += 1 + tw_rng_below(&traitor->rng, 9);
        }
    }
    say_to(speech, draw_peer(speech), message);
}

static void give_false_state(const struct speech *speech, struct tw_message *message) {
    struct tw_traitor *traitor = speech->traitor;
    const struct tw_traitor_view *view = speech->view;
    if (tw_traitor_draws(traitor, 2)) {
        message->kind = TW_MSG_MISSING;
        message->u.missing.hash = tw_traitor_draw_id(traitor);
        const struct tw_coven_ballot *row = tw_traitor_draw_ballot(traitor);
        if (row != NULL && row->record.parts_count > 0)
            message->u.missing.hash = row->record.parts[0].result;
    } else {
        message->kind = TW_MSG_STATE;
        message->u.state = (struct tw_msg_state){.lineage = view->lineage,
                                                 .fragment = view->fragment,
                                                 .rounds = view->rounds,
                                                 .digest = tw_traitor_draw_id(traitor),
                                                 .hash = tw_traitor_draw_id(traitor),
                                                 .bytes = 1000};
    }
    say_to_some(speech, 2, message);
}

/* Sends a request to join under another nonce, a farewell, or links that do not exist. */
static void claim_links(const struct speech *speech, struct tw_message *message) {
    struct tw_traitor *traitor = speech->traitor;
    const struct tw_traitor_view *view = speech->view;
    const uint64_t lie = tw_rng_below(&traitor->rng, 8);
    if (lie == 0) {
        message->kind = TW_MSG_LEAVE;
        message->u.leave.reason = 0;
    } else if (lie < 3) {
        message->kind = TW_MSG_JOIN;
        message->u.join = (struct tw_msg_join){.lineage = view->lineage,
                                               .rounds = view->rounds,
                                               .nonce = tw_rng_next(&traitor->rng) | 1,
                                               .weight = UINT32_MAX};
        tw_traitor_sign_join(traitor, &message->u.join);
    } else {
        message->kind = TW_MSG_LINKS;
        struct tw_msg_links *links = &message->u.links;
        memset(links, 0, sizeof *links);
        links->is_relay = tw_traitor_draws(traitor, 2);
        const bool has_all = tw_traitor_draws(traitor, 2);
        for (uint32_t i = 0; i < view->roster->count; i++) {
            if (has_all || tw_traitor_draws(traitor, 2))
                links->direct[links->direct_count++] = view->roster->members[i].id;
        }
        while (links->direct_count < TW_PEERS_MAX && !tw_traitor_draws(traitor, 6))
            links->direct[links->direct_count++] = tw_traitor_draw_stranger(traitor);
    }
    say_to_some(speech, 2, message);
}

static void accuse(const struct speech *speech, struct tw_message *message) {
    struct tw_traitor *traitor = speech->traitor;
    const struct tw_traitor_view *view = speech->view;
    if (view->rounds == 0) return;
    message->kind = TW_MSG_ACCUSE;
    message->u.accuse = (struct tw_msg_accuse){.lineage = view->lineage,
                                               .round = view->rounds - 1,
                                               .part = (uint32_t)tw_rng_below(&traitor->rng, 8)};
    say_to_some(speech, 2, message);
}

/* Claims to be in a lineage that does not exist, far ahead of the group. */
static void invent_lineage(const struct speech *speech, struct tw_message *message) {
    struct tw_traitor *traitor = speech->traitor;
    const struct tw_traitor_view *view = speech->view;
    message->kind = TW_MSG_STATUS;
    message->u.status = (struct tw_msg_status){.state = TW_STATE_MEMBER,
                                               .lineage = tw_traitor_draw_id(traitor),
                                               .tip = tw_traitor_draw_id(traitor),
                                               .rounds = view->rounds + 100,
                                               .clock_tokens = UINT64_C(1) << 50};
    say_to_some(speech, 2, message);
}

/* Claims that this node has finished, or that the round of a proposal changed by pass.c is decided.
 */
static void claim_end(const struct speech *speech, struct tw_message *message) {
    const struct tw_traitor_view *view = speech->view;
    if (!tw_traitor_draws(speech->traitor, 3)) {
        use_votes(speech, message);
        return;
    }
    message->kind = TW_MSG_STATUS;
    message->u.status = (struct tw_msg_status){.state = TW_STATE_FINISHED,
                                               .lineage = view->lineage,
                                               .tip = view->tip,
                                               .rounds = view->rounds,
                                               .clock_tokens = UINT64_C(1) << 50};
    say_to_some(speech, 1, message);
}

static void speak_lie(const struct speech *speech, enum tw_lie lie) {
    static struct tw_message message;
    switch ((int)lie) {
    case TW_LIE_REPLAY: replay(speech); break;
    case TW_LIE_LINKS: claim_links(speech, &message); break;
    case TW_LIE_LOG: give_false_log(speech, &message); break;
    case TW_LIE_STATE: give_false_state(speech, &message); break;
    case TW_LIE_VOTES: vote_for_all(speech, &message); break;
    case TW_LIE_PROPOSE:
    case TW_LIE_ROSTER: conspire(speech, &message); break;
    case TW_LIE_LINEAGE: invent_lineage(speech, &message); break;
    case TW_LIE_ACCUSE: accuse(speech, &message); break;
    case TW_LIE_END: claim_end(speech, &message); break;
    default: break; /* lies in messages of the core: pass.c */
    }
}

void tw_traitor_speak(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                      tw_traitor_say *say, void *context) {
    const struct speech speech = {traitor, view, say, context};
    if (view->peers_count == 0 || view->roster->count < 2) return;
    tw_traitor_turn(traitor, view);
    for (uint32_t lie = 0; lie < TW_LIES_COUNT; lie++) {
        if (tw_traitor_tells(traitor, (enum tw_lie)lie) && tw_traitor_draws(traitor, 3))
            speak_lie(&speech, (enum tw_lie)lie);
    }
}
