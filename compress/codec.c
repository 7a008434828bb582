/* codec.c - the list of codecs, from TW_CODECS_EACH of proto/run/run.h, in the fastest form that
 * this processor runs. */
#include "compress/codec.h"

#include "base/assert.h"
#include "compress/codec_auto.h"
#include "kernels/ops.h"

enum { TW_CODECS_COUNT = TW_CODEC_AUTO + 1 };

/* auto uses the forms of the others, and has none itself. */
#define tw_base_codec_auto tw_codec_auto
#define tw_avx2_codec_auto tw_codec_auto

/* Files with vector forms (codec_row.h) define these once per instruction set. */
#define DECLARE_BASE(ID, name, needs_feedback) extern const struct tw_codec tw_base_codec_##name;
#define LIST_BASE(ID, name, needs_feedback) [TW_CODEC_##ID] = &tw_base_codec_##name,
TW_CODECS_EACH(DECLARE_BASE)
static const struct tw_codec *const base[TW_CODECS_COUNT] = {TW_CODECS_EACH(LIST_BASE)};

#ifdef TW_COMPRESS_X86
#define DECLARE_AVX2(ID, name, needs_feedback) extern const struct tw_codec tw_avx2_codec_##name;
#define LIST_AVX2(ID, name, needs_feedback) [TW_CODEC_##ID] = &tw_avx2_codec_##name,
TW_CODECS_EACH(DECLARE_AVX2)
static const struct tw_codec *const avx2[TW_CODECS_COUNT] = {TW_CODECS_EACH(LIST_AVX2)};
#endif

const struct tw_codec *const *tw_codecs_form(uint32_t i, const char **name) {
#ifdef TW_COMPRESS_X86
    if (tw_cpu_has_avx2() && i-- == 0) {
        *name = "AVX2";
        return avx2;
    }
#endif
    *name = "baseline";
    return i == 0 ? base : NULL;
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
    TW_ASSERT(all[id]->id == id);
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
