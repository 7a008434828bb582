/* refusal_log.h - log lines about requests of the daemon that the worker refused. A new kind of
 * refusal is logged at once. One that repeats round after round gets a line every ten minutes with
 * a count. */
#ifndef TW_WORKER_LOOP_REFUSAL_LOG_H
#define TW_WORKER_LOOP_REFUSAL_LOG_H

#include <stdint.h>

#include "base/log.h"
#include "base/status.h"

enum {
    TW_REFUSAL_LOG_SORTS = 16
}; /* pairs of request kind and status; further pairs share the last line */

/* Zero-initialised. One thread at a time. */
struct tw_refusal_log {
    uint32_t count;
    struct {
        uint32_t kind;
        enum tw_status status;
        struct tw_log_limit limit;
    } sorts[TW_REFUSAL_LOG_SORTS];
};

/* Counts one refusal; `reason` holds its status and sentence. */
void tw_refusal_log_note(struct tw_refusal_log *refused, uint32_t kind,
                         const struct tw_error *reason, uint64_t now_us);

#endif
