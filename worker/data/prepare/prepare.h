/* prepare.h - turns text into a dataset: `thinwire data prepare`.
 *
 *      reader ──blocks of whole documents──> tokenizer threads ──in order──> writer
 *
 * One thread reads, decompresses and cuts (prepare_inputs.h). Any number of threads turn blocks
 * into tokens (prepare_block.h). The caller's thread takes the blocks in the order in which they
 * were read and fills shards (prepare_shards.h).
 *
 * Shards depend only on inputs and options, not on the number of threads or on interruptions, for
 * two reasons. Cutting, tokenising and holding out depend on each document alone. After every
 * training shard, DIR/prepare.state records where in the inputs it ends.
 *
 * Memory: the open shards, and at most 200 MB with two threads. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_H
#define TW_WORKER_DATA_PREPARE_PREPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/input_kind.h"
#include "base/status.h"
#include "proto/dataset.h"
#include "worker/data/text_cut.h"

enum {
    TW_PREPARE_THREADS_MAX = 256,
    TW_PREPARE_FILES_MAX = 1 << 19,
    TW_PREPARE_SHARD_TOKENS_MIN = 1024,
    TW_PREPARE_SHARD_TOKENS_MAX = 100 << 20,
    /* A held-out shard has at most the tokens of a training shard divided by this, because there is
     * little held-out text. A minimum keeps this limit large enough for an evaluation window, which
     * must lie within one shard. */
    TW_PREPARE_HELDOUT_PARTS = 8,
    TW_PREPARE_HELDOUT_TOKENS_MIN = 1 << 16,
};

#define TW_PREPARE_STATE_FILE "prepare.state"

struct tw_prepare_source {
    const char *name;
    uint32_t weight_millionths; /* 0: sources are mixed by size; set for all sources or for none */
    const char *const *inputs;  /* (inputs_count): files and folders */
    uint32_t inputs_count;
};

/* Options of a call; strings are borrowed. */
struct tw_prepare_options {
    const char *out;
    const char *tokenizer;  /* tokenizer file; NULL: a token is a byte */
    const char *eos;        /* text or number of the token that ends a document; NULL: found
                               automatically */
    const char *field;      /* name of the text field of a JSON line */
    enum tw_text_unit unit; /* unit into which plain text is cut; not TW_TEXT_RECORDS */
    uint32_t heldout_millionths;
    uint32_t shard_tokens;
    uint32_t threads;
    bool is_chat;    /* whether every record is a marked chat (prepare_block.h) */
    bool is_plain;   /* whether every file is plain text, even if it looks like JSON or markup */
    bool skip_bad;   /* whether unusable files and documents are counted and skipped */
    bool is_restart; /* whether the results of an earlier call in `out` are removed first */
    bool is_quiet, json; /* is_quiet: no report; json: report as JSON */
    uint32_t sources_count;
    struct tw_prepare_source sources[TW_DATASET_SOURCES_MAX];
};

/* Progress so far, all saved in the state. */
struct tw_prepare_counts {
    uint64_t files, text_bytes, documents, tokens;
    uint64_t heldout_documents, heldout_tokens;
    uint64_t invalid_bytes; /* bytes of invalid UTF-8, tokenised byte by byte */
    uint64_t lost_bytes;    /* bytes for which the vocabulary has no token */
    uint64_t names;         /* names of special tokens that became ordinary text */
    uint64_t answer_tokens; /* of chats */
    uint64_t blank;         /* documents without text, left out */
    uint64_t binary_files;  /* skipped in folders */
    uint64_t empty_files;
    uint64_t passed_members;        /* members of tar archives that hold no text */
    uint64_t bad;                   /* documents and files skipped because of skip_bad */
    uint64_t kinds[TW_INPUT_KINDS]; /* number of files of each kind, judged by their content */
};

struct tw_prepare_summary {
    struct tw_prepare_counts counts;
    struct tw_id dataset; /* SHA-256 of the index, the value of data.sha256 in a manifest */
    uint32_t train_shards, heldout_shards;
    uint64_t hidden_files;  /* number of files, folders and links skipped in folders */
    uint64_t swollen_files; /* packed inputs with far more text than bytes, read by this call */
    /* message about the first skipped document or file, or "" */
    char first_bad[sizeof(((struct tw_error *)NULL)->message)];
    bool was_done; /* whether an earlier call had already finished the dataset */
    bool can_skip; /* after a failure: whether skip_bad would have skipped the document or file */
};

/* Prepares a dataset, or continues an interrupted call with the same options. Errors:
 * - TW_AGAIN: a signal asked it to stop (signals.h);
 * - TW_DATA: a bad input, named with its line, or too little text;
 * - TW_CONFIG: bad options, or `out` holds the state of a call with other options;
 * - TW_IO, TW_NOMEM, TW_CORRUPT. */
enum tw_status tw_prepare(const struct tw_prepare_options *options,
                          struct tw_prepare_summary *summary, struct tw_error *err);

#endif
