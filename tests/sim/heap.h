/* heap.h - what will happen next: a binary heap of timers in order of (time, insertion). */
#ifndef TW_SIM_HEAP_H
#define TW_SIM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tw_sim_timer {
    uint64_t at_us, seq;
    uint64_t life; /* generation of what it is about: older ones are stale */
    uint32_t kind, a, b;
    void *data; /* owned, from malloc; NULL for most */
};

struct tw_sim_heap {
    struct tw_sim_timer *items;
    size_t count, capacity;
    uint64_t seq;
};

void tw_sim_heap_init(struct tw_sim_heap *heap);
void tw_sim_heap_deinit(struct tw_sim_heap *heap); /* frees the data of what is left */
void tw_sim_heap_push(struct tw_sim_heap *heap, struct tw_sim_timer timer); /* sets seq */

/* The earliest timer; of equal times the one pushed first. False when there is none. */
bool tw_sim_heap_pop(struct tw_sim_heap *heap, struct tw_sim_timer *timer);

#endif
