#include "worker/data/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/input_kind.h"

/* Allocates corpus->files with `count` empty entries. Fails with TW_NOMEM. */
static enum tw_status reserve_files(struct tw_corpus *corpus, uint32_t count,
                                    struct tw_error *err) {
    corpus->files = calloc(count, sizeof(*corpus->files));
    if (corpus->files == NULL) return tw_fail(err, TW_NOMEM, "no memory for a list of files");
    for (uint32_t i = 0; i < count; i++) {
        corpus->files[i].tokens.fd = -1;
        corpus->files[i].is_here = true;
    }
    corpus->files_count = count;
    return TW_OK;
}

enum tw_status tw_corpus_path(char **path, const char *folder, const char *name,
                              struct tw_error *err) {
    const size_t room = (folder != NULL ? strlen(folder) + 1 : 0) + strlen(name) + 1;
    *path = malloc(room);
    if (*path == NULL) return tw_fail(err, TW_NOMEM, "no memory for a file's name");
    (void)snprintf(*path, room, "%s%s%s", folder != NULL ? folder : "", folder != NULL ? "/" : "",
                   name);
    return TW_OK;
}

/* ---- files of llm.c -------------------------------------------------------------------------- */

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
static enum tw_status set_llmc_file(struct tw_token_file *file, struct tw_error *err) {
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

static enum tw_status open_llmc(struct tw_corpus *corpus, const char *path, struct tw_error *err) {
    TW_TRY(reserve_files(corpus, 1, err));
    corpus->kind = TW_CORPUS_LLMC;
    TW_TRY(tw_corpus_path(&corpus->files[0].tokens.path, NULL, path, err));
    return set_llmc_file(&corpus->files[0].tokens, err);
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

static enum tw_status set_llmc_files(struct tw_corpus *corpus, const char *folder, char **names,
                                     uint32_t count, struct tw_error *err) {
    TW_TRY(reserve_files(corpus, count, err));
    corpus->kind = TW_CORPUS_LLMC;
    for (uint32_t i = 0; i < count; i++) {
        struct tw_corpus_file *const file = &corpus->files[i];
        TW_TRY(tw_corpus_path(&file->tokens.path, folder, names[i], err));
        TW_TRY(set_llmc_file(&file->tokens, err));
        file->is_heldout = !has_word(names[i], "_train");
        corpus->has_heldout = corpus->has_heldout || file->is_heldout;
        corpus->bytes += file->tokens.file_bytes;
    }
    return TW_OK;
}

static enum tw_status open_llmc_folder(struct tw_corpus *corpus, const char *folder,
                                       struct tw_error *err) {
    char **names = NULL;
    uint32_t count = 0;
    enum tw_status status = list_shards(folder, &names, &count, err);
    if (status == TW_OK) {
        status = count == 0 ? TW_AGAIN : set_llmc_files(corpus, folder, names, count, err);
    }
    free_names(names, count);
    return status;
}

/* ---- one shard ------------------------------------------------------------------------------- */

static enum tw_status read_head(int fd, const char *path, struct tw_shard *shard,
                                struct tw_id *name, struct tw_error *err) {
    uint8_t fixed[TW_SHARD_FIXED_BYTES];
    uint32_t head_bytes = 0;
    struct tw_error why;
    TW_TRY(tw_token_file_bytes(fd, path, 0, fixed, sizeof(fixed), err));
    if (tw_shard_head_bytes(fixed, &head_bytes, &why) != TW_OK) {
        return tw_fail(err, TW_DATA, "%.120s: %.120s", path, why.message);
    }
    uint8_t *const head = malloc(head_bytes);
    if (head == NULL) return tw_fail(err, TW_NOMEM, "no memory for the head of a shard");
    enum tw_status status = tw_token_file_bytes(fd, path, 0, head, head_bytes, err);
    if (status == TW_OK && tw_shard_decode(head, head_bytes, shard, &why) != TW_OK) {
        status = tw_fail(err, TW_DATA, "%.120s: %.120s", path, why.message);
    }
    if (status == TW_OK) *name = tw_sha256(head, head_bytes);
    free(head);
    return status;
}

static enum tw_status open_shard(struct tw_corpus *corpus, const char *path, struct tw_error *err) {
    struct tw_shard shard;
    TW_TRY(reserve_files(corpus, 1, err));
    struct tw_token_file *const file = &corpus->files[0].tokens;
    corpus->kind = TW_CORPUS_SHARD;
    TW_TRY(tw_corpus_path(&file->path, NULL, path, err));
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return tw_fail(err, TW_DATA, "%.120s: %s", path, strerror(errno));
    const enum tw_status status = read_head(fd, path, &shard, &file->name, err);
    (void)close(fd);
    if (status != TW_OK) return status;
    tw_token_file_set_shard(file, &shard);
    corpus->bytes = file->file_bytes;
    corpus->about.vocab = shard.vocab;
    corpus->about.separator = shard.separator;
    corpus->about.tokenizer = shard.tokenizer;
    corpus->about.has_answers = shard.has_answers;
    if (tw_token_file_is_there(file)) return TW_OK;
    return tw_fail(
        err, TW_DATA,
        "%.120s is a shard of %llu bytes by its head, but the file has another size: it is cut "
        "off or damaged",
        path, (unsigned long long)file->file_bytes);
}

/* ---- dataset --------------------------------------------------------------------------------- */

/* Reads the whole file into *text, which the caller frees. */
static enum tw_status read_index(const char *path, char **text, size_t *size,
                                 struct tw_error *err) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* it may be a FIFO */
    if (fd < 0) return tw_fail(err, TW_DATA, "%.120s: %s", path, strerror(errno));
    enum tw_status status = TW_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0 ||
        info.st_size > TW_DATASET_BYTES_MAX) {
        status = tw_fail(err, TW_DATA,
                         "%.120s is not the index of a dataset, a plain file of at most "
                         "%d MiB",
                         path, TW_DATASET_BYTES_MAX >> 20);
    } else if ((*text = malloc((size_t)info.st_size)) == NULL) {
        status = tw_fail(err, TW_NOMEM, "no memory for the index of a dataset");
    } else {
        *size = (size_t)info.st_size;
        status = tw_token_file_bytes(fd, path, 0, *text, *size, err);
    }
    (void)close(fd);
    return status;
}

