/* heap.c - the timers of the world: a binary heap. */
#include "tests/sim/heap.h"

#include <stdlib.h>

#include "base/assert.h"

static bool is_before(const struct tw_sim_timer *a, const struct tw_sim_timer *b) {
    return a->at_us < b->at_us || (a->at_us == b->at_us && a->seq < b->seq);
}

void tw_sim_heap_init(struct tw_sim_heap *heap) {
    *heap = (struct tw_sim_heap){.capacity = 1024};
    heap->items = malloc(heap->capacity * sizeof *heap->items);
    TW_ASSERT(heap->items != NULL);
}

void tw_sim_heap_deinit(struct tw_sim_heap *heap) {
    for (size_t i = 0; i < heap->count; i++) free(heap->items[i].data);
    free(heap->items);
    *heap = (struct tw_sim_heap){0};
}

void tw_sim_heap_push(struct tw_sim_heap *heap, struct tw_sim_timer timer) {
    if (heap->count == heap->capacity) {
        heap->capacity *= 2;
        heap->items = realloc(heap->items, heap->capacity * sizeof *heap->items);
        TW_ASSERT(heap->items != NULL);
    }
    timer.seq = heap->seq++;
    size_t i = heap->count++;
    while (i > 0) {
        const size_t parent = (i - 1) / 2;
        if (!is_before(&timer, &heap->items[parent])) break;
        heap->items[i] = heap->items[parent];
        i = parent;
    }
    heap->items[i] = timer;
}

bool tw_sim_heap_pop(struct tw_sim_heap *heap, struct tw_sim_timer *timer) {
    if (heap->count == 0) return false;
    *timer = heap->items[0];
    const struct tw_sim_timer last = heap->items[--heap->count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap->count) break;
        if (child + 1 < heap->count && is_before(&heap->items[child + 1], &heap->items[child])) {
            child++;
        }
        if (!is_before(&heap->items[child], &last)) break;
        heap->items[i] = heap->items[child];
        i = child;
    }
    heap->items[i] = last;
    return true;
}
