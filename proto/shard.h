/* shard.h - a token shard: token numbers of whole documents, with what pins every byte of them.
 *
 * All little-endian:
 *
 *      head   "TWSHARD1"; the numbers of struct tw_shard; at 128 the SHA-256 of every piece; zeros
 *             up to head_bytes, a multiple of 4096
 *      body   tokens (tokens_count x token_bytes); zeros up to a multiple of 4; then for every
 *             document, as u32, the number of its first token
 *
 * A **piece** is TW_SHARD_PIECE_BYTES of the body, the last one what is left: the unit that is
 * checked, and one chunk on a bulk connection. The **name** of a shard is the SHA-256 of its head;
 * since that holds the digests of all pieces, the name pins the file, and any part of it can be
 * checked alone. A shard is all for training or all held out. */
#ifndef TW_PROTO_SHARD_H
#define TW_PROTO_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

enum {
    TW_SHARD_FIXED_BYTES = 128, /* of the head, before the digests */
    TW_SHARD_PIECE_BYTES = TW_CHUNK_BYTES_MAX,
    TW_SHARD_PIECES_MAX = 4095, /* with the head no more than a PULL can ask for */
    TW_SHARD_HEAD_BYTES_MAX = 132 * 1024,
    TW_SHARD_TOKENS_MAX = 256 << 20,
    TW_SHARD_NO_SEPARATOR = -1,
};

_Static_assert(TW_SHARD_HEAD_BYTES_MAX <= (int)TW_CHUNK_BYTES_MAX, "a head is one chunk");
_Static_assert(TW_SHARD_FIXED_BYTES + 32 * TW_SHARD_PIECES_MAX <= TW_SHARD_HEAD_BYTES_MAX, "fits");

struct tw_shard {
    uint32_t head_bytes;
    uint32_t token_bytes; /* 1, 2 or 4: the least that holds vocab */
    uint32_t vocab;       /* every token is smaller; 1 to 2^31 */
    int64_t separator;    /* the token every document begins with, or TW_SHARD_NO_SEPARATOR */
    uint64_t tokens_count, documents_count; /* both at least 1 */
    struct tw_id tokenizer;                 /* SHA-256 of tokenizer.json; zero: a token is a byte */
    bool is_heldout;
    uint32_t source, number; /* its place in the dataset: so no two shards have one name */
    /* these follow from the others: */
    uint64_t documents_begin; /* bytes from the start of the body to the table of documents */
    uint64_t body_bytes;
    uint32_t pieces_count;
};

/* The least of 1, 2 and 4 bytes in which tokens below vocab fit. */
uint32_t tw_shard_token_bytes(uint32_t vocab);

/* Fills in what follows from token_bytes, tokens_count and documents_count. TW_LIMIT: too many
 * tokens, documents or pieces for one shard. */
enum tw_status tw_shard_plan(struct tw_shard *shard, struct tw_error *err);

/* Writes the head of a planned shard into head (head_bytes); digests (pieces_count). */
void tw_shard_encode(const struct tw_shard *shard, const struct tw_id *digests, uint8_t *head);

/* How long the head is that begins like this, from the first TW_SHARD_FIXED_BYTES of an untrusted
 * file. TW_CORRUPT: no shard; TW_VERSION: of another version. */
enum tw_status tw_shard_head_bytes(const uint8_t *fixed, uint32_t *head_bytes,
                                   struct tw_error *err);

/* Strict inverse of encode, untrusted: head (size) is a whole head. Digests stay where they are:
 * tw_shard_digest. TW_CORRUPT or TW_VERSION with what is wrong. */
enum tw_status tw_shard_decode(const uint8_t *head, size_t size, struct tw_shard *shard,
                               struct tw_error *err);

/* Digest of piece i < pieces_count, from the head. */
struct tw_id tw_shard_digest(const uint8_t *head, uint32_t i);

/* Bytes of piece i < pieces_count. */
uint32_t tw_shard_piece_bytes(const struct tw_shard *shard, uint32_t i);

#endif
