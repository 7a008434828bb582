/* fuzz_decode.c - decoders alone on hostile bytes: the first byte selects the codec, the next two
 * are the element count, the rest is a payload. Without encoding it is many times as fast as
 * fuzz_codec and fuzz_auto. The mutator (repair.h) makes payloads that decoders read to their end.
 * Chance never finds these for entropy-coded payloads or lists of pieces. */
#include <stdint.h>

#include "base/bytes.h"
#include "compress/codec_auto.h"
#include "tests/fuzz/decode.h"
#include "tests/fuzz/repair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The heads of the pieces give the number of elements in each codec (rung). */
static void assert_mix(const uint8_t *payload, size_t bytes, size_t n, enum tw_status status) {
    uint64_t mix[TW_AUTO_RUNGS], sum = 0;
    const enum tw_status mixed = tw_auto_mix(payload, bytes, n, mix);
    if (status == TW_OK) TW_ASSERT(mixed == TW_OK);
    if (mixed != TW_OK || n == 0) return;
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) sum += mix[r];
    TW_ASSERT(sum == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < REPAIR_PREFIX_BYTES) return 0;
    const enum tw_codec_id id = codec_of(data[0]);
    const size_t n = tw_get_u16(data + 1) % REPAIR_ELEMENTS_MAX;
    const uint8_t *const payload = data + REPAIR_PREFIX_BYTES;
    const size_t bytes = size - REPAIR_PREFIX_BYTES;
    const enum tw_status status = decode(id, payload, bytes, n);
    if (id == TW_CODEC_AUTO) assert_mix(payload, bytes, n, status);
    return 0;
}
