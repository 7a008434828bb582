/* codec_row.h - generates the functions of struct tw_codec for the codecs of a family. These
 * functions have no row argument. Each codec gets its own wrappers around the family's functions,
 * so that its parameters are compile-time constants.
 *
 * A family F has these functions, each with the row first:
 *
 *     size_t F_bound(row, n);
 *     enum tw_status F_encode(row, struct tw_codec_source, dst, capacity, bytes_out);
 *     enum tw_status F_decode(row, src, bytes, n, struct tw_codec_sink);
 *     enum tw_status F_check(row, src, bytes, n); */
#ifndef TW_COMPRESS_CODEC_ROW_H
#define TW_COMPRESS_CODEC_ROW_H

#include "compress/isa.h"

/* Destination of decoded elements: dst[n] is set to them or, if is_add, weight times the elements
 * are added. */
struct tw_codec_sink {
    float *dst;
    float weight;
    bool is_add;
};

/* Defines the codec of a `static const` row, under the row's name. The variable arguments are
 * further fields of struct tw_codec. */
#define TW_CODEC_ROW(family, row, ID, ...)                                                         \
    static size_t row##_bound(size_t n) {                                                          \
        return family##_bound(&(row), n);                                                          \
    }                                                                                              \
    static enum tw_status row##_encode(const float *src, size_t n, uint8_t *dst, size_t capacity,  \
                                       size_t *bytes_out) {                                        \
        return family##_encode(&(row), (struct tw_codec_source){.x = src, .n = n}, dst, capacity,  \
                               bytes_out);                                                         \
    }                                                                                              \
    static enum tw_status row##_encode_lost(struct tw_codec_source source, uint8_t *dst,           \
                                            size_t capacity, size_t *bytes_out) {                  \
        return family##_encode(&(row), source, dst, capacity, bytes_out);                          \
    }                                                                                              \
    static enum tw_status row##_decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {   \
        return family##_decode(&(row), src, bytes, n, (struct tw_codec_sink){.dst = dst});         \
    }                                                                                              \
    static enum tw_status row##_decode_add(const uint8_t *src, size_t bytes, float weight,         \
                                           float *dst, size_t n) {                                 \
        return family##_decode(                                                                    \
            &(row), src, bytes, n,                                                                 \
            (struct tw_codec_sink){.dst = dst, .weight = weight, .is_add = true});                 \
    }                                                                                              \
    static enum tw_status row##_check(const uint8_t *src, size_t bytes, size_t n) {                \
        return family##_check(&(row), src, bytes, n);                                              \
    }                                                                                              \
    const struct tw_codec TW_COMPRESS_ISA(codec_##row) = {.name = #row,                            \
                                                          .id = TW_CODEC_##ID,                     \
                                                          .bound = row##_bound,                    \
                                                          .encode = row##_encode,                  \
                                                          .encode_lost = row##_encode_lost,        \
                                                          .decode = row##_decode,                  \
                                                          .decode_add = row##_decode_add,          \
                                                          .check = row##_check,                    \
                                                          __VA_ARGS__};

#endif
