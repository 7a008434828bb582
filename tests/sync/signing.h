/* signing.h - signatures for cores in tests: a hash instead of Ed25519. Honest code signs only as
 * itself, so no signature is forged by accident. */
#ifndef TW_TESTS_SYNC_SIGNING_H
#define TW_TESTS_SYNC_SIGNING_H

#include <string.h>

#include "base/hash.h"
#include "base/id.h"
#include "proto/message.h"
#include "sync/core/interface.h"

/* `key` is the id of the signer. */
static inline void signing_sign(void *key, const void *text, size_t size,
                                uint8_t signature[TW_SIGNATURE_BYTES]) {
    const struct tw_id name = tw_sha256_pair(key, sizeof(struct tw_id), text, size);
    memcpy(signature, name.bytes, 32);
    memcpy(signature + 32, name.bytes, 32);
}

static inline bool signing_is_signed(const struct tw_id *id, const void *text, size_t size,
                                     const uint8_t signature[TW_SIGNATURE_BYTES]) {
    uint8_t wanted[TW_SIGNATURE_BYTES];
    struct tw_id signer = *id;
    signing_sign(&signer, text, size, wanted);
    return memcmp(wanted, signature, sizeof(wanted)) == 0;
}

/* `signer` signs the vote. */
static inline void signing_vote(const struct tw_id *signer, const struct tw_ballot_vote *vote,
                                uint8_t signature[TW_SIGNATURE_BYTES]) {
    uint8_t text[TW_VOTE_TEXT_BYTES];
    struct tw_id key = *signer;
    tw_ballot_vote_text(vote, text);
    signing_sign(&key, text, sizeof(text), signature);
}

/* Returns the nonce of a member in the roster, or 0 if it is not a member. */
static inline uint64_t signing_nonce(const struct tw_roster *roster, const struct tw_id *member) {
    const int idx = tw_roster_find(roster, member);
    return idx < 0 ? 0 : roster->members[idx].nonce;
}

static inline void signing_accept(const struct tw_id *run, const struct tw_roster *roster,
                                  const struct tw_id *signer, struct tw_msg_accept *accept) {
    const struct tw_ballot_vote vote = {.run = *run,
                                        .lineage = accept->lineage,
                                        .nonce = signing_nonce(roster, signer),
                                        .round = accept->round,
                                        .ballot = accept->ballot,
                                        .phase = accept->phase,
                                        .digest = accept->digest};
    signing_vote(signer, &vote, accept->signature);
}

static inline void signing_promise(const struct tw_id *run, const struct tw_roster *roster,
                                   const struct tw_id *signer, struct tw_msg_promise *promise) {
    const struct tw_ballot_vote vote = {.run = *run,
                                        .lineage = promise->lineage,
                                        .nonce = signing_nonce(roster, signer),
                                        .round = promise->round,
                                        .ballot = promise->ballot,
                                        .lock_ballot = promise->lock.ballot,
                                        .phase = TW_VOTE_PROMISE};
    signing_vote(signer, &vote, promise->signature);
}

/* Signs both statements as the author. */
static inline void signing_evidence(const struct tw_id *run, struct tw_msg_evidence *evidence) {
    struct tw_statement *statements[2] = {&evidence->first, &evidence->second};
    for (unsigned i = 0; i < 2; i++) {
        const struct tw_ballot_vote vote = {.run = *run,
                                            .lineage = evidence->lineage,
                                            .nonce = evidence->nonce,
                                            .round = evidence->round,
                                            .ballot = evidence->ballot,
                                            .lock_ballot = statements[i]->lock_ballot,
                                            .phase = evidence->phase,
                                            .digest = statements[i]->digest};
        signing_vote(&evidence->author, &vote, statements[i]->signature);
    }
}

/* Makes evidence of a false promise: the author promises a ballot without its lock, and also with
 * it. */
