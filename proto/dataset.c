/* dataset.c - heads of shards, and the index of a dataset as text. The readers accept only
 * canonical bytes, so equal content has one SHA-256. */
#include "proto/dataset.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

/* ---- shards --------------------------------------------------------------------------------- */

enum {
    AT_MAGIC = 0,
    AT_HEAD_BYTES = 8,
    AT_TOKEN_BYTES = 12,
    AT_TOKENS = 16,
    AT_DOCUMENTS = 24,
    AT_VOCAB = 32,
    AT_SIDE = 36, /* bits: SIDE_HELDOUT, SIDE_ANSWERS */
    AT_TOKENIZER = 40,
    AT_SEPARATOR = 72, /* u32; all bits set: no separator */
    AT_SOURCE = 76,
    AT_NUMBER = 80,
    AT_ZERO = 84,
    DIGEST_BYTES = 32,
    HEAD_ALIGN = 4096,
    SIDE_HELDOUT = 1,
    SIDE_ANSWERS = 2,
};
#define NO_SEPARATOR UINT32_MAX
#define VOCAB_MAX ((uint32_t)1 << 31)

static const char shard_magic[8] = "TWSHARD1"; /* the last character is the version */

uint32_t tw_shard_token_bytes(uint32_t vocab, bool has_answers) {
    const uint64_t numbers = (uint64_t)vocab << (has_answers ? 1 : 0);
    if (numbers <= 256) return 1;
    return numbers <= 65536 ? 2 : 4;
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
    memcpy(head + AT_MAGIC, shard_magic, sizeof(shard_magic));
    tw_put_u32(head + AT_HEAD_BYTES, shard->head_bytes);
    tw_put_u32(head + AT_TOKEN_BYTES, shard->token_bytes);
    tw_put_u64(head + AT_TOKENS, shard->tokens_count);
    tw_put_u64(head + AT_DOCUMENTS, shard->documents_count);
    tw_put_u32(head + AT_VOCAB, shard->vocab);
    tw_put_u32(head + AT_SIDE,
               (shard->is_heldout ? SIDE_HELDOUT : 0u) | (shard->has_answers ? SIDE_ANSWERS : 0u));
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
    if (memcmp(fixed, shard_magic, sizeof(shard_magic) - 1) != 0) {
        return tw_fail(err, TW_CORRUPT, "no token shard: it does not begin with TWSHARD");
    }
    if (fixed[sizeof(shard_magic) - 1] != (uint8_t)shard_magic[sizeof(shard_magic) - 1]) {
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
    if (shard->vocab == 0 || shard->vocab > VOCAB_MAX >> (shard->has_answers ? 1 : 0) ||
        shard->token_bytes != tw_shard_token_bytes(shard->vocab, shard->has_answers)) {
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
        .is_heldout = (side & SIDE_HELDOUT) != 0,
        .has_answers = (side & SIDE_ANSWERS) != 0,
        .source = tw_get_u32(head + AT_SOURCE),
        .number = tw_get_u32(head + AT_NUMBER),
    };
    memcpy(shard->tokenizer.bytes, head + AT_TOKENIZER, sizeof(shard->tokenizer.bytes));
    TW_TRY(check_values(shard, separator, err));
    TW_TRY(tw_shard_plan(shard, err));
    const size_t used = TW_SHARD_FIXED_BYTES + (size_t)DIGEST_BYTES * shard->pieces_count;
    if (size != head_bytes || head_bytes != shard->head_bytes ||
        side > (SIDE_HELDOUT | SIDE_ANSWERS) ||
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

/* ---- the index ------------------------------------------------------------------------------ */

enum {
    MILLION = 1000000,
    /* Offsets in the text "thinwire-dataset 1\nbytes 0000000000\n". */
    SIZE_LINE = 19,   /* start of the second line */
    SIZE_DIGITS = 10, /* digits of the size in the second line */
    SIZE_END = /* end of the second line */ SIZE_LINE + 6 + SIZE_DIGITS + 1,
};
static const char first_line[] = "thinwire-dataset 1\n";

/* ---- writing --------------------------------------------------------------------------------- */

struct writer {
    char *text;
    size_t room, size; /* bytes of `text`; bytes of the output, even beyond room */
};

static void put_bytes(struct writer *writer, const char *bytes, size_t size) {
    if (writer->size + size <= writer->room) memcpy(writer->text + writer->size, bytes, size);
    writer->size += size;
}

static void put(struct writer *writer, const char *text) {
    put_bytes(writer, text, strlen(text));
}

/* Writes at least `digits` digits, padded with leading zeros. */
static void put_digits(struct writer *writer, uint64_t value, size_t digits) {
    char text[20];
    size_t begin = sizeof(text);
    while (value > 0 || begin > sizeof(text) - digits) {
        text[--begin] = (char)('0' + value % 10);
        value /= 10;
    }
    put_bytes(writer, text + begin, sizeof(text) - begin);
}

static void put_number(struct writer *writer, const char *before, uint64_t value) {
    put(writer, before);
    put_digits(writer, value, 1);
}

static void put_id(struct writer *writer, const struct tw_id *id) {
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(id, hex);
    put(writer, hex);
}

/* Writes 50000 as "0.05", 1000000 as "1". */
static void put_share(struct writer *writer, uint32_t millionths) {
    uint32_t rest = millionths % MILLION;
    size_t digits = 6;
    put_digits(writer, millionths / MILLION, 1);
    if (rest == 0) return;
    for (; rest % 10 == 0; rest /= 10) digits--;
    put(writer, ".");
    put_digits(writer, rest, digits);
}

static bool name_is_good(const char *name) {
    const size_t length = strnlen(name, TW_DATASET_NAME_BYTES);
    if (length == 0 || length == TW_DATASET_NAME_BYTES) return false;
    for (size_t i = 0; i < length; i++) {
        const char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
    }
    return true;
}

static enum tw_status check_sources(const struct tw_dataset *dataset, struct tw_error *err) {
    uint64_t sum = 0;
    uint32_t weighed = 0;
    if (dataset->sources_count == 0 || dataset->sources_count > TW_DATASET_SOURCES_MAX) {
        return tw_fail(err, TW_CONFIG, "a dataset has 1 to %d sources, not %u",
                       TW_DATASET_SOURCES_MAX, dataset->sources_count);
    }
    for (uint32_t i = 0; i < dataset->sources_count; i++) {
        const struct tw_dataset_source *source = &dataset->sources[i];
        if (!name_is_good(source->name)) {
            return tw_fail(err, TW_CONFIG,
                           "source %u: a name has 1 to %d of the characters a-z, 0-9 and -", i + 1,
                           TW_DATASET_NAME_BYTES - 1);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(dataset->sources[k].name, source->name) == 0) {
                return tw_fail(err, TW_CONFIG, "two sources are called %s", source->name);
            }
        }
        weighed += source->weight_millionths > 0;
        sum += source->weight_millionths;
    }
    if (weighed == 0) return TW_OK;
    if (weighed < dataset->sources_count) {
        return tw_fail(err, TW_CONFIG,
                       "weights for some sources and not for others: give every source one, or "
                       "none");
    }
    if (sum == MILLION) return TW_OK;
    return tw_fail(err, TW_CONFIG, "the weights of the sources add up to %.6g, not to 1",
                   (double)sum / MILLION);
}

static enum tw_status check_shard(const struct tw_dataset *dataset, uint32_t i,
                                  struct tw_error *err) {
    const struct tw_dataset_shard *shard = &dataset->shards[i];
    const struct tw_dataset_shard *before = i > 0 ? &dataset->shards[i - 1] : NULL;
    const bool is_same_side = before != NULL && before->source == shard->source &&
                              before->is_heldout == shard->is_heldout;
    const bool is_in_order =
        before == NULL || before->source < shard->source ||
        (before->source == shard->source && before->is_heldout <= shard->is_heldout);
    if (shard->source >= dataset->sources_count || !is_in_order ||
        shard->number != (is_same_side ? before->number + 1 : 0)) {
        return tw_fail(err, TW_CONFIG, "shard %u is out of order", i + 1);
    }
    /* A shard head with only the fields that the index determines. */
    struct tw_shard head = {.token_bytes =
                                tw_shard_token_bytes(dataset->vocab, dataset->has_answers),
                            .tokens_count = shard->tokens_count,
                            .documents_count = shard->documents_count};
    TW_TRY(tw_shard_plan(&head, err));
    if (shard->tokens_count == 0 || shard->documents_count == 0 ||
        shard->head_bytes != head.head_bytes ||
        shard->file_bytes != head.head_bytes + head.body_bytes) {
        return tw_fail(err, TW_CONFIG, "shard %u has sizes that do not add up", i + 1);
    }
    return TW_OK;
}

static enum tw_status check(const struct tw_dataset *dataset, struct tw_error *err) {
    const bool has_json = !tw_id_is_zero(&dataset->tokenizer);
    if (has_json ? dataset->tokenizer_bytes == 0 ||
                       dataset->tokenizer_bytes > TW_DATASET_TOKENIZER_BYTES_MAX
                 : dataset->tokenizer_bytes != 0 || dataset->vocab != 256) {
        return tw_fail(err, TW_CONFIG, "a tokenizer of %u bytes and a vocabulary of %u",
                       dataset->tokenizer_bytes, dataset->vocab);
    }
    if (dataset->vocab == 0 || dataset->vocab > VOCAB_MAX >> (dataset->has_answers ? 1 : 0) ||
        dataset->separator < TW_SHARD_NO_SEPARATOR ||
        dataset->separator >= (int64_t)dataset->vocab) {
        return tw_fail(err, TW_CONFIG, "separator %lld, vocabulary %u",
                       (long long)dataset->separator, dataset->vocab);
    }
    if (dataset->heldout_millionths > MILLION / 2) {
        return tw_fail(err, TW_CONFIG, "more than half is held out");
    }
    if (dataset->shards_count > TW_DATASET_SHARDS_MAX) {
        return tw_fail(err, TW_CONFIG, "%u shards, more than %d: make larger ones",
                       dataset->shards_count, TW_DATASET_SHARDS_MAX);
    }
    TW_TRY(check_sources(dataset, err));
    for (uint32_t i = 0; i < dataset->shards_count; i++) TW_TRY(check_shard(dataset, i, err));
    return TW_OK;
}

static void put_shard(const struct tw_dataset_shard *shard, struct writer *writer) {
    put_number(writer, "shard ", shard->source);
    put(writer, shard->is_heldout ? " heldout " : " train ");
    put_id(writer, &shard->name);
    put_number(writer, " ", shard->head_bytes);
    put_number(writer, " ", shard->file_bytes);
    put_number(writer, " ", shard->tokens_count);
    put_number(writer, " ", shard->documents_count);
    put(writer, "\n");
}

static void put_all(const struct tw_dataset *dataset, struct writer *writer) {
    put(writer, first_line);
    put(writer, "bytes ");
    put_digits(writer, 0, SIZE_DIGITS);
    put(writer, "\ntokenizer ");
    if (tw_id_is_zero(&dataset->tokenizer)) {
        put(writer, "bytes");
    } else {
        put_id(writer, &dataset->tokenizer);
        put_number(writer, " ", dataset->tokenizer_bytes);
    }
    put_number(writer, "\nvocab ", dataset->vocab);
    if (dataset->separator < 0) {
        put(writer, "\nseparator none");
    } else {
        put_number(writer, "\nseparator ", (uint64_t)dataset->separator);
    }
    put(writer, "\nheldout ");
    put_share(writer, dataset->heldout_millionths);
    put(writer, dataset->has_answers ? "\nanswers marked\n" : "\n");
    for (uint32_t i = 0; i < dataset->sources_count; i++) {
        put(writer, "source ");
        put(writer, dataset->sources[i].name);
        put(writer, " ");
        if (dataset->sources[i].weight_millionths == 0) {
            put(writer, "size");
        } else {
            put_share(writer, dataset->sources[i].weight_millionths);
        }
        put(writer, "\n");
    }
    for (uint32_t i = 0; i < dataset->shards_count; i++) put_shard(&dataset->shards[i], writer);
}

enum tw_status tw_dataset_encode(const struct tw_dataset *dataset, char *text, size_t room,
                                 size_t *size, struct tw_error *err) {
    const size_t most = room < TW_DATASET_BYTES_MAX ? room : TW_DATASET_BYTES_MAX;
    struct writer writer = {.text = text, .room = most};
    TW_TRY(check(dataset, err));
    put_all(dataset, &writer);
    *size = writer.size;
    if (writer.size > writer.room) {
        return tw_fail(err, TW_LIMIT, "an index of %zu bytes, more than the %zu there is room for",
                       writer.size, writer.room);
    }
    struct writer size_line = {.text = text + SIZE_LINE, .room = SIZE_END - SIZE_LINE};
    put(&size_line, "bytes ");
    put_digits(&size_line, writer.size, SIZE_DIGITS);
    return TW_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The unread rest of the text. Words end at a space or at the end of their line. */
struct reader {
    const char *at, *end;
    uint32_t line;
};

static enum tw_status bad(const struct reader *reader, struct tw_error *err, const char *what) {
    return tw_fail(err, TW_CORRUPT, "line %" PRIu32 " of the dataset's index: %s", reader->line,
                   what);
}

static bool take(struct reader *reader, const char *text) {
    const size_t length = strlen(text);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, text, length) != 0) {
        return false;
    }
    reader->at += length;
    return true;
}

static bool take_line_end(struct reader *reader) {
    if (!take(reader, "\n")) return false;
    reader->line++;
    return true;
}

/* Reads a decimal number of at most `max`, without leading zeros. */
static bool take_number(struct reader *reader, uint64_t max, uint64_t *value) {
    const char *const begin = reader->at;
    *value = 0;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') {
        const uint64_t digit = (uint64_t)(*reader->at - '0');
        if (digit > max || *value > (max - digit) / 10) return false;
        *value = *value * 10 + digit;
        reader->at++;
    }
    return reader->at == begin + 1 || (reader->at > begin && *begin != '0');
}

