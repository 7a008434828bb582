/* options.c - draws all options of a simulated run from its seed. */
#include "tests/sim/options.h"

#include <inttypes.h>
#include <math.h>

#include "base/limits.h"
#include "base/rng.h"
#include "tests/traitor/traitor.h"

enum { SECOND_US = 1000 * 1000 };

static double log_uniform(struct tw_rng *rng, double low, double high) {
    return low * exp(tw_rng_unit(rng) * log(high / low));
}

static uint64_t log_uniform_us(struct tw_rng *rng, double low_s, double high_s) {
    return (uint64_t)(log_uniform(rng, low_s, high_s) * SECOND_US);
}

static uint32_t pick_value(struct tw_rng *rng, const uint32_t *values, uint32_t count) {
    return values[tw_rng_below(rng, count)];
}

static void draw_faults(struct tw_sim_options *options, struct tw_rng *rng) {
    options->faults = (uint32_t)tw_rng_next(rng) & ((1u << TW_SIM_REFUSE) - 1);
    if (tw_rng_below(rng, 16) == 0) options->faults = 0;
    for (uint32_t i = 0; i < TW_SIM_REFUSE; i++) {
        options->fault_per_hour[i] = log_uniform(rng, 2, 40);
    }
    /* Partitions, lost disks and corrupt chunks are rarer. */
    options->fault_per_hour[TW_SIM_PARTITION] = log_uniform(rng, 0.5, 6);
    options->fault_per_hour[TW_SIM_DISK] = log_uniform(rng, 0.5, 6);
    options->fault_per_hour[TW_SIM_CORRUPT] = log_uniform(rng, 0.5, 6);
    options->outage_us = log_uniform_us(rng, 2, 200);
}

static void draw_network(struct tw_sim_options *options, struct tw_rng *rng) {
    options->latency_us = log_uniform_us(rng, 0.0002, 0.3);
    options->jitter_us = (uint64_t)((double)options->latency_us * log_uniform(rng, 0.01, 1));
    options->upload_bytes_per_s = (uint64_t)log_uniform(rng, 30e3, 10e6);
    options->loss = tw_rng_below(rng, 2) == 0 ? 0 : log_uniform(rng, 0.0005, 0.05);
    options->bytes_per_dim = (uint32_t)log_uniform(rng, 8, 60e3);
    options->is_wire_checked = options->seed % 4 == 0;
}

static void draw_run(struct tw_sim_options *options, struct tw_rng *rng) {
    static const uint32_t fragments[] = {1, 3, 4, 9};
    options->fragments_count = pick_value(rng, fragments, 4);
    options->dims_per_fragment = 4 + (uint32_t)tw_rng_below(rng, 13);
    options->step_us = log_uniform_us(rng, 0.5, 3);
    options->speed_spread = tw_rng_below(rng, 3) == 0 ? 0 : log_uniform(rng, 0.05, 0.7);
    options->period_steps = 4 + (uint32_t)tw_rng_below(rng, 20);
    options->overlap_steps = (uint32_t)tw_rng_below(rng, options->period_steps);
    options->pace_us = tw_rng_below(rng, 2) == 0 ? 0 : options->period_steps * options->step_us;
    const uint32_t n = options->nodes_count;
    const uint32_t quorums[] = {1, 1, n / 2 + 1, n};
    options->quorum = pick_value(rng, quorums, 4);
    options->grace_us = log_uniform_us(rng, 0.2, 20);
    options->members_max = TW_MEMBERS_MAX;
    if (tw_rng_below(rng, 8) == 0) options->members_max = n > 2 ? n - 1 : n;
    options->orphan_us = log_uniform_us(rng, 30, 300);
    options->budget_tokens = options->together_tokens = UINT64_MAX / 4;
}

static void draw_problem(struct tw_sim_options *options, struct tw_rng *rng) {
    options->tokens_per_step = 1000;
    options->snapshot_steps = 1 + (uint32_t)tw_rng_below(rng, 50);
    options->checkpoint_us = log_uniform_us(rng, 10, 300);
    options->inner_lr = 0.05f;
    options->outer_lr = 1.0f;
    options->outer_momentum = tw_rng_below(rng, 2) == 0 ? 0.0f : 0.3f;
    options->alpha = tw_rng_below(rng, 2) == 0 ? 0.0f : 0.5f;
    options->noise = 0.3f;
    options->spread = 0.3f;
}

