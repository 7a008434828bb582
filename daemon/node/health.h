/* health.h - signs of bad merging, judged at each evaluation (daemon/api/health.h, merge_health.h):
 * makes events, fills the status, and has one effect.
 *
 * While the anchor is worse than this node's own parameters and does not follow them, merges change
 * the anchor alone. A group's round is applied with TW_APPLY_STAY, so (phi, u) stay equal on all
 * nodes. A pair's step is taken alone. All other findings are only shown. */
#ifndef TW_DAEMON_NODE_HEALTH_H
#define TW_DAEMON_NODE_HEALTH_H

#include "daemon/node/runtime.h"

struct tw_status_view;
struct tw_wmsg_evaluated;

enum tw_status tw_daemon_health_open(struct tw_daemon *daemon, struct tw_error *err);

/* The worker measured the held-out losses. */
void tw_daemon_health_evaluated(struct tw_daemon *daemon,
                                const struct tw_wmsg_evaluated *evaluated);

/* Training goes on after a pause: the rounds that it missed meanwhile are no sign. */
void tw_daemon_health_resumed(struct tw_daemon *daemon);

/* Checks once a second whether the open round takes too long, and whether old findings end. */
void tw_daemon_health_tick(struct tw_daemon *daemon, uint64_t now_us);

/* In that round most members had another anchor than this node. */
void tw_daemon_health_differs(struct tw_daemon *daemon, uint64_t round);

void tw_daemon_health_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_health_free(struct tw_daemon *daemon);

#endif
