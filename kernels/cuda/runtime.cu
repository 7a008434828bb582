/* runtime.cu - implements runtime.h with NVIDIA's CUDA runtime. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/runtime_words.h"

extern "C" {
#include "base/assert.h"
}

enum { EVENTS = 256, MAJOR_LEAST = 8, PROCESSORS_FEW = 4 };
enum : size_t { WORKSPACE_BYTES = 64u << 20 };

struct allocation {
    void *at;
    uint64_t bytes;
    struct allocation *next;
};

struct tw_cuda {
    struct tw_cuda_info info;
    uint64_t limit, used;
    cudaStream_t streams[TW_CUDA_QUEUES];
    cudaEvent_t events[EVENTS]; /* event number n is events[n % EVENTS] */
    uint64_t recorded;
    struct allocation *allocations;
    void *workspace;
    const char *doing; /* action that failed first; NULL: no failure so far */
    cudaError_t failure;
    /* texts of a library's failure; `doing` then points to library_doing */
    char library_doing[TW_CUDA_REASON_BYTES], library_reason[TW_CUDA_REASON_BYTES];
};

struct tw_cuda_graph {
    cudaGraphExec_t exec;
};

/* The first launch of the process that CUDA refused. It is process-wide, because a launch knows no
 * struct tw_cuda. */
static const char *refused_kernel;
static cudaError_t refused_status;

void tw_cuda_launch_failed(const char *kernel, cudaError_t status) {
    if (__atomic_load_n(&refused_kernel, __ATOMIC_ACQUIRE) != NULL) return;
    __atomic_store_n(&refused_status, status, __ATOMIC_RELAXED);
    __atomic_store_n(&refused_kernel, kernel, __ATOMIC_RELEASE);
}

static void keep(struct tw_cuda *cuda, cudaError_t status, const char *doing) {
    if (status == cudaSuccess || cuda->doing != NULL) return;
    cuda->doing = doing;
    cuda->failure = status;
}

static enum tw_status fault_of(struct tw_cuda *cuda, struct tw_error *err) {
    const char *kernel = __atomic_load_n(&refused_kernel, __ATOMIC_ACQUIRE);
    if (kernel != NULL) keep(cuda, __atomic_load_n(&refused_status, __ATOMIC_RELAXED), kernel);
    if (cuda->doing == NULL) return TW_OK;
    const bool is_library = cuda->doing == cuda->library_doing;
    return tw_cuda_say_fault(err, &cuda->info, cuda->doing,
                             is_library ? cuda->library_reason : cudaGetErrorString(cuda->failure));
}

extern "C" void tw_cuda_fault(struct tw_cuda *cuda, const char *doing, const char *reason) {
    if (cuda->doing != NULL) return;
    (void)snprintf(cuda->library_doing, sizeof(cuda->library_doing), "%s", doing);
    (void)snprintf(cuda->library_reason, sizeof(cuda->library_reason), "%s", reason);
    cuda->doing = cuda->library_doing;
}

/* ---- devices ---- */

extern "C" int tw_cuda_count(struct tw_error *err) {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) return count;
    (void)cudaGetLastError();
    /* Without a driver the version is 0; CUDA's own error would wrongly call the driver too old. */
    int driver = 0;
    const bool is_driven = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
    (void)tw_fail(err, TW_DEVICE, "no CUDA device can be used: %s",
                  !is_driven              ? "no NVIDIA driver is installed"
                  : status == cudaSuccess ? "there is none"
                                          : cudaGetErrorString(status));
    return 0;
}

extern "C" enum tw_status tw_cuda_info(struct tw_cuda_info *info, int ordinal,
                                       struct tw_error *err) {
    const int count = tw_cuda_count(NULL);
    if (ordinal < 0 || ordinal >= count) return tw_cuda_say_no_device(err, ordinal, count);
    struct cudaDeviceProp prop;
    const cudaError_t status = cudaGetDeviceProperties(&prop, ordinal);
    *info = {};
    info->ordinal = ordinal;
    if (status != cudaSuccess) {
        (void)cudaGetLastError();
        return tw_fail(err, TW_DEVICE, "cuda:%d says nothing about itself: %s", ordinal,
                       cudaGetErrorString(status));
    }
    (void)snprintf(info->name, sizeof(info->name), "%.63s", prop.name);
    if (cudaDeviceGetPCIBusId(info->pci, sizeof(info->pci), ordinal) != cudaSuccess) {
        (void)cudaGetLastError(); /* clears the error: without a PCI address, the device merely
                                     cannot be queried through the driver */
        info->pci[0] = '\0';
    }
    info->major = prop.major;
    if (cudaDriverGetVersion(&info->driver) != cudaSuccess) (void)cudaGetLastError();
    info->minor = prop.minor;
    info->processors = prop.multiProcessorCount;
    info->shared_bytes_most = (int)prop.sharedMemPerBlockOptin;
    info->total_bytes = prop.totalGlobalMem;
    if (prop.major < MAJOR_LEAST)
        (void)snprintf(info->reason, sizeof(info->reason),
                       "it has compute capability %d.%d, and %d.0 is the least (Ampere, 2020)",
                       prop.major, prop.minor, MAJOR_LEAST);
    return TW_OK;
}

