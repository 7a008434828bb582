/* file.c - the operating system's implementation of struct tw_file_ops. */
#include "daemon/store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"

/* ==== the table of system calls =============================================================== */

enum { PROC_PATH_BYTES = 40, SHARED_MODE = 0640 };

static int result(int value) {
    return value < 0 ? -errno : value;
}

static int sys_dir_open(void *ctx, const char *path) {
    (void)ctx;
    return result(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int sys_sync(void *ctx, int file) {
    (void)ctx;
    return result(fsync(file));
}

/* linkat needs a capability to link a descriptor itself, but not to link its path in /proc. */
static void proc_path(int file, char path[PROC_PATH_BYTES]) {
    (void)snprintf(path, PROC_PATH_BYTES, "/proc/self/fd/%d", file);
}

static int sys_create_nameless(void *ctx, int dir) {
    char path[PROC_PATH_BYTES];
    (void)ctx;
    const int file = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) return -errno;
    /* Without /proc the file could never get a name: fail early. */
    proc_path(file, path);
    if (faccessat(AT_FDCWD, path, F_OK, 0) == 0) return file;
    (void)close(file);
    return -EOPNOTSUPP;
}

static int sys_create(void *ctx, int dir, const char *name) {
    (void)ctx;
    return result(openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
}

/* O_NONBLOCK: a FIFO in place of the file must not block the daemon. Regular files ignore the flag.
 */
static int sys_open(void *ctx, int dir, const char *name) {
    (void)ctx;
    return result(openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

static int sys_open_write(void *ctx, int dir, const char *name) {
    (void)ctx;
    return result(openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

/* Not posix_fallocate: on file systems that cannot reserve space, it would write every block. */
static int sys_allocate(void *ctx, int file, uint64_t size) {
    (void)ctx;
    if (size > INT64_MAX) return -EFBIG;
    return result(fallocate(file, 0, 0, (off_t)size));
}

static int64_t sys_write(void *ctx, int file, const void *bytes, size_t size, uint64_t offset) {
    (void)ctx;
    const ssize_t done = pwrite(file, bytes, size, (off_t)offset);
    return done < 0 ? -errno : done;
}

static int64_t sys_read(void *ctx, int file, void *bytes, size_t size, uint64_t offset) {
    (void)ctx;
    const ssize_t done = pread(file, bytes, size, (off_t)offset);
    return done < 0 ? -errno : done;
}

static int64_t sys_size(void *ctx, int file) {
    struct stat about;
    (void)ctx;
    if (fstat(file, &about) < 0) return -errno;
    return S_ISREG(about.st_mode) ? about.st_size : -EINVAL;
}

static int64_t sys_room(void *ctx, int dir) {
    struct statvfs about;
    (void)ctx;
    if (fstatvfs(dir, &about) < 0) return -errno;
    const uint64_t most = INT64_MAX / about.f_frsize;
    return (int64_t)((about.f_bavail < most ? about.f_bavail : most) * about.f_frsize);
}

static int sys_sync_start(void *ctx, int file) {
    (void)ctx;
    return result(sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE));
}

static int sys_link(void *ctx, int file, int dir, const char *name) {
    char path[PROC_PATH_BYTES];
    (void)ctx;
    proc_path(file, path);
    return result(linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW));
}

static int sys_rename(void *ctx, int dir, const char *from, const char *to) {
    (void)ctx;
    return result(renameat(dir, from, dir, to));
}

static int sys_unlink(void *ctx, int dir, const char *name) {
    (void)ctx;
    return result(unlinkat(dir, name, 0));
}

static int sys_close(void *ctx, int handle) {
    (void)ctx;
    return result(close(handle));
}

/* Sets the mode explicitly, because the umask (0077 in a service) has restricted it. */
static int share(int file) {
    if (file < 0 || fchmod(file, SHARED_MODE) == 0) return file;
    const int reason = errno;
    (void)close(file);
    return -reason;
}

static int sys_create_nameless_shared(void *ctx, int dir) {
    return share(sys_create_nameless(ctx, dir));
}

static int sys_create_shared(void *ctx, int dir, const char *name) {
    return share(sys_create(ctx, dir, name));
}

const struct tw_file_ops *tw_file_system(void) {
    static const struct tw_file_ops ops = {
        .dir_open = sys_dir_open,
        .dir_sync = sys_sync,
        .create_nameless = sys_create_nameless,
        .create = sys_create,
        .open = sys_open,
        .open_write = sys_open_write,
        .allocate = sys_allocate,
        .write = sys_write,
        .read = sys_read,
        .size = sys_size,
        .room = sys_room,
        .sync_start = sys_sync_start,
        .sync = sys_sync,
        .link = sys_link,
        .rename = sys_rename,
        .unlink = sys_unlink,
        .close = sys_close,
    };
    return &ops;
}

const struct tw_file_ops *tw_file_system_shared(void) {
    static struct tw_file_ops ops;
    ops = *tw_file_system();
    ops.create_nameless = sys_create_nameless_shared;
    ops.create = sys_create_shared;
    return &ops;
}

/* ==== files that survive a power cut ========================================================== */

/* Writes a file that survives a power cut. */

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

/* ==== texts that may be lost ================================================================== */

enum { PATH_BYTES = 1024 + 32 };

/* Returns false if the path is too long. */
static bool make_path(char path[PATH_BYTES], const char *folder, const char *name,
                      const char *suffix) {
    const int length = snprintf(path, PATH_BYTES, "%s/%s%s", folder, name, suffix);
    return length > 0 && length < PATH_BYTES;
}

size_t tw_cache_file_load(const char *folder, const char *name, char *text, size_t capacity) {
    char path[PATH_BYTES];
    if (!make_path(path, folder, name, "")) return 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t size = read(fd, text, capacity);
    (void)close(fd);
    return size > 0 ? (size_t)size : 0;
}

/* Runs on the loop: the text is at most a few hundred short lines, once a minute. */
void tw_cache_file_save(const char *folder, const char *name, const char *text, size_t size) {
    char path[PATH_BYTES], temporary[PATH_BYTES];
    if (!make_path(path, folder, name, "") || !make_path(temporary, folder, name, ".tmp")) return;
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    const bool ok = write(fd, text, size) == (ssize_t)size;
    (void)close(fd);
    if (ok && rename(temporary, path) == 0) return;
    (void)unlink(temporary);
}
