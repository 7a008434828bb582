#include "worker/data/prepare/prepare_read.h"

#include <string.h>

#include "worker/data/prepare/prepare_fill.h"
#include "worker/data/text_stream.h"

enum { LOOKED_AT_BYTES = 64 << 10 }; /* bytes at the start of a file that are checked */

struct read {
    struct tw_prepare_fill fill;
    struct tw_text_stream *stream;
    enum tw_text_unit unit;
    bool is_end; /* end of the stream reached */
};

static void send_block(struct read *read, enum tw_block_end end, uint64_t dropped) {
    read->fill.taken = read->stream != NULL ? tw_text_stream_taken(read->stream) : 0;
    tw_prepare_fill_send(&read->fill, end, dropped);
}

/* Fills the block's buffer. */
static enum tw_status fill_block(struct read *read, struct tw_error *err) {
    struct tw_block *const block = read->fill.block;
    size_t got = 0;
    if (read->is_end) return TW_OK;
    TW_TRY(tw_block_reserve(block, block->bytes + 1, err));
    const size_t room = block->capacity - block->bytes;
    const enum tw_status status =
        tw_text_stream_read(read->stream, block->text + block->bytes, room, &got, err);
    block->bytes += got;
    read->is_end = status == TW_OK && got < room;
    return status;
}

/* ---- documents that are too long ------------------------------------------------------------- */

/* Drops text up to the next line end, or all text of the block. Adds the number of bytes to
 * *dropped. */
static enum tw_status drop_text(struct read *read, bool is_to_line_end, uint64_t *dropped,
                                struct tw_error *err) {
    struct tw_block *const block = read->fill.block;
    for (;;) {
        const size_t size = block->bytes - read->fill.cut_bytes;
        const uint8_t *const from = block->text + read->fill.cut_bytes;
        const uint8_t *const newline = is_to_line_end ? memchr(from, '\n', size) : NULL;
        const size_t gone = newline != NULL ? (size_t)(newline - from) + 1 : size;
        *dropped += gone;
        memmove(block->text + read->fill.cut_bytes, from + gone, size - gone);
        block->bytes -= gone;
        if (newline != NULL || read->is_end) return TW_OK;
        TW_TRY(fill_block(read, err));
    }
}

