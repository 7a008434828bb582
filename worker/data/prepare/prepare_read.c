#include "worker/data/prepare/prepare_read.h"

#include <string.h>

#include "base/file_kind.h"
#include "worker/data/input_kind.h"
#include "worker/data/json_cut.h"
#include "worker/data/prepare/prepare_fill.h"
#include "worker/data/tar_cut.h"
#include "worker/data/text_stream.h"

struct read {
    struct tw_prepare_fill fill;
    struct tw_text_stream *stream;
    enum tw_text_unit unit;
    enum tw_tar_members members;
    /* offset of the first byte after the byte order mark; UINT64_MAX: not yet read */
    uint64_t first_at;
    bool is_end; /* end of the stream reached */
};

static void send_block(struct read *read, enum tw_block_end end, uint64_t dropped) {
    read->fill.taken = read->stream != NULL ? tw_text_stream_taken(read->stream) : 0;
    tw_prepare_fill_send(&read->fill, end, dropped);
}

/* Reads from the stream until the block's buffer is full or the stream ends. */
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

/* Drops the text after the last cut document: up to the next line end, or its next `bytes` bytes.
 * Adds the number of bytes dropped to *dropped. */
static enum tw_status drop_text(struct read *read, bool is_to_line_end, uint64_t bytes,
                                uint64_t *dropped, struct tw_error *err) {
    struct tw_block *const block = read->fill.block;
    for (;;) {
        const size_t there = block->bytes - read->fill.cut_bytes;
        const size_t size = there < bytes ? there : (size_t)bytes;
        const uint8_t *const from = block->text + read->fill.cut_bytes;
        const uint8_t *const newline = is_to_line_end ? memchr(from, '\n', size) : NULL;
        const size_t gone = newline != NULL ? (size_t)(newline - from) + 1 : size;
        *dropped += gone;
        bytes -= gone;
        memmove(block->text + read->fill.cut_bytes, from + gone, there - gone);
        block->bytes -= gone;
        if (newline != NULL || read->is_end || bytes == 0) return TW_OK;
        TW_TRY(fill_block(read, err));
    }
}

static void explain_long(const struct read *read, struct tw_text_cut cut, struct tw_error *err) {
    const struct tw_block *const block = read->fill.block;
    if (block->kind == TW_INPUT_TAR) {
        char name[TW_TAR_NAME_BYTES];
        tw_tar_name(block->text + read->fill.cut_bytes + cut.begin - TW_TAR_BLOCK, name);
        (void)tw_fail(err, TW_DATA, "%.60s: more than %d MiB; unpack the archive", name,
                      TW_RECORD_TEXT_BYTES_MAX >> 20);
        return;
    }
    const bool is_whole = read->unit == TW_TEXT_WHOLE;
    const int most =
        read->unit == TW_TEXT_RECORDS ? TW_RECORD_TEXT_BYTES_MAX : TW_DOCUMENT_BYTES_MAX;
    (void)tw_fail(err, TW_DATA, "more than %d MiB in one %s%s", most >> 20,
                  is_whole ? "document" : "line", is_whole ? "; cut it with --text passages" : "");
}

/* Decides whether a tokenizer reads the document. In a tar archive, only some members hold text. */
static enum tw_document_fate fate_of(const struct read *read, struct tw_text_cut cut) {
    char name[TW_TAR_NAME_BYTES];
    const struct tw_block *const block = read->fill.block;
    if (block->kind != TW_INPUT_TAR || cut.begin == cut.taken) return TW_DOCUMENT_EMPTY;
    tw_tar_name(block->text + read->fill.cut_bytes + cut.begin - TW_TAR_BLOCK, name);
    return tw_tar_is_member(read->members, name) ? TW_DOCUMENT_EMPTY : TW_DOCUMENT_PASSED;
}

