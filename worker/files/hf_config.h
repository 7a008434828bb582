/* hf_config.h - reads the config.json of a Hugging Face model into a run's model keys.
 *
 * Supported are gpt2, llama, mistral, qwen2 and qwen3 where the engine computes exactly the same.
 * Any other key or value that would change the arithmetic is refused; the error names the key, the
 * value and the supported values. Of a model with a sliding window, the context is at most the
 * window, within which every token attends to all before it. */
#ifndef TW_WORKER_FILES_HF_CONFIG_H
#define TW_WORKER_FILES_HF_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/model_config.h"
#include "proto/run/run.h"
#include "proto/safetensors.h"

enum { TW_HF_CONFIG_BYTES_MAX = 1024 * 1024, TW_HF_TEMPLATE_BYTES_MAX = 32 * 1024 * 1024 };

/* Fills run->model (except its seed) from untrusted JSON, and sets run->data.tokenizer to ids.
 * Other members of *run stay. On success every key is within its range; the caller must still call
 * tw_run_check. Fails with TW_CONFIG if the model is not supported, TW_CORRUPT if the JSON is
 * malformed, or TW_NOMEM; then *run is unchanged. */
enum tw_status tw_hf_config_parse(struct tw_run *run, const char *json, size_t size,
                                  struct tw_error *err);

/* The keys of a config.json that an export changes. */
struct tw_hf_config_change {
    enum tw_dtype dtype;            /* F32, BF16 or F16: type of the written tensors */
    uint32_t context;               /* 0: the number of positions stays */
    const struct tw_model_ids *eos; /* its eos; NULL: the end stays */
};

/* Sets *text, which the caller frees, to a config.json that tw_hf_config_parse has accepted with
 * these changes and no others. An architecture without a head becomes the one with a head, which is
 * written. Fails with TW_CORRUPT or TW_NOMEM. */
enum tw_status tw_hf_config_change(const char *json, size_t size,
                                   const struct tw_hf_config_change *change, char **text,
                                   struct tw_error *err);

/* Sets *text, which the caller frees, to the chat template of a model: chat_template.jinja in
 * `folder`, else the entry (or the one named "default") of its tokenizer_config.json; NULL if it
 * has none, or one with a NUL. Fails with TW_IO, TW_CORRUPT or TW_NOMEM. */
enum tw_status tw_hf_chat_template(const char *folder, char **text, struct tw_error *err);

/* ---- index of a sharded model ---------------------------------------------------------------- */

/* model.safetensors.index.json: maps each tensor of a sharded model to its file.
 *
 *   {"metadata": {"total_size": bytes}, "weight_map": {"tensor": "file", ...}}
 *
 * Files are plain names, never paths, so an index cannot refer outside its folder. */

enum {
    TW_HF_INDEX_BYTES_MAX = 16 * 1024 * 1024,
    /* above the limit of parameters, because some models also store buffers */
    TW_HF_INDEX_TENSORS_MAX = 3 * 4096,
    TW_HF_INDEX_FILES_MAX = 512,
    TW_HF_FILE_BYTES = 96, /* size of a file name, including NUL */
};

struct tw_hf_entry {
    char name[TW_SAFETENSORS_NAME_BYTES];
    uint32_t file; /* index into files[] */
};

struct tw_hf_index {
    uint32_t files_count, entries_count;
    char (*files)[TW_HF_FILE_BYTES]; /* file names in order of appearance */
    struct tw_hf_entry *entries;     /* sorted by name */
};

/* Parses untrusted JSON. Fails with TW_CORRUPT for malformed JSON, a duplicate key, or an invalid
 * file or tensor name; with TW_LIMIT for too many entries; with TW_NOMEM. On failure *index is
 * empty. */
enum tw_status tw_hf_index_parse(struct tw_hf_index *index, const char *json, size_t size,
                                 struct tw_error *err);

void tw_hf_index_free(struct tw_hf_index *index);

/* Returns the tensor's entry, or NULL if there is none. */
const struct tw_hf_entry *tw_hf_index_find(const struct tw_hf_index *index, const char *name);

#endif
