#include "worker/support/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

/* ---- input files ----------------------------------------------------------------------------- */

enum tw_status tw_in_open(const char *path, int *fd_out, uint64_t *bytes, struct tw_error *err) {
    struct stat info;
    /* Without O_NONBLOCK, opening a FIFO would block before it is refused. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return tw_fail(err, TW_IO, "%.160s: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        (void)close(fd);
        return tw_fail(err, TW_IO, "%.160s is not a regular file", path);
    }
    *fd_out = fd;
    *bytes = (uint64_t)info.st_size;
    return TW_OK;
}

int tw_in_read_at(int fd, void *to, size_t size, uint64_t at) {
    char *into = to;
    while (size > 0) {
        const ssize_t n = pread(fd, into, size, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? ENODATA : errno;
        into += n;
        size -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

const char *tw_in_reason(int why) {
    return why == ENODATA ? "it ended while it was read" : strerror(why);
}

enum tw_status tw_in_read_whole(const char *path, size_t bytes_max, char **text, size_t *size,
                                struct tw_error *err) {
    int fd = -1;
    uint64_t bytes = 0;
    *text = NULL;
    TW_TRY(tw_in_open(path, &fd, &bytes, err));
    enum tw_status status = TW_OK;
    if (bytes > bytes_max) {
        status = tw_fail(err, TW_CONFIG,
                         "%.160s has %llu bytes, and at most %zu are read: is it the right file?",
                         path, (unsigned long long)bytes, bytes_max);
    } else if ((*text = malloc(bytes + 1)) == NULL) {
        status = tw_fail(err, TW_NOMEM, "no memory for the %llu bytes of %.160s",
                         (unsigned long long)bytes, path);
    } else {
        const int why = tw_in_read_at(fd, *text, bytes, 0);
        if (why != 0) status = tw_fail(err, TW_IO, "%.160s: %s", path, tw_in_reason(why));
        (*text)[bytes] = 0;
        *size = bytes;
    }
    (void)close(fd);
    if (status == TW_OK) return TW_OK;
    free(*text);
    *text = NULL;
    return status;
}

/* ---- output files ---------------------------------------------------------------------------- */

static enum tw_status is_taken(const char *path, struct tw_error *err) {
    return tw_fail(err, TW_CONFIG, "%s exists and is not overwritten; choose another --out", path);
}

enum tw_status tw_out_is_free(const char *path, struct tw_error *err) {
    struct stat info;
    return lstat(path, &info) == 0 ? is_taken(path, err) : TW_OK;
}

static enum tw_status set_paths(struct tw_out_file *file, const char *path, struct tw_error *err) {
    file->fd = file->seen_fd = -1;
    file->at = 0;
    if (strlen(path) >= sizeof(file->path)) {
        return tw_fail(err, TW_CONFIG, "a path has at most %d bytes: %.60s...",
                       TW_OUT_PATH_BYTES - 1, path);
    }
    (void)snprintf(file->path, sizeof(file->path), "%s", path);
    (void)snprintf(file->part, sizeof(file->part), "%s.part", path);
    return TW_OK;
}

static bool is_at(int fd, const char *path) {
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && lstat(path, &named) == 0 &&
           open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

/* Returns the number in an environment variable; UINT32_MAX: there is none. */
static uint32_t number_of(const char *name) {
    const char *const text = getenv(name);
    char *end = NULL;
    const unsigned long number = text != NULL ? strtoul(text, &end, 10) : UINT32_MAX;
    return text != NULL && end != text && *end == 0 && number < UINT32_MAX ? (uint32_t)number
                                                                           : UINT32_MAX;
}

void tw_out_give(int fd) {
    const uint32_t user = number_of("SUDO_UID"), group = number_of("SUDO_GID");
    if (geteuid() != 0 || user == UINT32_MAX || group == UINT32_MAX) return;
    /* it fails where the file system itself says whose a file is */
    if (fchown(fd, user, group) != 0) return;
}

/* Opens PATH.part, empties it and locks it for this process. On failure file->fd is -1. */
static enum tw_status take_part(struct tw_out_file *file, struct tw_error *err) {
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat info;
    bool is_new = true;
    int fd = open(file->part, flags | O_EXCL, 0666);
    if (fd < 0 && errno == EEXIST) {
        is_new = false;
        if (lstat(file->part, &info) == 0 && !S_ISREG(info.st_mode)) {
            return tw_fail(err, TW_CONFIG, "%s is in the way; remove it or choose another --out",
                           file->part);
        }
        fd = open(file->part, flags, 0666);
    }
    if (fd < 0) {
        return tw_fail(err, TW_IO, "cannot write %s: %s; choose another --out", file->part,
                       strerror(errno));
    }
    /* On a file system without file locks, only a newly created file certainly belongs to this
     * process. */
    const bool is_locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || (is_new && errno != EWOULDBLOCK);
    /* the lock failed, or PATH.part was renamed or removed meanwhile */
    if (!is_locked || !is_at(fd, file->part)) {
        (void)close(fd);
        return tw_fail(err, TW_CONFIG,
                       "%s is being written by another process; choose another --out, or end that "
                       "one and remove the file",
                       file->part);
    }
    if (is_new) tw_out_give(fd);
    file->fd = fd;
    file->at = 0;
    if (ftruncate(fd, 0) == 0) return TW_OK;
    const int why = errno;
    file->fd = -1;
    (void)unlink(file->part);
    (void)close(fd);
    return tw_fail(err, TW_IO, "%s: %s", file->part, strerror(why));
}

enum tw_status tw_out_open(struct tw_out_file *file, const char *path, uint64_t bytes,
                           struct tw_error *err) {
    TW_TRY(set_paths(file, path, err));
    TW_TRY(tw_out_is_free(path, err));
    TW_TRY(take_part(file, err));
    /* Not every file system can reserve space. On one that can, a full disk is reported early. */
    if (bytes > 0 && fallocate(file->fd, 0, 0, (off_t)bytes) != 0 &&
        (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
        const int why = errno;
        tw_out_abort(file);
        return tw_fail(err, TW_IO, "%s needs %.1f MB: %s", file->path, (double)bytes / 1e6,
                       strerror(why));
    }
    return TW_OK;
}

enum tw_status tw_out_write(struct tw_out_file *file, const void *bytes, size_t size,
                            struct tw_error *err) {
    const char *from = bytes;
    while (size > 0) {
        const ssize_t n = write(file->fd, from, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            const int why = n == 0 ? ENOSPC : errno;
            return tw_fail(err, TW_IO, "%s: %s after %.1f MB%s", file->part, strerror(why),
                           (double)file->at / 1e6,
                           why == ENOSPC || why == EDQUOT
                               ? "; free some space and run the command again"
                               : "");
        }
        from += n;
        size -= (size_t)n;
        file->at += (uint64_t)n;
    }
    return TW_OK;
}

bool tw_out_sync_folder(const char *path) {
    char folder[TW_OUT_PATH_BYTES];
    const char *const slash = strrchr(path, '/');
    const size_t size = slash == NULL ? 0 : (size_t)(slash - path);
    TW_ASSERT(size + 2 <= sizeof(folder));
    memcpy(folder, path, size);
    memcpy(folder + size, slash == NULL ? "." : "/", 2);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* The folder is writable but not readable: accept it without a sync. */
    if (fd < 0) return errno == EACCES;
    const bool is_synced = fsync(fd) == 0 || errno == EINVAL;
    const int why = errno;
    (void)close(fd);
    errno = why;
    return is_synced;
}

enum tw_status tw_out_rename(const char *from, const char *to, struct tw_error *err) {
    int failed = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    /* the file system cannot rename without replacing */
    if (failed != 0 && (errno == EINVAL || errno == ENOSYS)) {
        TW_TRY(tw_out_is_free(to, err));
        failed = rename(from, to);
    }
    if (failed != 0 && errno == EEXIST) return is_taken(to, err);
    if (failed == 0 && !tw_out_sync_folder(to)) {
        failed = errno;
        /* restores the old name, under which the caller can remove the file */
        (void)rename(to, from);
        errno = failed;
    }
    return failed == 0 ? TW_OK : tw_fail(err, TW_IO, "%s: %s", to, strerror(errno));
}

enum tw_status tw_out_commit(struct tw_out_file *file, struct tw_error *err) {
    struct stat info;
    /* fallocate may have made the file longer than the bytes written. */
    const bool is_whole =
        fstat(file->fd, &info) == 0 &&
        ((uint64_t)info.st_size == file->at || ftruncate(file->fd, (off_t)file->at) == 0) &&
        fsync(file->fd) == 0;
    const int why = errno;
    /* PATH.part stays locked until the rename: without a lock, it would look like a leftover of a
     * dead process. */
    const int lock = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    const bool is_closed = close(file->fd) == 0;
    file->fd = -1;
    enum tw_status status = TW_OK;
    if (!is_whole || !is_closed) {
        status = tw_fail(err, TW_IO, "%s: %s", file->part, strerror(is_whole ? errno : why));
    }
    if (status == TW_OK) status = tw_out_rename(file->part, file->path, err);
    if (status != TW_OK) (void)unlink(file->part);
    if (lock >= 0) (void)close(lock);
    return status;
}

/* ---- held files ------------------------------------------------------------------------------ */

enum tw_status tw_out_hold(struct tw_out_file *file, const char *path, struct tw_error *err) {
    TW_TRY(set_paths(file, path, err));
    TW_TRY(take_part(file, err));
    file->seen_fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return TW_OK;
}

enum tw_status tw_out_rewind(struct tw_out_file *file, struct tw_error *err) {
    /* another process removed the held PATH.part */
    if (file->fd >= 0 && !is_at(file->fd, file->part)) {
        (void)close(file->fd);
        file->fd = -1;
    }
    if (file->fd < 0) return take_part(file, err);
    if (ftruncate(file->fd, 0) != 0 || lseek(file->fd, 0, SEEK_SET) != 0) {
        return tw_fail(err, TW_IO, "%s: %s", file->part, strerror(errno));
    }
    file->at = 0;
    return TW_OK;
}

/* Renames PATH.part to PATH if PATH is the recorded file or does not exist. */
static enum tw_status put_in_place(const struct tw_out_file *file, struct tw_error *err) {
    struct stat info;
    if (lstat(file->path, &info) != 0) return tw_out_rename(file->part, file->path, err);
    if (file->seen_fd < 0 || !is_at(file->seen_fd, file->path)) {
        return tw_fail(err, TW_CONFIG,
                       "%s is another file than this one began with, and is not overwritten; move "
                       "it away or choose another --out",
                       file->path);
    }
    if (rename(file->part, file->path) == 0) {
        (void)tw_out_sync_folder(file->path); /* a failure is harmless: either version is valid */
        return TW_OK;
    }
    return tw_fail(err, TW_IO, "%s: %s", file->path, strerror(errno));
}

enum tw_status tw_out_save(struct tw_out_file *file, struct tw_error *err) {
    if (fsync(file->fd) != 0) {
        return tw_fail(err, TW_IO, "%s: %s", file->part, strerror(errno));
    }
    if (!is_at(file->fd, file->part)) {
        return tw_fail(err, TW_CONFIG, "%s was replaced or removed by another process", file->part);
    }
    TW_TRY(put_in_place(file, err));
    if (file->seen_fd >= 0) (void)close(file->seen_fd);
    file->seen_fd = file->fd;
    file->fd = -1;
    (void)take_part(file, NULL); /* if this fails, the next save tries again */
    return TW_OK;
}

void tw_out_abort(struct tw_out_file *file) {
    if (file->seen_fd >= 0) (void)close(file->seen_fd);
    file->seen_fd = -1;
    if (file->fd < 0) return;
    /* removes the file before its lock is released */
    if (is_at(file->fd, file->part)) (void)unlink(file->part);
    (void)close(file->fd);
    file->fd = -1;
}
