/* devices.h - what a model can be computed on here, for people: the processor, and GPUs where the
 * program was built for them and a driver is there. */
#ifndef TW_WORKER_ENGINE_DEVICES_H
#define TW_WORKER_ENGINE_DEVICES_H

#include <stdint.h>

#include "kernels/cuda/runtime.h"
#include "proto/compute.h"

struct tw_devices {
    uint32_t gpus_count;
    struct tw_cuda_info gpus[TW_CUDA_DEVICES_MAX]; /* usable or not: see their reasons */
    char why_no_gpu[256];                          /* "" when one can be used */
};

/* Asks the driver, where there is one. Two more files have it: devices_cuda.c, and devices_none.c
 * of a build without CUDA. */
void tw_devices_look(struct tw_devices *devices);

/* What the choice comes to, CPU or CUDA: AUTO is the first GPU that can be used, else the CPU.
 * TW_DEVICE with the reason where a GPU is asked for that is not there, or cannot be used. */
enum tw_status tw_devices_choose(const struct tw_devices *devices,
                                 const struct tw_device_choice *wanted,
                                 struct tw_device_choice *device, struct tw_error *err);

#endif
