/* become.c - replaces this process by another Thinwire program in the same folder. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli/common/cli.h"

enum tw_exit cli_become(const char *program, int argc, char **argv) {
    char path[TW_PATH_BYTES];
    const ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 32);
    if (size <= 0) return cli_fail(TW_EXIT_FAILURE, "/proc/self/exe: %s", strerror(errno));
    path[size] = 0;
    char *const slash = strrchr(path, '/');
    (void)snprintf(slash + 1, sizeof(path) - (size_t)(slash + 1 - path), "%s", program);
    char **const args = calloc((size_t)argc + 2, sizeof(*args));
    if (args == NULL) return cli_fail(TW_EXIT_FAILURE, "out of memory");
    args[0] = path;
    for (int i = 0; i < argc; i++) args[i + 1] = argv[i];
    (void)execv(path, args);
    const int why = errno;
    free(args);
    return cli_fail(TW_EXIT_FAILURE, "%s: %s; it is installed beside thinwire, and built with it",
                    path, strerror(why));
}
