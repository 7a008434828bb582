/* keep.h - a parent process that keeps the daemon running, where no service manager does
 * (`thinwire start`). Follows the policy of deploy/systemd: a daemon that failed is started again,
 * unless its exit status says that a person must act. */
#ifndef TW_DAEMON_PROCESS_KEEP_H
#define TW_DAEMON_PROCESS_KEEP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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
