#include "daemon/cli/run/ways.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/units.h"
#include "compress/codec.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/run/run_traffic.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"

/* ---- expected loss --------------------------------------------------------------------------- */

/* All figures are excess losses over one machine with the batch of all nodes, measured with eight
 * nodes and the small model of tests/bench/quality. */

/* A measured curve: ratios y at ascending x. */
struct curve {
    unsigned count;
    double x[5], y[5];
};

/* Interpolates log y linearly in log x. Beyond the ends of the curve, returns its first or last y.
 */
static double read_curve(const struct curve *curve, double x) {
    unsigned i = 1;
    if (!(x > curve->x[0])) return curve->y[0];
    if (x >= curve->x[curve->count - 1]) return curve->y[curve->count - 1];
    while (x > curve->x[i]) i++;
    const double share = log(x / curve->x[i - 1]) / log(curve->x[i] / curve->x[i - 1]);
    return curve->y[i - 1] * pow(curve->y[i] / curve->y[i - 1], share);
}

/* By merges of each fragment: presets.plan with 400 steps, length.plan with 1600, muon.plan for the
 * sparse preset. `btm` merges during half of the run. Coarse codecs are in the curves below. */
static const struct curve presets[] = {
    [TW_PRESET_DILOCO] = {2, {40, 160}, {.089, .025}},
    [TW_PRESET_STREAMING] = {2, {40, 160}, {.078, .023}},
    [TW_PRESET_EAGER] = {2, {40, 160}, {.179, .109}},
    [TW_PRESET_NOLOCO] = {2, {40, 160}, {.148, .093}},
    [TW_PRESET_CO2] = {2, {40, 160}, {.175, .102}},
    [TW_PRESET_DECOUPLED] = {2, {40, 160}, {.091, .025}},
    [TW_PRESET_SPARSELOCO] = {2, {40, 160}, {.09, .012}},
    [TW_PRESET_LOCAL_SGD] = {2, {40, 160}, {.161, .089}},
    [TW_PRESET_BTM] = {2, {20, 80}, {.164, .074}},
};

/* For fewer than 40 merges: factor on the excess loss at 40 merges. From the table "Period". */
static const struct curve few = {3, {8, 20, 40}, {3.2, 1.73, 1}};

/* Factor on the excess loss by the number of nodes; one machine has the batch of all. At
 * 40 merges 2, 4 and 16 nodes had .36, .69, 1.5 with Muon and .48, .86, 1.2 with AdamW; the last is
 * the same line drawn on. */
static const struct curve by_nodes = {5, {2, 4, 8, 16, 64}, {.39, .75, 1, 1.5, 3.3}};
static const struct curve alone_by_nodes = {4, {2, 4, 8, 16}, {.45, .8, 1, 1.15}};

/* Excess loss of coarse contributions with 40 merges, by bits per parameter. From codecs.plan. */
static const struct curve coarse = {5, {.08, .14, .5, 1, 2}, {.11, .073, .021, .018, .003}};
static const struct curve coarse_auto = {5, {.137, .41, 1, 2, 4}, {.117, .043, .023, .004, .0005}};

/* Excess loss of results in 2 bits or fewer with 40 merges, by bits. From muon.plan. */
static const struct curve coarse_result = {4, {.41, .5, 1, 2}, {.16, .15, .05, .012}};

/* Excess loss of work that is applied late, with 100 merges, by the delay as a fraction of the
 * period. From late.plan. */
static const struct curve late = {4, {.05, .25, .5, .75}, {.001, .006, .046, .104}};

/* Factor by which more merges reduce the penalties of coarse codecs and of delay: about as much as
 * the penalty of `eager` falls from 40 to 640 merges. */
static double fade(double merges, double measured_at) {
    return merges > measured_at ? pow(measured_at / merges, 0.4) : 1;
}

double way_loss_alone(double steps, double nodes) {
    static const struct curve alone = {2, {400, 1600}, {.229, .152}};
    return read_curve(&alone, steps) * read_curve(&alone_by_nodes, nodes);
}

