/* heap.h - the timers of the world: a binary heap in order of (time, insertion). */
#ifndef TW_SIM_HEAP_H
#define TW_SIM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tw_sim_timer {
    uint64_t at_us, seq;
    uint64_t life; /* generation of the timer's subject; a timer of an older one is stale */
    uint32_t kind, a, b;
    void *data; /* owned, from malloc; usually NULL */
};

struct tw_sim_heap {
    struct tw_sim_timer *items;
    size_t count, capacity;
    uint64_t seq;
};

void tw_sim_heap_init(struct tw_sim_heap *heap);
void tw_sim_heap_deinit(struct tw_sim_heap *heap); /* frees the data of remaining timers */
void tw_sim_heap_push(struct tw_sim_heap *heap, struct tw_sim_timer timer); /* sets seq */

/* Pops the earliest timer; at equal times, the one pushed first. Returns false if the heap is
 * empty. */
bool tw_sim_heap_pop(struct tw_sim_heap *heap, struct tw_sim_timer *timer);

#endif
