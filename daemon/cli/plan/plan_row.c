#include "daemon/cli/plan/plan_row.h"

#include <math.h>

#include "daemon/cli/plan/penalty.h"
#include "daemon/cli/run/run_traffic.h"

/* Payload bytes of a round as a fraction of the bytes that the rate cap allows meanwhile. Measured
 * with three daemons at caps of 1 Mbit/s. */
#define LINE_SHARE 0.92
/* Parameters per second that a CPU encodes, decodes and adds with the slowest codecs. */
#define CODEC_PARAMS_S 1e8
/* Round trips of a round: contributions and results are each announced and fetched; the record is
 * proposed, accepted, locked and committed. */
#define ROUND_TRIPS 6.0
/* Fraction of the time spent on evaluation, and seconds per parameter of the fragment by which a
 * merge delays a step. Measured with three daemons on two CPUs. */
#define EVALUATION_SHARE 0.011
#define MERGE_S_PARAM 15e-9

static double steps_of(const struct tw_run *run) {
    return (double)tw_run_together_tokens(run) / run->train.batch / run->model.context /
           run->sync.nodes;
}

static double slower_line(const struct plan_nodes *nodes) {
    if (nodes->upload_s <= 0) return nodes->download_s;
    if (nodes->download_s <= 0) return nodes->upload_s;
    return fmin(nodes->upload_s, nodes->download_s);
}

static void fill_times(struct plan_row *row, const struct cli_traffic *traffic, double params,
                       const struct plan_nodes *nodes) {
    const double line = slower_line(nodes), planned_s = 1 / traffic->rounds_s;
    const double fragment = params / row->run.sync.fragments;
    row->round_s = ROUND_TRIPS * nodes->rtt_s + 3 * fragment / CODEC_PARAMS_S;
    if (line > 0) row->round_s += traffic->payload / LINE_SHARE / line;
    row->is_line_full = row->round_s > planned_s;
    row->interval_s = fmax(row->round_s, planned_s);
    row->period = row->interval_s * row->run.sync.fragments * nodes->steps_per_s;
    row->merges = steps_of(&row->run) / row->period;
    const double rate = cli_traffic_rate(traffic, 1 / row->interval_s);
    row->day_bytes = 86400 * rate;
    row->used = line > 0 ? rate / line : 0;
    row->busy = 1 / (1 + EVALUATION_SHARE + cli_checks_time(&row->run) +
                     fragment * MERGE_S_PARAM / row->interval_s);
}

static bool is_over(const struct cli_budget *budget, double day_bytes) {
    const double month = 30 * day_bytes, limit = (double)budget->limit.bytes;
    if (budget->limit.bytes == 0) return false;
    return budget->limit.is_month ? 2 * month > limit : month > limit * TW_MONTH_S;
}

void plan_row_fill(struct plan_row *row, double params, const struct plan_nodes *nodes) {
    const struct tw_run *const run = &row->run;
    const double all_steps =
        (double)run->train.tokens / run->train.batch / run->model.context / run->sync.nodes;
    if (run->sync.topology == TW_TOPOLOGY_SOLO) {
        row->busy = 1 / (1 + EVALUATION_SHARE);
        row->loss = penalty_alone(all_steps, run->sync.nodes);
        return;
    }
    if (row->bits <= 0) row->bits = cli_contribution_bits(run);
    const struct cli_traffic traffic = cli_traffic_of(run, params, row->bits, nodes->steps_per_s);
    fill_times(row, &traffic, params, nodes);
    const double late_steps = fmax(run->sync.overlap, row->round_s * nodes->steps_per_s);
    row->loss = penalty_expect(&(struct penalty_case){.preset = run->sync.preset,
                                                      .codec = run->sync.codec,
                                                      .result = run->sync.result,
                                                      .nodes = run->sync.nodes,
                                                      .bits = row->bits,
                                                      .merges = row->merges,
                                                      .steps = all_steps,
                                                      .late = late_steps / row->period});
    row->is_over = is_over(nodes->budget, row->day_bytes);
}

static bool is_carried(const struct plan_row *row) {
    return row->run.sync.topology != TW_TOPOLOGY_SOLO && !row->is_line_full && !row->is_over;
}

unsigned plan_row_choose(const struct plan_row *rows, unsigned count) {
    const double margin = 0.01;
    double best = INFINITY;
    unsigned chosen = count;
    for (unsigned i = 0; i < count; i++)
        if (is_carried(&rows[i])) best = fmin(best, rows[i].loss);
    for (unsigned i = 0; i < count; i++) {
        if (!is_carried(&rows[i]) || rows[i].loss > best + margin) continue;
        if (chosen == count || rows[i].day_bytes < rows[chosen].day_bytes) chosen = i;
    }
    return chosen;
}
