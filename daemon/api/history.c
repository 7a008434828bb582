#include "daemon/api/history.h"

#include <math.h>

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
