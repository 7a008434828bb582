/* test_emulated.cc - the emulator behaves like a GPU, and ends the process with a sentence where a
 * GPU's behaviour is undefined. */
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" { /* some of these headers lack it */
#include <cmocka.h>
}

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/runtime.h"
#include "tests/emulated/emulation.h"

namespace {

struct tw_cuda *device;
void *stream;

int open_device(void **) {
    struct tw_error err;
    if (tw_cuda_open(&device, 0, 0, &err) != TW_OK) fail_msg("%s", err.message);
    stream = tw_cuda_stream(device, TW_CUDA_COMPUTE);
    return 0;
}

int close_device(void **) {
    tw_cuda_close(device);
    return 0;
}

void finish() {
    struct tw_error err;
    if (tw_cuda_finish(device, TW_CUDA_COMPUTE, &err) != TW_OK) fail_msg("%s", err.message);
}

/* n elements of T on the device. */
template <typename T> T *device_new(size_t n) {
    void *at = nullptr;
    struct tw_error err;
    if (tw_cuda_alloc(device, &at, n * sizeof(T), "a test", &err) != TW_OK)
        fail_msg("%s", err.message);
    return (T *)at;
}

template <typename T> std::vector<T> device_get(const T *at, size_t n) {
    std::vector<T> to(n);
    tw_cuda_copy_out(device, TW_CUDA_COMPUTE, to.data(), at, n * sizeof(T));
    finish();
    return to;
}

/* ---- like a GPU ---- */

__global__ void write_who(uint32_t *to) {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    to[block * threads + thread] += block << 16 | thread;
}

void every_thread_of_every_block_runs_once(void **) {
    const tw_emulation_order orders[] = {TW_EMULATION_UP, TW_EMULATION_DOWN, TW_EMULATION_BOTH,
                                         TW_EMULATION_SHUFFLED};
    enum { BLOCKS = 2 * 3 * 2, THREADS = 4 * 3 * 2, N = BLOCKS * THREADS };
    uint32_t *on = device_new<uint32_t>(N);
    for (uint64_t o = 0; o < 6; o++) {
        tw_emulation_set_order(orders[o < 4 ? o : 3], o);
        tw_cuda_zero(device, TW_CUDA_COMPUTE, on, N * sizeof(*on));
        TW_LAUNCH(write_who, dim3(2, 3, 2), dim3(4, 3, 2), 0, stream, on);
        const std::vector<uint32_t> got = device_get(on, N);
        for (unsigned i = 0; i < N; i++) assert_int_equal(got[i], i / THREADS << 16 | i % THREADS);
    }
    tw_emulation_set_order(TW_EMULATION_BOTH, 0);
    tw_cuda_free(device, on);
}

/* Each thread passes its number round the block `turns` times. */
__global__ void hand_round(uint32_t *to, unsigned turns) {
    TW_SHARED(uint32_t, slots, 1024);
    uint32_t value = threadIdx.x;
    for (unsigned i = 0; i < turns; i++) {
        slots[threadIdx.x] = value;
        __syncthreads();
        value = slots[(threadIdx.x + 1) % blockDim.x];
        __syncthreads();
    }
    to[threadIdx.x] = value;
    const int even = __syncthreads_count(threadIdx.x % 2 == 0);
    const int any = __syncthreads_or(threadIdx.x == 5), all = __syncthreads_and(threadIdx.x < 5);
    to[blockDim.x + threadIdx.x] = (uint32_t)even << 2 | (uint32_t)any << 1 | (uint32_t)all;
}

void barriers_hold_a_block_together(void **) {
    const unsigned sizes[] = {1, 7, 32, 96, 1000, 1024};
    uint32_t *on = device_new<uint32_t>(2048);
    for (unsigned n : sizes) {
        TW_LAUNCH(hand_round, 1, n, 0, stream, on, 5);
        const std::vector<uint32_t> got = device_get(on, 2 * n);
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(got[i], (i + 5) % n);
            assert_int_equal(got[n + i], (n + 1) / 2 << 2 | (n > 5) << 1 | (n <= 5));
        }
    }
    tw_cuda_free(device, on);
}

