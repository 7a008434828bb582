/* devices_none.c - implements devices.h in a build without CUDA. */
#include <stdio.h>
#include <string.h>

#include "worker/engine/devices.h"

void tw_devices_look(struct tw_devices *devices) {
    memset(devices, 0, sizeof(*devices));
    (void)snprintf(
        devices->why_no_gpu, sizeof(devices->why_no_gpu),
        "this program was built without CUDA: install the package thinwire-cuda, or build it "
        "where nvcc is found");
}
