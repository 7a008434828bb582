/* device_watch.h - a small thread that writes into the shared memory how the GPU fares: asking the
 * driver takes milliseconds now and then, and must hold up neither training nor the heartbeat. */
#ifndef TW_WORKER_LOOP_DEVICE_WATCH_H
#define TW_WORKER_LOOP_DEVICE_WATCH_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"
#include "proto/worker_msg.h"
#include "worker/support/nvml.h"

enum { TW_DEVICE_WATCH_S = 2 };

struct tw_device_watch {
    struct tw_shm_device *device; /* borrowed */
    struct tw_nvml *nvml;         /* NULL: nothing is watched */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool must_stop; /* under the mutex */
};

/* Looks at once and then every TW_DEVICE_WATCH_S at the GPU at PCI address `pci`; an empty one is
 * no GPU, and nothing is done. The struct must not move. TW_DEVICE as tw_nvml_open, TW_NOMEM: then
 * nothing is watched, which harms nobody. Close it in any case. */
enum tw_status tw_device_watch_open(struct tw_device_watch *watch, struct tw_shm_device *device,
                                    const char *pci, struct tw_error *err);

/* Ends the thread, and waits for the answer of the driver if one is due. */
void tw_device_watch_close(struct tw_device_watch *watch);

#endif
