/* isa.h - names of codecs per instruction set. Files that name their row TW_COMPRESS_ISA(x) are
 * compiled once per instruction set: tw_avx512_codec_int4, tw_avx2_codec_int4, tw_base_codec_int4.
 * All variants produce the same bits. */
#ifndef TW_COMPRESS_ISA_H
#define TW_COMPRESS_ISA_H

#include "compress/codec.h"

#if defined(TW_COMPRESS_ISA_AVX512)
#define TW_COMPRESS_ISA(name) tw_avx512_##name
#elif defined(TW_COMPRESS_ISA_AVX2)
#define TW_COMPRESS_ISA(name) tw_avx2_##name
#else
#define TW_COMPRESS_ISA(name) tw_base_##name
#endif

/* codec_list.c: all codecs, by id, in this variant; or in their only one. */
enum { TW_CODECS_COUNT = TW_CODEC_AUTO + 1 };
extern const struct tw_codec *const TW_COMPRESS_ISA(codecs)[TW_CODECS_COUNT];

#endif
