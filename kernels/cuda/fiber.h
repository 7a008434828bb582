/* fiber.h - stacks that take turns on one thread of the CPU, for emulated.h (C++, tests only).
 *
 * A fiber never moves to another thread. Switches are announced to the address sanitizer. */
#ifndef TW_KERNELS_CUDA_FIBER_H
#define TW_KERNELS_CUDA_FIBER_H

#include <cstddef>

/* A stack and where it was left. One that is all zeros stands for the stack of the thread itself:
 * switching away from it fills it in. */
struct tw_fiber {
    void *stack; /* lowest address in use: a page nobody may touch lies below */
    size_t stack_bytes;
    void *left; /* stack pointer (or ucontext_t) */
    void *fake; /* the sanitizer's */
};

/* A fiber that calls `entry` when it is first switched to; entry never returns. False without
 * memory. */
bool tw_fiber_create(tw_fiber *fiber, void (*entry)());
void tw_fiber_destroy(tw_fiber *fiber);

/* Leaves `from`, which is running, until somebody switches to it. */
void tw_fiber_switch(tw_fiber *from, tw_fiber *to);

#endif
