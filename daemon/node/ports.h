/* ports.h - asks the router to forward this node's port: the decision is
 * daemon/router/port_mapping.h, the calls of daemon/router/port_router.h run on a thread.
 *
 * A port is wanted as soon as the node listens on a private IPv4 address, before any peer has tried
 * to dial it: the first node of a run has no peer to ask. It is not wanted if `advertise` is set,
 * or if a peer has reached the node without it. */
#ifndef TW_DAEMON_NODE_PORTS_H
#define TW_DAEMON_NODE_PORTS_H

#include "daemon/node/runtime.h"

struct tw_status_view;

enum tw_status tw_daemon_ports_open(struct tw_daemon *daemon, struct tw_error *err);
/* True if the address at the router changed. The transport has the new address, and the caller must
 * refresh it. */
bool tw_daemon_ports_tick(struct tw_daemon *daemon, uint64_t now_us);
/* The node leaves: asks the router to remove the port. */
void tw_daemon_ports_leave(struct tw_daemon *daemon);
/* True while a port is being given back. Leaving waits for it, a few seconds at most. */
bool tw_daemon_ports_is_leaving(const struct tw_daemon *daemon);
/* True while the router forwards the port. */
bool tw_daemon_ports_is_mapped(const struct tw_daemon *daemon);
void tw_daemon_ports_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_ports_free(struct tw_daemon *daemon);

#endif