__global__ void shuffles(uint32_t *to) {
    const unsigned lane = threadIdx.x % 32, all = TW_ALL_LANES;
    uint32_t *const at = to + threadIdx.x * 10;
    at[0] = __shfl_sync(all, threadIdx.x, 7);
    at[1] = __shfl_xor_sync(all, threadIdx.x, 3);
    at[2] = __shfl_down_sync(all, threadIdx.x, 30u);
    at[3] = __shfl_up_sync(all, threadIdx.x, 30u);
    at[4] = __shfl_sync(all, threadIdx.x, 9, 8);
    at[5] = __shfl_down_sync(all, threadIdx.x, 3u, 4);
    at[6] = __ballot_sync(all, lane < 3);
    at[7] = (uint32_t)__any_sync(all, lane == 31) << 1 | (uint32_t)__all_sync(all, lane == 31);
    /* two halves that diverge, and one lane alone in between */
    const uint32_t half = lane < 16 ? 0xffffu : 0xffff0000u;
    for (unsigned i = 0; i < lane / 16; i++) __syncwarp(half);
    if (lane == 20) __syncwarp(1u << 20);
    at[8] = (uint32_t)__shfl_xor_sync(half, (unsigned long long)threadIdx.x << 32, 15) +
            (uint32_t)(__shfl_xor_sync(half, (unsigned long long)threadIdx.x << 32, 15) >> 32);
    at[9] = (uint32_t)tw_warp_sum((float)lane) + (uint32_t)tw_warp_max(-(float)lane);
}

void lanes_exchange_what_they_have(void **) {
    uint32_t *on = device_new<uint32_t>(64 * 10);
    TW_LAUNCH(shuffles, 1, 64, 0, stream, on);
    const std::vector<uint32_t> got = device_get(on, 64 * 10);
    for (unsigned i = 0; i < 64; i++) {
        const unsigned lane = i % 32, warp = i - lane;
        const uint32_t *at = &got[i * 10];
        assert_int_equal(at[0], warp + 7);
        assert_int_equal(at[1], i ^ 3);
        assert_int_equal(at[2], lane < 2 ? i + 30 : i);
        assert_int_equal(at[3], lane >= 30 ? i - 30 : i);
        assert_int_equal(at[4], i / 8 * 8 + 1);
        assert_int_equal(at[5], lane % 4 == 0 ? i + 3 : i);
        assert_int_equal(at[6], 7);
        assert_int_equal(at[7], 2);
        assert_int_equal(at[8], i ^ 15);
        assert_int_equal(at[9], 31 * 16);
    }
    tw_cuda_free(device, on);
}

