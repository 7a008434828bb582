/* core.h - connects the core (sync/node.h) with the daemon: builds its configuration from the
 * manifest, and hands each of its actions to the file of this folder that carries it out. Opens the
 * flight recorder of its events. */
#ifndef TW_DAEMON_NODE_CORE_H
#define TW_DAEMON_NODE_CORE_H

#include "daemon/node/runtime.h"

/* Starts the core from the loaded position and vote. All concerns must be open. */
void tw_daemon_core_open(struct tw_daemon *daemon);

/* Logs when the flight recorder cannot write, and when it can again. */
void tw_daemon_core_tick(struct tw_daemon *daemon);

/* Ends the flight recorder. */
void tw_daemon_core_free(struct tw_daemon *daemon);

#endif
