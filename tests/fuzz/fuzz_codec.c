/* fuzz_codec.c - decoders over hostile bytes: the first byte chooses the codec, the next two the
 * element count. What check accepts decodes to finite values; what it refuses changes nothing. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "compress/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    uint32_t codecs_count;
    const struct tw_codec *const *codecs = tw_codecs(&codecs_count);
    const struct tw_codec *codec = codecs[data[0] % codecs_count];
    const size_t n = tw_get_u16(data + 1), bytes = size - 3;
    float *x = malloc((n + 1) * sizeof(*x));
    TW_ASSERT(x != NULL);
    for (size_t i = 0; i < n; i++) x[i] = 1.0f;
    const enum tw_status status = codec->check(data + 3, bytes, n);
    TW_ASSERT(codec->decode_add(data + 3, bytes, 0.0f, x, n) == status);
    for (size_t i = 0; i < n; i++) TW_ASSERT(x[i] == 1.0f); /* 0 times a finite value */
    TW_ASSERT(codec->decode(data + 3, bytes, x, n) == status);
    for (size_t i = 0; i < n; i++) TW_ASSERT(status == TW_OK ? isfinite(x[i]) : x[i] == 1.0f);
    if (status == TW_OK) {
        uint8_t *again = malloc(codec->bound(n) + 1);
        size_t again_bytes;
        TW_ASSERT(again != NULL);
        const enum tw_status encoded = codec->encode(x, n, again, codec->bound(n), &again_bytes);
        TW_ASSERT(encoded == TW_OK || encoded == TW_CORRUPT); /* too large to send is fine */
        free(again);
    }
    free(x);
    return 0;
}
