/* rans_isa.h - the implementations of rANS, one per file, and their shared constants. */
#ifndef TW_COMPRESS_RANS_RANS_ISA_H
#define TW_COMPRESS_RANS_RANS_ISA_H

#include "compress/rans/rans.h"

/* Bits of tw_rans_division.step, lowest first: 2^12 - f (12 bits), a zero, bias (13 bits), shift (4
 * bits). */
enum { TW_RANS_STEP_BIAS = 13, TW_RANS_BIAS_BITS = 13, TW_RANS_STEP_SHIFT = 26 };

extern const struct tw_rans_form tw_base_rans; /* for any processor; the reference for the others */
extern const struct tw_rans_form tw_avx2_rans;

#endif
