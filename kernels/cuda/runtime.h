/* runtime.h - a CUDA device for C programs: memory, two streams, events, copies, graphs, and
 * errors. Implemented by two libraries: tw_kernels_cuda, and tw_kernels_emulated, whose device is
 * the CPU and its memory (for tests; see tests/emulated/emulation.h).
 *
 * Operations and copies that are queued on a stream return nothing. A fault of the device or a
 * refused launch is stored, and tw_cuda_finish() reports it. After a fault the device cannot be
 * used any more in this process.
 *
 * A struct tw_cuda is used by one thread at a time; a thread that did not open it calls
 * tw_cuda_use() first. The host must not access pointers named `device`. */
#ifndef TW_KERNELS_CUDA_RUNTIME_H
#define TW_KERNELS_CUDA_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" { /* also around included headers of this project, which are plain C */
#endif

#include "base/status.h"

enum {
    TW_CUDA_DEVICES_MAX = 64,
    TW_CUDA_NAME_BYTES = 64,
    TW_CUDA_PCI_BYTES = 32,
    TW_CUDA_REASON_BYTES = 160
};

struct tw_cuda_info {
    int ordinal;
    char name[TW_CUDA_NAME_BYTES];
    char pci[TW_CUDA_PCI_BYTES]; /* PCI address known to the driver, such as "0000:17:00.0"; "" if
                                    unknown */
    int major, minor;            /* compute capability */
    int driver;                  /* CUDA version that the driver supports: 13000 is 13.0; 0: no
                                    driver */
    int processors;              /* multiprocessors */
    int shared_bytes_most;       /* limit of one block */
    uint64_t total_bytes;
    uint64_t free_bytes; /* free memory at the time of the query; 0 if the device was not opened */
    char reason[TW_CUDA_REASON_BYTES]; /* why the device cannot be used; "" if it can */
};

/* Work on one stream runs in order; the two streams run concurrently. */
enum tw_cuda_queue {
    TW_CUDA_COMPUTE, /* training */
    TW_CUDA_SIDE,    /* outer gradients, encoding, copies for merges */
    TW_CUDA_QUEUES
};

struct tw_cuda;
struct tw_cuda_graph;

/* Returns the number of devices. If it is 0, *err gives the reason, such as a missing or old
 * driver. */
int tw_cuda_count(struct tw_error *err);

/* Describes device `ordinal`, usable or not. Returns TW_CONFIG if there is none with that number.
 */
enum tw_status tw_cuda_info(struct tw_cuda_info *info, int ordinal, struct tw_error *err);

/* Opens a device for this process. memory_limit is the total number of bytes that tw_cuda_alloc()
 * may hand out, including the workspace; 0 means 90 % of the memory free now. Errors: TW_CONFIG,
 * TW_DEVICE, TW_NOMEM. */
enum tw_status tw_cuda_open(struct tw_cuda **cuda, int ordinal, uint64_t memory_limit,
                            struct tw_error *err);
/* Waits for queued work, and frees all memory that is still allocated. Accepts NULL. */
void tw_cuda_close(struct tw_cuda *cuda);

/* Makes this the current device of the calling thread. */
void tw_cuda_use(const struct tw_cuda *cuda);
const struct tw_cuda_info *tw_cuda_info_of(const struct tw_cuda *cuda);

/* Returns the `stream` argument of operations. */
void *tw_cuda_stream(const struct tw_cuda *cuda, enum tw_cuda_queue queue);

/* Returns the scratch memory of GEMMs on the compute stream, aligned to 256 bytes. */
void *tw_cuda_workspace(const struct tw_cuda *cuda, size_t *bytes);

/* ---- memory ---- */

/* Allocates `bytes` (more than 0) of device memory, aligned to 256, uninitialised. Errors:
 * TW_NOMEM, whose message names the purpose, the memory in use and the limit. */
enum tw_status tw_cuda_alloc(struct tw_cuda *cuda, void **device, uint64_t bytes, const char *what,
                             struct tw_error *err);
