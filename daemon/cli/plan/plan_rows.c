#include "daemon/cli/plan/plan_rows.h"

struct variant {
    enum tw_preset preset;
    uint32_t stretch; /* percent of the preset's period */
    bool is_coarse;   /* contributions use ecsq1, results ecsq2: 1 and 2 bits per element */
};

/* The sparse preset sends a third of the bytes of a merge, or less, so it stands beside the others
 * with two and three times as many merges: presets compare at equal bytes, not at equal periods. */
static const struct variant all[] = {
    {TW_PRESET_STREAMING, 100, false},  {TW_PRESET_STREAMING, 200, false},
    {TW_PRESET_STREAMING, 400, false},  {TW_PRESET_STREAMING, 800, false},
    {TW_PRESET_STREAMING, 100, true},   {TW_PRESET_STREAMING, 400, true},
    {TW_PRESET_DILOCO, 100, false},     {TW_PRESET_DILOCO, 400, false},
    {TW_PRESET_DECOUPLED, 100, false},  {TW_PRESET_SPARSELOCO, 33, false},
    {TW_PRESET_SPARSELOCO, 50, false},  {TW_PRESET_SPARSELOCO, 100, false},
    {TW_PRESET_SPARSELOCO, 200, false}, {TW_PRESET_SPARSELOCO, 400, false},
    {TW_PRESET_NOLOCO, 100, false},     {TW_PRESET_LOCAL_SGD, 100, false},
    {TW_PRESET_EAGER, 100, false},      {TW_PRESET_CO2, 100, false},
    {TW_PRESET_BTM, 100, false},
};

static const struct {
    uint32_t stretch;
    bool is_coarse;
} of_one[] = {{33, false},  {50, false},   {100, false}, {200, false}, {400, false},
              {800, false}, {1600, false}, {100, true},  {400, true}};

/* Returns that share of the period, as a multiple of the fragments. */
static uint32_t stretched(const struct tw_run *run, uint32_t percent) {
    const uint32_t fragments = run->sync.fragments;
    const uint64_t strides = (uint64_t)run->sync.period / fragments * percent / 100;
    return (uint32_t)(strides > 0 ? strides : 1) * fragments;
}

/* Turns the run into one of another preset, with the user's keys. Returns false if the keys
 * contradict each other. */
static bool vary(struct tw_run *run, const struct cli_wish *wish, const struct variant *variant) {
    if (!cli_wish_has(wish, "sync.codec")) run->sync.codec = TW_CODEC_INT4;
    if (!cli_wish_has(wish, "sync.topology")) run->sync.topology = TW_TOPOLOGY_GROUP;
    tw_run_apply_preset(run, variant->preset);
    if (cli_wish_apply(wish, run) != TW_EXIT_OK) return false;
    if (!cli_wish_has(wish, "sync.period")) run->sync.period = stretched(run, variant->stretch);
    if (variant->is_coarse && !cli_wish_has(wish, "sync.codec")) run->sync.codec = TW_CODEC_ECSQ1;
    if (variant->is_coarse && !cli_wish_has(wish, "sync.result")) run->sync.result = TW_CODEC_ECSQ2;
    tw_run_refit(run);
    return cli_wish_apply(wish, run) == TW_EXIT_OK && tw_run_check(run, NULL) == TW_OK;
}

/* Returns whether two runs would be the same row of the table. */
static bool is_same(const struct tw_run *a, const struct tw_run *b) {
    return a->sync.preset == b->sync.preset && a->sync.topology == b->sync.topology &&
           a->sync.fragments == b->sync.fragments && a->sync.period == b->sync.period &&
           a->sync.codec == b->sync.codec && a->sync.result == b->sync.result;
}

/* Adds the run, unless it is listed already. One row is left free for a node alone. */
static void add(struct plan_row *rows, unsigned *count, const struct tw_run *run) {
    for (unsigned i = 0; i < *count; i++)
        if (is_same(&rows[i].run, run)) return;
    if (*count + 1 < PLAN_ROWS_MAX) rows[(*count)++] = (struct plan_row){.run = *run};
}

static void add_variant(struct plan_row *rows, unsigned *count, const struct tw_run *run,
                        const struct cli_wish *wish, const struct variant *variant) {
    static struct tw_run varied;
    varied = *run;
    if (vary(&varied, wish, variant)) add(rows, count, &varied);
}

unsigned plan_rows_make(const struct tw_run *run, const struct cli_wish *wish, double params,
                        const struct plan_nodes *nodes, struct plan_row *rows) {
    unsigned count = 0;
    const bool is_one = cli_wish_has(wish, "sync.preset");
    add(rows, &count, run);
    for (size_t i = 0; is_one && i < sizeof(of_one) / sizeof(of_one[0]); i++) {
        const struct variant variant = {run->sync.preset, of_one[i].stretch, of_one[i].is_coarse};
        add_variant(rows, &count, run, wish, &variant);
    }
    for (size_t i = 0; !is_one && i < sizeof(all) / sizeof(all[0]); i++)
        add_variant(rows, &count, run, wish, &all[i]);
    rows[count] = (struct plan_row){.run = *run};
    rows[count++].run.sync.topology = TW_TOPOLOGY_SOLO;
    rows[0].bits = cli_wish_pace(wish, run).bits;
    for (unsigned i = 0; i < count; i++) plan_row_fill(&rows[i], params, nodes);
    return count;
}
