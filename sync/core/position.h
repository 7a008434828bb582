/* position.h - the state that survives a restart: position and vote, and their canonical bytes.
 *
 * Little-endian, fixed order, no padding. A record is `u32 size`, then tw_record_encode's bytes.
 * `held` is the last field of a position, and is omitted if it equals the tip. */
#ifndef TW_SYNC_CORE_POSITION_H
#define TW_SYNC_CORE_POSITION_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/record.h"

/* This node's vote in the newest round that it took part in. It is on disk before it is sent. */
struct tw_vote {
    struct tw_id lineage;
    uint64_t nonce; /* nonce of the membership that this vote belongs to */
    uint64_t round;
    uint64_t promised;
    uint64_t accepted_ballot;
    uint32_t has_announced; /* 1: this node signed a result of its part in `round` */
    uint32_t has_accepted;
    struct tw_record accepted;
    struct tw_proof lock; /* proof that only `accepted` can be decided at its ballot (votes of phase
                             1); may be empty */
};

/* The node's place in its lineage. A checkpoint holds it together with (phi, u). */
struct tw_position {
    struct tw_id lineage, lineage_parent;
    uint64_t nonce;
    uint64_t first_round; /* first round of this lineage; its ancestors decided older rounds */
    uint64_t rounds;      /* number of known committed rounds, and number of the next round */
    uint32_t has_tip, has_held;
    struct tw_record tip; /* record of round `rounds` - 1 */
    struct tw_proof
        tip_proof; /* proof that the tip is decided; empty if the lineage began at the tip */
    /* Newest record such that (phi, u) contains all rounds up to it, perhaps a record of the
     * previous lineage. A child lineage begins at this record. */
    struct tw_record held;
    uint64_t fragment_rounds[TW_FRAGMENTS_MAX]; /* all rounds below this number are applied to (phi,
                                                   u); UINT64_MAX: (phi, u) must be fetched */
    struct tw_id fragment_digests[TW_FRAGMENTS_MAX];
    uint32_t is_moving;     /* 1: (phi, u) are moving to `lineage`, and theta still belongs to the
                               lineage of `held` */
    uint64_t tokens_listed; /* this node's tokens that the run clock contains: up to its last listed
                               contribution */
    /* This node's token and step counts at the point where the fragment's current Delta starts
     * (round.c). */
    uint64_t delta_tokens[TW_FRAGMENTS_MAX], delta_steps[TW_FRAGMENTS_MAX];
};

enum {
    TW_POSITION_BYTES_MAX =
        128 + 2 * TW_RECORD_BYTES_MAX + TW_PROOF_BYTES_MAX + TW_FRAGMENTS_MAX * 56,
    TW_VOTE_BYTES_MAX = 96 + TW_RECORD_BYTES_MAX + TW_PROOF_BYTES_MAX,
};

/* Encodes *position with its first `fragments_count` fragments, and returns the number of bytes.
 * Asserts 0 < fragments_count <= TW_FRAGMENTS_MAX. */
size_t tw_position_encode(const struct tw_position *position, uint32_t fragments_count,
                          uint8_t bytes[TW_POSITION_BYTES_MAX]);

/* Strict inverse for untrusted bytes. Checks the magic, every count, flag and relation: for
 * example, the tip is the record of round rounds - 1, and nothing follows. Fields that were not
 * encoded are zero in *position, except `held`, which then equals the tip. With TW_CORRUPT, `err`
 * names the field and *position is undefined. */
enum tw_status tw_position_decode(const uint8_t *bytes, size_t size, struct tw_position *position,
                                  uint32_t *fragments_count, struct tw_error *err);

size_t tw_vote_encode(const struct tw_vote *vote, uint8_t bytes[TW_VOTE_BYTES_MAX]);

/* Strict inverse. An accepted record must be of the vote's lineage and round. A lock needs a
 * record. With TW_CORRUPT, `err` names the field and *vote is undefined. */
enum tw_status tw_vote_decode(const uint8_t *bytes, size_t size, struct tw_vote *vote,
                              struct tw_error *err);

#endif