/* Sends an overlong document as the last of its block. False: stop reading. */
static bool take_long(struct read *read, struct tw_text_cut cut) {
    struct tw_block *const block = read->fill.block;
    struct tw_error err;
    const bool is_whole = read->unit == TW_TEXT_WHOLE;
    const int most =
        read->unit == TW_TEXT_RECORDS ? TW_RECORD_TEXT_BYTES_MAX : TW_DOCUMENT_BYTES_MAX;
    (void)tw_fail(&block->bad, TW_DATA, "more than %d MiB in one %s%s", most >> 20,
                  is_whole ? "document" : "line", is_whole ? "; cut it with --text passages" : "");
    block->bad_document = block->documents_count;
    /* The line ends before the overlong document stay in the text, to be counted. */
    tw_prepare_fill_add(&read->fill, (struct tw_text_cut){.taken = cut.begin, .begin = cut.begin},
                        TW_DOCUMENT_BAD);
    struct tw_block_document *const document = &block->documents[block->documents_count - 1];
    for (size_t i = document->at; i < document->begin; i++) {
        document->lines_before += block->text[i] == '\n';
    }
    document->lines = document->lines_before + 1;
    if (!read->fill.reader->skip_bad) {
        block->bytes = read->fill.cut_bytes;
        send_block(read, TW_BLOCK_GOES_ON, 0);
        return false;
    }
    uint64_t dropped = 0;
    const enum tw_status status = drop_text(read, !is_whole, &dropped, &err);
    document->taken += dropped;
    if (status == TW_OK) {
        send_block(read, TW_BLOCK_GOES_ON, dropped);
    } else if (err.status == TW_NOMEM) {
        tw_prepare_fill_stop(&read->fill, &err);
    } else {
        block->file_bad = err;
        block->bytes = read->fill.cut_bytes;
        send_block(read, TW_BLOCK_FILE_BAD, dropped);
        return false;
    }
    return read->fill.block != NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Cuts all complete documents in the block. False: stop reading this file. */
static bool cut_block(struct read *read) {
    while (read->fill.cut_bytes < read->fill.block->bytes) {
        struct tw_text_cut cut;
        const enum tw_cut result =
            tw_text_cut(read->unit, read->fill.block->text + read->fill.cut_bytes,
                        read->fill.block->bytes - read->fill.cut_bytes, read->is_end, &cut);
        if (result == TW_CUT_MORE) return true;
        if (result == TW_CUT_TOO_LONG) {
            if (!take_long(read, cut)) return false;
            continue;
        }
        tw_prepare_fill_add(&read->fill, cut, TW_DOCUMENT_EMPTY);
        if (read->fill.block->documents_count == TW_BLOCK_DOCUMENTS_MAX) {
            send_block(read, TW_BLOCK_GOES_ON, 0);
            if (read->fill.block == NULL) return false;
        }
    }
    return true;
}

/* Checks the file's first bytes for encoding marks, compression and NUL. */
static enum tw_status check_start(struct read *read, enum tw_block_end *end, struct tw_error *err) {
    const struct tw_block *const block = read->fill.block;
    const uint8_t *const text = block->text;
    const char *const path = read->fill.file->path;
    const size_t size = block->bytes < LOOKED_AT_BYTES ? block->bytes : LOOKED_AT_BYTES;
    if (size == 0) {
        *end = TW_BLOCK_FILE_EMPTY;
        return tw_fail(err, TW_DATA, "%s is empty", path);
    }
    *end = TW_BLOCK_FILE_BINARY;
    if (size >= 2 &&
        ((text[0] == 0xFF && text[1] == 0xFE) || (text[0] == 0xFE && text[1] == 0xFF))) {
        return tw_fail(err, TW_DATA, "%s is UTF-16; make it UTF-8: `iconv -f UTF-16 -t UTF-8`",
                       path);
    }
    if (tw_packing_of_bytes(text, size) != TW_PACKING_NONE) {
        return tw_fail(err, TW_DATA, "%s is compressed twice: unpack it once", path);
    }
    const uint8_t *const nul = memchr(text, 0, size);
    if (nul == NULL) return TW_OK;
    return tw_fail(err, TW_DATA, "%s is not text: byte %zu of it is NUL", path,
                   (size_t)(nul - text) + 1);
}

/* Opens the file and goes to offset `at` of its text. */
static enum tw_status begin_file(struct read *read, uint64_t at, enum tw_block_end *end,
                                 struct tw_error *err) {
    static const uint8_t MARK[] = {0xEF, 0xBB, 0xBF};
    struct tw_block *const block = read->fill.block;
    *end = TW_BLOCK_FILE_BAD;
    if (read->fill.file->bytes == 0) {
        *end = TW_BLOCK_FILE_EMPTY;
        return tw_fail(err, TW_DATA, "%s is empty", read->fill.file->path);
    }
    TW_TRY(tw_text_stream_open(&read->stream, read->fill.file->path, err));
    block->at = at;
    if (at > 0) TW_TRY(tw_text_stream_skip(read->stream, at, err));
    TW_TRY(fill_block(read, err));
    if (at > 0) return TW_OK;
    TW_TRY(check_start(read, end, err));
    if (block->bytes >= sizeof(MARK) && memcmp(block->text, MARK, sizeof(MARK)) == 0) {
        block->bytes -= sizeof(MARK);
        block->at = sizeof(MARK);
        memmove(block->text, block->text + sizeof(MARK), block->bytes);
    }
    return TW_OK;
}

/* Reads all documents of the file. False: stop reading. */
static bool read_file(struct read *read, uint64_t at) {
    struct tw_error err;
    enum tw_block_end end;
    read->stream = NULL;
    read->is_end = false;
    enum tw_status status = begin_file(read, at, &end, &err);
    while (status == TW_OK) {
        if (!cut_block(read)) return read->fill.block != NULL && read->fill.reader->skip_bad;
        if (read->is_end) break;
        if (read->fill.block->documents_count > 0) {
            send_block(read, TW_BLOCK_GOES_ON, 0);
            if (read->fill.block == NULL) return false;
        }
        end = TW_BLOCK_FILE_BAD;
        status = fill_block(read, &err);
    }
    /* If the file changed while it was read, the text may be a mixture of versions, and resuming
     * would be impossible. */
    const struct tw_prepare_file *const file = read->fill.file;
    const bool is_changed =
        read->stream != NULL &&
        !tw_text_stream_is_as_listed(read->stream, file->bytes, file->changed_ns);
    if (is_changed) {
        (void)tw_fail(&err, TW_DATA,
                      "%.120s was changed while it was read; when it is complete, start over with "
                      "--restart",
                      file->path);
    }
    if (status == TW_NOMEM || is_changed) {
        tw_prepare_fill_stop(&read->fill, &err);
        return false;
    }
    if (status == TW_OK) {
        send_block(read, TW_BLOCK_FILE_END, 0);
        return read->fill.block != NULL;
    }
    /* Documents before the bad place are used, but not a document that the bad place cuts. */
    if (end != TW_BLOCK_FILE_EMPTY && end != TW_BLOCK_FILE_BINARY) {
        (void)cut_block(read);
        if (read->fill.block == NULL) return false;
    }
    const bool is_passed = end != TW_BLOCK_FILE_BAD && !read->fill.file->is_named;
    read->fill.block->bytes = read->fill.cut_bytes;
    read->fill.block->file_bad = err;
    send_block(read, is_passed ? end : TW_BLOCK_FILE_BAD, 0);
    return read->fill.block != NULL && (is_passed || read->fill.reader->skip_bad);
}

void tw_prepare_read(const struct tw_prepare_reader *reader) {
    struct read read = {.fill = {.reader = reader, .block = reader->first}};
    struct tw_prepare_fill *const fill = &read.fill;
    bool goes_on = true;
    for (uint64_t i = reader->from.file; goes_on && i < reader->inputs->count; i++) {
        const uint64_t at = i == reader->from.file ? reader->from.at : 0;
        fill->file = &reader->inputs->files[i];
        fill->cut_bytes = 0;
        fill->taken = 0;
        fill->block->file = i;
        fill->block->is_records = fill->file->is_records;
        fill->block->is_tokens = fill->file->is_tokens;
        read.unit = fill->file->is_records ? TW_TEXT_RECORDS : reader->unit;
        goes_on = fill->file->is_tokens ? tw_prepare_read_tokens(fill, at) : read_file(&read, at);
        tw_text_stream_close(read.stream);
        read.stream = NULL;
    }
    if (fill->block != NULL && goes_on) {
        fill->block->end = TW_BLOCK_INPUTS_END;
        (void)tw_blocks_put(reader->blocks, fill->block);
    } else {
        tw_block_destroy(fill->block);
    }
}
