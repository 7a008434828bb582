#include "worker/support/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The part of NVML's interface that is used here. All its functions return 0 for success. */
enum { SUCCESS = 0, NOT_FOUND = 6, TEMPERATURE_OF_THE_CHIP = 0 };

enum { PROCESSES_MAX = 256 }; /* samples of processes that are read at a time */

struct memory {
    unsigned long long total, free, used;
};

struct load {
    unsigned int gpu, memory;
};

/* Use of the GPU by a process, in percent, over the time that ends at `time_us`. */
struct process {
    unsigned int pid;
    unsigned long long time_us;
    unsigned int compute, memory, encoder, decoder;
};

struct functions {
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *pci, void **device);
    const char *(*error)(int code);
    /* optional functions, NULL if absent */
    int (*version)(char *text, unsigned int size);
    int (*temperature)(void *device, int sensor, unsigned int *celsius);
    int (*power)(void *device, unsigned int *milliwatts);
    int (*power_max)(void *device, unsigned int *milliwatts);
    int (*memory)(void *device, struct memory *memory);
    int (*load)(void *device, struct load *load);
    int (*processes)(void *device, struct process *rows, unsigned int *count,
                     unsigned long long since_us);
};

struct tw_nvml {
    void *library; /* handle from dlopen */
    struct functions functions;
    void *device;  /* NVML handle of the GPU */
    bool is_begun; /* init succeeded, so shutdown must be called */
    char version[TW_NVML_VERSION_BYTES];
    unsigned long long newest_us; /* time of the newest sample of a process; 0: none yet */
    bool knows_self;              /* this process was among those reported */
};

/* Stores the address of a symbol in *function. POSIX guarantees that it fits a void *, but ISO C
 * has no such conversion. */
static void resolve(void *library, const char *name, void *function, size_t size) {
    void *const found = dlsym(library, name);
    _Static_assert(sizeof(found) == sizeof(int (*)(void)), "POSIX");
    memcpy(function, &found, size);
}
#define RESOLVE(nvml, member, name)                                                                \
    resolve((nvml)->library, name, &(nvml)->functions.member, sizeof((nvml)->functions.member))

static void resolve_all(struct tw_nvml *nvml) {
    RESOLVE(nvml, init, "nvmlInit_v2");
    RESOLVE(nvml, shutdown, "nvmlShutdown");
    RESOLVE(nvml, find, "nvmlDeviceGetHandleByPciBusId_v2");
    RESOLVE(nvml, error, "nvmlErrorString");
    RESOLVE(nvml, version, "nvmlSystemGetDriverVersion");
    RESOLVE(nvml, temperature, "nvmlDeviceGetTemperature");
    RESOLVE(nvml, power, "nvmlDeviceGetPowerUsage");
    RESOLVE(nvml, power_max, "nvmlDeviceGetEnforcedPowerLimit");
    RESOLVE(nvml, memory, "nvmlDeviceGetMemoryInfo");
    RESOLVE(nvml, load, "nvmlDeviceGetUtilizationRates");
    RESOLVE(nvml, processes, "nvmlDeviceGetProcessUtilization");
}

static const char *reason(const struct tw_nvml *nvml, int code) {
    const char *const text = nvml->functions.error(code);
    return text != NULL ? text : "no reason given";
}

static enum tw_status begin_nvml(struct tw_nvml *nvml, const char *library, const char *pci,
                                 struct tw_error *err) {
    nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL) {
        return tw_fail(err, TW_DEVICE,
                       "%.80s could not be loaded: temperature and power stay unknown until the "
                       "NVIDIA driver is installed here",
                       library);
    }
    resolve_all(nvml);
    const struct functions *const call = &nvml->functions;
    if (call->init == NULL || call->shutdown == NULL || call->find == NULL || call->error == NULL) {
        return tw_fail(
            err, TW_DEVICE,
            "%.80s is not an NVML that this program knows: install a newer NVIDIA driver", library);
    }
    int code = call->init();
    if (code != SUCCESS) {
        return tw_fail(err, TW_DEVICE, "the NVIDIA driver refused to start NVML: %.120s",
                       reason(nvml, code));
    }
    nvml->is_begun = true;
    code = call->find(pci, &nvml->device);
    if (code != SUCCESS) {
        return tw_fail(err, TW_DEVICE, "the NVIDIA driver knows no GPU at %.40s: %.120s", pci,
                       reason(nvml, code));
    }
    if (call->version == NULL || call->version(nvml->version, sizeof(nvml->version)) != SUCCESS) {
        nvml->version[0] = '\0';
    }
    nvml->version[sizeof(nvml->version) - 1] = '\0';
    return TW_OK;
}

