/* probes.h - dial-back: asks peers whether this node can be dialled, and dials peers that ask. Also
 * finds the kind of NAT (daemon/router/nat_kind.h) from the addresses at which two peers see dials
 * from one local port.
 *
 * A node must not become a port scanner for others. For a peer it dials only the host from which
 * that peer's connection comes, at the ports of its HELLO, and rarely (tw_transport_dial_back). The
 * peer learns one bit: whether this address leads to it. The number of such dials at a time, for
 * all peers together, is small. */
#ifndef TW_DAEMON_NODE_PROBES_H
#define TW_DAEMON_NODE_PROBES_H

#include "daemon/node/runtime.h"

struct tw_dial_result;
struct tw_status_view;

enum tw_status tw_daemon_probes_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_probes_peer_up(struct tw_daemon *daemon);
/* Handles PROBE, PROBED, and PUNCH of the stage `seen`; ignores every other message. */
void tw_daemon_probes_message(struct tw_daemon *daemon, uint16_t peer,
                              const struct tw_message *message);
/* Called when a dial of tw_transport_dial_back has ended. */
void tw_daemon_probes_done(struct tw_daemon *daemon, const char *address,
                           const struct tw_id *expected, const struct tw_dial_result *result);
/* Called when a node has dialled this one to learn from which address it is seen. Sends that
 * address. */
void tw_daemon_probes_observed(struct tw_daemon *daemon, const struct tw_id *id, uint64_t token,
                               const char *address);
/* Called when this node's own addresses have changed. */
void tw_daemon_probes_moved(struct tw_daemon *daemon, uint64_t now_us);
/* is_reached: a peer has reached this node at a public IPv4 address. is_unreached: peers have tried
 * to dial this node, and none reached it from the internet. */
bool tw_daemon_probes_is_reached(const struct tw_daemon *daemon);
bool tw_daemon_probes_is_unreached(const struct tw_daemon *daemon);
void tw_daemon_probes_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_probes_fill(const struct tw_daemon *daemon, uint64_t now_us,
                           struct tw_status_view *view);
void tw_daemon_probes_free(struct tw_daemon *daemon);

#endif
