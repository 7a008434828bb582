/* fiber.h - fibers: stacks that take turns on one CPU thread, for emulated.h (C++, tests only).
 *
 * A fiber never moves to another thread. The address sanitizer is told of each switch. */
#ifndef TW_TESTS_EMULATED_FIBER_H
#define TW_TESTS_EMULATED_FIBER_H

#include <cstddef>

/* A stack and its saved position. An all-zero fiber stands for the thread's own stack; switching
 * away from it fills it in. */
struct tw_fiber {
    void *stack; /* lowest address in use; a guard page lies below */
    size_t stack_bytes;
    void *left; /* saved stack pointer (or ucontext_t) */
    void *fake; /* saved state of the address sanitizer */
};

/* Creates a fiber that calls `entry` when it is first switched to; `entry` must not return. Returns
 * false if memory is exhausted. */
bool tw_fiber_create(tw_fiber *fiber, void (*entry)());
void tw_fiber_destroy(tw_fiber *fiber);

/* Suspends the running fiber `from` and continues `to`. */
void tw_fiber_switch(tw_fiber *from, tw_fiber *to);

#endif
