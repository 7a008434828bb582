/* machine.h - what of this machine the kernel lets this process use: memory and processors. */
#ifndef TW_BASE_MACHINE_H
#define TW_BASE_MACHINE_H

#include <stdint.h>

/* Bytes: the least of what the kernel calls available, what the control groups of this process
 * (v2 or v1, up to the root) leave, file cache that can be reclaimed not counted as used, and what
 * RLIMIT_AS and RLIMIT_DATA leave. UINT64_MAX, a guess of no bound, where nothing can be read. */
uint64_t tw_machine_memory(void);

/* At least 1: those this process is allowed to run on, and no more than its control groups give it
 * time for, rounded up. */
uint32_t tw_machine_processors(void);

/* The same by PREFIX/proc and PREFIX/sys, without the limits of the process; for tests. UINT64_MAX:
 * no bound. */
uint64_t tw_machine_memory_at(const char *prefix);
uint64_t tw_machine_processors_at(const char *prefix);

#endif
