#include "daemon/cli/plan/plan_rows.h"

struct variant {
    enum tw_preset preset;
    uint32_t stretch; /* factor on the preset's period */
    bool is_coarse;   /* contributions use ecsq2, 2 bits per element */
};

static const struct variant all[] = {
    {TW_PRESET_STREAMING, 1, false},  {TW_PRESET_STREAMING, 2, false},
    {TW_PRESET_STREAMING, 4, false},  {TW_PRESET_STREAMING, 8, false},
    {TW_PRESET_STREAMING, 4, true},   {TW_PRESET_DILOCO, 1, false},
    {TW_PRESET_DILOCO, 4, false},     {TW_PRESET_DECOUPLED, 1, false},
    {TW_PRESET_SPARSELOCO, 1, false}, {TW_PRESET_SPARSELOCO, 4, false},
    {TW_PRESET_NOLOCO, 1, false},     {TW_PRESET_LOCAL_SGD, 1, false},
    {TW_PRESET_EAGER, 1, false},      {TW_PRESET_CO2, 1, false},
    {TW_PRESET_BTM, 1, false},
};

static const struct {
    uint32_t stretch;
    bool is_coarse;
} of_one[] = {{1, false}, {2, false}, {4, false}, {8, false}, {16, false}, {1, true}, {4, true}};

/* Turns the run into one of another preset, with the user's keys. Returns false if the keys
 * contradict each other. */
static bool vary(struct tw_run *run, const struct cli_wish *wish, const struct variant *variant) {
    if (!cli_wish_has(wish, "sync.codec")) run->sync.codec = TW_CODEC_INT4;
    if (!cli_wish_has(wish, "sync.topology")) run->sync.topology = TW_TOPOLOGY_GROUP;
    tw_run_apply_preset(run, variant->preset);
    if (cli_wish_apply(wish, run) != TW_EXIT_OK) return false;
    if (!cli_wish_has(wish, "sync.period")) run->sync.period *= variant->stretch;
    if (variant->is_coarse && !cli_wish_has(wish, "sync.codec")) run->sync.codec = TW_CODEC_ECSQ2;
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
