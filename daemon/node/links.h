/* links.h - links to peers: frames in, payload chunks out, dialling, and gossip about members.
 * Passes each frame and each change of a link to the concerns that need it. */
#ifndef TW_DAEMON_NODE_LINKS_H
#define TW_DAEMON_NODE_LINKS_H

#include "daemon/api/known_peers.h"
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

/* ---- acquaintances.c ---------------------------------------------------------------------------
 *
 * The nodes that this one knows (daemon/api/known_peers.h), kept across restarts: their names, and
 * since when each is linked or absent. How often absent nodes are dialled, and when they are
 * forgotten. */

enum tw_status tw_daemon_acquaintances_open(struct tw_daemon *daemon, struct tw_error *err);

void tw_daemon_acquaintances_peer_up(struct tw_daemon *daemon, uint16_t peer, const char *name);
/* The peer sent LEAVE: it is about to say goodbye. */
void tw_daemon_acquaintances_leaves(struct tw_daemon *daemon, uint16_t peer);
/* Call while daemon->peers[peer] still has the peer's id. */
void tw_daemon_acquaintances_peer_down(struct tw_daemon *daemon, uint16_t peer,
                                       enum tw_status reason, const char *sentence);
/* A node joined with a ticket of this node. */
void tw_daemon_acquaintances_invited(struct tw_daemon *daemon, const struct tw_id *id,
                                     const char *name);

/* Called every few seconds. */
void tw_daemon_acquaintances_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_acquaintances_save(struct tw_daemon *daemon);

/* Writes the name of a node, unique among the nodes that this one knows, or its short id. Returns
 * `label`. */
const char *tw_daemon_acquaintances_label(const struct tw_daemon *daemon, const struct tw_id *id,
                                          char label[TW_KNOWN_LABEL_BYTES]);

/* Returns true if the node said goodbye, or has been absent so long that a failed dial is no news.
 */
bool tw_daemon_acquaintances_is_absent(const struct tw_daemon *daemon, const struct tw_id *id);

void tw_daemon_acquaintances_free(struct tw_daemon *daemon);

#endif
