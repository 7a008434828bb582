/* memory.c - see memory.h. */
#include "worker/memory.h"

#include <stdio.h>
#include <string.h>

/* The number in a file of one, or UINT64_MAX ("max" in a control group's files). */
static uint64_t read_number(const char *path) {
    unsigned long long value = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) return UINT64_MAX;
    const int count = fscanf(file, "%llu", &value);
    (void)fclose(file);
    return count == 1 ? value : UINT64_MAX;
}

static uint64_t read_meminfo(void) {
    char line[128];
    unsigned long long kib = 0;
    uint64_t bytes = UINT64_MAX;
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) return bytes;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) bytes = (uint64_t)kib * 1024;
    }
    (void)fclose(file);
    return bytes;
}

uint64_t tw_memory_available(void) {
    const uint64_t available = read_meminfo();
    const uint64_t most = read_number("/sys/fs/cgroup/memory.max");
    const uint64_t used = read_number("/sys/fs/cgroup/memory.current");
    if (most == UINT64_MAX || used == UINT64_MAX) return available;
    const uint64_t left = most > used ? most - used : 0;
    return left < available ? left : available;
}