static double loss_of_preset(enum tw_preset preset, double merges) {
    TW_ASSERT((size_t)preset < sizeof(presets) / sizeof(presets[0]));
    const struct curve *const curve = &presets[preset];
    const double first = curve->x[0];
    if (merges >= first) return read_curve(curve, merges);
    return curve->y[0] * read_curve(&few, merges * 40 / first);
}

static double loss_of_codecs(const struct way *way) {
    const enum tw_codec_id codec = way->run.sync.codec, result = way->run.sync.result;
    double loss = 0;
    if (tw_codec_get(codec)->needs_feedback)
        loss += read_curve(codec == TW_CODEC_AUTO ? &coarse_auto : &coarse, way->bits);
    if (tw_codec_get(result)->needs_feedback)
        loss += read_curve(&coarse_result, tw_codec_get(result)->bits);
    return loss * fade(way->merges, 40);
}

/* Returns 0 for presets that are a whole period late by design: their curves include the delay. */
static double loss_of_lateness(const struct way *way, double late_steps) {
    const enum tw_preset preset = way->run.sync.preset;
    const double part = late_steps / way->period;
    if (preset == TW_PRESET_EAGER || preset == TW_PRESET_CO2 || part < late.x[0]) return 0;
    return read_curve(&late, part) * fade(way->merges, 100);
}

static double expect_loss(const struct way *way, double steps, double late_steps) {
    const double nodes = way->run.sync.nodes, most = way_loss_alone(steps, nodes);
    if (!(way->merges >= 1)) return most;
    const double merged = loss_of_preset(way->run.sync.preset, way->merges) + loss_of_codecs(way) +
                          loss_of_lateness(way, late_steps);
    return fmin(most, merged * read_curve(&by_nodes, nodes));
}

/* ---- bytes and times ------------------------------------------------------------------------- */

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

static double slower_line(const struct cli_line *line) {
    if (line->upload_s <= 0) return line->download_s;
    if (line->download_s <= 0) return line->upload_s;
    return fmin(line->upload_s, line->download_s);
}

static void fill_times(struct way *way, const struct cli_traffic *traffic,
                       const struct way_nodes *nodes) {
    const struct tw_run *const run = &way->run;
    const double line = slower_line(&nodes->line), planned_s = 1 / traffic->rounds_s;
    const double fragment = nodes->params / run->sync.fragments;
    const double steps = (double)tw_run_together_tokens(run) / run->train.batch /
                         run->model.context / run->sync.nodes;
    way->round_s = ROUND_TRIPS * nodes->line.rtt_s + 3 * fragment / CODEC_PARAMS_S;
    if (line > 0) way->round_s += traffic->payload / LINE_SHARE / line;
    way->is_line_full = way->round_s > planned_s;
    way->interval_s = fmax(way->round_s, planned_s);
    way->period = way->interval_s * run->sync.fragments * nodes->steps_per_s;
    way->merges = steps / way->period;
    const double rate = cli_traffic_rate(traffic, 1 / way->interval_s);
    way->day_bytes = 86400 * rate;
    way->used = line > 0 ? rate / line : 0;
    way->busy = 1 / (1 + EVALUATION_SHARE + cli_checks_time(run) +
                     fragment * MERGE_S_PARAM / way->interval_s);
}

/* A monthly limit counts both directions, a rate only one. */
static bool is_over(const struct tw_budget_config *budget, double day_bytes) {
    /* A codec that fills the budget is not above it by rounding. */
    const double month = 30 * day_bytes * (1 - 1e-9), limit = (double)budget->bytes;
    if (budget->bytes == 0) return false;
    return budget->is_month ? 2 * month > limit : month > limit * TW_MONTH_S;
}

/* Returns the bytes in each direction in 30 days. */
static double month_of(const struct cli_traffic *traffic) {
    return TW_MONTH_S * cli_traffic_rate(traffic, traffic->rounds_s);
}

/* Returns the bytes that the budget leaves unused in 30 days, negative if the traffic exceeds it. A
 * monthly limit counts both directions, a rate only one. */
static double left_of(const struct tw_budget_config *budget, const struct cli_traffic *traffic) {
    if (budget->is_month) return (double)budget->bytes - 2 * month_of(traffic);
    return (double)budget->bytes * TW_MONTH_S - month_of(traffic);
}

