/* shard.h - a token shard: the tokens of whole documents, and the digests that pin all its bytes.
 *
 * All little-endian:
 *
 *      head   "TWSHARD1"; the numbers of struct tw_shard; at 128 the SHA-256 of every piece; zeros
 *             up to head_bytes, a multiple of 4096
 *      body   tokens (tokens_count * token_bytes); zeros up to a multiple of 4; then for every
 *             document, as u32, the index of its first token
 *
 * A **piece** is TW_SHARD_PIECE_BYTES of the body, or the rest of it. A piece is checked as a unit
 * and is one chunk on a bulk connection. The **name** of a shard is the SHA-256 of its head. The
 * head contains the digests of all pieces, so the name pins the whole file, and each piece can be
 * checked alone. The tokens of a shard are either all for training or all held out. */
#ifndef TW_PROTO_SHARD_H
#define TW_PROTO_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

enum {
    TW_SHARD_FIXED_BYTES = 128, /* bytes of the head before the digests */
    TW_SHARD_PIECE_BYTES = TW_CHUNK_BYTES_MAX,
    /* pieces of a shard: head and pieces together are as many chunks as PULL can name */
    TW_SHARD_PIECES_MAX = 4095,
    TW_SHARD_HEAD_BYTES_MAX = 132 * 1024,
    TW_SHARD_TOKENS_MAX = 256 << 20,
    TW_SHARD_NO_SEPARATOR = -1,
};

_Static_assert(TW_SHARD_HEAD_BYTES_MAX <= (int)TW_CHUNK_BYTES_MAX, "a head is one chunk");
_Static_assert(TW_SHARD_FIXED_BYTES + 32 * TW_SHARD_PIECES_MAX <= TW_SHARD_HEAD_BYTES_MAX, "fits");

struct tw_shard {
    uint32_t head_bytes;
    uint32_t token_bytes; /* 1, 2 or 4: the least number of bytes that can hold a token */
    uint32_t vocab;       /* number of token values, 1 to 2^31 */
    int64_t separator;    /* token that begins every document, or TW_SHARD_NO_SEPARATOR */
    uint64_t tokens_count, documents_count; /* both at least 1 */
    struct tw_id tokenizer; /* SHA-256 of tokenizer.json; zero: each byte is a token */
    bool is_heldout;
    uint32_t source, number; /* position in the dataset, which makes each shard's head, and so its
                                name, unique */
    /* derived from the fields above: */
    uint64_t documents_begin; /* bytes from the start of the body to the table of documents */
    uint64_t body_bytes;
    uint32_t pieces_count;
};

/* Returns the fewest bytes (1, 2 or 4) that can store tokens below vocab. */
uint32_t tw_shard_token_bytes(uint32_t vocab);

/* Computes the derived fields from token_bytes, tokens_count and documents_count. Returns TW_LIMIT
 * if one shard cannot hold that many tokens, documents or pieces. */
enum tw_status tw_shard_plan(struct tw_shard *shard, struct tw_error *err);

/* Writes the head of a planned shard to head[head_bytes], with digests[pieces_count]. */
void tw_shard_encode(const struct tw_shard *shard, const struct tw_id *digests, uint8_t *head);

/* Reads the size of the head from the first TW_SHARD_FIXED_BYTES of an untrusted file. Returns
 * TW_CORRUPT if it is not a shard, TW_VERSION if its version is another. */
enum tw_status tw_shard_head_bytes(const uint8_t *fixed, uint32_t *head_bytes,
                                   struct tw_error *err);

/* Decodes an untrusted, complete head[size], and accepts only the bytes that encode produces.
 * Digests are not copied: see tw_shard_digest. Returns TW_CORRUPT or TW_VERSION with the reason. */
enum tw_status tw_shard_decode(const uint8_t *head, size_t size, struct tw_shard *shard,
                               struct tw_error *err);

/* Returns the digest of piece i < pieces_count, from the head. */
struct tw_id tw_shard_digest(const uint8_t *head, uint32_t i);

/* Returns the size of piece i < pieces_count in bytes. */
uint32_t tw_shard_piece_bytes(const struct tw_shard *shard, uint32_t i);

#endif
