#include "worker/engine/devices.h"

static bool is_usable(const struct tw_cuda_info *gpu) {
    return gpu->reason[0] == '\0';
}

enum tw_status tw_devices_choose(const struct tw_devices *devices,
                                 const struct tw_device_choice *wanted,
                                 struct tw_device_choice *device, struct tw_error *err) {
    const uint32_t ordinal = wanted->ordinal, count = devices->gpus_count;
    *device = (struct tw_device_choice){.kind = TW_DEVICE_CPU};
    if (wanted->kind == TW_DEVICE_CPU) return TW_OK;
    for (uint32_t i = 0; wanted->kind == TW_DEVICE_AUTO && i < count; i++) {
        if (!is_usable(&devices->gpus[i])) continue;
        *device = (struct tw_device_choice){.kind = TW_DEVICE_CUDA, .ordinal = i};
        return TW_OK;
    }
    if (wanted->kind == TW_DEVICE_AUTO) return TW_OK;
    if (count == 0) {
        return tw_fail(err, TW_DEVICE, "device = cuda:%u, but there is no GPU: %.160s",
                       (unsigned)ordinal, devices->why_no_gpu);
    }
    if (ordinal >= count) {
        return tw_fail(err, TW_DEVICE, "device = cuda:%u, but GPUs here are cuda:0 to cuda:%u",
                       (unsigned)ordinal, (unsigned)count - 1);
    }
    if (!is_usable(&devices->gpus[ordinal])) {
        return tw_fail(err, TW_DEVICE, "cuda:%u cannot be used: %s", (unsigned)ordinal,
                       devices->gpus[ordinal].reason);
    }
    *device = *wanted;
    return TW_OK;
}