enum tw_status tw_dataset_read(const char *folder, struct tw_dataset *dataset, struct tw_id *digest,
                               struct tw_error *err) {
    char *path = NULL, *text = NULL;
    size_t size = 0;
    struct tw_error why;
    TW_TRY(tw_corpus_path(&path, folder, TW_DATASET_INDEX_FILE, err));
    enum tw_status status = read_index(path, &text, &size, err);
    const uint32_t room = status == TW_OK ? tw_dataset_lines(text, size) : 0;
    struct tw_dataset_shard *const shards = calloc(room + 1, sizeof(*shards));
    if (status == TW_OK && shards == NULL) {
        status = tw_fail(err, TW_NOMEM, "no memory for the index of a dataset");
    }
    if (status == TW_OK && tw_dataset_decode(text, size, shards, room, dataset, &why) != TW_OK) {
        status = tw_fail(err, TW_DATA, "%.120s: %.120s", path, why.message);
    }
    if (status == TW_OK) {
        *digest = tw_sha256(text, size);
    } else {
        free(shards);
        dataset->shards = NULL;
    }
    free(text);
    free(path);
    return status;
}

static enum tw_status set_shard_file(struct tw_corpus_file *file, const struct tw_dataset *dataset,
                                     const struct tw_dataset_shard *named, const char *folder,
                                     struct tw_error *err) {
    char name[TW_DATASET_FILE_BYTES];
    struct tw_shard shard = {.token_bytes =
                                 tw_shard_token_bytes(dataset->vocab, dataset->has_answers),
                             .has_answers = dataset->has_answers,
                             .tokens_count = named->tokens_count,
                             .documents_count = named->documents_count};
    tw_dataset_file(dataset, named, name);
    TW_TRY(tw_corpus_path(&file->tokens.path, folder, name, err));
    if (named->tokens_count == 0 || named->documents_count == 0 ||
        tw_shard_plan(&shard, NULL) != TW_OK || shard.head_bytes != named->head_bytes ||
        shard.head_bytes + shard.body_bytes != named->file_bytes) {
        return tw_fail(err, TW_DATA, "%.120s: the index gives it an impossible size",
                       file->tokens.path);
    }
    tw_token_file_set_shard(&file->tokens, &shard);
    file->tokens.name = named->name;
    file->source = named->source;
    file->is_heldout = named->is_heldout;
    file->is_here = tw_token_file_is_there(&file->tokens);
    return TW_OK;
}

