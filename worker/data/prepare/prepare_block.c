#include "worker/data/prepare/prepare_block.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/json_field.h"
#include "kernels/ops.h"
#include "proto/dataset.h"
#include "worker/data/corpus.h"

enum {
    /* Documents longer than this share one encoder, so only one thread at a time tokenises such a
     * document. The memory that a very long word needs is thus needed only once. */
    TW_ENCODE_SHARED_BYTES = 256 << 10,
    /* Limit of invalid UTF-8 in a document: a tenth of its bytes, but at least this many. */
    TW_ENCODE_INVALID_MIN = 16,
};

/* ---- blocks ---------------------------------------------------------------------------------- */

enum { SPARE_TOKENS_MAX = TW_BLOCK_BYTES };

enum tw_status tw_blocks_init(struct tw_blocks *blocks, uint64_t bytes_max, struct tw_error *err) {
    pthread_condattr_t monotonic;
    memset(blocks, 0, sizeof(*blocks));
    blocks->bytes_max = bytes_max;
    bool is_good = pthread_condattr_init(&monotonic) == 0 &&
                   pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                   pthread_mutex_init(&blocks->mutex, NULL) == 0 &&
                   pthread_cond_init(&blocks->has_room, NULL) == 0 &&
                   pthread_cond_init(&blocks->has_work, NULL) == 0 &&
                   pthread_cond_init(&blocks->has_done, &monotonic) == 0;
    (void)pthread_condattr_destroy(&monotonic);
    return is_good ? TW_OK : tw_fail(err, TW_NOMEM, "no memory for locks");
}

void tw_block_destroy(struct tw_block *block) {
    if (block == NULL) return;
    tw_tokens_deinit(&block->tokens);
    free(block->documents);
    free(block->text);
    free(block);
}

enum tw_status tw_block_reserve(struct tw_block *block, size_t bytes, struct tw_error *err) {
    size_t capacity = block->capacity;
    if (bytes <= capacity) return TW_OK;
    while (capacity < bytes) capacity *= 2;
    uint8_t *const more = realloc(block->text, capacity);
    if (more == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu bytes of text", capacity);
    block->text = more;
    block->capacity = capacity;
    return TW_OK;
}

void tw_blocks_deinit(struct tw_blocks *blocks) {
    for (uint64_t i = blocks->got; i < blocks->put; i++) {
        tw_block_destroy(blocks->ring[i % TW_BLOCKS_MAX]);
    }
    for (uint32_t i = 0; i < blocks->spare_count; i++) tw_block_destroy(blocks->spare[i]);
    (void)pthread_cond_destroy(&blocks->has_done);
    (void)pthread_cond_destroy(&blocks->has_work);
    (void)pthread_cond_destroy(&blocks->has_room);
    (void)pthread_mutex_destroy(&blocks->mutex);
}

enum tw_status tw_blocks_create(struct tw_blocks *blocks, struct tw_block **block_out,
                                struct tw_error *err) {
    struct tw_block *block = NULL;
    (void)pthread_mutex_lock(&blocks->mutex);
    if (blocks->spare_count > 0) block = blocks->spare[--blocks->spare_count];
    (void)pthread_mutex_unlock(&blocks->mutex);
    *block_out = block;
    if (block != NULL) {
        *block = (struct tw_block){
            .text = block->text,
            .capacity = block->capacity,
            .documents = block->documents,
            .tokens = {.tokens = block->tokens.tokens, .capacity = block->tokens.capacity}};
        return TW_OK;
    }
    block = calloc(1, sizeof(*block));
    if (block != NULL) {
        block->capacity = TW_BLOCK_BYTES;
        block->text = malloc(block->capacity);
        block->documents = malloc(TW_BLOCK_DOCUMENTS_MAX * sizeof(*block->documents));
        *block_out = block;
        if (block->text != NULL && block->documents != NULL) return TW_OK;
        tw_block_destroy(block);
        *block_out = NULL;
    }
    return tw_fail(err, TW_NOMEM, "no memory for a block of text");
}

static bool has_room(const struct tw_blocks *blocks, const struct tw_block *block) {
    if (blocks->put == blocks->got) return true;
    return blocks->put - blocks->got < TW_BLOCKS_MAX &&
           blocks->bytes + block->bytes <= blocks->bytes_max;
}

bool tw_blocks_put(struct tw_blocks *blocks, struct tw_block *block) {
    (void)pthread_mutex_lock(&blocks->mutex);
    while (!blocks->is_stopped && !has_room(blocks, block)) {
        (void)pthread_cond_wait(&blocks->has_room, &blocks->mutex);
    }
    const bool is_put = !blocks->is_stopped;
    if (is_put) {
        block->is_done = false;
        blocks->ring[blocks->put++ % TW_BLOCKS_MAX] = block;
        blocks->bytes += block->bytes;
        (void)pthread_cond_signal(&blocks->has_work);
    }
    (void)pthread_mutex_unlock(&blocks->mutex);
    if (!is_put) tw_block_destroy(block);
    return is_put;
}

struct tw_block *tw_blocks_take(struct tw_blocks *blocks) {
    struct tw_block *block = NULL;
    (void)pthread_mutex_lock(&blocks->mutex);
    while (!blocks->is_stopped && blocks->taken == blocks->put) {
        (void)pthread_cond_wait(&blocks->has_work, &blocks->mutex);
    }
    if (!blocks->is_stopped) block = blocks->ring[blocks->taken++ % TW_BLOCKS_MAX];
    (void)pthread_mutex_unlock(&blocks->mutex);
    return block;
}

void tw_blocks_done(struct tw_blocks *blocks, struct tw_block *block) {
    (void)pthread_mutex_lock(&blocks->mutex);
    block->is_done = true;
    if (blocks->ring[blocks->got % TW_BLOCKS_MAX] == block) {
        (void)pthread_cond_signal(&blocks->has_done);
    }
    (void)pthread_mutex_unlock(&blocks->mutex);
}

struct tw_block *tw_blocks_get(struct tw_blocks *blocks, uint32_t wait_ms) {
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    until.tv_sec += wait_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&blocks->mutex);
    struct tw_block *block = NULL;
    for (;;) {
        block = blocks->got < blocks->put ? blocks->ring[blocks->got % TW_BLOCKS_MAX] : NULL;
        if (block != NULL && block->is_done) break;
        block = NULL;
        if (pthread_cond_timedwait(&blocks->has_done, &blocks->mutex, &until) != 0) break;
    }
    (void)pthread_mutex_unlock(&blocks->mutex);
    return block;
}