static bool take_u32(struct reader *reader, uint32_t max, uint32_t *value) {
    uint64_t wide = 0;
    if (!take_number(reader, max, &wide)) return false;
    *value = (uint32_t)wide;
    return true;
}

/* Reads a fraction of at most 1, with up to six decimals and no trailing zero. */
static bool take_share(struct reader *reader, uint32_t *millionths) {
    if (!take_u32(reader, 1, millionths)) return false;
    *millionths *= MILLION;
    if (!take(reader, ".")) return true;
    char last = '0';
    for (uint32_t place = MILLION / 10; place > 0 && reader->at < reader->end; place /= 10) {
        if (*reader->at < '0' || *reader->at > '9') break;
        last = *reader->at++;
        *millionths += (uint32_t)(last - '0') * place;
    }
    return last != '0' && *millionths <= MILLION;
}

static bool take_id(struct reader *reader, struct tw_id *id) {
    char hex[TW_ID_HEX_BYTES];
    if (reader->end - reader->at < TW_ID_HEX_BYTES - 1) return false;
    memcpy(hex, reader->at, TW_ID_HEX_BYTES - 1);
    hex[TW_ID_HEX_BYTES - 1] = '\0';
    reader->at += TW_ID_HEX_BYTES - 1;
    for (const char *c = hex; *c != '\0'; c++) {
        if (*c >= 'A' && *c <= 'F') return false;
    }
    return tw_id_parse(hex, id) && !tw_id_is_zero(id);
}

