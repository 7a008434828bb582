/* become.c - replaces this process by another program of Thinwire, found by the path of this one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli/common/cli.h"

/* Where `cmake --install` puts the demo, seen from the folder of the programs. */
#define DEMO "../share/thinwire/demo/demo.py"

/* Writes the folder of this program, with a slash at its end, and `name` behind it. */
static enum tw_exit name_beside(char path[TW_PATH_BYTES], const char *name) {
    const ssize_t size = readlink("/proc/self/exe", path, TW_PATH_BYTES - 1);
    if (size <= 0) return cli_fail(TW_EXIT_FAILURE, "/proc/self/exe: %s", strerror(errno));
    path[size] = 0;
    const size_t folder = (size_t)(strrchr(path, '/') + 1 - path);
    if (strlen(name) >= TW_PATH_BYTES - folder)
        return cli_fail(TW_EXIT_FAILURE, "%s: the path is too long", path);
    memcpy(path + folder, name, strlen(name) + 1);
    return TW_EXIT_OK;
}

enum tw_exit cli_become(const char *program, int argc, char **argv) {
    char path[TW_PATH_BYTES];
    const enum tw_exit rc = name_beside(path, program);
    if (rc != TW_EXIT_OK) return rc;
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

/* thinwire demo: a program in Python, for people with the package and without the sources. */
enum tw_exit cli_demo(struct cli *cli) {
    enum { OWN_ARGS = 5 };
    char path[TW_PATH_BYTES], folder[TW_PATH_BYTES];
    char python[] = "python3", flags[] = "-uB", bin[] = "--bin";
    enum tw_exit rc = name_beside(path, DEMO);
    if (rc == TW_EXIT_OK) rc = name_beside(folder, "");
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json)
        return cli_fail(TW_EXIT_USAGE,
                        "demo: it has no --json; all numbers are in demo.json of its "
                        "output folder");
    if (access(path, R_OK) != 0)
        return cli_fail(TW_EXIT_FAILURE,
                        "demo: %s: %s; in a folder of the sources, type ./deploy/demo instead",
                        path, strerror(errno));
    char **const args = calloc((size_t)cli->argc + OWN_ARGS + 1, sizeof(*args));
    if (args == NULL) return cli_fail(TW_EXIT_FAILURE, "out of memory");
    char *const own[OWN_ARGS] = {python, flags, path, bin, folder};
    memcpy(args, own, sizeof(own));
    for (int i = 0; i < cli->argc; i++) args[OWN_ARGS + i] = cli->argv[i];
    (void)execvp(python, args);
    const int why = errno;
    free(args);
    if (why == ENOENT)
        return cli_fail(
            TW_EXIT_FAILURE,
            "demo: it is a program in Python, and python3 is not installed: install the "
            "package python3 (Arch: python), and bible-kjv unless you give a text by --text");
    return cli_fail(TW_EXIT_FAILURE, "demo: python3: %s", strerror(why));
}
