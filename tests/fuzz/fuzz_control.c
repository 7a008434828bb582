/* fuzz_control.c - arbitrary bodies as any kind of control message: a decoded message is encoded
 * again and must decode to the same. Input: u8 kind, then the body. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "proto/control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t body[TW_CONTROL_BYTES_MAX], again[TW_CONTROL_BYTES_MAX];
    static struct tw_message first, second;
    struct tw_error err;
    size_t body_bytes, again_bytes;
    if (size == 0) return 0;
    const uint16_t kind = data[0] % 40; /* from 0: includes unassigned kinds */
    if (tw_control_decode(kind, data + 1, size - 1, &first, &err) != TW_OK) return 0;
    TW_ASSERT(tw_control_encode(&first, body, sizeof(body), &body_bytes, &err) == TW_OK);
    TW_ASSERT(tw_control_decode(kind, body, body_bytes, &second, &err) == TW_OK);
    TW_ASSERT(tw_control_encode(&second, again, sizeof(again), &again_bytes, &err) == TW_OK);
    TW_ASSERT(again_bytes == body_bytes);
    TW_ASSERT(memcmp(again, body, body_bytes) == 0);
    return 0;
}
