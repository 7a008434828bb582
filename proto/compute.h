/* compute.h - how a node computes: its owner's choice, no part of the run. */
#ifndef TW_PROTO_COMPUTE_H
#define TW_PROTO_COMPUTE_H

#include <stdint.h>

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

struct tw_compute_config {
    enum tw_compute compute;
    enum tw_recompute recompute;
    uint32_t threads;      /* 0 = all cores that help */
    uint32_t micro_batch;  /* sequences of one pass; 0 = as many as help and fit */
    uint64_t memory_bytes; /* the engine may take; 0 = what the machine has free */
};

#endif
