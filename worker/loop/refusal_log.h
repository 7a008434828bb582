/* refusal_log.h - what the daemon asked for and could not have, in the log: at once when it is new,
 * and then, as long as it happens round after round, a line every ten minutes that says how often.
 */
#ifndef TW_WORKER_LOOP_REFUSAL_LOG_H
#define TW_WORKER_LOOP_REFUSAL_LOG_H

#include <stdint.h>

#include "base/log.h"
#include "base/status.h"

enum {
    TW_REFUSAL_LOG_SORTS = 16
}; /* a kind of request and a status; of more, the last share a line */

/* Zero at first. One thread at a time. */
struct tw_refusal_log {
    uint32_t count;
    struct {
        uint32_t kind;
        enum tw_status status;
        struct tw_log_limit limit;
    } sorts[TW_REFUSAL_LOG_SORTS];
};

/* `reason` says why a request of this kind ended with its status. */
void tw_refusal_log_note(struct tw_refusal_log *refused, uint32_t kind,
                         const struct tw_error *reason, uint64_t now_us);

#endif
