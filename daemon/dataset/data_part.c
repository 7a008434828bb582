/* data_part.c - a file of a dataset while it arrives. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/units.h"
#include "daemon/dataset/data_folder.h"
#include "daemon/store/durable.h"

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
        shard.vocab == index->vocab && shard.separator == index->separator &&
        tw_id_equal(&shard.tokenizer, &index->tokenizer);
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

/* Reserves disk space for the whole file. Leaves the space for checkpoints, which take precedence.
 */
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
