/* shard.c - converts heads of token shards to bytes and back. */
#include "proto/shard.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

enum {
    AT_MAGIC = 0,
    AT_HEAD_BYTES = 8,
    AT_TOKEN_BYTES = 12,
    AT_TOKENS = 16,
    AT_DOCUMENTS = 24,
    AT_VOCAB = 32,
    AT_SIDE = 36, /* 0: training, 1: held out */
    AT_TOKENIZER = 40,
    AT_SEPARATOR = 72, /* u32; all bits set: no separator */
    AT_SOURCE = 76,
    AT_NUMBER = 80,
    AT_ZERO = 84,
    DIGEST_BYTES = 32,
    HEAD_ALIGN = 4096,
};
#define NO_SEPARATOR UINT32_MAX
#define VOCAB_MAX ((uint32_t)1 << 31)

static const char magic[8] = "TWSHARD1"; /* the last character is the version */

uint32_t tw_shard_token_bytes(uint32_t vocab) {
    if (vocab <= 256) return 1;
    return vocab <= 65536 ? 2 : 4;
}

static uint64_t round_up(uint64_t value, uint64_t align) {
    return (value + align - 1) / align * align;
}

enum tw_status tw_shard_plan(struct tw_shard *shard, struct tw_error *err) {
    TW_ASSERT(shard->token_bytes == 1 || shard->token_bytes == 2 || shard->token_bytes == 4);
    const uint64_t most = (uint64_t)TW_SHARD_PIECES_MAX * TW_SHARD_PIECE_BYTES;
    if (shard->tokens_count > TW_SHARD_TOKENS_MAX || shard->documents_count > shard->tokens_count) {
        return tw_fail(err, TW_LIMIT,
                       "%llu tokens in %llu documents: a shard has at most %d tokens, and every "
                       "document at least one",
                       (unsigned long long)shard->tokens_count,
                       (unsigned long long)shard->documents_count, TW_SHARD_TOKENS_MAX);
    }
    shard->documents_begin = round_up(shard->tokens_count * shard->token_bytes, 4);
    shard->body_bytes = shard->documents_begin + 4 * shard->documents_count;
    if (shard->body_bytes > most) {
        return tw_fail(err, TW_LIMIT, "%llu bytes, more than the %llu of one shard",
                       (unsigned long long)shard->body_bytes, (unsigned long long)most);
    }
    shard->pieces_count =
        (uint32_t)(round_up(shard->body_bytes, TW_SHARD_PIECE_BYTES) / TW_SHARD_PIECE_BYTES);
    shard->head_bytes = (uint32_t)round_up(
        TW_SHARD_FIXED_BYTES + (uint64_t)DIGEST_BYTES * shard->pieces_count, HEAD_ALIGN);
    return TW_OK;
}

void tw_shard_encode(const struct tw_shard *shard, const struct tw_id *digests, uint8_t *head) {
    memset(head, 0, shard->head_bytes);
    memcpy(head + AT_MAGIC, magic, sizeof(magic));
    tw_put_u32(head + AT_HEAD_BYTES, shard->head_bytes);
    tw_put_u32(head + AT_TOKEN_BYTES, shard->token_bytes);
    tw_put_u64(head + AT_TOKENS, shard->tokens_count);
    tw_put_u64(head + AT_DOCUMENTS, shard->documents_count);
    tw_put_u32(head + AT_VOCAB, shard->vocab);
    tw_put_u32(head + AT_SIDE, shard->is_heldout ? 1 : 0);
    memcpy(head + AT_TOKENIZER, shard->tokenizer.bytes, sizeof(shard->tokenizer.bytes));
    tw_put_u32(head + AT_SEPARATOR,
               shard->separator < 0 ? NO_SEPARATOR : (uint32_t)shard->separator);
    tw_put_u32(head + AT_SOURCE, shard->source);
    tw_put_u32(head + AT_NUMBER, shard->number);
    for (uint32_t i = 0; i < shard->pieces_count; i++) {
        memcpy(head + TW_SHARD_FIXED_BYTES + (size_t)i * DIGEST_BYTES, digests[i].bytes,
               DIGEST_BYTES);
    }
}