/* Waits for queued work. Accepts NULL. */
void tw_cuda_free(struct tw_cuda *cuda, void *device);
/* Returns the bytes allocated now, and stores the limit. */
uint64_t tw_cuda_memory(const struct tw_cuda *cuda, uint64_t *limit);

/* Allocates page-locked host memory: copies need no bounce buffer and overlap other work. */
enum tw_status tw_cuda_host_alloc(struct tw_cuda *cuda, void **host, uint64_t bytes,
                                  const char *what, struct tw_error *err);
void tw_cuda_host_free(struct tw_cuda *cuda, void *host);
/* Page-locks memory of the caller: whole pages, which must stay mapped until unpin. unpin must
 * precede close. Returns false if the system refuses; copies then stay as slow as before. */
bool tw_cuda_host_pin(struct tw_cuda *cuda, void *host, uint64_t bytes);
void tw_cuda_host_unpin(struct tw_cuda *cuda, void *host); /* pinned memory, or NULL */

/* ---- copies on a stream; host memory must stay unchanged until they are done ---- */

void tw_cuda_copy_in(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *device, const void *host,
                     size_t bytes);
void tw_cuda_copy_out(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *host,
                      const void *device, size_t bytes);
/* Copies within the device; the ranges must not overlap. */
void tw_cuda_copy(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *to, const void *from,
                  size_t bytes);
void tw_cuda_zero(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *device, size_t bytes);

/* A copy within the device: `rows` rows of `bytes` bytes each. */
struct tw_cuda_rows {
    void *to;
    const void *from;
    size_t to_stride, from_stride; /* bytes between rows, at least `bytes` */
    size_t bytes, rows;
};
void tw_cuda_copy_rows(struct tw_cuda *cuda, enum tw_cuda_queue queue, struct tw_cuda_rows copy);
/* The same, from the device to host memory. */
void tw_cuda_copy_rows_out(struct tw_cuda *cuda, enum tw_cuda_queue queue,
                           struct tw_cuda_rows copy);

/* ---- order between streams, and with the host ---- */

/* Returns an event for the work queued on the stream so far; never 0. */
uint64_t tw_cuda_record(struct tw_cuda *cuda, enum tw_cuda_queue queue);
/* Makes all work queued on this stream from now on wait for the event. 0: nothing to wait for. */
void tw_cuda_wait_for(struct tw_cuda *cuda, enum tw_cuda_queue queue, uint64_t event);
/* Returns true if the event has passed, or a fault occurred. */
bool tw_cuda_is_done(struct tw_cuda *cuda, uint64_t event);
/* Blocks the host until the event has passed, but not for work that was queued after it. A fault is
 * reported by tw_cuda_finish(). */
void tw_cuda_wait(struct tw_cuda *cuda, uint64_t event);

/* Waits until the stream is empty. Returns TW_DEVICE, with a message about the first failure on
 * this device, at this and every later call. */
enum tw_status tw_cuda_finish(struct tw_cuda *cuda, enum tw_cuda_queue queue, struct tw_error *err);

/* Stores the failure of a library on this device (its action and reason) as the first fault, for
 * tw_cuda_finish(). */
void tw_cuda_fault(struct tw_cuda *cuda, const char *doing, const char *reason);

/* ---- graphs: a captured step of the compute stream ---- */

/* Captures the work queued on the compute stream until _end, instead of running it. Until then,
 * allocations, events, waits and work on the side stream are forbidden. */
enum tw_status tw_cuda_graph_begin(struct tw_cuda *cuda, struct tw_error *err);
enum tw_status tw_cuda_graph_end(struct tw_cuda *cuda, struct tw_cuda_graph **graph,
                                 struct tw_error *err);
/* Runs a graph with the pointers and numbers of its capture. Values that change from step to step
 * must be in device memory. */
void tw_cuda_graph_launch(struct tw_cuda *cuda, const struct tw_cuda_graph *graph);
void tw_cuda_graph_free(struct tw_cuda *cuda, struct tw_cuda_graph *graph);

#ifdef __cplusplus
}
#endif

#endif
