/* codec_sparse.h - parts of the sparse codecs (codec_sparse.c) that their tests know. */
#ifndef TW_COMPRESS_CODEC_SPARSE_H
#define TW_COMPRESS_CODEC_SPARSE_H

#include "compress/codec.h"

enum { TW_SPARSE_CHUNK = 4096, TW_TOPK_MAX = 256 };

/* Writes to kept[k] the ascending positions of the k largest of magnitudes[count]; among equal ones
 * those of lowest index. 0 < k <= count <= 4096, k <= TW_TOPK_MAX; magnitudes are below 2^31.
 * *guess estimates the k-th largest, and is updated for the next chunk. Any value gives the correct
 * result, but a close one is faster. */
void tw_base_topk_select(const uint32_t *magnitudes, uint32_t count, uint32_t k, uint16_t *kept,
                         uint32_t *guess);
void tw_avx2_topk_select(const uint32_t *magnitudes, uint32_t count, uint32_t k, uint16_t *kept,
                         uint32_t *guess);

/* The same selection, by sorting: the reference of the tests. */
void tw_topk_select_ref(const uint32_t *magnitudes, uint32_t count, uint32_t k, uint16_t *kept);

#endif