static inline void signing_denial(const struct tw_id *run, struct tw_id author,
                                  struct tw_msg_evidence *evidence) {
    evidence->author = author;
    evidence->second.lock_ballot = 1;
    signing_evidence(run, evidence);
}

/* Writes a proof in which all voters of the roster cast this vote. */
static inline void signing_prove_vote(const struct tw_roster *roster, struct tw_ballot_vote vote,
                                      struct tw_proof *proof) {
    if (roster->count == 0) return;
    *proof = (struct tw_proof){.ballot = vote.ballot};
    for (uint32_t i = 0; i < roster->count; i++) {
        if (roster->members[i].lacks_vote) continue;
        proof->voters |= UINT64_C(1) << i;
        vote.nonce = roster->members[i].nonce;
        signing_vote(&roster->members[i].id, &vote, proof->signatures[i]);
    }
}

static inline void signing_prove(const struct tw_id *run, const struct tw_roster *roster,
                                 enum tw_vote_phase phase, uint64_t ballot,
                                 const struct tw_record *record, struct tw_proof *proof) {
    const struct tw_ballot_vote vote = {.run = *run,
                                        .lineage = record->lineage,
                                        .round = record->round,
                                        .ballot = ballot,
                                        .phase = phase,
                                        .digest = tw_record_digest(record)};
    signing_prove_vote(roster, vote, proof);
}

/* Adds promises of the ballot by all voters of the roster. Member `locked` has a lock of
 * lock_ballot. */
static inline void signing_justify(const struct tw_id *run, const struct tw_roster *roster,
                                   uint32_t locked, uint64_t lock_ballot,
                                   struct tw_msg_propose *propose) {
    for (uint32_t i = 0; i < roster->count; i++) {
        if (roster->members[i].lacks_vote) continue;
        const struct tw_ballot_vote vote = {.run = *run,
                                            .lineage = propose->record.lineage,
                                            .nonce = roster->members[i].nonce,
                                            .round = propose->record.round,
                                            .ballot = propose->ballot,
                                            .lock_ballot = i == locked ? lock_ballot : 0,
                                            .phase = TW_VOTE_PROMISE};
        propose->promises.voters |= UINT64_C(1) << i;
        propose->promises.lock_ballots[i] = vote.lock_ballot;
        signing_vote(&roster->members[i].id, &vote, propose->promises.signatures[i]);
    }
}

/* Signs the row as this node, unless it has a signature. */
static inline void signing_row(const struct tw_id *run, const struct tw_id *lineage, uint64_t round,
                               const struct tw_id *signer, struct tw_contributor *row) {
    static const uint8_t none[TW_SIGNATURE_BYTES];
    uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES];
    struct tw_id key = *signer;
    if (memcmp(row->signature, none, sizeof(none)) != 0) return;
    tw_contributor_text(run, lineage, round, row, text);
    signing_sign(&key, text, sizeof(text), row->signature);
}

/* Signs each row as its member, if the roster has that member. */
static inline void signing_rows(const struct tw_id *run, const struct tw_roster *roster,
                                const struct tw_id *lineage, uint64_t round,
                                struct tw_contributor *rows, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].member_idx >= roster->count) continue;
        signing_row(run, lineage, round, &roster->members[rows[i].member_idx].id, &rows[i]);
    }
}

static inline void signing_contrib(const struct tw_id *run, const struct tw_id *signer,
                                   struct tw_msg_contrib *contrib) {
    struct tw_contributor row = {.fragment_steps = contrib->fragment_steps,
                                 .tokens = contrib->tokens,
                                 .fragment_tokens = contrib->fragment_tokens};
    row.root = tw_contribution_root(contrib->hashes, contrib->parts_count);
    signing_row(run, &contrib->lineage, contrib->round, signer, &row);
    memcpy(contrib->signature, row.signature, sizeof(row.signature));
}

