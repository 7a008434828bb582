/* test_cuda.c - device kernels do what the reference does; skipped without a device. */
#include <cuda_runtime_api.h>

#include "kernels/cuda/adamw.h"
#include "tests/kernels/fill.h"

enum { SEED = 31, N = 100003, SKIPPED = 77 };

static float *to_device(const float *x) {
    void *to = NULL;
    assert_int_equal(cudaMalloc(&to, N * sizeof(*x)), cudaSuccess);
    assert_int_equal(cudaMemcpy(to, x, N * sizeof(*x), cudaMemcpyHostToDevice), cudaSuccess);
    return to;
}

static void assert_on_device(const float *device, const float *want) {
    float *got = malloc(N * sizeof(*got));
    assert_int_equal(cudaMemcpy(got, device, N * sizeof(*got), cudaMemcpyDeviceToHost),
                     cudaSuccess);
    assert_memory_equal(got, want, N * sizeof(*got));
    free(got);
}

static void adamw_has_the_bits_of_the_reference(void **state) {
    (void)state;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const struct tw_adamw cfg = {.lr = 0.01f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .decay = 0.1f,
                                 .correction1 = 0.19f,
                                 .correction2 = 0.0975f,
                                 .gradient_scale = 0.5f};
    float *gradient = fill_new(&rng, N, 1.0f), *theta = fill_new(&rng, N, 1.0f);
    float *m = fill_new(&rng, N, 1.0f), *v = fill_new(&rng, N, 1.0f);
    for (size_t i = 0; i < N; i++) v[i] *= v[i];
    float *on_gradient = to_device(gradient), *on_theta = to_device(theta);
    float *on_m = to_device(m), *on_v = to_device(v);
    assert_int_equal(tw_cuda_adamw(on_theta, on_m, on_v, on_gradient, N, &cfg, NULL, NULL), TW_OK);
    tw_ops_ref(TW_F32)->adamw(theta, m, v, gradient, N, &cfg);
    assert_on_device(on_theta, theta);
    assert_on_device(on_m, m);
    assert_on_device(on_v, v);
    (void)cudaFree(on_gradient), (void)cudaFree(on_theta), (void)cudaFree(on_m),
        (void)cudaFree(on_v);
    free(gradient), free(theta), free(m), free(v);
}

int main(void) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        print_message("skipped: no CUDA device\n");
        return SKIPPED;
    }
    print_message("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_has_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
