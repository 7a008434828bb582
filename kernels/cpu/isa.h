/* isa.h - function names per instruction set. Files of kernels/cpu/ that use TW_CPU(op) are
 * compiled once per instruction set and type of activation. Their names are then, for example,
 * tw_avx512_bf16_gelu, tw_avx2_f32_gelu or tw_base_f32_gelu. */
#ifndef TW_KERNELS_CPU_ISA_H
#define TW_KERNELS_CPU_ISA_H

#include "kernels/act.h"
#include "kernels/ops.h"

/* A vector has TW_VEC floats (vec.h). The processor has registers for TW_VEC_REGISTERS vectors. */
#if defined(TW_ISA_AVX512)
#if defined(TW_ISA_AVX512_BF16) /* the bf16 dot products are used by attention */
#define TW_CPU(op) TW_ACT_NAME(avx512bf16, op)
#define TW_CPU_NAME "AVX-512 BF16"
#else
#define TW_CPU(op) TW_ACT_NAME(avx512, op)
#define TW_CPU_NAME "AVX-512"
#endif
enum { TW_VEC = 16, TW_VEC_REGISTERS = 32 };
#elif defined(TW_ISA_AVX2)
#define TW_CPU(op) TW_ACT_NAME(avx2, op)
#define TW_CPU_NAME "AVX2"
enum { TW_VEC = 8, TW_VEC_REGISTERS = 16 };
#else
#define TW_CPU(op) TW_ACT_NAME(base, op)
#define TW_CPU_NAME "baseline"
enum { TW_VEC = 4, TW_VEC_REGISTERS = 16 };
#endif

#define TW_CPU_DECLARE(op) __typeof__(*((const struct tw_ops *)0)->op) TW_CPU(op)

TW_CPU_DECLARE(norm);
TW_CPU_DECLARE(norm_backward);
TW_CPU_DECLARE(add);
TW_CPU_DECLARE(bias);
TW_CPU_DECLARE(bias_backward);
TW_CPU_DECLARE(rope);
TW_CPU_DECLARE(gelu);
TW_CPU_DECLARE(gelu_backward);
TW_CPU_DECLARE(swiglu);
TW_CPU_DECLARE(swiglu_backward);
TW_CPU_DECLARE(attention);
TW_CPU_DECLARE(attention_backward);
TW_CPU_DECLARE(cross_entropy);
TW_CPU_DECLARE(embedding);
TW_CPU_DECLARE(embedding_backward);
TW_CPU_DECLARE(adamw);
TW_CPU_DECLARE(sum_squares);
TW_CPU_DECLARE(from_f32);
TW_CPU_DECLARE(to_f32);
extern const struct tw_ops TW_CPU(table);

#endif
