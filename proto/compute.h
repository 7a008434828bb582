/* compute.h - how a node computes: chosen by the operator of the node, not part of the run
 * manifest. */
#ifndef TW_PROTO_COMPUTE_H
#define TW_PROTO_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Type of activations and matrix operands. Master weights are always float32. */
enum tw_compute {
    TW_COMPUTE_AUTO, /* bf16 if the processor computes faster with it */
    TW_COMPUTE_FP32,
    TW_COMPUTE_BF16,
};

/* Whether the backward pass recomputes activations or uses stored ones. */
enum tw_recompute {
    TW_RECOMPUTE_AUTO, /* only if activations do not fit into memory otherwise */
    TW_RECOMPUTE_OFF,
    TW_RECOMPUTE_ON,
};

/* The device that computes; the default is the CPU. */
enum tw_device_kind {
    TW_DEVICE_CPU,
    TW_DEVICE_AUTO, /* a GPU if one is usable, else the CPU */
    TW_DEVICE_CUDA,
};

/* GPUs are numbered as the CUDA driver does, so one hidden by CUDA_VISIBLE_DEVICES has no number.
 */
struct tw_device_choice {
    enum tw_device_kind kind;
    uint32_t ordinal; /* number of the GPU; 0 for the other kinds */
};

enum {
    TW_DEVICE_ORDINAL_MAX = 63,
    TW_DEVICE_TEXT_BYTES = 16, /* "cuda:63", including NUL */
};

/* Parses "auto", "cpu", "cuda" (the first GPU) or "cuda:N". Returns TW_CONFIG and a message for any
 * other text. */
enum tw_status tw_device_parse(const char *text, struct tw_device_choice *device,
                               struct tw_error *err);

/* Inverse of tw_device_parse. Returns `text`. */
const char *tw_device_print(const struct tw_device_choice *device, char text[TW_DEVICE_TEXT_BYTES]);

/* Checks a choice that came from another process. */
bool tw_device_is_valid(const struct tw_device_choice *device);

struct tw_compute_config {
    struct tw_device_choice device;
    enum tw_compute compute;
    enum tw_recompute recompute;
    uint32_t threads;     /* CPU threads; 0 = as many as make the engine faster */
    uint32_t micro_batch; /* sequences per forward and backward pass; 0 = as many as are useful and
                             fit into memory */
    /* most memory that the engine may use; 0 = all free memory of the machine or device */
    uint64_t memory_bytes;
};

#endif
