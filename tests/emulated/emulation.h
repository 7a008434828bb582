/* emulation.h - controls of the emulated device, for tests. Exists in tw_kernels_emulated only;
 * tests that are also built for a GPU check `#ifdef TW_CUDA_EMULATED`.
 *
 * In every order but `up`, only queued work can access device memory: an access by the host ends
 * with SIGSEGV. A stream does nothing until the host waits for it (or for work that waits for it),
 * so that a missing wait is detected.
 *
 * The environment variable TW_EMULATED_ORDER sets the order: up, down, both, or a number that seeds
 * a shuffle. */
#ifndef TW_TESTS_EMULATED_EMULATION_H
#define TW_TESTS_EMULATED_EMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tw_emulation_order {
    TW_EMULATION_UP,   /* ascending: thread 0 and block 0 first */
    TW_EMULATION_DOWN, /* descending: last thread and last block first */
    /* Every kernel runs twice, up and down, on the same memory. If a byte of device memory differs
     * between the runs, the process ends with a message that names the kernel. Finds missing
     * barriers and sums by atomics. */
    TW_EMULATION_BOTH,
    TW_EMULATION_SHUFFLED /* in a random order, drawn from the seed */
};

/* Sets the order of blocks and threads in this process, from the next launch on. */
void tw_emulation_set_order(enum tw_emulation_order order, uint64_t seed);

/* Makes a later call that may fail on a GPU (allocation, copy, launch) fail: the one that is
 * `calls` calls from now, where 1 is the next. An allocation fails with TW_NOMEM, queued work with
 * a fault that ends all work on that device. 0: no call fails. */
void tw_emulation_fail_after(uint64_t calls);

/* Returns the number of calls since the process began that may fail on a GPU. */
uint64_t tw_emulation_calls(void);

/* Runs work(self) on the host at a later such call: the one that is `calls` calls from now, where 1
 * is the next. For events that must come at a known place of a step. 0: at no call. */
void tw_emulation_run_after(uint64_t calls, void (*work)(void *self), void *self);

/* Queues a function as if it were a kernel, so that it may access device memory. `bytes` of
 * arguments are copied. The emulated GEMM library runs this way. */
void tw_emulation_submit(void *stream, const char *name, void (*work)(const void *arguments),
                         const void *arguments, size_t bytes);

/* Sets the total memory that devices opened from now on report. Initially 1 GiB. */
void tw_emulation_set_memory(uint64_t bytes);

/* Sets whether tw_cuda_host_pin() succeeds from now on. Initially true. */
void tw_emulation_set_pins(bool are_possible);

#ifdef __cplusplus
}
#endif

#endif
