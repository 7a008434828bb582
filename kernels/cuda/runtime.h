/* runtime.h - a CUDA device for programs in C: memory, two streams, events, copies, graphs, and
 * what went wrong. Two libraries have it: tw_kernels_cuda, and tw_kernels_emulated whose device is
 * this processor and its memory (for tests; see emulation.h).
 *
 * What is put into a stream (operations, copies) returns nothing and fails by itself never: a fault
 * of the device or a refused launch is kept, and tw_cuda_finish() says it. After a fault nothing
 * works any more on that device in this process.
 *
 * A struct tw_cuda is used by one thread at a time; a thread that did not open it calls
 * tw_cuda_use() first. Pointers marked `device` are of device memory: the host may not touch it. */
#ifndef TW_KERNELS_CUDA_RUNTIME_H
#define TW_KERNELS_CUDA_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" { /* around the headers of the project, too: they are plain C */
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
    char pci[TW_CUDA_PCI_BYTES]; /* its address, "0000:17:00.0", for its driver; "": it has none */
    int major, minor;            /* compute capability */
    int driver;                  /* CUDA that its driver has: 13000 is 13.0; 0: none */
    int processors;              /* multiprocessors */
    int shared_bytes_most;       /* of one block */
    uint64_t total_bytes;
    uint64_t free_bytes;               /* when it was opened; 0 of one that is not */
    char reason[TW_CUDA_REASON_BYTES]; /* why it cannot be used; "" when it can */
};

/* A stream's work is done in order; the two run beside each other. */
enum tw_cuda_queue {
    TW_CUDA_COMPUTE, /* training */
    TW_CUDA_SIDE,    /* deltas, encoding, copies of a sync */
    TW_CUDA_QUEUES
};

struct tw_cuda;
struct tw_cuda_graph;

/* How many devices there are: 0 without one, and then *err says why (no driver, one too old ..). */
int tw_cuda_count(struct tw_error *err);

/* What device `ordinal` is, usable or not. TW_CONFIG when there is none of that number. */
enum tw_status tw_cuda_info(struct tw_cuda_info *info, int ordinal, struct tw_error *err);

/* Opens a device for this process. memory_limit: bytes that tw_cuda_alloc() may hand out in all,
 * the workspace included; 0: all that is free now but a tenth. TW_CONFIG, TW_DEVICE, TW_NOMEM. */
enum tw_status tw_cuda_open(struct tw_cuda **cuda, int ordinal, uint64_t memory_limit,
                            struct tw_error *err);
/* Waits for what is under way. NULL is fine. Memory that was not given back goes with it. */
void tw_cuda_close(struct tw_cuda *cuda);

/* Makes it the device of the calling thread. */
void tw_cuda_use(const struct tw_cuda *cuda);
const struct tw_cuda_info *tw_cuda_info_of(const struct tw_cuda *cuda);

/* What operations take as `stream`. */
void *tw_cuda_stream(const struct tw_cuda *cuda, enum tw_cuda_queue queue);

/* Scratch of the products of the compute stream, on a multiple of 256. */
void *tw_cuda_workspace(const struct tw_cuda *cuda, size_t *bytes);

/* ---- memory ---- */

/* *device: bytes (more than 0) on a multiple of 256, contents of no matter. TW_NOMEM names what it
 * was for, what is taken and what the limit is. */
enum tw_status tw_cuda_alloc(struct tw_cuda *cuda, void **device, uint64_t bytes, const char *what,
                             struct tw_error *err);
/* NULL is fine. Waits for what is under way. */
void tw_cuda_free(struct tw_cuda *cuda, void *device);
/* Bytes handed out now, and the limit. */
uint64_t tw_cuda_memory(const struct tw_cuda *cuda, uint64_t *limit);

/* Host memory that copies reach without a detour and beside other work (page-locked). */
enum tw_status tw_cuda_host_alloc(struct tw_cuda *cuda, void **host, uint64_t bytes,
                                  const char *what, struct tw_error *err);
void tw_cuda_host_free(struct tw_cuda *cuda, void *host);
/* Makes such memory of the caller's (whole pages, mapped until the unpin, which comes before the
 * close). False: the system does not, and copies from and to it go as they went. */
bool tw_cuda_host_pin(struct tw_cuda *cuda, void *host, uint64_t bytes);
void tw_cuda_host_unpin(struct tw_cuda *cuda, void *host); /* of one that was; NULL is fine */

/* ---- copies, in a stream: host memory stays as it is until the stream is done ---- */

void tw_cuda_copy_in(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *device, const void *host,
                     size_t bytes);
void tw_cuda_copy_out(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *host,
                      const void *device, size_t bytes);
/* Within the device; the two do not overlap. */
void tw_cuda_copy(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *to, const void *from,
                  size_t bytes);
void tw_cuda_zero(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *device, size_t bytes);

/* Within the device, `bytes` of each of `rows` rows, at once. */
struct tw_cuda_rows {
    void *to;
    const void *from;
    size_t to_stride, from_stride; /* bytes from row to row, at least `bytes` */
    size_t bytes, rows;
};
void tw_cuda_copy_rows(struct tw_cuda *cuda, enum tw_cuda_queue queue, struct tw_cuda_rows copy);

/* ---- order between streams, and with the host ---- */

/* What was put into the stream up to here, as a number that is never 0. */
uint64_t tw_cuda_record(struct tw_cuda *cuda, enum tw_cuda_queue queue);
/* What is put into the stream from here on comes after that. 0: nothing to wait for. */
void tw_cuda_wait_for(struct tw_cuda *cuda, enum tw_cuda_queue queue, uint64_t event);
/* Whether it is done; true as well after a fault. */
bool tw_cuda_is_done(struct tw_cuda *cuda, uint64_t event);

/* Waits until the stream is empty. TW_DEVICE with a sentence for the first thing on this device
 * that failed, now and at every call after. */
enum tw_status tw_cuda_finish(struct tw_cuda *cuda, enum tw_cuda_queue queue, struct tw_error *err);

/* A library that works on the device failed doing that, for that reason: kept as the first fault,
 * for tw_cuda_finish(). */
void tw_cuda_fault(struct tw_cuda *cuda, const char *doing, const char *reason);

/* ---- graphs: a step of the compute stream that is launched at once ---- */

/* What is put into the compute stream until _end is kept and not run. No allocation, no event, no
 * wait in between, and nothing in the side stream. */
enum tw_status tw_cuda_graph_begin(struct tw_cuda *cuda, struct tw_error *err);
enum tw_status tw_cuda_graph_end(struct tw_cuda *cuda, struct tw_cuda_graph **graph,
                                 struct tw_error *err);
/* With the pointers and numbers it was made with: what changes from step to step is in device
 * memory. */
void tw_cuda_graph_launch(struct tw_cuda *cuda, const struct tw_cuda_graph *graph);
void tw_cuda_graph_free(struct tw_cuda *cuda, struct tw_cuda_graph *graph);

#ifdef __cplusplus
}
#endif

#endif