static bool take_name(struct reader *reader, char name[TW_DATASET_NAME_BYTES]) {
    size_t length = 0;
    while (reader->at < reader->end && *reader->at != ' ' && *reader->at != '\n') {
        if (length == TW_DATASET_NAME_BYTES - 1) return false;
        name[length++] = *reader->at++;
    }
    name[length] = '\0';
    return strlen(name) == length && name_is_good(name); /* a NUL inside the name is refused */
}

static enum tw_status read_tokens(struct reader *reader, struct tw_dataset *dataset,
                                  struct tw_error *err) {
    bool is_good = take(reader, "tokenizer ");
    if (is_good && !take(reader, "bytes")) {
        is_good = take_id(reader, &dataset->tokenizer) && take(reader, " ") &&
                  take_u32(reader, TW_DATASET_TOKENIZER_BYTES_MAX, &dataset->tokenizer_bytes);
    }
    if (!is_good || !take_line_end(reader)) return bad(reader, err, "no valid tokenizer");
    if (!take(reader, "vocab ") || !take_u32(reader, (uint32_t)1 << 31, &dataset->vocab) ||
        !take_line_end(reader)) {
        return bad(reader, err, "no valid vocabulary size");
    }
    uint64_t separator = 0;
    is_good = take(reader, "separator ");
    if (is_good && !take(reader, "none")) {
        is_good = take_number(reader, UINT32_MAX, &separator);
        dataset->separator = (int64_t)separator;
    }
    if (!is_good || !take_line_end(reader)) return bad(reader, err, "no separator");
    if (!take(reader, "heldout ") || !take_share(reader, &dataset->heldout_millionths) ||
        !take_line_end(reader)) {
        return bad(reader, err, "no valid held-out share");
    }
    dataset->has_answers = take(reader, "answers ");
    if (dataset->has_answers && (!take(reader, "marked") || !take_line_end(reader))) {
        return bad(reader, err, "no valid word on answers");
    }
    return TW_OK;
}

