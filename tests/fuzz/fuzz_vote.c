/* fuzz_vote.c - arbitrary bytes as vote.a, unchanged and with a repaired SHA-256: CORRUPT, or a
 * vote that encodes to exactly these bytes. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "daemon/store/vote_store.h"
#include "memory_file.h"
#include "sync/core/position.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD_BYTES = 20, HASH_BYTES = 32 };

static void try_file(const uint8_t *bytes, size_t size) {
    static struct tw_vote vote;
    static uint8_t again[TW_VOTE_BYTES_MAX];
    struct memory_file file = {"vote.a", bytes, size};
    const struct tw_file_ops ops = memory_file_ops(&file);
    struct tw_vote_store store;
    enum tw_vote_found found;
    struct tw_error err;
    TW_ASSERT(tw_vote_store_open(&store, &ops, "", &vote, &found, &err) == TW_OK);
    TW_ASSERT(found != TW_VOTE_NONE);
    if (found == TW_VOTE_VALID) {
        TW_ASSERT(store.sequence == 1);
        TW_ASSERT(tw_vote_encode(&vote, again) == size - HEAD_BYTES - HASH_BYTES);
        TW_ASSERT(memcmp(again, bytes + HEAD_BYTES, size - HEAD_BYTES - HASH_BYTES) == 0);
    }
    tw_vote_store_close(&store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_file(data, size);
    if (size < HASH_BYTES) return 0;
    uint8_t *repaired = malloc(size);
    TW_ASSERT(repaired != NULL);
    memcpy(repaired, data, size);
    const struct tw_id hash = tw_sha256(repaired, size - HASH_BYTES);
    memcpy(repaired + size - HASH_BYTES, hash.bytes, HASH_BYTES);
    try_file(repaired, size);
    free(repaired);
    return 0;
}
