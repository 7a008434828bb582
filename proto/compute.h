/* compute.h - how a node computes: its owner's choice, no part of the run. */
#ifndef TW_PROTO_COMPUTE_H
#define TW_PROTO_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Type of activations and of the operands of matrix products; masters are float32 in any case. */
enum tw_compute {
    TW_COMPUTE_AUTO, /* bf16 where the processor is faster with it */
    TW_COMPUTE_FP32,
    TW_COMPUTE_BF16,
};

/* Whether activations are computed again in the backward pass instead of being kept. */
enum tw_recompute {
    TW_RECOMPUTE_AUTO, /* only when the memory would not do otherwise */
    TW_RECOMPUTE_OFF,
    TW_RECOMPUTE_ON,
};

/* What a model is computed on. The CPU unless somebody says otherwise: the engine on GPUs was seen
 * on an emulated device only. */
enum tw_device_kind {
    TW_DEVICE_CPU,
    TW_DEVICE_AUTO, /* a GPU where one can be used, else the CPU */
    TW_DEVICE_CUDA,
};

/* Ordinals are the driver's: what CUDA_VISIBLE_DEVICES hides is not counted. */
struct tw_device_choice {
    enum tw_device_kind kind;
    uint32_t ordinal; /* of a GPU; 0 with the other kinds */
};

enum {
    TW_DEVICE_ORDINAL_MAX = 63,
    TW_DEVICE_TEXT_BYTES = 16, /* "cuda:63" with NUL */
};

/* "auto", "cpu", "cuda" (the first one) or "cuda:N". TW_CONFIG with a sentence. */
enum tw_status tw_device_parse(const char *text, struct tw_device_choice *device,
                               struct tw_error *err);

/* What tw_device_parse would read back; returns text. */
const char *tw_device_print(const struct tw_device_choice *device, char text[TW_DEVICE_TEXT_BYTES]);

/* A choice that came from another process: is it one? */
bool tw_device_is_valid(const struct tw_device_choice *device);

struct tw_compute_config {
    struct tw_device_choice device;
    enum tw_compute compute;
    enum tw_recompute recompute;
    uint32_t threads;      /* of the CPU; 0 = all cores that help */
    uint32_t micro_batch;  /* sequences of one pass; 0 = as many as help and fit */
    uint64_t memory_bytes; /* the engine may take; 0 = what the machine or device has free */
};

#endif
