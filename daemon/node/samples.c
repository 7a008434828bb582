#include "daemon/node/samples.h"

#include <math.h>
#include <stdlib.h>

#include "daemon/net/transport.h"

enum {
    SAMPLE_US = 1000 * 1000,
    ROWS_MAX = 61, /* one per second */
    DATA_ROWS = 11,
};

struct row {
    uint64_t at_us, values[TW_SAMPLES];
};

struct tw_daemon_samples {
    uint64_t due_us;
    uint32_t next, count; /* next row to write; rows in use */
    uint32_t clock_count; /* number of the newest rows that belong to `lineage` */
    struct tw_id lineage; /* lineage of the run clock in the newest rows */
    struct row rows[ROWS_MAX];
};

enum tw_status tw_daemon_samples_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->samples = tw_daemon_alloc(sizeof(*daemon->samples), err);
    return daemon->samples != NULL ? TW_OK : TW_NOMEM;
}

void tw_daemon_samples_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_samples *samples = daemon->samples;
    if (now_us < samples->due_us) return;
    samples->due_us = now_us + SAMPLE_US;
    struct row *row = &samples->rows[samples->next];
    *row = (struct row){.at_us = now_us};
    row->values[TW_SAMPLE_TOKENS] = daemon->counts.tokens;
    row->values[TW_SAMPLE_STEP_US] = daemon->counts.step_us;
    row->values[TW_SAMPLE_SYNC_US] = daemon->counts.sync_us;
    row->values[TW_SAMPLE_DATA_IN] = daemon->counts.data_taken_bytes;
    if (daemon->transport != NULL) {
        const struct tw_traffic all = tw_transport_traffic(daemon->transport);
        row->values[TW_SAMPLE_BYTES_IN] = all.bytes_in;
        row->values[TW_SAMPLE_BYTES_OUT] = all.bytes_out;
    }
    tw_node_view(daemon->node, &daemon->view);
    row->values[TW_SAMPLE_CLOCK_TOKENS] = daemon->view.clock_tokens;
    row->values[TW_SAMPLE_STATE_IN] = daemon->view.fetch_bytes_here;
    /* When a node joins, its clock jumps to the run's clock. The jump must not count as training
     * speed. */
    const bool is_same_clock = tw_id_equal(&samples->lineage, &daemon->view.lineage) &&
                               daemon->view.state != TW_STATE_RECEIVER;
    samples->lineage = daemon->view.lineage;
    samples->clock_count = is_same_clock ? samples->clock_count + 1 : 0;
    samples->next = (samples->next + 1) % ROWS_MAX;
    if (samples->count < ROWS_MAX) samples->count++;
}

double tw_daemon_samples_rate(const struct tw_daemon *daemon, enum tw_sample what) {
    const struct tw_daemon_samples *samples = daemon->samples;
    uint32_t count = samples->count;
    const bool is_short = what == TW_SAMPLE_DATA_IN || what == TW_SAMPLE_STATE_IN;
    if (is_short && count > DATA_ROWS) count = DATA_ROWS;
    if (what == TW_SAMPLE_CLOCK_TOKENS && count > samples->clock_count)
        count = samples->clock_count;
    if (count < 2) return NAN;
    const struct row *newest = &samples->rows[(samples->next + ROWS_MAX - 1) % ROWS_MAX];
    const struct row *oldest = &samples->rows[(samples->next + ROWS_MAX - count) % ROWS_MAX];
    const uint64_t wall_us = newest->at_us - oldest->at_us;
    const uint64_t from = oldest->values[what], to = newest->values[what];
    if (wall_us == 0 || to < from) return NAN;
    return (double)(to - from) * 1e6 / (double)wall_us;
}

void tw_daemon_samples_free(struct tw_daemon *daemon) {
    free(daemon->samples);
}
