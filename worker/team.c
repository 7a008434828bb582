/* team.c - see team.h. */
#include "worker/team.h"

#ifdef _OPENMP
#include <omp.h>
#endif

void tw_team_run(uint32_t threads, uint32_t pieces, tw_team_fn *work, void *context) {
#ifdef _OPENMP
    if (threads > 1 && pieces > 1) {
        /* Dynamic: a core that a neighbour uses too takes fewer pieces. */
#pragma omp parallel for schedule(dynamic) num_threads((int)threads)
        for (uint32_t piece = 0; piece < pieces; piece++) {
            work(context, piece, (uint32_t)omp_get_thread_num());
        }
        return;
    }
#endif
    (void)threads;
    for (uint32_t piece = 0; piece < pieces; piece++) work(context, piece, 0);
}