enum tw_status tw_shard_head_bytes(const uint8_t *fixed, uint32_t *head_bytes,
                                   struct tw_error *err) {
    if (memcmp(fixed, magic, sizeof(magic) - 1) != 0) {
        return tw_fail(err, TW_CORRUPT, "no token shard: it does not begin with TWSHARD");
    }
    if (fixed[sizeof(magic) - 1] != (uint8_t)magic[sizeof(magic) - 1]) {
        return tw_fail(err, TW_VERSION,
                       "a token shard of a version that this program does not "
                       "know: use the Thinwire it was made with");
    }
    *head_bytes = tw_get_u32(fixed + AT_HEAD_BYTES);
    if (*head_bytes < HEAD_ALIGN || *head_bytes > TW_SHARD_HEAD_BYTES_MAX ||
        *head_bytes % HEAD_ALIGN != 0) {
        return tw_fail(err, TW_CORRUPT, "a token shard with a head of %u bytes: it is damaged",
                       *head_bytes);
    }
    return TW_OK;
}

static bool is_zero(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

static enum tw_status check_values(const struct tw_shard *shard, uint32_t separator,
                                   struct tw_error *err) {
    if (shard->vocab == 0 || shard->vocab > VOCAB_MAX ||
        shard->token_bytes != tw_shard_token_bytes(shard->vocab)) {
        return tw_fail(err, TW_CORRUPT, "a token shard with %u-byte tokens of %u: it is damaged",
                       shard->token_bytes, shard->vocab);
    }
    if (separator != NO_SEPARATOR && separator >= shard->vocab) {
        return tw_fail(err, TW_CORRUPT,
                       "a token shard with the separator %u, outside its vocabulary of %u",
                       separator, shard->vocab);
    }
    if (shard->tokens_count == 0 || shard->documents_count == 0) {
        return tw_fail(err, TW_CORRUPT, "a token shard without tokens: it is damaged");
    }
    return TW_OK;
}

enum tw_status tw_shard_decode(const uint8_t *head, size_t size, struct tw_shard *shard,
                               struct tw_error *err) {
    uint32_t head_bytes = 0;
    if (size < TW_SHARD_FIXED_BYTES) {
        return tw_fail(err, TW_CORRUPT, "a token shard that ends within its head");
    }
    TW_TRY(tw_shard_head_bytes(head, &head_bytes, err));
    const uint32_t side = tw_get_u32(head + AT_SIDE), separator = tw_get_u32(head + AT_SEPARATOR);
    *shard = (struct tw_shard){
        .token_bytes = tw_get_u32(head + AT_TOKEN_BYTES),
        .vocab = tw_get_u32(head + AT_VOCAB),
        .separator = separator == NO_SEPARATOR ? TW_SHARD_NO_SEPARATOR : (int64_t)separator,
        .tokens_count = tw_get_u64(head + AT_TOKENS),
        .documents_count = tw_get_u64(head + AT_DOCUMENTS),
        .is_heldout = side == 1,
        .source = tw_get_u32(head + AT_SOURCE),
        .number = tw_get_u32(head + AT_NUMBER),
    };
    memcpy(shard->tokenizer.bytes, head + AT_TOKENIZER, sizeof(shard->tokenizer.bytes));
    TW_TRY(check_values(shard, separator, err));
    TW_TRY(tw_shard_plan(shard, err));
    const size_t used = TW_SHARD_FIXED_BYTES + (size_t)DIGEST_BYTES * shard->pieces_count;
    if (size != head_bytes || head_bytes != shard->head_bytes || side > 1 ||
        !is_zero(head + AT_ZERO, TW_SHARD_FIXED_BYTES - AT_ZERO) ||
        !is_zero(head + used, size - used)) {
        return tw_fail(err, TW_CORRUPT, "a token shard whose head does not add up: it is damaged");
    }
    return TW_OK;
}

struct tw_id tw_shard_digest(const uint8_t *head, uint32_t i) {
    struct tw_id digest;
    memcpy(digest.bytes, head + TW_SHARD_FIXED_BYTES + (size_t)i * DIGEST_BYTES, DIGEST_BYTES);
    return digest;
}

uint32_t tw_shard_piece_bytes(const struct tw_shard *shard, uint32_t i) {
    TW_ASSERT(i < shard->pieces_count);
    const uint64_t left = shard->body_bytes - (uint64_t)i * TW_SHARD_PIECE_BYTES;
    return left < TW_SHARD_PIECE_BYTES ? (uint32_t)left : TW_SHARD_PIECE_BYTES;
}
