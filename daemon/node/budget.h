/* budget.h - bytes that a contribution may use. Three limits: the budget of the node, its upload
 * cap, and the capacity of the link to each owner, or to the partner, until the next round. */
#ifndef TW_DAEMON_NODE_BUDGET_H
#define TW_DAEMON_NODE_BUDGET_H

#include "daemon/node/runtime.h"

struct tw_encoded;
struct tw_status_view;

enum tw_status tw_daemon_budget_open(struct tw_daemon *daemon, struct tw_error *err);
/* The configured budget changed. */
void tw_daemon_budget_apply(struct tw_daemon *daemon);

/* Sets bytes_max of an ENCODE or PAIR_ENCODE. False: the budget has no room for this contribution,
 * and the core was given an empty TW_EV_ENCODED instead. */
bool tw_daemon_budget_grant(struct tw_daemon *daemon, struct tw_action *action);
void tw_daemon_budget_encoded(struct tw_daemon *daemon, const struct tw_encoded *encoded);
void tw_daemon_budget_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Number of rounds so far without a contribution because of the budget. */
uint64_t tw_daemon_budget_left_out(const struct tw_daemon *daemon);
/* Reads the rates that tw_daemon_links_fill wrote. */
void tw_daemon_budget_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_budget_free(struct tw_daemon *daemon);

#endif
