/* codec.c - the table of codecs. */
#include "compress/codec.h"

#include "base/assert.h"
#include "compress/codec_bf16.h"
#include "compress/codec_int8.h"

const struct tw_codec *tw_codec_get(enum tw_codec_id id) {
    static const struct tw_codec *const codecs[] = {
        [TW_CODEC_BF16] = &tw_codec_bf16,
        [TW_CODEC_INT8] = &tw_codec_int8,
    };
    TW_ASSERT((unsigned)id < sizeof(codecs) / sizeof(codecs[0]));
    return codecs[id];
}