/* Returns the bits per parameter that the budget leaves for contributions: at most the codec's own,
 * and at least 1. */
static double budget_bits(const struct tw_run *run, const struct way_nodes *nodes) {
    const double most = tw_codec_get(run->sync.codec)->bits;
    const struct cli_traffic none = cli_traffic_of(run, nodes->params, 0.0, nodes->steps_per_s);
    const struct cli_traffic all = cli_traffic_of(run, nodes->params, most, nodes->steps_per_s);
    const double room = left_of(nodes->budget, &none), cost = room - left_of(nodes->budget, &all);
    if (cost <= 0.0) return most;
    return most * fmin(1.0, fmax(room / cost, 1 / most));
}

void way_fill(struct way *way, const struct way_nodes *nodes) {
    const struct tw_run *const run = &way->run;
    const double steps =
        (double)run->train.tokens / run->train.batch / run->model.context / run->sync.nodes;
    if (run->sync.topology == TW_TOPOLOGY_SOLO) {
        way->busy = 1 / (1 + EVALUATION_SHARE);
        way->loss = way_loss_alone(steps, run->sync.nodes);
        return;
    }
    way->bits = cli_contribution_bits(run);
    if (run->sync.codec == TW_CODEC_AUTO && nodes->budget->bytes > 0)
        way->bits = budget_bits(run, nodes);
    const struct cli_traffic traffic =
        cli_traffic_of(run, nodes->params, way->bits, nodes->steps_per_s);
    fill_times(way, &traffic, nodes);
    way->loss = expect_loss(way, steps, fmax(run->sync.overlap, way->round_s * nodes->steps_per_s));
    way->is_over = is_over(nodes->budget, way->day_bytes);
}

/* ---- variants of a run ----------------------------------------------------------------------- */

/* Codecs of contributions and results. */
enum pair { PAIR_OWN, PAIR_ONE_BIT, PAIR_SPARSE, PAIR_SPARSER, PAIR_SPARSEST, PAIRS };
static const struct {
    enum tw_codec_id codec, result;
} pairs[PAIRS] = {
    /* PAIR_OWN: those of the preset */
    [PAIR_ONE_BIT] = {TW_CODEC_ECSQ1, TW_CODEC_ECSQ2},
    [PAIR_SPARSE] = {TW_CODEC_TOPK256, TW_CODEC_ECSQ2},
    [PAIR_SPARSER] = {TW_CODEC_TOPK64, TW_CODEC_SPARSE8},
    [PAIR_SPARSEST] = {TW_CODEC_TOPK32, TW_CODEC_SPARSE8},
};

struct variant {
    enum tw_preset preset;
    uint32_t stretch; /* percent of the preset's period */
    enum pair pair;
};

static bool has_codecs(const struct cli_wish *wish) {
    return cli_wish_has(wish, "sync.codec") || cli_wish_has(wish, "sync.result");
}

/* Returns that share of the period, as a multiple of the fragments. */
static uint32_t stretched(const struct tw_run *run, uint32_t percent) {
    const uint32_t fragments = run->sync.fragments;
    const uint64_t strides = (uint64_t)run->sync.period / fragments * percent / 100;
    return (uint32_t)(strides > 0 ? strides : 1) * fragments;
}

/* Sets the codecs, unless the user did. Returns false if that changes nothing: of two nodes that
 * meet as a pair, most bytes are anchors. */
static bool take_pair(struct tw_run *run, const struct cli_wish *wish, enum pair pair) {
    if (pair == PAIR_OWN) return true;
    if (has_codecs(wish) || run->sync.topology != TW_TOPOLOGY_GROUP) return false;
    if (!tw_run_can_code(run->sync.merge, pairs[pair].codec)) return false;
    run->sync.codec = pairs[pair].codec;
    run->sync.result = pairs[pair].result;
    return true;
}

/* Turns the run into one of another preset, with the user's keys. Returns false if the keys
 * contradict each other. */
