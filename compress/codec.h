/* codec.h - codecs for outer gradients on the wire: one struct of functions per codec.
 *
 * Decoders are bit-exact on every machine and treat their input as hostile: `n` comes from the
 * local manifest, never from the bytes. They return TW_CORRUPT if the payload has the wrong size, a
 * non-finite scale, or a form that no encoder produces. Decoders read their input once, with these
 * exceptions: bf16 checks all of it first, block codecs and ecsq their scales, and auto the headers
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
    float *lost; /* NULL, or x itself: receives the residual x - D (D = the decoded value) for error
                    feedback */
};

struct tw_codec {
    const char *name; /* "int8": the value of sync.codec */
    enum tw_codec_id id;

    /* Typical bits per element of normally distributed values, including all overhead. Exact for
     * fixed-rate codecs, except in a partial last block. */
    double bits;

    /* True for codecs so coarse that training suffers without error feedback. Merged results have
     * no error feedback, so they must not use such a codec. */
    bool needs_feedback;

    bool is_sparse; /* most elements decode to 0 */

    /* Largest number of bytes for n elements, which never decreases with n. For fixed-rate codecs
     * decode accepts only this number. */
    size_t (*bound)(size_t n);

    /* Encodes src[n] into dst[capacity]; *bytes_out <= bound(n). Returns TW_CORRUPT if an element
     * is not finite, or too large to decode to a finite value. Returns TW_LIMIT if capacity <
     * bound(n). On failure dst is undefined. */
    enum tw_status (*encode)(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out);

    /* Encodes and computes the residual, faster than encode followed by decode; NULL if the codec
     * has no faster way. Callers use tw_codec_encode(). */
    enum tw_status (*encode_lost)(struct tw_codec_source source, uint8_t *dst, size_t capacity,
                                  size_t *bytes_out);

    /* Encodes at bits_256 / 256 bits per element instead of `bits`, and computes the residual if
     * requested; decode accepts any rate. `id` is this codec's. NULL for fixed-rate codecs. */
    enum tw_status (*encode_at)(enum tw_codec_id id, uint32_t bits_256,
                                struct tw_codec_source source, uint8_t *dst, size_t capacity,
                                size_t *bytes_out);

    /* dst[i] = D(src)[i], the decoded values. Here and below, dst[n] is undefined unless TW_OK is
     * returned. */
    enum tw_status (*decode)(const uint8_t *src, size_t bytes, float *dst, size_t n);

    /* dst[i] = dst[i] + weight * D(src)[i], rounded twice: the same bits as decode followed by
     * tw_merge_add. Exception: if the codec (of auto: the piece's codec) is sparse and D is 0,
     * dst[i] is unchanged, even if it is -0. */
    enum tw_status (*decode_add)(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n);

    /* Returns TW_OK if decode would accept the payload. Every decoded value is then finite. */
    enum tw_status (*check)(const uint8_t *src, size_t bytes, size_t n);
};

/* Encodes like codec->encode, and computes the residual if requested. On failure the residual is
 * undefined. */
enum tw_status tw_codec_encode(const struct tw_codec *codec, struct tw_codec_source source,
                               uint8_t *dst, size_t capacity, size_t *bytes_out);

/* Returns all codecs, indexed by enum tw_codec_id, in the fastest variant that this processor
 * supports. Static storage. */
const struct tw_codec *const *tw_codecs(uint32_t *count);

/* Returns the codecs in the i-th fastest variant that this processor supports, or NULL past the
 * last. Variants differ only in speed. */
const struct tw_codec *const *tw_codecs_form(uint32_t i, const char **name);

/* Returns the codec of that id. Asserts that the id is known, which is true for every checked run.
 */
const struct tw_codec *tw_codec_get(enum tw_codec_id id);

#endif
