/* notify.h - tells systemd how the daemon is: one datagram to $NOTIFY_SOCKET, nothing without it.
 */
#ifndef TW_DAEMON_NODE_NOTIFY_H
#define TW_DAEMON_NODE_NOTIFY_H

#include <stdint.h>

#include "base/status.h"

/* Time that EXTEND_TIMEOUT_USEC asks for, while something moves. */
enum { TW_NOTIFY_EXTEND_US = 60 * 1000 * 1000 };

/* "READY=1", "STATUS=...", "STOPPING=1", "WATCHDOG=1", several with newlines between. */
void tw_notify(const char *fmt, ...) TW_PRINTF(1, 2);

/* How often WATCHDOG=1 is wanted: half of $WATCHDOG_USEC; 0 = not at all. */
uint64_t tw_notify_watchdog_us(void);

#endif
