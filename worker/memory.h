/* memory.h - how much memory this process may still take. */
#ifndef TW_WORKER_MEMORY_H
#define TW_WORKER_MEMORY_H

#include <stdint.h>

/* Bytes: the least of what the kernel calls available, what the control groups of this process
 * (v2 or v1, up to the root) leave, file cache that can be reclaimed not counted as used, and what
 * RLIMIT_AS and RLIMIT_DATA leave. UINT64_MAX, a guess of no bound, where nothing can be read. */
uint64_t tw_memory_available(void);

/* The same by PREFIX/proc and PREFIX/sys, without the limits of the process; for tests. */
uint64_t tw_memory_available_at(const char *prefix);

#endif
