/* links.h - links to peers: frames in, payload chunks out, dialling, and gossip about members.
 * Passes each frame and each change of a link to the concerns that need it. */
#ifndef TW_DAEMON_NODE_LINKS_H
#define TW_DAEMON_NODE_LINKS_H

#include "daemon/net/transport.h"
#include "daemon/node/runtime.h"

struct tw_dial_history;
struct tw_status_view;

/* Opens the transport, unless links = off. All concerns that links call must be open already.
 * Returns TW_IO if an address is in use. */
enum tw_status tw_daemon_links_open(struct tw_daemon *daemon, struct tw_error *err);
/* Adds the configured peers, including those of network.peers_file. Known peers do not change. */
enum tw_status tw_daemon_links_bootstrap(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_links_tick(struct tw_daemon *daemon, uint64_t now_us);

/* Queues a payload chunk (TW_ACT_SEND_CHUNK). */
void tw_daemon_links_chunk(struct tw_daemon *daemon, const struct tw_action *action);
/* Drops the queued chunks of a payload. */
void tw_daemon_links_drop(struct tw_daemon *daemon, const struct tw_id *payload);

void tw_daemon_links_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
const struct tw_dial_history *tw_daemon_links_dials(const struct tw_daemon *daemon);
/* Returns the bytes of both connections at the socket, since the link came up. */
struct tw_traffic tw_daemon_links_traffic(const struct tw_daemon *daemon, uint16_t peer);

/* Saves the tables and closes all links. */
void tw_daemon_links_close(struct tw_daemon *daemon);
void tw_daemon_links_free(struct tw_daemon *daemon);

/* ==== measured links ========================================================================== */

/* Measures the links to peers (daemon/net/link_quality.h), reports the results
 * to the core, and keeps the table across restarts. */

struct tw_view_peer;

enum tw_status tw_daemon_link_qualities_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_link_qualities_fill(const struct tw_daemon *daemon, uint16_t peer, uint64_t now_us,
                                   struct tw_view_peer *row);
void tw_daemon_link_qualities_free(struct tw_daemon *daemon);

#endif
