/* evidence.c - two statements of one member about one ballot that exclude each other.
 *
 * A statement is a promise with its lock, a vote of phase 1 or 2 with its record, or the result of
 * a part, whose number takes the place of the ballot. Each is signed with lineage, round and
 * ballot, and with the nonce of its author in the roster. Two different statements for the same
 * lineage, nonce, round and ballot prove that their author lies. Any node can check that, so the
 * evidence is passed on, once, and bans the author at every node.
 *
 * No honest node makes such a pair. A vote is on disk before it is sent. At one ballot a member
 * promises once, accepts one record, and locks only that record. Its lock changes only by a vote at
 * the ballot of its promise or a higher one. After that vote it sends no promise of that ballot
 * (is_true of acceptor.c). Under one nonce the rounds of a member only grow, and after a restart it
 * does not vote below the round of its stored vote. A vote in that round holds for any parent
 * record.
 *
 * The nonce is needed because a node can vote in two histories of one lineage. It draws a new nonce
 * whenever it has no vote that belongs to its history: its file is lost, or it follows another
 * lineage and returns. In the meantime a liar may show it a false history of the first lineage,
 * with invented members (claim.c), or the members of that lineage fork, where f is 0. The node's
 * votes in the two histories differ in nonce, so they prove nothing. A liar that votes in both
 * histories does so under its true nonce.
 *
 * An owner stores that it signed a result before it announces the result, and announces none after
 * a restart (has_signed_before of round.c). Contributions are no evidence: a node that restarts in
 * a round encodes another one.
 *
 * Bounds: only the newest statement of each member and phase is kept. Evidence counts only against
 * linked nodes and members of the roster, because keys cost nothing. */
#include "sync/vote/evidence.h"

#include <string.h>

#include "base/assert.h"
#include "sync/core/actions.h"
#include "sync/core/membership.h"

static bool is_equal(const struct tw_statement *a, const struct tw_statement *b) {
    return a->lock_ballot == b->lock_ballot && tw_id_equal(&a->digest, &b->digest);
}

static bool is_signed(const struct tw_node *node, const struct tw_msg_evidence *evidence,
                      const struct tw_statement *statement) {
    const struct tw_ballot_vote vote = {.run = node->cfg.run,
                                        .lineage = evidence->lineage,
                                        .nonce = evidence->nonce,
                                        .round = evidence->round,
                                        .ballot = evidence->ballot,
                                        .lock_ballot = statement->lock_ballot,
                                        .phase = evidence->phase,
                                        .digest = statement->digest};
    uint8_t text[TW_VOTE_TEXT_BYTES];
    tw_ballot_vote_text(&vote, text);
    return node->cfg.signing.is_signed(&evidence->author, text, sizeof(text), statement->signature);
}

/* True if evidence against this node was passed on before. */
static bool is_convicted(const struct tw_node *node, const struct tw_id *id) {
    const struct evidence *evidence = &node->evidence;
    for (uint32_t i = 0; i < LIARS_MAX && i < evidence->liars_count; i++)
        if (tw_id_equal(&evidence->liars[i], id)) return true;
    return false;
}

/* Acts on checked evidence, and passes it on to all peers but its sender. At most one node is
 * convicted per event, because the queue of actions has room for only one message to all. */
static void convict(struct tw_node *node, uint16_t from, const struct tw_msg_evidence *evidence) {
    struct evidence *known = &node->evidence;
    const struct tw_id *author = &evidence->author;
    if (known->convicted_us == node->now_us) return;
    known->convicted_us = node->now_us;
    known->liars[known->liars_count++ % LIARS_MAX] = *author;
    tw_act_report(node, TW_REPORT_TWO_FACED, author);
    struct tw_message *message = tw_act_message(node, TW_MSG_EVIDENCE);
    if (message != NULL) message->u.evidence = *evidence;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!node->links[i].is_up || i == from) continue;
        if (tw_id_equal(&node->links[i].id, author))
            tw_act_close(node, i, TW_PROTO);
        else
            tw_act_send(node, message, i);
    }
}

static void begin_round(struct tw_node *node) {
    struct evidence *evidence = &node->evidence;
    if (evidence->round == node->at.rounds && tw_id_equal(&evidence->lineage, &node->at.lineage) &&
        tw_id_equal(&evidence->parent, &node->tip_digest))
        return;
    evidence->round = node->at.rounds;
    evidence->lineage = node->at.lineage;
    evidence->parent = node->tip_digest;
    memset(evidence->heard, 0, sizeof(evidence->heard));
}

/* Compares a statement about the open round with the newest one of its member and phase. */
static void hear(struct tw_node *node, uint32_t idx, enum tw_vote_phase phase, uint64_t ballot,
                 const struct tw_statement *statement, bool is_checked) {
    TW_ASSERT(idx < node->roster.count);
    begin_round(node);
    const uint64_t heard_ballot = node->evidence.heard[phase][idx].ballot;
    struct tw_statement *heard = &node->evidence.heard[phase][idx].statement;
    if (heard_ballot == ballot && !is_equal(heard, statement)) {
        const struct tw_msg_evidence evidence = {.author = node->roster.members[idx].id,
                                                 .nonce = node->roster.members[idx].nonce,
                                                 .lineage = node->at.lineage,
                                                 .round = node->at.rounds,
                                                 .ballot = ballot,
                                                 .phase = phase,
                                                 .first = *heard,
                                                 .second = *statement};
        if (tw_id_equal(&evidence.author, &node->cfg.self)) return;
        if (is_convicted(node, &evidence.author)) return;
        if (is_checked || is_signed(node, &evidence, statement)) convict(node, NO_PEER, &evidence);
    } else if (is_checked && ballot > heard_ballot) {
        node->evidence.heard[phase][idx].ballot = ballot;
        *heard = *statement;
    }
}

