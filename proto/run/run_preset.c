/* run_preset.c - default values of the keys, and presets fitted to a run. */
#include "proto/run/run.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"

struct preset {
    enum tw_topology topology;
    uint32_t together_millionths; /* 0: until the end */
    uint32_t layers_per_fragment; /* 0: one fragment for the whole model */
    uint32_t period;
    uint32_t overlap; /* inner steps; WHOLE: until just before the fragment is sent again */
    enum tw_sent sent;
    uint32_t mix_millionths;
    enum tw_merge merge;
    enum tw_weights weights;
    enum tw_outer_rule outer;
    uint32_t outer_lr_millionths, outer_momentum_millionths; /* published values, for long runs */
    uint32_t lead_millionths, consensus_millionths, gap_penalty_millionths,
        momentum_clip_millionths;
    enum tw_codec_id codec, result;
    uint32_t feedback_millionths;
};

#define WHOLE UINT32_MAX

/* Sources of the constants (measurements: tests/RECORDS.md). Losses are in nats per token. Pairs
 * are (outer learning rate, outer momentum):
 *
 *   diloco      DiLoCo, arXiv 2311.08105: Nesterov (0.7, 0.9), whole model; period 30 as in
 *               arXiv 2503.09799. Steps during the exchange are kept; in the paper there are none.
 *   streaming   Streaming DiLoCo, arXiv 2501.18512: Nesterov (0.4, 0.9), fragments of three layers,
 *               period 30, four bits; the loss does not depend on an overlap up to 5. The paper
 *               mixes at 0.5, which lowers the gain of the outer step. With the milder outer step
 *               of a short run, keeping every step was better by 3 %.
 *   eager       Eager updates, arXiv 2502.12996: as diloco, with a whole period of overlap and a
 *               shorter period in short runs (wanted_period).
 *   noloco      NoLoCo, arXiv 2506.10911: heavy ball (0.7, 0.5), consensus 0.7, period 50, shorter
 *               in short runs.
 *   co2         CO2, arXiv 2401.16265: heavy ball (1, 0.5), period 48, shorter in short runs, a
 *               whole period of overlap. The node's own share is applied at once, as with eager:
 *               in short runs, the paper's restart from the anchor was worse than a node alone.
 *               With that restart, a gap penalty of 1 improved the loss from 3.17 to 2.88, and a
 *               clip of 0.25 to 2.39. Here these cost 2 and 7 % of the loss; a penalty of 0.1
 *               and a clip of 3 cost nothing.
 *   decoupled   Decoupled DiLoCo, arXiv 2604.21428: many fragments, period 24, overlap 2, RDA,
 *               weights tokens^2 / steps. The paper gives no outer constants: they are those of
 *               streaming, except for the rate (nesterov_of).
 *   sparseloco  SparseLoCo, arXiv 2508.15706: period 30 (wanted_period), error feedback 0.95. The
 *               paper sends 64 of 4096 values and has no outer momentum. In runs of 40 and 160
 *               outer steps that was worse than a node alone; 256 of 4096 with a mild momentum
 *               was not. Its results are the union of all contributions: two bits of it, with the
 *               rest returned to the senders, are 37 % fewer bytes than eight bits of each value,
 *               for .5 % of the loss (eight nodes, Muon, three seeds).
 *   local-sgd   Local SGD, arXiv 1805.09767: parameters are averaged, nothing else.
 *   btm         Branch-Train-Merge, arXiv 2208.03306: branches of one seed model are trained apart
 *               and merged at the end. The seed is trained together, as by diloco, for half of the
 *               budget. Models that never merged do not average well (2.38 nats against 2.26 of a
 *               node alone). */
