/* nvml.h - how an NVIDIA GPU fares, by the driver's management library, which is loaded while the
 * program runs: where there is no driver there is nothing to link, and nothing to see.
 *
 * For people only: nothing that trains depends on it. One thread at a time. */
#ifndef TW_WORKER_SUPPORT_NVML_H
#define TW_WORKER_SUPPORT_NVML_H

#include <stdint.h>

#include "base/status.h"

struct tw_nvml; /* the library, and one GPU */

enum { TW_NVML_VERSION_BYTES = 32 };

/* 0: the card or its driver does not tell. */
struct tw_nvml_look {
    uint32_t temperature_c; /* degrees Celsius */
    uint32_t power_mw, power_max_mw;
    uint64_t memory_used_bytes, memory_bytes; /* used by everybody on it */
    uint32_t load_percent;                    /* of the last second or so, a kernel ran */
};

/* Loads the library and finds the GPU at the PCI address `pci`, "0000:17:00.0" as CUDA writes it.
 * `library` NULL: the environment's TW_NVML, else libnvidia-ml.so.1. TW_DEVICE with a sentence when
 * it is not there, is no such library, or does not know the GPU; TW_NOMEM. */
enum tw_status tw_nvml_open(struct tw_nvml **nvml, const char *library, const char *pci,
                            struct tw_error *err);
void tw_nvml_close(struct tw_nvml *nvml); /* NULL is fine */

/* What can be seen now; what cannot is 0. */
void tw_nvml_look(struct tw_nvml *nvml, struct tw_nvml_look *look);

/* The driver's release, "580.65.06"; empty when it does not tell. */
const char *tw_nvml_version(const struct tw_nvml *nvml);

#endif
