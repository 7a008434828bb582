/* machine.h - memory and processors that the kernel lets this process use. */
#ifndef TW_BASE_MACHINE_H
#define TW_BASE_MACHINE_H

#include <stdint.h>

/* Returns the memory that this process can still allocate, in bytes, or UINT64_MAX if nothing can
 * be read. It is the least of MemAvailable, of the memory left in each of its cgroups, and of the
 * bytes left below RLIMIT_AS and RLIMIT_DATA. Reclaimable file cache counts as free. */
uint64_t tw_machine_memory(void);

/* Returns the number of processors in this process's affinity mask, but at most the CPU quota of
 * its cgroups, rounded up. At least 1. */
uint32_t tw_machine_processors(void);

/* For tests: the two functions above, but they read PREFIX/proc and PREFIX/sys and ignore rlimits
 * and affinity. UINT64_MAX means unlimited. */
uint64_t tw_machine_memory_at(const char *prefix);
uint64_t tw_machine_processors_at(const char *prefix);

#endif