/* Creates streams and events for tw_cuda_open(), and stores failures. `wait` is a flag for events.
 */
static void make_streams(struct tw_cuda *cuda, unsigned wait) {
    int least = 0, greatest = 0;
    keep(cuda, cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
    /* The training stream has the highest priority, the other stream the lowest. */
    for (int i = 0; i < TW_CUDA_QUEUES; i++) {
        const int priority = i == TW_CUDA_COMPUTE ? greatest : least;
        keep(cuda, cudaStreamCreateWithPriority(&cuda->streams[i], cudaStreamNonBlocking, priority),
             "making a stream");
    }
    for (int i = 0; i < EVENTS; i++) {
        keep(cuda, cudaEventCreateWithFlags(&cuda->events[i], cudaEventDisableTiming | wait),
             "making an event");
    }
}

/* Returns whether threads that wait for the device should sleep. By default they spin, and so take
 * a processor from the daemon and from digests. If there are few processors, they should sleep,
 * which costs some 30 us (microseconds) per wait. If the device refuses this, nothing else changes.
 */
static bool sleeps_while_waiting(void) {
    if (sysconf(_SC_NPROCESSORS_ONLN) > PROCESSORS_FEW) return false;
    if (cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) == cudaSuccess) return true;
    (void)cudaGetLastError();
    return false;
}

static enum tw_status open_device(struct tw_cuda *cuda, uint64_t memory_limit,
                                  struct tw_error *err) {
    size_t free_bytes = 0, total_bytes = 0;
    keep(cuda, cudaSetDevice(cuda->info.ordinal), "being opened");
    const unsigned wait = sleeps_while_waiting() ? cudaEventBlockingSync : cudaEventDefault;
    keep(cuda, cudaMemGetInfo(&free_bytes, &total_bytes), "reading its free memory");
    cuda->info.free_bytes = free_bytes;
    cuda->limit = memory_limit > 0 ? memory_limit : free_bytes - free_bytes / 10;
    if (cuda->doing == NULL) make_streams(cuda, wait);
    TW_TRY(fault_of(cuda, err));
    return tw_cuda_alloc(cuda, &cuda->workspace, WORKSPACE_BYTES, "the products' workspace", err);
}

extern "C" enum tw_status tw_cuda_open(struct tw_cuda **cuda, int ordinal, uint64_t memory_limit,
                                       struct tw_error *err) {
    struct tw_cuda_info info;
    TW_TRY(tw_cuda_info(&info, ordinal, err));
    if (info.reason[0] != '\0')
        return tw_fail(err, TW_CONFIG, "cuda:%d (%s) cannot be used: %s", ordinal, info.name,
                       info.reason);
    struct tw_cuda *opened = (struct tw_cuda *)calloc(1, sizeof(*opened));
    if (opened == NULL) return tw_fail(err, TW_NOMEM, "no memory to open cuda:%d", ordinal);
    opened->info = info;
    const enum tw_status status = open_device(opened, memory_limit, err);
    if (status != TW_OK) {
        tw_cuda_close(opened);
        return status;
    }
    *cuda = opened;
    return TW_OK;
}

extern "C" void tw_cuda_close(struct tw_cuda *cuda) {
    if (cuda == NULL) return;
    tw_cuda_use(cuda);
    for (int i = 0; i < TW_CUDA_QUEUES; i++) {
        if (cuda->streams[i] == NULL) continue;
        (void)cudaStreamSynchronize(cuda->streams[i]);
        (void)cudaStreamDestroy(cuda->streams[i]);
    }
    for (int i = 0; i < EVENTS; i++) {
        if (cuda->events[i] != NULL) (void)cudaEventDestroy(cuda->events[i]);
    }
    while (cuda->allocations != NULL) {
        struct allocation *next = cuda->allocations->next;
        (void)cudaFree(cuda->allocations->at);
        free(cuda->allocations);
        cuda->allocations = next;
    }
    (void)cudaGetLastError();
    free(cuda);
}

extern "C" void tw_cuda_use(const struct tw_cuda *cuda) {
    (void)cudaSetDevice(cuda->info.ordinal);
}

extern "C" const struct tw_cuda_info *tw_cuda_info_of(const struct tw_cuda *cuda) {
    return &cuda->info;
}

extern "C" void *tw_cuda_stream(const struct tw_cuda *cuda, enum tw_cuda_queue queue) {
    return cuda->streams[queue];
}

