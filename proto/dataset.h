/* dataset.h - the index of a dataset: a small text that names shards and tokenizer by SHA-256.
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
 *      source prose 0.7                 or: source prose size
 *      shard 0 train 9ab1... 4096 16781312 8388608 5210
 *      shard 0 heldout ...
 *
 * `bytes` is the size of the whole text, from which a receiver computes the number of its chunks.
 * The words of a shard line are: source, train or heldout, name, bytes of the head, bytes of the
 * file, tokens, documents. Lines are ordered by source, training shards before held-out shards,
 * then by the order of writing. The name of a shard's file follows from its position:
 * prose-train-00000.shard. */
#ifndef TW_PROTO_DATASET_H
#define TW_PROTO_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"

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

#endif
