#include "kernels/cuda/gemm_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define STRING(x) #x

/* The library version of this build's toolkit comes first. */
static const char *const names[] = {
#if CUBLAS_VER_MAJOR >= 13
    "libcublasLt.so.13",
#endif
    "libcublasLt.so.12",
    "libcublasLt.so",
};

enum { NAMES = sizeof(names) / sizeof(names[0]) };

/* Folders where toolkits install the library although the loader does not search them. "" stands
 * for the loader's own folders. */
static const char *const folders[] = {
    "",
    "/usr/local/cuda/lib64/",
    "/usr/local/cuda/targets/x86_64-linux/lib/",
    "/usr/local/cuda/targets/sbsa-linux/lib/",
    "/opt/cuda/lib64/",
};

enum { FOLDERS = sizeof(folders) / sizeof(folders[0]) };

static bool is_capturing(void *stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing((cudaStream_t)stream, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

static double time_between(cudaEvent_t begin, cudaEvent_t end, cudaStream_t stream,
                           tw_gemm_work *work, void *context) {
    float ms = 0.0f;
    if (cudaEventRecord(begin, stream) != cudaSuccess || work(context) != CUBLAS_STATUS_SUCCESS ||
        cudaEventRecord(end, stream) != cudaSuccess || cudaEventSynchronize(end) != cudaSuccess ||
        cudaEventElapsedTime(&ms, begin, end) != cudaSuccess)
        return -1.0;
    return (double)ms * 1e3;
}

static double time_us(void *stream, tw_gemm_work *work, void *context) {
    cudaEvent_t begin = NULL, end = NULL;
    double us = -1.0;
    if (cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess)
        us = time_between(begin, end, (cudaStream_t)stream, work, context);
    if (begin != NULL) (void)cudaEventDestroy(begin);
    if (end != NULL) (void)cudaEventDestroy(end);
    return us;
}

/* C has no cast from dlsym's data pointer to a function pointer, but both have the same size. */
static bool find(void *handle, const char *symbol, void *function, size_t bytes) {
    void *const found = dlsym(handle, symbol);
    _Static_assert(sizeof(found) == sizeof(void (*)(void)), "dlsym gives functions");
    memcpy(function, &found, bytes);
    return found != NULL;
}

static enum tw_status fill(struct tw_gemm_library *library, void *handle, const char *name,
                           struct tw_error *err) {
#define X(member, symbol)                                                                          \
    if (!find(handle, STRING(symbol), &library->member, sizeof(library->member)))                  \
        return tw_fail(err, TW_DEVICE,                                                             \
                       "%s has no %s: install cuBLAS of CUDA 12 or 13, or set device = cpu", name, \
                       STRING(symbol));
    TW_GEMM_LIBRARY_LIST(X)
#undef X
    const size_t version = library->version();
    if (version < TW_GEMM_LIBRARY_LEAST) {
        return tw_fail(err, TW_DEVICE,
                       "%s is version %zu, older than %d: install cuBLAS of CUDA 12 or 13, or set "
                       "device = cpu",
                       name, version, TW_GEMM_LIBRARY_LEAST);
    }
    if (version / 10000 > CUBLAS_VER_MAJOR) {
        return tw_fail(err, TW_DEVICE,
                       "%s is version %zu, newer than the toolkit of this build (%d): install "
                       "cuBLAS of CUDA %d, or set device = cpu",
                       name, version, CUBLAS_VER_MAJOR, CUBLAS_VER_MAJOR);
    }
    library->is_capturing = is_capturing;
    library->time_us = time_us;
    return TW_OK;
}

/* Opens the first library found under these names in these folders. Returns NULL if there is none.
 */
static void *open_library(const char **name) {
    for (unsigned i = 0; i < NAMES; i++) {
        for (unsigned j = 0; j < FOLDERS; j++) {
            char path[128];
            (void)snprintf(path, sizeof(path), "%s%s", folders[j], names[i]);
            void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            *name = names[i];
            if (handle != NULL) return handle;
        }
    }
    return NULL;
}

enum tw_status tw_gemm_library_get(const struct tw_gemm_library **library, struct tw_error *err) {
    static struct tw_gemm_library found;
    static bool is_found;
    *library = &found;
    if (is_found) return TW_OK;
    const char *name;
    void *const handle = open_library(&name);
    if (handle != NULL) {
        TW_TRY(fill(&found, handle, name, err));
        is_found = true;
        return TW_OK;
    }
    return tw_fail(err, TW_DEVICE,
                   "no cuBLASLt for products of matrices: install cuBLAS of CUDA 12 or 13 (%s) or "
                   "put its folder on LD_LIBRARY_PATH, or set device = cpu",
                   names[0]);
}

enum tw_status tw_cuda_products_look(struct tw_error *err) {
    const struct tw_gemm_library *library;
    return tw_gemm_library_get(&library, err);
}

enum tw_status tw_cuda_products_open(struct tw_cuda_products **products, struct tw_cuda *cuda,
                                     const char *plans, struct tw_error *err) {
    const struct tw_gemm_library *library;
    *products = NULL;
    TW_TRY(tw_gemm_library_get(&library, err));
    return tw_gemm_products_create(products, cuda, library, plans, err);
}
