#include "daemon/api/history.h"

#include <math.h>

#include "base/limits.h"
#include "base/median.h"

/* ==== curves and rounds ======================================================================= */

/* ---- losses -------------------------------------------------------------------------------- */

/* Drops every second point but keeps the newest. */
static void thin_out(struct tw_history *history) {
    uint32_t kept = 0;
    for (uint32_t i = 1; i < history->losses_count; i += 2)
        history->losses[kept++] = history->losses[i];
    history->losses_count = kept;
    history->stride = history->stride == 0 ? 2 : 2 * history->stride;
}

void tw_history_loss(struct tw_history *history, const struct tw_view_loss *point) {
    const uint64_t stride = history->stride > 0 ? history->stride : 1;
    /* A worker that restarts from a snapshot repeats steps: the later ones are undone. */
    while (history->losses_count > 0 &&
           history->losses[history->losses_count - 1].step > point->step)
        history->losses_count--;
    struct tw_view_loss *const newest =
        history->losses_count > 0 ? &history->losses[history->losses_count - 1] : NULL;
    const bool is_same = newest != NULL && point->step / stride <= newest->step / stride;
    if (is_same) {
        newest->step = point->step;
        if (!isnan(point->train)) newest->train = point->train;
        if (!isnan(point->live)) newest->live = point->live;
        if (!isnan(point->anchor)) newest->anchor = point->anchor;
        return;
    }
    if (history->losses_count == TW_HISTORY_LOSSES_MAX) thin_out(history);
    history->losses[history->losses_count++] = *point;
}

void tw_history_fill(const struct tw_history *history, struct tw_status_view *view) {
    const uint32_t all = history->losses_count;
    const uint32_t shown = all < TW_VIEW_LOSSES_MAX ? all : TW_VIEW_LOSSES_MAX;
    for (uint32_t i = 0; i < shown; i++) {
        const uint32_t at = shown > 1 ? i * (all - 1) / (shown - 1) : 0;
        view->train.losses[i] = history->losses[at];
    }
    view->train.losses_count = shown;
}

void tw_history_evaluated(struct tw_history *history, const struct tw_past_evaluation *evaluation) {
    history->evaluations[history->evaluations_end++ % TW_HISTORY_EVALUATIONS_MAX] = *evaluation;
}

const struct tw_past_evaluation *tw_history_evaluation(const struct tw_history *history,
                                                       uint64_t step) {
    const uint64_t end = history->evaluations_end;
    for (uint64_t n = end; n > 0 && end - n < TW_HISTORY_EVALUATIONS_MAX; n--) {
        const struct tw_past_evaluation *const row =
            &history->evaluations[(n - 1) % TW_HISTORY_EVALUATIONS_MAX];
        if (row->step <= step) return row;
    }
    return NULL;
}

/* ---- rounds -------------------------------------------------------------------------------- */

static void add_round(struct tw_history *history, enum tw_outcome outcome) {
    history->rounds[history->rounds_end++ % TW_HISTORY_ROUNDS_MAX] = (char)outcome;
    if (history->rounds_count < TW_HISTORY_ROUNDS_MAX) history->rounds_count++;
}

void tw_history_round(struct tw_history *history, uint64_t round, enum tw_outcome outcome) {
    const uint64_t end = history->rounds_end, first = end - history->rounds_count;
    const bool is_kept = round - first < history->rounds_count;
    const bool is_next = history->rounds_count > 0 && round - end < TW_HISTORY_ROUNDS_MAX;
    if (!is_next) {
        history->rounds_count = is_kept ? (uint32_t)(round - first) : 0;
        history->rounds_end = round;
    }
    while (history->rounds_end < round) add_round(history, TW_OUTCOME_UNSEEN);
    add_round(history, outcome);
}

