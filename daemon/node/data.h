/* data.h - the run's dataset: fetched from peers when this node lacks it, served to those who
 * lack it, and the worker waits for it.
 *
 *            peers: PULL, MISSING, CHUNK          worker: starts on the first whole shard
 *                 \         |                          |
 *       data_serve.c    sync/fetch.h  -->  data_store.c (folder, thread)
 *
 * Only with data.form = dataset. A folder of the user (node.data) is served and never changed; a
 * node without one fetches into STATE_DIR/RUN/data. Nothing here ever ends the daemon: what the
 * disk or the index has against it is a sentence in the status. */
#ifndef TW_DAEMON_NODE_DATA_H
#define TW_DAEMON_NODE_DATA_H

#include "daemon/node/runtime.h"

struct tw_chunk;
struct tw_fetch_arrival;
struct tw_status_view;

enum tw_status tw_daemon_data_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_data_peer_up(struct tw_daemon *daemon, uint16_t peer, const struct tw_id *id);
void tw_daemon_data_peer_down(struct tw_daemon *daemon, uint16_t peer);
/* True when the message was about the dataset: the core need not see it. */
bool tw_daemon_data_message(struct tw_daemon *daemon, uint16_t peer,
                            const struct tw_message *message);
/* True when the chunk was of the dataset. */
bool tw_daemon_data_chunk(struct tw_daemon *daemon, const struct tw_fetch_arrival *chunk,
                          const uint8_t *bytes);
/* True when the sent, or dropped, chunk was of the dataset. */
bool tw_daemon_data_released(struct tw_daemon *daemon, uint16_t peer, const struct tw_chunk *chunk,
                             bool was_sent);
void tw_daemon_data_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_data_fill(const struct tw_daemon *daemon, uint64_t now_us,
                         struct tw_status_view *view);
void tw_daemon_data_close(struct tw_daemon *daemon);
void tw_daemon_data_free(struct tw_daemon *daemon);

#endif
