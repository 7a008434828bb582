/* fuzz_dataset.c - arbitrary bytes as the index of a dataset: refused, or a dataset that encodes to
 * exactly these bytes. */
#include <string.h>

#include "base/assert.h"
#include "proto/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tw_dataset_shard shards[ROOM];
    static struct tw_dataset dataset;
    static char again[64 * 1024], name[TW_DATASET_FILE_BYTES];
    const char *const text = (const char *)data;
    struct tw_error err;
    size_t again_size = 0;
    uint32_t bytes = 0;
    if (tw_dataset_size(text, size, &bytes, &err) == TW_OK)
        TW_ASSERT(bytes <= TW_DATASET_BYTES_MAX);
    const uint32_t lines = tw_dataset_lines(text, size);
    if (tw_dataset_decode(text, size, shards, ROOM, &dataset, &err) != TW_OK) return 0;
    TW_ASSERT(dataset.shards_count <= lines);
    TW_ASSERT(tw_dataset_encode(&dataset, again, sizeof(again), &again_size, &err) == TW_OK);
    TW_ASSERT(again_size == size && memcmp(again, text, size) == 0);
    for (uint32_t i = 0; i < dataset.shards_count; i++) {
        tw_dataset_file(&dataset, &shards[i], name);
        TW_ASSERT(strchr(name, '/') == NULL && name[0] != '.');
    }
    return 0;
}