static enum tw_status set_shard_files(struct tw_corpus *corpus, const struct tw_dataset *dataset,
                                      const char *folder, struct tw_error *err) {
    if (dataset->shards_count == 0) {
        return tw_fail(err, TW_DATA, "%.120s holds an index that names no shards", folder);
    }
    TW_TRY(reserve_files(corpus, dataset->shards_count, err));
    for (uint32_t i = 0; i < dataset->shards_count; i++) {
        TW_TRY(set_shard_file(&corpus->files[i], dataset, &dataset->shards[i], folder, err));
        corpus->bytes += dataset->shards[i].file_bytes;
    }
    corpus->kind = TW_CORPUS_DATASET;
    corpus->has_heldout = true;
    corpus->about = *dataset;
    corpus->about.shards = NULL;
    corpus->about.shards_count = corpus->about.shards_capacity = 0;
    return TW_OK;
}

static enum tw_status open_dataset(struct tw_corpus *corpus, const char *folder,
                                   struct tw_error *err) {
    struct tw_dataset *const dataset = calloc(1, sizeof(*dataset));
    if (dataset == NULL) return tw_fail(err, TW_NOMEM, "no memory for the index of a dataset");
    enum tw_status status = tw_dataset_read(folder, dataset, &corpus->digest, err);
    if (status == TW_OK) status = set_shard_files(corpus, dataset, folder, err);
    free(dataset->shards);
    free(dataset);
    return status;
}

/* ---- any kind -------------------------------------------------------------------------------- */

enum { REFRESHED_AT_ONCE = 1024 };

/* ---- files without a header ------------------------------------------------------------------ */

static enum tw_status open_plain(struct tw_corpus *corpus, const char *path, const uint8_t *bytes,
                                 size_t size, const struct tw_corpus_hint *hint,
                                 struct tw_error *err) {
    TW_TRY(reserve_files(corpus, 1, err));
    struct tw_token_file *const file = &corpus->files[0].tokens;
    TW_TRY(tw_corpus_path(&file->path, NULL, path, err));
    corpus->kind = hint->is_ids ? TW_CORPUS_IDS : TW_CORPUS_TEXT;
    file->token_bytes = !hint->is_ids ? 1 : hint->vocab <= 65536 ? 2 : 4;
    file->file_bytes = corpus->bytes;
    file->tokens_count = corpus->bytes / file->token_bytes;
    const struct tw_file_start start = {
        .path = path, .bytes = bytes, .size = size, .is_all = size == corpus->bytes};
    TW_TRY(tw_file_check(&start,
                         !hint->is_ids            ? TW_USE_BYTES
                         : file->token_bytes == 2 ? TW_USE_NUMBERS_2
                                                  : TW_USE_NUMBERS_4,
                         NULL, err));
    if (corpus->bytes % file->token_bytes != 0) {
        return tw_fail(err, TW_DATA,
                       "training text %.120s has %" PRIu64
                       " bytes, not a whole number of %u-byte token numbers: data.tokenizer is ids",
                       path, corpus->bytes, file->token_bytes);
    }
    return TW_OK;
}

