/* service.h - the daemon as a service: reports to systemd, the longest iteration of the loop, and
 * a parent that keeps the daemon running where no service manager does. */
#ifndef TW_DAEMON_PROCESS_SERVICE_H
#define TW_DAEMON_PROCESS_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/status.h"

/* ==== reports to systemd ====================================================================== */

/* Reports the daemon's state to systemd, as one datagram to $NOTIFY_SOCKET if that is set. */

/* Extra time requested with EXTEND_TIMEOUT_USEC while there is progress. */
enum { TW_NOTIFY_EXTEND_US = 60 * 1000 * 1000 };

/* Sends "READY=1", "STATUS=...", "STOPPING=1" or "WATCHDOG=1". Newlines separate several
 * assignments. */
void tw_notify(const char *fmt, ...) TW_PRINTF(1, 2);

/* Returns the interval at which to send WATCHDOG=1: half of $WATCHDOG_USEC, or 0 if none is
 * expected. */
uint64_t tw_notify_watchdog_us(void);

/* ==== the loop ================================================================================ */

/* Duration of the loop's longest iteration within the last minute, without the time asleep in the
 * kernel. It must stay below 5 ms on an idle machine; longer work belongs on a thread. */

enum { TW_LAG_BUCKETS = 6, TW_LAG_BUCKET_US = 10 * 1000 * 1000 };

struct tw_loop_lag {
    uv_prepare_t prepare;
    uint64_t last_ns, last_idle_ns, bucket_us;
    uint64_t longest_us[TW_LAG_BUCKETS]; /* longest iteration in each period of ten seconds; [0]:
                                            the present period */
    uint64_t turns, turns_long;          /* all iterations; those longer than 5 ms */
};

/* Call before the loop runs for the first time. */
void tw_loop_lag_open(struct tw_loop_lag *lag, uv_loop_t *loop);
void tw_loop_lag_close(struct tw_loop_lag *lag);

uint64_t tw_loop_lag_us(const struct tw_loop_lag *lag);

/* ==== keeping the daemon running ============================================================== */

/* A parent process that keeps the daemon running, where no service manager does (`thinwire
 * start`). Follows the policy of deploy/systemd: a daemon that failed is started again, unless its
 * exit status says that a person must act. */

/* When a dead daemon is started again. All zero at the start. Pure. */
struct tw_keep {
    uint32_t deaths;  /* in a row, each after less than TW_KEEP_SOUND_US */
    bool has_been_up; /* a daemon ran for TW_KEEP_UP_US */
};

enum { TW_KEEP_DEATHS_MAX = 20 };

/* Run time after which a daemon counts as started; earlier failures are shown to the caller of
 * `thinwire start`, and not repeated. */
#define TW_KEEP_UP_US UINT64_C(10000000)
/* Run time after which earlier deaths no longer count. */
#define TW_KEEP_SOUND_US UINT64_C(600000000)
#define TW_KEEP_PAUSE_US UINT64_C(1000000)
#define TW_KEEP_PAUSE_MAX_US UINT64_C(60000000)

/* The daemon ran for `lived_us` and ended: `signal` is 0 if it exited with `status`. Returns true
 * if it is to be started again after *pause_us, which doubles with each death in a row. */
bool tw_keep_restarts(struct tw_keep *keep, int status, int signal, uint64_t lived_us,
                      uint64_t *pause_us);

/* Call before any thread runs. Forks and returns -1 in the child, which goes on as the daemon, for
 * each start. In the parent, returns the exit status once no daemon is to run any more. SIGTERM,
 * SIGINT and SIGHUP are passed on to the daemon; if the parent is killed, the daemon leaves.
 * starter: id of the process that started the parent; the daemon leaves when that process ends. 0:
 * the daemon outlives it. */
int tw_keep_running(pid_t starter);

#endif