/* Removes the block from the queue. Until now, its bytes counted as queued. */
void tw_blocks_release(struct tw_blocks *blocks, struct tw_block *block) {
    if (block->tokens.capacity > SPARE_TOKENS_MAX) tw_tokens_deinit(&block->tokens);
    const bool is_large = block->capacity > TW_BLOCK_BYTES;
    bool is_kept = false;
    (void)pthread_mutex_lock(&blocks->mutex);
    TW_ASSERT(blocks->ring[blocks->got % TW_BLOCKS_MAX] == block);
    blocks->ring[blocks->got++ % TW_BLOCKS_MAX] = NULL;
    blocks->bytes -= block->bytes;
    if (!is_large && blocks->spare_count < TW_BLOCKS_SPARE) {
        blocks->spare[blocks->spare_count++] = block;
        is_kept = true;
    }
    (void)pthread_cond_signal(&blocks->has_room);
    (void)pthread_mutex_unlock(&blocks->mutex);
    if (!is_kept) tw_block_destroy(block);
}

void tw_blocks_stop(struct tw_blocks *blocks) {
    (void)pthread_mutex_lock(&blocks->mutex);
    blocks->is_stopped = true;
    (void)pthread_cond_broadcast(&blocks->has_room);
    (void)pthread_cond_broadcast(&blocks->has_work);
    (void)pthread_mutex_unlock(&blocks->mutex);
}

/* ---- token files ----------------------------------------------------------------------------- */

enum {
    TOKEN = 4, /* bytes per token in a block */
    /* Limit of a document in tokens; longer documents are split. In bytes it is half of the limit
     * for a text. */
    TOKENS_MAX = TW_DOCUMENT_BYTES_MAX / TOKEN / 2,
};

struct source {
    struct tw_prepare_fill *fill;
    struct tw_corpus corpus;
    struct tw_token_file *file; /* the only file of the corpus */
    struct tw_token_reader reader;
    uint64_t read;       /* tokens of the file put into blocks so far */
    uint32_t *read_room; /* (TW_TOKEN_READ_MAX): buffer for tokens just read */
};

static enum tw_status open_source(struct source *source, struct tw_error *err) {
    const struct tw_prepare_reader *const reader = source->fill->reader;
    const struct tw_corpus_hint hint = {.is_ids = true, .vocab = reader->vocab};
    const char *const path = source->fill->file->path;
    if (!reader->has_tokenizer) {
        return tw_fail(err, TW_DATA,
                       "%.120s holds token numbers: name their tokenizer with --tokenizer", path);
    }
    TW_TRY(tw_corpus_open(&source->corpus, path, &hint, err));
    source->file = &source->corpus.files[0].tokens;
    return tw_token_reader_init(&source->reader, reader->vocab, err);
}

