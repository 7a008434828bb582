/* codec.h - outer gradients on the wire: one row of functions per codec.
 *
 * Decoders are bit-exact on every machine and treat their input as hostile: `n` comes from the
 * local manifest, never from the bytes; a payload of the wrong size or with a scale that is not
 * finite is TW_CORRUPT and the output is untouched. No allocation anywhere. */
#ifndef TW_COMPRESS_CODEC_H
#define TW_COMPRESS_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run.h"

struct tw_codec {
    const char *name; /* "int8" */
    enum tw_codec_id id;

    /* Bytes that encode may write for n elements, and decode insists on for fixed-rate codecs. */
    size_t (*bound)(size_t n);

    /* src (n) into dst[capacity]; *bytes_out <= bound(n). TW_CORRUPT when an element is not finite,
     * TW_LIMIT when capacity is too small; dst is then undefined. */
    enum tw_status (*encode)(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out);

    /* dst[i] = D(src)[i]. dst (n) */
    enum tw_status (*decode)(const uint8_t *src, size_t bytes, float *dst, size_t n);

    /* dst[i] = dst[i] + weight * D(src)[i], both roundings kept: the same bits as decode followed
     * by tw_merge_add. */
    enum tw_status (*decode_add)(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n);

    /* Would decode accept it? Every decoded value is then finite. */
    enum tw_status (*check)(const uint8_t *src, size_t bytes, size_t n);
};

/* The codec of that id; asserts on an id that is not in the table (a checked run never has one). */
const struct tw_codec *tw_codec_get(enum tw_codec_id id);

#endif
