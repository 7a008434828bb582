/* device_watch.h - a thread that writes the state of the GPU (temperature, power, memory, load,
 * use by others) into the shared memory. A query of the driver can take milliseconds, so it must
 * not delay training or the heartbeat. */
#ifndef TW_WORKER_LOOP_DEVICE_WATCH_H
#define TW_WORKER_LOOP_DEVICE_WATCH_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"
#include "proto/worker_msg.h"
#include "worker/support/nvml.h"

enum { TW_DEVICE_WATCH_MS = 500 }; /* short enough to yield to another program in a second */

struct tw_device_watch {
    struct tw_shm_device *device; /* borrowed */
    struct tw_nvml *nvml;         /* NULL if no GPU is watched */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool must_stop; /* under the mutex */
};

/* Queries the GPU at PCI address `pci` at once and then every TW_DEVICE_WATCH_MS. With an empty
 * address there is no GPU, and no thread starts. The struct must not move. After TW_DEVICE
 * (from tw_nvml_open) or TW_NOMEM no GPU is watched, and training can go on. Close it in any case.
 */
enum tw_status tw_device_watch_open(struct tw_device_watch *watch, struct tw_shm_device *device,
                                    const char *pci, struct tw_error *err);

/* Ends the thread, after its current query of the driver. */
void tw_device_watch_close(struct tw_device_watch *watch);

#endif
