#include "daemon/auth/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

/* ---- whose file it is ---------------------------------------------------------------------- */

/* Writes the folder of `path`. Returns false if it is too long. */
static bool folder_of(const char *path, char folder[PATH_MAX]) {
    const char *const slash = strrchr(path, '/');
    const size_t length = slash == NULL || slash == path ? 1 : (size_t)(slash - path);
    if (length >= PATH_MAX) return false;
    memcpy(folder, slash == NULL ? "." : path, length);
    folder[length] = '\0';
    return true;
}

uint32_t tw_private_owner(const char *folder) {
    struct stat info;
    const uid_t own = geteuid();
    return own == 0 && stat(folder, &info) == 0 ? info.st_uid : own;
}

const char *tw_user_name(uint32_t uid, char name[TW_USER_NAME_BYTES]) {
    const struct passwd *const user = getpwuid(uid);
    if (user != NULL)
        (void)snprintf(name, TW_USER_NAME_BYTES, "%s", user->pw_name);
    else
        (void)snprintf(name, TW_USER_NAME_BYTES, "%u", (unsigned)uid);
    return name;
}

/* Returns TW_CONFIG, with the command that gives the file back to its user. */
static enum tw_status wrong_owner(const char *path, uint32_t found, uint32_t owner,
                                  struct tw_error *err) {
    char has[TW_USER_NAME_BYTES], wants[TW_USER_NAME_BYTES];
    (void)tw_user_name(found, has);
    (void)tw_user_name(owner, wants);
    if (owner == 0) /* nothing is given to root: a service could then not read it */
        return tw_fail(err, TW_CONFIG, "%s belongs to user %s, and this is root; run it as user %s",
                       path, has, has);
    return tw_fail(err, TW_CONFIG,
                   "%s belongs to user %s, and user %s needs it; `sudo chown %s: %s`", path, has,
                   wants, wants, path);
}

static enum tw_status private_check(int fd, const char *path, uint32_t owner,
                                    struct tw_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return tw_fail(err, TW_IO, "stat %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return tw_fail(err, TW_CONFIG, "%s is not a regular file", path);
    if (st.st_uid != owner) return wrong_owner(path, st.st_uid, owner, err);
    if ((st.st_mode & 077) != 0) {
        return tw_fail(err, TW_CONFIG,
                       "%s can be read by others (mode %03o); `chmod 600 %s`, and if others may "
                       "have read it, make a new one",
                       path, (unsigned)(st.st_mode & 0777), path);
    }
    return TW_OK;
}

/* Returns TW_CONFIG: the file cannot be opened, for the reason in errno. */
static enum tw_status not_opened(const char *path, uint32_t owner, struct tw_error *err) {
    const int why = errno;
    struct stat st;
    char name[TW_USER_NAME_BYTES];
    if (why == ENOENT)
        return tw_fail(err, TW_CONFIG, "%s does not exist; `thinwire init` makes it", path);
    if (why == ELOOP)
        return tw_fail(err, TW_CONFIG, "%s is a symbolic link; name the file itself", path);
    if (why == EACCES && lstat(path, &st) == 0 && st.st_uid != owner)
        return wrong_owner(path, st.st_uid, owner, err);
    if (why == EACCES)
        return tw_fail(err, TW_CONFIG, "user %s may not open %s; use sudo",
                       tw_user_name(owner, name), path);
    return tw_fail(err, TW_CONFIG, "open %s: %s", path, strerror(why));
}

/* ---- files --------------------------------------------------------------------------------- */

enum tw_status tw_private_read(const char *path, char *text, size_t capacity, size_t *size_out,
                               struct tw_error *err) {
    char folder[PATH_MAX];
    if (!folder_of(path, folder)) return tw_fail(err, TW_CONFIG, "path too long: %.80s...", path);
    const uint32_t owner = tw_private_owner(folder);
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return not_opened(path, owner, err);
    enum tw_status status = private_check(fd, path, owner, err);
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
    if (!folder_of(path, folder)) return tw_fail(err, TW_CONFIG, "path too long: %.80s...", path);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tw_fail(err, TW_IO, "open %s: %s", folder, strerror(errno));
    const int failed = fsync(fd);
    const int saved = errno;
    (void)close(fd);
    return failed ? tw_fail(err, TW_IO, "fsync %s: %s", folder, strerror(saved)) : TW_OK;
}

/* Gives a file that root makes to the owner of its folder. */
static bool hand_over(int fd, const char *path) {
    char folder[PATH_MAX];
    struct stat info;
    if (geteuid() != 0) return true;
    if (!folder_of(path, folder) || stat(folder, &info) != 0) return false;
    return info.st_uid == 0 || fchown(fd, info.st_uid, info.st_gid) == 0;
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
    else if (!hand_over(fd, path))
        status =
            tw_fail(err, TW_IO, "chown %s to the owner of its folder: %s", path, strerror(errno));
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
