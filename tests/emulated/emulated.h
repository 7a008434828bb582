/* emulated.h - CUDA's execution model on a CPU, for testing kernels on machines without a GPU. C++,
 * tests only; device.cuh includes it when TW_CUDA_EMULATED is defined.
 *
 * Blocks run one after the other on the launching thread. Threads of a block are fibers. Each runs
 * until it waits for others, so a kernel without waits costs no switch. Threads (between two waits)
 * and blocks run in ascending, descending or shuffled order: see emulation.h. Shared memory is all
 * ones (NaN) when a block starts. Asynchronous copies arrive only when they are waited for.
 *
 * Behaviour that is undefined on a GPU is an error in the emulation, and ends the process with a
 * message:
 *   - threads of a block wait at different __syncthreads(), or after others have ended;
 *   - some lanes miss a warp collective, or reach it with another operation;
 *   - a write past a shared array, a misaligned shared row, more memory than the device has. */
#ifndef TW_TESTS_EMULATED_EMULATED_H
#define TW_TESTS_EMULATED_EMULATED_H

#include <functional>
#include <tuple>

#include "tests/emulated/emulated_words.h"

/* Indices of the running thread. */
struct tw_emulated_identity {
    uint3 thread, block, block_size, grid_size;
};
extern __thread tw_emulated_identity tw_emulated_self;
#define threadIdx (tw_emulated_self.thread)
#define blockIdx (tw_emulated_self.block)
#define blockDim (tw_emulated_self.block_size)
#define gridDim (tw_emulated_self.grid_size)
#define warpSize 32

/* ---- launches ---- */

struct tw_emulated_kernel {
    const char *name;
    dim3 grid, block;
    size_t shared_bytes;
    std::function<void()> body; /* body of one thread */
};

/* Runs the kernel to its end, then returns. */
void tw_emulated_run(const tw_emulated_kernel &kernel);

/* Queues the kernel on a stream (runtime_emulated.cc). If `stream` is NULL, runs it at once. */
void tw_emulated_submit(void *stream, tw_emulated_kernel kernel);

template <typename... Params, typename... Args>
static inline void tw_emulated_launch(void *stream, tw_emulated_kernel kernel,
                                      void (*body)(Params...), Args... args) {
    const std::tuple<Params...> values(static_cast<Params>(args)...);
    kernel.body = [body, values]() { std::apply(body, values); };
    tw_emulated_submit(stream, std::move(kernel));
}

#define TW_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    tw_emulated_launch(stream, tw_emulated_kernel{#kernel, grid, block, shared_bytes, {}}, kernel, \
                       __VA_ARGS__)

/* ---- shared memory ---- */

/* Returns the block's array for that place in the source. The first thread that asks for it creates
 * it, filled with ones. */
void *tw_emulated_shared(const void *place, size_t bytes, const char *name);
void *tw_emulated_shared_dynamic();

#define TW_SHARED(type, name, count)                                                               \
    static const char tw_place_##name = 0;                                                         \
    typedef type tw_type_##name[count];                                                            \
    tw_type_##name &name =                                                                         \
        *(tw_type_##name *)tw_emulated_shared(&tw_place_##name, sizeof(tw_type_##name), #name)
#define TW_SHARED_DYNAMIC(type, name) type *const name = (type *)tw_emulated_shared_dynamic()

/* ---- waiting for each other ---- */

/* Waits for all threads of the block, and returns the sum of their values. */
int tw_emulated_barrier(int value, const char *what, const char *file, int line);

#define TW_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(TW_HERE) {
    (void)tw_emulated_barrier(0, "__syncthreads", file, line);
}
static inline int __syncthreads_count(int predicate, TW_HERE) {
    return tw_emulated_barrier(predicate != 0, "__syncthreads_count", file, line);
}
static inline int __syncthreads_or(int predicate, TW_HERE) {
    return tw_emulated_barrier(predicate != 0, "__syncthreads_or", file, line) != 0;
}
static inline int __syncthreads_and(int predicate, TW_HERE) {
    return tw_emulated_barrier(predicate == 0, "__syncthreads_and", file, line) == 0;
}

enum { TW_EMULATED_LANE_BYTES = 64 };

