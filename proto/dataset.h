/* dataset.h - a dataset: shards of tokens, the index that names them by SHA-256, and its relation
 * to a run. Pure. */
#ifndef TW_PROTO_DATASET_H
#define TW_PROTO_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/run/run.h"

/* ---- shards --------------------------------------------------------------------------------- */

/* A token shard: the tokens of whole documents, and the digests that pin all its bytes.
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
    uint32_t token_bytes; /* 1, 2 or 4: the least number of bytes that can hold a number */
    uint32_t vocab;       /* number of token values, 1 to 2^31 */
    int64_t separator;    /* token that begins every document, or TW_SHARD_NO_SEPARATOR */
    uint64_t tokens_count, documents_count; /* both at least 1 */
    struct tw_id tokenizer; /* SHA-256 of tokenizer.json; zero: each byte is a token */
    bool is_heldout;
    bool has_answers; /* each number is 2 * token, plus 1 if the token is part of an answer */
    uint32_t source, number; /* position in the dataset, which makes each shard's head, and so its
                                name, unique */
    /* derived from the fields above: */
    uint64_t documents_begin; /* bytes from the start of the body to the table of documents */
    uint64_t body_bytes;
    uint32_t pieces_count;
};

/* Returns the fewest bytes (1, 2 or 4) that can store the numbers of tokens below vocab. */
uint32_t tw_shard_token_bytes(uint32_t vocab, bool has_answers);

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

/* ---- the index ------------------------------------------------------------------------------ */

/* The index of a dataset: a small text that names shards and tokenizer by SHA-256.
 *
 * It is the file `dataset` in a dataset's folder; data.sha256 of a run manifest is its SHA-256, so
 * the manifest pins every token of the run. The text is canonical, so equal content has equal bytes
 * (PROTOCOL.md section 9):
 *
 *      thinwire-dataset 1
 *      bytes 0000000789
 *      tokenizer 5f3c... 2201041        or: tokenizer bytes
 *      vocab 50257
 *      separator 50256                  or: separator none
 *      heldout 0.05
 *      answers marked                   only if the numbers mark answers
 *      source prose 0.7                 or: source prose size
 *      shard 0 train 9ab1... 4096 16781312 8388608 5210
 *      shard 0 heldout ...
 *
 * `bytes` is the size of the whole text, from which a receiver computes the number of its chunks.
 * The words of a shard line are: source, train or heldout, name, bytes of the head, bytes of the
 * file, tokens, documents. Lines are ordered by source, training shards before held-out shards,
 * then by the order of writing. The name of a shard's file follows from its position:
 * prose-train-00000.shard. */

enum {
    TW_DATASET_BYTES_MAX = 16 << 20, /* largest size of the index */
    TW_DATASET_SHARDS_MAX = 1 << 16,
    TW_DATASET_SOURCES_MAX = 64,
    TW_DATASET_NAME_BYTES = 32, /* bytes of a source's name, including NUL: [a-z0-9-], not empty */
    TW_DATASET_FILE_BYTES = TW_DATASET_NAME_BYTES + 32,
    TW_DATASET_TOKENIZER_BYTES_MAX = 64 << 20,
    TW_DATASET_SHARE_MIN = 100, /* millionths: the smallest share that the window order can draw */
};

/* File names in a dataset's folder, besides the shards. */
#define TW_DATASET_INDEX_FILE "dataset"
#define TW_DATASET_TOKENIZER_FILE "tokenizer.json"

struct tw_dataset_source {
    char name[TW_DATASET_NAME_BYTES];
    uint32_t weight_millionths; /* share of the windows drawn from this source; 0: proportional to
                                   its tokens. Either all sources have a weight, or none */
};

struct tw_dataset_shard {
    struct tw_id name; /* SHA-256 of the head */
    uint32_t source;   /* index into sources */
    uint32_t number;   /* position within its source and side, from 0 */
    bool is_heldout;
    uint32_t head_bytes;
    uint64_t file_bytes, tokens_count, documents_count;
};

struct tw_dataset {
    struct tw_id tokenizer; /* SHA-256 of tokenizer.json; zero: each byte is a token */
    uint32_t tokenizer_bytes;
    uint32_t vocab;
    int64_t separator; /* token that begins a document, or TW_SHARD_NO_SEPARATOR */
    uint32_t heldout_millionths;
    bool has_answers; /* of every shard */
    uint32_t sources_count;
    struct tw_dataset_source sources[TW_DATASET_SOURCES_MAX];
    uint32_t shards_count, shards_capacity;
    struct tw_dataset_shard *shards; /* (shards_capacity), owned by the caller */
};

/* Reads the size of an index, at most TW_DATASET_BYTES_MAX, from its first 64 untrusted bytes.
 * Fails with TW_CORRUPT or TW_VERSION. */
enum tw_status tw_dataset_size(const char *text, size_t size, uint32_t *bytes,
                               struct tw_error *err);

/* Returns an upper bound of the number of shards in the text: a sufficient capacity for
 * tw_dataset_decode. */
uint32_t tw_dataset_lines(const char *text, size_t size);

/* Decodes untrusted text, and accepts only canonical bytes. shards[capacity] belongs to the caller.
 * Returns TW_CORRUPT with the line, TW_VERSION, or TW_LIMIT. */
enum tw_status tw_dataset_decode(const char *text, size_t size, struct tw_dataset_shard *shards,
                                 uint32_t capacity, struct tw_dataset *dataset,
                                 struct tw_error *err);

/* Writes the canonical text to text[room]. If it does not fit, returns TW_LIMIT, and *size is still
 * its length. Returns TW_CONFIG for any dataset that decode would refuse, such as one in which only
 * some sources have weights. */
enum tw_status tw_dataset_encode(const struct tw_dataset *dataset, char *text, size_t room,
                                 size_t *size, struct tw_error *err);

/* Converts weights[count], each 1 to 1e12, to shares in millionths that add up to a million
 * (largest remainder method). Returns the index of the first share below TW_DATASET_SHARE_MIN, or
 * count. */
uint32_t tw_dataset_shares(const uint64_t *weights, uint32_t count, uint32_t *millionths);

/* Writes the name of a shard's file: "prose-train-00000.shard". */
void tw_dataset_file(const struct tw_dataset *dataset, const struct tw_dataset_shard *shard,
                     char name[TW_DATASET_FILE_BYTES]);

/* Returns the tokens of all training shards, or of all held-out shards. */
uint64_t tw_dataset_tokens(const struct tw_dataset *dataset, bool is_heldout);

/* ---- datasets of runs ----------------------------------------------------------------------- */

/* Returns TW_DATA unless the run can train on this dataset. Compares vocabulary, byte tokens, the
 * separator of masked documents, and marks of answers with data.loss. If the manifest names a
 * dataset, compares the held-out share too. */
enum tw_status tw_dataset_check_run(const struct tw_dataset *dataset, const struct tw_run *run,
                                    struct tw_error *err);

/* Sets data.form, data.sha256, data.heldout, data.separator, data.tokenizer, data.loss and
 * model.vocab of the run. *digest is the SHA-256 of the index. */
void tw_dataset_set_run(const struct tw_dataset *dataset, const struct tw_id *digest,
                        struct tw_run *run);

#endif