static const struct preset presets[] = {
    [TW_PRESET_DILOCO] = {.period = 30,
                          .overlap = 1,
                          .sent = TW_SENT_KEEP,
                          .merge = TW_MERGE_CLIPPED,
                          .outer_lr_millionths = 700000,
                          .outer_momentum_millionths = 900000,
                          .lead_millionths = 500000,
                          .codec = TW_CODEC_INT8,
                          .result = TW_CODEC_INT8},
    [TW_PRESET_STREAMING] = {.layers_per_fragment = 3,
                             .period = 30,
                             .overlap = 2,
                             .sent = TW_SENT_KEEP,
                             .merge = TW_MERGE_CLIPPED,
                             .outer_lr_millionths = 400000,
                             .outer_momentum_millionths = 900000,
                             .lead_millionths = 500000,
                             .codec = TW_CODEC_INT4,
                             .result = TW_CODEC_INT4},
    [TW_PRESET_EAGER] = {.period = 30,
                         .overlap = WHOLE,
                         .sent = TW_SENT_EAGER,
                         .merge = TW_MERGE_CLIPPED,
                         .outer_lr_millionths = 700000,
                         .outer_momentum_millionths = 900000,
                         .lead_millionths = 500000,
                         .codec = TW_CODEC_INT8,
                         .result = TW_CODEC_INT8},
    [TW_PRESET_NOLOCO] = {.topology = TW_TOPOLOGY_PAIR,
                          .period = 50,
                          .overlap = 1,
                          .sent = TW_SENT_KEEP,
                          .outer = TW_OUTER_HEAVYBALL,
                          .outer_lr_millionths = 700000,
                          .outer_momentum_millionths = 500000,
                          .consensus_millionths = 700000,
                          .codec = TW_CODEC_INT8,
                          .result = TW_CODEC_INT8},
    [TW_PRESET_CO2] = {.period = 48,
                       .overlap = WHOLE,
                       .sent = TW_SENT_EAGER,
                       .merge = TW_MERGE_CLIPPED,
                       .outer = TW_OUTER_HEAVYBALL,
                       .outer_lr_millionths = 1000000,
                       .outer_momentum_millionths = 500000,
                       .gap_penalty_millionths = 100000,
                       .momentum_clip_millionths = 3000000,
                       .lead_millionths = 500000,
                       .codec = TW_CODEC_INT8,
                       .result = TW_CODEC_INT8},
    [TW_PRESET_DECOUPLED] = {.layers_per_fragment = 1,
                             .period = 24,
                             .overlap = 2,
                             .sent = TW_SENT_KEEP,
                             .merge = TW_MERGE_RDA,
                             .weights = TW_WEIGHTS_TOKENS_RATE,
                             .outer_lr_millionths = 400000,
                             .outer_momentum_millionths = 900000,
                             .lead_millionths = 500000,
                             .codec = TW_CODEC_INT8,
                             .result = TW_CODEC_INT8},
    [TW_PRESET_SPARSELOCO] = {.period = 30,
                              .overlap = 1,
                              .sent = TW_SENT_KEEP,
                              .merge = TW_MERGE_CLIPPED,
                              .outer_lr_millionths = 700000,
                              .outer_momentum_millionths = 600000,
                              .lead_millionths = 500000,
                              .codec = TW_CODEC_TOPK256,
                              .result = TW_CODEC_ECSQ2,
                              .feedback_millionths = 950000},
    [TW_PRESET_LOCAL_SGD] = {.period = 10,
                             .overlap = 1,
                             .sent = TW_SENT_KEEP,
                             .merge = TW_MERGE_CLIPPED,
                             .outer_lr_millionths = 1000000,
                             .codec = TW_CODEC_INT8,
                             .result = TW_CODEC_INT8},
    [TW_PRESET_BTM] = {.together_millionths = 500000,
                       .period = 30,
                       .overlap = 1,
                       .sent = TW_SENT_KEEP,
                       .merge = TW_MERGE_CLIPPED,
                       .outer_lr_millionths = 400000,
                       .outer_momentum_millionths = 900000,
                       .lead_millionths = 500000,
                       .codec = TW_CODEC_INT8,
                       .result = TW_CODEC_INT8},
};

uint64_t tw_run_together_tokens(const struct tw_run *run) {
    enum { MILLION = 1000000 };
    const uint64_t tokens = run->train.tokens, share = run->sync.together_millionths;
    if (run->sync.topology == TW_TOPOLOGY_SOLO) return 0;
    /* Quotient and remainder are multiplied separately, because the product of large token counts
     * would overflow. */
    return tokens / MILLION * share + tokens % MILLION * share / MILLION;
}

uint64_t tw_run_outer_steps(const struct tw_run *run) {
    const uint64_t step_tokens = (uint64_t)run->train.batch * run->model.context;
    /* the product is below 2^32 * 2^6 * 2^20 for checked keys */
    const uint64_t period_tokens = step_tokens * run->sync.nodes * run->sync.period;
    return period_tokens == 0 ? 0 : tw_run_together_tokens(run) / period_tokens;
}

uint64_t tw_run_step_us(const struct tw_run *run) {
    if (run->sync.pace != TW_PACE_CLOCK) return 0;
    return (uint64_t)run->sync.pace_ms * 1000 * run->sync.fragments / run->sync.period;
}

/* A piecewise linear function, constant beyond its ends, in whole numbers. */
struct line {
    uint32_t count;
    struct {
        uint64_t x, y;
    } points[4];
};

