/* fuzz_checkpoint.c - arbitrary bytes as a checkpoint file, unchanged and with every digest
 * repaired: refused with a sentence, or loaded. No byte is written outside the tensors. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "memory_file.h"
#include "proto/safetensors.h"
#include "tests/daemon/store/state_sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct memory_file file = {.name = "ckpt.a.safetensors"};

struct node {
    struct tw_file_ops ops;
    struct tw_layout layout;
    struct sample_arrays arrays;
    struct tw_checkpoint *checkpoint;
};

static struct node *make_node(void) {
    static struct node node;
    static const struct tw_id run_id = {{1, 2, 3}};
    struct tw_run run;
    struct tw_error err;
    node.ops = memory_file_ops(&file);
    sample_layout(&node.layout, &run, 1, 1, 1);
    sample_arrays_init(&node.arrays, &node.layout, false);
    TW_ASSERT(tw_checkpoint_create(&node.checkpoint, &node.ops, "", &node.layout, &run_id, &err) ==
              TW_OK);
    return &node;
}

static void try_file(const uint8_t *bytes, size_t size) {
    static struct node *node;
    static struct tw_checkpoint_state state;
    struct tw_checkpoint_found found;
    struct tw_error err = {.status = TW_OK};
    if (node == NULL) node = make_node();
    file.bytes = bytes;
    file.size = size;
    const enum tw_status status =
        tw_checkpoint_load(node->checkpoint, &node->arrays.at, &state, &found, &err);
    TW_ASSERT(found.is_loaded == (status == TW_OK));
    TW_ASSERT(status == TW_OK || err.message[0] != '\0');
    static const uint8_t zeros[4 * TW_PART_ALIGN];
    const uint64_t begin = node->layout.params * 4, end = node->layout.elements * 4;
    for (uint32_t k = 0; k < TW_CHECKPOINT_KINDS; k++) {
        TW_ASSERT(memcmp(node->arrays.kinds[k] + begin, zeros, end - begin) == 0);
    }
}

static void put_hash(const struct tw_safetensors_text *text, size_t at, const uint8_t *bytes,
                     size_t size) {
    const struct tw_id hash = tw_sha256(bytes, size);
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(&hash, hex);
    if (text->size >= at + 64) memcpy((char *)(uintptr_t)text->bytes + at, hex, 64);
}

/* Repairs the digests if the header can be parsed. */
static void repair(uint8_t *bytes, size_t size) {
    enum { ROOM = 64, BLOCK_BYTES = 1 << 20 };
    static struct tw_safetensors_tensor tensors[ROOM];
    static struct tw_safetensors st;
    uint64_t json_bytes;
    st.tensors = tensors;
    st.tensors_capacity = ROOM;
    if (size < 8 || tw_safetensors_prefix(bytes, size, size, &json_bytes, NULL) != TW_OK) return;
    const size_t begin = 8 + (size_t)json_bytes;
    if (tw_safetensors_parse(&st, (const char *)bytes + 8, (size_t)json_bytes, size - begin,
                             NULL) != TW_OK)
        return;
    const struct tw_safetensors_text *hashes = tw_safetensors_metadata(&st, "sha256");
    const struct tw_safetensors_text *digest = tw_safetensors_metadata(&st, "digest");
    if (hashes == NULL || digest == NULL || digest->size != 64) return;
    for (size_t at = begin, i = 0; at < size; at += BLOCK_BYTES, i++) {
        put_hash(hashes, i * 64, bytes + at, size - at < BLOCK_BYTES ? size - at : BLOCK_BYTES);
    }
    memset((char *)(uintptr_t)digest->bytes, '0', 64);
    put_hash(digest, 0, bytes, begin);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > TW_SAFETENSORS_JSON_MAX) return 0;
    try_file(data, size);
    uint8_t *repaired = malloc(size > 0 ? size : 1);
    TW_ASSERT(repaired != NULL);
    memcpy(repaired, data, size);
    repair(repaired, size);
    try_file(repaired, size);
    free(repaired);
    return 0;
}
