#include "daemon/cli/run/run_budget.h"

#include <math.h>

#include "base/units.h"
#include "compress/codec.h"
#include "daemon/cli/run/run_traffic.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"

enum { OUTER_STEPS_MIN = 10, DAY_MS = 86400000 };

/* Returns the bytes in each direction in 30 days. */
static double month_of(const struct cli_traffic *traffic) {
    return TW_MONTH_S * cli_traffic_rate(traffic, traffic->rounds_s);
}

/* Returns the bytes of the limit that this traffic leaves unused in 30 days, negative if it exceeds
 * the limit. A monthly limit counts both directions, a rate only one. */
static double left_of(const struct cli_budget *budget, const struct cli_traffic *traffic) {
    if (budget->limit.is_month) return (double)budget->limit.bytes - 2 * month_of(traffic);
    return (double)budget->limit.bytes * TW_MONTH_S - month_of(traffic);
}

static double bits_of(const struct tw_run *run, const struct cli_budget *budget, double params) {
    const double most = tw_codec_get(run->sync.codec)->bits;
    const struct cli_traffic none = cli_traffic_of(run, params, 0.0, budget->steps_per_s);
    const struct cli_traffic all = cli_traffic_of(run, params, most, budget->steps_per_s);
    const double room = left_of(budget, &none), cost = room - left_of(budget, &all);
    if (cost <= 0.0) return most;
    return most * fmin(1.0, room / cost);
}

/* Pairs of codecs, in the order in which they are tried. Below bits_min, a longer period is better
 * than this codec. At one bit the loss rises by less than 1 %, with 64 of 4096 values by about 3 %
 * (tests/RECORDS.md). Most bytes are results, so sparse results are allowed only for rare rounds.
 */