/* Returns the shortest calm that can be judged: the nodes notice a split, then merge every fragment
 * three times at the pace of the slowest node. */
static uint64_t shortest_calm_us(const struct tw_sim_options *options) {
    const double step_us = (double)options->step_us * exp(options->speed_spread);
    const double round_us = (options->period_steps + 2) * step_us + (double)options->grace_us;
    return options->orphan_us + (uint64_t)(3 * options->fragments_count * round_us);
}

void tw_sim_options_draw(struct tw_sim_options *options, uint64_t seed, uint32_t nodes_count,
                         double hours) {
    struct tw_rng rng;
    tw_rng_seed(&rng, seed * 2 + 1);
    *options = (struct tw_sim_options){.seed = seed, .nodes_count = nodes_count};
    static const uint32_t sizes[] = {2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 9};
    const uint32_t drawn = pick_value(&rng, sizes, 12);
    if (nodes_count == 0) options->nodes_count = tw_rng_below(&rng, 40) == 0 ? 24 : drawn;
    const uint64_t total_us = (uint64_t)(hours * 3600 * SECOND_US);
    options->calm_us = total_us / 3;
    options->chaos_us = total_us - options->calm_us;
    draw_faults(options, &rng);
    draw_network(options, &rng);
    draw_run(options, &rng);
    draw_problem(options, &rng);
    if (options->calm_us < shortest_calm_us(options)) options->calm_us = shortest_calm_us(options);
    /* Even the slowest uplink must be able to send the whole state within a minute. */
    const double dims = (double)options->fragments_count * options->dims_per_fragment;
    const double most = 60 * 0.3 * (double)options->upload_bytes_per_s / dims;
    if (options->bytes_per_dim > most) options->bytes_per_dim = (uint32_t)most;
    /* One seed in four spends its budget between the middle of the phase with faults and about its
     * end. */
    if (tw_rng_below(&rng, 4) == 0) {
        const double steps =
            (double)options->chaos_us / (double)options->step_us * (0.5 + 0.5 * tw_rng_unit(&rng));
        options->budget_tokens =
            (uint64_t)(steps * options->tokens_per_step * options->nodes_count);
    }
    /* Fault classes added later are drawn last, so that existing seeds change little. */
    options->fault_per_hour[TW_SIM_POWER] = 1; /* only where a test wants it */
    options->fault_per_hour[TW_SIM_REFUSE] = log_uniform(&rng, 2, 40);
    if (options->faults != 0 && tw_rng_below(&rng, 2) == 0) {
        options->faults |= 1u << TW_SIM_REFUSE;
    }
}

void tw_sim_options_draw_homes(struct tw_sim_options *options) {
    struct tw_rng rng;
    tw_rng_seed(&rng, options->seed * 2 + 1);
    (void)tw_rng_next(&rng);
    const uint32_t n = options->nodes_count;
    if (n < 3) return;
    options->homes_count = 2 + (uint32_t)tw_rng_below(&rng, n - 2);
    options->cut_share = tw_rng_below(&rng, 2) == 0 ? 0 : 0.2;
    options->has_relays = tw_rng_below(&rng, 2) == 0;
}

void tw_sim_options_draw_traitors(struct tw_sim_options *options, uint32_t count) {
    struct tw_rng rng;
    tw_rng_seed(&rng, options->seed * 2 + 1);
    (void)tw_rng_next(&rng);
    const uint32_t most = (options->nodes_count - 1) / 3;
    const uint64_t faults = tw_rng_below(&rng, 3);
    options->members_max = TW_MEMBERS_MAX;
    options->traitors_count = count != 0  ? count
                              : most == 0 ? 0
                                          : 1 + (uint32_t)tw_rng_below(&rng, most);
    if (faults == 0) options->faults = 0;
    if (faults == 1) options->faults &= TW_SIM_MILD_FAULTS;
}