extern "C" void *tw_cuda_workspace(const struct tw_cuda *cuda, size_t *bytes) {
    *bytes = WORKSPACE_BYTES;
    return cuda->workspace;
}

/* ---- memory ---- */

extern "C" enum tw_status tw_cuda_alloc(struct tw_cuda *cuda, void **device, uint64_t bytes,
                                        const char *what, struct tw_error *err) {
    TW_ASSERT(bytes > 0);
    *device = NULL;
    TW_TRY(fault_of(cuda, err));
    if (bytes > cuda->limit || cuda->used > cuda->limit - bytes)
        return tw_cuda_say_full(err, &cuda->info, what, bytes, cuda->used, cuda->limit);
    struct allocation *a = (struct allocation *)calloc(1, sizeof(*a));
    if (a == NULL) return tw_fail(err, TW_NOMEM, "no host memory to keep book of %s", what);
    const cudaError_t status = cudaMalloc(&a->at, bytes);
    if (status != cudaSuccess) {
        free(a);
        (void)cudaGetLastError();
        if (status == cudaErrorMemoryAllocation)
            return tw_cuda_say_full(err, &cuda->info, what, bytes, cuda->used, cuda->limit);
        keep(cuda, status, "allocating memory");
        return fault_of(cuda, err);
    }
    a->bytes = bytes;
    a->next = cuda->allocations;
    cuda->allocations = a;
    cuda->used += bytes;
    *device = a->at;
    return TW_OK;
}

extern "C" void tw_cuda_free(struct tw_cuda *cuda, void *device) {
    if (device == NULL) return;
    struct allocation **at = &cuda->allocations;
    while (*at != NULL && (*at)->at != device) at = &(*at)->next;
    TW_ASSERT(*at != NULL);
    struct allocation *a = *at;
    keep(cuda, cudaFree(device), "freeing memory");
    *at = a->next;
    cuda->used -= a->bytes;
    free(a);
}

extern "C" uint64_t tw_cuda_memory(const struct tw_cuda *cuda, uint64_t *limit) {
    *limit = cuda->limit;
    return cuda->used;
}

extern "C" enum tw_status tw_cuda_host_alloc(struct tw_cuda *cuda, void **host, uint64_t bytes,
                                             const char *what, struct tw_error *err) {
    TW_ASSERT(bytes > 0);
    const cudaError_t status = cudaHostAlloc(host, bytes, cudaHostAllocDefault);
    if (status == cudaSuccess) return TW_OK;
    *host = NULL;
    (void)cudaGetLastError();
    if (status == cudaErrorMemoryAllocation)
        return tw_cuda_say_no_host(err, &cuda->info, what, bytes);
    keep(cuda, status, "allocating page-locked memory");
    return fault_of(cuda, err);
}

extern "C" void tw_cuda_host_free(struct tw_cuda *cuda, void *host) {
    if (host != NULL) keep(cuda, cudaFreeHost(host), "freeing page-locked memory");
}

extern "C" bool tw_cuda_host_pin(struct tw_cuda *cuda, void *host, uint64_t bytes) {
    TW_ASSERT(bytes > 0);
    if (cuda->doing != NULL) return false;
    if (cudaHostRegister(host, bytes, cudaHostRegisterDefault) == cudaSuccess) return true;
    (void)cudaGetLastError(); /* clears CUDA's error, which the next launch would otherwise report
                                 as its own */
    return false;
}

extern "C" void tw_cuda_host_unpin(struct tw_cuda *cuda, void *host) {
    if (host != NULL) keep(cuda, cudaHostUnregister(host), "giving page-locked memory back");
}

/* ---- copies ---- */

extern "C" void tw_cuda_copy_in(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *device,
                                const void *host, size_t bytes) {
    if (bytes == 0) return;
    keep(cuda, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda->streams[queue]),
         "copying to it");
}

extern "C" void tw_cuda_copy_out(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *host,
                                 const void *device, size_t bytes) {
    if (bytes == 0) return;
    keep(cuda, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda->streams[queue]),
         "copying from it");
}

extern "C" void tw_cuda_copy(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *to,
                             const void *from, size_t bytes) {
    if (bytes == 0) return;
    keep(cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->streams[queue]),
         "copying within it");
}

static void copy_rows(struct tw_cuda *cuda, enum tw_cuda_queue queue,
                      const struct tw_cuda_rows *copy, enum cudaMemcpyKind kind,
                      const char *doing) {
    TW_ASSERT(copy->bytes <= copy->to_stride && copy->bytes <= copy->from_stride);
    if (copy->bytes == 0 || copy->rows == 0) return;
    keep(cuda,
         cudaMemcpy2DAsync(copy->to, copy->to_stride, copy->from, copy->from_stride, copy->bytes,
                           copy->rows, kind, cuda->streams[queue]),
         doing);
}

