/* position.h - canonical bytes of what survives a restart: struct tw_position and struct tw_vote.
 *
 * Little-endian, fixed order, no padding; a manifest inside is `u32 size, tw_record_encode`. `held`
 * is the last of a position, and left out where it is the tip. */
#ifndef TW_SYNC_POSITION_H
#define TW_SYNC_POSITION_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sync/node.h"

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
