/* fuzz_position.c - arbitrary bytes as a stored position: refused, or exactly the bytes we would
 * write. */
#include <string.h>

#include "base/assert.h"
#include "sync/core/position.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tw_position position;
    static uint8_t again[TW_POSITION_BYTES_MAX];
    struct tw_error err;
    uint32_t fragments = 0;
    if (tw_position_decode(data, size, &position, &fragments, &err) == TW_OK) {
        TW_ASSERT(tw_position_encode(&position, fragments, again) == size);
        TW_ASSERT(memcmp(again, data, size) == 0);
    }
    return 0;
}