void tw_history_pair(struct tw_history *history) {
    if (history->rounds_count == 0) return;
    history->rounds[(history->rounds_end - 1) % TW_HISTORY_ROUNDS_MAX] = TW_OUTCOME_OURS;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static json_t *nats(float value) {
    return isfinite(value) ? json_real((double)value) : json_null();
}

static json_t *losses_json(const struct tw_history *history) {
    json_t *const steps = json_array(), *const train = json_array(), *const live = json_array(),
                  *const anchor = json_array();
    for (uint32_t i = 0; i < history->losses_count; i++) {
        const struct tw_view_loss *const point = &history->losses[i];
        (void)json_array_append_new(steps, json_integer((json_int_t)point->step));
        (void)json_array_append_new(train, nats(point->train));
        (void)json_array_append_new(live, nats(point->live));
        (void)json_array_append_new(anchor, nats(point->anchor));
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "steps", steps, "train_nats", train, "live_nats", live,
                     "anchor_nats", anchor);
}

json_t *tw_history_json(const struct tw_history *history, uint32_t fragments_count) {
    char outcomes[TW_HISTORY_ROUNDS_MAX + 1];
    const uint64_t first = history->rounds_end - history->rounds_count;
    for (uint32_t i = 0; i < history->rounds_count; i++)
        outcomes[i] = history->rounds[(first + i) % TW_HISTORY_ROUNDS_MAX];
    outcomes[history->rounds_count] = '\0';
    return json_pack("{s:o,s:{s:I,s:I,s:s}}", "losses", losses_json(history), "rounds",
                     "first_round", (json_int_t)first, "fragments", (json_int_t)fragments_count,
                     "outcomes", outcomes);
}

/* ==== pace ==================================================================================== */

/* Returns the index of the row that is `back` rows older than the newest one. */
static uint32_t row_at(const struct tw_run_pace *pace, uint32_t back) {
    return (pace->next + 2 * TW_RUN_PACE_ROWS - 1 - back) % TW_RUN_PACE_ROWS;
}

static uint64_t age(uint64_t now_us, uint64_t at_us) {
    return now_us > at_us ? now_us - at_us : 0;
}

void tw_run_pace_note(struct tw_run_pace *pace, uint64_t now_us, const struct tw_id *lineage,
                      uint64_t clock_tokens) {
    const bool is_back = pace->count > 0 && clock_tokens < pace->rows[row_at(pace, 0)].clock_tokens;
    if (!tw_id_equal(&pace->lineage, lineage) || is_back) pace->count = 0;
    pace->lineage = *lineage;
    pace->rows[pace->next].at_us = now_us;
    pace->rows[pace->next].clock_tokens = clock_tokens;
    pace->next = (pace->next + 1) % TW_RUN_PACE_ROWS;
    if (pace->count < TW_RUN_PACE_ROWS) pace->count++;
}

static bool stands_still(const struct tw_run_pace *pace, uint64_t now_us) {
    const uint64_t newest_us = pace->rows[row_at(pace, 0)].at_us,
                   oldest_us = pace->rows[row_at(pace, pace->count - 1)].at_us;
    const uint64_t mean_us = age(newest_us, oldest_us) / (pace->count - 1);
    return age(now_us, newest_us) > TW_RUN_PACE_STILL_US + TW_RUN_PACE_STILL_ROUNDS * mean_us;
}

double tw_run_pace_counted(uint64_t *speeds, uint32_t count) {
    const uint64_t times = count >= 3 ? TW_CLAIM_MEDIANS : TW_CLAIM_FEW;
    double sum = 0;
    tw_sort_u64(speeds, count);
    const uint64_t usual = count >= 2 ? speeds[(count - 1) / 2] : UINT64_MAX / times;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)(speeds[i] < times * usual ? speeds[i] : times * usual);
    return sum;
}

void tw_run_pace_announce(struct tw_run_pace *pace, const struct tw_run_speeds *speeds) {
    enum { SMOOTHING = 16 }; /* seconds */
    const double mean = pace->speeds.tokens_per_s, sum = speeds->tokens_per_s;
    const bool is_other = speeds->others != pace->speeds.others ||
                          speeds->has_own != pace->speeds.has_own ||
                          fabs(sum - mean) > fmax(sum, mean) / 4;
    pace->speeds = *speeds;
    pace->speeds.tokens_per_s = is_other ? sum : mean + (sum - mean) / SMOOTHING;
}

double tw_run_pace_rate(const struct tw_run_pace *pace, uint64_t now_us) {
    const double announced = pace->speeds.tokens_per_s;
    if (pace->speeds.is_whole || pace->count < 2 || stands_still(pace, now_us)) return announced;
    const uint32_t newest = row_at(pace, 0);
    const uint64_t end_us = pace->rows[newest].at_us;
    const double end = (double)pace->rows[newest].clock_tokens;
    for (uint32_t back = TW_RUN_PACE_ROUNDS; back < pace->count; back++) {
        const uint32_t row = row_at(pace, back), later = row_at(pace, back - 1);
        const uint64_t wall_us = age(end_us, pace->rows[row].at_us);
        const bool is_last = back + 1 == TW_RUN_PACE_ROWS; /* many short rounds */
        if (wall_us < TW_RUN_PACE_US && !is_last) continue;
        if (wall_us == 0) break;
        /* Nodes see a round at slightly different times. Were whole rounds counted, one more or
         * less would make them differ, so the clock at the begin is interpolated. */
        const double begin = (double)pace->rows[row].clock_tokens,
                     next = (double)pace->rows[later].clock_tokens;
        const uint64_t later_us = age(end_us, pace->rows[later].at_us);
        if (back == TW_RUN_PACE_ROUNDS || is_last || later_us >= wall_us)
            return (end - begin) * 1e6 / (double)wall_us;
        const double share = (double)(wall_us - TW_RUN_PACE_US) / (double)(wall_us - later_us);
        return (end - begin - share * (next - begin)) * 1e6 / TW_RUN_PACE_US;
    }
    return announced;
}

bool tw_run_pace_is_alone(const struct tw_run_pace *pace) {
    return pace->speeds.has_own && pace->speeds.others == 0 && pace->speeds.is_whole;
}

uint64_t tw_run_pace_left_us(const struct tw_run_pace *pace, uint64_t now_us, double rate,
                             uint64_t clock_tokens, uint64_t budget_tokens) {
    if (!(rate > 0) || clock_tokens >= budget_tokens) return UINT64_MAX;
    const double rest_us = (double)(budget_tokens - clock_tokens) / rate * 1e6;
    const bool is_moving = pace->count > 1 && !stands_still(pace, now_us);
    const double since_us = is_moving ? (double)age(now_us, pace->rows[row_at(pace, 0)].at_us) : 0;
    const double left_us = rest_us > since_us ? rest_us - since_us : 0;
    return left_us < 1e18 ? (uint64_t)left_us : UINT64_MAX;
}