static enum tw_status open_file(struct tw_corpus *corpus, const char *path,
                                const struct tw_corpus_hint *hint, struct tw_error *err) {
    uint8_t bytes[TW_FILE_LOOK_BYTES] = {0};
    if (corpus->bytes == 0) {
        return tw_fail(err, TW_DATA, "training text %.120s is empty", path);
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd < 0 ? -1 : pread(fd, bytes, sizeof(bytes), 0);
    const int why = errno;
    if (fd >= 0) (void)close(fd);
    if (size < 0) return tw_fail(err, TW_DATA, "training text %.120s: %s", path, strerror(why));
    if (tw_corpus_is_llmc(bytes) && size >= 12) return open_llmc(corpus, path, err);
    if (size >= 7 && memcmp(bytes, "TWSHARD", 7) == 0) {
        return open_shard(corpus, path, err);
    }
    return open_plain(corpus, path, bytes, (size_t)size, hint, err);
}

/* ---- detection of the kind ------------------------------------------------------------------- */

static enum tw_status open_folder(struct tw_corpus *corpus, const char *path,
                                  struct tw_error *err) {
    char *index = NULL;
    TW_TRY(tw_corpus_path(&index, path, TW_DATASET_INDEX_FILE, err));
    const bool has_index = access(index, F_OK) == 0;
    free(index);
    if (has_index) return open_dataset(corpus, path, err);
    const enum tw_status status = open_llmc_folder(corpus, path, err);
    if (status != TW_AGAIN) return status;
    return tw_fail(err, TW_DATA,
                   "%.120s is a folder without a dataset (no file `%s`) and without token shards: "
                   "`thinwire data prepare` makes a dataset of texts",
                   path, TW_DATASET_INDEX_FILE);
}

static enum tw_status open_megatron(struct tw_corpus *corpus, const char *path,
                                    struct tw_error *err) {
    const struct tw_megatron *const pair = &corpus->megatron;
    TW_TRY(tw_megatron_open(&corpus->megatron, path, err));
    TW_TRY(reserve_files(corpus, 1, err));
    struct tw_token_file *const file = &corpus->files[0].tokens;
    TW_TRY(tw_corpus_path(&file->path, NULL, pair->tokens_path, err));
    corpus->kind = TW_CORPUS_MEGATRON;
    corpus->bytes = pair->tokens_file_bytes;
    file->token_bytes = pair->token_bytes;
    file->is_signed = pair->is_signed;
    file->tokens_count = pair->tokens_count;
    file->file_bytes = pair->tokens_file_bytes;
    return TW_OK;
}

static enum tw_status open_path(struct tw_corpus *corpus, const char *path,
                                const struct tw_corpus_hint *hint, struct tw_error *err) {
    struct stat info;
    if (tw_megatron_is_pair(path)) return open_megatron(corpus, path, err);
    if (stat(path, &info) != 0) {
        return tw_fail(err, TW_DATA,
                       "training text %.120s: %s; name a text, or a folder of `thinwire data "
                       "prepare`, that this user can read",
                       path, strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) return open_folder(corpus, path, err);
    if (!S_ISREG(info.st_mode)) {
        return tw_fail(err, TW_DATA, "training text %.120s is not a plain file: name a text file",
                       path);
    }
    corpus->bytes = (uint64_t)info.st_size;
    return open_file(corpus, path, hint, err);
}

enum tw_status tw_corpus_open(struct tw_corpus *corpus, const char *path,
                              const struct tw_corpus_hint *hint, struct tw_error *err) {
    *corpus = (struct tw_corpus){
        .megatron = {.fd = -1},
        .about = {.separator = TW_SHARD_NO_SEPARATOR,
                  .sources_count = 1,
                  .sources = {{.name = "text"}}},
    };
    const enum tw_status status = open_path(corpus, path, hint, err);
    if (status != TW_OK) tw_corpus_close(corpus);
    return status;
}

void tw_corpus_close(struct tw_corpus *corpus) {
    for (uint32_t i = 0; i < corpus->files_count; i++) {
        tw_token_file_deinit(&corpus->files[i].tokens);
    }
    free(corpus->files);
    tw_megatron_close(&corpus->megatron);
    *corpus = (struct tw_corpus){.files = NULL};
}

uint64_t tw_corpus_tokens(const struct tw_corpus *corpus, bool is_heldout) {
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < corpus->files_count; i++) {
        if (corpus->files[i].is_heldout == is_heldout) {
            tokens += corpus->files[i].tokens.tokens_count;
        }
    }
    return tokens;
}

bool tw_corpus_refresh(struct tw_corpus *corpus) {
    bool has_new = false;
    uint32_t looked = 0;
    for (uint32_t i = 0; i < corpus->files_count && looked < REFRESHED_AT_ONCE; i++) {
        const uint32_t at = corpus->missing_next;
        struct tw_corpus_file *const file = &corpus->files[at];
        corpus->missing_next = (at + 1) % corpus->files_count;
        if (file->is_here) continue;
        looked++;
        file->is_here = tw_token_file_is_there(&file->tokens);
        has_new = has_new || file->is_here;
    }
    return has_new;
}

const char *tw_corpus_kind_name(enum tw_corpus_kind kind) {
    static const char *const NAMES[] = {
        [TW_CORPUS_TEXT] = "a text, its bytes are the tokens",
        [TW_CORPUS_IDS] = "a file of token numbers",
        [TW_CORPUS_LLMC] = "token shards of llm.c",
        [TW_CORPUS_MEGATRON] = "a token file of Megatron-LM",
        [TW_CORPUS_SHARD] = "one shard of a dataset",
        [TW_CORPUS_DATASET] = "a dataset",
    };
    return NAMES[kind];
}
