/* alerts.h - a look at this node's warnings every second: tells the run log when one is raised and
 * when it is cleared. */
#ifndef TW_DAEMON_RUNLOG_ALERTS_H
#define TW_DAEMON_RUNLOG_ALERTS_H

#include <stdint.h>

#include "base/status.h"

struct tw_alerts;
struct tw_run_log;
struct tw_status_view;

struct tw_alerts_config {
    struct tw_run_log *log; /* borrowed */
    void *user;
    /* Fills a view that tw_status_view_init has prepared. */
    void (*fill)(void *user, struct tw_status_view *view);
};

/* TW_NOMEM. The caller frees. */
enum tw_status tw_alerts_open(struct tw_alerts **alerts, const struct tw_alerts_config *config,
                              struct tw_error *err);
/* Call at least once a second, while the core runs. */
void tw_alerts_tick(struct tw_alerts *alerts, uint64_t now_us);
/* NULL is allowed. */
void tw_alerts_free(struct tw_alerts *alerts);

#endif
