/* punches.h - replaces relayed links by direct ones with hole punching: PUNCH messages, and the
 * connections of daemon/net/punch.c. daemon/router/punch_plan.h decides when.
 *
 * A node dials an address only if both the relay and the other end name it. */
#ifndef TW_DAEMON_NODE_PUNCHES_H
#define TW_DAEMON_NODE_PUNCHES_H

#include "daemon/node/runtime.h"

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

#endif
