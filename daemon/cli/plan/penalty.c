#include "daemon/cli/plan/penalty.h"

#include <math.h>
#include <stddef.h>

#include "base/assert.h"
#include "compress/codec.h"

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

/* Excess loss over one machine with the batch of all nodes, by merges of each fragment. From
 * presets.plan with 400 steps and length.plan with 1600, each at learning rate 0.006. `btm` merges
 * during half of the run. */
static const struct curve presets[] = {
    [TW_PRESET_DILOCO] = {2, {40, 160}, {.089, .025}},
    [TW_PRESET_STREAMING] = {2, {40, 160}, {.078, .023}},
    [TW_PRESET_EAGER] = {2, {40, 160}, {.179, .109}},
    [TW_PRESET_NOLOCO] = {2, {40, 160}, {.148, .093}},
    [TW_PRESET_CO2] = {2, {40, 160}, {.175, .102}},
    [TW_PRESET_DECOUPLED] = {2, {40, 160}, {.091, .025}},
    [TW_PRESET_SPARSELOCO] = {2, {40, 160}, {.119, .034}},
    [TW_PRESET_LOCAL_SGD] = {2, {40, 160}, {.161, .089}},
    [TW_PRESET_BTM] = {2, {20, 80}, {.164, .074}},
};

/* Factor on the excess loss by the number of nodes; one machine has the batch of all. At
 * 40 merges 2, 4 and 16 nodes had .36, .69, 1.5 with Muon and .48, .86, 1.2 with AdamW; the last is
 * the same line drawn on. */
static const struct curve by_nodes = {5, {2, 4, 8, 16, 64}, {.39, .75, 1, 1.5, 3.3}};
static const struct curve alone_by_nodes = {4, {2, 4, 8, 16}, {.45, .8, 1, 1.15}};

/* For fewer than 40 merges: factor on the excess loss at 40 merges. From the table "Period". */
static const struct curve few = {3, {8, 20, 40}, {3.2, 1.73, 1}};

/* Excess loss of coarse contributions with 40 merges, by bits per parameter. From codecs.plan. */
static const struct curve coarse = {5, {.08, .14, .5, 1, 2}, {.11, .073, .021, .018, .003}};
static const struct curve coarse_auto = {5, {.137, .41, 1, 2, 4}, {.117, .043, .023, .004, .0005}};

/* Excess loss of work that is applied late, with 100 merges, by the delay as a fraction of the
 * period. From late.plan. */
static const struct curve late = {4, {.05, .25, .5, .75}, {.001, .006, .046, .104}};

/* Excess loss of results in 2 bits or fewer, by bits, with 40 merges. From muon.plan: the sparse
 * preset with eight nodes. Its curve contains that of 2 bits. */
static const struct curve coarse_result = {4, {.41, .5, 1, 2}, {.16, .15, .05, .012}};

/* Factor by which more merges reduce the penalties of coarse codecs and of delay: about as much as
 * the penalty of `eager` falls from 40 to 640 merges. */
static double fade(double merges, double measured_at) {
    return merges > measured_at ? pow(measured_at / merges, 0.4) : 1;
}

double penalty_alone(double steps, double nodes) {
    static const struct curve alone = {2, {400, 1600}, {.229, .152}};
    return read_curve(&alone, steps) * read_curve(&alone_by_nodes, nodes);
}

static double of_preset(const struct penalty_case *run) {
    TW_ASSERT((size_t)run->preset < sizeof(presets) / sizeof(presets[0]));
    const struct curve *const curve = &presets[run->preset];
    const double first = curve->x[0];
    if (run->merges >= first) return read_curve(curve, run->merges);
    return curve->y[0] * read_curve(&few, run->merges * 40 / first);
}

/* Returns 0 for a preset's own codec, whose penalty is part of the preset's curve. */
static double of_codec(const struct penalty_case *run) {
    const bool is_auto = run->codec == TW_CODEC_AUTO;
    const bool is_own = run->preset == TW_PRESET_SPARSELOCO && run->codec == TW_CODEC_TOPK256;
    if (is_own || !tw_codec_get(run->codec)->needs_feedback) return 0;
    return read_curve(is_auto ? &coarse_auto : &coarse, run->bits) * fade(run->merges, 40);
}

static double of_result(const struct penalty_case *run) {
    const bool is_own = run->preset == TW_PRESET_SPARSELOCO && run->result == TW_CODEC_ECSQ2;
    if (is_own || !tw_codec_get(run->result)->needs_feedback) return 0;
    return read_curve(&coarse_result, tw_codec_get(run->result)->bits) * fade(run->merges, 40);
}

/* Returns 0 for presets that are a whole period late by design: their curves include the delay. */
static double of_lateness(const struct penalty_case *run) {
    const bool is_own = run->preset == TW_PRESET_EAGER || run->preset == TW_PRESET_CO2;
    if (is_own || run->late < late.x[0]) return 0;
    return read_curve(&late, run->late) * fade(run->merges, 100);
}

double penalty_expect(const struct penalty_case *run) {
    const double most = penalty_alone(run->steps, run->nodes);
    if (!(run->merges >= 1)) return most;
    const double merged = of_preset(run) + of_codec(run) + of_result(run) + of_lateness(run);
    return fmin(most, merged * read_curve(&by_nodes, run->nodes));
}
