#include "worker/data/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_kind.h"

enum { REFRESHED_AT_ONCE = 1024 };

/* ---- for the readers of each kind ------------------------------------------------------------ */

enum tw_status tw_corpus_reserve(struct tw_corpus *corpus, uint32_t count, struct tw_error *err) {
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

/* ---- files without a header -------------------------------------------------------------------
 */

/* Two letters of text form a number below 31355, so without this check text could pass for 16-bit
 * tokens. */
static bool looks_like_text(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        const uint8_t byte = bytes[i];
        const bool is_text =
            (byte >= 32 && byte < 127) || byte == '\n' || byte == '\t' || byte == '\r';
        if (!is_text) return false;
    }
    return true;
}

/* Whether the numbers seem to be wider than `width`: at twice the width, all upper halves are 0,
 * but at least a quarter of the lower halves are not. If the numbers are four times as wide, half
 * of the lower halves are 0. */
static bool has_empty_halves(const uint8_t *bytes, size_t size, uint32_t width) {
    enum { NUMBERS_MIN = 32 };
    size_t empty = 0, zeros = 0;
    const size_t numbers = size / (2 * (size_t)width);
    for (size_t i = 0; i < numbers; i++) {
        const uint8_t *const low = bytes + 2 * width * i;
        uint32_t sums[2] = {0, 0};
        for (uint32_t k = 0; k < 2 * width; k++) sums[k / width] += low[k];
        zeros += sums[0] == 0;
        empty += sums[1] == 0;
    }
    return numbers >= NUMBERS_MIN && empty == numbers && zeros <= numbers / 4 * 3;
}

static enum tw_status open_plain(struct tw_corpus *corpus, const char *path, const uint8_t *bytes,
                                 size_t size, const struct tw_corpus_hint *hint,
                                 struct tw_error *err) {
    TW_TRY(tw_corpus_reserve(corpus, 1, err));
    struct tw_token_file *const file = &corpus->files[0].tokens;
    TW_TRY(tw_corpus_path(&file->path, NULL, path, err));
    corpus->kind = hint->is_ids ? TW_CORPUS_IDS : TW_CORPUS_TEXT;
    file->token_bytes = !hint->is_ids ? 1 : hint->vocab <= 65536 ? 2 : 4;
    file->file_bytes = corpus->bytes;
    file->tokens_count = corpus->bytes / file->token_bytes;
    TW_TRY(tw_file_kind_check(path, bytes, size, hint->is_ids, err));
    if (hint->is_ids && looks_like_text(bytes, size)) {
        return tw_fail(err, TW_DATA,
                       "training text %.80s is text, but data.tokenizer is ids: `thinwire data "
                       "prepare --tokenizer FILE` makes tokens of it, or make a run with --set "
                       "data.tokenizer=bytes --set model.vocab=256",
                       path);
    }
    if (hint->is_ids && has_empty_halves(bytes, size, file->token_bytes)) {
        return tw_fail(err, TW_DATA,
                       "training text %.80s: every second %u-byte number is 0 at its beginning, so "
                       "its numbers are larger than a vocabulary of %u needs: write them as numpy "
                       "uint%u",
                       path, file->token_bytes, hint->vocab, 8 * file->token_bytes);
    }
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
    if (tw_corpus_is_llmc(bytes) && size >= 12) return tw_corpus_open_llmc(corpus, path, err);
    if (size >= 7 && memcmp(bytes, "TWSHARD", 7) == 0) {
        return tw_corpus_open_shard(corpus, path, err);
    }
    return open_plain(corpus, path, bytes, (size_t)size, hint, err);
}

/* ---- detection of the kind --------------------------------------------------------------------
 */

static enum tw_status open_folder(struct tw_corpus *corpus, const char *path,
                                  struct tw_error *err) {
    char *index = NULL;
    TW_TRY(tw_corpus_path(&index, path, TW_DATASET_INDEX_FILE, err));
    const bool has_index = access(index, F_OK) == 0;
    free(index);
    if (has_index) return tw_corpus_open_dataset(corpus, path, err);
    const enum tw_status status = tw_corpus_open_llmc_folder(corpus, path, err);
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
    TW_TRY(tw_corpus_reserve(corpus, 1, err));
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
