/* prepare_tokens.c - reads token files for `prepare`: shards of llm.c and pairs of Megatron-LM. */
#include <stdlib.h>

#include "base/bytes.h"
#include "worker/data/corpus.h"
#include "worker/data/prepare/prepare_fill.h"

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
