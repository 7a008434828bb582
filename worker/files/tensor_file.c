#include "worker/files/tensor_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/file_kind.h"
#include "worker/support/out_file.h"

/* ---- elements -------------------------------------------------------------------------------- */

enum { F32_INFINITY = 0x7F800000, BF16_INFINITY = 0x7F80, F16_INFINITY = 0x7C00 };

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float value_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t widen_f16(uint32_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, rest = half & 0x3FFu;
    if (exponent == 31) return sign | F32_INFINITY | rest << 13;
    if (exponent > 0) return sign | (exponent + 112) << 23 | rest << 13;
    return sign | bits_of((float)rest * 0x1p-24f);
}

static uint32_t narrow_f16(uint32_t bits) {
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > F32_INFINITY) return sign | 0x7E00u;
    if (size >= 0x47800000u) return sign | F16_INFINITY; /* 65536 and more */
    if (size < 0x38800000u) {                            /* below 2^-14 */
        /* The lowest bit of 0.5f is worth 2^-24, like the lowest bit of float16 numbers below
         * 2^-14. Adding 0.5f therefore rounds to float16. */
        return sign | (bits_of(value_of(size) + 0.5f) - bits_of(0.5f));
    }
    const uint32_t rebiased = size - (112u << 23);
    return sign | (rebiased + 0xFFFu + (rebiased >> 13 & 1)) >> 13;
}

static uint32_t narrow_bf16(uint32_t bits) {
    if ((bits & 0x7FFFFFFFu) > F32_INFINITY) return bits >> 16 | 0x40u;
    return (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
}

bool tw_elements_can(enum tw_dtype dtype) {
    return dtype == TW_DTYPE_F32 || dtype == TW_DTYPE_BF16 || dtype == TW_DTYPE_F16;
}

size_t tw_elements_load(enum tw_dtype dtype, float *to, const uint8_t *from, size_t n) {
    TW_ASSERT(tw_elements_can(dtype));
    size_t bad = n;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        if (dtype == TW_DTYPE_F32) {
            bits = tw_get_u32(from + 4 * i);
        } else {
            const uint32_t half = tw_get_u16(from + 2 * i);
            bits = dtype == TW_DTYPE_BF16 ? half << 16 : widen_f16(half);
        }
        to[i] = value_of(bits);
        if (bad == n && (bits & F32_INFINITY) == F32_INFINITY) bad = i;
    }
    return bad;
}

size_t tw_elements_store(enum tw_dtype dtype, uint8_t *to, const float *from, size_t n) {
    TW_ASSERT(tw_elements_can(dtype));
    const uint32_t infinity = dtype == TW_DTYPE_F32    ? (uint32_t)F32_INFINITY
                              : dtype == TW_DTYPE_BF16 ? (uint32_t)BF16_INFINITY
                                                       : (uint32_t)F16_INFINITY;
    size_t bad = n;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(from[i]);
        if (dtype == TW_DTYPE_BF16) bits = narrow_bf16(bits);
        if (dtype == TW_DTYPE_F16) bits = narrow_f16(bits);
        if (dtype == TW_DTYPE_F32) {
            tw_put_u32(to + 4 * i, bits);
        } else {
            tw_put_u16(to + 2 * i, (uint16_t)bits);
        }
        if (bad == n && (bits & infinity) == infinity) bad = i;
    }
    return bad;
}

/* ---- files ----------------------------------------------------------------------------------- */

static const char ANOTHER[] = "; it is cut short or damaged: take another copy";

const char *tw_tensor_file_base(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash != NULL && slash[1] != 0 ? slash + 1 : path;
}

/* Whether the { of a safetensors header follows the header's length. */
static bool has_bracket(const uint8_t *first, size_t size) {
    return size > TW_SAFETENSORS_PREFIX_BYTES && first[TW_SAFETENSORS_PREFIX_BYTES] == '{';
}

/* Recognises a file of another kind by its first bytes, and names the kind. The length of a
 * safetensors header may look like another kind's magic number, so the header's { is checked
 * first. */
static enum tw_status check_kind(const struct tw_tensor_file *file, const uint8_t *first,
                                 size_t size, struct tw_error *err) {
    const bool is_header = has_bracket(first, size);
    const struct tw_file_kind *const kind = is_header ? NULL : tw_file_kind_of(first, size);
    if (kind == NULL) return TW_OK;
    if (kind->holds == TW_HOLDS_POINTER) {
        return tw_fail(err, TW_CONFIG, "%s is %s: %s", file->name, kind->name, kind->remedy);
    }
    return tw_fail(err, TW_CONFIG,
                   "%s is %s, not safetensors: fetch the model as safetensors, or write it so with "
                   "save_pretrained() of transformers",
                   file->name, kind->name);
}

