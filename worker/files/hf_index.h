/* hf_index.h - model.safetensors.index.json: maps each tensor of a sharded model to its file.
 *
 *   {"metadata": {"total_size": bytes}, "weight_map": {"tensor": "file", ...}}
 *
 * Files are plain names, never paths, so an index cannot refer outside its folder. */
#ifndef TW_WORKER_FILES_HF_INDEX_H
#define TW_WORKER_FILES_HF_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/safetensors.h"

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