static enum tw_status read_source(struct reader *reader, struct tw_dataset *dataset,
                                  struct tw_error *err) {
    if (dataset->sources_count == TW_DATASET_SOURCES_MAX) {
        return bad(reader, err, "too many sources");
    }
    struct tw_dataset_source *source = &dataset->sources[dataset->sources_count++];
    bool is_good = take_name(reader, source->name) && take(reader, " ");
    if (is_good && !take(reader, "size")) {
        is_good = take_share(reader, &source->weight_millionths) && source->weight_millionths > 0;
    }
    if (!is_good || !take_line_end(reader)) {
        return bad(reader, err, "no source with a name and a weight");
    }
    return TW_OK;
}

static enum tw_status read_shard(struct reader *reader, struct tw_dataset *dataset,
                                 struct tw_error *err) {
    if (dataset->shards_count == dataset->shards_capacity) {
        return tw_fail(err, TW_LIMIT, "the dataset's index names more than %" PRIu32 " shards",
                       dataset->shards_capacity);
    }
    struct tw_dataset_shard *shard = &dataset->shards[dataset->shards_count++];
    const struct tw_dataset_shard *before = dataset->shards_count > 1 ? shard - 1 : NULL;
    *shard = (struct tw_dataset_shard){0};
    bool is_good = take_u32(reader, TW_DATASET_SOURCES_MAX, &shard->source);
    if (is_good && !take(reader, " train "))
        is_good = shard->is_heldout = take(reader, " heldout ");
    if (!is_good || !take_id(reader, &shard->name) || !take(reader, " ") ||
        !take_u32(reader, UINT32_MAX, &shard->head_bytes) || !take(reader, " ") ||
        !take_number(reader, INT64_MAX, &shard->file_bytes) || !take(reader, " ") ||
        !take_number(reader, INT64_MAX, &shard->tokens_count) || !take(reader, " ") ||
        !take_number(reader, INT64_MAX, &shard->documents_count) || !take_line_end(reader)) {
        return bad(reader, err, "no shard with its side, name, sizes and counts");
    }
    if (before != NULL && before->source == shard->source &&
        before->is_heldout == shard->is_heldout) {
        shard->number = before->number + 1;
    }
    return TW_OK;
}

