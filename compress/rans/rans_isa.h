/* rans_isa.h - the implementations of rANS, one per file, and their shared constants. */
#ifndef TW_COMPRESS_RANS_RANS_ISA_H
#define TW_COMPRESS_RANS_RANS_ISA_H

#include "compress/rans/rans.h"

/* Bits of tw_rans_division.step, lowest first: 2^12 - f (12 bits), a zero, bias (13 bits), shift (4
 * bits). */
enum { TW_RANS_STEP_BIAS = 13, TW_RANS_BIAS_BITS = 13, TW_RANS_STEP_SHIFT = 26 };

extern const struct tw_rans_form tw_base_rans; /* for any processor; the reference for the others */
extern const struct tw_rans_form tw_avx2_rans;
extern const struct tw_rans_form tw_avx512_rans; /* needs AVX2, too */

/* The decoder of tw_avx512_rans for alphabets of up to 64 symbols, on processors with VBMI2. */
enum tw_status tw_rans_decode_vbmi2(struct tw_rans_decoder *decoder, uint8_t *symbols, size_t n);

#endif
