/* core.h - the core of this node, sync/node.h, between the concerns: its configuration from the
 * manifest, and each of its actions handed to the concern that does it. */
#ifndef TW_DAEMON_NODE_CORE_H
#define TW_DAEMON_NODE_CORE_H

#include "daemon/node/runtime.h"

/* Starts the core from the loaded position and vote. All concerns must be open. */
void tw_daemon_core_open(struct tw_daemon *daemon);

#endif