/* Returns the first members of the set, as many as a decision needs: only their signatures are
 * checked. */
static uint64_t first_voters(const struct tw_node *node, uint64_t voters) {
    uint64_t first = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (tw_bits(first) == tw_membership_votes_needed(node)) break;
        first |= voters & node->voters & UINT64_C(1) << i;
    }
    TW_ASSERT(tw_bits(first) <= tw_membership_votes_needed(node));
    return first;
}

void tw_evidence_promise(struct tw_node *node, uint32_t idx, const struct tw_msg_promise *promise,
                         bool is_checked) {
    struct tw_statement statement = {.lock_ballot = promise->lock.ballot};
    memcpy(statement.signature, promise->signature, sizeof(statement.signature));
    hear(node, idx, TW_VOTE_PROMISE, promise->ballot, &statement, is_checked);
}

void tw_evidence_vote(struct tw_node *node, uint32_t idx, const struct tw_msg_accept *accept,
                      bool is_checked) {
    struct tw_statement statement = {.digest = accept->digest};
    memcpy(statement.signature, accept->signature, sizeof(statement.signature));
    hear(node, idx, accept->phase, accept->ballot, &statement, is_checked);
}

void tw_evidence_promises(struct tw_node *node, const struct tw_msg_propose *propose,
                          bool is_checked) {
    const struct tw_promises *promises = &propose->promises;
    const uint64_t voters = first_voters(node, promises->voters);
    for (uint32_t i = 0; i < node->roster.count; i++) {
        struct tw_statement statement = {.lock_ballot = promises->lock_ballots[i]};
        if ((voters >> i & 1) == 0) continue;
        memcpy(statement.signature, promises->signatures[i], sizeof(statement.signature));
        hear(node, i, TW_VOTE_PROMISE, propose->ballot, &statement, is_checked);
    }
}

void tw_evidence_lock(struct tw_node *node, const struct tw_msg_lock *lock, bool is_checked) {
    const uint64_t voters = first_voters(node, lock->proof.voters);
    for (uint32_t i = 0; i < node->roster.count; i++) {
        struct tw_statement statement = {.digest = lock->digest};
        if ((voters >> i & 1) == 0) continue;
        memcpy(statement.signature, lock->proof.signatures[i], sizeof(statement.signature));
        hear(node, i, TW_VOTE_ACCEPT, lock->proof.ballot, &statement, is_checked);
    }
}

void tw_evidence_result(struct tw_node *node, uint32_t owner, uint32_t k,
                        const struct tw_part *part, const uint8_t signature[TW_SIGNATURE_BYTES],
                        bool is_checked) {
    struct tw_statement statement = {.digest = tw_part_digest(part)};
    TW_ASSERT(k < TW_PARTS_MAX);
    memcpy(statement.signature, signature, sizeof(statement.signature));
    hear(node, owner, TW_VOTE_RESULT, k + 1, &statement, is_checked);
}

void tw_evidence_fork(struct tw_node *node, const struct tw_msg_commit *commit) {
    const struct tw_record *parent =
        node->at.rounds > 1 ? tw_progress_record(node, node->at.rounds - 2) : NULL;
    const struct tw_proof *ours = &node->at.tip_proof, *theirs = &commit->proof;
    const struct tw_id digest = tw_record_digest(&commit->record);
    if (parent == NULL || !tw_id_equal(&parent->lineage, &node->at.lineage)) return;
    if (tw_id_equal(&digest, &node->tip_digest) || ours->ballot != theirs->ballot) return;
    for (uint32_t i = 0; i < parent->next.count; i++) {
        struct tw_msg_evidence evidence = {.author = parent->next.members[i].id,
                                           .nonce = parent->next.members[i].nonce,
                                           .lineage = node->at.lineage,
                                           .round = node->at.rounds - 1,
                                           .ballot = ours->ballot,
                                           .phase = TW_VOTE_COMMIT,
                                           .first.digest = node->tip_digest,
                                           .second.digest = digest};
        if ((ours->voters & theirs->voters & UINT64_C(1) << i) == 0) continue;
        if (tw_id_equal(&evidence.author, &node->cfg.self)) continue;
        if (is_convicted(node, &evidence.author)) continue;
        memcpy(evidence.first.signature, ours->signatures[i], TW_SIGNATURE_BYTES);
        memcpy(evidence.second.signature, theirs->signatures[i], TW_SIGNATURE_BYTES);
        if (is_signed(node, &evidence, &evidence.first) &&
            is_signed(node, &evidence, &evidence.second))
            convict(node, NO_PEER, &evidence);
    }
}

enum tw_drop tw_evidence_received(struct tw_node *node, uint16_t peer,
                                  const struct tw_msg_evidence *evidence) {
    const struct tw_id *author = &evidence->author;
    const bool is_known =
        tw_roster_find(&node->roster, author) >= 0 || tw_peers_find(node, author) != NO_PEER;
    if (!is_known || tw_id_equal(author, &node->cfg.self)) return TW_DROP_UNKNOWN;
    if (is_convicted(node, author)) return TW_DROP_TWICE;
    if (!is_signed(node, evidence, &evidence->first) ||
        !is_signed(node, evidence, &evidence->second)) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    convict(node, peer, evidence);
    return TW_DROP_NONE;
}
