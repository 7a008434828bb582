/* device.h - for tests of CUDA kernels: a device (emulated or a GPU), arrays on it, and comparison
 * with the reference. */
#ifndef TW_TESTS_KERNELS_CUDA_DEVICE_H
#define TW_TESTS_KERNELS_CUDA_DEVICE_H

#include "kernels/cuda/runtime.h"

#include "tests/kernels/tables.h"

enum { DEVICE_SKIPPED = 77 };

static struct tw_cuda *device;
static void *device_stream; /* its compute stream */

/* The group's set-up and tear-down for cmocka. */
static inline int device_open(void **state) {
    struct tw_error err = {0};
    if (tw_cuda_open(&device, 0, 0, &err) != TW_OK) fail_msg("%s", err.message);
    device_stream = tw_cuda_stream(device, TW_CUDA_COMPUTE);
    return 0;
}
static inline int device_close(void **state) {
    tw_cuda_close(device);
    device = NULL;
    return 0;
}

/* The result of main(): runs the tests, or returns DEVICE_SKIPPED if there is no device. */
#define DEVICE_RUN(tests)                                                                          \
    (device_is_there() ? cmocka_run_group_tests(tests, device_open, device_close) : DEVICE_SKIPPED)
static inline bool device_is_there(void) {
    struct tw_error err = {0};
    if (tw_cuda_count(&err) > 0) return true;
    print_message("skipped: %s\n", err.message);
    return false;
}

/* Waits for all work on the compute stream. */
static inline void device_finish(void) {
    struct tw_error err = {0};
    if (tw_cuda_finish(device, TW_CUDA_COMPUTE, &err) != TW_OK) fail_msg("%s", err.message);
}

/* Allocates device memory, to be freed with device_free(). device_new leaves it uninitialised,
 * device_of fills it with `bytes` bytes of the host. */
static inline void *device_new(size_t bytes) {
    struct tw_error err = {0};
    void *at = NULL;
    if (tw_cuda_alloc(device, &at, bytes > 0 ? bytes : 1, "a test", &err) != TW_OK)
        fail_msg("%s", err.message);
    return at;
}
static inline void *device_of(const void *host, size_t bytes) {
    void *at = device_new(bytes);
    tw_cuda_copy_in(device, TW_CUDA_COMPUTE, at, host, bytes);
    device_finish();
    return at;
}
static inline void device_free(void *at) {
    tw_cuda_free(device, at);
}

/* Waits for all work, then copies `bytes` bytes from the device to the host. */
static inline void device_get(void *host, const void *at, size_t bytes) {
    tw_cuda_copy_out(device, TW_CUDA_COMPUTE, host, at, bytes);
    device_finish();
}

/* Asserts that the activations `got` equal `want`, as the reference stored them, up to one unit in
 * the last place plus tolerance * (1 + |want|). An element must be non-finite exactly if that of
 * `want` is. */
static inline void assert_as_ref(const struct tw_ops *ops, const char *what, const void *got,
                                 const void *want, size_t n, double tolerance) {
    const double ulp = ops->type == TW_BF16 ? 1.0 / 128.0 : 1.0 / 8388608.0;
    for (size_t i = 0; i < n; i++) {
        const double a = act_get(ops, got, i), b = act_get(ops, want, i);
        if (!isfinite(b)) {
            if (isfinite(a)) fail_msg("%s[%zu] is %.9g, expected %.9g", what, i, a, b);
        } else {
            assert_close(ops, what, i, a, b, 1.0, ulp * fabs(b) + tolerance * (1.0 + fabs(b)));
        }
    }
}

/* Runs `check` with the reference of each type. */
static inline void device_each(tables_check *check) {
    for (int type = TW_F32; type <= TW_BF16; type++) {
        struct tw_rng rng;
        tw_rng_seed(&rng, TABLES_SEED);
        check(tw_ops_ref((enum tw_type)type), &rng);
    }
}

#define DEVICE_TEST(name, check)                                                                   \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        device_each(check);                                                                        \
    }

#endif
