/* isa.h - names for code that is compiled once per instruction set (isa).
 * TW_COMPRESS_ISA(codec_int4) is tw_avx2_codec_int4 or tw_base_codec_int4.
 * All variants produce the same bits. */
#ifndef TW_COMPRESS_ISA_H
#define TW_COMPRESS_ISA_H

#include "compress/codec.h"

#ifdef TW_COMPRESS_ISA_AVX2
#define TW_COMPRESS_ISA(name) tw_avx2_##name
#else
#define TW_COMPRESS_ISA(name) tw_base_##name
#endif

/* List of all codecs, by id, in the variant for this instruction set (codec_list.c). A codec with
 * only one variant is in every list. */
enum { TW_CODECS_COUNT = TW_CODEC_AUTO + 1 };
extern const struct tw_codec *const TW_COMPRESS_ISA(codecs)[TW_CODECS_COUNT];

#endif
