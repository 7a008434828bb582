#include "worker/loop/refusal_log.h"

#include <inttypes.h>

enum { LINE_US = 600 * 1000 * 1000 };

static struct tw_log_limit *limit_of(struct tw_refusal_log *refused, uint32_t kind,
                                     enum tw_status status) {
    uint32_t i = 0;
    while (i < refused->count &&
           (refused->sorts[i].kind != kind || refused->sorts[i].status != status))
        i++;
    if (i == TW_REFUSAL_LOG_SORTS) return &refused->sorts[i - 1].limit;
    if (i == refused->count) {
        refused->sorts[i].kind = kind;
        refused->sorts[i].status = status;
        refused->count++;
    }
    return &refused->sorts[i].limit;
}

void tw_refusal_log_note(struct tw_refusal_log *refused, uint32_t kind,
                         const struct tw_error *reason, uint64_t now_us) {
    uint64_t held_back;
    struct tw_log_limit *const limit = limit_of(refused, kind, reason->status);
    if (!tw_log_may_say(limit, now_us, LINE_US, &held_back)) return;
    if (held_back == 0) {
        tw_log(TW_LOG_WARN, "request_refused", "kind=%u status=%s text=\"%s\"", kind,
               tw_status_name(reason->status), reason->message);
        return;
    }
    tw_log(TW_LOG_WARN, "request_refused", "kind=%u status=%s more=%" PRIu64 " text=\"%s\"", kind,
           tw_status_name(reason->status), held_back, reason->message);
}
