/* data.h - the run's dataset: fetched from peers if this node lacks it, and served to peers that
 * lack it. The worker waits for the first complete shard.
 *
 *            peers: PULL, MISSING, CHUNK          worker: starts on the first complete shard
 *                 \         |                          |
 *       data_store.c    sync/fetch/fetch.h  -->  data_store.c (folder, thread)
 *
 * Used only with data.form = dataset. A folder of the user (node.data) is served and never changed.
 * A node without one fetches into STATE_DIR/RUN/data. An error of the disk or the index does not
 * end the daemon: the status shows it. */
#ifndef TW_DAEMON_NODE_DATA_H
#define TW_DAEMON_NODE_DATA_H

#include "daemon/node/runtime.h"

struct tw_chunk;
struct tw_fetch_arrival;
struct tw_status_view;

enum tw_status tw_daemon_data_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_data_peer_up(struct tw_daemon *daemon, uint16_t peer, const struct tw_id *id);
void tw_daemon_data_peer_down(struct tw_daemon *daemon, uint16_t peer);
/* Returns true if the message was about the dataset. The core must not get it then. */
bool tw_daemon_data_message(struct tw_daemon *daemon, uint16_t peer,
                            const struct tw_message *message);
/* Returns true if the chunk belongs to the dataset. */
bool tw_daemon_data_chunk(struct tw_daemon *daemon, const struct tw_fetch_arrival *chunk,
                          const uint8_t *bytes);
/* Called when the transport has sent or dropped a chunk. Returns true if it belongs to the dataset.
 */
bool tw_daemon_data_released(struct tw_daemon *daemon, uint16_t peer, const struct tw_chunk *chunk,
                             bool was_sent);
void tw_daemon_data_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_data_fill(const struct tw_daemon *daemon, uint64_t now_us,
                         struct tw_status_view *view);
void tw_daemon_data_close(struct tw_daemon *daemon);
void tw_daemon_data_free(struct tw_daemon *daemon);

#endif