enum tw_status tw_nvml_open(struct tw_nvml **nvml_out, const char *library, const char *pci,
                            struct tw_error *err) {
    const char *const named = library != NULL ? library : getenv("TW_NVML");
    struct tw_nvml *const nvml = calloc(1, sizeof(*nvml));
    *nvml_out = NULL;
    if (nvml == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for NVML, the NVIDIA driver's library");
    const enum tw_status status =
        begin_nvml(nvml, named != NULL ? named : "libnvidia-ml.so.1", pci, err);
    if (status == TW_OK) {
        *nvml_out = nvml;
    } else {
        tw_nvml_close(nvml);
    }
    return status;
}

void tw_nvml_close(struct tw_nvml *nvml) {
    if (nvml == NULL) return;
    if (nvml->is_begun) (void)nvml->functions.shutdown();
    if (nvml->library != NULL) (void)dlclose(nvml->library);
    free(nvml);
}

void tw_nvml_look(struct tw_nvml *nvml, struct tw_nvml_look *look) {
    const struct functions *const call = &nvml->functions;
    struct memory memory;
    struct load load;
    unsigned int value;
    *look = (struct tw_nvml_look){.temperature_c = 0};
    if (call->temperature != NULL &&
        call->temperature(nvml->device, TEMPERATURE_OF_THE_CHIP, &value) == SUCCESS) {
        look->temperature_c = value;
    }
    if (call->power != NULL && call->power(nvml->device, &value) == SUCCESS) {
        look->power_mw = value;
    }
    if (call->power_max != NULL && call->power_max(nvml->device, &value) == SUCCESS) {
        look->power_max_mw = value;
    }
    if (call->memory != NULL && call->memory(nvml->device, &memory) == SUCCESS) {
        look->memory_used_bytes = memory.used;
        look->memory_bytes = memory.total;
    }
    if (call->load != NULL && call->load(nvml->device, &load) == SUCCESS) {
        look->load_percent = load.gpu;
    }
}

/* Adds up the newest sample of each other process. */
static double add_others(struct tw_nvml *nvml, const struct process *rows, unsigned int count) {
    unsigned int percent = 0;
    for (unsigned int i = 0; i < count; i++) {
        bool is_newest = true;
        for (unsigned int k = 0; k < count && is_newest; k++)
            is_newest = rows[k].pid != rows[i].pid || rows[k].time_us < rows[i].time_us ||
                        (rows[k].time_us == rows[i].time_us && k <= i);
        if (rows[i].time_us > nvml->newest_us) nvml->newest_us = rows[i].time_us;
        if (rows[i].pid == (unsigned int)getpid()) {
            nvml->knows_self = true;
        } else if (is_newest && rows[i].compute <= 100) {
            percent += rows[i].compute;
        }
    }
    return percent < 100 ? percent / 100.0 : 1;
}

double tw_nvml_others(struct tw_nvml *nvml) {
    static struct process rows[PROCESSES_MAX];
    unsigned int count = PROCESSES_MAX;
    if (nvml->functions.processes == NULL) return (double)NAN;
    const bool is_first = nvml->newest_us == 0;
    const int code = nvml->functions.processes(nvml->device, rows, &count, nvml->newest_us);
    if (code != SUCCESS && code != NOT_FOUND) return (double)NAN;
    if (code == NOT_FOUND || count > PROCESSES_MAX) count = 0; /* nobody has used the GPU */
    const double others = add_others(nvml, rows, count);
    return is_first || !nvml->knows_self ? (double)NAN : others;
}

const char *tw_nvml_version(const struct tw_nvml *nvml) {
    return nvml->version;
}
