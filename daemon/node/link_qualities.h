/* link_qualities.h - measures the links to peers (daemon/net/link_quality.h), reports the results
 * to the core, and keeps the table across restarts. */
#ifndef TW_DAEMON_NODE_LINK_QUALITIES_H
#define TW_DAEMON_NODE_LINK_QUALITIES_H

#include "daemon/node/runtime.h"

struct tw_view_peer;

enum tw_status tw_daemon_link_qualities_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_link_qualities_peer_up(struct tw_daemon *daemon, uint16_t peer);
void tw_daemon_link_qualities_peer_down(struct tw_daemon *daemon, uint16_t peer,
                                        enum tw_status reason);
/* Called when payload bytes arrived, after the core was given their TW_EV_CHUNK. */
void tw_daemon_link_qualities_arrived(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes);
void tw_daemon_link_qualities_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_link_qualities_save(struct tw_daemon *daemon);
void tw_daemon_link_qualities_fill(const struct tw_daemon *daemon, uint16_t peer, uint64_t now_us,
                                   struct tw_view_peer *row);
void tw_daemon_link_qualities_free(struct tw_daemon *daemon);

#endif
