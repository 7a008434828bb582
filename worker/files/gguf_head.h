/* gguf_head.h - builds the header of a GGUF file: keys with typed values, all little-endian. */
#ifndef TW_WORKER_FILES_GGUF_HEAD_H
#define TW_WORKER_FILES_GGUF_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TW_GGUF_NAME_BYTES = 64 }; /* length of a key or tensor name, including NUL */

/* Value types of the format. */
enum tw_gguf_type {
    TW_GGUF_U32 = 4,
    TW_GGUF_I32 = 5,
    TW_GGUF_F32 = 6,
    TW_GGUF_BOOL = 7,
    TW_GGUF_STRING = 8,
    TW_GGUF_ARRAY = 9,
};

/* Zero-initialise all fields but `architecture`. The functions do not report a failed allocation:
 * check is_out_of_memory at the end. */
struct tw_gguf_head {
    const char *architecture; /* text that replaces "%s" in keys */
    uint8_t *bytes;           /* (size) bytes written of `capacity` allocated */
    size_t size, capacity;
    bool is_out_of_memory;
    uint32_t pairs_count;
};
void tw_gguf_head_deinit(struct tw_gguf_head *head);

/* These append raw values: array elements, and data outside key-value pairs. */
void tw_gguf_put(struct tw_gguf_head *head, const void *bytes, size_t size);
void tw_gguf_put_u32(struct tw_gguf_head *head, uint32_t value);
void tw_gguf_put_u64(struct tw_gguf_head *head, uint64_t value);
void tw_gguf_put_text(struct tw_gguf_head *head, const char *text, size_t size);
void tw_gguf_put_string(struct tw_gguf_head *head, const char *text);

/* These append a key with its value. */
void tw_gguf_pair_u32(struct tw_gguf_head *head, const char *key, uint32_t value);
void tw_gguf_pair_f32(struct tw_gguf_head *head, const char *key, double value);
void tw_gguf_pair_bool(struct tw_gguf_head *head, const char *key, bool value);
void tw_gguf_pair_string(struct tw_gguf_head *head, const char *key, const char *value);

/* Begins an array; the caller must then append `count` values of `type`. */
void tw_gguf_pair_array(struct tw_gguf_head *head, const char *key, enum tw_gguf_type type,
                        uint64_t count);

#endif