static uint64_t line_at(const struct line *line, uint64_t x) {
    uint32_t i = 1;
    if (x <= line->points[0].x) return line->points[0].y;
    while (i < line->count && x > line->points[i].x) i++;
    if (i == line->count) return line->points[i - 1].y;
    const uint64_t x0 = line->points[i - 1].x, y0 = line->points[i - 1].y;
    const uint64_t y1 = line->points[i].y, along = x - x0, width = line->points[i].x - x0;
    return y0 < y1 ? y0 + along * (y1 - y0) / width : y0 - along * (y0 - y1) / width;
}

/* How a node's work reaches the others: with the next merge, a period late, or by coarse codecs,
 * which send the largest values now and the rest later. */
enum arrival { TIMELY, LATE, IN_PIECES };

/* Length of the run on a scale from 0 (too short for any momentum) to 1000 (long enough for the
 * published momentum). It is the smaller of two values: one depends on K, the planned outer steps,
 * the other on H, the inner steps between them. Measured with tests/bench/quality (a small model,
 * periods 10 and 30). Pairs are (outer learning rate, outer momentum):
 *
 * Momentum helps from K = 20 on. At K = 40, (0.7, 0.7) is better than plain averaging and than
 * (0.4, 0.9) by 0.1 nats, whatever the warm-up of the inner rate. With 1, 2, 3 and 5 outer steps of
 * warm-up, (0.7, 0.675) gave 2.138, 2.178, 2.143 and 2.077 nats, plain averaging 2.268, 2.290,
 * 2.223 and 2.150 (two seeds).
 *
 * If outer gradients are late, anything above a mild momentum overshoots, because one outer step
 * already corrects most of the error. The effect grows with length: at K = 160, (1, 0) was better
 * than (0.74, 0.58) by 0.01 nats. At K = 25 any momentum is too much: `eager` gave 1.848 nats
 * without and 1.916 with (0.8, 0.45), `co2` 1.859 and 1.906.
 *
 * If most of a merge is sent later, momentum helps even short runs. At K = 13, half a bit, momentum
 * .12, .3 and .6 gave 2.20, 2.09 and 2.04 nats with Muon (four nodes), 2.42, 2.48 and 2.30 with
 * AdamW (four nodes), 2.28, 2.08 and 1.99 (eight, Muon).
 *
 * If merges are so frequent that nodes hardly diverge, an amplified outer step only acts as a
 * larger inner rate: (0.4, 0.9) lost 1 nat at H = 2, K = 200, and 0.2 at H = 4, K = 100. */
static uint64_t length_of(const struct tw_run *run, enum arrival arrival) {
    static const struct line of_planned[] = {
        [TIMELY] = {4, {{10, 0}, {20, 333}, {40, 500}, {100, 1000}}},
        [LATE] = {3, {{25, 0}, {40, 333}, {160, 150}}},
        [IN_PIECES] = {2, {{0, 0}, {10, 500}}},
    };
    static const struct line of_period = {3, {{1, 0}, {4, 333}, {10, 1000}}};
    const uint64_t apart = line_at(&of_period, run->sync.period);
    const uint64_t length = line_at(&of_planned[arrival], tw_run_outer_steps(run));
    return length < apart ? length : apart;
}

/* Interpolates linearly, from `from` at t = 0 to `to` at t = 1000. */
static uint32_t between(uint32_t from, uint32_t to, uint64_t t) {
    return from < to ? from + (uint32_t)((to - from) * t / 1000)
                     : from - (uint32_t)((from - to) * t / 1000);
}

/* Outer learning rate (eta) and momentum (mu), in millionths. */
struct rule {
    uint32_t lr, momentum;
};

enum { PLAIN_LR = 1000000 };

/* Outer constants (eta, mu) for Nesterov momentum: plain averaging at length 0, then increasing
 * momentum (nine tenths of it in the first half) up to (0.7, 0.75), and from there to the published
 * values at K = 1000 planned outer steps. The last step needs merges that are timely and far apart
 * (length > 500); for others the largest momentum is 0.675. K = 160, two seeds: (0.7, 0.75) gave
 * 1.601 nats, (0.7, 0.6) 1.616, (1, 0.4) 1.613, (0.4, 0.9) 1.641; at K = 640: 1.449, 1.482, 1.477,
 * 1.465.
 *
 * Averaging shrinks a merge, and RDA restores its size, so with RDA eta has its final value 0.4
 * early: `decoupled`, K = 160, two seeds, (0.7, 0.75) gave 1.620 nats, (0.4, 0.8) 1.576, (0.4, 0.9)
 * 1.656. The order is the same at K = 44. */