static bool vary(struct tw_run *run, const struct cli_wish *wish, double steps_per_s,
                 const struct variant *variant) {
    const bool has_interval = cli_wish_has(wish, "sync.interval");
    if (!cli_wish_has(wish, "sync.codec")) run->sync.codec = TW_CODEC_INT4;
    if (!cli_wish_has(wish, "sync.topology")) run->sync.topology = TW_TOPOLOGY_GROUP;
    tw_run_apply_preset(run, variant->preset);
    if (cli_wish_apply(wish, run) != TW_EXIT_OK) return false;
    if (!cli_wish_has(wish, "sync.period")) run->sync.period = stretched(run, variant->stretch);
    if (!take_pair(run, wish, variant->pair)) return false;
    tw_run_refit(run);
    if (!has_interval || !cli_wish_has(wish, "sync.period"))
        tw_run_fit_clock(run, (uint64_t)fmax(1, 1e6 / steps_per_s), has_interval);
    return cli_wish_apply(wish, run) == TW_EXIT_OK && tw_run_check(run, NULL) == TW_OK;
}

/* Returns whether two runs would be the same row of the table. */
static bool is_same(const struct tw_run *a, const struct tw_run *b) {
    return a->sync.preset == b->sync.preset && a->sync.topology == b->sync.topology &&
           a->sync.fragments == b->sync.fragments && a->sync.period == b->sync.period &&
           a->sync.codec == b->sync.codec && a->sync.result == b->sync.result;
}

static bool is_carried(const struct way *way) {
    return way->run.sync.topology != TW_TOPOLOGY_SOLO && !way->is_line_full && !way->is_over;
}

/* ---- the best way ---------------------------------------------------------------------------- */

static const uint32_t stretches[] = {33,  50,   100,  200,  300,  400,  600,
                                     800, 1200, 1600, 2400, 3200, 4800, 6400};
enum { STRETCHES = sizeof(stretches) / sizeof(stretches[0]), CANDIDATES = 2 * PAIRS * STRETCHES };

/* Common to all candidates. */
struct search {
    const struct tw_run *run; /* as the user wishes it */
    const struct cli_wish *wish;
    const struct way_nodes *nodes;
};

/* Makes candidate i: the run itself, then the presets on the measured frontier, or the user's, with
 * all codecs and periods. Returns false if there is no such way, or too few merges to gain by. */
static bool make_candidate(const struct search *search, unsigned i, struct way *way) {
    enum { MERGES_MIN = 10 };
    static const enum tw_preset frontier[] = {TW_PRESET_STREAMING, TW_PRESET_SPARSELOCO};
    *way = (struct way){.run = *search->run};
    if (i > 0) {
        const unsigned at = i - 1, group = at / (PAIRS * STRETCHES);
        const bool is_one = cli_wish_has(search->wish, "sync.preset");
        const struct variant variant = {
            .preset = is_one ? search->run->sync.preset : frontier[group],
            .stretch = stretches[at % STRETCHES],
            .pair = at / STRETCHES % PAIRS,
        };
        if (is_one && group > 0) return false;
        if (!vary(&way->run, search->wish, search->nodes->steps_per_s, &variant)) return false;
    }
    if (way->run.sync.topology == TW_TOPOLOGY_SOLO) return false;
    way_fill(way, search->nodes);
    return i == 0 || way->merges >= MERGES_MIN;
}

/* Finds the carried way with the fewest bytes among those within LOSS_MARGIN of the least loss.
 * Returns false if none is carried: *best is then, of those within the budget, the one with the
 * least loss, and if there is none the one with the fewest bytes. */
static bool find_best(const struct search *search, struct way *best) {
    static struct way way;
    const double margin = 0.005;
    double least = INFINITY, bytes = INFINITY, loss = INFINITY;
    bool is_found = false, is_within = false;
    for (unsigned i = 0; i <= CANDIDATES; i++)
        if (make_candidate(search, i, &way) && is_carried(&way)) least = fmin(least, way.loss);
    for (unsigned i = 0; i <= CANDIDATES; i++) {
        if (!make_candidate(search, i, &way)) continue;
        if (is_carried(&way)) {
            if (way.loss > least + margin || (is_found && way.day_bytes >= bytes)) continue;
            is_found = true;
        } else if (is_found) {
            continue;
        } else if (!way.is_over) {
            if (is_within && way.loss >= loss) continue;
            is_within = true;
        } else if (is_within || way.day_bytes >= bytes) {
            continue;
        }
        *best = way;
        bytes = way.day_bytes;
        loss = way.loss;
    }
    return is_found;
}

