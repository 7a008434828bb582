/* position.h - canonical bytes of what survives a restart: struct tw_position and struct tw_vote.
 *
 * Little-endian, fixed order, no padding; a manifest inside is `u32 size, tw_record_encode`. `held`
 * is the last of a position, and left out where it is the tip. */
#ifndef TW_SYNC_CORE_POSITION_H
#define TW_SYNC_CORE_POSITION_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/record.h"

/* The vote of this node in the newest round it took part in. Must be durable before it is told. */
struct tw_vote {
    struct tw_id lineage;
    uint64_t nonce; /* membership this vote belongs to */
    uint64_t round;
    uint64_t promised;
    uint64_t accepted_ballot;
    uint32_t has_accepted;
    struct tw_record accepted;
};

/* Where the node stands in its lineage; part of a checkpoint, together with (phi, u). */
struct tw_position {
    struct tw_id lineage, lineage_parent;
    uint64_t nonce;
    uint64_t first_round; /* of this lineage: older rounds are its ancestors' */
    uint64_t rounds;      /* committed rounds known: the next one to decide */
    uint32_t has_tip, has_held;
    struct tw_record tip;  /* manifest of round `rounds` - 1 */
    struct tw_record held; /* the newest with all of its past in (phi, u), maybe of the lineage
                             before this one: how far our weights are, and where a child begins */
    uint64_t fragment_rounds[TW_FRAGMENTS_MAX]; /* rounds applied to (phi, u): all below this;
                                                   UINT64_MAX: must be fetched */
    struct tw_id fragment_digests[TW_FRAGMENTS_MAX];
    uint32_t is_moving; /* (phi, u) become those of `lineage`; theta still is of what `held` says */
    uint64_t tokens_listed; /* own counter at the last listed contribution: the clock has these */
    /* Own counters where the work that Delta of a fragment holds began: account.c. */
    uint64_t delta_tokens[TW_FRAGMENTS_MAX], delta_steps[TW_FRAGMENTS_MAX];
};

enum {
    TW_POSITION_BYTES_MAX = 128 + 2 * TW_RECORD_BYTES_MAX + TW_FRAGMENTS_MAX * 56,
    TW_VOTE_BYTES_MAX = 96 + TW_RECORD_BYTES_MAX,
};

/* Bytes of the first `fragments_count` fragments of *position (the others mean nothing); returns
 * how many. 0 < fragments_count <= TW_FRAGMENTS_MAX, asserted. */
size_t tw_position_encode(const struct tw_position *position, uint32_t fragments_count,
                          uint8_t bytes[TW_POSITION_BYTES_MAX]);

/* Strict inverse for untrusted bytes: its magic, every count, flag and relation is checked (the tip
 * is the manifest of round rounds - 1, nothing follows). What was not
 * encoded is zero in *position, but `held`. TW_CORRUPT names the field; *position is then
 * undefined. */
enum tw_status tw_position_decode(const uint8_t *bytes, size_t size, struct tw_position *position,
                                  uint32_t *fragments_count, struct tw_error *err);

size_t tw_vote_encode(const struct tw_vote *vote, uint8_t bytes[TW_VOTE_BYTES_MAX]);

/* Strict inverse: an accepted manifest must be of the vote's lineage and round. TW_CORRUPT names
 * the field; *vote is then undefined. */
enum tw_status tw_vote_decode(const uint8_t *bytes, size_t size, struct tw_vote *vote,
                              struct tw_error *err);

#endif
