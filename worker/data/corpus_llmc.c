/* corpus_llmc.c - token shards of llm.c: a header of 256 words (magic, version, number of tokens,
 * then unused), followed by the tokens. Files of these formats are in tests/data/llmc. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "worker/data/corpus.h"

enum { HEAD_BYTES = 1024, MAGIC_EVAL = 20240522, FILES_MAX = 1 << 16 };

/* The formats that llm.c writes (see HEADERS_INFO in its dev/data/data_common.py). */
static const struct format {
    uint32_t magic, version, token_bytes;
    const char *of;
} FORMATS[] = {{20240520, 1, 2, "GPT-2"}, {20240801, 7, 4, "Llama 3"}};
enum { FORMATS_COUNT = sizeof(FORMATS) / sizeof(FORMATS[0]) };

static const struct format *find_format(const uint8_t *bytes) {
    for (unsigned i = 0; i < FORMATS_COUNT; i++) {
        if (tw_get_u32(bytes) == FORMATS[i].magic) return &FORMATS[i];
    }
    return NULL;
}

bool tw_corpus_is_llmc(const uint8_t *bytes) {
    return find_format(bytes) != NULL || tw_get_u32(bytes) == MAGIC_EVAL;
}

/* Fills in the members of *file; file->path must be set. */
static enum tw_status set_file(struct tw_token_file *file, struct tw_error *err) {
    uint8_t head[12];
    struct stat info;
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* it may be a FIFO */
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        const int why = errno;
        if (fd < 0) return tw_fail(err, TW_DATA, "%.120s: %s", file->path, strerror(why));
        (void)close(fd);
        return tw_fail(err, TW_DATA, "%.120s is not a plain file", file->path);
    }
    const enum tw_status status = tw_token_file_bytes(fd, file->path, 0, head, sizeof(head), err);
    (void)close(fd);
    if (status != TW_OK) return status;
    file->file_bytes = (uint64_t)info.st_size;
    if (tw_get_u32(head) == MAGIC_EVAL) {
        return tw_fail(err, TW_DATA,
                       "%.120s holds multiple-choice questions of llm.c (HellaSwag, MMLU), which "
                       "are no training text: leave it out",
                       file->path);
    }
    const struct format *const format = find_format(head);
    if (format == NULL || file->file_bytes < HEAD_BYTES) {
        return tw_fail(err, TW_DATA, "%.120s is not a token shard of llm.c, but named like one",
                       file->path);
    }
    if (tw_get_u32(head + 4) != format->version) {
        return tw_fail(err, TW_DATA,
                       "%.120s is a token shard of llm.c for %s of version %u; version %u is read",
                       file->path, format->of, tw_get_u32(head + 4), format->version);
    }
    file->token_bytes = format->token_bytes;
    file->begin_bytes = HEAD_BYTES;
    file->tokens_count = tw_get_u32(head + 8);
    const uint64_t held = file->file_bytes - HEAD_BYTES;
    if (file->tokens_count > 0 && held == file->tokens_count * file->token_bytes) return TW_OK;
    return tw_fail(err, TW_DATA,
                   "training text %.120s is a token shard of %" PRIu64 " tokens and holds %" PRIu64
                   ": it is cut off or damaged",
                   file->path, file->tokens_count, held / file->token_bytes);
}

enum tw_status tw_corpus_open_llmc(struct tw_corpus *corpus, const char *path,
                                   struct tw_error *err) {
    TW_TRY(tw_corpus_reserve(corpus, 1, err));
    corpus->kind = TW_CORPUS_LLMC;
    TW_TRY(tw_corpus_path(&corpus->files[0].tokens.path, NULL, path, err));
    return set_file(&corpus->files[0].tokens, err);
}

/* ---- folders --------------------------------------------------------------------------------- */

/* Whether `word` is followed in the name by a shard number or the ending, as "train" is in
 * web_train_000001.bin and tiny_shakespeare_train.bin. */
static bool has_word(const char *name, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = strstr(name, word); at != NULL; at = strstr(at + 1, word)) {
        if (at[length] == '_' || strcmp(at + length, ".bin") == 0) return true;
    }
    return false;
}

static bool is_shard_name(const char *name) {
    const size_t size = strlen(name);
    return size > 4 && strcmp(name + size - 4, ".bin") == 0 &&
           (has_word(name, "_train") || has_word(name, "_val"));
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

/* Lists the shards in the folder, sorted by name. The caller frees the names, also after a failure.
 */
static enum tw_status list_shards(const char *folder, char ***names, uint32_t *count,
                                  struct tw_error *err) {
    uint32_t room = 0;
    DIR *const dir = opendir(folder);
    if (dir == NULL) return tw_fail(err, TW_DATA, "%.120s: %s", folder, strerror(errno));
    enum tw_status status = TW_OK;
    for (const struct dirent *entry = readdir(dir); entry != NULL && status == TW_OK;
         entry = readdir(dir)) {
        if (!is_shard_name(entry->d_name)) continue;
        if (*count == FILES_MAX) {
            status = tw_fail(err, TW_DATA, "%.120s has more than %d shards", folder, FILES_MAX);
            break;
        }
        if (*count == room) {
            room = room == 0 ? 64 : 2 * room;
            char **const grown = realloc(*names, room * sizeof(**names));
            if (grown == NULL) {
                status = tw_fail(err, TW_NOMEM, "no memory for a list of files");
                break;
            }
            *names = grown;
        }
        status = tw_corpus_path(&(*names)[*count], NULL, entry->d_name, err);
        if (status == TW_OK) (*count)++;
    }
    (void)closedir(dir);
    if (status == TW_OK && *count > 0) qsort(*names, *count, sizeof(**names), by_name);
    return status;
}

static enum tw_status set_files(struct tw_corpus *corpus, const char *folder, char **names,
                                uint32_t count, struct tw_error *err) {
    TW_TRY(tw_corpus_reserve(corpus, count, err));
    corpus->kind = TW_CORPUS_LLMC;
    for (uint32_t i = 0; i < count; i++) {
        struct tw_corpus_file *const file = &corpus->files[i];
        TW_TRY(tw_corpus_path(&file->tokens.path, folder, names[i], err));
        TW_TRY(set_file(&file->tokens, err));
        file->is_heldout = !has_word(names[i], "_train");
        corpus->has_heldout = corpus->has_heldout || file->is_heldout;
        corpus->bytes += file->tokens.file_bytes;
    }
    return TW_OK;
}

enum tw_status tw_corpus_open_llmc_folder(struct tw_corpus *corpus, const char *folder,
                                          struct tw_error *err) {
    char **names = NULL;
    uint32_t count = 0;
    enum tw_status status = list_shards(folder, &names, &count, err);
    if (status == TW_OK) {
        status = count == 0 ? TW_AGAIN : set_files(corpus, folder, names, count, err);
    }
    free_names(names, count);
    return status;
}