/* d (16, 8) = a (16, 16) b (16, 8), b as rows through the transposed load. */
__global__ void product(float *d, const tw_bf16 *a, const tw_bf16 *b) {
    TW_SHARED(uint4, tile,
              16 * 2 + 16 * 2); /* rows of 16 bytes: two per row of a, one of b + pad */
    const unsigned lane = threadIdx.x;
    tw_bf16 *const a_tile = (tw_bf16 *)tile, *const b_tile = (tw_bf16 *)(tile + 32);
    tw_copy_async16(a_tile + lane * 8, a + lane * 8, true);
    tw_copy_async16(b_tile + lane * 8, lane < 16 ? b + lane * 8 : nullptr, lane < 16);
    tw_copy_commit();
    tw_copy_wait<0>();
    __syncwarp();
    uint32_t a_part[4], b_part[4];
    float sum[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    /* the four 8 by 8 of a: upper left, lower left, upper right, lower right */
    tw_ldmatrix_x4(a_part, a_tile + (lane % 16) * 16 + lane / 16 * 8);
    tw_ldmatrix_x4_trans(b_part, b_tile + lane * 8); /* rows 16 to 31 are zeros */
    tw_mma_bf16(sum, a_part, b_part);
    const unsigned row = lane / 4, column = lane % 4 * 2;
    for (unsigned i = 0; i < 4; i++) d[(row + i / 2 * 8) * 8 + column + i % 2] = sum[i];
    d[128 + lane] = __uint_as_float(b_part[2] | b_part[3]);
}

void tensor_cores_multiply(void **) {
    std::vector<tw_bf16> a(256), b(128);
    for (unsigned i = 0; i < 256; i++) a[i] = tw_bf16_of((float)(int)(i * 7 % 19) - 9.0f);
    for (unsigned i = 0; i < 128; i++) b[i] = tw_bf16_of((float)(int)(i * 5 % 23) - 11.0f);
    tw_bf16 *on_a = device_new<tw_bf16>(256), *on_b = device_new<tw_bf16>(128);
    float *on_d = device_new<float>(128 + 32);
    tw_cuda_copy_in(device, TW_CUDA_COMPUTE, on_a, a.data(), 512);
    tw_cuda_copy_in(device, TW_CUDA_COMPUTE, on_b, b.data(), 256);
    TW_LAUNCH(product, 1, 32, 0, stream, on_d, on_a, on_b);
    const std::vector<float> got = device_get(on_d, 128 + 32);
    for (unsigned i = 0; i < 128; i++) {
        float want = 1.0f;
        for (unsigned k = 0; k < 16; k++)
            want += tw_f32_of(a[i / 8 * 16 + k]) * tw_f32_of(b[k * 8 + i % 8]);
        assert_true(got[i] == want);
    }
    for (unsigned i = 128; i < 160; i++) assert_true(got[i] == 0.0f);
    tw_cuda_free(device, on_a), tw_cuda_free(device, on_b), tw_cuda_free(device, on_d);
}

/* Two groups of copies, examined before, between and after. */
__global__ void copy_late(uint32_t *to, const uint32_t *from) {
    TW_SHARED_DYNAMIC(uint32_t, tile);
    TW_SHARED(uint32_t, unwritten, 4);
    tw_copy_async16(tile, from, true);
    tw_copy_commit();
    tw_copy_async16(tile + 4, from + 4, true);
    tw_copy_commit();
    to[0] = tile[0], to[1] = unwritten[3];
    tw_copy_wait<1>();
    to[2] = tile[0], to[3] = tile[4];
    tw_copy_wait<0>();
    to[4] = tile[4];
}

void copies_arrive_when_they_are_waited_for(void **) {
    const uint32_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8}, ones = 0xffffffffu;
    uint32_t *on = device_new<uint32_t>(8), *to = device_new<uint32_t>(5);
    tw_cuda_copy_in(device, TW_CUDA_COMPUTE, on, from, sizeof(from));
    TW_LAUNCH(copy_late, 1, 1, 32, stream, to, on);
    const std::vector<uint32_t> got = device_get(to, 5);
    assert_true(got[0] == ones && got[1] == ones && got[2] == 1 && got[3] == ones && got[4] == 5);
    tw_cuda_free(device, on), tw_cuda_free(device, to);
}

/* ---- errors in kernels ---- */

__global__ void some_end(float *) {
    if (threadIdx.x == 3) return;
    __syncthreads();
}
__global__ void two_places(float *) {
    if (threadIdx.x < 5) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}
