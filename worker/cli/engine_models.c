/* thinwire-engine models: lists the named shapes, their sizes, and the memory that training them on
 * this machine takes. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "worker/cli/engine_verb.h"

struct row {
    const char *name;
    uint64_t params;
    struct tw_engine_plan training; /* plan for one sequence at a time, the minimum */
    bool does_fit;
};

static enum tw_status measure(struct engine_bench *bench, struct row *row, struct tw_error *err) {
    TW_TRY(tw_run_apply_model(&bench->run, row->name, err));
    TW_TRY(tw_layout_init(&bench->layout, &bench->run, err));
    struct tw_engine_config config = {
        .run = &bench->run, .layout = &bench->layout, .compute = bench->options->compute};
    row->params = bench->layout.params;
    const enum tw_status status = tw_engine_plan_make(&row->training, &config, err);
    row->does_fit = status == TW_OK;
    return status == TW_NOMEM ? TW_OK : status;
}

static const char *family_name(const struct tw_run *run) {
    return run->model.family == TW_FAMILY_GPT2 ? "gpt2" : "llama";
}

static void print(const struct tw_run *run, const struct row *row) {
    char params[TW_UNITS_BYTES], memory[TW_UNITS_BYTES];
    (void)printf("%-15s %-6s %6s %6u %6u %7u %8u %9s%s\n", row->name, family_name(run),
                 tw_units_short(params, (double)row->params), run->model.layers, run->model.width,
                 run->model.context, run->model.vocab,
                 tw_units_bytes(memory, (double)row->training.total),
                 row->does_fit ? "" : "  more than there is");
}

static void print_json(const struct tw_run *run, const struct row *row, bool is_first) {
    (void)printf("%s\n {\"name\": \"%s\", \"family\": \"%s\", \"params\": %llu, \"layers\": %u, "
                 "\"width\": %u, \"context\": %u, \"vocab\": %u, \"training_bytes\": %llu, "
                 "\"fits\": %s}",
                 is_first ? "[" : ",", row->name, family_name(run), (unsigned long long)row->params,
                 run->model.layers, run->model.width, run->model.context, run->model.vocab,
                 (unsigned long long)row->training.total, row->does_fit ? "true" : "false");
}

enum tw_exit engine_models(struct engine_bench *bench) {
    const bool json = bench->options->json;
    struct row row = {.name = NULL};
    struct tw_error err;
    if (!json) {
        (void)printf("%-15s %-6s %6s %6s %6s %7s %8s %9s\n", "model", "family", "params", "layers",
                     "width", "context", "vocab", "training");
    }
    for (uint32_t i = 0; tw_run_model_name(i) != NULL; i++) {
        tw_run_defaults(&bench->run);
        row.name = tw_run_model_name(i);
        if (measure(bench, &row, &err) != TW_OK) return engine_fail(&err);
        if (json) {
            print_json(&bench->run, &row, i == 0);
        } else {
            print(&bench->run, &row);
        }
    }
    if (json) {
        (void)printf("\n]\n");
        return TW_EXIT_OK;
    }
    char limit[TW_UNITS_BYTES], engine[128];
    tw_engine_plan_describe(&row.training, engine, sizeof(engine));
    (void)printf(
        "\ntraining: memory for batches of %u on %s; there are %s.\n"
        "Begin with `thinwire run new NAME --model MODEL`. A model of your own, for your own\n"
        "trainer: `thinwire run new NAME --tensors FILE.safetensors`.\n",
        bench->run.train.batch, engine, tw_units_bytes(limit, (double)row.training.limit));
    return TW_EXIT_OK;
}
