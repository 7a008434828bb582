#include "base/machine.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 2048 };

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t minus(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads the number after `key` at the start of a line of FOLDER/NAME. Returns false if there is no
 * such file or number (cgroups write "max" for no limit). */
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

/* A cgroup controller, and a function that returns how much of its resource the cgroup in `folder`
 * may still use. */
struct bound {
    const char *controller;
    uint64_t (*left)(const char *folder, bool is_v2);
};

static uint64_t memory_left(const char *folder, bool is_v2) {
    uint64_t most, used,
        reclaimable; /* reclaimable: file cache that the kernel frees under memory pressure */
    const char *const most_name = is_v2 ? "memory.max" : "memory.limit_in_bytes";
    const char *const used_name = is_v2 ? "memory.current" : "memory.usage_in_bytes";
    const char *const key = is_v2 ? "inactive_file " : "total_inactive_file ";
    if (!read_number(folder, most_name, "", &most)) return UINT64_MAX;
    if (!read_number(folder, used_name, "", &used)) return UINT64_MAX;
    if (!read_number(folder, "memory.stat", key, &reclaimable)) reclaimable = 0;
    return minus(most, minus(used, reclaimable));
}

/* Returns the CPU quota in processors, rounded up. cgroup v2 has "QUOTA PERIOD" in one file, v1 has
 * a file for each. */
static uint64_t processors_left(const char *folder, bool is_v2) {
    uint64_t quota, period;
    char key[32];
    if (!read_number(folder, is_v2 ? "cpu.max" : "cpu.cfs_quota_us", "", &quota)) return UINT64_MAX;
    (void)snprintf(key, sizeof(key), is_v2 ? "%llu " : "", (unsigned long long)quota);
    if (!read_number(folder, is_v2 ? "cpu.max" : "cpu.cfs_period_us", key, &period))
        return UINT64_MAX;
    if (quota == 0 || quota > INT64_MAX || period == 0)
        return UINT64_MAX; /* cgroup v1 writes -1 for no limit */
    return 1 + (quota - 1) / period;
}

static const struct bound MEMORY = {"memory", memory_left};
static const struct bound PROCESSORS = {"cpu", processors_left};

/* Returns the smallest amount left to the cgroup at `path` ("/a/b") and its ancestors. Cgroups
 * whose folder is not visible, as in a container, are skipped. */
static uint64_t groups_left(const char *prefix, const struct bound *bound, bool is_v2, char *path) {
    char folder[PATH_BYTES];
    uint64_t left = UINT64_MAX;
    if (path[0] != '/' || strstr(path, "/..") != NULL) path[0] = 0;
    for (;;) {
        const int n = snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s%s%s", prefix,
                               is_v2 ? "" : "/", is_v2 ? "" : bound->controller, path);
        if (n < (int)sizeof(folder)) left = least(left, bound->left(folder, is_v2));
        if (path[0] == 0) return left;
        *strrchr(path, '/') = 0;
    }
}

/* Returns true if `at`, such as "cpu,memory:/a/b", lists the controller before the colon. */
static bool is_of(const char *controller, const char *at) {
    for (size_t size = strcspn(at, ",:"); size > 0; size = strcspn(at, ",:")) {
        if (size == strlen(controller) && memcmp(at, controller, size) == 0) return true;
        if (at[size] != ',') return false;
        at += size + 1;
    }
    return false;
}

static uint64_t read_groups(const char *prefix, const struct bound *bound) {
    char name[PATH_BYTES], line[LINE_BYTES], root[] = "";
    uint64_t left = groups_left(prefix, bound, true, root);
    if (snprintf(name, sizeof(name), "%s/proc/self/cgroup", prefix) >= (int)sizeof(name))
        return left;
    FILE *const file = fopen(name, "re");
    if (file == NULL) return left;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *const names = strchr(line, ':');
        char *const path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL) continue;
        if (path == names + 1) {
            left = least(left, groups_left(prefix, bound, true, path + 1));
        } else if (is_of(bound->controller, names + 1)) {
            left = least(left, groups_left(prefix, bound, false, path + 1));
        }
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
    if (fscanf(file, "%llu %*u %*u %*u %*u %llu", &all, &data) != 2) all = data = 0;
    (void)fclose(file);
    return least(limit_left(RLIMIT_AS, all), limit_left(RLIMIT_DATA, data));
}

uint64_t tw_machine_memory_at(const char *prefix) {
    char folder[PATH_BYTES];
    uint64_t kib, available = UINT64_MAX;
    if (snprintf(folder, sizeof(folder), "%s/proc", prefix) < (int)sizeof(folder) &&
        read_number(folder, "meminfo", "MemAvailable:", &kib))
        available = kib * 1024;
    return least(available, read_groups(prefix, &MEMORY));
}

uint64_t tw_machine_memory(void) {
    return least(tw_machine_memory_at(""), read_limits());
}

uint64_t tw_machine_processors_at(const char *prefix) {
    return read_groups(prefix, &PROCESSORS);
}

uint32_t tw_machine_processors(void) {
    cpu_set_t allowed;
    const bool is_known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
    const long count = is_known ? CPU_COUNT(&allowed) : sysconf(_SC_NPROCESSORS_ONLN);
    return (uint32_t)least(count < 1 ? 1 : (uint64_t)count, tw_machine_processors_at(""));
}
