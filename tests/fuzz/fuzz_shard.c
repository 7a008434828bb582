/* fuzz_shard.c - a token shard through the reader, with tokens and documents.
 *
 * Input: a byte of options, the first TW_SHARD_FIXED_BYTES of a head, then a body. The head is
 * padded to the length that it states. Option 8 sets its digests to the body's, which random bytes
 * would never match. Option 16 cuts off the file's last byte. */
#include <stddef.h>

#include "base/hash.h"
#include "tests/fuzz/data_file.h"
#include "worker/data/corpus.h"

enum { BODY_BYTES_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_digests(uint8_t *file, uint32_t head_bytes, size_t body_bytes) {
    const uint8_t *const body = file + head_bytes;
    size_t at = TW_SHARD_FIXED_BYTES;
    for (size_t begin = 0; begin < body_bytes && at + 32 <= head_bytes;
         begin += TW_SHARD_PIECE_BYTES, at += 32) {
        const size_t left = body_bytes - begin;
        const struct tw_id digest =
            tw_sha256(body + begin, left < TW_SHARD_PIECE_BYTES ? left : TW_SHARD_PIECE_BYTES);
        memcpy(file + at, digest.bytes, 32);
    }
}

static void use_documents(const char *path) {
    struct tw_corpus corpus;
    struct tw_token_reader reader;
    struct tw_error err;
    const struct tw_corpus_hint hint = {.is_ids = true};
    if (tw_corpus_open(&corpus, path, &hint, &err) != TW_OK) return;
    TW_ASSERT(tw_token_reader_init(&reader, UINT32_MAX, &err) == TW_OK);
    struct tw_token_file *const file = &corpus.files[0].tokens;
    for (uint64_t i = 0; file->is_shard && i < file->documents_count && i < 64; i++) {
        uint64_t first = 0, count = 0;
        if (tw_token_document(&reader, file, i, &first, &count, &err) != TW_OK) continue;
        TW_ASSERT(count > 0 && first < file->tokens_count);
        TW_ASSERT(count <= file->tokens_count - first);
    }
    tw_token_reader_deinit(&reader);
    tw_corpus_close(&corpus);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct data_file file = {.fd = -1};
    static uint8_t bytes[TW_SHARD_HEAD_BYTES_MAX + BODY_BYTES_MAX];
    struct tw_run run;
    uint32_t head_bytes = 0;
    if (file.fd < 0) data_file_open(&file);
    if (size < 1 + TW_SHARD_FIXED_BYTES || size > BODY_BYTES_MAX) return 0;
    const uint8_t choice = data[0];
    const size_t body_bytes = size - 1 - TW_SHARD_FIXED_BYTES;
    if (tw_shard_head_bytes(data + 1, &head_bytes, NULL) != TW_OK) {
        head_bytes = TW_SHARD_FIXED_BYTES;
    }
    memcpy(bytes, data + 1, TW_SHARD_FIXED_BYTES);
    memset(bytes + TW_SHARD_FIXED_BYTES, 0, head_bytes - TW_SHARD_FIXED_BYTES);
    memcpy(bytes + head_bytes, data + 1 + TW_SHARD_FIXED_BYTES, body_bytes);
    if ((choice & 8) != 0) put_digests(bytes, head_bytes, body_bytes);
    data_file_set(&file, bytes, head_bytes + body_bytes - ((choice & 16) != 0 ? 1 : 0));
    data_run(&run, choice);
    data_use(file.path, &run);
    use_documents(file.path);
    return 0;
}
