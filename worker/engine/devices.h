/* devices.h - lists the devices that can compute a model: the CPU, and GPUs if the program was
 * built with CUDA and a driver is present. */
#ifndef TW_WORKER_ENGINE_DEVICES_H
#define TW_WORKER_ENGINE_DEVICES_H

#include <stdint.h>

#include "kernels/cuda/runtime.h"
#include "proto/compute.h"

struct tw_devices {
    uint32_t gpus_count;
    struct tw_cuda_info gpus[TW_CUDA_DEVICES_MAX]; /* all GPUs found; for an unusable one, `reason`
                                                      says why */
    char why_no_gpu[256];                          /* why no GPU can be used; "" if one can */
};

/* Lists the GPUs by asking the driver. Implemented in cuda/gpu_memory.c and, in a build
 * without CUDA, in cuda/gpu_none.c. The first call sets the environment variable CUDA_CACHE_PATH
 * (plans_folder.h), so no other thread may read the environment during that call. */
void tw_devices_look(struct tw_devices *devices);

/* Resolves the configured choice to CPU or CUDA. AUTO chooses the first usable GPU, else the CPU.
 * Returns TW_DEVICE, with the reason in *err, if the requested GPU does not exist or cannot be
 * used. */
enum tw_status tw_devices_choose(const struct tw_devices *devices,
                                 const struct tw_device_choice *wanted,
                                 struct tw_device_choice *device, struct tw_error *err);

#endif
