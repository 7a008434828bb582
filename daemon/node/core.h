/* core.h - connects the core (sync/node.h) with the daemon: builds the core's configuration from
 * the manifest, and passes each action of the core to the file of this folder that carries it out.
 * Also opens the flight recorder of the core's events. */
#ifndef TW_DAEMON_NODE_CORE_H
#define TW_DAEMON_NODE_CORE_H

#include "daemon/node/runtime.h"

/* Starts the core from the loaded position and vote. All concerns must be open already. */
void tw_daemon_core_open(struct tw_daemon *daemon);

/* Logs when the flight recorder stops being able to write, and when it can write again. */
void tw_daemon_core_tick(struct tw_daemon *daemon);

/* Ends the flight recorder. */
void tw_daemon_core_free(struct tw_daemon *daemon);

#endif