void tw_sim_options_draw_sybils(struct tw_sim_options *options, uint32_t count, bool are_silent) {
    options->nodes_count += count;
    options->traitors_count = options->sybils_count = count;
    options->are_sybils_silent = are_silent;
    options->members_max = TW_MEMBERS_MAX;
    options->budget_tokens = options->together_tokens = UINT64_MAX / 4;
    options->faults &= options->seed % 2 == 0 ? 0 : TW_SIM_MILD_FAULTS;
    /* A lineage of their own is another attack, which nothing bounds: SECURITY.md. */
    options->lies = UINT32_C(1) << TW_LIE_PROPOSE | UINT32_C(1) << TW_LIE_ROSTER |
                    UINT32_C(1) << TW_LIE_VOTES | UINT32_C(1) << TW_LIE_CRUDE |
                    UINT32_C(1) << TW_LIE_LOG | UINT32_C(1) << TW_LIE_STATE |
                    UINT32_C(1) << TW_LIE_REPLAY;
}

void tw_sim_options_draw_donors(struct tw_sim_options *options) {
    options->traitors_count = (options->nodes_count - 4) / 3;
    options->members_max = TW_MEMBERS_MAX;
    options->lies = UINT32_C(1) << TW_LIE_DONOR | UINT32_C(1) << TW_LIE_BASE;
    options->faults = 1u << TW_SIM_DISK | 1u << TW_SIM_LEAVE | 1u << TW_SIM_RESET;
    options->fault_per_hour[TW_SIM_DISK] = options->fault_per_hour[TW_SIM_LEAVE] = 4;
    options->outage_us = 10 * SECOND_US;
    options->budget_tokens = options->together_tokens = UINT64_MAX / 4;
    if (options->seed % 3 == 0)
        options->budget_tokens = options->chaos_us / options->step_us / 2 *
                                 options->tokens_per_step * options->nodes_count;
}

void tw_sim_options_draw_committee(struct tw_sim_options *options) {
    enum { VOTERS_LEAST = 4, VOTERS_MOST = 16, COVEN_MOST = 24 };
    struct tw_rng rng;
    tw_rng_seed(&rng, options->seed * 2 + 1);
    (void)tw_rng_next(&rng);
    const uint32_t n = options->nodes_count;
    if (n <= VOTERS_LEAST) return;
    const uint32_t most = n - 1 < VOTERS_MOST ? n - 1 : VOTERS_MOST;
    options->members_max = TW_MEMBERS_MAX;
    options->voters_count = VOTERS_LEAST + (uint32_t)tw_rng_below(&rng, most - VOTERS_LEAST + 1);
    if (options->traitors_count == 0) return;
    const uint32_t others = n - options->voters_count;
    options->voting_traitors = (uint32_t)tw_rng_below(&rng, (options->voters_count - 1) / 3 + 1);
    options->traitors_count = options->voting_traitors + 1 + (uint32_t)tw_rng_below(&rng, others);
    if (options->traitors_count > COVEN_MOST) options->traitors_count = COVEN_MOST;
}

void tw_sim_options_draw_power(struct tw_sim_options *options) {
    options->faults = 1u << TW_SIM_POWER;
    options->fault_per_hour[TW_SIM_POWER] = 20.0 / options->nodes_count; /* of all together */
    options->chaos_us = UINT64_C(1800000000);
    options->calm_us = UINT64_C(600000000);
    options->split_us = options->split_end_us = 0;
    options->slow_first = 1;
    options->speed_spread = 0.1;
    options->latency_us = 50 * 1000;
    options->jitter_us = 5 * 1000;
    options->loss = 0;
    options->upload_bytes_per_s = 5 * 1000 * 1000;
    options->bytes_per_dim = 1000;
    options->fragments_count = 3;
    options->step_us = 500 * 1000;
    options->period_steps = 12;
    options->overlap_steps = 3;
    options->pace_us = 0;
    options->quorum = 1;
    options->grace_us = 5 * 1000 * 1000;
    options->members_max = 64;
    options->orphan_us = 120 * 1000 * 1000;
    options->budget_tokens = UINT64_MAX / 4;
}