static const struct choice {
    enum tw_codec_id codec, result;
    double bits_min;
    uint32_t stretch_min; /* lowest period at which the row is allowed, as a multiple of the
                             preset's */
} choices[] = {
    {TW_CODEC_AUTO, TW_CODEC_INT4, 1.0, 1},
    {TW_CODEC_ECSQ2, TW_CODEC_INT4, 2.0, 1}, /* for merge rules that allow nothing coarser */
    {TW_CODEC_TOPK64, TW_CODEC_SPARSE8, 0.0, 4},
    {TW_CODEC_TOPK32, TW_CODEC_SPARSE8, 0.0, 8},
};
enum { CHOICES = sizeof(choices) / sizeof(choices[0]) };
static const uint32_t stretches[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

/* Returns true if the run stays within the limit. Contributions of codec `auto` count with
 * bits_min. */
static bool fits_limit(const struct tw_run *run, const struct cli_budget *budget, double params,
                       double bits_min) {
    const double own = tw_codec_get(run->sync.codec)->bits;
    const double least = run->sync.codec == TW_CODEC_AUTO ? bits_min : own;
    const struct cli_traffic traffic = cli_traffic_of(run, params, least, budget->steps_per_s);
    return left_of(budget, &traffic) >= 0.0;
}

static bool is_choice(const struct tw_run *run, const struct cli_budget *budget,
                      const struct choice *choice, uint32_t stretch) {
    if (!budget->has_period && stretch < choice->stretch_min) return false;
    /* Pairs have no results, and most of their bytes are anchors, so coarser codecs gain nothing.
     */
    if (run->sync.topology == TW_TOPOLOGY_PAIR && choice->codec != TW_CODEC_AUTO) return false;
    return tw_run_can_code(run->sync.merge, choice->codec);
}

static bool try_at(struct tw_run *run, const struct cli_budget *budget, double params,
                   uint32_t stretch) {
    const struct tw_run before = *run;
    if (budget->has_codec) return fits_limit(run, budget, params, choices[0].bits_min);
    for (size_t c = 0; c < CHOICES; c++) {
        if (!is_choice(run, budget, &choices[c], stretch)) continue;
        run->sync.codec = choices[c].codec;
        run->sync.result = choices[c].result;
        if (run->sync.feedback_millionths == 0) run->sync.feedback_millionths = 950000;
        if (fits_limit(run, budget, params, choices[c].bits_min)) return true;
        *run = before;
    }
    return false;
}

/* Returns the coarsest codecs of contributions and results allowed at this period. */
static const struct choice *coarsest_choice(const struct tw_run *run,
                                            const struct cli_budget *budget, uint32_t stretch) {
    size_t c = CHOICES - 1;
    while (c > 0 && !is_choice(run, budget, &choices[c], stretch)) c--;
    return &choices[c];
}

static enum tw_status refuse_budget(const struct tw_run *run, const struct cli_budget *budget,
                                    double params, uint32_t stretch, struct tw_error *err) {
    char want[TW_UNITS_BYTES], have[TW_UNITS_BYTES];
    struct tw_run least = *run;
    const struct choice *choice = coarsest_choice(run, budget, stretch);
    if (!budget->has_codec) least.sync.codec = choice->codec;
    if (!budget->has_codec) least.sync.result = choice->result;
    const double bits =
        least.sync.codec == TW_CODEC_AUTO ? 1.0 : tw_codec_get(least.sync.codec)->bits;
    const struct cli_traffic traffic = cli_traffic_of(&least, params, bits, budget->steps_per_s);
    const double need =
        budget->limit.is_month ? 2 * month_of(&traffic) : month_of(&traffic) / TW_MONTH_S * 8 / 1e6;
    const char *const codec = budget->has_codec ? "the given codecs" : "the coarsest codec";
    const char *const instead = budget->has_codec    ? "do not set the codecs, or take "
                                : budget->has_period ? "do not set the period, or take "
                                                     : "";
    const char *const out = budget->has_codec || budget->has_period
                                ? "fewer nodes or a smaller model"
                                : "fewer nodes, a smaller model or more steps in total need less";
    if (budget->limit.is_month) {
        return tw_fail(err, TW_CONFIG,
                       "nothing fits %s/month: even every %u steps in %s it is %s/month at %.3g "
                       "steps/s; %s%s",
                       tw_units_bytes(have, (double)budget->limit.bytes), least.sync.period, codec,
                       tw_units_bytes(want, need), budget->steps_per_s, instead, out);
    }
    return tw_fail(err, TW_CONFIG,
                   "nothing fits %.3g mbit: even every %u steps in %s it is %.3g mbit at %.3g "
                   "steps/s; %s%s",
                   (double)budget->limit.bytes * 8 / 1e6, least.sync.period, codec, need,
                   budget->steps_per_s, instead, out);
}

static double params_of(const struct tw_run *run) {
    static struct tw_layout layout;
    return tw_layout_init(&layout, run, NULL) == TW_OK ? (double)layout.params : 0.0;
}

/* Multiplies the time between two merges: the period, or the interval with clock pace. */
static void stretch_period(struct tw_run *run, const struct tw_run *before, uint32_t factor) {
    run->sync.period = before->sync.period * factor;
    if (run->sync.pace != TW_PACE_CLOCK) return;
    const uint64_t pace_ms = (uint64_t)before->sync.pace_ms * factor;
    run->sync.pace_ms = pace_ms < DAY_MS ? (uint32_t)pace_ms : DAY_MS;
}

double cli_budget_bits(const struct tw_run *run, const struct cli_budget *budget) {
    return bits_of(run, budget, params_of(run));
}

enum tw_status cli_budget_fit(struct tw_run *run, const struct cli_budget *budget,
                              struct tw_error *err) {
    const struct tw_run before = *run;
    const double params = params_of(run);
    const size_t count = budget->has_period ? 1 : sizeof(stretches) / sizeof(stretches[0]);
    if (run->sync.topology == TW_TOPOLOGY_SOLO) return TW_OK;
    struct tw_run last = *run;
    uint32_t last_stretch = 1;
    for (size_t i = 0; i < count; i++) {
        stretch_period(run, &before, stretches[i]);
        /* With so few merges, nodes would gain nothing from merging. */
        if (i > 0 && tw_run_outer_steps(run) < OUTER_STEPS_MIN) break;
        last = *run;
        last_stretch = stretches[i];
        if (try_at(run, budget, params, stretches[i])) return TW_OK;
    }
    *run = before;
    return refuse_budget(&last, budget, params, last_stretch, err);
}

json_t *cli_budget_json(const struct tw_run *run, const struct cli_budget *budget) {
    const double params = params_of(run), bits = bits_of(run, budget, params);
    const struct cli_traffic traffic = cli_traffic_of(run, params, bits, budget->steps_per_s);
    const json_int_t round = (json_int_t)traffic.round, month = (json_int_t)month_of(&traffic);
    return json_pack("{s:f,s:f,s:I,s:I,s:I,s:I}", "steps_per_s", budget->steps_per_s,
                     "bits_per_parameter", bits, "round_up_bytes", round, "round_down_bytes", round,
                     "month_up_bytes", month, "month_down_bytes", month);
}

void cli_budget_explain(FILE *to, const struct tw_run *run, const struct cli_budget *budget) {
    char round[TW_UNITS_BYTES], month[TW_UNITS_BYTES];
    const double params = params_of(run), bits = bits_of(run, budget, params);
    const struct cli_traffic traffic = cli_traffic_of(run, params, bits, budget->steps_per_s);
    (void)tw_units_bytes(round, traffic.round);
    (void)tw_units_bytes(month, month_of(&traffic));
    (void)fprintf(to, "  Budget    a round of a node is %s up and %s down", round, round);
    if (run->sync.codec == TW_CODEC_AUTO) (void)fprintf(to, ", at %.2g bits per parameter", bits);
    (void)fprintf(to, "; 30 days are %s up and %s down (%.3g Mbit/s each way)", month, month,
                  month_of(&traffic) / TW_MONTH_S * 8 / 1e6);
    (void)fprintf(to,
                  " at %.3g steps/s; `budget` in [network] of a node holds it to its "
                  "own\n",
                  budget->steps_per_s);
}
