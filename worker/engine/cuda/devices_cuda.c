/* devices_cuda.c - implements devices.h with kernels/cuda. */
#include <stdio.h>
#include <string.h>

#include "worker/engine/devices.h"
#include "worker/engine/plans_folder.h"

void tw_devices_look(struct tw_devices *devices) {
    struct tw_error err = {.message = ""};
    tw_plans_folder_keep_code();
    const int count = tw_cuda_count(&err);
    memset(devices, 0, sizeof(*devices));
    (void)snprintf(devices->why_no_gpu, sizeof(devices->why_no_gpu), "%s", err.message);
    bool is_usable = false;
    for (int i = 0; i < count && i < TW_CUDA_DEVICES_MAX; i++) {
        struct tw_cuda_info *const gpu = &devices->gpus[i];
        if (tw_cuda_info(gpu, i, &err) != TW_OK) {
            *gpu = (struct tw_cuda_info){.ordinal = i};
            (void)snprintf(gpu->reason, sizeof(gpu->reason), "%.159s", err.message);
        }
        if (!is_usable && gpu->reason[0] != '\0') {
            (void)snprintf(devices->why_no_gpu, sizeof(devices->why_no_gpu), "%s", gpu->reason);
        }
        is_usable |= gpu->reason[0] == '\0';
        devices->gpus_count++;
    }
    if (is_usable) devices->why_no_gpu[0] = '\0';
}
