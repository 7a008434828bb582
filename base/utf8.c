#include "base/utf8.h"

#include "base/assert.h"

int tw_utf8_size(const uint8_t *text, size_t left) {
    TW_ASSERT(left > 0);
    const uint8_t lead = text[0];
    const int size = lead < 0x80                    ? 1
                     : lead >= 0xC2 && lead <= 0xDF ? 2
                     : lead >= 0xE0 && lead <= 0xEF ? 3
                     : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                    : 0;
    for (size_t i = 1; i < (size_t)size && i < left; i++) {
        if ((text[i] & 0xC0) != 0x80) return 0;
    }
    if (left > 1) {
        if (lead == 0xE0 && text[1] < 0xA0) return 0;
        if (lead == 0xED && text[1] > 0x9F) return 0;
        if (lead == 0xF0 && text[1] < 0x90) return 0;
        if (lead == 0xF4 && text[1] > 0x8F) return 0;
    }
    return (size_t)size > left ? -1 : size;
}