enum tw_status tw_dataset_size(const char *text, size_t size, uint32_t *bytes,
                               struct tw_error *err) {
    struct reader reader = {.at = text, .end = text + size, .line = 1};
    if (!take(&reader, "thinwire-dataset ")) {
        return tw_fail(err, TW_CORRUPT,
                       "no index of a dataset: it does not begin with thinwire-dataset");
    }
    if (!take(&reader, "1\n")) {
        return tw_fail(err, TW_VERSION,
                       "the index of a dataset of a version that this program does not know: use "
                       "the Thinwire it was made with");
    }
    reader.line = 2;
    uint64_t wide = 0;
    bool is_good = take(&reader, "bytes ") && reader.end - reader.at > SIZE_DIGITS;
    for (uint32_t i = 0; is_good && i < SIZE_DIGITS; i++, reader.at++) {
        is_good = *reader.at >= '0' && *reader.at <= '9';
        wide = wide * 10 + (uint64_t)(*reader.at - '0');
    }
    if (!is_good || !take(&reader, "\n") || wide > TW_DATASET_BYTES_MAX || wide < SIZE_END) {
        return bad(&reader, err, "no valid size");
    }
    *bytes = (uint32_t)wide;
    return TW_OK;
}

uint32_t tw_dataset_lines(const char *text, size_t size) {
    uint32_t count = 0;
    for (size_t i = 0; i + 1 < size; i++) {
        if (text[i] == '\n' && text[i + 1] == 's' && count < TW_DATASET_SHARDS_MAX) count++;
    }
    return count;
}

