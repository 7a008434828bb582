#include "worker/engine/plans_folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Writes the folder name parent[length] + below + "/" to path[size], and creates the folder if it
 * is missing. Returns false if the folder cannot be created, or if `parent` is not absolute. */
static bool make_folder(char *path, size_t size, const char *parent, size_t length,
                        const char *below) {
    struct stat about;
    if (parent[0] != '/') return false;
    const int n = snprintf(path, size, "%.*s%s", (int)length, parent, below);
    if (n < 0 || (size_t)n + 1 >= size) return false;
    /* Missing folders of `below` are created one by one. `parent` itself must exist, unless `below`
     * is empty. */
    for (char *slash = path + length + 1; (size_t)(slash - path) < (size_t)n; slash++) {
        if (*slash != '/') continue;
        *slash = '\0';
        const bool is_made = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!is_made) return false;
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) return false;
    path[n] = '/';
    path[n + 1] = '\0';
    return true;
}

bool tw_plans_folder(char *path, size_t size) {
    const char *const named = getenv("TW_CUDA_PLANS"), *const cache = getenv("CACHE_DIRECTORY"),
                      *const xdg = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    if (named != NULL) {
        const int n = snprintf(path, size, "%s", named);
        return n > 0 && (size_t)n < size;
    }
    /* systemd may give a list of folders: the first is used */
    if (cache != NULL && make_folder(path, size, cache, strcspn(cache, ":"), "")) return true;
    if (xdg != NULL && make_folder(path, size, xdg, strlen(xdg), "/thinwire")) return true;
    return home != NULL && make_folder(path, size, home, strlen(home), "/.cache/thinwire");
}

void tw_plans_folder_keep_code(void) {
    char path[PATH_MAX];
    size_t length;
    if (getenv("CUDA_CACHE_PATH") != NULL || !tw_plans_folder(path, sizeof(path))) return;
    length = strlen(path);
    if (path[length - 1] != '/' || length + sizeof("code") > sizeof(path)) return;
    (void)memcpy(path + length, "code", sizeof("code"));
    (void)setenv("CUDA_CACHE_PATH", path, 0); /* the driver creates the folder */
}
