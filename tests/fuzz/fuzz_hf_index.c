/* fuzz_hf_index.c - arbitrary bytes as model.safetensors.index.json: refused with a sentence, or a
 * sorted list of plain names in which every tensor is found. */
#include <string.h>

#include "base/assert.h"
#include "worker/files/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_hf_index index;
    struct tw_error err = {TW_OK, ""};
    if (tw_hf_index_parse(&index, (const char *)data, size, &err) != TW_OK) {
        TW_ASSERT(err.message[0] != 0);
        TW_ASSERT(index.files == NULL && index.entries == NULL);
        return 0;
    }
    TW_ASSERT(index.files_count > 0 && index.files_count <= index.entries_count);
    for (uint32_t i = 0; i < index.files_count; i++) {
        TW_ASSERT(strchr(index.files[i], '/') == NULL && index.files[i][0] != '.');
    }
    for (uint32_t i = 0; i < index.entries_count; i++) {
        const struct tw_hf_entry *const entry = &index.entries[i];
        TW_ASSERT(entry->file < index.files_count);
        TW_ASSERT(tw_hf_index_find(&index, entry->name) == entry);
        TW_ASSERT(i == 0 || strcmp(index.entries[i - 1].name, entry->name) < 0);
    }
    tw_hf_index_free(&index);
    return 0;
}
