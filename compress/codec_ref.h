/* codec_ref.h - the codecs of blocks (int8, int4, nf4, e3m0, lm2, sign) as their equations read,
 * one element at a time: the same bytes and bits as the fast forms, slowly. */
#ifndef TW_COMPRESS_CODEC_REF_H
#define TW_COMPRESS_CODEC_REF_H

#include "compress/codec.h"

/* Whether the codec is one of them. */
bool tw_codec_has_ref(enum tw_codec_id id);

/* As encode and decode of struct tw_codec. */
enum tw_status tw_codec_encode_ref(enum tw_codec_id id, const float *src, size_t n, uint8_t *dst,
                                   size_t capacity, size_t *bytes_out);
enum tw_status tw_codec_decode_ref(enum tw_codec_id id, const uint8_t *src, size_t bytes,
                                   float *dst, size_t n);

#endif
