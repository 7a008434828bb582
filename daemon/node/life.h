/* life.h - the core's actions passed to the concerns; opening, ticking, leaving, closing. */
#ifndef TW_DAEMON_NODE_LIFE_H
#define TW_DAEMON_NODE_LIFE_H

#include "daemon/node/runtime.h"
#include "daemon/setup/setup.h"

/* ==== actions of the core ===================================================================== */

/* Connects the core (sync/node.h) with the daemon: builds the core's configuration from
 * the manifest, and passes each action of the core to the file of this folder that carries it out.
 * Also opens the flight recorder of the core's events. */

/* ==== the life of a daemon ==================================================================== */

/* Start, regular work and end of the daemon: opens all parts of daemon/node, calls their
 * ticks, and leaves in order.
 *
 *   opening --> RUNNING --signal or `leave`--> LEAVING --> CLOSING --> the loop is empty
 *
 *   LEAVING  the core sends LEAVE, the last checkpoint is saved, the worker ends. If no byte was
 *            copied in memory or to disk for 30 s, the daemon ends without the checkpoint.
 *   CLOSING  links, API and worker socket close, within 5 s.
 *
 * A second signal ends the process at once. */

/* Runs the daemon until it has left, and returns the exit status. If it cannot start, prints a
 * sentence to stderr. */
enum tw_exit tw_daemon_run(struct tw_setup *setup);

#endif