__global__ void barrier_and_warp(float *) {
    if (threadIdx.x == 0) __syncthreads();
    __syncwarp();
}
__global__ void lane_missing(float *) {
    if (threadIdx.x != 9) __syncwarp();
}
__global__ void other_operation(float *to) {
    if (threadIdx.x < 16) {
        __syncwarp();
    } else {
        to[0] = __shfl_sync(TW_ALL_LANES, 1.0f, 0);
    }
}
__global__ void not_in_mask(float *) {
    __syncwarp(0xffu);
}
__global__ void past_shared(float *) {
    TW_SHARED(float, three, 3);
    volatile float *at = three;
    at[3 + threadIdx.x] = 1.0f;
}
__global__ void past_dynamic(float *) {
    TW_SHARED_DYNAMIC(float, given);
    volatile float *at = given;
    at[64] = 1.0f;
}
__global__ void not_aligned(float *) {
    TW_SHARED(float, tile, 64);
    uint32_t r[4];
    tw_ldmatrix_x4(r, tile + 1);
}
__global__ void no_wait(float *) {
    TW_SHARED(uint4, tile, 1);
    tw_copy_async16(tile, nullptr, false);
}
__global__ void too_much(float *) {
    TW_SHARED(float, tile, 13000);
    tile[0] = 0.0f;
}
/* Every thread reads its neighbour's value, without a barrier in between. */
__global__ void race(float *to) {
    TW_SHARED(float, values, 32);
    values[threadIdx.x] = (float)threadIdx.x;
    to[threadIdx.x] = values[(threadIdx.x + 1) % 32];
}
__global__ void blocks_race(float *to) {
    if (threadIdx.x == 0) to[0] = (float)blockIdx.x;
}
__global__ void float_atomics(float *to) {
    if (threadIdx.x + blockIdx.x == 0) to[0] = 0.0f;
    atomicAdd(to, 1.0f / (float)(3 + threadIdx.x));
}
__global__ void past_the_end(float *to) {
    volatile float *at = to;
    at[32 + threadIdx.x] = 1.0f;
}

struct bad {
    void (*kernel)(float *);
    unsigned grid, block;
    size_t shared;
    const char *sentence;
};

/* Runs the body in a child, which must die; returns the child's output. */
std::string last_words(void (*body)(const bad &), const bad &bad) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], 2);
        (void)signal(SIGSEGV, SIG_DFL); /* the default, instead of cmocka's handler */
        body(bad);
        _exit(0);
    }
    (void)close(ends[1]);
    std::string text;
    char part[512];
    for (ssize_t n; (n = read(ends[0], part, sizeof(part))) > 0;) text.append(part, (size_t)n);
    (void)close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status == 0) fail_msg("nothing was wrong with a kernel where '%s'", bad.sentence);
    return text;
}

void run_bad(const bad &bad) {
    float *to = device_new<float>(32);
    TW_LAUNCH(bad.kernel, bad.grid, bad.block, bad.shared, stream, to);
    finish();
}

void kernels_that_break_the_rules_are_told(void **) {
    const bad all[] = {
        {some_end, 1, 64, 0, "others of which 1 have ended"},
        {two_places, 1, 64, 0, "while others of the block wait at __syncthreads"},
        {barrier_and_warp, 1, 32, 0, "they wait for each other for ever"},
        {lane_missing, 1, 32, 0, "others of which 1 have ended"},
        {other_operation, 1, 32, 0, "while other lanes of its warp wait at"},
        {not_in_mask, 1, 32, 0, "leaves the caller out"},
        {lane_missing, 1, 40, 0, "of more lanes than this warp has"},
        {past_shared, 1, 1, 0, "past the end of shared three"},
        {past_dynamic, 1, 1, 256, "past the end of shared memory of the launch"},
        {not_aligned, 1, 32, 0, "which is no multiple of 16 bytes"},
        {no_wait, 1, 32, 0, "ends before its asynchronous copies have arrived"},
        {too_much, 1, 32, 0, "shared arrays of fixed size"},
        {some_end, 1, 1025, 0, "1 to 1024 in all"},
        {some_end, 0, 32, 0, "a grid of (0, 1, 1) blocks"},
        {some_end, 1, 32, 300000, "a block has 232448 at most"},
        {race, 1, 32, 0, "depends on the order of threads or blocks"},
        {blocks_race, 3, 32, 0, "depends on the order of threads or blocks"},
        {float_atomics, 1, 32, 0, "depends on the order of threads or blocks"},
        {past_the_end, 1, 1, 0, "written past the end of this device memory"},
    };
    for (const bad &bad : all) {
        const std::string words = last_words(run_bad, bad);
        if (words.find(bad.sentence) == std::string::npos &&
            words.find("AddressSanitizer") == std::string::npos)
            fail_msg("'%s' expected, it said: %s", bad.sentence, words.c_str());
    }
}

