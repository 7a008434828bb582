/* memory.h - how much memory this process may still take. */
#ifndef TW_WORKER_MEMORY_H
#define TW_WORKER_MEMORY_H

#include <stdint.h>

/* Bytes: the least of what the kernel calls available and what the control group leaves; a guess of
 * no bound (UINT64_MAX) where neither can be read. */
uint64_t tw_memory_available(void);

#endif
