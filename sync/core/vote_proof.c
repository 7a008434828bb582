/* vote_proof.c - signing of votes, and checks of votes and of the proofs made of them. */
#include "sync/core/vote_proof.h"

#include <string.h>

#include "base/assert.h"
#include "sync/core/membership.h"

/* ---- single votes --------------------------------------------------------------------------- */

/* Returns the vote to sign or check, of the member with this nonce in the roster. */
static struct tw_ballot_vote vote_of(const struct tw_node *node, uint64_t nonce,
                                     const struct tw_msg_accept *accept) {
    return (struct tw_ballot_vote){.run = node->cfg.run,
                                   .lineage = accept->lineage,
                                   .nonce = nonce,
                                   .round = accept->round,
                                   .ballot = accept->ballot,
                                   .phase = accept->phase,
                                   .digest = accept->digest};
}

static struct tw_ballot_vote promise_of(const struct tw_node *node, uint64_t nonce,
                                        const struct tw_msg_promise *promise) {
    return (struct tw_ballot_vote){.run = node->cfg.run,
                                   .lineage = promise->lineage,
                                   .nonce = nonce,
                                   .round = promise->round,
                                   .ballot = promise->ballot,
                                   .lock_ballot = promise->lock.ballot,
                                   .phase = TW_VOTE_PROMISE};
}

static void sign(const struct tw_node *node, const struct tw_ballot_vote *vote,
                 uint8_t signature[TW_SIGNATURE_BYTES]) {
    uint8_t text[TW_VOTE_TEXT_BYTES];
    tw_ballot_vote_text(vote, text);
    node->cfg.signing.sign(node->cfg.signing.key, text, sizeof(text), signature);
}

static bool is_signed(const struct tw_node *node, const struct tw_id *id,
                      const struct tw_ballot_vote *vote,
                      const uint8_t signature[TW_SIGNATURE_BYTES]) {
    uint8_t text[TW_VOTE_TEXT_BYTES];
    tw_ballot_vote_text(vote, text);
    return node->cfg.signing.is_signed(id, text, sizeof(text), signature);
}

void tw_vote_proof_sign(const struct tw_node *node, struct tw_msg_accept *accept) {
    const struct tw_ballot_vote vote = vote_of(node, node->at.nonce, accept);
    sign(node, &vote, accept->signature);
}

void tw_vote_proof_sign_promise(const struct tw_node *node, struct tw_msg_promise *promise) {
    const struct tw_ballot_vote vote = promise_of(node, node->at.nonce, promise);
    sign(node, &vote, promise->signature);
}

static struct tw_ballot_vote result_of(const struct tw_node *node, uint64_t nonce, uint32_t k,
                                       const struct tw_part *part) {
    return (struct tw_ballot_vote){.run = node->cfg.run,
                                   .lineage = node->at.lineage,
                                   .nonce = nonce,
                                   .round = node->at.rounds,
                                   .ballot = k + 1,
                                   .phase = TW_VOTE_RESULT,
                                   .digest = tw_part_digest(part)};
}

void tw_vote_proof_sign_result(const struct tw_node *node, struct tw_msg_result *result) {
    const struct tw_part part = tw_result_part(result);
    const struct tw_ballot_vote vote = result_of(node, node->at.nonce, result->part, &part);
    sign(node, &vote, result->signature);
}

bool tw_vote_proof_is_result(const struct tw_node *node, uint32_t idx, uint32_t k,
                             const struct tw_part *part,
                             const uint8_t signature[TW_SIGNATURE_BYTES]) {
    const struct tw_member *member = &node->roster.members[idx];
    const struct tw_ballot_vote vote = result_of(node, member->nonce, k, part);
    return is_signed(node, &member->id, &vote, signature);
}

static struct tw_ballot_vote join_of(const struct tw_node *node, uint64_t nonce, uint64_t round) {
    return (struct tw_ballot_vote){.run = node->cfg.run,
                                   .lineage = node->at.lineage,
                                   .nonce = nonce,
                                   .round = round,
                                   .phase = TW_VOTE_JOIN};
}

void tw_vote_proof_sign_join(const struct tw_node *node, struct tw_msg_join *join) {
    const struct tw_ballot_vote vote = join_of(node, join->nonce, join->rounds);
    sign(node, &vote, join->signature);
}

bool tw_vote_proof_is_join(const struct tw_node *node, const struct tw_id *id, uint64_t nonce,
                           uint64_t round, const uint8_t signature[TW_SIGNATURE_BYTES]) {
    const struct tw_ballot_vote vote = join_of(node, nonce, round);
    return is_signed(node, id, &vote, signature);
}

bool tw_vote_proof_is_vote(const struct tw_node *node, uint32_t idx,
                           const struct tw_msg_accept *accept) {
    const struct tw_member *member = &node->roster.members[idx];
    const struct tw_ballot_vote vote = vote_of(node, member->nonce, accept);
    return is_signed(node, &member->id, &vote, accept->signature);
}

bool tw_vote_proof_is_promise(const struct tw_node *node, uint32_t idx,
                              const struct tw_msg_promise *promise) {
    const struct tw_member *member = &node->roster.members[idx];
    const struct tw_ballot_vote vote = promise_of(node, member->nonce, promise);
    if (!is_signed(node, &member->id, &vote, promise->signature)) return false;
    if (promise->lock.ballot == 0) return true;
    return promise->lock.ballot < promise->ballot &&
           tw_vote_proof_holds(node, TW_VOTE_ACCEPT, &promise->locked, &promise->lock);
}

