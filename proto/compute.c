/* compute.c - converts device names ("cuda:0") to values and back. */
#include "proto/compute.h"

#include <string.h>

#include "base/assert.h"

static enum tw_status refuse(const char *text, struct tw_error *err) {
    return tw_fail(err, TW_CONFIG, "`%.40s` is none of auto, cpu, cuda and cuda:N with N up to %d",
                   text, TW_DEVICE_ORDINAL_MAX);
}

enum tw_status tw_device_parse(const char *text, struct tw_device_choice *device,
                               struct tw_error *err) {
    struct tw_device_choice read = {.kind = TW_DEVICE_CUDA};
    if (strcmp(text, "auto") == 0) {
        read.kind = TW_DEVICE_AUTO;
    } else if (strcmp(text, "cpu") == 0) {
        read.kind = TW_DEVICE_CPU;
    } else if (strcmp(text, "cuda") != 0) {
        const char *digit = text + 5;
        if (strncmp(text, "cuda:", 5) != 0 || *digit == 0) return refuse(text, err);
        for (; *digit != 0; digit++) {
            if (*digit < '0' || *digit > '9') return refuse(text, err);
            read.ordinal = 10 * read.ordinal + (uint32_t)(*digit - '0');
            if (read.ordinal > TW_DEVICE_ORDINAL_MAX) return refuse(text, err);
        }
    }
    *device = read;
    return TW_OK;
}

const char *tw_device_print(const struct tw_device_choice *device,
                            char text[TW_DEVICE_TEXT_BYTES]) {
    TW_ASSERT(tw_device_is_valid(device));
    if (device->kind == TW_DEVICE_AUTO) return memcpy(text, "auto", 5);
    if (device->kind == TW_DEVICE_CPU) return memcpy(text, "cpu", 4);
    memcpy(text, "cuda:", 5);
    char *to = text + 5;
    if (device->ordinal >= 10) *to++ = (char)('0' + device->ordinal / 10);
    *to++ = (char)('0' + device->ordinal % 10);
    *to = 0;
    return text;
}

bool tw_device_is_valid(const struct tw_device_choice *device) {
    const bool is_gpu = device->kind == TW_DEVICE_CUDA;
    return device->kind <= TW_DEVICE_CUDA &&
           device->ordinal <= (is_gpu ? TW_DEVICE_ORDINAL_MAX : 0);
}
