#include "worker/files/gguf_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

void tw_gguf_head_deinit(struct tw_gguf_head *head) {
    free(head->bytes);
    *head = (struct tw_gguf_head){.architecture = head->architecture};
}

void tw_gguf_put(struct tw_gguf_head *head, const void *bytes, size_t size) {
    if (head->is_out_of_memory || size == 0) return;
    if (size > head->capacity - head->size) {
        const size_t capacity = 2 * head->capacity + size + 4096;
        uint8_t *const grown = realloc(head->bytes, capacity);
        if (grown == NULL) {
            head->is_out_of_memory = true;
            return;
        }
        head->bytes = grown;
        head->capacity = capacity;
    }
    memcpy(head->bytes + head->size, bytes, size);
    head->size += size;
}

void tw_gguf_put_u32(struct tw_gguf_head *head, uint32_t value) {
    uint8_t bytes[4];
    tw_put_u32(bytes, value);
    tw_gguf_put(head, bytes, sizeof(bytes));
}

void tw_gguf_put_u64(struct tw_gguf_head *head, uint64_t value) {
    uint8_t bytes[8];
    tw_put_u64(bytes, value);
    tw_gguf_put(head, bytes, sizeof(bytes));
}

void tw_gguf_put_text(struct tw_gguf_head *head, const char *text, size_t size) {
    tw_gguf_put_u64(head, size);
    tw_gguf_put(head, text, size);
}

void tw_gguf_put_string(struct tw_gguf_head *head, const char *text) {
    tw_gguf_put_text(head, text, strlen(text));
}

static void put_key(struct tw_gguf_head *head, const char *key, enum tw_gguf_type type) {
    char name[TW_GGUF_NAME_BYTES];
    const char *const at = strstr(key, "%s");
    if (at == NULL) {
        (void)snprintf(name, sizeof(name), "%s", key);
    } else {
        (void)snprintf(name, sizeof(name), "%s%s", head->architecture, at + 2);
    }
    tw_gguf_put_string(head, name);
    tw_gguf_put_u32(head, type);
    head->pairs_count++;
}

void tw_gguf_pair_u32(struct tw_gguf_head *head, const char *key, uint32_t value) {
    put_key(head, key, TW_GGUF_U32);
    tw_gguf_put_u32(head, value);
}

void tw_gguf_pair_f32(struct tw_gguf_head *head, const char *key, double value) {
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    put_key(head, key, TW_GGUF_F32);
    tw_gguf_put_u32(head, bits);
}

void tw_gguf_pair_bool(struct tw_gguf_head *head, const char *key, bool value) {
    const uint8_t byte = value ? 1 : 0;
    put_key(head, key, TW_GGUF_BOOL);
    tw_gguf_put(head, &byte, 1);
}

void tw_gguf_pair_string(struct tw_gguf_head *head, const char *key, const char *value) {
    put_key(head, key, TW_GGUF_STRING);
    tw_gguf_put_string(head, value);
}

void tw_gguf_pair_array(struct tw_gguf_head *head, const char *key, enum tw_gguf_type type,
                        uint64_t count) {
    put_key(head, key, TW_GGUF_ARRAY);
    tw_gguf_put_u32(head, type);
    tw_gguf_put_u64(head, count);
}
