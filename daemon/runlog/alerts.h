/* alerts.h - a look at this node's warnings every second: tells the run log and the user's hook
 * when one is raised and when it is cleared.
 *
 * The hook (process/hook.h) runs once for each change, one at a time. TW_HOOKS_BURST may follow
 * each other at once, then one a minute. Changes wait in the table of warnings meanwhile: a warning
 * that came and went untold is never told. Kinds that are not urgent are for the run log alone. */
#ifndef TW_DAEMON_RUNLOG_ALERTS_H
#define TW_DAEMON_RUNLOG_ALERTS_H

#include <stdint.h>

#include "base/status.h"

enum { TW_HOOKS_BURST = 10 };

struct tw_alerts;
struct tw_run_log;
struct tw_status_view;
struct uv_loop_s;

struct tw_alerts_config {
    struct uv_loop_s *loop;
    struct tw_run_log *log;  /* borrowed */
    const char *hook;        /* command line for the shell; "": none; borrowed */
    const char *config_path; /* THINWIRE_CONFIG of the hook; borrowed */
    void *user;
    /* Fills a view that tw_status_view_init has prepared. */
    void (*fill)(void *user, struct tw_status_view *view);
    /* A hook could not be started, failed or was killed: a sentence. */
    void (*failed)(void *user, const char *text);
};

/* TW_NOMEM. */
enum tw_status tw_alerts_open(struct tw_alerts **alerts, const struct tw_alerts_config *config,
                              struct tw_error *err);
/* Call at least once a second, while the core runs. */
void tw_alerts_tick(struct tw_alerts *alerts, uint64_t now_us);
/* Kills a hook that runs. */
void tw_alerts_close(struct tw_alerts *alerts);
/* The loop must have ended. NULL is allowed. */
void tw_alerts_free(struct tw_alerts *alerts);

#endif
