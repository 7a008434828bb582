/* codec.c - the table of codecs. */
#include "compress/codec.h"

#include "base/assert.h"
#include "compress/codec_bf16.h"
#include "compress/codec_int8.h"

const struct tw_codec *tw_codec_get(enum tw_codec_id id) {
    switch (id) {
    case TW_CODEC_BF16: return &tw_codec_bf16;
    case TW_CODEC_INT8: return &tw_codec_int8;
    }
    TW_ASSERT(!"a codec id outside the table");
    return NULL;
}
