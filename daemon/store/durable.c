/* durable.c - writes a file that survives a power cut. */
#include "daemon/store/durable.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

/* Bytes after which write-back is started, so that the later sync is short. */
enum { WRITE_BACK_BYTES = 8 << 20 };

static enum tw_status io_fail(struct tw_error *err, const char *what, const char *name,
                              int64_t result) {
    const int number = (int)-result;
    const char *way_out = number == ENOSPC || number == EDQUOT
                              ? "; free some space: nothing that was saved is lost"
                              : "";
    return tw_fail(err, TW_IO, "cannot %s %s: %s%s", what, name, strerror(number), way_out);
}

enum tw_status tw_durable_begin(struct tw_durable *durable, const struct tw_file_ops *ops, int dir,
                                const char *name, uint64_t size, struct tw_error *err) {
    const size_t length = strlen(name);
    TW_ASSERT(length < TW_DURABLE_NAME_BYTES);
    memset(durable, 0, sizeof(*durable));
    durable->ops = ops;
    durable->dir = dir;
    memcpy(durable->name, name, length);
    memcpy(durable->temporary, name, length);
    memcpy(durable->temporary + length, ".tmp", 5);

    durable->file = ops->create_nameless(ops->ctx, dir);
    if (durable->file < 0) {
        (void)ops->unlink(ops->ctx, dir, durable->temporary); /* left over from an earlier crash */
        durable->file = ops->create(ops->ctx, dir, durable->temporary);
        durable->is_named = true;
    }
    if (durable->file < 0) return io_fail(err, "create", durable->temporary, durable->file);

    int reserved;
    do {
        reserved = ops->allocate(ops->ctx, durable->file, size);
    } while (reserved == -EINTR);
    if (reserved < 0 && reserved != -EOPNOTSUPP) {
        tw_durable_abort(durable);
        return io_fail(err, "reserve room for", durable->name, reserved);
    }
    return TW_OK;
}

enum tw_status tw_durable_write(struct tw_durable *durable, const void *bytes, size_t size,
                                uint64_t offset, struct tw_error *err) {
    const struct tw_file_ops *ops = durable->ops;
    const uint8_t *from = bytes;
    while (size > 0) {
        const int64_t done = ops->write(ops->ctx, durable->file, from, size, offset);
        if (done == -EINTR) continue;
        if (done <= 0) return io_fail(err, "write", durable->name, done == 0 ? -EIO : done);
        TW_ASSERT((uint64_t)done <= size);
        from += done;
        size -= (size_t)done;
        offset += (uint64_t)done;
        durable->dirty_bytes += (uint64_t)done;
        durable->unsynced_bytes += (uint64_t)done;
    }
    if (durable->unsynced_bytes >= TW_UNSYNCED_BYTES_MAX) {
        const int synced = ops->sync(ops->ctx, durable->file);
        if (synced < 0) return io_fail(err, "sync", durable->name, synced);
        durable->dirty_bytes = durable->unsynced_bytes = 0;
    } else if (durable->dirty_bytes >= WRITE_BACK_BYTES) {
        (void)ops->sync_start(ops->ctx,
                              durable->file); /* a failure does not matter: only a sync counts */
        durable->dirty_bytes = 0;
    }
    return TW_OK;
}

/* Gives the new file its final name, once its contents are durable. */
static enum tw_status publish_file(struct tw_durable *durable, struct tw_error *err) {
    const struct tw_file_ops *ops = durable->ops;
    int result;
    if (!durable->is_named) {
        (void)ops->unlink(ops->ctx, durable->dir,
                          durable->temporary); /* left over from an earlier crash */
        result = ops->link(ops->ctx, durable->file, durable->dir, durable->temporary);
        if (result < 0) return io_fail(err, "name", durable->temporary, result);
        durable->is_named = true;
    }
    result = ops->rename(ops->ctx, durable->dir, durable->temporary, durable->name);
    if (result < 0) return io_fail(err, "replace", durable->name, result);
    durable->is_named = false;
    result = ops->dir_sync(ops->ctx, durable->dir);
    if (result < 0) return io_fail(err, "sync the folder of", durable->name, result);
    return TW_OK;
}

enum tw_status tw_durable_commit(struct tw_durable *durable, struct tw_error *err) {
    const struct tw_file_ops *ops = durable->ops;
    const int synced = ops->sync(ops->ctx, durable->file);
    const enum tw_status status =
        synced < 0 ? io_fail(err, "sync", durable->name, synced) : publish_file(durable, err);
    if (status != TW_OK) {
        tw_durable_abort(durable);
        return status;
    }
    /* Contents and name are on disk, so a failing close does not matter. */
    (void)ops->close(ops->ctx, durable->file);
    durable->file = -1;
    return TW_OK;
}

void tw_durable_abort(struct tw_durable *durable) {
    const struct tw_file_ops *ops = durable->ops;
    (void)ops->close(ops->ctx, durable->file);
    if (durable->is_named) (void)ops->unlink(ops->ctx, durable->dir, durable->temporary);
    durable->file = -1;
}

enum tw_status tw_durable_read(const struct tw_file_ops *ops, int file, const char *name,
                               void *bytes, size_t size, uint64_t offset, struct tw_error *err) {
    uint8_t *to = bytes;
    while (size > 0) {
        const int64_t done = ops->read(ops->ctx, file, to, size, offset);
        if (done == -EINTR) continue;
        if (done < 0) return io_fail(err, "read", name, done);
        if (done == 0) return tw_fail(err, TW_CORRUPT, "%s ends too early", name);
        TW_ASSERT((uint64_t)done <= size);
        to += done;
        size -= (size_t)done;
        offset += (uint64_t)done;
    }
    return TW_OK;
}
