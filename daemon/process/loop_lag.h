/* loop_lag.h - duration of the loop's longest iteration within the last minute, without the time
 * asleep in the kernel. It must stay below 5 ms on an idle machine; longer work belongs on a
 * thread. */
#ifndef TW_DAEMON_PROCESS_LOOP_LAG_H
#define TW_DAEMON_PROCESS_LOOP_LAG_H

#include <stdint.h>
#include <uv.h>

enum { TW_LAG_BUCKETS = 6, TW_LAG_BUCKET_US = 10 * 1000 * 1000 };

struct tw_loop_lag {
    uv_prepare_t prepare;
    uint64_t last_ns, last_idle_ns, bucket_us;
    uint64_t longest_us[TW_LAG_BUCKETS]; /* longest iteration in each period of ten seconds; [0]:
                                            the present period */
    uint64_t turns, turns_long;          /* all iterations; those longer than 5 ms */
};

/* Call before the loop runs for the first time. */
void tw_loop_lag_open(struct tw_loop_lag *lag, uv_loop_t *loop);
void tw_loop_lag_close(struct tw_loop_lag *lag);

uint64_t tw_loop_lag_us(const struct tw_loop_lag *lag);

#endif
