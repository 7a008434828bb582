/* hf_index_parse.c - parses the index of a sharded model. */
#include "worker/files/hf_index.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/support/hf_json.h"

static bool is_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

/* Accepts names like "model-00001-of-00002.safetensors": no folder, no hidden file, no terminal
 * control characters. */
static bool is_file_name(const char *name) {
    static const char END[] = ".safetensors";
    const size_t size = strlen(name), end = sizeof(END) - 1;
    if (size <= end || size >= TW_HF_FILE_BYTES || name[0] == '.') return false;
    for (size_t i = 0; i < size; i++) {
        if (!is_plain(name[i])) return false;
    }
    return strcmp(name + size - end, END) == 0;
}

static bool is_tensor_name(const char *name) {
    const size_t size = strlen(name);
    for (size_t i = 0; i < size; i++) {
        if (!is_plain(name[i])) return false;
    }
    return size > 0 && size < TW_SAFETENSORS_NAME_BYTES;
}

static enum tw_status add_entry(struct tw_hf_index *index, const char *name, const json_t *value,
                                struct tw_error *err) {
    char shown[TW_HF_SHOWN_BYTES];
    const char *const file = json_string_value(value);
    if (!is_tensor_name(name)) {
        return tw_fail(err, TW_CORRUPT, "weight_map names a tensor in another way than a-z . _");
    }
    if (file == NULL || !is_file_name(file)) {
        return tw_fail(err, TW_CORRUPT,
                       "weight_map puts %s into %s: it takes the plain name of a .safetensors file "
                       "in the same folder",
                       name, tw_hf_show(value, shown));
    }
    uint32_t at = 0;
    while (at < index->files_count && strcmp(index->files[at], file) != 0) at++;
    if (at == TW_HF_INDEX_FILES_MAX) {
        return tw_fail(err, TW_LIMIT, "weight_map names more than %d files", TW_HF_INDEX_FILES_MAX);
    }
    if (at == index->files_count) {
        memcpy(index->files[index->files_count++], file, strlen(file) + 1);
    }
    struct tw_hf_entry *const entry = &index->entries[index->entries_count++];
    memcpy(entry->name, name, strlen(name) + 1);
    entry->file = at;
    return TW_OK;
}

static int compare(const void *a, const void *b) {
    return strcmp(((const struct tw_hf_entry *)a)->name, ((const struct tw_hf_entry *)b)->name);
}

static enum tw_status fill_index(struct tw_hf_index *index, json_t *map, struct tw_error *err) {
    const size_t count = json_object_size(map);
    if (count == 0 || !json_is_object(map)) {
        return tw_fail(err, TW_CORRUPT, "it has no weight_map that names a tensor");
    }
    if (count > TW_HF_INDEX_TENSORS_MAX) {
        return tw_fail(err, TW_LIMIT, "weight_map has %zu tensors; at most %d can be read", count,
                       TW_HF_INDEX_TENSORS_MAX);
    }
    index->entries = calloc(count, sizeof(*index->entries));
    index->files = calloc(TW_HF_INDEX_FILES_MAX, sizeof(*index->files));
    if (index->entries == NULL || index->files == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for an index of %zu tensors", count);
    }
    for (void *at = json_object_iter(map); at != NULL; at = json_object_iter_next(map, at)) {
        TW_TRY(add_entry(index, json_object_iter_key(at), json_object_iter_value(at), err));
    }
    qsort(index->entries, index->entries_count, sizeof(*index->entries), compare);
    return TW_OK;
}

enum tw_status tw_hf_index_parse(struct tw_hf_index *index, const char *json, size_t size,
                                 struct tw_error *err) {
    json_t *root = NULL;
    memset(index, 0, sizeof(*index));
    TW_TRY(tw_hf_json_parse(&root, json, size, TW_HF_INDEX_BYTES_MAX, err));
    const enum tw_status status = fill_index(index, json_object_get(root, "weight_map"), err);
    json_decref(root);
    if (status != TW_OK) tw_hf_index_free(index);
    return status;
}
