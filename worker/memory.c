/* memory.c - see memory.h. */
#include "worker/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 2048 };

/* Where the two versions of control groups keep the same things. */
struct files {
    const char *mount, *most, *used;
    const char *reclaimable; /* in memory.stat: file cache that goes when memory is wanted */
};
static const struct files V2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
static const struct files V1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                "memory.usage_in_bytes", "total_inactive_file "};

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t minus(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The number behind `key` at the start of a line of FOLDER/NAME. False without ("max", no file). */
static bool read_number(const char *folder, const char *name, const char *key, uint64_t *value) {
    char path[PATH_BYTES], line[LINE_BYTES];
    unsigned long long number = 0;
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path)) return false;
    FILE *const file = fopen(path, "re");
    if (file == NULL) return false;
    bool is_found = false;
    while (!is_found && fgets(line, sizeof(line), file) != NULL) {
        is_found = strncmp(line, key, strlen(key)) == 0 &&
                   sscanf(line + strlen(key), "%llu", &number) == 1;
    }
    (void)fclose(file);
    *value = number;
    return is_found;
}

/* ---- control groups -------------------------------------------------------------------------- */

static uint64_t group_left(const char *folder, const struct files *files) {
    uint64_t most, used, reclaimable;
    if (!read_number(folder, files->most, "", &most)) return UINT64_MAX;
    if (!read_number(folder, files->used, "", &used)) return UINT64_MAX;
    if (!read_number(folder, "memory.stat", files->reclaimable, &reclaimable)) reclaimable = 0;
    return minus(most, minus(used, reclaimable));
}

/* Of the group at `path`, "/a/b", and all above it: each of them bounds. Groups that are not
 * mounted here, as in a container, are passed over. */
static uint64_t groups_left(const char *prefix, const struct files *files, char *path) {
    char folder[PATH_BYTES];
    uint64_t left = UINT64_MAX;
    if (path[0] != '/' || strstr(path, "/..") != NULL) path[0] = 0;
    for (;;) {
        const int n = snprintf(folder, sizeof(folder), "%s%s%s", prefix, files->mount, path);
        if (n < (int)sizeof(folder)) left = least(left, group_left(folder, files));
        if (path[0] == 0) return left;
        *strrchr(path, '/') = 0;
    }
}

/* "4:cpu,memory:/a/b": whether `memory` is among the controllers from `at` to the colon. */
static bool is_of_memory(const char *at) {
    for (size_t size = strcspn(at, ",:"); size > 0; size = strcspn(at, ",:")) {
        if (size == 6 && memcmp(at, "memory", 6) == 0) return true;
        if (at[size] != ',') return false;
        at += size + 1;
    }
    return false;
}

static uint64_t read_groups(const char *prefix) {
    char name[PATH_BYTES], line[LINE_BYTES], root[] = "";
    uint64_t left = groups_left(prefix, &V2, root);
    if (snprintf(name, sizeof(name), "%s/proc/self/cgroup", prefix) >= (int)sizeof(name))
        return left;
    FILE *const file = fopen(name, "re");
    if (file == NULL) return left;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *const names = strchr(line, ':');
        char *const path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL) continue;
        if (path == names + 1) left = least(left, groups_left(prefix, &V2, path + 1));
        if (is_of_memory(names + 1)) left = least(left, groups_left(prefix, &V1, path + 1));
    }
    (void)fclose(file);
    return left;
}

/* ---- the process ----------------------------------------------------------------------------- */

static uint64_t limit_left(int resource, uint64_t used_pages) {
    struct rlimit limit;
    const long page = sysconf(_SC_PAGESIZE);
    if (getrlimit((unsigned)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return minus(limit.rlim_cur, used_pages * (uint64_t)page);
}

static uint64_t read_limits(void) {
    unsigned long long all = 0, data = 0; /* pages */
    FILE *const file = fopen("/proc/self/statm", "re");
    if (file == NULL) return UINT64_MAX;
    (void)fscanf(file, "%llu %*u %*u %*u %*u %llu", &all, &data);
    (void)fclose(file);
    return least(limit_left(RLIMIT_AS, all), limit_left(RLIMIT_DATA, data));
}

uint64_t tw_memory_available_at(const char *prefix) {
    char folder[PATH_BYTES];
    uint64_t kib, available = UINT64_MAX;
    if (snprintf(folder, sizeof(folder), "%s/proc", prefix) < (int)sizeof(folder) &&
        read_number(folder, "meminfo", "MemAvailable:", &kib))
        available = kib * 1024;
    return least(available, read_groups(prefix));
}

uint64_t tw_memory_available(void) {
    return least(tw_memory_available_at(""), read_limits());
}