/* ---- errors of the host ---- */

void touch(const bad &) {
    float *to = device_new<float>(32);
    *(volatile float *)to = 1.0f;
}
void copy_past(const bad &) {
    float *to = device_new<float>(32);
    tw_cuda_zero(device, TW_CUDA_COMPUTE, to, 33 * sizeof(float));
}
void free_twice(const bad &) {
    float *to = device_new<float>(32);
    tw_cuda_free(device, to);
    tw_cuda_free(device, to);
}
void wait_in_graph(const bad &) {
    (void)tw_cuda_graph_begin(device, nullptr);
    (void)tw_cuda_finish(device, TW_CUDA_COMPUTE, nullptr);
}
void side_in_graph(const bad &) {
    float *to = device_new<float>(32);
    (void)tw_cuda_graph_begin(device, nullptr);
    tw_cuda_zero(device, TW_CUDA_SIDE, to, 4);
}

void hosts_that_break_the_rules_are_told(void **) {
    const struct {
        void (*body)(const bad &);
        const char *sentence;
    } all[] = {
        {touch, ""},
        {copy_past, "reaches past its device memory"},
        {free_twice, "frees memory that it did not allocate"},
        {wait_in_graph, "called while a graph is made"},
        {side_in_graph, "put into the side stream while a graph is made"},
    };
    for (const auto &one : all) {
        const bad bad = {nullptr, 0, 0, 0, one.sentence};
        const std::string words = last_words(one.body, bad);
        if (words.find(one.sentence) == std::string::npos)
            fail_msg("'%s' expected, it said: %s", one.sentence, words.c_str());
    }
}

/* Without an event, the side stream may copy data that is not written yet. In every order but `up`
 * it does. */
void a_missing_wait_shows(void **) {
    const float one = 1.0f;
    float *a = device_new<float>(1), *b = device_new<float>(1), got = 0.0f;
    for (int waits = 0; waits < 2; waits++) {
        tw_cuda_zero(device, TW_CUDA_COMPUTE, a, 4);
        finish();
        tw_cuda_copy_in(device, TW_CUDA_COMPUTE, a, &one, 4);
        if (waits == 1)
            tw_cuda_wait_for(device, TW_CUDA_SIDE, tw_cuda_record(device, TW_CUDA_COMPUTE));
        tw_cuda_copy(device, TW_CUDA_SIDE, b, a, 4);
        tw_cuda_copy_out(device, TW_CUDA_SIDE, &got, b, 4);
        assert_int_equal(tw_cuda_finish(device, TW_CUDA_SIDE, nullptr), TW_OK);
        finish();
        assert_true(got == (float)waits);
    }
    tw_cuda_free(device, a), tw_cuda_free(device, b);
}

} // namespace

int main() {
    tw_emulation_set_order(TW_EMULATION_BOTH, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_of_every_block_runs_once),
        cmocka_unit_test(barriers_hold_a_block_together),
        cmocka_unit_test(lanes_exchange_what_they_have),
        cmocka_unit_test(tensor_cores_multiply),
        cmocka_unit_test(copies_arrive_when_they_are_waited_for),
        cmocka_unit_test(kernels_that_break_the_rules_are_told),
        cmocka_unit_test(hosts_that_break_the_rules_are_told),
        cmocka_unit_test(a_missing_wait_shows),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
