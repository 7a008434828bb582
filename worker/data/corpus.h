/* corpus.h - what a path holds: a text, token numbers, shards of llm.c, a pair of Megatron's, one
 * of our shards, or a dataset; as a list of token files, before anybody says how it is trained on.
 */
#ifndef TW_WORKER_DATA_CORPUS_H
#define TW_WORKER_DATA_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/dataset.h"
#include "worker/data/megatron.h"
#include "worker/data/token_file.h"

enum tw_corpus_kind {
    TW_CORPUS_TEXT, /* a byte is a token */
    TW_CORPUS_IDS,  /* bare token numbers */
    TW_CORPUS_LLMC, /* one shard, or a folder of them */
    TW_CORPUS_MEGATRON,
    TW_CORPUS_SHARD,
    TW_CORPUS_DATASET,
};

struct tw_corpus_file {
    struct tw_token_file tokens;
    uint32_t source;
    bool is_heldout, is_here; /* a dataset's may be on their way */
};

struct tw_corpus {
    enum tw_corpus_kind kind;
    struct tw_corpus_file *files; /* (files_count) in order; a source's lie together */
    uint32_t files_count, missing_next;
    bool has_heldout; /* the files say what is held out; else the end of them is */
    uint64_t bytes;   /* of all files */
    struct tw_megatron megatron;
    struct tw_id digest; /* of a dataset's index */

    /* Sources, vocabulary, separator, tokenizer: of a dataset or a shard; shards are left out. One
     * source of unknown vocabulary (0) for what says nothing of itself. */
    struct tw_dataset about;
};

/* What a file that does not say it of itself is taken for. */
struct tw_corpus_hint {
    bool is_ids;    /* token numbers: 2 bytes each if vocab is at most 65536, else 4 */
    uint32_t vocab; /* 0: not known */
};

/* TW_DATA names the path and the way out. */
enum tw_status tw_corpus_open(struct tw_corpus *corpus, const char *path,
                              const struct tw_corpus_hint *hint, struct tw_error *err);
void tw_corpus_close(struct tw_corpus *corpus); /* zero-initialised is closed */

/* Tokens of all files for training, or of all that are held out. */
uint64_t tw_corpus_tokens(const struct tw_corpus *corpus, bool is_heldout);

/* Looks for some of the files that were missing; returns whether any is there now. */
bool tw_corpus_refresh(struct tw_corpus *corpus);

/* "text", "a dataset", ... */
const char *tw_corpus_kind_name(enum tw_corpus_kind kind);

/* ---- for the readers of each kind ------------------------------------------------------------ */

/* Room for `count` files, empty. TW_NOMEM. */
enum tw_status tw_corpus_reserve(struct tw_corpus *corpus, uint32_t count, struct tw_error *err);

/* folder/name, or a copy of name where folder is NULL; the caller's to free. TW_NOMEM. */
enum tw_status tw_corpus_path(char **path, const char *folder, const char *name,
                              struct tw_error *err);

/* corpus_llmc.c: whether bytes[12] begin a shard of llm.c; one file, already known to; a folder:
 * *_train_*.bin for training, *_val_*.bin held out; TW_AGAIN: there is none in it. */
bool tw_corpus_is_llmc(const uint8_t *bytes);
enum tw_status tw_corpus_open_llmc(struct tw_corpus *corpus, const char *path,
                                   struct tw_error *err);
enum tw_status tw_corpus_open_llmc_folder(struct tw_corpus *corpus, const char *folder,
                                          struct tw_error *err);

/* corpus_dataset.c */
enum tw_status tw_corpus_open_shard(struct tw_corpus *corpus, const char *path,
                                    struct tw_error *err);
enum tw_status tw_corpus_open_dataset(struct tw_corpus *corpus, const char *folder,
                                      struct tw_error *err);

/* Index of the dataset in a folder; dataset->shards is the caller's to free. TW_DATA. */
enum tw_status tw_dataset_read(const char *folder, struct tw_dataset *dataset, struct tw_id *digest,
                               struct tw_error *err);

#endif
