/* verbs.h - passes each POST request (verb) of the local API (daemon/api/api.h) to the file of this
 * folder that handles it. */
#ifndef TW_DAEMON_NODE_VERBS_H
#define TW_DAEMON_NODE_VERBS_H

#include "daemon/node/runtime.h"

/* Opens daemon->api. Returns TW_IO if its address is in use. */
enum tw_status tw_daemon_verbs_open(struct tw_daemon *daemon, struct tw_error *err);

/* For SIGHUP and `thinwire reload`: reads the configuration again, applies the keys that may change
 * while the daemon runs, and opens the web page if api.web is new. To move the page or to turn it
 * off needs a restart. *answer names the keys that were applied and those that need a restart, or
 * the mistake in the file; then nothing changes. */
enum tw_status tw_daemon_verbs_reload(struct tw_daemon *daemon, struct tw_error *answer);

#endif