static struct rule nesterov_of(const struct preset *row, uint64_t planned, uint64_t length,
                               enum tw_merge merge) {
    static const struct line of_mean = {2, {{0, PLAIN_LR}, {500, 700000}}};
    static const struct line of_rda = {2, {{0, PLAIN_LR}, {500, 400000}}};
    static const struct line of_momentum = {3, {{0, 0}, {500, 675000}, {1000, 750000}}};
    static const struct line of_published = {2, {{100, 0}, {1000, 1000}}};
    static const struct line of_length = {2, {{500, 0}, {1000, 1000}}};
    const uint64_t t = line_at(&of_published, planned) * line_at(&of_length, length) / 1000;
    const uint32_t lr = (uint32_t)line_at(merge == TW_MERGE_RDA ? &of_rda : &of_mean, length);
    const uint32_t momentum = (uint32_t)line_at(&of_momentum, length);
    const uint32_t most = row->outer_momentum_millionths;
    return (struct rule){between(lr, row->outer_lr_millionths, t),
                         between(momentum < most ? momentum : most, most, t)};
}

/* Interpolates from plain averaging to the published values, by length. */
static struct rule heavyball_of(const struct preset *row, uint64_t length) {
    static const struct line of_momentum = {3, {{0, 0}, {500, 750}, {1000, 1000}}};
    return (struct rule){between(PLAIN_LR, row->outer_lr_millionths, length),
                         between(0, row->outer_momentum_millionths, line_at(&of_momentum, length))};
}

/* Outer constants (eta, mu) for coarse codecs. They send much of each outer gradient later: the
 * anchor lags behind by that much, and momentum overshoots by it. With half a bit, (1, 0.6) gave
 * 2.055 nats at K = 40, (0.85, 0.45) 2.083, (1, 0.8) 2.15; at K = 160, (1, 0.6) gave 1.606, (1,
 * 0.4) 1.619, (1, 0.75) 1.647.
 *
 * With RDA, lower momentum and rate are better with a coarse codec, too: `decoupled` with half a
 * bit, K = 44, two seeds, topk256 and ecsq05: (1, 0.6) gave 2.062 and 2.047 nats, (0.6, 0.6) 2.037
 * and 2.034, (0.4, 0.6) 2.082 and 2.098.
 *
 * Two nodes leave little for Muon to amplify: at K = 40, seeds 11 to 13, momentum .3 gave 1.855
 * nats and .6 1.928; with four nodes .3, .45 and .6 gave 1.808, 1.789 and 1.787. */
static struct rule coarse_of(const struct tw_run *run, const struct preset *row, uint64_t length) {
    enum { MOST = 600000, MANY = 4 };
    static const struct line of_momentum = {2, {{0, 0}, {500, 1000}}};
    static const struct line of_rda = {2, {{0, PLAIN_LR}, {500, 600000}}};
    const uint32_t published = row->outer_momentum_millionths, nodes = run->sync.nodes;
    const bool is_rda = run->sync.merge == TW_MERGE_RDA;
    uint32_t most = published < MOST ? published : MOST;
    if (run->train.optimizer == TW_OPTIMIZER_MUON && nodes < MANY) most = most / MANY * nodes;
    return (struct rule){is_rda ? (uint32_t)line_at(&of_rda, length) : PLAIN_LR,
                         between(0, most, line_at(&of_momentum, length))};
}

/* Returns the coarser of the codecs both ways, as far as outer constants are concerned. */
static enum tw_codec_id coarsest(const struct tw_run *run) {
    const bool is_result = tw_run_is_coarse(run->sync.result) && !tw_run_is_coarse(run->sync.codec);
    return is_result ? run->sync.result : run->sync.codec;
}

/* Chooses the rule for fine or for coarse codecs. How coarse `auto` will be depends on each node's
 * budget, which is not known beforehand, so it gets the mean of both rules. Losses of four nodes at
 * K = 40, two seeds:
 *
 *   bits per element   0.2    0.41   1      2      4
 *   mean of both       2.162  2.117  2.069  2.031  2.018 nats
 *   fine rule          2.200  2.142  2.075  2.043  2.021
 *   coarse rule        2.148  2.070  2.057  2.046  2.057 */
static struct rule by_codec(enum tw_codec_id codec, struct rule fine, struct rule coarse) {
    if (!tw_run_is_coarse(codec)) return fine;
    if (codec != TW_CODEC_AUTO) return coarse;
    return (struct rule){between(fine.lr, coarse.lr, 500),
                         between(fine.momentum, coarse.momentum, 500)};
}

/* Returns true if merges arrive a whole period late. `mix` never has that overlap: mixing scales
 * down all steps since sending, which would be nearly all steps. */
