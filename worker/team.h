/* team.h - loops over independent pieces of work, shared among threads.
 *
 * The threads are OpenMP's, the same that oneDNN uses: one pool in the process. With one thread, or
 * without OpenMP in the compiler, everything runs in the caller and no pool exists. Which thread
 * takes which piece does not change any result. */
#ifndef TW_WORKER_TEAM_H
#define TW_WORKER_TEAM_H

#include <stdint.h>

/* work(context, piece, thread): pieces run in any order, thread < threads. */
typedef void tw_team_fn(void *context, uint32_t piece, uint32_t thread);

/* Calls work for every piece in [0, pieces) on at most `threads` threads; returns when all are
 * done. */
void tw_team_run(uint32_t threads, uint32_t pieces, tw_team_fn *work, void *context);

#endif
