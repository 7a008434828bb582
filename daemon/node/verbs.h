/* verbs.h - hands each POST request (verb) of the local API (daemon/api/api.h) to the file of this
 * folder that carries it out. */
#ifndef TW_DAEMON_NODE_VERBS_H
#define TW_DAEMON_NODE_VERBS_H

#include "daemon/node/runtime.h"

/* Opens daemon->api. TW_IO when its address is in use. */
enum tw_status tw_daemon_verbs_open(struct tw_daemon *daemon, struct tw_error *err);

#endif