static bool is_behind(const struct tw_run *run, const struct preset *row) {
    return row->overlap == WHOLE && run->sync.sent != TW_SENT_MIX;
}

/* Returns true if coarse codecs have the length IN_PIECES, which was measured with Nesterov
 * momentum of a mean alone. */
static bool is_in_pieces(const struct tw_run *run, const struct preset *row) {
    return !is_behind(run, row) && run->sync.outer == TW_OUTER_NESTEROV &&
           run->sync.merge != TW_MERGE_RDA && coarsest(run) != TW_CODEC_AUTO;
}

/* Returns the row that gives the outer constants. If the run file set another outer rule, `row` has
 * no constants for it. */
static const struct preset *rule_of(const struct tw_run *run, const struct preset *row) {
    if (run->sync.outer == row->outer || row->outer_momentum_millionths == 0) return row;
    return &presets[run->sync.outer == TW_OUTER_HEAVYBALL ? TW_PRESET_CO2 : TW_PRESET_DILOCO];
}

/* Sets outer learning rate eta, momentum mu and the momentum ramp for K planned outer steps per
 * fragment.
 *
 * A steady outer gradient is amplified by eta / (1 - mu): 7 for Nesterov's published (0.7, 0.9), 4
 * for (0.4, 0.9). With few outer steps left, this gain overshoots. Within a run the momentum rises
 * from 0 over the first K / 10 outer steps of a fragment, at most 10. With a small eta, a longer
 * rise brings no further gain.
 *
 * Muon's steps have one size in all directions, so less is left to amplify: with fine codecs three
 * quarters of the momentum. Four nodes, eta = 0.7, mu = 0, 0.45, 0.6, 0.75 gave 1.770, 1.725, 1.728
 * and 1.778 nats at K = 40; mu = 0.45, 0.6 gave 1.486 and 1.489 at K = 160 (muon.plan). */
static void fit_outer(struct tw_run *run, const struct preset *row) {
    enum { RAMP_MAX = 10 };
    const uint64_t planned = tw_run_outer_steps(run);
    const uint64_t length = length_of(run, is_behind(run, row) ? LATE : TIMELY);
    const uint64_t ramp = planned / 10 < RAMP_MAX ? planned / 10 : RAMP_MAX;
    const struct preset *const published = rule_of(run, row);
    struct rule rule = {published->outer_lr_millionths, 0};
    if (published->outer_momentum_millionths > 0) {
        struct rule fine = run->sync.outer == TW_OUTER_HEAVYBALL
                               ? heavyball_of(published, length)
                               : nesterov_of(published, planned, length, run->sync.merge);
        if (run->train.optimizer == TW_OPTIMIZER_MUON) fine.momentum -= fine.momentum / 4;
        const uint64_t pieces = is_in_pieces(run, row) ? length_of(run, IN_PIECES) : length;
        rule = by_codec(coarsest(run), fine, coarse_of(run, published, pieces));
    }
    run->sync.outer_lr_millionths = rule.lr;
    run->sync.outer_momentum_millionths = rule.momentum;
    run->sync.outer_ramp = rule.momentum > 0 ? (uint32_t)ramp : 0;
}

/* One fragment for the embeddings and one per `layers_per_fragment` layers. The number is limited
 * so that a merge is applied before the next one starts: period / fragments > overlap. */
static uint32_t wanted_fragments(uint32_t layers, const struct preset *row) {
    if (row->layers_per_fragment == 0) return 1;
    const uint32_t per_fragment = row->layers_per_fragment;
    const uint32_t wanted = 1 + (layers + per_fragment - 1) / per_fragment;
    const uint32_t most = row->overlap == WHOLE ? wanted : row->period / (row->overlap + 1);
    const uint32_t fragments = wanted < most ? wanted : most;
    return fragments < TW_FRAGMENTS_MAX ? fragments : TW_FRAGMENTS_MAX;
}

/* A model too large for fragments of whole layers gets as many fragments as it needs; they may
 * begin inside a tensor. */
static uint32_t fit_family(const struct tw_run *run, const struct preset *row) {
    const uint32_t wanted = wanted_fragments(run->model.layers, row);
    const uint64_t least = tw_layout_fragments_least(tw_layout_family_params(run));
    if (least <= wanted) return wanted;
    return least < TW_FRAGMENTS_MAX ? (uint32_t)least : TW_FRAGMENTS_MAX;
}

