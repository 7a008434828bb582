/* fuzz_close.c - any bytes as a close manifest: what decodes has exactly these canonical bytes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "proto/close.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[TW_CLOSE_BYTES_MAX];
    static struct tw_close close;
    if (tw_close_decode(data, size, &close, NULL) != TW_OK) return 0;
    TW_ASSERT(tw_close_encode(&close, bytes) == size);
    TW_ASSERT(memcmp(bytes, data, size) == 0);
    for (uint32_t i = 0; i < close.next.count; i++)
        TW_ASSERT(tw_roster_find(&close.next, &close.next.members[i].id) == (int)i);
    return 0;
}
