/* codebook.h - the quantisation levels of nf4 and lm2. compress/ encodes with them on the host,
 * kernels/cuda/pack.cu on a device. */
#ifndef TW_KERNELS_CODEBOOK_H
#define TW_KERNELS_CODEBOOK_H

/* Quantiles of the normal distribution: QLoRA, arXiv 2305.14314, appendix E. */
enum { TW_NF4_LEVELS = 16 };
static const float tw_nf4_levels[TW_NF4_LEVELS] = {-1.0f,
                                                   -0.6961928009986877f,
                                                   -0.5250730514526367f,
                                                   -0.39491748809814453f,
                                                   -0.28444138169288635f,
                                                   -0.18477343022823334f,
                                                   -0.09105003625154495f,
                                                   0.0f,
                                                   0.07958029955625534f,
                                                   0.16093020141124725f,
                                                   0.24611230194568634f,
                                                   0.33791524171829224f,
                                                   0.44070982933044434f,
                                                   0.5626170039176941f,
                                                   0.7229568362236023f,
                                                   1.0f};

/* The four levels with the least squared error on normally distributed values, for a scale of 1. */
#define TW_LM2_INNER 0.4527800f
#define TW_LM2_OUTER 1.5104176f
#define TW_LM2_BOUND 0.9815988f /* the midpoint between the inner and the outer level */

#endif