static uint32_t fit_fragments(const struct tw_run *run, const struct preset *row) {
    struct tw_tensor_list_size size;
    if (run->model.family != TW_FAMILY_TENSORS) return fit_family(run, row);
    if (tw_tensor_list_check(run->model.tensors, &size, NULL) != TW_OK) return 1;
    const uint32_t wanted = wanted_fragments(size.layers, row);
    const uint64_t most = (size.elements + TW_PART_ALIGN - 1) / TW_PART_ALIGN;
    const uint64_t least = tw_layout_fragments_least(size.elements);
    const uint64_t fragments = wanted < least ? least : wanted < most ? wanted : most;
    return fragments < TW_FRAGMENTS_MAX ? (uint32_t)fragments : TW_FRAGMENTS_MAX;
}

/* Rounds are period / fragments steps apart. The overlap is the shortest time from sending to
 * applying; on slow links a merge is applied later. With five steps between rounds, an overlap of
 * two steps costs 2 % of the loss, one step costs 1 %. */
static uint32_t fit_overlap(const struct tw_run *run, const struct preset *row) {
    enum { SHARE = 5, MOST = 100000 }; /* MOST: upper bound of the key */
    const uint32_t stride = run->sync.period / run->sync.fragments;
    if (stride <= 1) return 0;
    if (is_behind(run, row)) return stride <= MOST ? stride - 1 : MOST;
    const uint32_t wanted = row->overlap == WHOLE ? 1 : row->overlap;
    if (wanted <= 1 || stride >= SHARE * wanted) return wanted;
    return stride > SHARE ? stride / SHARE : 1;
}

static const struct preset *row_of(enum tw_preset preset) {
    TW_ASSERT((unsigned)preset < sizeof(presets) / sizeof(presets[0]));
    return &presets[preset];
}

/* Returns true if a node's work reaches other nodes slowly: most of it is sent later, merges arrive
 * a period late, or nodes merge in pairs. */
static bool is_slow(const struct tw_run *run, const struct preset *row) {
    return tw_run_is_coarse(coarsest(run)) || tw_run_is_coarse(row->codec) ||
           row->overlap == WHOLE || row->topology == TW_TOPOLOGY_PAIR ||
           run->sync.topology == TW_TOPOLOGY_PAIR;
}

/* Returns the row's period, shortened in short runs if a node's work reaches other nodes slowly
 * (is_slow). With four nodes, 1200 steps and a period of 30 to 50, such presets were no better than
 * a node alone (1.84 nats): sparseloco 1.92, co2 1.87, eager 1.84, noloco 1.83. With 10 to 20 they
 * were better: 1.72, 1.78, 1.80, 1.76. */
static uint32_t wanted_period(const struct tw_run *run, const struct preset *row) {
    enum { ENOUGH = 100, OFTEN = 10 };
    if (!is_slow(run, row)) return row->period;
    const uint64_t step_tokens = (uint64_t)run->train.batch * run->model.context * run->sync.nodes;
    const uint64_t steps = tw_run_together_tokens(run) / step_tokens;
    const uint64_t period = steps / ENOUGH > OFTEN ? steps / ENOUGH : OFTEN;
    return period < row->period ? (uint32_t)period : row->period;
}

/* Returns the multiple of the number of fragments nearest to the wanted period. */
static uint32_t fit_period(const struct tw_run *run, const struct preset *row, uint32_t fragments) {
    const uint32_t stride = (wanted_period(run, row) + fragments / 2) / fragments;
    return stride > 0 ? stride * fragments : fragments;
}

static uint32_t together_of(const struct preset *row) {
    return row->together_millionths > 0 ? row->together_millionths : 1000000;
}

/* Makes the number of fragments divide the period. If the run file set only one of the two, the
 * other is changed: the period to the nearest multiple, or the fragments to the next smaller
 * divisor. */
static void fit_division(struct tw_run *run, const struct preset *row) {
    if (run->sync.period % run->sync.fragments == 0) return;
    struct tw_run applied = *run; /* the run as it was during tw_run_apply_preset() */
    applied.sync.together_millionths = together_of(row);
    if (run->sync.period == fit_period(&applied, row, fit_fragments(run, row))) {
        run->sync.period = fit_period(run, row, run->sync.fragments);
        return;
    }
    while (run->sync.period % run->sync.fragments != 0) run->sync.fragments--;
}

/* Takes the merge rule from the NoLoCo row: pairs can merge by no other rule. */
static void yield_to_pair(struct tw_run *run, const struct preset *pair) {
    run->sync.sent = pair->sent;
    run->sync.merge = pair->merge;
    run->sync.weights = pair->weights;
    run->sync.outer = pair->outer;
    run->sync.consensus_millionths = pair->consensus_millionths;
    run->sync.gap_penalty_millionths = pair->gap_penalty_millionths;
    run->sync.momentum_clip_millionths = pair->momentum_clip_millionths;
}

