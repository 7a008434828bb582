/* relays.h - relayed links: calls to nodes that cannot be dialled, and pipes for other nodes.
 * daemon/router/relay_choice.h chooses relays; daemon/net/call.c and relay.c own the connections.
 */
#ifndef TW_DAEMON_NODE_RELAYS_H
#define TW_DAEMON_NODE_RELAYS_H

#include "daemon/node/runtime.h"

struct tw_dial_result;
struct tw_peer_net;
struct tw_relay_pipe;
struct tw_status_view;
struct tw_view_peer;

enum tw_status tw_daemon_relays_open(struct tw_daemon *daemon, struct tw_error *err);
/* Called when the configuration has changed, or when the transport is open. */
void tw_daemon_relays_apply(struct tw_daemon *daemon);
/* Returns true if this node relays for other nodes when they ask. */
bool tw_daemon_relays_is_relay(const struct tw_daemon *daemon);

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