void tw_sim_options_draw_heads(struct tw_sim_options *options, uint32_t heads) {
    enum { HAND_LINKS = 3 };
    const uint32_t hands = options->nodes_count - heads;
    const uint32_t room = heads * (TW_PEERS_MAX - heads + 1) / hands;
    options->heads_count = options->members_max = options->voters_count = heads;
    options->hand_links = room < HAND_LINKS ? room : HAND_LINKS;
    options->is_costed = true;
}

void tw_sim_options_draw_crews(struct tw_sim_options *options) {
    options->crew_max = TW_CREW_MAX;
}

const char *tw_sim_fault_text(enum tw_sim_fault fault) {
    static const char *const texts[] = {
#define X(name, text) [TW_SIM_##name] = (text),
        TW_SIM_FAULT_LIST(X)
#undef X
    };
    return texts[fault];
}

static double seconds(uint64_t us) {
    return (double)us / SECOND_US;
}

void tw_sim_options_print(const struct tw_sim_options *o, FILE *file) {
    fprintf(file, "seed %" PRIu64 ": %u nodes, %.2f h with faults, then %.2f h calm\n", o->seed,
            o->nodes_count, seconds(o->chaos_us) / 3600, seconds(o->calm_us) / 3600);
    fprintf(file, "  faults    ");
    if (o->faults == 0) fprintf(file, "none");
    const char *comma = "";
    for (uint32_t i = 0; i < TW_SIM_FAULTS_COUNT; i++) {
        if ((o->faults >> i & 1) == 0) continue;
        fprintf(file, "%s%s", comma, tw_sim_fault_text((enum tw_sim_fault)i));
        if (i != TW_SIM_LATE) fprintf(file, " %.1f/h", o->fault_per_hour[i]);
        comma = ", ";
    }
    fprintf(file, " (per node; each lasts %.0f s on average)\n", seconds(o->outage_us));
    fprintf(file,
            "  network   %.1f ms one way + %.1f ms jitter, upload %.0f kB/s, loss %.2f %%%s\n",
            seconds(o->latency_us) * 1e3, seconds(o->jitter_us) * 1e3,
            (double)o->upload_bytes_per_s / 1e3, o->loss * 100,
            o->is_wire_checked ? ", messages coded as protobuf" : "");
    if (o->homes_count > 0) {
        fprintf(file, "  paths     %u nodes at home, %.0f %% of the other pairs cut, %s\n",
                o->homes_count, o->cut_share * 100, o->has_relays ? "relays" : "no relay");
    }
    if (o->heads_count > 0)
        fprintf(file, "  heads     the first %u nodes; each other node keeps links to %u of them\n",
                o->heads_count, o->hand_links);
    if (o->voters_count > 0)
        fprintf(file, "  voters    %u, %u of them traitors\n", o->voters_count, o->voting_traitors);
    if (o->sybils_count > 0)
        fprintf(file, "  sybils    %u%s\n", o->sybils_count,
                o->are_sybils_silent ? ", silent" : "");
    fprintf(file,
            "  run       %u fragments of %u kB, round every %u steps%s, overlap %u steps, "
            "quorum %u, grace %.1f s, at most %u members, orphan after %.0f s",
            o->fragments_count, o->dims_per_fragment * o->bytes_per_dim / 1000, o->period_steps,
            o->pace_us != 0 ? " by the clock" : "", o->overlap_steps, o->quorum,
            seconds(o->grace_us), o->members_max, seconds(o->orphan_us));
    if (o->budget_tokens < UINT64_MAX / 8)
        fprintf(file, ", budget %" PRIu64 " tokens", o->budget_tokens);
    if (o->together_tokens < o->budget_tokens)
        fprintf(file, ", %" PRIu64 " of them together", o->together_tokens);
    fprintf(file,
            "\n  machines  step %.2f s, speeds 1 +- %.2f, snapshot every %u steps, checkpoint "
            "every %.0f s\n",
            seconds(o->step_us), o->speed_spread, o->snapshot_steps, seconds(o->checkpoint_us));
    fprintf(file, "  training  inner lr %.3f, outer lr %.2f, momentum %.2f, alpha %.2f\n",
            (double)o->inner_lr, (double)o->outer_lr, (double)o->outer_momentum, (double)o->alpha);
}
