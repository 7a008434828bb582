#include "worker/data/prepare/prepare_inputs.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/input_kind.h"
#include "worker/data/corpus.h"
#include "worker/data/prepare/prepare_block.h"
#include "worker/data/text_cut.h"
#include "worker/data/text_stream.h"

/* ---- list of inputs -------------------------------------------------------------------------- */

static bool has_end(const char *path, const char *end) {
    const size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, end) == 0;
}

/* Whether the file's header marks it as a token file. An .idx file counts only if the user named
 * it. */
static bool is_tokens_file(const char *path, bool is_named) {
    uint8_t head[12];
    const bool is_index = is_named && has_end(path, ".idx");
    if (!is_index && !has_end(path, ".bin")) return false;
    if (tw_megatron_is_pair(path)) return true;
    FILE *const file = fopen(path, "rbe");
    if (file == NULL) return false;
    const bool is_llmc =
        fread(head, 1, sizeof(head), file) == sizeof(head) && tw_corpus_is_llmc(head);
    (void)fclose(file);
    return is_llmc;
}

/* Whether this is the .idx of a Megatron-LM pair. In a folder, the pair is read through its
 * .bin. */
static bool is_index_of_pair(const char *path) {
    char tokens[PATH_MAX];
    const size_t length = strlen(path);
    if (!has_end(path, ".idx") || length >= sizeof(tokens)) return false;
    memcpy(tokens, path, length - 4);
    memcpy(tokens + length - 4, ".bin", 5);
    return tw_megatron_is_pair(tokens);
}

/* Whether this file completes a pair whose other file was named just before. The pair is then read
 * once. */
static bool is_second_of_pair(const struct tw_prepare_inputs *inputs, const char *path,
                              uint32_t source) {
    const size_t length = strlen(path);
    if (inputs->count == 0) return false;
    const struct tw_prepare_file *const before = &inputs->files[inputs->count - 1];
    return before->is_tokens && before->source == source && strlen(before->path) == length &&
           memcmp(before->path, path, length - 4) == 0 &&
           has_end(path, ".idx") != has_end(before->path, ".idx");
}

