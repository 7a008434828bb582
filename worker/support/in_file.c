#include "worker/support/in_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
