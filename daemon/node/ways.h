/* ways.h - ways in to this node and out to others: dial-back, a port at the router, hole
 * punching, relays. */
#ifndef TW_DAEMON_NODE_WAYS_H
#define TW_DAEMON_NODE_WAYS_H

#include "daemon/node/runtime.h"

/* ==== nodes that can dial this one ============================================================ */

/* Dial-back: asks peers whether this node can be dialled, and dials peers that ask. Also
 * finds the kind of NAT (daemon/router/punch_plan.h) from the addresses at which two peers see
 * dials from one local port.
 *
 * A node must not become a port scanner for others. For a peer it dials only the host from which
 * that peer's connection comes, at the ports of its HELLO, and rarely (tw_transport_dial_back). The
 * peer learns one bit: whether this address leads to it. The number of such dials at a time, for
 * all peers together, is small. */

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
void tw_daemon_probes_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_probes_fill(const struct tw_daemon *daemon, uint64_t now_us,
                           struct tw_status_view *view);
void tw_daemon_probes_free(struct tw_daemon *daemon);

/* ==== a port at the router ==================================================================== */

/* Asks the router to forward this node's port. daemon/router/port_mapping.h decides; a
 * thread runs the calls of daemon/router/port_router.h.
 *
 * The port is requested as soon as the node listens on a private IPv4 address, before any peer has
 * tried to dial it: the first node of a run has no peer to ask. It is not requested if `advertise`
 * is set, or if a peer has reached the node without a mapping. */

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

/* ==== hole punching =========================================================================== */

/* Replaces relayed links by direct ones with hole punching: PUNCH messages, and the
 * connections of daemon/net/dialer.c. daemon/router/punch_plan.h decides when.
 *
 * A node dials an address only if both the relay and the other end name it. */

struct tw_status_view;

enum tw_status tw_daemon_punches_open(struct tw_daemon *daemon, struct tw_error *err);
/* Handles PUNCH, except its stage `seen`; ignores every other message. */
void tw_daemon_punches_message(struct tw_daemon *daemon, uint16_t peer,
                               const struct tw_message *message);
/* Called when this node's own addresses have changed. */
void tw_daemon_punches_moved(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_punches_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Writes why the relayed link to that peer is not direct yet. */
void tw_daemon_punches_describe(const struct tw_daemon *daemon, uint16_t peer, uint64_t now_us,
                                char *text, size_t capacity);
void tw_daemon_punches_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_punches_free(struct tw_daemon *daemon);

/* ==== relays ================================================================================== */

/* Relayed links: calls to nodes that cannot be dialled, and pipes for other nodes.
 * daemon/router/relay_choice.h chooses relays; daemon/net/dialer.c and relay.c own the connections.
 */

struct tw_dial_result;
struct tw_peer_net;
struct tw_relay_pipe;
struct tw_status_view;
struct tw_view_peer;

enum tw_status tw_daemon_relays_open(struct tw_daemon *daemon, struct tw_error *err);
/* Called when the configuration has changed, or when the transport is open. */
void tw_daemon_relays_apply(struct tw_daemon *daemon);

/* Handles LINKS and RELAY_CALL; ignores every other message. */
void tw_daemon_relays_message(struct tw_daemon *daemon, uint16_t peer,
                              const struct tw_message *message);
void tw_daemon_relays_peer_up(struct tw_daemon *daemon, uint16_t peer);
void tw_daemon_relays_peer_down(struct tw_daemon *daemon, uint16_t peer);
/* Called when a call of tw_transport_call has ended. */
void tw_daemon_relays_called(struct tw_daemon *daemon, const struct tw_id *relay,
                             const struct tw_id *target, const struct tw_dial_result *result);
/* Called when a pipe between two other nodes has opened or ended. */
void tw_daemon_relays_carried(struct tw_daemon *daemon, const struct tw_relay_pipe *pipe);
void tw_daemon_relays_tick(struct tw_daemon *daemon, uint64_t now_us);

void tw_daemon_relays_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_relays_free(struct tw_daemon *daemon);

#endif
