/* data_folder.c - the index and the whole files of a dataset's folder. */
#include "daemon/dataset/data_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/units.h"
#include "daemon/store/file.h"

/* ==== whole files ============================================================================= */

/* ---- the table of files -------------------------------------------------------------------- */

void tw_data_folder_name(const struct tw_data_folder *folder, uint32_t file,
                         char name[TW_DATASET_FILE_BYTES]) {
    TW_ASSERT(file < folder->files_count);
    const int32_t shard = folder->rows[file].shard;
    if (shard >= 0) {
        tw_dataset_file(&folder->index, &folder->index.shards[shard], name);
        return;
    }
    (void)snprintf(name, TW_DATASET_FILE_BYTES, "%s",
                   file == TW_DATA_INDEX ? TW_DATASET_INDEX_FILE : TW_DATASET_TOKENIZER_FILE);
}

int tw_data_folder_find(const struct tw_data_folder *folder, const struct tw_id *hash) {
    uint32_t low = 0, high = folder->files_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const uint32_t file = folder->by_hash[middle];
        const int order = tw_id_compare(&folder->files[file].hash, hash);
        if (order == 0) return (int)file;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static int hash_order(const void *a, const void *b, void *files) {
    const struct tw_fetch_file *table = files;
    const uint32_t *left = a, *right = b;
    return tw_id_compare(&table[*left].hash, &table[*right].hash);
}

/* Sorts the files by hash. No two shards have the same hash: each head contains its shard's number.
 */
static enum tw_status table_order(struct tw_data_folder *folder, struct tw_error *err) {
    for (uint32_t i = 0; i < folder->files_count; i++) folder->by_hash[i] = i;
    qsort_r(folder->by_hash, folder->files_count, sizeof(*folder->by_hash), hash_order,
            folder->files);
    for (uint32_t i = 1; i < folder->files_count; i++) {
        if (hash_order(&folder->by_hash[i - 1], &folder->by_hash[i], folder->files) == 0) {
            return tw_fail(err, TW_CORRUPT, "the index of the dataset names one file twice");
        }
    }
    return TW_OK;
}

static void table_free(struct tw_data_folder *folder) {
    free(folder->files);
    free(folder->rows);
    free(folder->by_hash);
    free(folder->index.shards);
    folder->files = NULL;
    folder->rows = NULL;
    folder->by_hash = NULL;
    folder->index = (struct tw_dataset){0};
    folder->files_count = 0;
    folder->has_index = false;
}

static enum tw_status table_make(struct tw_data_folder *folder, uint32_t capacity,
                                 struct tw_error *err) {
    folder->files = calloc(capacity, sizeof(*folder->files));
    folder->rows = calloc(capacity, sizeof(*folder->rows));
    folder->by_hash = calloc(capacity, sizeof(*folder->by_hash));
    if (folder->files != NULL && folder->rows != NULL && folder->by_hash != NULL) return TW_OK;
    return tw_fail(err, TW_NOMEM, "no memory for the table of the dataset's files");
}

/* Begins with a table of one file, the index, until its content is known. */
static enum tw_status table_begin(struct tw_data_folder *folder, struct tw_error *err) {
    TW_TRY(table_make(folder, 1, err));
    folder->files[TW_DATA_INDEX].hash = folder->hash;
    folder->rows[TW_DATA_INDEX].shard = TW_DATA_NO_SHARD;
    folder->files_count = 1;
    return TW_OK;
}

static enum tw_status table_fill(struct tw_data_folder *folder, size_t size, struct tw_error *err) {
    const struct tw_dataset *index = &folder->index;
    uint32_t count = 0;
    folder->rows[0] = (struct tw_data_row){.shard = TW_DATA_NO_SHARD, .state = TW_DATA_WHOLE};
    folder->files[count++] = (struct tw_fetch_file){.hash = folder->hash, .bytes = size};
    if (!tw_id_is_zero(&index->tokenizer)) {
        folder->rows[count].shard = TW_DATA_NO_SHARD;
        folder->files[count++] = (struct tw_fetch_file){
            .hash = index->tokenizer, .bytes = index->tokenizer_bytes, .kind = TW_FETCH_TOKENIZER};
    }
    for (uint32_t i = 0; i < index->shards_count; i++) {
        const struct tw_dataset_shard *shard = &index->shards[i];
        folder->rows[count].shard = (int32_t)i;
        folder->files[count++] =
            (struct tw_fetch_file){.hash = shard->name,
                                   .bytes = shard->file_bytes,
                                   .head_bytes = shard->head_bytes,
                                   .kind = shard->is_heldout ? TW_FETCH_HELDOUT : TW_FETCH_TRAIN};
    }
    folder->files_count = count;
    return table_order(folder, err);
}

static enum tw_status index_decode(struct tw_data_folder *next, const char *text, size_t size,
                                   struct tw_error *err) {
    const uint32_t lines = tw_dataset_lines(text, size);
    const uint32_t capacity = lines < TW_DATASET_SHARDS_MAX ? lines : TW_DATASET_SHARDS_MAX;
    TW_TRY(table_make(next, capacity + 2, err));
    struct tw_dataset_shard *shards = calloc(capacity + 1, sizeof(*shards));
    if (shards == NULL) return tw_fail(err, TW_NOMEM, "no memory for the dataset's files");
    const enum tw_status status =
        tw_dataset_decode(text, size, shards, capacity, &next->index, err);
    next->index.shards = shards;
    TW_TRY(status);
    return table_fill(next, size, err);
}

/* Parses text[size], whose SHA-256 was checked, as the index. */
static enum tw_status index_take(struct tw_data_folder *folder, const char *text, size_t size,
                                 struct tw_error *err) {
    struct tw_data_folder next = *folder;
    next.index = (struct tw_dataset){0};
    next.files = NULL;
    next.rows = NULL;
    next.by_hash = NULL;
    TW_ASSERT(!folder->has_index);
    const enum tw_status status = index_decode(&next, text, size, err);
    if (status != TW_OK) {
        table_free(&next);
        /* The hash is correct, so every copy has the same fault: fetching another would not help.
         */
        if (err != NULL && status == TW_CORRUPT) err->status = TW_DATA;
        return status == TW_CORRUPT ? TW_DATA : status;
    }
    table_free(folder);
    *folder = next;
    folder->has_index = true;
    return TW_OK;
}

/* ---- files in the folder ------------------------------------------------------------------- */

/* Returns the size of a file in the folder, or a negative errno. */
static int64_t size_of(const struct tw_data_folder *folder, const char *name) {
    const struct tw_file_ops *ops = folder->ops;
    const int handle = ops->open(ops->ctx, folder->dir, name);
    if (handle < 0) return handle;
    const int64_t size = ops->size(ops->ctx, handle);
    (void)ops->close(ops->ctx, handle);
    return size;
}

static void files_look(struct tw_data_folder *folder) {
    for (uint32_t i = 1; i < folder->files_count; i++) {
        char name[TW_DATASET_FILE_BYTES], part[TW_DATASET_FILE_BYTES + 8];
        struct tw_data_row *row = &folder->rows[i];
        tw_data_folder_name(folder, i, name);
        (void)snprintf(part, sizeof(part), "%s.part", name);
        if (size_of(folder, name) == (int64_t)folder->files[i].bytes) {
            row->state = TW_DATA_WHOLE;
        } else if (folder->is_ours && size_of(folder, part) >= 0) {
            row->state = TW_DATA_PARTLY;
        }
    }
}

uint32_t tw_data_folder_train_whole(const struct tw_data_folder *folder) {
    uint32_t count = 0;
    for (uint32_t i = 1; i < folder->files_count; i++) {
        count += folder->files[i].kind == TW_FETCH_TRAIN && folder->rows[i].state == TW_DATA_WHOLE;
    }
    return count;
}

static enum tw_status index_read(const struct tw_data_folder *folder, char **text, size_t *size,
                                 struct tw_error *err) {
    const struct tw_file_ops *ops = folder->ops;
    const int handle = ops->open(ops->ctx, folder->dir, TW_DATASET_INDEX_FILE);
    if (handle == -ENOENT) {
        return tw_fail(err, TW_AGAIN, "%.160s holds no index of a dataset", folder->path);
    }
    const int64_t bytes = handle < 0 ? handle : ops->size(ops->ctx, handle);
    enum tw_status status = TW_OK;
    if (bytes < 0) {
        status = tw_fail(err, TW_IO, "%.160s/" TW_DATASET_INDEX_FILE ": %s", folder->path,
                         strerror((int)-bytes));
    } else if (bytes == 0 || bytes > TW_DATASET_BYTES_MAX) {
        status = tw_fail(err, TW_CORRUPT,
                         "%.160s/" TW_DATASET_INDEX_FILE " has %lld bytes: no index of a dataset",
                         folder->path, (long long)bytes);
    }
    if (status == TW_OK) {
        *size = (size_t)bytes;
        *text = malloc(*size);
        status = *text != NULL
                     ? tw_durable_read(ops, handle, TW_DATASET_INDEX_FILE, *text, *size, 0, err)
                     : tw_fail(err, TW_NOMEM, "no memory for the index of the dataset");
    }
    if (handle >= 0) (void)ops->close(ops->ctx, handle);
    return status;
}

static enum tw_status hash_check(const struct tw_data_folder *folder, const char *text, size_t size,
                                 struct tw_error *err) {
    const struct tw_id hash = tw_sha256(text, size);
    if (tw_id_equal(&hash, &folder->hash)) return TW_OK;
    char have[9], want[9];
    tw_id_short(&hash, have);
    tw_id_short(&folder->hash, want);
    return tw_fail(err, TW_CORRUPT,
                   "%.140s/" TW_DATASET_INDEX_FILE
                   " is another dataset than the run's: its SHA-256 is %s..., data.sha256 %s...",
                   folder->path, have, want);
}

enum tw_status tw_data_folder_load(struct tw_data_folder *folder, struct tw_error *err) {
    char *text = NULL;
    size_t size = 0;
    enum tw_status status = index_read(folder, &text, &size, err);
    if (status == TW_OK) status = hash_check(folder, text, size, err);
    if (status == TW_OK) status = index_take(folder, text, size, err);
    free(text);
    if (status == TW_CORRUPT && folder->is_ours) {
        (void)folder->ops->unlink(folder->ops->ctx, folder->dir, TW_DATASET_INDEX_FILE);
    }
    if (status == TW_OK) files_look(folder);
    return status;
}

enum tw_status tw_data_folder_put_index(struct tw_data_folder *folder, const char *text,
                                        size_t size, struct tw_error *err) {
    struct tw_durable durable;
    TW_ASSERT(folder->is_ours && !folder->has_index);
    const struct tw_id hash = tw_sha256(text, size);
    if (!tw_id_equal(&hash, &folder->hash)) {
        return tw_fail(err, TW_CORRUPT,
                       "the index that arrived is not the one of the run's dataset");
    }
    TW_TRY(tw_durable_begin(&durable, folder->ops, folder->dir, TW_DATASET_INDEX_FILE, size, err));
    const enum tw_status written = tw_durable_write(&durable, text, size, 0, err);
    if (written != TW_OK) {
        tw_durable_abort(&durable);
        return written;
    }
    TW_TRY(tw_durable_commit(&durable, err));
    TW_TRY(index_take(folder, text, size, err));
    files_look(folder);
    return TW_OK;
}

enum tw_status tw_data_folder_read(const struct tw_data_folder *folder, uint32_t file, uint32_t idx,
                                   uint8_t *bytes, uint32_t *size, struct tw_error *err) {
    const struct tw_file_ops *ops = folder->ops;
    char name[TW_DATASET_FILE_BYTES];
    uint64_t offset;
    tw_fetch_range(&folder->files[file], idx, &offset, size);
    tw_data_folder_name(folder, file, name);
    const int handle = ops->open(ops->ctx, folder->dir, name);
    if (handle < 0) return tw_fail(err, TW_IO, "%s: %s", name, strerror(-handle));
    const enum tw_status status = tw_durable_read(ops, handle, name, bytes, *size, offset, err);
    (void)ops->close(ops->ctx, handle);
    return status;
}

static enum tw_status digest_check(const struct tw_data_folder *folder, uint32_t file, uint32_t idx,
                                   const uint8_t *bytes, const struct tw_id *want,
                                   struct tw_error *err) {
    char name[TW_DATASET_FILE_BYTES];
    uint64_t offset;
    uint32_t size;
    tw_fetch_range(&folder->files[file], idx, &offset, &size);
    const struct tw_id digest = tw_sha256(bytes, size);
    if (tw_id_equal(&digest, want)) return TW_OK;
    tw_data_folder_name(folder, file, name);
    return tw_fail(err, TW_CORRUPT,
                   "%s in %.100s was changed: its chunk %u does not match its digest", name,
                   folder->path, idx);
}

enum tw_status tw_data_folder_check(const struct tw_data_folder *folder, uint32_t file,
                                    uint32_t idx, const uint8_t *bytes, struct tw_data_head *head,
                                    struct tw_error *err) {
    const struct tw_fetch_file *of = &folder->files[file];
    uint32_t head_bytes;
    if (of->head_bytes == 0) return TW_OK;
    if (idx == 0) return digest_check(folder, file, 0, bytes, &of->hash, err);
    if (head->file != file + 1) {
        head->file = 0;
        TW_TRY(tw_data_folder_read(folder, file, 0, head->bytes, &head_bytes, err));
        TW_TRY(digest_check(folder, file, 0, head->bytes, &of->hash, err));
        head->file = file + 1;
    }
    const struct tw_id want = tw_shard_digest(head->bytes, idx - 1);
    return digest_check(folder, file, idx, bytes, &want, err);
}

uint32_t tw_data_folder_look(struct tw_data_folder *folder, uint32_t *next) {
    enum { LOOKS = 16 };
    for (uint32_t looks = 0, i = 0; looks < LOOKS && i < folder->files_count; i++) {
        const uint32_t file = *next % folder->files_count;
        struct tw_data_row *row = &folder->rows[file];
        char name[TW_DATASET_FILE_BYTES];
        *next = file + 1;
        if (file == TW_DATA_INDEX || row->state == TW_DATA_WHOLE || row->is_bad) continue;
        looks++;
        tw_data_folder_name(folder, file, name);
        if (size_of(folder, name) != (int64_t)folder->files[file].bytes) continue;
        row->state = TW_DATA_WHOLE;
        return file;
    }
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_data_folder_open(struct tw_data_folder *folder, const struct tw_file_ops *ops,
                                   const char *path, const struct tw_id *hash, bool is_ours,
                                   struct tw_error *err) {
    memset(folder, 0, sizeof(*folder));
    TW_ASSERT(strlen(path) < sizeof(folder->path));
    (void)snprintf(folder->path, sizeof(folder->path), "%s", path);
    folder->ops = ops;
    folder->hash = *hash;
    folder->is_ours = is_ours;
    folder->dir = ops->dir_open(ops->ctx, path);
    if (folder->dir < 0) {
        const int reason = -folder->dir;
        folder->dir = -1;
        return tw_fail(err, TW_IO, "the folder of the training data %.140s: %s", path,
                       strerror(reason));
    }
    const enum tw_status status = table_begin(folder, err);
    if (status != TW_OK) tw_data_folder_close(folder);
    return status;
}

void tw_data_folder_close(struct tw_data_folder *folder) {
    table_free(folder);
    if (folder->dir >= 0) (void)folder->ops->close(folder->ops->ctx, folder->dir);
    folder->dir = -1;
}

/* ==== arriving files ========================================================================== */

/* A file of a dataset while it arrives. */

enum { PART_NAME_BYTES = TW_DATASET_FILE_BYTES + 8 };

static void part_name(const struct tw_data_folder *folder, uint32_t file,
                      char name[PART_NAME_BYTES]) {
    char whole[TW_DATASET_FILE_BYTES];
    tw_data_folder_name(folder, file, whole);
    (void)snprintf(name, PART_NAME_BYTES, "%s.part", whole);
}

static enum tw_status disk_fail(const struct tw_data_part *part, const char *what, int64_t result,
                                struct tw_error *err) {
    char name[TW_DATASET_FILE_BYTES];
    tw_data_folder_name(part->folder, part->file, name);
    return tw_fail(err, TW_IO, "cannot %s %s in %.100s: %s", what, name, part->folder->path,
                   strerror((int)-result));
}

static const struct tw_fetch_file *file_of(const struct tw_data_part *part) {
    return &part->folder->files[part->file];
}

static bool is_shard(const struct tw_data_part *part) {
    return file_of(part)->head_bytes > 0;
}

/* ---- checks -------------------------------------------------------------------------------- */

/* Checks that a head with the right hash agrees with the index. A mismatch is the dataset's fault,
 * not the sender's. */
static enum tw_status head_check(const struct tw_data_part *part, const uint8_t *head,
                                 struct tw_error *err) {
    const struct tw_dataset *index = &part->folder->index;
    const struct tw_fetch_file *file = file_of(part);
    const struct tw_dataset_shard *want = &index->shards[part->folder->rows[part->file].shard];
    struct tw_shard shard;
    struct tw_error reason = {0};
    char name[TW_DATASET_FILE_BYTES];
    tw_data_folder_name(part->folder, part->file, name);
    if (tw_shard_decode(head, file->head_bytes, &shard, &reason) != TW_OK) {
        return tw_fail(err, TW_DATA, "%s of the run's dataset is no shard: %.150s", name,
                       reason.message);
    }
    const bool is_it =
        shard.head_bytes + shard.body_bytes == file->bytes && shard.source == want->source &&
        shard.number == want->number && shard.tokens_count == want->tokens_count &&
        shard.documents_count == want->documents_count && shard.is_heldout == want->is_heldout &&
        shard.has_answers == index->has_answers && shard.vocab == index->vocab &&
        shard.separator == index->separator && tw_id_equal(&shard.tokenizer, &index->tokenizer);
    if (!is_it) {
        return tw_fail(err, TW_DATA,
                       "%s of the run's dataset is not the shard that the index says: the dataset "
                       "must be prepared again",
                       name);
    }
    return TW_OK;
}

/* Checks a chunk of a shard. The head is stored already, unless this chunk is the head. */
static enum tw_status chunk_check(const struct tw_data_part *part, uint32_t idx,
                                  const uint8_t *chunk, uint32_t bytes, struct tw_error *err) {
    if (idx > 0 && !part->has_head) return tw_fail(err, TW_AGAIN, "the head must come first");
    const struct tw_id digest = tw_sha256(chunk, bytes);
    const struct tw_id want = idx == 0 ? file_of(part)->hash : tw_shard_digest(part->head, idx - 1);
    if (!tw_id_equal(&digest, &want)) {
        char name[TW_DATASET_FILE_BYTES];
        tw_data_folder_name(part->folder, part->file, name);
        return tw_fail(err, TW_CORRUPT, "chunk %u of %s does not match its digest", idx, name);
    }
    return idx == 0 ? head_check(part, chunk, err) : TW_OK;
}

/* Loads the head of a part left by an earlier process. A wrong head must be fetched again. */
static void head_load(struct tw_data_part *part) {
    const struct tw_data_folder *folder = part->folder;
    const uint32_t bytes = file_of(part)->head_bytes;
    part->has_head =
        tw_durable_read(folder->ops, part->handle, "", part->head, bytes, 0, NULL) == TW_OK &&
        chunk_check(part, 0, part->head, bytes, NULL) == TW_OK;
}

uint32_t tw_data_part_look(const struct tw_data_part *part, uint64_t *have, uint8_t *scratch) {
    const struct tw_fetch_file *file = file_of(part);
    uint32_t count = 0;
    memset(have, 0, TW_FETCH_FILE_CHUNKS_MAX / 8);
    if (!is_shard(part) || !part->has_head) return 0;
    for (uint32_t i = 0; i < tw_fetch_chunks(file); i++) {
        uint64_t offset;
        uint32_t bytes;
        tw_fetch_range(file, i, &offset, &bytes);
        /* If the file is too short here or the sector is bad, the chunk is fetched again. */
        if (tw_durable_read(part->folder->ops, part->handle, "", scratch, bytes, offset, NULL) !=
                TW_OK ||
            chunk_check(part, i, scratch, bytes, NULL) != TW_OK) {
            continue;
        }
        have[i / 64] |= UINT64_C(1) << (i % 64);
        count++;
    }
    return count;
}

/* ---- open ---------------------------------------------------------------------------------- */

/* Reserves disk space for the whole file. Leaves the space for checkpoints, which take
 * precedence. */
static enum tw_status room_take(const struct tw_data_part *part, struct tw_error *err) {
    const struct tw_data_folder *folder = part->folder;
    const struct tw_file_ops *ops = folder->ops;
    const uint64_t bytes = file_of(part)->bytes;
    const int64_t room = ops->room(ops->ctx, folder->dir);
    if (room >= 0 && (uint64_t)room < bytes + folder->reserve_bytes) {
        char have[TW_UNITS_BYTES], need[TW_UNITS_BYTES], kept[TW_UNITS_BYTES];
        return tw_fail(err, TW_IO,
                       "%.80s has %s free, but needs %s for the next shard and %s for "
                       "checkpoints and logs: free some space",
                       folder->path, tw_units_bytes(have, (double)room),
                       tw_units_bytes(need, (double)bytes),
                       tw_units_bytes(kept, (double)folder->reserve_bytes));
    }
    int reserved;
    do {
        reserved = ops->allocate(ops->ctx, part->handle, bytes);
    } while (reserved == -EINTR);
    if (reserved >= 0 || reserved == -EOPNOTSUPP) return TW_OK;
    return disk_fail(part, "reserve room for", reserved, err);
}

static int part_create(const struct tw_data_folder *folder, const char *name) {
    const struct tw_file_ops *ops = folder->ops;
    const int made = ops->create(ops->ctx, folder->dir, name);
    if (made < 0) return made;
    (void)ops->close(ops->ctx, made);
    return ops->open_write(ops->ctx, folder->dir, name);
}

enum tw_status tw_data_part_open(struct tw_data_part *part, struct tw_data_folder *folder,
                                 uint32_t file, struct tw_error *err) {
    const struct tw_file_ops *ops = folder->ops;
    char name[PART_NAME_BYTES];
    TW_ASSERT(folder->is_ours && file != TW_DATA_INDEX && file < folder->files_count);
    part->folder = folder;
    part->file = file;
    part->has_head = false;
    part_name(folder, file, name);
    part->handle = ops->open_write(ops->ctx, folder->dir, name);
    if (part->handle >= 0 && ops->size(ops->ctx, part->handle) > (int64_t)file_of(part)->bytes) {
        tw_data_part_close(part); /* not created by us */
        tw_data_part_remove(folder, file);
        part->handle = -ENOENT;
    }
    const bool is_new = part->handle == -ENOENT;
    if (is_new) part->handle = part_create(folder, name);
    if (part->handle < 0) {
        const int reason = part->handle;
        part->handle = -1;
        return disk_fail(part, "open", reason, err);
    }
    if (!is_new && is_shard(part)) head_load(part);
    if (ops->size(ops->ctx, part->handle) == (int64_t)file_of(part)->bytes) return TW_OK;
    const enum tw_status status = room_take(part, err);
    if (status == TW_OK) return TW_OK;
    tw_data_part_close(part);
    if (is_new) tw_data_part_remove(folder, file);
    return status;
}

void tw_data_part_close(struct tw_data_part *part) {
    if (part->handle >= 0) (void)part->folder->ops->close(part->folder->ops->ctx, part->handle);
    part->handle = -1;
}

void tw_data_part_remove(const struct tw_data_folder *folder, uint32_t file) {
    char name[PART_NAME_BYTES];
    part_name(folder, file, name);
    (void)folder->ops->unlink(folder->ops->ctx, folder->dir, name);
}

/* ---- filling ------------------------------------------------------------------------------- */

enum tw_status tw_data_part_write(struct tw_data_part *part, uint32_t idx, const uint8_t *bytes,
                                  struct tw_error *err) {
    const struct tw_file_ops *ops = part->folder->ops;
    uint64_t at;
    uint32_t rest;
    tw_fetch_range(file_of(part), idx, &at, &rest);
    if (is_shard(part)) TW_TRY(chunk_check(part, idx, bytes, rest, err));
    if (is_shard(part) && idx == 0) {
        memcpy(part->head, bytes, rest);
        part->has_head = true;
    }
    while (rest > 0) {
        const int64_t done = ops->write(ops->ctx, part->handle, bytes, rest, at);
        if (done == -EINTR) continue;
        if (done <= 0) return disk_fail(part, "write", done == 0 ? -EIO : done, err);
        bytes += done;
        at += (uint64_t)done;
        rest -= (uint32_t)done;
    }
    return TW_OK;
}

enum tw_status tw_data_part_check(const struct tw_data_part *part, struct tw_error *err) {
    const struct tw_fetch_file *file = file_of(part);
    TW_ASSERT(!is_shard(part) && file->bytes <= TW_DATASET_TOKENIZER_BYTES_MAX);
    uint8_t *bytes = malloc(file->bytes);
    if (bytes == NULL) return tw_fail(err, TW_NOMEM, "no memory to check the tokenizer");
    const enum tw_status status = tw_durable_read(part->folder->ops, part->handle, "the tokenizer",
                                                  bytes, file->bytes, 0, err);
    const struct tw_id hash = status == TW_OK ? tw_sha256(bytes, file->bytes) : file->hash;
    free(bytes);
    if (status == TW_CORRUPT || !tw_id_equal(&hash, &file->hash)) {
        return tw_fail(err, TW_CORRUPT, "the tokenizer that arrived is not the one of the dataset");
    }
    return status;
}

/* Another program may have changed the file since the last chunk was written. */
static enum tw_status content_check(const struct tw_data_part *part, uint8_t *scratch,
                                    struct tw_error *err) {
    uint64_t have[TW_FETCH_FILE_CHUNKS_MAX / 64];
    char name[TW_DATASET_FILE_BYTES];
    if (!is_shard(part)) return tw_data_part_check(part, err);
    if (tw_data_part_look(part, have, scratch) == tw_fetch_chunks(file_of(part))) return TW_OK;
    tw_data_folder_name(part->folder, part->file, name);
    return tw_fail(err, TW_CORRUPT, "%s.part does not hold what was written to it", name);
}

enum tw_status tw_data_part_finish(struct tw_data_part *part, uint8_t *scratch,
                                   struct tw_error *err) {
    const struct tw_data_folder *folder = part->folder;
    const struct tw_file_ops *ops = folder->ops;
    char name[TW_DATASET_FILE_BYTES], temporary[PART_NAME_BYTES];
    tw_data_folder_name(folder, part->file, name);
    part_name(folder, part->file, temporary);
    /* After a failed sync, the bytes on disk are unknown. */
    const int synced = ops->sync(ops->ctx, part->handle);
    enum tw_status status = synced < 0 ? TW_CORRUPT : content_check(part, scratch, err);
    if (synced < 0) (void)disk_fail(part, "sync", synced, err);
    if (status == TW_OK) {
        const int renamed = ops->rename(ops->ctx, folder->dir, temporary, name);
        if (renamed < 0) (void)disk_fail(part, "rename", renamed, err);
        if (renamed < 0) status = renamed == -ENOENT ? TW_CORRUPT : TW_IO;
    }
    if (status == TW_IO || status == TW_NOMEM) return status;
    tw_data_part_close(part);
    if (status == TW_CORRUPT) {
        tw_data_part_remove(folder, part->file);
        if (err != NULL) err->status = status;
        return status;
    }
    /* If a power cut loses the rename, the file is fetched again. */
    (void)ops->dir_sync(ops->ctx, folder->dir);
    return TW_OK;
}
