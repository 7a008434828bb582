#include "daemon/auth/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

static enum tw_status private_check(int fd, const char *path, struct tw_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return tw_fail(err, TW_IO, "stat %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return tw_fail(err, TW_CONFIG, "%s is not a regular file", path);
    if (st.st_uid != geteuid()) {
        return tw_fail(
            err, TW_CONFIG,
            "%s belongs to uid %u, but this process runs as uid %u: run it as the owner, "
            "or `chown %u %s`",
            path, (unsigned)st.st_uid, (unsigned)geteuid(), (unsigned)geteuid(), path);
    }
    if ((st.st_mode & 077) != 0) {
        return tw_fail(err, TW_CONFIG,
                       "%s can be read by others (mode %03o): `chmod 600 %s`; if others may have "
                       "read it, make a new one",
                       path, (unsigned)(st.st_mode & 0777), path);
    }
    return TW_OK;
}

enum tw_status tw_private_read(const char *path, char *text, size_t capacity, size_t *size_out,
                               struct tw_error *err) {
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (errno == ENOENT)
            return tw_fail(err, TW_CONFIG, "%s does not exist: `thinwire init` makes it", path);
        if (errno == ELOOP)
            return tw_fail(err, TW_CONFIG, "%s is a symbolic link: name the file itself", path);
        return tw_fail(err, TW_CONFIG, "open %s: %s", path, strerror(errno));
    }
    enum tw_status status = private_check(fd, path, err);
    size_t size = 0;
    while (status == TW_OK && size < capacity) {
        const ssize_t got = read(fd, text + size, capacity - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = tw_fail(err, TW_IO, "read %s: %s", path, strerror(errno));
        if (got <= 0) break;
        size += (size_t)got;
    }
    (void)close(fd);
    if (status == TW_OK && size == capacity)
        status = tw_fail(err, TW_CONFIG, "%s is larger than any key: wrong file?", path);
    if (status != TW_OK) {
        OPENSSL_cleanse(text, capacity);
        return status;
    }
    text[size] = '\0';
    *size_out = size;
    return TW_OK;
}

enum tw_status tw_folder_sync(const char *path, struct tw_error *err) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
    if (length >= sizeof(folder)) return tw_fail(err, TW_CONFIG, "path too long: %.80s...", path);
    memcpy(folder, slash == NULL ? "." : path, length);
    folder[length] = '\0';
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tw_fail(err, TW_IO, "open %s: %s", folder, strerror(errno));
    const int failed = fsync(fd);
    const int saved = errno;
    (void)close(fd);
    return failed ? tw_fail(err, TW_IO, "fsync %s: %s", folder, strerror(saved)) : TW_OK;
}

enum tw_status tw_private_create(const char *path, const char *text, size_t size,
                                 struct tw_error *err) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        if (errno == EEXIST)
            return tw_fail(
                err, TW_CONFIG,
                "%s exists already and is kept: move it away first if you want a new one", path);
        return tw_fail(err, TW_IO, "create %s: %s", path, strerror(errno));
    }
    enum tw_status status = TW_OK;
    if (fchmod(fd, 0600) != 0)
        status = tw_fail(err, TW_IO, "chmod 600 %s: %s", path, strerror(errno));
    for (size_t done = 0; status == TW_OK && done < size;) {
        const ssize_t put = write(fd, text + done, size - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            status = tw_fail(err, TW_IO, "write %s: %s", path, strerror(errno));
            break;
        }
        done += (size_t)put;
    }
    if (status == TW_OK && fsync(fd) != 0)
        status = tw_fail(err, TW_IO, "fsync %s: %s", path, strerror(errno));
    (void)close(fd);
    if (status == TW_OK) status = tw_folder_sync(path, err);
    if (status != TW_OK) (void)unlink(path);
    return status;
}

enum tw_status tw_private_replace(const char *path, const char *text, size_t size,
                                  struct tw_error *err) {
    char fresh[PATH_MAX];
    const int length = snprintf(fresh, sizeof(fresh), "%s.new", path);
    if (length < 0 || (size_t)length >= sizeof(fresh))
        return tw_fail(err, TW_CONFIG, "path too long: %.80s...", path);
    (void)unlink(fresh); /* temporary file of an interrupted replacement */
    TW_TRY(tw_private_create(fresh, text, size, err));
    if (rename(fresh, path) != 0) {
        const int why = errno;
        (void)unlink(fresh);
        return tw_fail(err, TW_IO, "rename %s: %s", fresh, strerror(why));
    }
    return tw_folder_sync(path, err);
}
