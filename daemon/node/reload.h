/* reload.h - SIGHUP and `thinwire reload`: reads the configuration again and takes over the keys
 * that may change while the daemon runs. A file with a mistake changes nothing. */
#ifndef TW_DAEMON_NODE_RELOAD_H
#define TW_DAEMON_NODE_RELOAD_H

#include "daemon/node/runtime.h"

/* *answer names the keys that were taken over and those that need a restart, or the mistake. */
enum tw_status tw_daemon_reload(struct tw_daemon *daemon, struct tw_error *answer);

#endif
