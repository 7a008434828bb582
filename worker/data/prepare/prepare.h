/* prepare.h - text to a dataset: `thinwire data prepare`.
 *
 *      reader ──blocks of whole documents──> tokenizer threads ──in order──> writer
 *
 * One thread reads, unpacks and cuts (prepare_read.h); any number turn blocks into tokens
 * (prepare_encode.h); the caller's thread takes the blocks in the order they were read and fills
 * shards (prepare_shards.h). The shards depend on inputs and options alone, never on threads or on
 * how often the work was stopped: what is cut, tokenised and held out depends on each document
 * alone, and DIR/prepare.state says after every training shard where in the inputs it ends.
 *
 * Memory: the shard that is filled, and at most 200 MB with two threads. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_H
#define TW_WORKER_DATA_PREPARE_PREPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/dataset.h"
#include "worker/data/text_cut.h"

enum {
    TW_PREPARE_THREADS_MAX = 256,
    TW_PREPARE_FILES_MAX = 1 << 19,
    TW_PREPARE_SHARD_TOKENS_MIN = 1024,
    TW_PREPARE_SHARD_TOKENS_MAX = 100 << 20,
    /* Held-out text is little: its shards have this part of a training shard's tokens, but no fewer
     * than the least, as a window that is evaluated lies within one shard. */
    TW_PREPARE_HELDOUT_PARTS = 8,
    TW_PREPARE_HELDOUT_TOKENS_MIN = 1 << 16,
};

#define TW_PREPARE_STATE_FILE "prepare.state"
#define TW_PREPARE_INPUTS_FILE "prepare.inputs"

struct tw_prepare_source {
    const char *name;
    uint32_t weight_millionths; /* 0: by size; all or none */
    const char *const *inputs;  /* (inputs_count) files and folders */
    uint32_t inputs_count;
};

/* Strings are borrowed. */
struct tw_prepare_options {
    const char *out;
    const char *tokenizer;  /* file; NULL: a token is a byte */
    const char *field;      /* of a line of JSON */
    enum tw_text_unit unit; /* of plain text; not TW_TEXT_RECORDS */
    uint32_t heldout_millionths;
    uint32_t shard_tokens;
    uint32_t threads;
    bool skip_bad;       /* what cannot be used is counted, and the rest goes on */
    bool is_restart;     /* what is in `out` of an earlier time is removed */
    bool is_quiet, json; /* of the report */
    uint32_t sources_count;
    struct tw_prepare_source sources[TW_DATASET_SOURCES_MAX];
};

/* What was done so far; all of it is in the state. */
struct tw_prepare_counts {
    uint64_t files, text_bytes, documents, tokens;
    uint64_t heldout_documents, heldout_tokens;
    uint64_t invalid_bytes; /* no UTF-8, tokenised as bytes */
    uint64_t lost_bytes;    /* for which the vocabulary has no token */
    uint64_t binary_files;  /* in folders: passed over, as are these: */
    uint64_t empty_files;
    uint64_t bad; /* documents and files that skip_bad skipped */
};

struct tw_prepare_summary {
    struct tw_prepare_counts counts;
    struct tw_id dataset; /* SHA-256 of the index: data.sha256 of a run */
    uint32_t train_shards, heldout_shards;
    uint64_t hidden_files; /* files, folders and links in folders, passed over */
    char first_bad[sizeof(((struct tw_error *)NULL)->message)]; /* that was skipped, or "" */
    bool was_done;                                              /* there was nothing left to do */
};

/* TW_AGAIN: a signal asked it to stop (signals.h); the same call goes on. TW_DATA: an input,
 * named with its line, or too little text; TW_CONFIG: options, or another call's state in `out`;
 * TW_IO, TW_NOMEM, TW_CORRUPT. */
enum tw_status tw_prepare(const struct tw_prepare_options *options,
                          struct tw_prepare_summary *summary, struct tw_error *err);

#endif
