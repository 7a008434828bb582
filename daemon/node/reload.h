/* reload.h - SIGHUP and `thinwire reload`: the configuration is read again, and what may
 * change while the daemon runs is taken over. All or nothing: a file with a mistake changes
 * nothing. */
#ifndef TW_DAEMON_NODE_RELOAD_H
#define TW_DAEMON_NODE_RELOAD_H

#include "daemon/node/runtime.h"

/* Reads the configuration again. *answer has the keys that were taken over and those that need a
 * restart, or the mistake in the file. */
enum tw_status tw_daemon_reload(struct tw_daemon *daemon, struct tw_error *answer);

#endif
