/* vote_store.c - two small files, written alternately, and a strict check that they fit together.
 *
 *   "TWVOTE03" | u64 sequence | u32 bytes | vote | SHA-256 of all before it */
#include "daemon/store/vote_store.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "daemon/store/file.h"
#include "sync/core/position.h"

enum {
    FILES = 2,
    HEAD_BYTES = 20,
    HASH_BYTES = 32,
    FILE_BYTES_MAX = HEAD_BYTES + TW_VOTE_BYTES_MAX + HASH_BYTES,
    FOUL_STEP = 1 << 20,
};

static const char magic[8] = {'T', 'W', 'V', 'O', 'T', 'E', '0', '3'};
static const char *const file_names[FILES] = {"vote.a", "vote.b"};

/* Votes with odd sequence numbers are in the first file. */
static const char *name_of(uint64_t sequence) {
    return file_names[(sequence + 1) % FILES];
}

struct found {
    bool exists, is_intact;
    uint64_t sequence;
    struct tw_vote vote;
};

static enum tw_status decode_file(const uint8_t *bytes, size_t size, struct found *found,
                                  struct tw_error *err) {
    if (size < HEAD_BYTES + HASH_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0) {
        return tw_fail(err, TW_CORRUPT, "it is no vote file");
    }
    const struct tw_id hash = tw_sha256(bytes, size - HASH_BYTES);
    if (memcmp(hash.bytes, bytes + size - HASH_BYTES, HASH_BYTES) != 0) {
        return tw_fail(err, TW_CORRUPT, "it does not match its SHA-256");
    }
    found->sequence = tw_get_u64(bytes + 8);
    if (tw_get_u32(bytes + 16) != size - HEAD_BYTES - HASH_BYTES || found->sequence == 0 ||
        found->sequence > UINT64_MAX / 2) {
        return tw_fail(err, TW_CORRUPT, "its head is wrong");
    }
    return tw_vote_decode(bytes + HEAD_BYTES, size - HEAD_BYTES - HASH_BYTES, &found->vote, err);
}

static enum tw_status read_bytes(const struct tw_vote_store *store, int file, const char *name,
                                 struct found *found, struct tw_error *err) {
    uint8_t bytes[FILE_BYTES_MAX];
    const int64_t size = store->ops->size(store->ops->ctx, file);
    if (size < 0) return tw_fail(err, TW_IO, "%s", strerror((int)-size));
    if (size > FILE_BYTES_MAX) return tw_fail(err, TW_CORRUPT, "it is too long");
    TW_TRY(tw_durable_read(store->ops, file, name, bytes, (size_t)size, 0, err));
    return decode_file(bytes, (size_t)size, found, err);
}

/* Reads one file into *found. If it exists but is not intact, returns the status of the failure. */
static enum tw_status try_file(const struct tw_vote_store *store, const char *name,
                               struct found *found, struct tw_error *err) {
    struct tw_error inner = {.status = TW_OK};
    const int file = store->ops->open(store->ops->ctx, store->dir, name);
    found->is_intact = false;
    found->exists = file != -ENOENT;
    if (!found->exists) return TW_OK;
    if (file < 0) return tw_fail(err, TW_IO, "%s cannot be opened: %s", name, strerror(-file));
    const enum tw_status status = read_bytes(store, file, name, found, &inner);
    (void)store->ops->close(store->ops->ctx, file);
    found->is_intact = status == TW_OK;
    return status == TW_OK ? TW_OK : tw_fail(err, status, "%s: %.200s", name, inner.message);
}

/* Tries an unreadable file twice: a transient error must not cost the membership. */
static void read_file(const struct tw_vote_store *store, const char *name, struct found *found,
                      struct tw_error *err) {
    if (try_file(store, name, found, err) == TW_IO) (void)try_file(store, name, found, err);
}

