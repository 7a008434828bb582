/* reports.h - speeds of the last minute, rounds and partners, for the status and the byte budget.
 */
#ifndef TW_DAEMON_NODE_REPORTS_H
#define TW_DAEMON_NODE_REPORTS_H

#include "daemon/node/runtime.h"

/* ==== speeds of the last minute =============================================================== */

/* Samples of growing totals, one per second for a minute, from which the status and the
 * byte budget get rates. */

enum tw_sample {
    TW_SAMPLE_TOKENS,
    TW_SAMPLE_CLOCK_TOKENS, /* run clock, since this node joined its present lineage */
    TW_SAMPLE_STEP_US,
    TW_SAMPLE_SYNC_US,
    TW_SAMPLE_BYTES_IN, /* bytes at the sockets */
    TW_SAMPLE_BYTES_OUT,
    TW_SAMPLE_DATA_IN,  /* rate over ten seconds only, so that a stall shows soon */
    TW_SAMPLE_STATE_IN, /* likewise: bytes of the state that a receiver fetches */
    TW_SAMPLES,
};

enum tw_status tw_daemon_samples_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_samples_tick(struct tw_daemon *daemon, uint64_t now_us);

/* Returns the growth per second over the last minute, or NaN before there are two samples. */
double tw_daemon_samples_rate(const struct tw_daemon *daemon, enum tw_sample what);

void tw_daemon_samples_free(struct tw_daemon *daemon);

/* ==== rounds and partners ===================================================================== */

/* Handles reports of the core (TW_ACT_REPORT): logs them, and keeps the newest rounds,
 * the changes of lineage and the last partner for the status. */

struct tw_status_view;

enum tw_status tw_daemon_reports_open(struct tw_daemon *daemon, struct tw_error *err);

/* Called when this node begins to encode its contribution. `took_us` and `bytes` of the round are
 * counted from then on. */
void tw_daemon_reports_opening(struct tw_daemon *daemon, uint64_t round);
void tw_daemon_reports_show(struct tw_daemon *daemon, const struct tw_action *action);

/* Notes the speeds that the nodes announce, once a second. */
void tw_daemon_reports_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Returns the speeds of the nodes, and the rounds by which the run clock advanced. */
const struct tw_run_pace *tw_daemon_reports_pace(const struct tw_daemon *daemon);
const struct tw_clock_shares *tw_daemon_reports_clock_shares(const struct tw_daemon *daemon);
/* Returns the mean time between two rounds of any fragment, or 0 before the second round. */
uint64_t tw_daemon_reports_period_us(const struct tw_daemon *daemon);

void tw_daemon_reports_fill(const struct tw_daemon *daemon, uint64_t now_us,
                            struct tw_status_view *view);
void tw_daemon_reports_free(struct tw_daemon *daemon);

#endif
