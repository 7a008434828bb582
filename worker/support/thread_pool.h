/* thread_pool.h - a thread pool for independent pieces of work.
 *
 * A pool is the calling thread and threads - 1 helpers. Between runs, helpers spin for some
 * microseconds, because the next run usually follows soon, and then sleep. The next free thread
 * claims the next piece, so a core shared with another process does fewer pieces. A run waits until
 * its pieces are done, never for an idle helper. Results must not depend on which thread does a
 * piece. */
#ifndef TW_WORKER_SUPPORT_THREAD_POOL_H
#define TW_WORKER_SUPPORT_THREAD_POOL_H

#include <stdint.h>

#include "base/status.h"

enum { TW_THREAD_POOL_THREADS_MAX = 256 };

struct tw_thread_pool;

/* Called as work(context, piece, thread). Pieces run in any order and concurrently, but each thread
 * (thread < threads) runs one piece at a time. Pieces see everything written before
 * tw_thread_pool_run; after it, the caller sees everything the pieces wrote. */
typedef void tw_thread_pool_fn(void *context, uint32_t piece, uint32_t thread);

/* threads in [1, TW_THREAD_POOL_THREADS_MAX]; 1 starts no thread. Helpers block all signals. Fails
 * with TW_NOMEM, or with TW_LIMIT if the system cannot start more threads. */
enum tw_status tw_thread_pool_create(struct tw_thread_pool **team, uint32_t threads,
                                     struct tw_error *err);
/* NULL is allowed. Must not be called from inside a piece. */
void tw_thread_pool_destroy(struct tw_thread_pool *team);

uint32_t tw_thread_pool_threads(const struct tw_thread_pool *team);

/* Calls work once for every piece in [0, pieces) and returns when all are done. Only one run at a
 * time is possible, so a piece must not call this function. */
void tw_thread_pool_run(struct tw_thread_pool *team, uint32_t pieces, tw_thread_pool_fn *work,
                        void *context);

#endif
