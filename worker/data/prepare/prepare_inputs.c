#include "worker/data/prepare/prepare_inputs.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "worker/data/corpus.h"

/* Whether the name has one of the endings, in any case, perhaps followed by the ending of a
 * compressed file. */
static bool is_named_so(const char *path, const char *const *endings, unsigned count) {
    static const char *const PACKED[] = {".gz", ".zst", ".zstd"};
    size_t length = strlen(path);
    for (unsigned i = 0; i < 3; i++) {
        const size_t tail = strlen(PACKED[i]);
        if (length <= tail || strcasecmp(path + length - tail, PACKED[i]) != 0) continue;
        length -= tail;
        break;
    }
    for (unsigned i = 0; i < count; i++) {
        const size_t tail = strlen(endings[i]);
        if (length > tail && strncasecmp(path + length - tail, endings[i], tail) == 0) return true;
    }
    return false;
}

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
    static const char *const JSON[] = {".jsonl", ".ndjson", ".json"};
    static const char *const TABLES[] = {".csv", ".tsv"};
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
                                     .has_json_name = is_named_so(path, JSON, 3),
                                     .has_table_name = is_named_so(path, TABLES, 2),
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