/* Signs the result as the owner of the part. A part without a result gets no signature. */
static inline void signing_part(const struct tw_id *run, const struct tw_roster *roster,
                                const struct tw_id *lineage, uint64_t round, uint32_t k,
                                const struct tw_part *part, uint8_t signature[TW_SIGNATURE_BYTES]) {
    if (part->bytes == 0 || part->owner_idx >= roster->count) return;
    const struct tw_member *owner = &roster->members[part->owner_idx];
    const struct tw_ballot_vote vote = {.run = *run,
                                        .lineage = *lineage,
                                        .nonce = owner->nonce,
                                        .round = round,
                                        .ballot = k + 1,
                                        .phase = TW_VOTE_RESULT,
                                        .digest = tw_part_digest(part)};
    signing_vote(&owner->id, &vote, signature);
}

static inline void signing_result(const struct tw_id *run, const struct tw_roster *roster,
                                  const struct tw_id *owner, struct tw_msg_result *result) {
    struct tw_part part = tw_result_part(result);
    const int idx = tw_roster_find(roster, owner);
    if (idx < 0) return;
    part.owner_idx = (uint32_t)idx;
    signing_part(run, roster, &result->lineage, result->round, result->part, &part,
                 result->signature);
}

static inline void signing_results(const struct tw_id *run, const struct tw_roster *roster,
                                   struct tw_msg_propose *propose) {
    const struct tw_record *record = &propose->record;
    for (uint32_t k = 0; k < record->parts_count; k++)
        signing_part(run, roster, &record->lineage, record->round, k, &record->parts[k],
                     propose->results[k]);
}

static inline void signing_join(const struct tw_id *run, const struct tw_id *lineage,
                                uint64_t round, const struct tw_member *member,
                                uint8_t signature[TW_SIGNATURE_BYTES]) {
    const struct tw_ballot_vote vote = {.run = *run,
                                        .lineage = *lineage,
                                        .nonce = member->nonce,
                                        .round = round,
                                        .phase = TW_VOTE_JOIN};
    signing_vote(&member->id, &vote, signature);
}

/* Adds the signed join request of each new member of the next roster. */
static inline void signing_joins(const struct tw_id *run, const struct tw_roster *roster,
                                 struct tw_msg_propose *propose) {
    const struct tw_record *record = &propose->record;
    propose->joins_count = 0;
    for (uint32_t i = 0; i < record->next.count && propose->joins_count < TW_JOINS_MAX; i++) {
        const struct tw_member *member = &record->next.members[i];
        const int at = tw_roster_find(roster, &member->id);
        if (at >= 0 && roster->members[at].nonce == member->nonce) continue;
        signing_join(run, &record->lineage, record->round, member,
                     propose->joins[propose->joins_count++]);
    }
}

/* Adds the signatures that a proposal must show: of owners and of new members. */
static inline void signing_shown(const struct tw_id *run, const struct tw_roster *roster,
                                 struct tw_msg_propose *propose) {
    signing_results(run, roster, propose);
    signing_joins(run, roster, propose);
}

/* Signs CONTRIB, RESULT and JOIN, which only their sender signs. */
static inline void signing_as_sender(const struct tw_id *run, const struct tw_roster *roster,
                                     const struct tw_id *sender, struct tw_message *message) {
    struct tw_msg_join *join = &message->u.join;
    const struct tw_member asker = {.id = *sender, .nonce = join->nonce};
    if (message->kind == TW_MSG_CONTRIB) signing_contrib(run, sender, &message->u.contrib);
    if (message->kind == TW_MSG_RESULT) signing_result(run, roster, sender, &message->u.result);
    if (message->kind == TW_MSG_JOIN)
        signing_join(run, &join->lineage, join->rounds, &asker, join->signature);
}

/* Signs as `self`, which is borrowed. */
static inline struct tw_signing signing_as(struct tw_id *self) {
    return (struct tw_signing){.key = self, .sign = signing_sign, .is_signed = signing_is_signed};
}

#endif
