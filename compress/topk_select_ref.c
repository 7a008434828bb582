/* topk_select_ref.c - the k largest as one would say it: k times the largest of those left. */
#include "compress/codec_topk.h"

void tw_topk_select_ref(const uint32_t *magnitudes, uint32_t count, uint32_t k, uint16_t *kept) {
    bool is_kept[TW_TOPK_CHUNK] = {false};
    for (uint32_t round = 0; round < k; round++) {
        uint32_t best = count;
        for (uint32_t i = 0; i < count; i++) {
            if (!is_kept[i] && (best == count || magnitudes[i] > magnitudes[best])) best = i;
        }
        is_kept[best] = true;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (is_kept[i]) *kept++ = (uint16_t)i;
    }
}