/* Adds the way, unless it is listed already. Returns its index. One row is left free for a node
 * alone. */
static unsigned add(struct way *ways, unsigned *count, const struct way *way) {
    for (unsigned i = 0; i < *count; i++)
        if (is_same(&ways[i].run, &way->run)) return i;
    TW_ASSERT(*count + 1 < WAYS_MAX);
    ways[*count] = *way;
    return (*count)++;
}

/* The sparse preset sends a third of the bytes of a merge, or less, so it stands beside the others
 * with two and three times as many merges: presets compare at equal bytes, not at equal periods. */
static const struct variant all[] = {
    {TW_PRESET_STREAMING, 100, PAIR_OWN},
    {TW_PRESET_STREAMING, 200, PAIR_OWN},
    {TW_PRESET_STREAMING, 400, PAIR_OWN},
    {TW_PRESET_STREAMING, 800, PAIR_OWN},
    {TW_PRESET_STREAMING, 100, PAIR_ONE_BIT},
    {TW_PRESET_STREAMING, 400, PAIR_ONE_BIT},
    {TW_PRESET_DILOCO, 100, PAIR_OWN},
    {TW_PRESET_DILOCO, 400, PAIR_OWN},
    {TW_PRESET_DECOUPLED, 100, PAIR_OWN},
    {TW_PRESET_SPARSELOCO, 33, PAIR_OWN},
    {TW_PRESET_SPARSELOCO, 50, PAIR_OWN},
    {TW_PRESET_SPARSELOCO, 100, PAIR_OWN},
    {TW_PRESET_SPARSELOCO, 200, PAIR_OWN},
    {TW_PRESET_SPARSELOCO, 400, PAIR_OWN},
    {TW_PRESET_SPARSELOCO, 100, PAIR_ONE_BIT},
    {TW_PRESET_NOLOCO, 100, PAIR_OWN},
    {TW_PRESET_LOCAL_SGD, 100, PAIR_OWN},
    {TW_PRESET_EAGER, 100, PAIR_OWN},
    {TW_PRESET_CO2, 100, PAIR_OWN},
    {TW_PRESET_BTM, 100, PAIR_OWN},
};
/* If the user chose a preset. */
static const struct {
    uint32_t stretch;
    enum pair pair;
} of_one[] = {{33, PAIR_OWN},   {50, PAIR_OWN},      {100, PAIR_OWN},
              {200, PAIR_OWN},  {400, PAIR_OWN},     {800, PAIR_OWN},
              {1600, PAIR_OWN}, {100, PAIR_ONE_BIT}, {400, PAIR_ONE_BIT}};
enum { ALL = sizeof(all) / sizeof(all[0]), OF_ONE = sizeof(of_one) / sizeof(of_one[0]) };
_Static_assert(ALL + 3 <= WAYS_MAX && OF_ONE + 3 <= WAYS_MAX,
               "also the run itself, the best way and a node alone");

unsigned ways_list(const struct tw_run *run, const struct cli_wish *wish,
                   const struct way_nodes *nodes, struct way ways[WAYS_MAX], unsigned *best) {
    static struct way way;
    const struct search search = {run, wish, nodes};
    const bool is_one = cli_wish_has(wish, "sync.preset");
    unsigned count = 0;
    way = (struct way){.run = *run};
    way_fill(&way, nodes);
    (void)add(ways, &count, &way);
    for (size_t i = 0; i < (is_one ? OF_ONE : ALL); i++) {
        const struct variant variant =
            is_one ? (struct variant){run->sync.preset, of_one[i].stretch, of_one[i].pair} : all[i];
        way = (struct way){.run = *run};
        if (!vary(&way.run, wish, nodes->steps_per_s, &variant)) continue;
        way_fill(&way, nodes);
        (void)add(ways, &count, &way);
    }
    const bool is_found = find_best(&search, &way);
    *best = is_found ? add(ways, &count, &way) : WAYS_MAX;
    way = (struct way){.run = *run};
    way.run.sync.topology = TW_TOPOLOGY_SOLO;
    way_fill(&way, nodes);
    ways[count++] = way;
    if (!is_found) *best = count;
    return count;
}