enum tw_status tw_dataset_decode(const char *text, size_t size, struct tw_dataset_shard *shards,
                                 uint32_t capacity, struct tw_dataset *dataset,
                                 struct tw_error *err) {
    struct tw_error reason = {0};
    uint32_t bytes = 0;
    TW_TRY(tw_dataset_size(text, size, &bytes, err));
    if (bytes != size) {
        return tw_fail(err, TW_CORRUPT,
                       "the dataset's index has %zu bytes and should have %" PRIu32
                       ": it is cut off or damaged",
                       size, bytes);
    }
    struct reader reader = {.at = text + SIZE_END, .end = text + size, .line = 3};
    *dataset = (struct tw_dataset){
        .separator = TW_SHARD_NO_SEPARATOR, .shards_capacity = capacity, .shards = shards};
    TW_TRY(read_tokens(&reader, dataset, err));
    while (take(&reader, "source ")) TW_TRY(read_source(&reader, dataset, err));
    while (take(&reader, "shard ")) TW_TRY(read_shard(&reader, dataset, err));
    if (reader.at != reader.end) return bad(&reader, err, "neither a source nor a shard");
    if (check(dataset, &reason) == TW_OK) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "the dataset's index: %.200s", reason.message);
}

/* ---- questions ------------------------------------------------------------------------------- */

uint32_t tw_dataset_shares(const uint64_t *weights, uint32_t count, uint32_t *millionths) {
    uint64_t sum = 0, rest[TW_DATASET_SOURCES_MAX];
    uint32_t left = MILLION;
    TW_ASSERT(count <= TW_DATASET_SOURCES_MAX);
    for (uint32_t i = 0; i < count; i++) sum += weights[i];
    for (uint32_t i = 0; i < count; i++) {
        millionths[i] = (uint32_t)(weights[i] * MILLION / sum);
        rest[i] = weights[i] * MILLION % sum;
        left -= millionths[i];
    }
    for (; left > 0; left--) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < count; i++) {
            if (rest[i] > rest[most]) most = i;
        }
        millionths[most]++;
        rest[most] = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (millionths[i] < TW_DATASET_SHARE_MIN) return i;
    }
    return count;
}

void tw_dataset_file(const struct tw_dataset *dataset, const struct tw_dataset_shard *shard,
                     char name[TW_DATASET_FILE_BYTES]) {
    TW_ASSERT(shard->source < dataset->sources_count && shard->number < TW_DATASET_SHARDS_MAX);
    struct writer writer = {.text = name, .room = TW_DATASET_FILE_BYTES - 1};
    put(&writer, dataset->sources[shard->source].name);
    put(&writer, shard->is_heldout ? "-heldout-" : "-train-");
    put_digits(&writer, shard->number, 5);
    put(&writer, ".shard");
    name[writer.size] = '\0';
}

