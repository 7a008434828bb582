/* codec.c - the list of codecs. A new one is a row here, a word in proto/run_key.c and a name in
 * enum tw_codec_id, all in the same place of their order. */
#include "compress/codec.h"

#include "base/assert.h"
#include "compress/codec_bf16.h"
#include "compress/codec_int8.h"

static const struct tw_codec *const codecs[] = {
    [TW_CODEC_BF16] = &tw_codec_bf16,
    [TW_CODEC_INT8] = &tw_codec_int8,
};

const struct tw_codec *const *tw_codecs(uint32_t *count) {
    *count = sizeof(codecs) / sizeof(codecs[0]);
    return codecs;
}

const struct tw_codec *tw_codec_get(enum tw_codec_id id) {
    uint32_t count;
    const struct tw_codec *const *all = tw_codecs(&count);
    TW_ASSERT((uint32_t)id < count);
    return all[id];
}
