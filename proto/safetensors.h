/* safetensors.h - the header of a safetensors file: tensor names, types, shapes and offsets.
 *
 *   u64 little-endian N | N bytes of JSON, padded with spaces | data
 *   {"__metadata__":{"key":"value",...},
 *    "name":{"dtype":"F32","shape":[rows,cols],"data_offsets":[begin,end]},...}
 *
 * Offsets count from the start of the data; together the tensors cover the data exactly once. Only
 * the header is read or written: pure, no file and no allocation. */
#ifndef TW_PROTO_SAFETENSORS_H
#define TW_PROTO_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    TW_SAFETENSORS_PREFIX_BYTES = 8,
    TW_SAFETENSORS_NAME_BYTES = 160, /* including NUL */
    TW_SAFETENSORS_RANK_MAX = 6,
    TW_SAFETENSORS_SHAPE_MAX = 64,    /* numbers read of a shape with too many dimensions, so that
                                         the message can name its tensor */
    TW_SAFETENSORS_DEPTH_MAX = 127,   /* open brackets; the limit of the safetensors library */
    TW_SAFETENSORS_METADATA_MAX = 64, /* pairs of __metadata__ */
    TW_SAFETENSORS_JSON_MAX = 100 * 1000 * 1000, /* bytes; the format's own limit */
    TW_SAFETENSORS_ALIGN = 64, /* bytes: alignment of the data in files that this program writes */
};

/* X(name, bytes per element) */
#define TW_DTYPE_LIST(X)                                                                           \
    X(F32, 4)                                                                                      \
    X(BF16, 2)                                                                                     \
    X(F16, 2)                                                                                      \
    X(F64, 8)                                                                                      \
    X(F8_E4M3, 1)                                                                                  \
    X(F8_E5M2, 1)                                                                                  \
    X(BOOL, 1)                                                                                     \
    X(U8, 1)                                                                                       \
    X(I8, 1)                                                                                       \
    X(U16, 2)                                                                                      \
    X(I16, 2)                                                                                      \
    X(U32, 4)                                                                                      \
    X(I32, 4)                                                                                      \
    X(U64, 8)                                                                                      \
    X(I64, 8)

enum tw_dtype {
#define X(name, bytes) TW_DTYPE_##name,
    TW_DTYPE_LIST(X)
#undef X
        TW_DTYPES_COUNT
};

struct tw_safetensors_tensor {
    char name[TW_SAFETENSORS_NAME_BYTES];
    enum tw_dtype dtype;
    uint32_t rank; /* number of dimensions; 0 = a single element */
    uint64_t shape[TW_SAFETENSORS_RANK_MAX];
    uint64_t begin, end; /* bytes from the start of the data */
};

/* Text without NUL. After a parse it is borrowed from the header, with JSON escapes not decoded. */
struct tw_safetensors_text {
    const char *bytes;
    size_t size;
};

struct tw_safetensors_pair {
    struct tw_safetensors_text key, value;
};

struct tw_safetensors {
    struct tw_safetensors_tensor *tensors; /* (tensors_capacity), owned by the caller */
    uint32_t tensors_capacity, tensors_count;
    bool is_unsupported; /* the parse failed at a feature of the format that is not supported: the
                            file is not damaged */
    uint32_t metadata_count;
    struct tw_safetensors_pair metadata[TW_SAFETENSORS_METADATA_MAX];
};

/* Bytes per element, 1 to 8, and the type's name in files ("BF16"). */
uint32_t tw_dtype_bytes(enum tw_dtype dtype);
const char *tw_dtype_name(enum tw_dtype dtype);

/* Sets *json_bytes to the size of the JSON header, which the first 8 bytes of a file of
 * `file_bytes` bytes give. Returns TW_CORRUPT if such a header would not fit into the file, or
 * exceeds json_bytes_max (<= TW_SAFETENSORS_JSON_MAX). */
enum tw_status tw_safetensors_prefix(const uint8_t prefix[TW_SAFETENSORS_PREFIX_BYTES],
                                     uint64_t file_bytes, uint64_t json_bytes_max,
                                     uint64_t *json_bytes, struct tw_error *err);

/* Parses json[json_bytes], the untrusted header of a file with data_bytes bytes of data. Names must
 * be unescaped printable ASCII, and keys unique. Each tensor's byte range must match its shape and
 * type, and the ranges must cover the data without holes or overlaps. Unknown fields of a tensor,
 * and metadata pairs beyond TW_SAFETENSORS_METADATA_MAX, are skipped.
 *
 * The caller sets st->tensors and st->tensors_capacity; the rest is filled, with tensors sorted by
 * name. Returns TW_CORRUPT with the tensor and the reason, or TW_LIMIT if there are more tensors
 * than the capacity. On failure *st is undefined except for is_unsupported and the caller's two
 * fields. Takes O(n log n) time and allocates nothing. */
enum tw_status tw_safetensors_parse(struct tw_safetensors *st, const char *json, size_t json_bytes,
                                    uint64_t data_bytes, struct tw_error *err);

/* Returns the tensor of that name after a parse, or NULL. Binary search. */
const struct tw_safetensors_tensor *tw_safetensors_find(const struct tw_safetensors *st,
                                                        const char *name);

/* Returns the metadata value of that key after a parse, or NULL. */
const struct tw_safetensors_text *tw_safetensors_metadata(const struct tw_safetensors *st,
                                                          const char *key);

/* Writes prefix, JSON and padding for st->tensors, laid out in array order, and fills in each begin
 * and end. Names and metadata come from this program: it is asserted that they are printable ASCII
 * without quotes and backslashes. *size_out is a multiple of TW_SAFETENSORS_ALIGN. It depends only
 * on numbers and lengths, so a value can be replaced by one of equal length. Returns TW_LIMIT if
 * the header does not fit into `capacity` bytes. */
enum tw_status tw_safetensors_encode(struct tw_safetensors *st, uint8_t *header, size_t capacity,
                                     size_t *size_out, struct tw_error *err);

/* Returns an upper bound of the bytes that encode writes for these tensors and metadata. */
size_t tw_safetensors_bound(const struct tw_safetensors *st);

#endif
