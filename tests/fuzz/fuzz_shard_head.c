/* fuzz_shard_head.c - arbitrary bytes as the head of a token shard: refused, or a shard that
 * encodes to exactly these bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "proto/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tw_id digests[TW_SHARD_PIECES_MAX];
    static uint8_t again[TW_SHARD_HEAD_BYTES_MAX];
    struct tw_shard shard;
    if (tw_shard_decode(data, size, &shard, NULL) != TW_OK) return 0;
    uint64_t body_bytes = 0;
    TW_ASSERT(shard.head_bytes == size && shard.pieces_count <= TW_SHARD_PIECES_MAX);
    for (uint32_t i = 0; i < shard.pieces_count; i++) {
        digests[i] = tw_shard_digest(data, i);
        body_bytes += tw_shard_piece_bytes(&shard, i);
    }
    TW_ASSERT(body_bytes == shard.body_bytes);
    TW_ASSERT(shard.documents_begin + 4 * shard.documents_count == shard.body_bytes);
    tw_shard_encode(&shard, digests, again);
    TW_ASSERT(memcmp(again, data, size) == 0);
    return 0;
}
