#include "daemon/process/loop_lag.h"

#include <string.h>

#include "base/assert.h"

enum { LONG_US = 5000 };

/* Runs before each sleep: the time since the last call, minus the sleep, is one iteration's work.
 */
static void on_prepare(uv_prepare_t *prepare) {
    struct tw_loop_lag *lag = prepare->data;
    const uint64_t now_ns = uv_hrtime(), idle_ns = uv_metrics_idle_time(prepare->loop);
    const uint64_t wall_ns = now_ns - lag->last_ns, slept_ns = idle_ns - lag->last_idle_ns;
    const uint64_t busy_us = wall_ns > slept_ns ? (wall_ns - slept_ns) / 1000 : 0;
    lag->last_ns = now_ns;
    lag->last_idle_ns = idle_ns;
    lag->turns++;
    if (busy_us > LONG_US) lag->turns_long++;
    if (now_ns / 1000 - lag->bucket_us >= TW_LAG_BUCKET_US) {
        memmove(&lag->longest_us[1], &lag->longest_us[0],
                (TW_LAG_BUCKETS - 1) * sizeof(lag->longest_us[0]));
        lag->longest_us[0] = 0;
        lag->bucket_us = now_ns / 1000;
    }
    if (busy_us > lag->longest_us[0]) lag->longest_us[0] = busy_us;
}

void tw_loop_lag_open(struct tw_loop_lag *lag, uv_loop_t *loop) {
    memset(lag, 0, sizeof(*lag));
    TW_ASSERT(uv_loop_configure(loop, UV_METRICS_IDLE_TIME) == 0);
    TW_ASSERT(uv_prepare_init(loop, &lag->prepare) == 0);
    lag->prepare.data = lag;
    lag->last_ns = uv_hrtime();
    lag->bucket_us = lag->last_ns / 1000;
    TW_ASSERT(uv_prepare_start(&lag->prepare, on_prepare) == 0);
    uv_unref((uv_handle_t *)&lag->prepare);
}

void tw_loop_lag_close(struct tw_loop_lag *lag) {
    uv_close((uv_handle_t *)&lag->prepare, NULL);
}

uint64_t tw_loop_lag_us(const struct tw_loop_lag *lag) {
    uint64_t longest = 0;
    for (unsigned i = 0; i < TW_LAG_BUCKETS; i++) {
        if (lag->longest_us[i] > longest) longest = lag->longest_us[i];
    }
    return longest;
}
