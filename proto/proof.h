/* proof.h - the proof that a round is decided: votes of a majority of its roster, with signatures.
 *
 * Any node that knows the roster can check a proof, from whomever it comes. To forge one takes the
 * keys of a majority. A proof does not rule out a second one: a member that lies may vote twice.
 *
 * A member signs, with the key that is its id (Ed25519), all little-endian:
 *
 *    "thinwire-vote-v1\0" || run id || lineage || u64 round || u64 ballot || digest of the record
 *
 * The digest fixes the parent record, and with it the roster. Bytes of a proof:
 *
 *    u64 ballot || u64 voters (bit i: member i of the roster) || 64 bytes for each voter
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
    TW_SIGNATURE_BYTES = 64, /* Ed25519 */
    TW_VOTE_TEXT_BYTES = 17 + 3 * 32 + 2 * 8,
    TW_PROOF_BYTES_MAX = 16 + TW_MEMBERS_MAX * TW_SIGNATURE_BYTES,
};

struct tw_proof {
    uint64_t ballot; /* 0: no proof, and no voters */
    uint64_t voters;
    uint8_t signatures[TW_MEMBERS_MAX][TW_SIGNATURE_BYTES]; /* by roster index, of voters alone */
};

/* Number of votes that decide among `count` > 0 members. */
uint32_t tw_votes_needed(uint32_t count);

/* The vote of one member. */
struct tw_ballot_vote {
    struct tw_id run, lineage;
    uint64_t round, ballot;
    struct tw_id digest; /* of the record */
};

/* Writes the bytes that the member signs. */
void tw_ballot_vote_text(const struct tw_ballot_vote *vote, uint8_t text[TW_VOTE_TEXT_BYTES]);

/* Canonical bytes; returns their number, 0 without a proof. */
size_t tw_proof_encode(const struct tw_proof *proof, uint8_t bytes[TW_PROOF_BYTES_MAX]);

/* Strict inverse for untrusted bytes: the exact size, a ballot, a voter. Signatures of others are
 * zero in *proof. Checks no signature. On TW_PROTO *proof is undefined. */
enum tw_status tw_proof_decode(const uint8_t *bytes, size_t size, struct tw_proof *proof,
                               struct tw_error *err);

#endif
