#include "worker/files/hf_index.h"

#include <stdlib.h>
#include <string.h>

void tw_hf_index_free(struct tw_hf_index *index) {
    free(index->files);
    free(index->entries);
    memset(index, 0, sizeof(*index));
}

const struct tw_hf_entry *tw_hf_index_find(const struct tw_hf_index *index, const char *name) {
    uint32_t low = 0, high = index->entries_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(index->entries[middle].name, name);
        if (order == 0) return &index->entries[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}
