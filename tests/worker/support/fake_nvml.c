/* fake_nvml.c - a fake NVML library for tests, with NVML's function names. The variable FAKE_NVML
 * makes parts of it fail:
 *
 *   refuse    the driver refuses to start NVML
 *   silent    it reports nothing about the GPU
 *   unending  the release string is not terminated
 *   shared    other processes use the GPU beside this one
 *   crowded   they use all of it
 *   idle      nobody uses it
 *   strangers the driver names processes by other numbers */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAILED = 999, NOT_FOUND = 6 };

static int begun; /* calls of init minus calls of shutdown; read by the test */

static int is(const char *how) {
    const char *const wanted = getenv("FAKE_NVML");
    return wanted != NULL && strcmp(wanted, how) == 0;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
int fake_nvml_begun(void);
const char *nvmlErrorString(int code);
int nvmlSystemGetDriverVersion(char *text, unsigned int size);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *celsius);
int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used);
int nvmlDeviceGetUtilizationRates(void *device, unsigned int *gpu_memory);

/* As in the driver's interface (checked against NVIDIA's nvidia-ml-py). */
struct sample {
    unsigned int pid;
    unsigned long long time_us;
    unsigned int sm, memory, encoder, decoder;
};
int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned int *count,
                                    unsigned long long since_us);

int nvmlInit_v2(void) {
    if (is("refuses")) return FAILED;
    begun++;
    return 0;
}

int nvmlShutdown(void) {
    begun--;
    return 0;
}

int fake_nvml_begun(void) {
    return begun;
}

const char *nvmlErrorString(int code) {
    return code == NOT_FOUND ? "Not Found" : code == FAILED ? "Unknown Error" : NULL;
}

int nvmlSystemGetDriverVersion(char *text, unsigned int size) {
    if (is("unending")) {
        memset(text, '9', size);
        return 0;
    }
    (void)snprintf(text, size, "580.65.06");
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device) {
    if (strcmp(pci, "0000:17:00.0") != 0) return NOT_FOUND;
    *device = &begun;
    return 0;
}

/* Returns an error unless `device` is the right handle and the GPU is not silent. */
static int refuses(const void *device) {
    return device != &begun || is("silent") ? FAILED : 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *celsius) {
    if (refuses(device) || sensor != 0) return FAILED;
    *celsius = 61;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) {
    if (refuses(device)) return FAILED;
    *milliwatts = 412500;
    return 0;
}

/* nvmlDeviceGetEnforcedPowerLimit is left out, because old drivers lack some functions. */

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used) {
    if (refuses(device)) return FAILED;
    total_free_used[0] = 85899345920;
    total_free_used[1] = 75161927680;
    total_free_used[2] = 10737418240;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned int *gpu_memory) {
    if (refuses(device)) return FAILED;
    gpu_memory[0] = 97;
    gpu_memory[1] = 40;
    return 0;
}

int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned int *count,
                                    unsigned long long since_us) {
    static unsigned long long time_us = 1000000;
    enum { INSUFFICIENT_SIZE = 7, ROWS = 4 };
    if (refuses(device)) return FAILED;
    time_us += 1000;
    if (is("idle") || is("") || since_us >= time_us) {
        *count = 0;
        return NOT_FOUND;
    }
    if (*count < ROWS) {
        *count = ROWS;
        return INSUFFICIENT_SIZE;
    }
    const unsigned int self = is("strangers") ? 7 : (unsigned int)getpid();
    const unsigned int much = is("crowded") ? 98 : 35;
    samples[0] = (struct sample){.pid = 1000001, .time_us = time_us - 500, .sm = 90};
    samples[1] = (struct sample){.pid = self, .time_us = time_us, .sm = 60};
    samples[2] = (struct sample){.pid = 1000001, .time_us = time_us, .sm = much};
    samples[3] = (struct sample){.pid = 1000002, .time_us = time_us, .sm = 7};
    *count = ROWS;
    return 0;
}