/* Sends an overlong document as the last of its block. Returns false if the reading must stop. */
static bool take_long(struct read *read, struct tw_text_cut cut) {
    struct tw_block *const block = read->fill.block;
    struct tw_error err;
    const bool is_tar = block->kind == TW_INPUT_TAR;
    const bool is_passed = fate_of(read, cut) == TW_DOCUMENT_PASSED;
    if (!is_passed) {
        explain_long(read, cut, &block->bad);
        block->bad_document = block->documents_count;
    }
    /* The line ends before the overlong document stay in the text, so that they are counted. */
    tw_prepare_fill_add(&read->fill, (struct tw_text_cut){.taken = cut.begin, .begin = cut.begin},
                        is_passed ? TW_DOCUMENT_PASSED : TW_DOCUMENT_BAD);
    struct tw_block_document *const document = &block->documents[block->documents_count - 1];
    for (size_t i = document->at; i < document->begin && !is_tar; i++) {
        document->lines_before += block->text[i] == '\n';
    }
    document->lines = document->lines_before + 1;
    if (!read->fill.reader->skip_bad && !is_passed) {
        block->bytes = read->fill.cut_bytes;
        send_block(read, TW_BLOCK_GOES_ON, 0);
        return false;
    }
    uint64_t dropped = 0;
    enum tw_status status = drop_text(read, !is_tar && read->unit != TW_TEXT_WHOLE,
                                      is_tar ? cut.taken - cut.begin : UINT64_MAX, &dropped, &err);
    document->taken += dropped;
    if (status == TW_OK && is_tar && read->is_end && block->bytes == read->fill.cut_bytes) {
        status = tw_fail(&err, TW_DATA, "%s ends within a member: it is cut short",
                         tw_prepare_shown_path(read->fill.file->path));
    }
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

/* ---- cutting --------------------------------------------------------------------------------- */

static enum tw_cut cut_next(const struct read *read, struct tw_text_cut *cut,
                            struct tw_error *err) {
    const struct tw_block *const block = read->fill.block;
    const uint8_t *const text = block->text + read->fill.cut_bytes;
    const size_t size = block->bytes - read->fill.cut_bytes;
    const bool is_first = block->at + read->fill.cut_bytes == read->first_at;
    switch (block->kind) {
    case TW_INPUT_ARRAY: return tw_json_cut_array(text, size, is_first, read->is_end, cut, err);
    case TW_INPUT_OBJECTS: return tw_json_cut_objects(text, size, read->is_end, cut, err);
    case TW_INPUT_TAR: return tw_tar_cut(text, size, read->is_end, cut, err);
    case TW_INPUT_TEXT:
    case TW_INPUT_LINES:
    case TW_INPUT_TOKENS:
    case TW_INPUT_KINDS: break;
    }
    return tw_text_cut(read->unit, text, size, read->is_end, cut);
}

/* Cuts all complete documents in the block. Fails with TW_AGAIN if the reading of this file must
 * stop, and with TW_DATA if no document can be found from here on. */
static enum tw_status cut_block(struct read *read, struct tw_error *err) {
    while (read->fill.cut_bytes < read->fill.block->bytes) {
        struct tw_text_cut cut;
        struct tw_error why;
        const enum tw_cut result = cut_next(read, &cut, &why);
        if (result == TW_CUT_MORE) return TW_OK;
        if (result == TW_CUT_BROKEN) {
            return tw_fail(err, TW_DATA, "%s: after byte %llu: %s",
                           tw_prepare_shown_path(read->fill.file->path),
                           (unsigned long long)(read->fill.block->at + read->fill.cut_bytes),
                           why.message);
        }
        if (result == TW_CUT_TOO_LONG) {
            if (!take_long(read, cut)) return TW_AGAIN;
            continue;
        }
        tw_prepare_fill_add(&read->fill, cut, fate_of(read, cut));
        if (read->fill.block->documents_count == TW_BLOCK_DOCUMENTS_MAX) {
            send_block(read, TW_BLOCK_GOES_ON, 0);
            if (read->fill.block == NULL) return TW_AGAIN;
        }
    }
    return TW_OK;
}

/* ---- the beginning of a file ----------------------------------------------------------------- */

/* The argument that read_csv() of pandas needs for this table, derived from the separator that is
 * most frequent in its first line. */
static const char *separator_of(const uint8_t *text, size_t size) {
    size_t commas = 0, semicolons = 0, tabs = 0;
    for (size_t i = 0; i < size && text[i] != '\n'; i++) {
        commas += text[i] == ',';
        semicolons += text[i] == ';';
        tabs += text[i] == '\t';
    }
    if (tabs > commas && tabs > semicolons) return ", sep='\\t'";
    return semicolons > commas ? ", sep=';'" : "";
}

/* Refuses files that are not UTF-8 text. */
static enum tw_status check_start(const struct read *read, const uint8_t *text, size_t size,
                                  enum tw_block_end *end, struct tw_error *err) {
    const struct tw_prepare_file *const file = read->fill.file;
    const char *const path = tw_prepare_shown_path(file->path);
    const bool is_plain = read->fill.reader->is_plain;
    const struct tw_file_kind *const kind = tw_file_kind_of(text, size);
    *end = TW_BLOCK_FILE_BAD;
    if (kind != NULL && !(is_plain && kind->holds == TW_HOLDS_MARKUP)) {
        if (kind->holds == TW_HOLDS_NOTHING) *end = TW_BLOCK_FILE_BINARY;
        return tw_fail(err, TW_DATA, "%s is %s, which is not read: %s", path, kind->name,
                       kind->remedy);
    }
    if (tw_packing_of_bytes(text, size) != TW_PACKING_NONE) {
        return tw_fail(err, TW_DATA, "%s is compressed twice: unpack it once", path);
    }
    if (file->has_table_name && !is_plain) {
        return tw_fail(err, TW_DATA,
                       "%s is a table (CSV), which is not read: python3 -c \"import pandas as p; "
                       "p.read_csv('IN'%s)"
                       ".to_json('OUT.jsonl', orient='records', lines=True)\"",
                       path, separator_of(text, size));
    }
    const uint8_t *const nul = memchr(text, 0, size);
    if (nul != NULL) {
        *end = TW_BLOCK_FILE_BINARY;
        return tw_fail(err, TW_DATA, "%s is not text: byte %zu of it is NUL", path,
                       (size_t)(nul - text) + 1);
    }
    if (tw_input_is_other_encoding(text, size)) {
        return tw_fail(
            err, TW_DATA,
            "%s is not UTF-8: make it so, `iconv -f WINDOWS-1252 -t UTF-8 IN >OUT` if it "
            "is Latin-1",
            path);
    }
    return TW_OK;
}

/* Decides from the first bytes how the text is read. */
static enum tw_status look_at_start(struct read *read, enum tw_block_end *end,
                                    struct tw_error *err) {
    struct tw_block *const block = read->fill.block;
    const uint8_t *const text = block->text;
    const struct tw_prepare_file *const file = read->fill.file;
    const size_t size = block->bytes < TW_INPUT_LOOK_BYTES ? block->bytes : TW_INPUT_LOOK_BYTES;
    const bool is_all = read->is_end && size == block->bytes;
    if (size == 0) {
        *end = TW_BLOCK_FILE_EMPTY;
        return tw_fail(err, TW_DATA, "%s is empty", tw_prepare_shown_path(file->path));
    }
    block->kind = tw_input_kind_of(text, size, is_all, file->has_json_name);
    if (block->kind == TW_INPUT_TAR) {
        read->members =
            tw_tar_members_of(text, block->bytes < TW_BLOCK_BYTES ? block->bytes : TW_BLOCK_BYTES);
        return TW_OK;
    }
    TW_TRY(check_start(read, text, size, end, err));
    const bool has_lines = block->kind == TW_INPUT_TEXT && read->fill.reader->unit != TW_TEXT_WHOLE;
    if (has_lines && !read->fill.reader->is_plain && memchr(text, '\n', size) == NULL &&
        memchr(text, '\r', size) != NULL) {
        return tw_fail(err, TW_DATA, "%s ends its lines with CR alone: tr '\\r' '\\n' <IN >OUT",
                       tw_prepare_shown_path(file->path));
    }
    if (read->fill.reader->is_plain) block->kind = TW_INPUT_TEXT;
    read->unit = block->kind == TW_INPUT_LINES ? TW_TEXT_RECORDS : read->fill.reader->unit;
    return TW_OK;
}

/* Opens the file and seeks to offset `at` of its text. */
static enum tw_status begin_file(struct read *read, uint64_t at, enum tw_block_end *end,
                                 struct tw_error *err) {
    static const uint8_t MARK[] = {0xEF, 0xBB, 0xBF};
    struct tw_block *const block = read->fill.block;
    *end = TW_BLOCK_FILE_BAD;
    if (read->fill.file->bytes == 0) {
        *end = TW_BLOCK_FILE_EMPTY;
        return tw_fail(err, TW_DATA, "%s is empty", tw_prepare_shown_path(read->fill.file->path));
    }
    TW_TRY(tw_text_stream_open(&read->stream, read->fill.file->path, err));
    block->at = 0;
    TW_TRY(fill_block(read, err));
    TW_TRY(look_at_start(read, end, err));
    *end = TW_BLOCK_FILE_BAD;
    const bool has_mark =
        block->bytes >= sizeof(MARK) && memcmp(block->text, MARK, sizeof(MARK)) == 0;
    read->first_at = has_mark ? sizeof(MARK) : 0;
    if (at > 0) {
        tw_text_stream_close(read->stream);
        read->stream = NULL;
        read->is_end = false;
        block->bytes = 0;
        block->at = at;
        TW_TRY(tw_text_stream_open(&read->stream, read->fill.file->path, err));
        TW_TRY(tw_text_stream_skip(read->stream, at, err));
        return fill_block(read, err);
    }
    if (has_mark) {
        block->bytes -= sizeof(MARK);
        block->at = sizeof(MARK);
        memmove(block->text, block->text + sizeof(MARK), block->bytes);
    }
    return TW_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Sends the last usable documents of a file that cannot be read to its end. Returns false if the
 * reading must stop. */
static bool end_bad_file(struct read *read, enum tw_block_end end, const struct tw_error *why) {
    struct tw_error ignored;
    /* Complete documents before the damage are used. A document that the damage splits is not. */
    if (end == TW_BLOCK_FILE_BAD && read->first_at != UINT64_MAX) {
        (void)cut_block(read, &ignored);
        if (read->fill.block == NULL) return false;
    }
    const bool is_passed = end != TW_BLOCK_FILE_BAD && !read->fill.file->is_named;
    read->fill.block->bytes = read->fill.cut_bytes;
    read->fill.block->file_bad = *why;
    send_block(read, is_passed ? end : TW_BLOCK_FILE_BAD, 0);
    return read->fill.block != NULL && (is_passed || read->fill.reader->skip_bad);
}

/* Reads all documents of the file. Returns false if the reading must stop. */
static bool read_file(struct read *read, uint64_t at) {
    struct tw_error err;
    enum tw_block_end end;
    read->stream = NULL;
    read->is_end = false;
    read->first_at = UINT64_MAX;
    enum tw_status status = begin_file(read, at, &end, &err);
    while (status == TW_OK) {
        status = cut_block(read, &err);
        if (status == TW_AGAIN) return read->fill.block != NULL && read->fill.reader->skip_bad;
        if (status != TW_OK || read->is_end) break;
        if (read->fill.block->documents_count > 0) {
            send_block(read, TW_BLOCK_GOES_ON, 0);
            if (read->fill.block == NULL) return false;
        }
        status = fill_block(read, &err);
    }
    /* If the file changed while it was read, the text may mix two versions, and resuming would be
     * impossible. */
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
    if (status != TW_OK) return end_bad_file(read, end, &err);
    send_block(read, TW_BLOCK_FILE_END, 0);
    return read->fill.block != NULL;
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
        fill->block->kind = fill->file->is_tokens ? TW_INPUT_TOKENS : TW_INPUT_TEXT;
        read.unit = reader->unit;
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
