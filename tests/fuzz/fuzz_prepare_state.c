/* fuzz_prepare_state.c - arbitrary bytes, with a repaired checksum, as the state of a prepare:
 * refused, or numbers that survive writing and reading. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "worker/data/prepare/prepare_shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SUM_BYTES = 21 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_prepare_state state, again;
    struct tw_error err;
    char *const text = malloc(size + SUM_BYTES + 1), *written = NULL;
    size_t bytes = 0;
    TW_ASSERT(text != NULL);
    memcpy(text, data, size);
    (void)snprintf(text + size, SUM_BYTES + 1, "sum %016llx\n",
                   (unsigned long long)tw_xxh64(data, size));
    if (tw_prepare_state_decode(text, size + SUM_BYTES, &state, &err) != TW_OK) {
        TW_ASSERT(memchr(err.message, 0, sizeof(err.message)) != NULL);
        free(text);
        return 0;
    }
    TW_ASSERT(tw_prepare_state_encode(&state, &written, &bytes, &err) == TW_OK);
    TW_ASSERT(tw_prepare_state_decode(written, bytes, &again, &err) == TW_OK);
    TW_ASSERT(again.next.file == state.next.file && again.next.at == state.next.at);
    TW_ASSERT(memcmp(&again.counts, &state.counts, sizeof(state.counts)) == 0);
    TW_ASSERT(memcmp(&again.pending, &state.pending, sizeof(state.pending)) == 0);
    TW_ASSERT(strcmp(again.first_bad, state.first_bad) == 0);
    TW_ASSERT(again.dataset.shards_count == state.dataset.shards_count);
    free(again.dataset.shards);
    free(state.dataset.shards);
    free(written);
    free(text);
    return 0;
}
