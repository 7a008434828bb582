/* samples.h - samples of growing totals, one per second for a minute, from which the status and the
 * byte budget get rates. */
#ifndef TW_DAEMON_NODE_SAMPLES_H
#define TW_DAEMON_NODE_SAMPLES_H

#include "daemon/node/runtime.h"

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

#endif
