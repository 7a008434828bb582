/* codec.h - outer gradients on the wire: one row of functions per codec.
 *
 * Decoders are bit-exact on every machine and treat their input as hostile: `n` comes from the
 * local manifest, never from the bytes; a payload of the wrong size, with a scale that is not
 * finite or that no encoder makes is TW_CORRUPT. They read it once, but that bf16 looks at all of
 * it in advance, codecs of blocks and ecsq at their scales, auto at the heads of its pieces. So
 * what dst holds where they refuse is undefined, and who has something to lose there asks check()
 * first. No allocation anywhere. */
#ifndef TW_COMPRESS_CODEC_H
#define TW_COMPRESS_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"

/* What is to be encoded. */
struct tw_codec_source {
    const float *x; /* (n) */
    size_t n;
    float *lost; /* x: it becomes x - D, which error feedback sends later; NULL: not wanted */
};

struct tw_codec {
    const char *name; /* "int8": the word of sync.codec */
    enum tw_codec_id id;

    /* Typical size of an element of normal numbers, everything counted; exact, but for the end of
     * the array, where the codec has a fixed rate. */
    double bits;

    /* So coarse that what is lost must be sent later: without error feedback training suffers, and
     * merged results, which have none, must not be sent in it. */
    bool needs_feedback;

    bool is_sparse; /* most elements decode to 0 */

    /* The most bytes for n elements, and the only number that decode takes where the codec has a
     * fixed rate. Grows with n. */
    size_t (*bound)(size_t n);

    /* src (n) into dst[capacity]; *bytes_out <= bound(n). TW_CORRUPT when an element is not finite
     * or too large to decode to a finite value, TW_LIMIT when capacity < bound(n); dst is then
     * undefined. */
    enum tw_status (*encode)(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out);

    /* The same with what is lost, for less than decode takes; NULL: nothing is cheaper. Who calls
     * it calls tw_codec_encode(). */
    enum tw_status (*encode_lost)(struct tw_codec_source source, uint8_t *dst, size_t capacity,
                                  size_t *bytes_out);

    /* Either, at so many bits an element, in 1/256, instead of `bits`: decode reads any. id: this
     * codec's. NULL: there is one rate. */
    enum tw_status (*encode_at)(enum tw_codec_id id, uint32_t bits_256,
                                struct tw_codec_source source, uint8_t *dst, size_t capacity,
                                size_t *bytes_out);

    /* dst[i] = D(src)[i]. dst (n), undefined but on TW_OK, here and below. */
    enum tw_status (*decode)(const uint8_t *src, size_t bytes, float *dst, size_t n);

    /* dst[i] = dst[i] + weight * D(src)[i], both roundings kept: the same bits as decode followed
     * by tw_merge_add; but where the codec, or that of a piece of auto, is sparse and D is 0, dst
     * stays, though it be -0. */
    enum tw_status (*decode_add)(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n);

    /* Would decode accept it? Every decoded value is then finite. */
    enum tw_status (*check)(const uint8_t *src, size_t bytes, size_t n);
};

/* codec->encode, and what is lost by it where that is wanted; lost is undefined where it fails. */
enum tw_status tw_codec_encode(const struct tw_codec *codec, struct tw_codec_source source,
                               uint8_t *dst, size_t capacity, size_t *bytes_out);

/* Every codec, by enum tw_codec_id, in the fastest form that this processor runs. Static storage.
 */
const struct tw_codec *const *tw_codecs(uint32_t *count);

/* The same codecs in form `i` of those this processor can run, best first, which differ in nothing
 * but speed; NULL past the last. */
const struct tw_codec *const *tw_codecs_form(uint32_t i, const char **name);

/* The codec of that id; asserts on an id that is not in the list (a checked run never has one). */
const struct tw_codec *tw_codec_get(enum tw_codec_id id);

#endif
