/* test_machine.c - the memory and processors that the system grants a process are found. */
#include "base/machine.h"
#include "tests/test.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 512 };
static const uint64_t MB = 1000 * 1000;
static char root[64];
static char made[64][PATH_BYTES]; /* files and folders, in the order of their creation */
static unsigned made_count;

static int set_up(void **state) {
    memcpy(root, "/tmp/tw_machine_XXXXXX", 23);
    assert_non_null(mkdtemp(root));
    made_count = 0;
    return 0;
}

static int tear_down(void **state) {
    while (made_count > 0) (void)remove(made[--made_count]);
    return rmdir(root);
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* Creates root/path and its folders. */
static void file_make(const char *path, const char *text) {
    char name[PATH_BYTES];
    const int n = snprintf(name, sizeof(name), "%s%s", root, path);
    assert_in_range(n, 1, PATH_BYTES - 1);
    for (char *at = strchr(name + strlen(root) + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = 0;
        if (mkdir(name, 0700) == 0) memcpy(made[made_count++], name, PATH_BYTES);
        *at = '/';
    }
    FILE *const file = fopen(name, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
    memcpy(made[made_count++], name, PATH_BYTES);
    assert_true(made_count < 60);
}

static void meminfo_make(void) {
    file_make("/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n");
}

FACT(the_kernels_number_holds_where_no_group_bounds) {
    assert_true(tw_machine_memory_at(root) == UINT64_MAX);
    meminfo_make();
    assert_int_equal(tw_machine_memory_at(root), 8000000ull * 1024);
}

FACT(the_group_of_the_process_bounds) {
    meminfo_make();
    file_make("/proc/self/cgroup", "0::/user.slice/app.scope\n");
    file_make("/sys/fs/cgroup/user.slice/app.scope/memory.max", "500000000\n");
    file_make("/sys/fs/cgroup/user.slice/app.scope/memory.current", "100000000\n");
    assert_int_equal(tw_machine_memory_at(root), 400 * MB);
}

FACT(a_group_above_bounds_as_well) {
    meminfo_make();
    file_make("/proc/self/cgroup", "0::/user.slice/app.scope\n");
    file_make("/sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n");
    file_make("/sys/fs/cgroup/user.slice/app.scope/memory.current", "100000000\n");
    file_make("/sys/fs/cgroup/user.slice/memory.max", "300000000\n");
    file_make("/sys/fs/cgroup/user.slice/memory.current", "250000000\n");
    assert_int_equal(tw_machine_memory_at(root), 50 * MB);
}

FACT(file_cache_that_can_go_is_not_used) {
    meminfo_make();
    file_make("/proc/self/cgroup", "0::/\n");
    file_make("/sys/fs/cgroup/memory.max", "500000000\n");
    file_make("/sys/fs/cgroup/memory.current", "490000000\n");
    assert_int_equal(tw_machine_memory_at(root), 10 * MB);
    file_make("/sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 200000000\nactive_file 7\n");
    assert_int_equal(tw_machine_memory_at(root), 210 * MB);
}

FACT(groups_of_version_1_bound) {
    meminfo_make();
    file_make("/proc/self/cgroup", "5:pids:/x\n4:cpu,memory:/host/box\n0::/\n");
    /* In a container, the group's own path is not mounted. Its files are at the root of the
     * hierarchy. */
    file_make("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000000\n");
    file_make("/sys/fs/cgroup/memory/memory.usage_in_bytes", "300000000\n");
    file_make("/sys/fs/cgroup/memory/memory.stat",
              "inactive_file 5\ntotal_inactive_file 1000000\n");
    assert_int_equal(tw_machine_memory_at(root), 201 * MB);
    file_make("/sys/fs/cgroup/memory/host/box/memory.limit_in_bytes", "90000000\n");
    file_make("/sys/fs/cgroup/memory/host/box/memory.usage_in_bytes", "95000000\n");
    assert_int_equal(tw_machine_memory_at(root), 0);
}

/* Returns the bytes that now count against RLIMIT_AS (column 0) or RLIMIT_DATA (column 5). */
static uint64_t used_bytes(unsigned column) {
    unsigned long long pages[6] = {0};
    FILE *const file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    for (unsigned i = 0; i < 6; i++) assert_int_equal(fscanf(file, "%llu", &pages[i]), 1);
    assert_int_equal(fclose(file), 0);
    return pages[column] * (uint64_t)sysconf(_SC_PAGESIZE);
}

FACT(a_limit_of_the_process_bounds) {
    const struct {
        int resource;
        unsigned column;
    } limits[] = {{RLIMIT_AS, 0}, {RLIMIT_DATA, 5}};
    for (unsigned i = 0; i < 2; i++) {
        struct rlimit was, less;
        assert_int_equal(getrlimit((unsigned)limits[i].resource, &was), 0);
        less = was;
        less.rlim_cur = used_bytes(limits[i].column) + 64 * MB;
        assert_true(less.rlim_cur < was.rlim_max);
        assert_int_equal(setrlimit((unsigned)limits[i].resource, &less), 0);
        const uint64_t left = tw_machine_memory();
        assert_int_equal(setrlimit((unsigned)limits[i].resource, &was), 0);
        assert_in_range(left, 32 * MB, 64 * MB);
    }
}

FACT(groups_bound_processors_by_their_time) {
    assert_true(tw_machine_processors_at(root) == UINT64_MAX);
    file_make("/proc/self/cgroup", "4:cpuacct,cpu:/box\n0::/user.slice/app.scope\n");
    file_make("/sys/fs/cgroup/user.slice/app.scope/cpu.max", "max 100000\n");
    file_make("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    file_make("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_true(tw_machine_processors_at(root) == UINT64_MAX);
    file_make("/sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n");
    assert_int_equal(tw_machine_processors_at(root), 4);
    file_make("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "50000\n");
    file_make("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    assert_int_equal(tw_machine_processors_at(root), 1);
}

FACT(a_process_held_to_one_processor_has_one) {
    cpu_set_t was, one;
    assert_int_equal(sched_getaffinity(0, sizeof(was), &was), 0);
    const uint32_t before = tw_machine_processors();
    assert_in_range(before, 1, CPU_COUNT(&was));
    CPU_ZERO(&one);
    for (size_t i = 0; CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &was)) CPU_SET(i, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(tw_machine_processors(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(was), &was), 0);
}