/* ---- line and budget ------------------------------------------------------------------------- */

static double params_of(const struct tw_run *run) {
    static struct tw_layout layout;
    return tw_layout_init(&layout, run, NULL) == TW_OK ? (double)layout.params : 0.0;
}

static struct way_nodes nodes_of(const struct tw_run *run, const struct cli_wish *wish) {
    return (struct way_nodes){.params = params_of(run),
                              .steps_per_s = wish->speed.steps_per_s,
                              .line = wish->line,
                              .budget = &wish->budget};
}

double ways_budget_bits(const struct tw_run *run, const struct cli_wish *wish) {
    const struct way_nodes nodes = nodes_of(run, wish);
    return budget_bits(run, &nodes);
}

static enum tw_status refuse(const struct way *least, const struct cli_wish *wish,
                             struct tw_error *err) {
    char want[TW_UNITS_BYTES], have[TW_UNITS_BYTES];
    const struct tw_budget_config *const budget = &wish->budget;
    const bool has_period =
        cli_wish_has(wish, "sync.period") ||
        (least->run.sync.pace == TW_PACE_CLOCK && cli_wish_has(wish, "sync.interval"));
    const double month = 30 * least->day_bytes;
    const char *const codec = has_codecs(wish) ? "the given codecs" : "the coarsest codec";
    const char *const instead = has_codecs(wish) ? "do not set the codecs, or take "
                                : has_period     ? "do not set the period, or take "
                                                 : "";
    const char *const out = has_codecs(wish) || has_period
                                ? "fewer nodes or a smaller model"
                                : "fewer nodes, a smaller model or more steps in total need less";
    if (budget->is_month) {
        return tw_fail(err, TW_CONFIG,
                       "nothing fits %s/month: even every %.0f steps in %s it is %s/month at %.3g "
                       "steps/s; %s%s",
                       tw_units_bytes(have, (double)budget->bytes), least->period, codec,
                       tw_units_bytes(want, 2 * month), wish->speed.steps_per_s, instead, out);
    }
    return tw_fail(err, TW_CONFIG,
                   "nothing fits %.3g mbit: even every %.0f steps in %s it is %.3g mbit at %.3g "
                   "steps/s; %s%s",
                   (double)budget->bytes * 8 / 1e6, least->period, codec,
                   month / TW_MONTH_S * 8 / 1e6, wish->speed.steps_per_s, instead, out);
}

enum tw_status ways_fit(struct tw_run *run, const struct cli_wish *wish, struct tw_error *err) {
    static struct way best;
    const struct way_nodes nodes = nodes_of(run, wish);
    if (run->sync.topology == TW_TOPOLOGY_SOLO) return TW_OK;
    const bool is_found = find_best(&(struct search){run, wish, &nodes}, &best);
    if (!is_found && best.is_over) return refuse(&best, wish, err);
    *run = best.run;
    return TW_OK;
}

json_t *ways_budget_json(const struct tw_run *run, const struct cli_wish *wish) {
    const double bits = cli_wish_pace(wish, run).bits, steps_per_s = wish->speed.steps_per_s;
    const struct cli_traffic traffic = cli_traffic_of(
        run, params_of(run), bits > 0 ? bits : cli_contribution_bits(run), steps_per_s);
    const json_int_t round = (json_int_t)traffic.round, month = (json_int_t)month_of(&traffic);
    return json_pack("{s:f,s:f,s:I,s:I,s:I,s:I}", "steps_per_s", steps_per_s, "bits_per_parameter",
                     bits > 0 ? bits : cli_contribution_bits(run), "round_up_bytes", round,
                     "round_down_bytes", round, "month_up_bytes", month, "month_down_bytes", month);
}

