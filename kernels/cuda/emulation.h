/* emulation.h - how the emulated device behaves, for tests. Exists in tw_kernels_emulated alone:
 * tests that are built for a card too ask `#ifdef TW_CUDA_EMULATED`.
 *
 * In every order but `up` its memory can be touched by what is put into a stream alone: a host that
 * reads or writes it dies of SIGSEGV; and a stream does nothing until somebody waits for it (or for
 * what waits for it), so that a missing wait shows.
 *
 * The environment says the same: TW_EMULATED_ORDER=up, down, both, or a number that shuffles. */
#ifndef TW_KERNELS_CUDA_EMULATION_H
#define TW_KERNELS_CUDA_EMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tw_emulation_order {
    TW_EMULATION_UP,   /* thread 0 first, block 0 first */
    TW_EMULATION_DOWN, /* the last first */
    /* Every kernel runs twice, up and down, on the same memory: a byte of device memory that
     * differs ends the process with a sentence that names the kernel. A missing barrier shows,
     * as does a sum by atomics. */
    TW_EMULATION_BOTH,
    TW_EMULATION_SHUFFLED /* by the seed */
};

/* Of this process, from the next launch on. */
void tw_emulation_set_order(enum tw_emulation_order order, uint64_t seed);

/* The call number `calls` from now of those that may fail on a card (allocations, copies, launches;
 * 1 is the next) fails: an allocation with TW_NOMEM, what is put into a stream as a fault that ends
 * all work on that device. 0: none. */
void tw_emulation_fail_after(uint64_t calls);

/* How many such calls there were since the process began. */
uint64_t tw_emulation_calls(void);

/* Puts a function into a stream, as a launch would be: it alone may touch device memory. `bytes` of
 * arguments are copied. What products of a library are here. */
void tw_emulation_submit(void *stream, const char *name, void (*work)(const void *arguments),
                         const void *arguments, size_t bytes);

/* Bytes the devices that are opened from now on say they have. 1 GiB at first. */
void tw_emulation_set_memory(uint64_t bytes);

/* Whether tw_cuda_host_pin() succeeds, from now on; it does at first. */
void tw_emulation_set_pins(bool are_possible);

#ifdef __cplusplus
}
#endif

#endif
