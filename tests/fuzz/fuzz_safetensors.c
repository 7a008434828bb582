/* fuzz_safetensors.c - arbitrary bytes as a safetensors header: refused, or a description that
 * tiles its data and that our own writer can write. Input: u64 size of the data, then the JSON. */
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "proto/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 32 };

static void write_again(struct tw_safetensors *st, uint64_t data_bytes) {
    static uint8_t header[64 * 1024];
    static struct tw_safetensors_tensor back[ROOM];
    struct tw_safetensors again = {.tensors = back, .tensors_capacity = ROOM};
    size_t size;
    st->metadata_count = 0; /* metadata may contain escapes, which our writer does not write */
    TW_ASSERT(tw_safetensors_bound(st) <= sizeof(header));
    TW_ASSERT(tw_safetensors_encode(st, header, sizeof(header), &size, NULL) == TW_OK);
    TW_ASSERT(tw_safetensors_parse(&again, (const char *)header + 8, size - 8, data_bytes, NULL) ==
              TW_OK);
    TW_ASSERT(again.tensors_count == st->tensors_count);
    for (uint32_t i = 0; i < st->tensors_count; i++) {
        const struct tw_safetensors_tensor *tensor = &st->tensors[i];
        const struct tw_safetensors_tensor *found = tw_safetensors_find(&again, tensor->name);
        TW_ASSERT(found != NULL && memcmp(found, tensor, sizeof(*found)) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tw_safetensors_tensor tensors[ROOM];
    static struct tw_safetensors st;
    struct tw_error err;
    uint64_t json_bytes;
    if (size < 8) return 0;
    if (tw_safetensors_prefix(data, size, TW_SAFETENSORS_JSON_MAX, &json_bytes, &err) == TW_OK) {
        TW_ASSERT(json_bytes <= size - 8);
    }
    const uint64_t data_bytes = tw_get_u64(data);
    st.tensors = tensors;
    st.tensors_capacity = ROOM;
    if (tw_safetensors_parse(&st, (const char *)data + 8, size - 8, data_bytes, &err) == TW_OK) {
        (void)tw_safetensors_metadata(&st, "format");
        write_again(&st, data_bytes);
    }
    return 0;
}
