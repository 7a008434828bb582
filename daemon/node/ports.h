/* ports.h - asks the router to forward this node's port. daemon/router/port_mapping.h decides; a
 * thread runs the calls of daemon/router/port_router.h.
 *
 * The port is requested as soon as the node listens on a private IPv4 address, before any peer has
 * tried to dial it: the first node of a run has no peer to ask. It is not requested if `advertise`
 * is set, or if a peer has reached the node without a mapping. */
#ifndef TW_DAEMON_NODE_PORTS_H
#define TW_DAEMON_NODE_PORTS_H

#include "daemon/node/runtime.h"

struct tw_status_view;

enum tw_status tw_daemon_ports_open(struct tw_daemon *daemon, struct tw_error *err);
/* Returns true if the outer address changed. The transport already has the new one; the caller must
 * call tw_transport_refresh. */
bool tw_daemon_ports_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Called when the node leaves: asks the router to remove the mapping. */
void tw_daemon_ports_leave(struct tw_daemon *daemon);
/* Returns true while a mapping is being removed. Leaving waits for that, a few seconds at most. */
bool tw_daemon_ports_is_leaving(const struct tw_daemon *daemon);
/* Returns true while the router forwards the port. */
bool tw_daemon_ports_is_mapped(const struct tw_daemon *daemon);
void tw_daemon_ports_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_ports_free(struct tw_daemon *daemon);

#endif