/* Reads more tokens of the file into the block. */
static enum tw_status read_some(struct source *source, struct tw_error *err) {
    struct tw_block *const block = source->fill->block;
    const uint64_t left = source->file->tokens_count - source->read;
    const uint32_t count = left < TW_TOKEN_READ_MAX ? (uint32_t)left : TW_TOKEN_READ_MAX;
    TW_TRY(tw_block_reserve(block, block->bytes + (size_t)count * TOKEN, err));
    TW_TRY(
        tw_token_read(&source->reader, source->file, source->read, count, source->read_room, err));
    for (uint32_t i = 0; i < count; i++) {
        tw_put_u32(block->text + block->bytes + (size_t)i * TOKEN, source->read_room[i]);
    }
    block->bytes += (size_t)count * TOKEN;
    source->read += count;
    source->fill->taken = source->file->begin_bytes + source->read * source->file->token_bytes;
    return TW_OK;
}

/* Sets *tokens to the length of the document at cut_bytes, or to 0 if its end has not been read
 * yet. */
static enum tw_status find_end(struct source *source, uint64_t *tokens, struct tw_error *err) {
    const struct tw_prepare_fill *const fill = source->fill;
    const uint64_t there = (fill->block->bytes - fill->cut_bytes) / TOKEN;
    const uint64_t begin = (fill->block->at + fill->cut_bytes) / TOKEN;
    const bool is_all = source->read == source->file->tokens_count;
    const uint64_t most = there < TOKENS_MAX ? there : TOKENS_MAX;
    uint64_t end = most;
    bool is_found = is_all || there >= TOKENS_MAX;
    if (source->corpus.kind == TW_CORPUS_MEGATRON) {
        uint64_t next = 0;
        TW_TRY(tw_megatron_boundary(&source->corpus.megatron, begin + 1, &next, err));
        if (next - begin <= most) {
            end = next - begin;
            is_found = true;
        }
    } else {
        const uint8_t *const from = fill->block->text + fill->cut_bytes;
        for (uint64_t i = 1; i < most; i++) {
            if ((int64_t)tw_get_u32(from + i * TOKEN) != fill->reader->separator) continue;
            end = i;
            is_found = true;
            break;
        }
    }
    *tokens = is_found ? end : 0;
    return TW_OK;
}

static enum tw_status cut_and_send(struct source *source, struct tw_error *err) {
    struct tw_prepare_fill *const fill = source->fill;
    while (fill->cut_bytes < fill->block->bytes) {
        uint64_t tokens = 0;
        TW_TRY(find_end(source, &tokens, err));
        if (tokens == 0) break;
        const size_t bytes = (size_t)tokens * TOKEN;
        tw_prepare_fill_add(fill, (struct tw_text_cut){.taken = bytes, .bytes = bytes},
                            TW_DOCUMENT_EMPTY);
        if (fill->block->documents_count < TW_BLOCK_DOCUMENTS_MAX) continue;
        tw_prepare_fill_send(fill, TW_BLOCK_GOES_ON, 0);
        if (fill->block == NULL) return TW_OK;
    }
    if (fill->cut_bytes >= TW_BLOCK_BYTES / 2) tw_prepare_fill_send(fill, TW_BLOCK_GOES_ON, 0);
    return TW_OK;
}

static enum tw_status read_all(struct source *source, uint64_t at, struct tw_error *err) {
    struct tw_prepare_fill *const fill = source->fill;
    TW_TRY(open_source(source, err));
    source->read_room = malloc(TW_TOKEN_READ_MAX * sizeof(*source->read_room));
    if (source->read_room == NULL) return tw_fail(err, TW_NOMEM, "no memory for tokens");
    source->read = at / TOKEN;
    if (source->read > source->file->tokens_count) {
        return tw_fail(err, TW_DATA, "%.120s has become shorter", fill->file->path);
    }
    fill->block->at = at;
    while (fill->block != NULL && source->read < source->file->tokens_count) {
        TW_TRY(read_some(source, err));
        TW_TRY(cut_and_send(source, err));
    }
    return TW_OK;
}

bool tw_prepare_read_tokens(struct tw_prepare_fill *fill, uint64_t at) {
    struct source source = {.fill = fill, .corpus = {.megatron = {.fd = -1}}};
    struct tw_error err;
    const enum tw_status status = read_all(&source, at, &err);
    const bool is_bad = status != TW_OK;
    if (source.reader.bytes != NULL) tw_token_reader_deinit(&source.reader);
    if (source.file != NULL) tw_corpus_close(&source.corpus);
    free(source.read_room);
    if (fill->block == NULL) return false;
    if (status == TW_NOMEM) {
        tw_prepare_fill_stop(fill, &err);
        return false;
    }
    if (is_bad) {
        fill->block->bytes = fill->cut_bytes;
        fill->block->file_bad = err;
    }
    tw_prepare_fill_send(fill, is_bad ? TW_BLOCK_FILE_BAD : TW_BLOCK_FILE_END, 0);
    return fill->block != NULL && (!is_bad || fill->reader->skip_bad);
}

/* ---- separators ------------------------------------------------------------------------------ */

static int64_t token_or_none(uint32_t token) {
    return token == TW_TOKEN_NONE ? TW_SHARD_NO_SEPARATOR : (int64_t)token;
}