/* The bytes that each lane of a warp passes to a collective step. */
struct tw_emulated_lanes {
    alignas(16) unsigned char of[32][TW_EMULATED_LANE_BYTES];
};

/* One collective step of the lanes in `mask`. Each lane passes `bytes`. The last lane to arrive
 * calls `complete` (if any) on all of them, then all lanes continue. The passed bytes can be read
 * until the caller's next step. */
struct tw_emulated_step {
    const char *what;
    uint32_t mask;
    const void *value;
    size_t bytes;
    void (*complete)(tw_emulated_lanes *lanes);
};
const tw_emulated_lanes *tw_emulated_warp(const tw_emulated_step &step, const char *file, int line);

static inline unsigned tw_emulated_lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, TW_HERE) {
    (void)tw_emulated_warp({"__syncwarp", mask, nullptr, 0, nullptr}, file, line);
}

template <typename T>
static inline T tw_emulated_shuffle(const char *what, unsigned mask, T value, unsigned source,
                                    const char *file, int line) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "as on a device");
    T result;
    const auto *lanes = tw_emulated_warp({what, mask, &value, sizeof(value), nullptr}, file, line);
    /* The value of a lane outside the mask is undefined on a device, and NaN bits in the emulation.
     */
    memset(&result, 0xff, sizeof(result));
    if (mask >> source & 1) memcpy(&result, lanes->of[source], sizeof(result));
    return result;
}
template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, TW_HERE) {
    const unsigned lane = tw_emulated_lane(), part = lane & ~((unsigned)width - 1);
    return tw_emulated_shuffle("__shfl_sync", mask, value,
                               part | ((unsigned)source & ((unsigned)width - 1)), file, line);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, TW_HERE) {
    const unsigned lane = tw_emulated_lane(), other = lane ^ (unsigned)bits;
    const bool is_inside = other < (lane & ~((unsigned)width - 1)) + (unsigned)width;
    return tw_emulated_shuffle("__shfl_xor_sync", mask, value, is_inside ? other : lane, file,
                               line);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, TW_HERE) {
    const unsigned lane = tw_emulated_lane(), within = lane & ((unsigned)width - 1);
    return tw_emulated_shuffle("__shfl_down_sync", mask, value,
                               within + by < (unsigned)width ? lane + by : lane, file, line);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, TW_HERE) {
    const unsigned lane = tw_emulated_lane(), within = lane & ((unsigned)width - 1);
    return tw_emulated_shuffle("__shfl_up_sync", mask, value, within >= by ? lane - by : lane, file,
                               line);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, TW_HERE) {
    const int value = predicate != 0;
    const auto *lanes =
        tw_emulated_warp({"__ballot_sync", mask, &value, sizeof(value), nullptr}, file, line);
    unsigned result = 0;
    for (unsigned i = 0; i < 32; i++) {
        if (mask >> i & 1 && lanes->of[i][0] != 0) result |= 1u << i;
    }
    return result;
}
static inline int __any_sync(unsigned mask, int predicate, TW_HERE) {
    return __ballot_sync(mask, predicate, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, TW_HERE) {
    return __ballot_sync(mask, predicate, file, line) == mask;
}

/* ---- instructions used in device.cuh ---- */

void tw_emulated_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file,
                          int line);
void tw_emulated_ldmatrix_x4(uint32_t r[4], const void *row, bool is_transposed, const char *file,
                             int line);
/* For wgmma.cuh: computes the warp's 16 of the 64 rows of result = left factor * b, plus result if
 * keeps_d. The left factor is either the lane's registers `left` (4) or the shared matrix *a. The
 * other pointer is NULL. */
struct tw_emulated_wg {
    float *d; /* the lane's elements, (columns / 8, 4) */
    unsigned columns;
    bool keeps_d;
};
struct tw_wg_factor;
void tw_emulated_wgmma(const tw_emulated_wg &result, const uint32_t *left, const tw_wg_factor *a,
                       const tw_wg_factor *b, const char *file, int line);
void tw_emulated_copy_async16(void *shared, const void *global, bool is_valid);
void tw_emulated_copy_commit();
void tw_emulated_copy_wait(unsigned groups_left);

#endif
