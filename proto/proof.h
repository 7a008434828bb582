/* proof.h - signed votes of members, and the proofs made of them.
 *
 * A round is decided in two phases (sync/vote/). A proof of phase 1 is a lock: no other record can
 * be decided at that ballot. A proof of phase 2 shows that the round is decided. A set of promises
 * tells a proposer which record it may propose: the record of the newest lock that they report, or
 * any record if they report none.
 *
 * Any node that knows the roster can check a proof from any sender. Of its n voters
 * (tw_roster_voters) up to f = (n - 1) / 3 may lie and sign anything. Two sets of
 * tw_votes_needed(n) voters have f + 1 voters in common, so at least one honest voter. Signatures
 * of other members count for nothing.
 *
 * A member signs these bytes with the Ed25519 key whose public half is its id. Integers are
 * little-endian:
 *
 *    "thinwire-vote-v1\0" || u8 phase || run id || lineage || u64 nonce || u64 round ||
 *    u64 ballot || u64 ballot of its lock (phase 0, else 0) || digest of the record (zero in
 *    phase 0)
 *
 * An owner signs its result in the same form, as phase 3: the ballot is the index of its part plus
 * one, and the digest is tw_part_digest. A node signs JOIN as phase 4: ballot and digest are zero,
 * and the nonce is the one under which it asks for a seat.
 *
 * In all other phases the nonce is the member's in the roster. A member keeps one vote for each
 * lineage, nonce and round, whatever the parent record, so it never makes two different votes at
 * one ballot. The digest fixes the parent record, and with it the roster. A promise names no
 * parent: it holds in every history of the lineage. Bytes of a proof, and of a set of promises:
 *
 *    u64 ballot || u64 voters (bit i: member i of the roster) || 64 bytes for each voter
 *    u64 voters || (u64 ballot of its lock || 64 bytes) for each voter
 *
 * Pure: the caller signs and verifies. */
#ifndef TW_PROTO_PROOF_H
#define TW_PROTO_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

enum {
    TW_VOTE_TEXT_BYTES = 17 + 1 + 3 * 32 + 4 * 8,
    TW_PROOF_BYTES_MAX = 16 + TW_MEMBERS_MAX * TW_SIGNATURE_BYTES,
    TW_PROMISES_BYTES_MAX = 8 + TW_MEMBERS_MAX * (8 + TW_SIGNATURE_BYTES),
};

enum tw_vote_phase {
    TW_VOTE_PROMISE, /* promise: the member will not vote at a lower ballot any more */
    TW_VOTE_ACCEPT,  /* vote of phase 1: the member holds every result of the record and finds it
                        sound */
    TW_VOTE_COMMIT,  /* vote of phase 2: the member has the lock, and will report it in every later
                        promise */
    TW_VOTE_RESULT,  /* not a vote: the owner of part `ballot` - 1 announces its result */
    TW_VOTE_JOIN,    /* not a vote: the node asks for a seat under this nonce, in this round */
};

struct tw_proof {
    uint64_t ballot; /* ballot of the votes; 0: there is no proof */
    uint64_t voters;
    uint8_t signatures[TW_MEMBERS_MAX][TW_SIGNATURE_BYTES]; /* signatures in roster order; zero for
                                                               members that are not voters */
};

/* Signed promises for one ballot. */
struct tw_promises {
    uint64_t voters;                       /* bit i: member i of the roster promised; 0: none */
    uint64_t lock_ballots[TW_MEMBERS_MAX]; /* ballot of the lock that each voter reported; 0: it has
                                              none */
    uint8_t signatures[TW_MEMBERS_MAX][TW_SIGNATURE_BYTES];
};

/* Returns how many of `count` > 0 voters may lie: f = (count - 1) / 3. */
uint32_t tw_liars_max(uint32_t count);

/* Returns the number of votes that decide among `count` > 0 voters: the smallest majority such that
 * any two majorities share more voters than may lie. Groups of up to three tolerate no liar. */
uint32_t tw_votes_needed(uint32_t count);

/* The vote of one member. */
struct tw_ballot_vote {
    struct tw_id run, lineage;
    uint64_t nonce; /* nonce of the member in the roster of the round */
    uint64_t round, ballot, lock_ballot;
    enum tw_vote_phase phase;
    struct tw_id digest; /* digest of the record */
};

/* Writes the bytes that the member signs. */
void tw_ballot_vote_text(const struct tw_ballot_vote *vote, uint8_t text[TW_VOTE_TEXT_BYTES]);

/* Writes the canonical bytes and returns their number, or 0 if there is no proof. */
size_t tw_proof_encode(const struct tw_proof *proof, uint8_t bytes[TW_PROOF_BYTES_MAX]);

/* Decodes untrusted bytes. Requires the exact size, a ballot and at least one voter, but verifies
 * no signature. On TW_PROTO *proof is undefined. */
enum tw_status tw_proof_decode(const uint8_t *bytes, size_t size, struct tw_proof *proof,
                               struct tw_error *err);

/* Like the two functions above, for promises. */
size_t tw_promises_encode(const struct tw_promises *promises, uint8_t bytes[TW_PROMISES_BYTES_MAX]);
enum tw_status tw_promises_decode(const uint8_t *bytes, size_t size, struct tw_promises *promises,
                                  struct tw_error *err);

#endif
