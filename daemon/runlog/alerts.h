/* alerts.h - checks this node's warnings every second. When one is raised or cleared, reports that
 * to the run log and to the user's hook.
 *
 * The hook (process/hook.h) runs once for each change, one at a time. TW_HOOKS_BURST hooks may run
 * one right after the other, then one a minute. Changes wait meanwhile in the table of warnings.
 * The hook never hears of a warning that was raised and cleared before its turn. Warnings that are
 * not urgent go to the run log only. */
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
    const char *hook;        /* command line for the shell, or "" if there is no hook; borrowed */
    const char *config_path; /* value of THINWIRE_CONFIG for the hook; borrowed */
    void *user;
    /* Fills a view that tw_status_view_init has prepared. */
    void (*fill)(void *user, struct tw_status_view *view);
    /* A hook could not be started, failed or was killed. `text` is a sentence about it. */
    void (*failed)(void *user, const char *text);
};

/* Returns TW_NOMEM without memory. */
enum tw_status tw_alerts_open(struct tw_alerts **alerts, const struct tw_alerts_config *config,
                              struct tw_error *err);
/* Call at least once a second, while the core runs. */
void tw_alerts_tick(struct tw_alerts *alerts, uint64_t now_us);
/* Kills the running hook, if any. */
void tw_alerts_close(struct tw_alerts *alerts);
/* Call after the loop has ended. NULL is allowed. */
void tw_alerts_free(struct tw_alerts *alerts);

#endif
