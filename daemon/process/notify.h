/* notify.h - reports the daemon's state to systemd, as one datagram to $NOTIFY_SOCKET if that is
 * set. */
#ifndef TW_DAEMON_PROCESS_NOTIFY_H
#define TW_DAEMON_PROCESS_NOTIFY_H

#include <stdint.h>

#include "base/status.h"

/* Extra time requested with EXTEND_TIMEOUT_USEC while there is progress. */
enum { TW_NOTIFY_EXTEND_US = 60 * 1000 * 1000 };

/* Sends "READY=1", "STATUS=...", "STOPPING=1" or "WATCHDOG=1". Newlines separate several
 * assignments. */
void tw_notify(const char *fmt, ...) TW_PRINTF(1, 2);

/* Returns the interval at which to send WATCHDOG=1: half of $WATCHDOG_USEC, or 0 if none is
 * expected. */
uint64_t tw_notify_watchdog_us(void);

#endif
