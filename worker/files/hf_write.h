/* hf_write.h - writes a model as safetensors: one file, or a folder for Hugging Face's
 * transformers, split into several files if large.
 *
 * Never overwrites a file, and leaves nothing behind on failure: out_file.h. Memory holds only one
 * block of numbers at a time. */
#ifndef TW_WORKER_FILES_HF_WRITE_H
#define TW_WORKER_FILES_HF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/model_config.h"
#include "proto/run/run.h"
#include "worker/files/model_source.h"
#include "worker/tokenizer/text_ends.h"

/* Writes one safetensors file with the layout's tensor names and `format = pt` in its metadata.
 * dtype: F32, BF16, F16, or TW_FEED_KEEP. Sets *bytes_out (may be NULL) to the file size. Fails
 * with TW_CONFIG, TW_IO, TW_NOMEM, or an error of the feed. */
enum tw_status tw_hf_write_file(const char *path, const struct tw_model_feed *feed,
                                enum tw_dtype dtype, uint64_t *bytes_out, struct tw_error *err);

/* shard_bytes: limit of tensor bytes per file; 0: no limit. A tensor is never split. */
struct tw_hf_folder {
    enum tw_dtype dtype; /* F32, BF16 or F16 */
    uint64_t shard_bytes;
    const struct tw_hf_texts *texts; /* text files beside config.json; NULL: none */
    const struct tw_model_ids *ids;  /* special tokens that config.json names; NULL: none */
    const char *own; /* folder with the model's own files, for the caller; NULL: none */
    /* (config_bytes) text of the model's own config.json, of which only that is changed which the
     * export changes: dtype, the context if one is chosen (0: none is), the end if it is chosen;
     * NULL: config.json is made of the run */
    const char *config;
    size_t config_bytes;
    uint32_t context;
    bool is_eos_chosen;
    uint32_t files_count; /* out */
    uint64_t bytes;       /* out: total size of the tensors */
};

/* Writes a folder with config.json, model.safetensors (or shards and their index) and the given
 * text files. It is written as PATH.part and then renamed. Fails as tw_hf_write_file does. */
enum tw_status tw_hf_write_folder(const char *path, const struct tw_model_feed *feed,
                                  struct tw_hf_folder *folder, struct tw_error *err);

/* ---- the text files of a Hugging Face folder beside config.json ------------------------------ */

/* The tokenizer, and the tokens that begin, end and pad a text.
 *
 * A file of the source is copied unchanged, but for one name that only the newest transformers know
 * (hf_write.c). If the source lacks a file, one is written. Otherwise,
 * readers would guess from the kind of model and add tokens that the model does not have. */

enum { TW_HF_TEXTS_MAX = 9 };

struct tw_hf_text {
    const char *name; /* name of the file, borrowed */
    char *text;       /* owned */
    size_t bytes;
};

struct tw_hf_texts {
    struct tw_hf_text list[TW_HF_TEXTS_MAX];
    uint32_t count;
};

struct tw_hf_texts_source {
    const char *model;          /* folder of the source model, or NULL */
    const char *tokenizer_path; /* path of the model's tokenizer.json; NULL if it has none, such as
                                   a model on bytes */
    const char *tokenizer_text; /* (tokenizer_bytes) content of that file, or NULL */
    size_t tokenizer_bytes;
    const struct tw_tokenizer *tokenizer; /* tokenizer that was read; NULL if there is none, or its
                                             kind is not supported */
    const struct tw_text_ends *ends;
    bool is_eos_chosen; /* the user chose the end token, so the source's generation_config.json is
                           not copied */
};

/* Fills *texts, which the caller frees, also after a failure. Fails with TW_IO, TW_CORRUPT (a file
 * is too large) or TW_NOMEM. */
enum tw_status tw_hf_texts_make(struct tw_hf_texts *texts, const struct tw_run *run,
                                const struct tw_hf_texts_source *source, struct tw_error *err);

void tw_hf_texts_free(struct tw_hf_texts *texts);

#endif
