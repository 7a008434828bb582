/* notify.h - reports the daemon's state to systemd: one datagram to $NOTIFY_SOCKET, if that is
 * set. */
#ifndef TW_DAEMON_PROCESS_NOTIFY_H
#define TW_DAEMON_PROCESS_NOTIFY_H

#include <stdint.h>

#include "base/status.h"

/* Time that EXTEND_TIMEOUT_USEC asks for while there is progress. */
enum { TW_NOTIFY_EXTEND_US = 60 * 1000 * 1000 };

/* Sends "READY=1", "STATUS=...", "STOPPING=1" or "WATCHDOG=1"; newlines separate several. */
void tw_notify(const char *fmt, ...) TW_PRINTF(1, 2);

/* Interval for WATCHDOG=1: half of $WATCHDOG_USEC; 0: none wanted. */
uint64_t tw_notify_watchdog_us(void);

#endif
