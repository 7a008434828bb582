/* coven.c - the state of the open round that all traitors of a world share. */
#include "tests/traitor/coven.h"

#include <string.h>

/* ---- knowledge of the open round -------------------------------------------------------- */

bool tw_coven_is_open(const struct tw_coven *coven, const struct tw_id *lineage, uint64_t round) {
    return coven->round == round && tw_id_equal(&coven->lineage, lineage);
}

void tw_traitor_turn(struct tw_traitor *traitor, const struct tw_traitor_view *view) {
    struct tw_coven *coven = traitor->coven;
    if (traitor->round != view->rounds) traitor->attempts = 0;
    traitor->round = view->rounds;
    if (tw_coven_is_open(coven, &view->lineage, view->rounds)) return;
    coven->lineage = view->lineage;
    coven->round = view->rounds;
    coven->ballots_count = 0;
    coven->promised = 0;
    coven->promises.voters = 0;
    coven->lock.ballot = 0;
}

static struct tw_coven_ballot *find_ballot(struct tw_coven *coven, uint64_t ballot,
                                           const struct tw_id *digest) {
    for (uint32_t i = 0; i < coven->ballots_count && i < TW_COVEN_BALLOTS; i++) {
        struct tw_coven_ballot *row = &coven->ballots[i];
        if (row->ballot == ballot && tw_id_equal(&row->digest, digest)) return row;
    }
    return NULL;
}

struct tw_coven_ballot *tw_coven_put_ballot(struct tw_coven *coven, uint64_t ballot,
                                            const struct tw_record *record) {
    const struct tw_id digest = tw_record_digest(record);
    struct tw_coven_ballot *row = find_ballot(coven, ballot, &digest);
    if (row != NULL) return row;
    row = &coven->ballots[coven->ballots_count++ % TW_COVEN_BALLOTS];
    row->ballot = ballot;
    row->digest = digest;
    row->record = *record;
    memset(row->results, 0, sizeof(row->results));
    row->joins_count = 0;
    for (uint32_t i = 0; i < 2; i++) {
        row->votes[i].ballot = ballot;
        row->votes[i].voters = 0;
    }
    return row;
}

struct tw_coven_ballot *tw_traitor_draw_ballot(struct tw_traitor *traitor) {
    struct tw_coven *coven = traitor->coven;
    const uint32_t count =
        coven->ballots_count < TW_COVEN_BALLOTS ? coven->ballots_count : TW_COVEN_BALLOTS;
    return count == 0 ? NULL : &coven->ballots[tw_rng_below(&traitor->rng, count)];
}

static struct tw_ballot_vote vote_of(const struct tw_traitor_view *view,
                                     const struct tw_coven *coven, enum tw_vote_phase phase,
                                     uint64_t ballot) {
    return (struct tw_ballot_vote){.run = coven->run,
                                   .lineage = view->lineage,
                                   .round = view->rounds,
                                   .ballot = ballot,
                                   .phase = phase};
}

/* All traitors vote for this record in both phases. */
void tw_coven_vote(struct tw_coven *coven, const struct tw_traitor_view *view,
                   struct tw_coven_ballot *row) {
    for (uint32_t i = 0; i < coven->count; i++) {
        const int idx = tw_roster_find(view->roster, &coven->traitors[i]->id);
        for (uint32_t k = 0; k < 2 && idx >= 0; k++) {
            struct tw_ballot_vote vote =
                vote_of(view, coven, k == 0 ? TW_VOTE_ACCEPT : TW_VOTE_COMMIT, row->ballot);
            vote.nonce = view->roster->members[idx].nonce;
            vote.digest = row->digest;
            tw_traitor_sign_vote(coven->traitors[i], &vote, row->votes[k].signatures[idx]);
            row->votes[k].voters |= UINT64_C(1) << idx;
        }
    }
}

/* All traitors promise the ballot, and claim to have no lock. */
void tw_coven_promise(struct tw_coven *coven, const struct tw_traitor_view *view, uint64_t ballot) {
    coven->promised = ballot;
    coven->promises.voters = 0;
    coven->lock.ballot = 0;
    for (uint32_t i = 0; i < coven->count; i++) {
        const int idx = tw_roster_find(view->roster, &coven->traitors[i]->id);
        if (idx < 0) continue;
        struct tw_ballot_vote vote = vote_of(view, coven, TW_VOTE_PROMISE, ballot);
        vote.nonce = view->roster->members[idx].nonce;
        tw_traitor_sign_vote(coven->traitors[i], &vote, coven->promises.signatures[idx]);
        coven->promises.lock_ballots[idx] = 0;
        coven->promises.voters |= UINT64_C(1) << idx;
    }
}

void tw_coven_put_signatures(struct tw_coven_ballot *row, const struct tw_msg_propose *propose) {
    if (propose->lock.ballot != 0) return;
    memcpy(row->results, propose->results, sizeof(row->results));
    memcpy(row->joins, propose->joins, sizeof(row->joins));
    row->joins_count = propose->joins_count;
}

static void hear_promise(struct tw_coven *coven, int idx, const struct tw_msg_promise *promise) {
    if (promise->ballot != coven->promised || idx < 0) return;
    coven->promises.voters |= UINT64_C(1) << idx;
    coven->promises.lock_ballots[idx] = promise->lock.ballot;
    memcpy(coven->promises.signatures[idx], promise->signature, TW_SIGNATURE_BYTES);
    if (promise->lock.ballot <= coven->lock.ballot) return;
    coven->lock = promise->lock;
    coven->locked = promise->locked;
}

static void hear_accept(struct tw_coven *coven, int idx, const struct tw_msg_accept *accept) {
    struct tw_coven_ballot *row = find_ballot(coven, accept->ballot, &accept->digest);
    if (row == NULL || idx < 0) return;
    struct tw_proof *votes = &row->votes[accept->phase == TW_VOTE_COMMIT];
    votes->voters |= UINT64_C(1) << idx;
    memcpy(votes->signatures[idx], accept->signature, TW_SIGNATURE_BYTES);
}

void tw_traitor_hear(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                     const struct tw_id *from, const struct tw_message *message) {
    struct tw_coven *coven = traitor->coven;
    tw_traitor_turn(traitor, view);
    const int idx = tw_roster_find(view->roster, from);
    if (message->kind != TW_MSG_PULL && message->kind != TW_MSG_STATUS)
        coven->heard[coven->heard_count++ % TW_COVEN_HEARD] = *message;
    if (message->kind == TW_MSG_PROPOSE) {
        const struct tw_record *record = &message->u.propose.record;
        if (tw_coven_is_open(coven, &record->lineage, record->round))
            tw_coven_put_signatures(tw_coven_put_ballot(coven, message->u.propose.ballot, record),
                                    &message->u.propose);
    } else if (message->kind == TW_MSG_ACCEPT) {
        const struct tw_msg_accept *accept = &message->u.accept;
        if (tw_coven_is_open(coven, &accept->lineage, accept->round))
            hear_accept(coven, idx, accept);
    } else if (message->kind == TW_MSG_PROMISE) {
        const struct tw_msg_promise *promise = &message->u.promise;
        if (tw_coven_is_open(coven, &promise->lineage, promise->round))
            hear_promise(coven, idx, promise);
    } else if (message->kind == TW_MSG_LOCK) {
        const struct tw_msg_lock *lock = &message->u.lock;
        struct tw_coven_ballot *row = find_ballot(coven, lock->proof.ballot, &lock->digest);
        if (row != NULL && tw_coven_is_open(coven, &lock->lineage, lock->round))
            row->votes[0] = lock->proof;
    }
}