enum tw_status tw_prepare_coder_init(struct tw_prepare_coder *coder,
                                     const struct tw_tokenizer *tokenizer, bool is_bytes,
                                     bool is_chat, struct tw_error *err) {
    memset(coder, 0, sizeof(*coder));
    coder->tokenizer = tokenizer;
    coder->is_chat = is_chat;
    coder->separator = coder->closer = TW_SHARD_NO_SEPARATOR;
    if (pthread_mutex_init(&coder->large, NULL) != 0) {
        return tw_fail(err, TW_NOMEM, "no memory for a lock");
    }
    if (is_chat) return TW_OK;
    const int64_t eos = is_bytes ? 0 : token_or_none(tw_tokenizer_eos(tokenizer));
    /* the token with which the model expects a text to begin */
    const uint32_t first = tw_tokenizer_first(tokenizer);
    coder->separator = first != TW_TOKEN_NONE ? (int64_t)first : eos;
    if (eos != coder->separator) coder->closer = eos;
    return TW_OK;
}

void tw_prepare_coder_deinit(struct tw_prepare_coder *coder) {
    (void)pthread_mutex_destroy(&coder->large);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static uint32_t count_lines(const uint8_t *text, size_t size) {
    uint32_t lines = 0;
    for (const uint8_t *at = text, *end = text + size; at < end; at++, lines++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (at == NULL) break;
    }
    return lines;
}

static bool is_blank(const uint8_t *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (text[i] != ' ' && (text[i] < '\t' || text[i] > '\r')) return false;
    }
    return true;
}

static size_t count_invalid(const uint8_t *text, size_t size) {
    size_t invalid = 0;
    for (size_t at = 0; at < size;) {
        uint64_t word;
        if (size - at >= sizeof(word)) {
            memcpy(&word, text + at, sizeof(word));
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof(word);
                continue;
            }
        }
        const int bytes = tw_utf8_size(text + at, size - at);
        if (bytes <= 0) invalid++;
        at += bytes <= 0 ? 1 : (size_t)bytes;
    }
    return invalid;
}

static enum tw_status check_text(struct tw_block_document *document, const uint8_t *text,
                                 struct tw_error *err) {
    if (document->bytes > TW_DOCUMENT_BYTES_MAX) {
        return tw_fail(err, TW_DATA, "a text of more than %d MiB", TW_DOCUMENT_BYTES_MAX >> 20);
    }
    if (memchr(text, 0, document->bytes) != NULL) {
        return tw_fail(err, TW_DATA, "a NUL character: it is not text");
    }
    const size_t invalid = count_invalid(text, document->bytes);
    document->invalid_bytes = (uint32_t)invalid;
    if (invalid >= TW_ENCODE_INVALID_MIN && invalid > document->bytes / 10) {
        return tw_fail(err, TW_DATA,
                       "%zu of the %zu bytes from here on are not UTF-8; convert it with iconv",
                       invalid, document->bytes);
    }
    return TW_OK;
}

