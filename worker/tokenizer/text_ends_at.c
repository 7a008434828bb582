/* text_ends_at.c - the part of text_ends.h that needs no library. */
#include "worker/tokenizer/text_ends.h"

bool tw_text_ends_at(const struct tw_text_ends *ends, uint32_t token) {
    for (uint32_t i = 0; i < ends->generation.eos_count; i++) {
        if (ends->generation.eos[i] == token) return true;
    }
    return false;
}