static int64_t changed_ns(const struct stat *info) {
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

/* Records device, inode and change time. A Megatron-LM pair has the identity of its .bin and the
 * later change time of its two files. */
static void record_identity(struct tw_prepare_file *file, const struct stat *info) {
    static const char *const ENDS[] = {".bin", ".idx"};
    char part[PATH_MAX];
    const size_t length = strlen(file->path);
    struct stat of[2] = {*info, *info};
    if (file->is_tokens && length < sizeof(part) && tw_megatron_is_pair(file->path)) {
        memcpy(part, file->path, length + 1);
        for (int i = 0; i < 2; i++) {
            memcpy(part + length - 4, ENDS[i], 4);
            if (stat(part, &of[i]) != 0) of[i] = *info;
        }
    }
    const int64_t first = changed_ns(&of[0]), second = changed_ns(&of[1]);
    file->device = of[0].st_dev;
    file->inode = of[0].st_ino;
    file->changed_ns = first > second ? first : second;
}

static enum tw_status add_file(struct tw_prepare_inputs *inputs, const char *path,
                               const struct stat *info, uint32_t source, bool is_named,
                               struct tw_error *err) {
    if (inputs->count == TW_PREPARE_FILES_MAX) {
        return tw_fail(err, TW_LIMIT, "more than %d files; put several into one (JSONL is good)",
                       TW_PREPARE_FILES_MAX);
    }
    if (inputs->count == inputs->capacity) {
        const size_t capacity = inputs->capacity == 0 ? 64 : 2 * inputs->capacity;
        void *const more = realloc(inputs->files, capacity * sizeof(*inputs->files));
        if (more == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu files", capacity);
        inputs->files = more;
        inputs->capacity = capacity;
    }
    const bool is_tokens = is_tokens_file(path, is_named);
    if (is_named ? is_tokens && is_second_of_pair(inputs, path, source) : is_index_of_pair(path)) {
        return TW_OK;
    }
    struct tw_prepare_file *const file = &inputs->files[inputs->count];
    *file = (struct tw_prepare_file){.path = strdup(path),
                                     .bytes = (uint64_t)info->st_size,
                                     .source = source,
                                     .is_named = is_named,
                                     .is_tokens = is_tokens};
    if (file->path == NULL) return tw_fail(err, TW_NOMEM, "no memory for %s", path);
    record_identity(file, info);
    inputs->count++;
    inputs->bytes += file->bytes;
    return TW_OK;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

struct walk {
    struct tw_prepare_inputs *inputs;
    FTS *fts;
    uint32_t source;
    bool has_out;
    struct stat out; /* skipped */
};

static bool is_out(const struct walk *walk, const FTSENT *entry) {
    return walk->has_out && entry->fts_statp->st_dev == walk->out.st_dev &&
           entry->fts_statp->st_ino == walk->out.st_ino;
}

static enum tw_status take_entry(struct walk *walk, FTSENT *entry, struct tw_error *err) {
    const bool is_named = entry->fts_level == 0;
    struct stat info;
    switch (entry->fts_info) {
    case FTS_DP:
    case FTS_DOT: return TW_OK;
    case FTS_D:
        if (is_named && is_out(walk, entry)) {
            return tw_fail(err, TW_CONFIG,
                           "%s is an input and --out: name another folder, or one in it, with "
                           "--out",
                           entry->fts_path);
        }
        if ((is_named || entry->fts_name[0] != '.') && !is_out(walk, entry)) return TW_OK;
        walk->inputs->hidden++;
        (void)fts_set(walk->fts, entry, FTS_SKIP);
        return TW_OK;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
    case FTS_DC: return tw_fail(err, TW_IO, "%s: %s", entry->fts_path, strerror(entry->fts_errno));
    default: break;
    }
    /* Links to files are followed. Links to folders are not: they could lead anywhere. */
    const bool is_file = stat(entry->fts_accpath, &info) == 0 && S_ISREG(info.st_mode);
    if (is_named && !is_file) {
        return tw_fail(err, TW_DATA, "%s is not a plain file or a folder", entry->fts_path);
    }
    if (!is_file || (!is_named && entry->fts_name[0] == '.')) {
        walk->inputs->hidden++;
        return TW_OK;
    }
    return add_file(walk->inputs, entry->fts_path, &info, walk->source, is_named, err);
}

static enum tw_status take_input(struct walk *walk, const char *path, struct tw_error *err) {
    struct stat info;
    if (stat(path, &info) != 0) {
        return tw_fail(err, TW_DATA,
                       "%s: %s; name a text, a file of JSON Lines or a folder of them", path,
                       strerror(errno));
    }
    char *const clean = strdup(path);
    if (clean == NULL) return tw_fail(err, TW_NOMEM, "no memory for %s", path);
    for (size_t end = strlen(clean); end > 1 && clean[end - 1] == '/'; end--) clean[end - 1] = 0;
    char *const paths[] = {clean, NULL};
    walk->fts = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    enum tw_status status = TW_OK;
    if (walk->fts == NULL) status = tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    while (status == TW_OK) {
        errno = 0;
        FTSENT *const entry = fts_read(walk->fts);
        if (entry == NULL) {
            if (errno != 0) status = tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
            break;
        }
        status = take_entry(walk, entry, err);
    }
    if (walk->fts != NULL) (void)fts_close(walk->fts);
    free(clean);
    return status;
}

static int by_file(const void *a, const void *b) {
    const struct tw_prepare_file *const x = *(const struct tw_prepare_file *const *)a;
    const struct tw_prepare_file *const y = *(const struct tw_prepare_file *const *)b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Refuses a file that was given twice, because it would be trained on twice. */
static enum tw_status check_once(const struct tw_prepare_inputs *inputs, struct tw_error *err) {
    const struct tw_prepare_file **const files = malloc((inputs->count + 1) * sizeof(*files));
    if (files == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu files", inputs->count);
    for (size_t i = 0; i < inputs->count; i++) files[i] = &inputs->files[i];
    qsort(files, inputs->count, sizeof(*files), by_file);
    enum tw_status status = TW_OK;
    for (size_t i = 1; i < inputs->count && status == TW_OK; i++) {
        const struct tw_prepare_file *const one = files[i - 1], *const two = files[i];
        if (one->device != two->device || one->inode != two->inode) continue;
        status = tw_fail(err, TW_CONFIG,
                         "%.100s and %.100s are one file: name it once; a --source with a larger "
                         "weight is drawn more often",
                         one->path, two->path);
    }
    free(files);
    return status;
}

enum tw_status tw_prepare_inputs_find(struct tw_prepare_inputs *inputs,
                                      const struct tw_prepare_options *options,
                                      struct tw_error *err) {
    struct walk walk = {.inputs = inputs};
    memset(inputs, 0, sizeof(*inputs));
    walk.has_out = stat(options->out, &walk.out) == 0;
    for (uint32_t s = 0; s < options->sources_count; s++) {
        const struct tw_prepare_source *const source = &options->sources[s];
        const size_t before = inputs->count;
        walk.source = s;
        for (uint32_t i = 0; i < source->inputs_count; i++) {
            TW_TRY(take_input(&walk, source->inputs[i], err));
        }
        if (inputs->count == before) {
            return tw_fail(err, TW_DATA,
                           "the source %s has no files: name texts, or a folder of them",
                           source->name);
        }
    }
    return check_once(inputs, err);
}

void tw_prepare_inputs_deinit(struct tw_prepare_inputs *inputs) {
    for (size_t i = 0; i < inputs->count; i++) free(inputs->files[i].path);
    free(inputs->files);
    memset(inputs, 0, sizeof(*inputs));
}

const char *tw_prepare_shown_path(const char *path) {
    enum { SHOWN_BYTES = 100 };
    const size_t length = strlen(path);
    return length > SHOWN_BYTES ? path + length - SHOWN_BYTES : path;
}

enum tw_status tw_prepare_inputs_text(const struct tw_prepare_inputs *inputs, char **text,
                                      size_t *size, struct tw_error *err) {
    *text = NULL;
    FILE *const to = open_memstream(text, size);
    if (to == NULL) return tw_fail(err, TW_NOMEM, "no memory for the list of inputs");
    for (size_t i = 0; i < inputs->count; i++) {
        const struct tw_prepare_file *const file = &inputs->files[i];
        (void)fprintf(to, "%" PRIu32 " %" PRIu64 " %" PRId64 " %s\n", file->source, file->bytes,
                      file->changed_ns, file->path);
    }
    const bool is_written = ferror(to) == 0;
    if (fclose(to) == 0 && is_written) return TW_OK;
    free(*text);
    *text = NULL;
    return tw_fail(err, TW_NOMEM, "no memory for the list of inputs");
}

/* ---- documents of an input ------------------------------------------------------------------- */

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

/* Decides from the first bytes how the text is read. */
static enum tw_status look_at_start(struct read *read, enum tw_block_end *end,
                                    struct tw_error *err) {
    struct tw_block *const block = read->fill.block;
    const uint8_t *const text = block->text;
    const struct tw_prepare_file *const file = read->fill.file;
    const size_t size = block->bytes < TW_FILE_LOOK_BYTES ? block->bytes : TW_FILE_LOOK_BYTES;
    const struct tw_file_start start = {.path = tw_prepare_shown_path(file->path),
                                        .bytes = text,
                                        .size = size,
                                        .is_all = read->is_end && size == block->bytes};
    const bool is_plain = read->fill.reader->is_plain;
    bool is_binary = false;
    if (size == 0) {
        *end = TW_BLOCK_FILE_EMPTY;
        return tw_fail(err, TW_DATA, "%s is empty", tw_prepare_shown_path(file->path));
    }
    block->kind = tw_input_kind_of(&start);
    if (block->kind == TW_INPUT_TAR) {
        read->members =
            tw_tar_members_of(text, block->bytes < TW_BLOCK_BYTES ? block->bytes : TW_BLOCK_BYTES);
        return TW_OK;
    }
    const enum tw_status status =
        tw_file_check(&start, is_plain ? TW_USE_PLAIN : TW_USE_DOCUMENTS, &is_binary, err);
    *end = is_binary ? TW_BLOCK_FILE_BINARY : TW_BLOCK_FILE_BAD;
    if (status != TW_OK) return status;
    const bool has_lines = block->kind == TW_INPUT_TEXT && read->fill.reader->unit != TW_TEXT_WHOLE;
    if (has_lines && !is_plain && memchr(text, '\n', size) == NULL &&
        memchr(text, '\r', size) != NULL) {
        return tw_fail(err, TW_DATA, "%s ends its lines with CR alone: tr '\\r' '\\n' <IN >OUT",
                       tw_prepare_shown_path(file->path));
    }
    if (is_plain) block->kind = TW_INPUT_TEXT;
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
