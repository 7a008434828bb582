/* codec_ref.h - reference implementations with which the tests compare the codecs: block codecs
 * (int8, int4, e3m0, sign), sparse codecs (topk256, topk64, topk32, sparse8) and ecsq.
 * They follow the description in the codec's header, one element at a time: slow, with the same
 * bytes and bits.
 *
 * bf16 and auto have no reference, because their only variant is already plain. test_codec_auto
 * compares decoded pieces of auto with the references of their codecs. */
#ifndef TW_COMPRESS_CODEC_REF_H
#define TW_COMPRESS_CODEC_REF_H

#include "compress/codec.h"

/* Returns true if the codec has a reference implementation. */
bool tw_codec_has_ref(enum tw_codec_id id);

/* Like encode and decode of struct tw_codec. */
enum tw_status tw_codec_encode_ref(enum tw_codec_id id, const float *src, size_t n, uint8_t *dst,
                                   size_t capacity, size_t *bytes_out);
enum tw_status tw_codec_decode_ref(enum tw_codec_id id, const uint8_t *src, size_t bytes,
                                   float *dst, size_t n);

#endif
