/* codec_list.c - the list of all codecs, once per variant. A new codec needs a row here, a word in
 * proto/run/run_key.c and a name in enum tw_codec_id, at the same position in each. A codec that
 * selects variants itself, or has only one, has the same row in every list. codec_row.h describes
 * families of codecs. */
#include "compress/codec_auto.h"
#include "compress/codec_bf16.h"
#include "compress/codec_e3m0.h"
#include "compress/codec_ecsq.h"
#include "compress/codec_int4.h"
#include "compress/codec_int8.h"
#include "compress/codec_sign.h"
#include "compress/codec_sparse8.h"
#include "compress/codec_topk.h"
#include "compress/isa.h"

const struct tw_codec *const TW_COMPRESS_ISA(codecs)[TW_CODECS_COUNT] = {
    [TW_CODEC_BF16] = &tw_codec_bf16,
    [TW_CODEC_INT8] = &TW_COMPRESS_ISA(codec_int8),
    [TW_CODEC_INT4] = &TW_COMPRESS_ISA(codec_int4),
    [TW_CODEC_E3M0] = &TW_COMPRESS_ISA(codec_e3m0),
    [TW_CODEC_SIGN] = &TW_COMPRESS_ISA(codec_sign),
    [TW_CODEC_ECSQ4] = &TW_COMPRESS_ISA(codec_ecsq4),
    [TW_CODEC_ECSQ3] = &TW_COMPRESS_ISA(codec_ecsq3),
    [TW_CODEC_ECSQ2] = &TW_COMPRESS_ISA(codec_ecsq2),
    [TW_CODEC_ECSQ1] = &TW_COMPRESS_ISA(codec_ecsq1),
    [TW_CODEC_ECSQ05] = &TW_COMPRESS_ISA(codec_ecsq05),
    [TW_CODEC_TOPK256] = &TW_COMPRESS_ISA(codec_topk256),
    [TW_CODEC_TOPK64] = &TW_COMPRESS_ISA(codec_topk64),
    [TW_CODEC_TOPK32] = &TW_COMPRESS_ISA(codec_topk32),
    [TW_CODEC_SPARSE8] = &TW_COMPRESS_ISA(codec_sparse8),
    [TW_CODEC_AUTO] = &tw_codec_auto,
};