/* Share of the quantisation error that stays in theta. Half or more can stay, unless the error
 * waits so long to be sent that nodes drift apart. This happens if only a few percent of the
 * parameters are sent at a time, and `auto` may be that coarse. Losses in nats (four nodes, K = 40,
 * two seeds; `auto` with coarse_of and one seed):
 *
 *   share         0      0.3          0.6
 *   ecsq05        2.17   2.06 (0.4)   2.055
 *   topk64        2.285  2.160        2.173
 *   topk32        2.326  2.235        2.348
 *   auto 0.14            2.231        2.375   (bits per element)
 *   auto 0.41            2.070        2.113
 *   auto 1               2.076        2.053
 *   auto 2               2.060        2.048 */
static uint32_t feedback_local_of(const struct tw_run *run) {
    enum { MOST = 600000, CAREFUL = 300000 };
    const enum tw_codec_id codec = run->sync.codec;
    if (run->sync.feedback_millionths == 0 || run->sync.sent == TW_SENT_MIX) return 0;
    return codec == TW_CODEC_AUTO || codec == TW_CODEC_TOPK64 || codec == TW_CODEC_TOPK32 ? CAREFUL
                                                                                          : MOST;
}

/* A robust merge counts every node as one. If the weights are the preset's, they yield to it; if
 * the run file set them, the merge is their mean. */
static void yield_weights(struct tw_run *run, const struct preset *row) {
    if (!tw_run_is_robust(run->sync.merge) || run->sync.weights == TW_WEIGHTS_EQUAL) return;
    if (run->sync.weights == row->weights)
        run->sync.weights = TW_WEIGHTS_EQUAL;
    else
        run->sync.merge = TW_MERGE_MEAN;
}

/* Resets the keys of the preset's row that contradict a topology, rule or codec in the run file.
 * run_check.c then refuses only contradictions between keys that a person wrote. Returns the row
 * that gives overlap and outer constants. */
static const struct preset *yield(struct tw_run *run, const struct preset *row) {
    enum { MILLION = 1000000, FEEDBACK = 950000, HALF = 500000 };
    const bool is_pair = run->sync.topology == TW_TOPOLOGY_PAIR;
    const bool is_foreign = is_pair && row->topology != TW_TOPOLOGY_PAIR;
    const struct preset *const rule = is_foreign ? &presets[TW_PRESET_NOLOCO] : row;
    if (is_foreign) yield_to_pair(run, rule);
    if (!is_pair) run->sync.consensus_millionths = 0;
    if (run->sync.topology != TW_TOPOLOGY_GROUP) {
        run->sync.lead_millionths = 0;
        run->sync.together_millionths = MILLION;
    }
    /* A lead moves AdamW's moments alone, and then the embeddings run ahead of the matrices. */
    if (run->train.optimizer == TW_OPTIMIZER_MUON) run->sync.lead_millionths = 0;
    if (run->sync.outer != TW_OUTER_HEAVYBALL) {
        run->sync.gap_penalty_millionths = 0;
        run->sync.momentum_clip_millionths = 0;
    }
    yield_weights(run, row);
    /* The row's sparse results need senders that keep the elements left out. */
    const bool keeps = run->sync.sent == TW_SENT_KEEP && run->sync.feedback_millionths > 0;
    if (run->sync.result == row->result && tw_run_needs_feedback(row->result) && !keeps)
        run->sync.result = TW_CODEC_SPARSE8;
    if ((tw_run_needs_feedback(run->sync.codec) || tw_run_needs_feedback(run->sync.result)) &&
        run->sync.feedback_millionths == 0)
        run->sync.feedback_millionths = FEEDBACK;
    run->sync.feedback_local_millionths = feedback_local_of(run);
    if (run->sync.sent == TW_SENT_MIX && run->sync.mix_millionths == 0)
        run->sync.mix_millionths = HALF; /* value from the paper of `streaming` */
    return rule;
}

void tw_run_refit(struct tw_run *run) {
    const struct preset *row = row_of(run->sync.preset);
    const struct preset *rule = yield(run, row);
    fit_division(run, row);
    run->sync.overlap = fit_overlap(run, rule);
    fit_outer(run, rule);
}

/* Returns n, 1 to `most`, such that n * unit is nearest to `value`. */
static uint64_t nearest(uint64_t value, uint64_t unit, uint64_t most) {
    const uint64_t count = (value + unit / 2) / unit;
    return count < 1 ? 1 : count < most ? count : most;
}

