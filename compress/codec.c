/* codec.c - selects the codec variants for this processor. */
#include "compress/codec.h"

#include "base/assert.h"
#include "compress/isa.h"
#include "kernels/processor.h"

#ifdef TW_COMPRESS_X86
extern const struct tw_codec *const tw_avx2_codecs[TW_CODECS_COUNT];
#endif

const struct tw_codec *const *tw_codecs_form(uint32_t i, const char **name) {
    const struct tw_codec *const *found[2];
    const char *names[2];
    uint32_t count = 0;
#ifdef TW_COMPRESS_X86
    if (tw_cpu_has_avx2()) {
        names[count] = "AVX2";
        found[count++] = tw_avx2_codecs;
    }
#endif
    names[count] = "baseline";
    found[count++] = tw_base_codecs;
    if (i >= count) return NULL;
    *name = names[i];
    return found[i];
}

const struct tw_codec *const *tw_codecs(uint32_t *count) {
    const char *name;
    *count = TW_CODECS_COUNT;
    return tw_codecs_form(0, &name);
}

const struct tw_codec *tw_codec_get(enum tw_codec_id id) {
    uint32_t count;
    const struct tw_codec *const *all = tw_codecs(&count);
    TW_ASSERT((uint32_t)id < count);
    return all[id];
}

enum tw_status tw_codec_encode(const struct tw_codec *codec, struct tw_codec_source source,
                               uint8_t *dst, size_t capacity, size_t *bytes_out) {
    TW_ASSERT(source.lost == NULL || source.lost == source.x);
    if (source.lost != NULL && codec->encode_lost != NULL) {
        return codec->encode_lost(source, dst, capacity, bytes_out);
    }
    TW_TRY(codec->encode(source.x, source.n, dst, capacity, bytes_out));
    if (source.lost == NULL) return TW_OK;
    /* x + -1 * D has the same bits as x - D. */
    return codec->decode_add(dst, *bytes_out, -1.0f, source.lost, source.n);
}
