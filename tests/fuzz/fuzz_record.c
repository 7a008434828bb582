/* fuzz_record.c - arbitrary bytes as a round record: only canonical bytes decode. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "proto/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[TW_RECORD_BYTES_MAX];
    static struct tw_record record;
    if (tw_record_decode(data, size, &record, NULL) != TW_OK) return 0;
    TW_ASSERT(tw_record_encode(&record, bytes) == size);
    TW_ASSERT(memcmp(bytes, data, size) == 0);
    for (uint32_t i = 0; i < record.next.count; i++)
        TW_ASSERT(tw_roster_find(&record.next, &record.next.members[i].id) == (int)i);
    return 0;
}