extern "C" void tw_cuda_copy_rows(struct tw_cuda *cuda, enum tw_cuda_queue queue,
                                  struct tw_cuda_rows copy) {
    copy_rows(cuda, queue, &copy, cudaMemcpyDeviceToDevice, "copying rows within it");
}

extern "C" void tw_cuda_copy_rows_out(struct tw_cuda *cuda, enum tw_cuda_queue queue,
                                      struct tw_cuda_rows copy) {
    copy_rows(cuda, queue, &copy, cudaMemcpyDeviceToHost, "copying rows from it");
}

extern "C" void tw_cuda_zero(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *device,
                             size_t bytes) {
    if (bytes == 0) return;
    keep(cuda, cudaMemsetAsync(device, 0, bytes, cuda->streams[queue]), "writing zeros");
}

/* ---- order ---- */

extern "C" uint64_t tw_cuda_record(struct tw_cuda *cuda, enum tw_cuda_queue queue) {
    const uint64_t event = ++cuda->recorded;
    /* An event object is reused after EVENTS events. Its old event is waited for first, so that a
     * wait for any older event can return at once. */
    if (event > EVENTS)
        keep(cuda, cudaEventSynchronize(cuda->events[event % EVENTS]), "waiting for an old event");
    keep(cuda, cudaEventRecord(cuda->events[event % EVENTS], cuda->streams[queue]),
         "recording an event");
    return event;
}

extern "C" void tw_cuda_wait_for(struct tw_cuda *cuda, enum tw_cuda_queue queue, uint64_t event) {
    TW_ASSERT(event <= cuda->recorded);
    if (event == 0 || cuda->recorded - event >= EVENTS) return;
    keep(cuda, cudaStreamWaitEvent(cuda->streams[queue], cuda->events[event % EVENTS], 0),
         "waiting for the other stream");
}

extern "C" bool tw_cuda_is_done(struct tw_cuda *cuda, uint64_t event) {
    TW_ASSERT(event <= cuda->recorded);
    if (event == 0 || cuda->recorded - event >= EVENTS) return true;
    const cudaError_t status = cudaEventQuery(cuda->events[event % EVENTS]);
    if (status == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* clears CUDA's error, which the next launch would otherwise
                                     report as its own */
        return false;
    }
    keep(cuda, status, "asking for an event");
    return true;
}

extern "C" void tw_cuda_wait(struct tw_cuda *cuda, uint64_t event) {
    TW_ASSERT(event <= cuda->recorded);
    if (event == 0 || cuda->recorded - event >= EVENTS) return;
    keep(cuda, cudaEventSynchronize(cuda->events[event % EVENTS]), "waiting for an event");
}

extern "C" enum tw_status tw_cuda_finish(struct tw_cuda *cuda, enum tw_cuda_queue queue,
                                         struct tw_error *err) {
    keep(cuda, cudaStreamSynchronize(cuda->streams[queue]), "running queued work");
    return fault_of(cuda, err);
}

/* ---- graphs ---- */

extern "C" enum tw_status tw_cuda_graph_begin(struct tw_cuda *cuda, struct tw_error *err) {
    keep(cuda,
         cudaStreamBeginCapture(cuda->streams[TW_CUDA_COMPUTE], cudaStreamCaptureModeThreadLocal),
         "beginning a graph");
    return fault_of(cuda, err);
}

extern "C" enum tw_status tw_cuda_graph_end(struct tw_cuda *cuda, struct tw_cuda_graph **graph,
                                            struct tw_error *err) {
    cudaGraph_t plan = NULL;
    *graph = NULL;
    struct tw_cuda_graph *made = (struct tw_cuda_graph *)calloc(1, sizeof(*made));
    TW_ASSERT(made != NULL);
    keep(cuda, cudaStreamEndCapture(cuda->streams[TW_CUDA_COMPUTE], &plan), "ending a graph");
    if (cuda->doing == NULL)
        keep(cuda, cudaGraphInstantiate(&made->exec, plan, 0), "preparing a graph");
    if (plan != NULL) (void)cudaGraphDestroy(plan);
    const enum tw_status status = fault_of(cuda, err);
    if (status == TW_OK) {
        *graph = made;
    } else {
        free(made);
    }
    return status;
}

extern "C" void tw_cuda_graph_launch(struct tw_cuda *cuda, const struct tw_cuda_graph *graph) {
    keep(cuda, cudaGraphLaunch(graph->exec, cuda->streams[TW_CUDA_COMPUTE]), "launching a graph");
}

extern "C" void tw_cuda_graph_free(struct tw_cuda *cuda, struct tw_cuda_graph *graph) {
    if (graph == NULL) return;
    keep(cuda, cudaGraphExecDestroy(graph->exec), "freeing a graph");
    free(graph);
}
