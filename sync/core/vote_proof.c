/* vote_proof.c - see vote_proof.h. */
#include "sync/core/vote_proof.h"

#include <string.h>

#include "base/assert.h"
#include "sync/core/membership.h"

static void write_text(const struct tw_node *node, const struct tw_msg_accept *accept,
                       uint8_t text[TW_VOTE_TEXT_BYTES]) {
    const struct tw_ballot_vote vote = {.run = node->cfg.run,
                                        .lineage = accept->lineage,
                                        .round = accept->round,
                                        .ballot = accept->ballot,
                                        .digest = accept->digest};
    tw_ballot_vote_text(&vote, text);
}

void tw_vote_proof_sign(const struct tw_node *node, struct tw_msg_accept *accept) {
    const struct tw_signing *signing = &node->cfg.signing;
    uint8_t text[TW_VOTE_TEXT_BYTES];
    write_text(node, accept, text);
    signing->sign(signing->key, text, sizeof(text), accept->signature);
}

bool tw_vote_proof_is_vote(const struct tw_node *node, uint32_t idx,
                           const struct tw_msg_accept *accept) {
    uint8_t text[TW_VOTE_TEXT_BYTES];
    write_text(node, accept, text);
    return node->cfg.signing.is_signed(&node->roster.members[idx].id, text, sizeof(text),
                                       accept->signature);
}

static struct tw_msg_accept vote_for(const struct tw_record *record, uint64_t ballot) {
    return (struct tw_msg_accept){.lineage = record->lineage,
                                  .round = record->round,
                                  .ballot = ballot,
                                  .digest = tw_record_digest(record)};
}

bool tw_vote_proof_holds(const struct tw_node *node, const struct tw_record *record,
                         const struct tw_proof *proof) {
    const uint32_t needed = tw_membership_votes_needed(node);
    struct tw_msg_accept vote = vote_for(record, proof->ballot);
    uint32_t votes = 0;
    if (tw_bits(proof->voters) < needed) return false;
    for (uint32_t i = 0; i < node->roster.count && votes < needed; i++) {
        if ((proof->voters >> i & 1) == 0) continue;
        memcpy(vote.signature, proof->signatures[i], sizeof(vote.signature));
        if (!tw_vote_proof_is_vote(node, i, &vote)) return false;
        votes++;
    }
    return votes >= needed;
}

void tw_vote_proof_alone(const struct tw_node *node, const struct tw_record *record,
                         struct tw_proof *proof) {
    struct tw_msg_accept vote = vote_for(record, 1);
    TW_ASSERT(node->roster.count == 1);
    tw_vote_proof_sign(node, &vote);
    *proof = (struct tw_proof){.ballot = 1, .voters = 1};
    memcpy(proof->signatures[0], vote.signature, sizeof(vote.signature));
}
