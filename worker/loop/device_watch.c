#include "worker/loop/device_watch.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

static void put(_Atomic uint64_t *to, uint64_t value) {
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static void look(struct tw_device_watch *watch) {
    struct timespec now;
    struct tw_shm_device *const device = watch->device;
    struct tw_nvml_look seen;
    tw_nvml_look(watch->nvml, &seen);
    put(&device->temperature_c, seen.temperature_c);
    put(&device->power_mw, seen.power_mw);
    put(&device->power_max_mw, seen.power_max_mw);
    put(&device->memory_used_bytes, seen.memory_used_bytes);
    put(&device->memory_bytes, seen.memory_bytes);
    put(&device->load_percent, seen.load_percent);
    const double others = tw_nvml_others(watch->nvml);
    put(&device->others_percent, isnan(others) ? 0 : 1 + (uint64_t)lround(100 * others));
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    put(&device->seen_us, (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}

static void *watching(void *argument) {
    struct tw_device_watch *watch = argument;
    TW_ASSERT(pthread_mutex_lock(&watch->mutex) == 0);
    while (!watch->must_stop) {
        struct timespec next;
        (void)clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_nsec += TW_DEVICE_WATCH_MS * 1000L * 1000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&watch->stop, &watch->mutex, &next);
        if (!watch->must_stop) look(watch);
    }
    TW_ASSERT(pthread_mutex_unlock(&watch->mutex) == 0);
    return NULL;
}

enum tw_status tw_device_watch_open(struct tw_device_watch *watch, struct tw_shm_device *device,
                                    const char *pci, struct tw_error *err) {
    pthread_condattr_t attributes;
    sigset_t all, before;
    memset(watch, 0, sizeof(*watch));
    watch->device = device;
    if (pci[0] == '\0') return TW_OK;
    TW_TRY(tw_nvml_open(&watch->nvml, NULL, pci, err));
    look(watch);
    TW_ASSERT(pthread_condattr_init(&attributes) == 0);
    TW_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    TW_ASSERT(pthread_cond_init(&watch->stop, &attributes) == 0);
    TW_ASSERT(pthread_condattr_destroy(&attributes) == 0);
    TW_ASSERT(pthread_mutex_init(&watch->mutex, NULL) == 0);

    /* This thread blocks all signals: they must reach the loop and end its wait. */
    (void)sigfillset(&all);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    const int failed = pthread_create(&watch->thread, NULL, watching, watch);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (failed == 0) return TW_OK;
    (void)pthread_cond_destroy(&watch->stop);
    (void)pthread_mutex_destroy(&watch->mutex);
    tw_nvml_close(watch->nvml);
    watch->nvml = NULL;
    return tw_fail(err, TW_NOMEM, "start the thread that watches the GPU: %s", strerror(failed));
}

void tw_device_watch_close(struct tw_device_watch *watch) {
    if (watch->nvml == NULL) return;
    TW_ASSERT(pthread_mutex_lock(&watch->mutex) == 0);
    watch->must_stop = true;
    TW_ASSERT(pthread_cond_signal(&watch->stop) == 0);
    TW_ASSERT(pthread_mutex_unlock(&watch->mutex) == 0);
    TW_ASSERT(pthread_join(watch->thread, NULL) == 0);
    (void)pthread_cond_destroy(&watch->stop);
    (void)pthread_mutex_destroy(&watch->mutex);
    tw_nvml_close(watch->nvml);
    memset(watch, 0, sizeof(*watch));
}
