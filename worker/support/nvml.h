/* nvml.h - temperature, power, memory and load of an NVIDIA GPU, read through the driver's
 * management library (NVML). The library is loaded at run time, so a build needs no driver.
 *
 * The values are shown to people; training depends only on tw_nvml_others, and only where the node
 * yields to others. For use by one thread at a time. */
#ifndef TW_WORKER_SUPPORT_NVML_H
#define TW_WORKER_SUPPORT_NVML_H

#include <stdint.h>

#include "base/status.h"

struct tw_nvml; /* the loaded library, and one GPU */

enum { TW_NVML_VERSION_BYTES = 32 };

/* Readings of the GPU; 0 means that the card or its driver does not report the value. */
struct tw_nvml_look {
    uint32_t temperature_c; /* degrees Celsius */
    uint32_t power_mw, power_max_mw;
    /* memory_used_bytes: used by all processes together */
    uint64_t memory_used_bytes, memory_bytes;
    uint32_t load_percent; /* percentage of about the last second during which a kernel ran */
};

/* Loads the library and finds the GPU at PCI address `pci`, "0000:17:00.0" as CUDA writes it. If
 * `library` is NULL, its path is TW_NVML of the environment, or else libnvidia-ml.so.1. Fails with
 * TW_DEVICE and a reason if the library is missing, is not NVML or does not know the GPU, or with
 * TW_NOMEM. */
enum tw_status tw_nvml_open(struct tw_nvml **nvml, const char *library, const char *pci,
                            struct tw_error *err);
void tw_nvml_close(struct tw_nvml *nvml); /* NULL is allowed */

/* Reads the present values. Those that are unavailable are 0. */
void tw_nvml_look(struct tw_nvml *nvml, struct tw_nvml_look *look);

/* Returns the fraction of the GPU's compute units that other processes have used since the last
 * call, 0 to 1. NaN: the driver does not report it, this is the first call, or this process has
 * never been among those reported. In a container, the driver may name processes by numbers of the
 * host, and this process would then count as another one. */
double tw_nvml_others(struct tw_nvml *nvml);

/* Returns the driver's release, such as "580.65.06", or "" if the driver does not report it. */
const char *tw_nvml_version(const struct tw_nvml *nvml);

#endif
