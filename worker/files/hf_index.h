/* hf_index.h - model.safetensors.index.json: which file of a sharded model holds which tensor.
 *
 *   {"metadata": {"total_size": bytes}, "weight_map": {"tensor": "file", ...}}
 *
 * A file is named by a plain name, never by a path: an index cannot lead out of its folder. */
#ifndef TW_WORKER_FILES_HF_INDEX_H
#define TW_WORKER_FILES_HF_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/safetensors.h"

enum {
    TW_HF_INDEX_BYTES_MAX = 16 * 1024 * 1024,
    TW_HF_INDEX_TENSORS_MAX = 3 * 4096, /* some models keep buffers beside their parameters */
    TW_HF_INDEX_FILES_MAX = 512,
    TW_HF_FILE_BYTES = 96, /* name of a file, with NUL */
};

struct tw_hf_entry {
    char name[TW_SAFETENSORS_NAME_BYTES];
    uint32_t file; /* in files[] */
};

struct tw_hf_index {
    uint32_t files_count, entries_count;
    char (*files)[TW_HF_FILE_BYTES]; /* in order of appearance */
    struct tw_hf_entry *entries;     /* sorted by name */
};

/* Reads untrusted JSON. TW_CORRUPT: no such JSON, a key twice, a name that is no plain file or
 * tensor name; TW_LIMIT: too many of something; TW_NOMEM. On failure *index is empty. */
enum tw_status tw_hf_index_parse(struct tw_hf_index *index, const char *json, size_t size,
                                 struct tw_error *err);
void tw_hf_index_free(struct tw_hf_index *index);

/* The entry of that tensor, or NULL. */
const struct tw_hf_entry *tw_hf_index_find(const struct tw_hf_index *index, const char *name);

#endif
