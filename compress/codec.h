/* codec.h - outer gradients on the wire: one row of functions per codec.
 *
 * Decoders are bit-exact on every machine and treat their input as hostile: `n` comes from the
 * local manifest, never from the bytes. TW_CORRUPT: the payload has the wrong size, a scale that is
 * not finite, or a form that no encoder produces. Decoders read their input once, with these
 * exceptions: bf16 checks all of it first, block codecs and ecsq their scales, and auto the heads
 * of its pieces. If a decoder refuses its input, dst is undefined. A caller that needs the old
 * content of dst calls check() first. No allocation anywhere. */
#ifndef TW_COMPRESS_CODEC_H
#define TW_COMPRESS_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"

/* Input of an encoder. */
struct tw_codec_source {
    const float *x; /* (n) */
    size_t n;
    float *lost; /* NULL, or x itself: receives the residual x - D for error feedback */
};

struct tw_codec {
    const char *name; /* "int8": the value of sync.codec */
    enum tw_codec_id id;

    /* Typical bits per element of normally distributed values, all overhead included. Exact for
     * fixed-rate codecs, except in the last, partial block. */
    double bits;

    /* True for codecs so coarse that the residual must be sent later. Without error feedback,
     * training suffers. Merged results have no error feedback, so they must not use such a
     * codec. */
    bool needs_feedback;

    bool is_sparse; /* most elements decode to 0 */

    /* Largest number of bytes for n elements; for fixed-rate codecs the only number that decode
     * accepts. Grows with n. */
    size_t (*bound)(size_t n);

    /* Encodes src (n) into dst[capacity]; *bytes_out <= bound(n). TW_CORRUPT if an element is not
     * finite or too large to decode to a finite value, TW_LIMIT if capacity < bound(n); dst is then
     * undefined. */
    enum tw_status (*encode)(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out);

    /* Like encode, and also computes the residual, faster than by decoding. NULL: there is no
     * faster way. Callers use tw_codec_encode(). */
    enum tw_status (*encode_lost)(struct tw_codec_source source, uint8_t *dst, size_t capacity,
                                  size_t *bytes_out);

    /* Encodes, with or without residual, at bits_256 / 256 bits per element instead of `bits`;
     * decode accepts any rate. id: this codec's. NULL: fixed rate. */
    enum tw_status (*encode_at)(enum tw_codec_id id, uint32_t bits_256,
                                struct tw_codec_source source, uint8_t *dst, size_t capacity,
                                size_t *bytes_out);

    /* dst[i] = D(src)[i]. dst (n) is undefined unless TW_OK, here and below. */
    enum tw_status (*decode)(const uint8_t *src, size_t bytes, float *dst, size_t n);

    /* dst[i] = dst[i] + weight * D(src)[i], rounded twice: the same bits as decode followed by
     * tw_merge_add. Exception: if the codec, or that of a piece of auto, is sparse and D is 0, dst
     * stays as it is, even -0. */
    enum tw_status (*decode_add)(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n);

    /* True if decode would accept the payload. Every decoded value is then finite. */
    enum tw_status (*check)(const uint8_t *src, size_t bytes, size_t n);
};

/* Like codec->encode, and also computes the residual if requested; it is undefined on failure. */
enum tw_status tw_codec_encode(const struct tw_codec *codec, struct tw_codec_source source,
                               uint8_t *dst, size_t capacity, size_t *bytes_out);

/* Every codec, by enum tw_codec_id, in the fastest variant that this processor runs. Static
 * storage. */
const struct tw_codec *const *tw_codecs(uint32_t *count);

/* The codecs in the i-th fastest variant that this processor runs; NULL past the last. Variants
 * differ only in speed. */
const struct tw_codec *const *tw_codecs_form(uint32_t i, const char **name);

/* The codec of that id; asserts on an unknown id, which a checked run never has. */
const struct tw_codec *tw_codec_get(enum tw_codec_id id);

#endif
