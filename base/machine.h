/* machine.h - memory and processors that the kernel lets this process use. */
#ifndef TW_BASE_MACHINE_H
#define TW_BASE_MACHINE_H

#include <stdint.h>

/* Free memory for this process, in bytes: the least of MemAvailable, the room in its control groups
 * (v2 or v1, up to the root; reclaimable file cache counts as free), and the room below RLIMIT_AS
 * and RLIMIT_DATA. UINT64_MAX if nothing can be read. */
uint64_t tw_machine_memory(void);

/* Processors in this process's affinity mask, at most the CPU quota of its control groups, rounded
 * up. At least 1. */
uint32_t tw_machine_processors(void);

/* The two functions above, reading PREFIX/proc and PREFIX/sys and ignoring the limits of the
 * process; for tests. UINT64_MAX: no bound. */
uint64_t tw_machine_memory_at(const char *prefix);
uint64_t tw_machine_processors_at(const char *prefix);

#endif
