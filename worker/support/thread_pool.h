/* thread_pool.h - threads that share independent pieces of work.
 *
 * A team is its caller and threads - 1 helpers, which live as long as it does and sleep between
 * runs (after spinning for some microseconds, since the next run is mostly near). A piece goes to
 * whoever is free next, so a core that a neighbour uses too takes fewer pieces, and a run waits for
 * pieces, never for a helper that has none. Which thread takes a piece must not change a result. */
#ifndef TW_WORKER_SUPPORT_THREAD_POOL_H
#define TW_WORKER_SUPPORT_THREAD_POOL_H

#include <stdint.h>

#include "base/status.h"

enum { TW_THREAD_POOL_THREADS_MAX = 256 };

struct tw_thread_pool;

/* work(context, piece, thread): pieces in any order, several at a time; thread < threads, and one
 * thread does one piece at a time. What was written before tw_thread_pool_run is seen by every
 * piece, and what pieces wrote is seen after it. */
typedef void tw_thread_pool_fn(void *context, uint32_t piece, uint32_t thread);

/* threads in [1, TW_THREAD_POOL_THREADS_MAX]; 1: no thread is started. Helpers block all signals.
 * TW_NOMEM, TW_LIMIT: the system has no more threads. */
enum tw_status tw_thread_pool_create(struct tw_thread_pool **team, uint32_t threads,
                                     struct tw_error *err);
/* Takes NULL. Not from inside a piece. */
void tw_thread_pool_destroy(struct tw_thread_pool *team);

uint32_t tw_thread_pool_threads(const struct tw_thread_pool *team);

/* Calls work once for every piece in [0, pieces) and returns when all are done. One run at a time:
 * not from inside a piece. */
void tw_thread_pool_run(struct tw_thread_pool *team, uint32_t pieces, tw_thread_pool_fn *work,
                        void *context);

#endif
