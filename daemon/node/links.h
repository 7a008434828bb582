/* links.h - links to peers: frames in, payload chunks out, dialling, and gossip about members.
 * Hands each frame and each change of a link to the concerns that need it. */
#ifndef TW_DAEMON_NODE_LINKS_H
#define TW_DAEMON_NODE_LINKS_H

#include "daemon/net/transport.h"
#include "daemon/node/runtime.h"

struct tw_dial_history;
struct tw_status_view;

/* Opens the transport, unless links = off. TW_IO when an address is in use. Every concern that a
 * link may reach must be open. */
enum tw_status tw_daemon_links_open(struct tw_daemon *daemon, struct tw_error *err);
/* Adds the configured peers, network.peers_file included. Known peers stay as they are. */
enum tw_status tw_daemon_links_bootstrap(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_links_tick(struct tw_daemon *daemon, uint64_t now_us);

/* Queues a payload chunk (TW_ACT_SEND_CHUNK). */
void tw_daemon_links_chunk(struct tw_daemon *daemon, const struct tw_action *action);
/* Forgets the queued chunks of a payload. */
void tw_daemon_links_drop(struct tw_daemon *daemon, const struct tw_id *payload);

void tw_daemon_links_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
const struct tw_dial_history *tw_daemon_links_dials(const struct tw_daemon *daemon);
/* Bytes of both connections at the socket, since the link came up. */
struct tw_traffic tw_daemon_links_traffic(const struct tw_daemon *daemon, uint16_t peer);

/* Saves the tables and closes all links. */
void tw_daemon_links_close(struct tw_daemon *daemon);
void tw_daemon_links_free(struct tw_daemon *daemon);

#endif