void ways_budget_explain(FILE *to, const struct tw_run *run, const struct cli_wish *wish) {
    char round[TW_UNITS_BYTES], month[TW_UNITS_BYTES];
    const double chosen = cli_wish_pace(wish, run).bits, steps_per_s = wish->speed.steps_per_s;
    const double bits = chosen > 0 ? chosen : cli_contribution_bits(run);
    const struct cli_traffic traffic = cli_traffic_of(run, params_of(run), bits, steps_per_s);
    (void)tw_units_bytes(round, traffic.round);
    (void)tw_units_bytes(month, month_of(&traffic));
    (void)fprintf(to, "  Budget    a round of a node is %s up and %s down", round, round);
    if (run->sync.codec == TW_CODEC_AUTO) (void)fprintf(to, ", at %.2g bits per parameter", bits);
    (void)fprintf(to,
                  "; 30 days are %s up and %s down (%.3g Mbit/s each way) at %.3g steps/s; "
                  "`budget` in [network] of a node holds it to its own\n",
                  month, month, month_of(&traffic) / TW_MONTH_S * 8 / 1e6, steps_per_s);
}

static const struct way *way_of(const struct tw_run *run, const struct cli_wish *wish) {
    static struct way way;
    const struct way_nodes nodes = nodes_of(run, wish);
    way = (struct way){.run = *run};
    way_fill(&way, &nodes);
    return &way;
}

double ways_loss(const struct tw_run *run, const struct cli_wish *wish) {
    return way_of(run, wish)->loss;
}

/* Returns the excess loss if the run goes on as the status shows it; NaN: not known. */
static double loss_now(const struct tw_run *run, const json_t *status, double steps_per_s) {
    static struct way way;
    const double members = json_num(status, "sync.roster_members"),
                 round_s = json_num(status, "run.round_period_s");
    const struct tw_budget_config none = {0};
    const bool is_group = run->sync.topology == TW_TOPOLOGY_GROUP;
    if (!(members >= 2 && members <= TW_MEMBERS_MAX) || !(round_s > 0) || !is_group) return NAN;
    way = (struct way){.run = *run};
    way.run.sync.nodes = (uint32_t)members;
    way_fill(&way, &(struct way_nodes){
                       .params = params_of(run), .steps_per_s = steps_per_s, .budget = &none});
    const double planned = way.period;
    way.period = round_s * run->sync.fragments * steps_per_s;
    way.merges *= planned / way.period;
    return expect_loss(&way, way.merges * way.period,
                       fmax(run->sync.overlap, way.round_s * steps_per_s));
}

json_t *ways_expected_json(const struct tw_run *run, const json_t *status) {
    const double step_tokens = (double)run->train.batch * run->model.context,
                 measured = json_num(status, "train.tokens_per_s") / step_tokens;
    struct cli_wish wish = {0};
    wish.speed.steps_per_s = measured > 0 ? measured : 0;
    wish.speed.steps_per_s = cli_speed_pace(&wish.speed, run).steps_per_s;
    const double loss = ways_loss(run, &wish),
                 now = measured > 0 ? loss_now(run, status, measured) : NAN;
    return json_pack("{s:f,s:f,s:f,s:o}", "loss_ratio", loss, "loss_low_ratio",
                     loss / WAY_LOSS_SPREAD, "loss_high_ratio", loss * WAY_LOSS_SPREAD,
                     "now_loss_ratio", isfinite(now) ? json_real(now) : json_null());
}

void ways_explain(FILE *to, const struct tw_run *run, const struct cli_wish *wish) {
    char share[48] = "";
    const struct way *const way = way_of(run, wish);
    if (way->used > 0)
        (void)snprintf(share, sizeof(share), "%.2g %% of the line; ", 100 * way->used);
    (void)fprintf(to,
                  "  Merging   %s%.0f merges of each part; expected loss %+.1f %% (%.1f to %.1f) "
                  "above one machine with the batch of all; thinwire plan compares other ways\n",
                  share, way->merges, 100 * way->loss, 100 * way->loss / WAY_LOSS_SPREAD,
                  100 * way->loss * WAY_LOSS_SPREAD);
}
