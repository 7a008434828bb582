/* eval.c - computes the held-out loss, one group of windows at a time. */
#include "worker/learn/eval.h"

#include <math.h>
#include <stdlib.h>

enum { GROUP_MAX = 8, GROUPS_WANTED = 16 };

/* Sums over groups of windows, for mean and standard error in one pass.
 *
 *     m_g = mean loss of group g,  w_g = windows of g / all windows
 *     mean = sum w_g * m_g
 *     error^2 = n / (n - 1) * sum (w_g * (m_g - mean))^2  over n groups
 *
 * squares, cross and weights are the sums of (w_g * m_g)^2, w_g^2 * m_g and w_g^2. */
struct sums {
    double mean, squares, cross, weights;
    uint64_t groups;
};

static void add_group(struct sums *sums, double mean, double weight) {
    sums->mean += weight * mean;
    sums->squares += weight * mean * weight * mean;
    sums->cross += weight * weight * mean;
    sums->weights += weight * weight;
    sums->groups++;
}

static double error_of(const struct sums *sums) {
    if (sums->groups < 2) return (double)NAN;
    const double n = (double)sums->groups, mean = sums->mean;
    const double apart = sums->squares - 2 * mean * sums->cross + mean * mean * sums->weights;
    return sqrt(fmax(apart, 0) * n / (n - 1));
}

/* Returns the number of windows per group: fewer if there are few windows, so that several groups
 * can be compared. */
static uint32_t group_of(uint64_t windows) {
    const uint64_t group = windows / GROUPS_WANTED;
    return group < 1 ? 1 : group > GROUP_MAX ? GROUP_MAX : (uint32_t)group;
}

uint64_t tw_eval_windows(const struct tw_run *run) {
    const uint64_t wanted = TW_EVAL_TOKENS / run->model.context;
    return wanted > TW_EVAL_WINDOWS_MIN ? wanted : TW_EVAL_WINDOWS_MIN;
}

enum tw_status tw_eval_heldout(struct tw_engine *engine, struct tw_data *data, const float *params,
                               uint64_t windows_count, struct tw_eval *eval, struct tw_error *err) {
    const struct tw_eval_wish wish = {.windows = windows_count};
    return tw_eval_heldout_shown(engine, data, params, &wish, eval, err);
}

enum tw_status tw_eval_heldout_shown(struct tw_engine *engine, struct tw_data *data,
                                     const float *params, const struct tw_eval_wish *wish,
                                     struct tw_eval *eval, struct tw_error *err) {
    const uint64_t there = tw_data_heldout_count(data);
    const uint64_t count = wish->windows == 0 || wish->windows > there ? there : wish->windows;
    if (count == 0) {
        return tw_fail(err, TW_DATA, "nothing is held out, or no held-out shard is here yet");
    }
    const size_t window = (size_t)data->context + 1;
    const uint32_t group = group_of(count);
    uint32_t *tokens = malloc(group * window * sizeof(*tokens));
    if (tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for held-out windows");
    enum tw_status status = TW_OK;
    struct sums sums = {.groups = 0};
    tw_engine_hold(engine, params);
    for (uint64_t i = 0; i < count && status == TW_OK;) {
        uint32_t taken = 0;
        for (; status == TW_OK && taken < group && i < count; taken++, i++) {
            status = tw_data_heldout(data, i, count, tokens + taken * window, err);
        }
        double loss = 0.0;
        if (status == TW_OK) {
            status = tw_engine_loss(engine, params, tokens, taken, &loss, err);
        }
        add_group(&sums, loss, (double)taken / (double)count);
        if (status == TW_OK && wish->progress != NULL) wish->progress(wish->user, i, count);
    }
    tw_engine_hold(engine, NULL);
    free(tokens);
    if (status != TW_OK) return status;
    *eval = (struct tw_eval){.nats = sums.mean,
                             .standard_error = error_of(&sums),
                             .windows = count,
                             .tokens = count * data->context};
    return TW_OK;
}
