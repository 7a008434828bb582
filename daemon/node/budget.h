/* budget.h - bytes that a contribution may use. They are limited by the node's budget, its upload
 * cap, and the capacity of the link to each owner, or to the partner, until the next round. */
#ifndef TW_DAEMON_NODE_BUDGET_H
#define TW_DAEMON_NODE_BUDGET_H

#include "daemon/node/runtime.h"

struct tw_encoded;
struct tw_status_view;

enum tw_status tw_daemon_budget_open(struct tw_daemon *daemon, struct tw_error *err);
/* Applies a changed budget of the configuration. */
void tw_daemon_budget_apply(struct tw_daemon *daemon);

/* Sets bytes_max of an ENCODE or PAIR_ENCODE. Returns false if the budget has no room for this
 * contribution. The core was then given an empty TW_EV_ENCODED instead. */
bool tw_daemon_budget_grant(struct tw_daemon *daemon, struct tw_action *action);
void tw_daemon_budget_encoded(struct tw_daemon *daemon, const struct tw_encoded *encoded);
void tw_daemon_budget_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Returns the number of rounds in which the budget left no room for a contribution. */
uint64_t tw_daemon_budget_left_out(const struct tw_daemon *daemon);
/* Call after tw_daemon_links_fill, whose rates it reads. */
void tw_daemon_budget_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_budget_free(struct tw_daemon *daemon);

#endif