void tw_run_fit_clock(struct tw_run *run, uint64_t step_us, bool has_interval) {
    enum {
        PERIOD_MAX = 1000000,
        PACE_MS_MIN = 10,
        PACE_MS_MAX = 86400000
    }; /* bounds of sync.period and sync.interval */
    TW_ASSERT(step_us > 0);
    if (run->sync.pace != TW_PACE_CLOCK) return;
    const uint32_t fragments = run->sync.fragments;
    if (has_interval) {
        const uint64_t pace_us = (uint64_t)run->sync.pace_ms * 1000;
        const uint64_t stride = nearest(pace_us, step_us, PERIOD_MAX / fragments);
        run->sync.period = (uint32_t)stride * fragments;
        tw_run_refit(run);
        return;
    }
    const uint64_t stride = run->sync.period / fragments;
    const uint64_t step_us_max = UINT64_C(1000) * PACE_MS_MAX;
    const uint64_t step = step_us < step_us_max ? step_us : step_us_max;
    const uint64_t pace_ms = nearest(stride * step, 1000, PACE_MS_MAX);
    run->sync.pace_ms = pace_ms < PACE_MS_MIN ? PACE_MS_MIN : (uint32_t)pace_ms;
}

void tw_run_fit_warmup(struct tw_run *run) {
    const uint64_t step_tokens = (uint64_t)run->train.batch * run->model.context;
    const uint64_t steps = 100 * step_tokens * run->sync.nodes;
    const uint64_t share = run->train.tokens / 100, most = run->train.tokens / 5;
    const uint64_t least = steps < most ? steps : most;
    run->train.warmup_tokens = share > least ? share : least;
}

void tw_run_apply_preset(struct tw_run *run, enum tw_preset preset) {
    const struct preset *row = row_of(preset);
    run->sync.preset = preset;
    run->sync.together_millionths = together_of(row);
    run->sync.fragments = fit_fragments(run, row);
    run->sync.period = fit_period(run, row, run->sync.fragments);
    run->sync.topology = row->topology;
    run->sync.pattern = TW_PATTERN_STRIDED;
    run->sync.sent = row->sent;
    run->sync.mix_millionths = row->mix_millionths;
    run->sync.merge = row->merge;
    run->sync.weights = row->weights;
    run->sync.outer = row->outer;
    run->sync.momentum_type = TW_MOMENTUM_TYPE_AUTO;
    run->sync.lead_millionths = row->lead_millionths;
    run->sync.consensus_millionths = row->consensus_millionths;
    run->sync.gap_penalty_millionths = row->gap_penalty_millionths;
    run->sync.momentum_clip_millionths = row->momentum_clip_millionths;
    run->sync.codec = row->codec;
    run->sync.result = row->result;
    run->sync.feedback_millionths = row->feedback_millionths;
    tw_run_refit(run);
    run->sync.quorum = 1;
    run->sync.grace_ms = 5000;
}

void tw_run_defaults(struct tw_run *run) {
    memset(run, 0, sizeof(*run));
    memcpy(run->name, "thinwire", sizeof("thinwire"));
    run->model.family = TW_FAMILY_GPT2;
    run->model.layers = 4;
    run->model.width = 128;
    run->model.heads = 4;
    run->model.context = 128;
    run->model.vocab = 256;
    run->model.is_tied = TW_YES;
    run->model.norm_eps_millionths = 10;
    run->model.rope_theta = 10000;
    run->model.rope_factor_millionths = 1000000;
    run->model.rope_low_millionths = 1000000;
    run->model.rope_high_millionths = 4000000;
    run->model.rope_original = 8192;
    run->model.seed = 1;
    run->data.tokenizer = TW_TOKENIZER_BYTES;
    run->data.heldout_millionths = 50000;
    run->train.batch = 8;
    run->train.tokens = 4000000;
    run->train.warmup_tokens = 400000;
    run->train.lr_millionths = 4000;
    run->train.lr_final_millionths = 50000;
    run->train.schedule = TW_SCHEDULE_COSINE;
    run->train.wsd_decay_millionths = 200000;
    run->train.optimizer = TW_OPTIMIZER_ADAMW;
    run->train.beta1_millionths = 900000;
    run->train.beta2_millionths = 950000;
    run->train.muon_momentum_millionths = 950000;
    run->train.decay_millionths = 100000;
    run->train.clip_millionths = 1000000;
    run->sync.nodes = 4;
    run->sync.members = TW_MEMBERS_MAX;
    run->sync.jury_millionths = 0;
    run->sync.pace = TW_PACE_STEPS;
    run->sync.pace_ms = 1000;
    tw_run_apply_preset(run, TW_PRESET_STREAMING);
    run->security.admission = TW_ADMISSION_SECRET;
}
