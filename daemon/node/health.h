/* health.h - signs of bad merging, judged at each evaluation (daemon/api/health.h, merge_health.h).
 * They become events and fields of the status, and one of them has an effect.
 *
 * While the anchor is worse than this node's own parameters and does not follow them, merges change
 * the anchor, but not theta. A group's round is then applied with TW_APPLY_STAY, so (phi, u) stays
 * equal on all nodes. In pairs, this node takes its outer step alone. All other findings are only
 * shown. */
#ifndef TW_DAEMON_NODE_HEALTH_H
#define TW_DAEMON_NODE_HEALTH_H

#include "daemon/node/runtime.h"

struct tw_status_view;
struct tw_wmsg_evaluated;

enum tw_status tw_daemon_health_open(struct tw_daemon *daemon, struct tw_error *err);

/* Called when the worker has measured the held-out losses. */
void tw_daemon_health_evaluated(struct tw_daemon *daemon,
                                const struct tw_wmsg_evaluated *evaluated);

/* Called when training goes on after a pause: the rounds missed during the pause do not count as a
 * sign. */
void tw_daemon_health_resumed(struct tw_daemon *daemon);

/* Checks once a second whether the open round takes too long, and whether old findings end. */
void tw_daemon_health_tick(struct tw_daemon *daemon, uint64_t now_us);

/* Called when most members had another anchor than this node in that round. */
void tw_daemon_health_differs(struct tw_daemon *daemon, uint64_t round);

void tw_daemon_health_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_health_free(struct tw_daemon *daemon);

#endif
