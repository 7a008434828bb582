/* corpus.h - opens training data of any kind as a list of token files: a text, token numbers,
 * shards of llm.c, a pair of Megatron-LM files, one shard of a dataset, or a dataset. Independent
 * of the run. */
#ifndef TW_WORKER_DATA_CORPUS_H
#define TW_WORKER_DATA_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/dataset.h"
#include "worker/data/token_file.h"

enum tw_corpus_kind {
    TW_CORPUS_TEXT, /* one token per byte */
    TW_CORPUS_IDS,  /* raw token numbers */
    TW_CORPUS_LLMC, /* one shard, or a folder of them */
    TW_CORPUS_MEGATRON,
    TW_CORPUS_SHARD,
    TW_CORPUS_DATASET,
};

struct tw_corpus_file {
    struct tw_token_file tokens;
    uint32_t source;
    bool is_heldout, is_here; /* is_here: false while a dataset's file has not arrived */
};

struct tw_corpus {
    enum tw_corpus_kind kind;
    struct tw_corpus_file *files; /* (files_count); files of one source are adjacent */
    uint32_t files_count, missing_next;
    /* true: the files mark their held-out part; false: the end of the data is held out */
    bool has_heldout;
    uint64_t bytes; /* total size of all files */
    struct tw_megatron megatron;
    struct tw_id digest; /* SHA-256 of a dataset's index */

    /* Sources, vocabulary, separator and tokenizer of a dataset or shard; the list `about.shards`
     * stays empty. Data of other kinds have one source and vocabulary 0 (unknown). */
    struct tw_dataset about;
};

/* How to interpret a file without a header. */
struct tw_corpus_hint {
    bool is_ids;    /* raw token numbers: 2 bytes each if vocab is at most 65536, else 4 */
    uint32_t vocab; /* 0: unknown */
};

/* Opens the data at path. The message of TW_DATA names the path and a remedy. */
enum tw_status tw_corpus_open(struct tw_corpus *corpus, const char *path,
                              const struct tw_corpus_hint *hint, struct tw_error *err);
void tw_corpus_close(struct tw_corpus *corpus); /* a zero-initialised corpus is allowed */

/* Returns the number of tokens of all training files, or of all held-out files. */
uint64_t tw_corpus_tokens(const struct tw_corpus *corpus, bool is_heldout);

/* Looks for a few of the missing files per call. Returns true if one of them has arrived. */
bool tw_corpus_refresh(struct tw_corpus *corpus);

/* Returns a name with its article for messages, for example "a dataset". */
const char *tw_corpus_kind_name(enum tw_corpus_kind kind);

/* ---- for the readers of each kind ------------------------------------------------------------ */

/* Sets *path to folder/name, or to a copy of name if folder is NULL. The caller frees it. Fails
 * with TW_NOMEM. */
enum tw_status tw_corpus_path(char **path, const char *folder, const char *name,
                              struct tw_error *err);

/* Implemented in corpus.c. is_llmc: whether a file whose first 12 bytes are `bytes` is a file
 * of llm.c. open_llmc opens one such file. open_llmc_folder opens *_train.bin and *_train_*.bin for
 * training, and *_val.bin and *_val_*.bin as held-out files. It fails with TW_AGAIN if there are
 * none. */
bool tw_corpus_is_llmc(const uint8_t *bytes);

/* Reads the index of the dataset in a folder. The caller frees dataset->shards. Fails with
 * TW_DATA. */
enum tw_status tw_dataset_read(const char *folder, struct tw_dataset *dataset, struct tw_id *digest,
                               struct tw_error *err);

#endif
