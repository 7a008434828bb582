/* refusal_log.h - log lines about requests of the daemon that the worker refused. A new kind of
 * refusal is logged at once. A refusal that repeats round after round is logged every ten minutes,
 * with a count. */
#ifndef TW_WORKER_LOOP_REFUSAL_LOG_H
#define TW_WORKER_LOOP_REFUSAL_LOG_H

#include <stdint.h>

#include "base/log.h"
#include "base/status.h"

enum {
    TW_REFUSAL_LOG_SORTS = 16
}; /* number of pairs (request kind, status); further pairs share the last entry */

/* Zero-initialised, and used by one thread at a time. */
struct tw_refusal_log {
    uint32_t count;
    struct {
        uint32_t kind;
        enum tw_status status;
        struct tw_log_limit limit;
    } sorts[TW_REFUSAL_LOG_SORTS];
};

/* Counts one refusal; `reason` holds its status and message. */
void tw_refusal_log_note(struct tw_refusal_log *refused, uint32_t kind,
                         const struct tw_error *reason, uint64_t now_us);

#endif
