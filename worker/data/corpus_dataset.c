/* corpus_dataset.c - opens a single shard, or all shards that the index of a dataset names. Some of
 * these may not have arrived. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "worker/data/corpus.h"

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

enum tw_status tw_corpus_open_shard(struct tw_corpus *corpus, const char *path,
                                    struct tw_error *err) {
    struct tw_shard shard;
    TW_TRY(tw_corpus_reserve(corpus, 1, err));
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

static enum tw_status set_file(struct tw_corpus_file *file, const struct tw_dataset *dataset,
                               const struct tw_dataset_shard *named, const char *folder,
                               struct tw_error *err) {
    char name[TW_DATASET_FILE_BYTES];
    struct tw_shard shard = {.token_bytes = tw_shard_token_bytes(dataset->vocab),
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

static enum tw_status set_files(struct tw_corpus *corpus, const struct tw_dataset *dataset,
                                const char *folder, struct tw_error *err) {
    if (dataset->shards_count == 0) {
        return tw_fail(err, TW_DATA, "%.120s holds an index that names no shards", folder);
    }
    TW_TRY(tw_corpus_reserve(corpus, dataset->shards_count, err));
    for (uint32_t i = 0; i < dataset->shards_count; i++) {
        TW_TRY(set_file(&corpus->files[i], dataset, &dataset->shards[i], folder, err));
        corpus->bytes += dataset->shards[i].file_bytes;
    }
    corpus->kind = TW_CORPUS_DATASET;
    corpus->has_heldout = true;
    corpus->about = *dataset;
    corpus->about.shards = NULL;
    corpus->about.shards_count = corpus->about.shards_capacity = 0;
    return TW_OK;
}

enum tw_status tw_corpus_open_dataset(struct tw_corpus *corpus, const char *folder,
                                      struct tw_error *err) {
    struct tw_dataset *const dataset = calloc(1, sizeof(*dataset));
    if (dataset == NULL) return tw_fail(err, TW_NOMEM, "no memory for the index of a dataset");
    enum tw_status status = tw_dataset_read(folder, dataset, &corpus->digest, err);
    if (status == TW_OK) status = set_files(corpus, dataset, folder, err);
    free(dataset->shards);
    free(dataset);
    return status;
}
