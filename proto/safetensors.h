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
    TW_SAFETENSORS_NAME_BYTES = 160, /* with NUL */
    TW_SAFETENSORS_RANK_MAX = 6,
    TW_SAFETENSORS_SHAPE_MAX = 64,    /* numbers of a shape that is refused by name */
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
    uint32_t rank; /* 0 = one element */
    uint64_t shape[TW_SAFETENSORS_RANK_MAX];
    uint64_t begin, end; /* bytes from the start of the data */
};

/* Text without NUL. After parse: borrowed from the header, with JSON escapes left in. */
struct tw_safetensors_text {
    const char *bytes;
    size_t size;
};

struct tw_safetensors_pair {
    struct tw_safetensors_text key, value;
};

struct tw_safetensors {
    struct tw_safetensors_tensor *tensors; /* the caller's, tensors_capacity of them */
    uint32_t tensors_capacity, tensors_count;
    bool is_unsupported; /* parse failed at a feature of the format that is not read: no damage */
    uint32_t metadata_count;
    struct tw_safetensors_pair metadata[TW_SAFETENSORS_METADATA_MAX];
};

/* Bytes per element, 1 to 8; and the name used in files ("BF16"). */
uint32_t tw_dtype_bytes(enum tw_dtype dtype);
const char *tw_dtype_name(enum tw_dtype dtype);

/* Reads N from the first 8 bytes of a file of `file_bytes`. TW_CORRUPT when the header would not
 * fit into the file or exceeds json_bytes_max (<= TW_SAFETENSORS_JSON_MAX). */
enum tw_status tw_safetensors_prefix(const uint8_t prefix[TW_SAFETENSORS_PREFIX_BYTES],
                                     uint64_t file_bytes, uint64_t json_bytes_max,
                                     uint64_t *json_bytes, struct tw_error *err);

/* Parses json[json_bytes] (after the prefix) of a file with data_bytes bytes of data. Untrusted:
 * names must be unescaped printable ASCII, keys unique, sizes equal to shape times element, with no
 * holes, no overlaps and nothing outside the data. Fields of a tensor that the format does not have
 * are skipped. So are pairs of __metadata__ beyond the room for them. The caller sets st->tensors
 * and st->tensors_capacity; the rest is filled, with tensors sorted by name. TW_CORRUPT names the
 * tensor and the reason. TW_LIMIT: more tensors than there is room for. On failure *st is undefined
 * except for is_unsupported and the caller's two fields. O(n log n) time, no memory. */
enum tw_status tw_safetensors_parse(struct tw_safetensors *st, const char *json, size_t json_bytes,
                                    uint64_t data_bytes, struct tw_error *err);

/* The tensor of that name after a parse, or NULL. Binary search. */
const struct tw_safetensors_tensor *tw_safetensors_find(const struct tw_safetensors *st,
                                                        const char *name);

/* The metadata value of that key after a parse, or NULL. */
const struct tw_safetensors_text *tw_safetensors_metadata(const struct tw_safetensors *st,
                                                          const char *key);

/* Writes prefix, JSON and padding for st->tensors, laid out in array order, and fills each begin
 * and end. Names and metadata must be printable ASCII without quote and backslash. This is
 * asserted, because they come from this program. *size_out is a multiple of TW_SAFETENSORS_ALIGN
 * and depends only on lengths and numbers, so that a value can be replaced by one of equal length.
 * TW_LIMIT if it does not fit into `capacity` bytes. */
enum tw_status tw_safetensors_encode(struct tw_safetensors *st, uint8_t *header, size_t capacity,
                                     size_t *size_out, struct tw_error *err);

/* Upper bound of the bytes that encode writes for these tensors and this metadata. */
size_t tw_safetensors_bound(const struct tw_safetensors *st);

#endif
