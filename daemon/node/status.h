/* status.h - the status view of the local API: each concern fills its own part. */
#ifndef TW_DAEMON_NODE_STATUS_H
#define TW_DAEMON_NODE_STATUS_H

#include "daemon/node/runtime.h"

struct tw_status_view;

/* Callback of tw_api_open; `user` is the daemon. */
void tw_daemon_status_fill(void *user, struct tw_status_view *view);

#endif
