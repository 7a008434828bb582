/* voters.h - which members have a vote, and the signatures that prove votes. */
#ifndef TW_SYNC_CORE_VOTERS_H
#define TW_SYNC_CORE_VOTERS_H

#include "proto/message.h"
#include "sync/core/state.h"

/* ---- signed votes ---------------------------------------------------------------------------- */

/* The following functions sign with this node's key. */
void tw_vote_proof_sign(const struct tw_node *node, struct tw_msg_accept *accept);
void tw_vote_proof_sign_promise(const struct tw_node *node, struct tw_msg_promise *promise);
void tw_vote_proof_sign_result(const struct tw_node *node, struct tw_msg_result *result);
void tw_vote_proof_sign_join(const struct tw_node *node, struct tw_msg_join *join);
/* True if node `id` asked for a seat under this nonce, in this round of our lineage. */
bool tw_vote_proof_is_join(const struct tw_node *node, const struct tw_id *id, uint64_t nonce,
                           uint64_t round, const uint8_t signature[TW_SIGNATURE_BYTES]);
/* True if member `idx` of the roster signed this result for part `k` of the open round. */
bool tw_vote_proof_is_result(const struct tw_node *node, uint32_t idx, uint32_t k,
                             const struct tw_part *part,
                             const uint8_t signature[TW_SIGNATURE_BYTES]);
/* True if member `idx` of the roster signed this vote. */
bool tw_vote_proof_is_vote(const struct tw_node *node, uint32_t idx,
                           const struct tw_msg_accept *accept);
/* True if member `idx` signed this promise, and the proof of its lock holds. */
bool tw_vote_proof_is_promise(const struct tw_node *node, uint32_t idx,
                              const struct tw_msg_promise *promise);
/* True if enough members of the present roster signed a vote of this phase for the record. Checks
 * at most as many signatures as votes are needed. */
bool tw_vote_proof_holds(const struct tw_node *node, enum tw_vote_phase phase,
                         const struct tw_record *record, const struct tw_proof *proof);
/* Like tw_vote_proof_holds, for any roster and round. Returns the set of members whose votes were
 * checked, or 0 if these are too few or a signature is false. */
uint64_t tw_vote_proof_voters(const struct tw_node *node, const struct tw_roster *roster,
                              enum tw_vote_phase phase, const struct tw_record *record,
                              const struct tw_proof *proof);
/* True if enough members promised the ballot of this proposal. If some of them have a lock, the
 * proposal must be the record of the newest of these locks. */
bool tw_vote_proof_justifies(const struct tw_node *node, const struct tw_msg_propose *propose);
/* Makes the proof of a record whose roster is this node alone. */
void tw_vote_proof_alone(const struct tw_node *node, const struct tw_record *record,
                         struct tw_proof *proof);

/* ---- the right to vote ----------------------------------------------------------------------- */

/* Which members of the roster have a vote.
 *
 * With an owner (config.has_rights), a member's certificate says whether it may vote. A committee
 * of a few voters then decides for any number of members that only train.
 *
 * Without certificates ids cost nothing, so a vote is earned. The roster counts for each member the
 * rounds that merged its work (tw_member.merges). The age of the group is the largest count of its
 * voters. A member votes once its count is half of the age, 64 at most, rounded up:
 *
 *   - While nothing has been merged, every member votes at once: the founders of a group.
 *   - In a young group a newcomer waits for as many rounds as the group had before it came.
 *   - In an old group it waits for 64 rounds with its work. Of n voters, f = (n - 1) / 3 may lie;
 *     at most max(1, f) members a round get a vote, those with most merges first, and at most
 *     max(1, f) nodes a round get a seat, once the age is TW_VOTES_YOUNG.
 *
 * A vote is kept as long as the seat. All this is a function of the roster and the record, so all
 * voters agree on it, and no node keeps more state than the newest record. */

/* Sets lacks_vote and merges of each member of the next roster, for this node's own proposal. The
 * parts of `record` must be those proposed.
 *
 * With certificates, a member gets a vote if its certificate allows it and enough voters for a
 * decision are linked to it: the others do not know its certificate, and would refuse the roster.
 * On the same terms it loses its vote if its certificate gives none any more. */
void tw_voters_seat(struct tw_node *node, const struct tw_record *record, struct tw_roster *next);

/* True if no honest member would propose the votes, merges and seats of record->next.
 *
 * With certificates: a vote is new, and this node does not know that the member's certificate gives
 * it; or one is taken away, and this node does not know that the certificate gives none. A member
 * that lacked a vote before may go on without one. */
bool tw_voters_are_false(const struct tw_node *node, const struct tw_record *record);

/* Notes the voters of a roster that this node is in, as elders. */
void tw_voters_note(struct tw_node *node, const struct tw_roster *roster);

/* True if the peer speaks for another lineage than this node's. In an old group without
 * certificates only a node with which this one was in a roster does: ids are free, and so is a
 * history of them. */
bool tw_voters_may_draw(const struct tw_node *node, const struct tw_id *id);

/* Returns how many newcomers may get a seat in this round. */
uint32_t tw_voters_seats_max(const struct tw_node *node);
/* True if the node has no seat, and is no elder to this node; or was proposed as one in vain. */
bool tw_voters_is_newcomer(const struct tw_node *node, const struct tw_id *id);

/* Returns how many rounds have yet to merge this node's work until it votes; 0 if it votes, has no
 * seat, or needs a certificate for a vote. Each takes the group's age a round further. */
uint32_t tw_voters_merges_left(const struct tw_node *node);

/* True if this node may not found lineages, because it has no vote. It waits for voters instead. In
 * pairs and once the nodes train alone, each node founds its own. */
bool tw_voters_are_awaited(const struct tw_node *node);

/* True if the peer may vote, by its certificate. */
bool tw_voters_may(const struct tw_node *node, uint16_t peer);

#endif
