/* reports.h - handles reports of the core (TW_ACT_REPORT): logs them, and keeps the newest rounds,
 * changes of lineage and the partner for the status. */
#ifndef TW_DAEMON_NODE_REPORTS_H
#define TW_DAEMON_NODE_REPORTS_H

#include "daemon/node/runtime.h"

struct tw_status_view;

enum tw_status tw_daemon_reports_open(struct tw_daemon *daemon, struct tw_error *err);

/* This node begins to encode its contribution: `took_us` and `bytes` of the round are counted from
 * this call on. */
void tw_daemon_reports_opening(struct tw_daemon *daemon, uint64_t round);
void tw_daemon_reports_show(struct tw_daemon *daemon, const struct tw_action *action);

/* Mean time between two rounds of any fragment; 0 until two rounds are done. */
uint64_t tw_daemon_reports_period_us(const struct tw_daemon *daemon);

void tw_daemon_reports_fill(const struct tw_daemon *daemon, uint64_t now_us,
                            struct tw_status_view *view);
void tw_daemon_reports_free(struct tw_daemon *daemon);

#endif