/* ---- sets of votes -------------------------------------------------------------------------- */

static struct tw_msg_accept vote_for(const struct tw_record *record, enum tw_vote_phase phase,
                                     uint64_t ballot) {
    return (struct tw_msg_accept){.lineage = record->lineage,
                                  .round = record->round,
                                  .ballot = ballot,
                                  .phase = phase,
                                  .digest = tw_record_digest(record)};
}

/* The mutant TWO_VOTES (mutants.h): accepts the signature of any member in place of this one's. */
static bool is_any_vote(const struct tw_node *node, const struct tw_roster *roster,
                        struct tw_ballot_vote vote, const uint8_t *signature) {
    for (uint32_t i = 0; TW_IS_MUTANT(node, TW_MUTANT_TWO_VOTES) && i < roster->count; i++) {
        vote.nonce = roster->members[i].nonce;
        if (is_signed(node, &roster->members[i].id, &vote, signature)) return true;
    }
    return false;
}

/* Set of the roster's members whose votes count. */
static uint64_t may_vote(const struct tw_node *node, const struct tw_roster *roster) {
    if (TW_IS_MUTANT(node, TW_MUTANT_ALL_VOTE)) return UINT64_MAX;
    return tw_roster_voters(roster);
}

/* Returns the set of the first `needed` voters of the proof, or 0 if one of their signatures is
 * false. */
static uint64_t check_voters(const struct tw_node *node, const struct tw_roster *roster,
                             uint32_t needed, const struct tw_msg_accept *accept,
                             const struct tw_proof *proof) {
    struct tw_ballot_vote vote = vote_of(node, 0, accept);
    uint64_t checked = 0;
    uint32_t votes = 0;
    if ((proof->voters & ~may_vote(node, roster)) != 0 || tw_bits(proof->voters) < needed) return 0;
    for (uint32_t i = 0; i < roster->count && votes < needed; i++) {
        if ((proof->voters >> i & 1) == 0) continue;
        vote.nonce = roster->members[i].nonce;
        if (!is_signed(node, &roster->members[i].id, &vote, proof->signatures[i]) &&
            !is_any_vote(node, roster, vote, proof->signatures[i]))
            return 0;
        checked |= UINT64_C(1) << i;
        votes++;
    }
    return votes >= needed ? checked : 0;
}

bool tw_vote_proof_holds(const struct tw_node *node, enum tw_vote_phase phase,
                         const struct tw_record *record, const struct tw_proof *proof) {
    const struct tw_msg_accept vote = vote_for(record, phase, proof->ballot);
    const uint32_t needed = tw_membership_votes_needed(node);
    return check_voters(node, &node->roster, needed, &vote, proof) != 0;
}

uint64_t tw_vote_proof_voters(const struct tw_node *node, const struct tw_roster *roster,
                              enum tw_vote_phase phase, const struct tw_record *record,
                              const struct tw_proof *proof) {
    const struct tw_msg_accept vote = vote_for(record, phase, proof->ballot);
    const uint32_t voters = tw_bits(tw_roster_voters(roster));
    if (voters == 0) return 0;
    return check_voters(node, roster, tw_votes_needed(voters), &vote, proof);
}

bool tw_vote_proof_justifies(const struct tw_node *node, const struct tw_msg_propose *propose) {
    const struct tw_promises *promises = &propose->promises;
    const uint32_t needed = tw_membership_votes_needed(node);
    struct tw_ballot_vote vote = {.run = node->cfg.run,
                                  .lineage = propose->record.lineage,
                                  .round = propose->record.round,
                                  .ballot = propose->ballot,
                                  .phase = TW_VOTE_PROMISE};
    uint64_t newest = 0;
    uint32_t votes = 0;
    if ((promises->voters & ~may_vote(node, &node->roster)) != 0) return false;
    if (tw_bits(promises->voters) < needed) return false;
    for (uint32_t i = 0; i < node->roster.count && votes < needed; i++) {
        if ((promises->voters >> i & 1) == 0) continue;
        vote.nonce = node->roster.members[i].nonce;
        vote.lock_ballot = promises->lock_ballots[i];
        if (!is_signed(node, &node->roster.members[i].id, &vote, promises->signatures[i]))
            return false;
        if (vote.lock_ballot > newest) newest = vote.lock_ballot;
        votes++;
    }
    if (TW_IS_MUTANT(node, TW_MUTANT_LOCK_IGNORED)) newest = 0;
    if (votes < needed || newest > propose->lock.ballot) return false;
    if (propose->lock.ballot == 0) return true;
    return propose->lock.ballot < propose->ballot &&
           tw_vote_proof_holds(node, TW_VOTE_ACCEPT, &propose->record, &propose->lock);
}

void tw_vote_proof_alone(const struct tw_node *node, const struct tw_record *record,
                         struct tw_proof *proof) {
    struct tw_msg_accept vote = vote_for(record, TW_VOTE_COMMIT, 1);
    TW_ASSERT(node->roster.count == 1);
    tw_vote_proof_sign(node, &vote);
    *proof = (struct tw_proof){.ballot = 1, .voters = 1};
    memcpy(proof->signatures[0], vote.signature, sizeof(vote.signature));
}