static enum tw_status read_header(struct tw_tensor_file *file, uint64_t bytes,
                                  struct tw_error *err) {
    /* length of the shortest entry, with an empty name:
     * "":{"dtype":"F32","shape":[],"data_offsets":[0,4]} */
    enum { ENTRY_BYTES_MIN = 48 };
    uint8_t prefix[TW_FILE_KIND_BYTES];
    const size_t prefix_bytes = bytes < sizeof(prefix) ? (size_t)bytes : sizeof(prefix);
    uint64_t json_bytes;
    struct tw_error why;
    if (bytes < TW_SAFETENSORS_PREFIX_BYTES) {
        return tw_fail(err, TW_CORRUPT, "%s is too short for a safetensors file%s", file->name,
                       ANOTHER);
    }
    int failed = tw_in_read_at(file->fd, prefix, prefix_bytes, 0);
    if (failed != 0) return tw_fail(err, TW_IO, "%s: %s", file->name, tw_in_reason(failed));
    TW_TRY(check_kind(file, prefix, prefix_bytes, err));
    if (!has_bracket(prefix, prefix_bytes) && tw_get_u64(prefix) > TW_SAFETENSORS_JSON_MAX) {
        return tw_fail(
            err, TW_CONFIG,
            "%s is no safetensors file: name the folder of a model, a .safetensors file, "
            "or a checkpoint",
            file->name);
    }
    if (tw_safetensors_prefix(prefix, bytes, TW_SAFETENSORS_JSON_MAX, &json_bytes, &why) != TW_OK) {
        return tw_fail(err, TW_CORRUPT, "%s: %s%s", file->name, why.message, ANOTHER);
    }
    if (json_bytes > TW_TENSOR_FILE_JSON_MAX) {
        return tw_fail(err, TW_CONFIG,
                       "%s has a header of %llu bytes; at most %d are read, enough for every "
                       "supported model",
                       file->name, (unsigned long long)json_bytes, TW_TENSOR_FILE_JSON_MAX);
    }
    const uint64_t room = json_bytes / ENTRY_BYTES_MIN + 1;
    file->st.tensors_capacity =
        room < TW_TENSOR_FILE_COUNT_MAX ? (uint32_t)room : TW_TENSOR_FILE_COUNT_MAX;
    file->json = malloc(json_bytes + 1);
    file->st.tensors = calloc(file->st.tensors_capacity, sizeof(*file->st.tensors));
    if (file->json == NULL || file->st.tensors == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for the header of %s", file->name);
    }
    failed = tw_in_read_at(file->fd, file->json, json_bytes, TW_SAFETENSORS_PREFIX_BYTES);
    if (failed != 0) return tw_fail(err, TW_IO, "%s: %s", file->name, tw_in_reason(failed));
    file->data_at = TW_SAFETENSORS_PREFIX_BYTES + json_bytes;
    const enum tw_status status =
        tw_safetensors_parse(&file->st, file->json, json_bytes, bytes - file->data_at, &why);
    if (status == TW_OK) return TW_OK;
    const bool is_damage = status == TW_CORRUPT && !file->st.is_unsupported;
    return tw_fail(err, is_damage ? TW_CORRUPT : TW_CONFIG, "%s: %s%s", file->name, why.message,
                   is_damage ? ANOTHER : "");
}

enum tw_status tw_tensor_file_open(struct tw_tensor_file *file, const char *path,
                                   struct tw_error *err) {
    uint64_t bytes = 0;
    memset(file, 0, sizeof(*file));
    TW_TRY(tw_in_open(path, &file->fd, &bytes, err));
    (void)snprintf(file->name, sizeof(file->name), "%s", tw_tensor_file_base(path));
    const enum tw_status status = read_header(file, bytes, err);
    if (status != TW_OK) tw_tensor_file_close(file);
    return status;
}

void tw_tensor_file_close(struct tw_tensor_file *file) {
    (void)close(file->fd);
    free(file->json);
    free(file->st.tensors);
    memset(file, 0, sizeof(*file));
    file->fd = -1;
}

enum tw_status tw_tensor_file_read(const struct tw_tensor_file *file,
                                   const struct tw_safetensors_tensor *tensor, uint64_t first,
                                   uint64_t count, float *to, struct tw_error *err) {
    const uint32_t size = tw_dtype_bytes(tensor->dtype);
    TW_ASSERT(tw_elements_can(tensor->dtype));
    TW_ASSERT(first <= (tensor->end - tensor->begin) / size);
    TW_ASSERT(count <= (tensor->end - tensor->begin) / size - first);
    /* The raw elements are read to the end of `to` and then widened from the start, in place. */
    uint8_t *const raw = (uint8_t *)to + (sizeof(float) - size) * count;
    const int why =
        tw_in_read_at(file->fd, raw, size * count, file->data_at + tensor->begin + size * first);
    if (why != 0) {
        return tw_fail(err, TW_IO, "%s: %s cannot be read: %s", file->name, tensor->name,
                       tw_in_reason(why));
    }
    const uint64_t bad = tw_elements_load(tensor->dtype, to, raw, count);
    if (bad < count) {
        return tw_fail(err, TW_CORRUPT, "%s: element %llu of %s is not a finite number", file->name,
                       (unsigned long long)(first + bad), tensor->name);
    }
    return TW_OK;
}