/* Returns the newest vote if the two files prove that it is the newest, else NULL. */
static const struct found *find_newest(const struct found *files, struct tw_error *err) {
    for (int i = 0; i < FILES; i++) {
        if (files[i].exists && !files[i].is_intact) return NULL; /* err is set */
        if (files[i].exists && strcmp(name_of(files[i].sequence), file_names[i]) != 0) {
            (void)tw_fail(err, TW_CORRUPT, "%s is a copy of the other file", file_names[i]);
            return NULL;
        }
    }
    if (files[0].exists && files[1].exists) {
        const struct found *last = files[0].sequence > files[1].sequence ? &files[0] : &files[1];
        const struct found *before = last == &files[0] ? &files[1] : &files[0];
        if (last->sequence == before->sequence + 1) return last;
        (void)tw_fail(err, TW_CORRUPT, "the vote files are not of two saves in a row");
        return NULL;
    }
    if (files[0].exists && files[0].sequence == 1) return &files[0];
    (void)tw_fail(err, TW_CORRUPT, "%s is missing", files[0].exists ? "vote.b" : "vote.a");
    return NULL;
}

enum tw_status tw_vote_store_open(struct tw_vote_store *store, const struct tw_file_ops *ops,
                                  const char *dir_path, struct tw_vote *vote,
                                  enum tw_vote_found *found, struct tw_error *err) {
    struct found files[FILES];
    memset(store, 0, sizeof(*store));
    store->ops = ops;
    store->dir = ops->dir_open(ops->ctx, dir_path);
    if (store->dir < 0) {
        return tw_fail(err, TW_IO, "cannot open the folder of votes %s: %s", dir_path,
                       strerror(-store->dir));
    }
    for (int i = 0; i < FILES; i++) read_file(store, file_names[i], &files[i], err);
    *found = TW_VOTE_NONE;
    if (!files[0].exists && !files[1].exists) return TW_OK;
    const struct found *last = find_newest(files, err);
    store->is_foul = last == NULL;
    *found = last == NULL ? TW_VOTE_CORRUPT : TW_VOTE_VALID;
    for (int i = 0; i < FILES; i++) {
        const bool counts = files[i].exists && files[i].is_intact;
        if (counts && files[i].sequence > store->sequence) store->sequence = files[i].sequence;
    }
    if (last == NULL) return TW_OK;
    *vote = last->vote;
    return TW_OK;
}

static enum tw_status write_file(struct tw_vote_store *store, const struct tw_vote *vote,
                                 uint64_t sequence, struct tw_error *err) {
    uint8_t bytes[FILE_BYTES_MAX];
    struct tw_durable durable;
    const size_t vote_bytes = tw_vote_encode(vote, bytes + HEAD_BYTES);
    const size_t size = HEAD_BYTES + vote_bytes;
    memcpy(bytes, magic, sizeof(magic));
    tw_put_u64(bytes + 8, sequence);
    tw_put_u32(bytes + 16, (uint32_t)vote_bytes);
    const struct tw_id hash = tw_sha256(bytes, size);
    memcpy(bytes + size, hash.bytes, HASH_BYTES);

    TW_TRY(tw_durable_begin(&durable, store->ops, store->dir, name_of(sequence), size + HASH_BYTES,
                            err));
    const enum tw_status status = tw_durable_write(&durable, bytes, size + HASH_BYTES, 0, err);
    if (status != TW_OK) {
        tw_durable_abort(&durable);
        return status;
    }
    return tw_durable_commit(&durable, err);
}

enum tw_status tw_vote_store_save(struct tw_vote_store *store, const struct tw_vote *vote,
                                  struct tw_error *err) {
    if (store->is_foul) {
        /* Skips far ahead and writes both files. Until the second one is written, the two still
         * read as CORRUPT, so a crash in between cannot bring an old vote back. */
        TW_TRY(write_file(store, vote, store->sequence + FOUL_STEP, err));
        TW_TRY(write_file(store, vote, store->sequence + FOUL_STEP + 1, err));
        store->sequence += FOUL_STEP + 1;
        store->is_foul = false;
        return TW_OK;
    }
    TW_TRY(write_file(store, vote, store->sequence + 1, err));
    store->sequence++;
    return TW_OK;
}

void tw_vote_store_close(struct tw_vote_store *store) {
    if (store->dir >= 0) (void)store->ops->close(store->ops->ctx, store->dir);
    store->dir = -1;
}
