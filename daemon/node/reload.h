/* reload.h - SIGHUP and `thinwire reload`: reads the configuration again and applies the keys that
 * may change while the daemon runs. If the file has a mistake, nothing changes. */
#ifndef TW_DAEMON_NODE_RELOAD_H
#define TW_DAEMON_NODE_RELOAD_H

#include "daemon/node/runtime.h"

/* Reads the configuration again. *answer names the keys that were applied and those that need a
 * restart, or the mistake in the file. */
enum tw_status tw_daemon_reload(struct tw_daemon *daemon, struct tw_error *answer);

#endif
