/* file.c - the operating system's implementation of struct tw_file_ops. */
#include "daemon/store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

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