uint64_t tw_dataset_tokens(const struct tw_dataset *dataset, bool is_heldout) {
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < dataset->shards_count; i++) {
        if (dataset->shards[i].is_heldout == is_heldout) tokens += dataset->shards[i].tokens_count;
    }
    return tokens;
}

/* ---- datasets of runs ----------------------------------------------------------------------- */

enum { BYTES_VOCAB = 256 };

static enum tw_status check_tokens(const struct tw_dataset *dataset, const struct tw_run *run,
                                   struct tw_error *err) {
    if (run->data.tokenizer == TW_TOKENIZER_BYTES && !tw_id_is_zero(&dataset->tokenizer)) {
        return tw_fail(err, TW_DATA,
                       "its tokens are those of a tokenizer.json, and data.tokenizer of the run is "
                       "bytes: prepare it with --tokenizer bytes, or make another run");
    }
    const bool is_bytes = tw_id_is_zero(&dataset->tokenizer) && dataset->vocab <= BYTES_VOCAB;
    if (run->data.tokenizer == TW_TOKENIZER_IDS && is_bytes && run->model.vocab > BYTES_VOCAB) {
        return tw_fail(
            err, TW_DATA,
            "its tokens are bytes, and data.tokenizer of the run is ids: prepare it with "
            "the tokenizer of this model");
    }
    if (dataset->vocab > run->model.vocab) {
        return tw_fail(err, TW_DATA,
                       "its tokens go up to %u, and model.vocab of the run is %u: prepare it with "
                       "the tokenizer of this model, or make a run with a larger vocabulary",
                       dataset->vocab - 1, run->model.vocab);
    }
    return TW_OK;
}

enum tw_status tw_dataset_check_run(const struct tw_dataset *dataset, const struct tw_run *run,
                                    struct tw_error *err) {
    TW_TRY(check_tokens(dataset, run, err));
    if (run->data.loss == TW_LOSS_ANSWERS && !dataset->has_answers) {
        return tw_fail(
            err, TW_DATA,
            "it marks no answers, and data.loss of the run is answers: prepare it as a chat "
            "set, or set data.loss = all");
    }
    if (run->data.documents == TW_DOCUMENTS_MASKED &&
        dataset->separator != (int64_t)run->data.separator) {
        return tw_fail(err, TW_DATA,
                       dataset->separator == TW_SHARD_NO_SEPARATOR
                           ? "its documents begin with no separator, and the run masks by "
                             "token %u: set data.documents = joined"
                           : "its documents begin with another token than %u, by which the run "
                             "masks: data.separator must be the dataset's",
                       run->data.separator);
    }
    if (run->data.form == TW_FORM_DATASET &&
        dataset->heldout_millionths != run->data.heldout_millionths) {
        return tw_fail(err, TW_DATA,
                       "it holds out a share of %.6g, and data.heldout of the run is %.6g: they "
                       "must be equal",
                       dataset->heldout_millionths / 1e6, run->data.heldout_millionths / 1e6);
    }
    return TW_OK;
}

void tw_dataset_set_run(const struct tw_dataset *dataset, const struct tw_id *digest,
                        struct tw_run *run) {
    const bool is_bytes = tw_id_is_zero(&dataset->tokenizer) && dataset->vocab <= BYTES_VOCAB;
    run->data.form = TW_FORM_DATASET;
    run->data.sha256 = *digest;
    run->data.heldout_millionths = dataset->heldout_millionths;
    run->data.separator = dataset->separator < 0 ? 0 : (uint32_t)dataset->separator;
    run->data.tokenizer = is_bytes ? TW_TOKENIZER_BYTES : TW_TOKENIZER_IDS;
    run->data.loss = dataset->has_answers ? TW_LOSS_ANSWERS : TW_LOSS_ALL;
    run->model.vocab = is_bytes ? BYTES_VOCAB : dataset->vocab;
}