static enum tw_status put_token(struct tw_tokens *tokens, int64_t token, struct tw_error *err) {
    if (token == TW_SHARD_NO_SEPARATOR) return TW_OK;
    if (tokens->count == tokens->capacity) {
        const size_t capacity = tokens->capacity == 0 ? 4096 : 2 * tokens->capacity;
        uint32_t *const more = realloc(tokens->tokens, capacity * sizeof(*more));
        if (more == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu tokens", capacity);
        tokens->tokens = more;
        tokens->capacity = capacity;
    }
    tokens->tokens[tokens->count++] = (uint32_t)token;
    return TW_OK;
}

/* ---- documents given as tokens --------------------------------------------------------------- */

/* Strips separators and end tokens that the writer of the file may have added. */
static void strip_separators(const struct tw_prepare_coder *coder, const uint8_t *text,
                             struct tw_block_document *document) {
    while (document->bytes >= 4 &&
           (int64_t)tw_get_u32(text + document->begin) == coder->separator) {
        document->begin += 4;
        document->bytes -= 4;
    }
    while (document->bytes >= 4) {
        const int64_t last = (int64_t)tw_get_u32(text + document->begin + document->bytes - 4);
        if (last != coder->separator && last != coder->closer) break;
        document->bytes -= 4;
    }
}

static enum tw_status copy_tokens(struct tw_block *block, const struct tw_block_document *document,
                                  struct tw_error *err) {
    for (size_t i = 0; i < document->bytes; i += 4) {
        TW_TRY(put_token(&block->tokens, tw_get_u32(block->text + document->begin + i), err));
    }
    return TW_OK;
}

static bool is_heldout(const struct tw_prepare_coder *coder, const uint8_t *text, size_t bytes) {
    if (coder->heldout_millionths == 0) return false;
    const struct tw_id digest = tw_sha256(text, bytes);
    return tw_get_u64(digest.bytes) % 1000000 < coder->heldout_millionths;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The document that a thread encodes. */
struct coding {
    struct tw_prepare_coder *coder;
    struct tw_encoder *encoder;
    struct tw_tokens *tokens;
    struct tw_block_document *document;
};

static enum tw_status append_tokens(const struct coding *coding, struct tw_encoder *encoder,
                                    struct tw_range text, struct tw_error *err) {
    struct tw_block_document *const document = coding->document;
    const uint64_t lost = tw_encoder_lost_bytes(encoder), names = tw_encoder_names(encoder);
    /* The text is untrusted, so the name of a special token in it is encoded as ordinary text. */
    TW_TRY(tw_encoder_append(encoder, text.bytes, text.size, TW_ENCODE_PLAIN, coding->tokens, err));
    document->lost_bytes += (uint32_t)(tw_encoder_lost_bytes(encoder) - lost);
    document->names += (uint32_t)(tw_encoder_names(encoder) - names);
    return TW_OK;
}

static enum tw_status append_text(const struct coding *coding, struct tw_range text,
                                  struct tw_error *err) {
    struct tw_encoder *encoder;
    if (text.size <= TW_ENCODE_SHARED_BYTES) {
        return append_tokens(coding, coding->encoder, text, err);
    }
    (void)pthread_mutex_lock(&coding->coder->large);
    enum tw_status status = tw_encoder_create(&encoder, coding->coder->tokenizer, err);
    if (status == TW_OK) {
        status = append_tokens(coding, encoder, text, err);
        tw_encoder_destroy(encoder);
    }
    (void)pthread_mutex_unlock(&coding->coder->large);
    return status;
}

/* ---- chats ----------------------------------------------------------------------------------- */

enum mark { NO_MARK, NAME_BEGINS, NAME_ENDS, ANSWER_BEGINS, ANSWER_ENDS };
enum { MARK_BYTES = 3, NAME_BYTES = 256 };

/* The mark at the start of text[size]: U+FDD0 to U+FDD3 in UTF-8. */
static enum mark mark_at(const uint8_t *text, size_t size) {
    if (size < MARK_BYTES || text[0] != 0xEF || text[1] != 0xB7) return NO_MARK;
    if (text[2] < 0x90 || text[2] > 0x93) return NO_MARK;
    return (enum mark)(text[2] - 0x90 + NAME_BEGINS);
}

static size_t find_mark(const uint8_t *text, size_t size, bool is_name) {
    for (size_t i = 0; i < size; i++) {
        const enum mark mark = mark_at(text + i, size - i);
        if (is_name ? mark == NAME_BEGINS || mark == NAME_ENDS : mark != NO_MARK) return i;
    }
    return size;
}

/* Marks the tokens from `first` on that have no byte of an answer in text[size], whose marks are of
 * answers alone. The bytes of the tokens must be those of the text between the marks. */
static void score_tokens(const struct coding *coding, size_t first, const uint8_t *text,
                         size_t size, bool *is_answer) {
    size_t at = 0;
    for (size_t i = first; i < coding->tokens->count; i++) {
        size_t left;
        bool is_scored = false;
        (void)tw_tokenizer_token(coding->coder->tokenizer, coding->tokens->tokens[i], &left);
        while (left > 0) {
            for (enum mark mark = mark_at(text + at, size - at); mark != NO_MARK;
                 mark = mark_at(text + at, size - at)) {
                *is_answer = mark == ANSWER_BEGINS;
                at += MARK_BYTES;
            }
            is_scored = is_scored || *is_answer;
            at++;
            left--;
        }
        if (!is_scored) coding->tokens->tokens[i] |= TW_TOKEN_UNSCORED;
    }
    for (; at < size; at += MARK_BYTES) {
        *is_answer = mark_at(text + at, size - at) == ANSWER_BEGINS;
    }
}

/* Appends text[size] part by part: no token goes over a mark. */
static enum tw_status append_parts(const struct coding *coding, const uint8_t *text, size_t size,
                                   bool *is_answer, struct tw_error *err) {
    for (size_t at = 0; at < size;) {
        const size_t end = at + find_mark(text + at, size - at, false);
        const size_t first = coding->tokens->count;
        TW_TRY(append_text(coding, (struct tw_range){text + at, end - at}, err));
        for (size_t i = first; i < coding->tokens->count && !*is_answer; i++) {
            coding->tokens->tokens[i] |= TW_TOKEN_UNSCORED;
        }
        if (end < size) *is_answer = mark_at(text + end, size - end) == ANSWER_BEGINS;
        at = end + (end < size ? MARK_BYTES : 0);
    }
    return TW_OK;
}

/* Appends the text between two special tokens, encoded as a whole: `room` holds it without marks.
 */
static enum tw_status append_stretch(const struct coding *coding, const uint8_t *text, size_t size,
                                     uint8_t *room, bool *is_answer, struct tw_error *err) {
    const struct tw_block_document before = *coding->document;
    const size_t first = coding->tokens->count;
    size_t used = 0, spelled = 0;
    for (size_t at = 0; at < size;) {
        const size_t part = find_mark(text + at, size - at, false);
        memcpy(room + used, text + at, part);
        used += part;
        at += part + (at + part < size ? MARK_BYTES : 0);
    }
    TW_TRY(append_text(coding, (struct tw_range){room, used}, err));
    for (size_t i = first; i < coding->tokens->count; i++) {
        size_t bytes;
        (void)tw_tokenizer_token(coding->coder->tokenizer, coding->tokens->tokens[i], &bytes);
        spelled += bytes;
    }
    if (spelled == used) {
        score_tokens(coding, first, text, size, is_answer);
        return TW_OK;
    }
    /* The tokenizer changes the text, such as to NFC: where the tokens lie in it is unknown. */
    coding->tokens->count = first;
    *coding->document = before;
    return append_parts(coding, text, size, is_answer, err);
}

/* Appends the special token that text[size] names, from U+FDD0 to U+FDD1. Sets *taken to the bytes
 * of both. */
static enum tw_status append_special(const struct coding *coding, const uint8_t *text, size_t size,
                                     bool is_answer, size_t *taken, struct tw_error *err) {
    char name[NAME_BYTES];
    const size_t bytes = find_mark(text + MARK_BYTES, size - MARK_BYTES, false);
    *taken = 2 * MARK_BYTES + bytes;
    if (*taken > size || bytes >= sizeof(name) ||
        mark_at(text + MARK_BYTES + bytes, MARK_BYTES) != NAME_ENDS) {
        return tw_fail(err, TW_DATA,
                       "a chat whose marks do not pair: python3 -m thinwire.data chat writes them");
    }
    memcpy(name, text + MARK_BYTES, bytes);
    name[bytes] = '\0';
    const uint32_t token = tw_tokenizer_find(coding->coder->tokenizer, name);
    if (token == TW_TOKEN_NONE) {
        return tw_fail(err, TW_DATA,
                       "the tokenizer has no special token %.60s: name the "
                       "tokenizer.json of the model that the chat was made for",
                       name);
    }
    return put_token(coding->tokens, (int64_t)(is_answer ? token : token | TW_TOKEN_UNSCORED), err);
}

/* Removes a separator that the chat itself begins with, and refuses any other. */
static enum tw_status check_separators(const struct coding *coding, size_t first,
                                       struct tw_error *err) {
    struct tw_tokens *const tokens = coding->tokens;
    const int64_t separator = coding->coder->separator;
    if (separator == TW_SHARD_NO_SEPARATOR) return TW_OK;
    size_t i = first + 1;
    if (i < tokens->count && (int64_t)(tokens->tokens[i] & ~TW_TOKEN_UNSCORED) == separator) {
        memmove(tokens->tokens + i, tokens->tokens + i + 1,
                (tokens->count - i - 1) * sizeof(*tokens->tokens));
        tokens->count--;
    }
    for (; i < tokens->count; i++) {
        if ((int64_t)(tokens->tokens[i] & ~TW_TOKEN_UNSCORED) != separator) continue;
        return tw_fail(err, TW_DATA,
                       "the token that begins a document, %lld, is within a chat: name another "
                       "with --eos",
                       (long long)separator);
    }
    return TW_OK;
}

static enum tw_status append_chat(const struct coding *coding, struct tw_range chat,
                                  struct tw_error *err) {
    const size_t first = coding->tokens->count - (coding->coder->separator >= 0 ? 1 : 0);
    const uint8_t *const text = chat.bytes;
    bool is_answer = false;
    uint8_t *const room = malloc(chat.size + 1);
    if (room == NULL) return tw_fail(err, TW_NOMEM, "no memory for a chat");
    enum tw_status status = TW_OK;
    for (size_t at = 0; at < chat.size && status == TW_OK;) {
        size_t taken = find_mark(text + at, chat.size - at, true);
        status = taken > 0
                     ? append_stretch(coding, text + at, taken, room, &is_answer, err)
                     : append_special(coding, text + at, chat.size - at, is_answer, &taken, err);
        at += taken;
    }
    free(room);
    if (status == TW_OK) status = check_separators(coding, first, err);
    for (size_t i = first; i < coding->tokens->count && status == TW_OK; i++) {
        coding->document->answer_tokens += (coding->tokens->tokens[i] & TW_TOKEN_UNSCORED) == 0;
    }
    return status;
}

/* Puts the template's tokens before the text, except the first, which is the separator. */
static enum tw_status put_opening(const struct tw_prepare_coder *coder, struct tw_tokens *tokens,
                                  struct tw_error *err) {
    for (uint32_t i = 1;; i++) {
        const uint32_t token = tw_tokenizer_before(coder->tokenizer, i);
        if (token == TW_TOKEN_NONE) return TW_OK;
        TW_TRY(put_token(tokens, token, err));
    }
}

/* Nothing is said of the separator of chats, as it is no answer. */
static enum tw_status put_separator(const struct tw_prepare_coder *coder, struct tw_tokens *tokens,
                                    struct tw_error *err) {
    const int64_t unscored = coder->is_chat ? (int64_t)TW_TOKEN_UNSCORED : 0;
    if (coder->separator == TW_SHARD_NO_SEPARATOR) return TW_OK;
    return put_token(tokens, coder->separator | unscored, err);
}

static enum tw_status tokenise(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                               struct tw_block *block, struct tw_block_document *document,
                               struct tw_error *err) {
    struct tw_tokens *const tokens = &block->tokens;
    const struct coding coding = {coder, encoder, tokens, document};
    const struct tw_range text = {block->text + document->begin, document->bytes};
    const bool has_opening = block->kind != TW_INPUT_TOKENS && !coder->is_chat;
    document->tokens_begin = tokens->count;
    enum tw_status status = put_separator(coder, tokens, err);
    if (status == TW_OK && has_opening) status = put_opening(coder, tokens, err);
    if (status == TW_OK && block->kind == TW_INPUT_TOKENS) {
        status = copy_tokens(block, document, err);
    } else if (status == TW_OK) {
        status = coder->is_chat ? append_chat(&coding, text, err) : append_text(&coding, text, err);
    }
    if (status == TW_OK) status = put_token(tokens, coder->closer, err);
    if (status != TW_OK) tokens->count = document->tokens_begin;
    document->tokens_count = (uint32_t)(tokens->count - document->tokens_begin);
    return status;
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Decides whether the document is held out, and tokenises it. */
static enum tw_status encode_text(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                                  struct tw_block *block, struct tw_block_document *document,
                                  struct tw_error *err) {
    const bool is_out = is_heldout(coder, block->text + document->begin, document->bytes);
    TW_TRY(tokenise(coder, encoder, block, document, err));
    if (document->tokens_count > 0) {
        document->fate = is_out ? TW_DOCUMENT_HELDOUT : TW_DOCUMENT_TRAIN;
    }
    return TW_OK;
}

/* Replaces a record by its text. A record is an object with a text field or, in arrays and JSON
 * Lines, a string. */
static enum tw_status take_field(const struct tw_prepare_coder *coder, enum tw_input_kind kind,
                                 uint8_t *record, struct tw_block_document *document,
                                 struct tw_error *err) {
    size_t begin = 0, size = document->bytes;
    if (kind != TW_INPUT_OBJECTS && record[0] == '"') {
        TW_TRY(tw_json_string(record, size, &begin, &document->bytes, err));
    } else {
        TW_TRY(tw_json_field(record, size, coder->field, &begin, &document->bytes, err));
    }
    document->begin += begin;
    return TW_OK;
}

/* Whether anything but blanks follows the first JSON value of the content. */
static bool has_more_records(const uint8_t *content, size_t bytes) {
    size_t end = 0;
    return tw_json_look(content, bytes, true, &end) == TW_JSON_VALUE &&
           !is_blank(content + end, bytes - end);
}

/* Decides whether the content of a tar member is a text, a JSON object, or neither. */
static enum tw_status look_at_member(const struct tw_prepare_coder *coder, const uint8_t *content,
                                     struct tw_block_document *document, bool *is_record,
                                     struct tw_error *err) {
    const size_t look = document->bytes < TW_FILE_LOOK_BYTES ? document->bytes : TW_FILE_LOOK_BYTES;
    const struct tw_file_start start = {
        .path = "it", .bytes = content, .size = look, .is_all = look == document->bytes};
    struct tw_error why;
    bool is_binary = false;
    if (tw_file_check(&start, coder->is_plain ? TW_USE_PLAIN : TW_USE_DOCUMENTS, &is_binary,
                      &why) != TW_OK) {
        if (!is_binary) return tw_fail(err, TW_DATA, "%.200s; unpack the archive", why.message);
        document->fate = TW_DOCUMENT_PASSED;
        return TW_OK;
    }
    const enum tw_input_kind found = tw_input_kind_of(&start);
    *is_record = !coder->is_plain && found != TW_INPUT_TEXT;
    if (!*is_record) return TW_OK;
    if ((found == TW_INPUT_OBJECTS || found == TW_INPUT_LINES) &&
        !has_more_records(content, document->bytes)) {
        return TW_OK;
    }
    return tw_fail(err, TW_DATA, "it is %s: unpack the archive", tw_input_kind_name(found));
}

/* Turns line ends of Windows into line ends, as a unit of lines has them. */
static void drop_returns(uint8_t *text, struct tw_block_document *document) {
    uint8_t *const begin = text + document->begin, *const end = begin + document->bytes;
    uint8_t *to = begin;
    for (const uint8_t *from = begin; from < end; from++) {
        const bool is_return = *from == '\r' && from + 1 < end && from[1] == '\n';
        if (!is_return) *to++ = *from;
    }
    document->bytes = (size_t)(to - begin);
}

static enum tw_status encode_content(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                                     struct tw_block *block, struct tw_block_document *document,
                                     struct tw_error *err) {
    uint8_t *const text = block->text;
    bool is_record = block->kind == TW_INPUT_LINES || block->kind == TW_INPUT_ARRAY ||
                     block->kind == TW_INPUT_OBJECTS;
    if (is_blank(text + document->begin, document->bytes)) return TW_OK;
    if (block->kind == TW_INPUT_TAR) {
        TW_TRY(look_at_member(coder, text + document->begin, document, &is_record, err));
        if (document->fate == TW_DOCUMENT_PASSED) return TW_OK;
    }
    if (is_record) {
        TW_TRY(take_field(coder, block->kind, text + document->begin, document, err));
        if (is_blank(text + document->begin, document->bytes)) return TW_OK;
    } else {
        drop_returns(text, document);
    }
    TW_TRY(check_text(document, text + document->begin, err));
    return encode_text(coder, encoder, block, document, err);
}

static enum tw_status encode_document(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                                      struct tw_block *block, struct tw_block_document *document,
                                      struct tw_error *err) {
    uint8_t *const text = block->text;
    if (block->kind == TW_INPUT_TOKENS) {
        strip_separators(coder, text, document);
        return document->bytes == 0 ? TW_OK : encode_text(coder, encoder, block, document, err);
    }
    if (block->kind != TW_INPUT_TAR) {
        document->lines_before = count_lines(text + document->at, document->begin - document->at);
        document->lines = count_lines(text + document->at, document->taken);
        return encode_content(coder, encoder, block, document, err);
    }
    char name[TW_TAR_NAME_BYTES];
    struct tw_error why;
    if (document->bytes == 0) return TW_OK;
    tw_tar_name(text + document->begin - TW_TAR_BLOCK, name);
    const enum tw_status status = encode_content(coder, encoder, block, document, &why);
    return status == TW_OK ? TW_OK : tw_fail(err, status, "%.60s: %s", name, why.message);
}

void tw_prepare_encode(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                       struct tw_block *block) {
    bool is_any_bad = false;
    for (uint32_t i = 0; i < block->documents_count; i++) {
        struct tw_block_document *const document = &block->documents[i];
        struct tw_error err;
        if (document->fate != TW_DOCUMENT_EMPTY) continue;
        const enum tw_status status = encode_document(coder, encoder, block, document, &err);
        if (status == TW_OK) continue;
        if (status != TW_DATA && status != TW_LIMIT) {
            block->failure = err;
            return;
        }
        document->fate = TW_DOCUMENT_BAD;
        /* The reader has already set the error of an overlong document, which is the last of its
         * block. */
        if (!is_any_bad) {
            block->bad = err;
            block->bad_document = i;
        }
        is_any_bad = true;
    }
}

/* ---- filling --------------------------------------------------------------------------------- */

void tw_prepare_fill_stop(struct tw_prepare_fill *fill, const struct tw_error *failure) {
    fill->block->failure = *failure;
    (void)tw_blocks_put(fill->reader->blocks, fill->block);
    fill->block = NULL;
}

void tw_prepare_fill_send(struct tw_prepare_fill *fill, enum tw_block_end end, uint64_t dropped) {
    struct tw_block *const block = fill->block;
    struct tw_block *next = NULL;
    struct tw_error err;
    const size_t rest = block->bytes - fill->cut_bytes;
    block->end = end;
    block->taken = fill->taken;
    enum tw_status status = tw_blocks_create(fill->reader->blocks, &next, &err);
    if (status == TW_OK) status = tw_block_reserve(next, rest, &err);
    if (status != TW_OK) {
        tw_block_destroy(next);
        tw_prepare_fill_stop(fill, &err);
        return;
    }
    next->file = block->file;
    next->kind = block->kind;
    next->at = block->at + fill->cut_bytes + dropped;
    next->bytes = rest;
    memcpy(next->text, block->text + fill->cut_bytes, rest);
    block->bytes = fill->cut_bytes;
    fill->cut_bytes = 0;
    fill->block = next;
    if (tw_blocks_put(fill->reader->blocks, block)) return;
    tw_block_destroy(next);
    fill->block = NULL;
}

void tw_prepare_fill_add(struct tw_prepare_fill *fill, struct tw_text_cut cut,
                         enum tw_document_fate fate) {
    struct tw_block *const block = fill->block;
    TW_ASSERT(block->documents_count < TW_BLOCK_DOCUMENTS_MAX);
    block->documents[block->documents_count++] =
        (struct tw_block_document){.at = fill->cut_bytes,
                                   .taken = cut.taken,
                                   .begin = fill->cut_bytes + cut.begin,
                                   .bytes = cut.bytes,
                                   .fate = fate};
    fill->cut_bytes += cut.taken;
}
