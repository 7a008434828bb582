#include "daemon/node/cache_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

size_t tw_cache_file_load(const struct tw_setup *setup, const char *name, char *text,
                          size_t capacity) {
    char path[TW_PATH_BYTES + 16];
    (void)snprintf(path, sizeof(path), "%s/%s", setup->run_state_dir, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t size = read(fd, text, capacity);
    (void)close(fd);
    return size > 0 ? (size_t)size : 0;
}

/* Runs on the loop: at most a few hundred short lines, once a minute. */
void tw_cache_file_save(const struct tw_setup *setup, const char *name, const char *text,
                        size_t size) {
    char path[TW_PATH_BYTES + 16], temporary[TW_PATH_BYTES + 24];
    (void)snprintf(path, sizeof(path), "%s/%s", setup->run_state_dir, name);
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    const bool ok = write(fd, text, size) == (ssize_t)size;
    (void)close(fd);
    if (ok && rename(temporary, path) == 0) return;
    (void)unlink(temporary);
}
