#include "daemon/store/cache_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

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
