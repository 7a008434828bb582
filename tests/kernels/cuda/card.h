/* card.h - a device for tests, and arrays on it between guards. Without a device, the test is
 * skipped. */
#ifndef TW_TESTS_KERNELS_CUDA_CARD_H
#define TW_TESTS_KERNELS_CUDA_CARD_H

#include "kernels/cuda/runtime.h"
#include "kernels/type.h"
#include "tests/kernels/fill.h"

enum { CARD_SKIPPED = 77, CARD_ARRAYS_MAX = 64, CARD_GUARD_BYTES = 256, CARD_GUARD = 0x5a };

static struct tw_cuda *card;
static struct {
    unsigned char *device;
    size_t bytes;
} card_arrays[CARD_ARRAYS_MAX];
static unsigned card_arrays_count;

static inline void card_finish(void) {
    struct tw_error err = {0};
    for (int queue = 0; queue < TW_CUDA_QUEUES; queue++) {
        if (tw_cuda_finish(card, (enum tw_cuda_queue)queue, &err) != TW_OK)
            fail_msg("%s", err.message);
    }
}

/* Makes an array on the device: a copy of `bytes` bytes of host or, if host is NULL, filled with
 * 0xff (NaN). */
static inline void *card_new(const void *host, size_t bytes) {
    struct tw_error err = {0};
    void *device = NULL;
    unsigned char *const all = malloc(bytes + 2 * CARD_GUARD_BYTES);
    assert_non_null(all);
    assert_true(card_arrays_count < CARD_ARRAYS_MAX);
    memset(all, CARD_GUARD, bytes + 2 * CARD_GUARD_BYTES);
    memset(all + CARD_GUARD_BYTES, 0xff, bytes);
    if (host != NULL) memcpy(all + CARD_GUARD_BYTES, host, bytes);
    if (tw_cuda_alloc(card, &device, bytes + 2 * CARD_GUARD_BYTES, "a test", &err) != TW_OK)
        fail_msg("%s", err.message);
    tw_cuda_copy_in(card, TW_CUDA_COMPUTE, device, all, bytes + 2 * CARD_GUARD_BYTES);
    card_finish();
    free(all);
    card_arrays[card_arrays_count].device = device;
    card_arrays[card_arrays_count++].bytes = bytes;
    return (unsigned char *)device + CARD_GUARD_BYTES;
}

/* Waits for all work, then copies `bytes` bytes of the device to host. */
static inline void card_read(void *host, const void *device, size_t bytes) {
    card_finish();
    tw_cuda_copy_out(card, TW_CUDA_COMPUTE, host, device, bytes);
    card_finish();
}

/* Frees all arrays, and checks that no guard beside an array was overwritten. */
static inline void card_free_all(void) {
    while (card_arrays_count > 0) {
        unsigned char *const device = card_arrays[--card_arrays_count].device;
        const size_t bytes = card_arrays[card_arrays_count].bytes;
        unsigned char guards[2 * CARD_GUARD_BYTES];
        card_read(guards, device, CARD_GUARD_BYTES);
        card_read(guards + CARD_GUARD_BYTES, device + CARD_GUARD_BYTES + bytes, CARD_GUARD_BYTES);
        for (size_t i = 0; i < sizeof(guards); i++) assert_int_equal(guards[i], CARD_GUARD);
        tw_cuda_free(card, device);
    }
}

/* Returns false, after printing the reason, if there is no device. */
static inline bool card_open(void) {
    struct tw_error err = {0};
    if (tw_cuda_count(&err) == 0) {
        print_message("skipped: %s\n", err.message);
        return false;
    }
    if (tw_cuda_open(&card, 0, 0, &err) == TW_OK) return true;
    print_message("%s\n", err.message);
    exit(1);
}

#endif
