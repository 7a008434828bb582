/* isa.h - files of kernels/cpu/ that say TW_CPU(op) are compiled once per instruction set, under
 * one name each: tw_cpu_avx512_gelu, tw_cpu_avx2_gelu, tw_cpu_base_gelu. */
#ifndef TW_KERNELS_CPU_ISA_H
#define TW_KERNELS_CPU_ISA_H

#include "kernels/ops.h"

#if defined(TW_ISA_AVX512)
#define TW_CPU(op) tw_cpu_avx512_##op
#define TW_CPU_NAME "AVX-512"
enum { TW_VEC = 16, TW_VEC_REGISTERS = 32 };
#elif defined(TW_ISA_AVX2)
#define TW_CPU(op) tw_cpu_avx2_##op
#define TW_CPU_NAME "AVX2"
enum { TW_VEC = 8, TW_VEC_REGISTERS = 16 };
#else
#define TW_CPU(op) tw_cpu_base_##op
#define TW_CPU_NAME "baseline"
enum { TW_VEC = 4, TW_VEC_REGISTERS = 16 };
#endif

#define TW_CPU_DECLARE(op) __typeof__(*((const struct tw_ops *)0)->op) TW_CPU(op)

TW_CPU_DECLARE(bias_fill);
TW_CPU_DECLARE(bias_backward);
TW_CPU_DECLARE(layernorm);
TW_CPU_DECLARE(layernorm_backward);
TW_CPU_DECLARE(gelu);
TW_CPU_DECLARE(gelu_backward);
TW_CPU_DECLARE(attention);
TW_CPU_DECLARE(attention_backward);
TW_CPU_DECLARE(cross_entropy);
TW_CPU_DECLARE(adamw);
extern const struct tw_ops TW_CPU(table);

#endif
