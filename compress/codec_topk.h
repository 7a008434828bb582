/* codec_topk.h - topk256, topk64, topk32: the k largest of every 4096 elements, as signs times
 * their mean magnitude; all others are 0. 0.41, 0.14 and 0.08 bits per element.
 *
 *     the k largest |x| of a chunk; among equal ones those of lowest index
 *     mean = bf16(float32(sum of their |x| / k)), added in float64, in order of index
 *     D = +-mean for them, else 0
 *
 * Only for use with error feedback. SparseLoCo, arXiv 2508.15706, sends 2 bits per value; one level
 * is as good for normally distributed values and better for heavy tails. Of the last chunk, with m
 * elements, ceil(k * m / 4096) are kept.
 *
 * Bytes, with b = ceil(n / 4096) chunks: b little-endian bf16 means, not negative. Then one bit
 * stream, padded once at its end: for each chunk whose mean is not 0, for each kept element in
 * order, the position (rice.h, r = 3, 5, 6) and a sign bit, 1 for minus. Encoding returns
 * TW_CORRUPT if an element is 2^126 or more. */
#ifndef TW_COMPRESS_CODEC_TOPK_H
#define TW_COMPRESS_CODEC_TOPK_H

#include "compress/isa.h"

enum { TW_TOPK_CHUNK = 4096, TW_TOPK_MAX = 256 };

extern const struct tw_codec TW_COMPRESS_ISA(codec_topk256), TW_COMPRESS_ISA(codec_topk64),
    TW_COMPRESS_ISA(codec_topk32);

/* Writes to kept[k] the ascending positions of the k largest of magnitudes[count]; among equal ones
 * those of lowest index. 0 < k <= count <= 4096, k <= TW_TOPK_MAX; magnitudes are below 2^31.
 * *guess estimates the k-th largest, and is updated for the next chunk. Any value gives the correct
 * result, but a close one is faster. */
void TW_COMPRESS_ISA(topk_select)(const uint32_t *magnitudes, uint32_t count, uint32_t k,
                                  uint16_t *kept, uint32_t *guess);
/* The same selection as topk_select, by sorting: the reference of the tests. */
void tw_topk_select_ref(const uint32_t *magnitudes, uint32_t count, uint32_t k, uint16_t *kept);

#endif
