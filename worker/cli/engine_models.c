/* thinwire-engine models: lists the named model shapes, their sizes, and the memory needed to train
 * them on this machine. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "proto/run/kept.h"
#include "worker/cli/engine_verb.h"

enum {
    LORA_RANK = 16,
    CODED_BITS = 17,       /* bits of four elements of int4, the codec of `streaming` */
    MIRROR_BYTES = 4,      /* bytes per parameter in libthinwire: a copy */
    FP32_ADAMW_BYTES = 16, /* bytes per parameter: parameter, gradient, two moments */
    BF16_ADAMW_BYTES = 8,  /* bytes per parameter for the same four in bf16 */
    BF16_BYTES = 2,
};

/* Memory in bytes without activations. host: the daemon (without snapshots) and libthinwire
 * together. */
struct trainers {
    uint64_t lean;                     /* as daemon, with sync.momentum_type = bf16 */
    uint64_t daemon, host, fp32, bf16; /* training of all parameters, for example in
                                          PyTorch */
    /* training of adapters over a base model in bf16 */
    uint64_t lora_params, lora_host, lora_device;
};

struct row {
    const char *name;
    uint64_t params;
    struct tw_engine_plan training; /* plan for the minimum, one sequence at a time */
    bool does_fit;
    struct trainers trainers;
};

/* Number of adapter parameters: rank * (rows + cols) for every matrix of the layers. */
static uint64_t count_lora(const struct tw_layout *layout) {
    uint64_t params = 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout->tensors[i];
        if (tensor->is_hidden) params += (uint64_t)LORA_RANK * (tensor->rows + tensor->cols);
    }
    return params;
}

/* The daemon's memory without snapshots. */
static uint64_t weigh_layout(const struct tw_run *run, const struct tw_layout *layout) {
    const uint64_t coded = tw_layout_largest(layout) * CODED_BITS / 4 / 8;
    return tw_kept_anchor_bytes(layout) + tw_kept_transit_bytes(run, layout, coded, coded);
}

/* The daemon's memory for all parameters, with the momentum in this type. */
static uint64_t weigh_daemon(const struct engine_bench *bench, enum tw_momentum momentum) {
    static struct tw_layout layout;
    layout = bench->layout;
    layout.momentum = momentum;
    return weigh_layout(&bench->run, &layout);
}

/* The daemon's memory for so many parameters of adapters, in fragments of equal size. */
static uint64_t weigh_adapters(const struct engine_bench *bench, uint64_t params) {
    static struct tw_layout layout;
    layout = bench->layout;
    layout.momentum = TW_MOMENTUM_FLOAT32;
    layout.elements = params;
    layout.fragments_count = bench->run.sync.fragments;
    for (uint32_t p = 0; p <= layout.fragments_count; p++)
        layout.fragment_begin[p] = params * p / layout.fragments_count;
    return weigh_layout(&bench->run, &layout);
}

static struct trainers weigh_trainers(const struct engine_bench *bench) {
    const struct tw_layout *const layout = &bench->layout;
    const uint64_t lora = count_lora(layout);
    struct trainers trainers = {
        .daemon = weigh_daemon(bench, TW_MOMENTUM_FLOAT32),
        .lean = weigh_daemon(bench, TW_MOMENTUM_BF16),
        .fp32 = layout->params * FP32_ADAMW_BYTES,
        .bf16 = layout->params * BF16_ADAMW_BYTES,
        .lora_params = lora,
        .lora_host = weigh_adapters(bench, lora) + lora * MIRROR_BYTES,
        .lora_device = layout->params * BF16_BYTES + lora * FP32_ADAMW_BYTES,
    };
    trainers.host = trainers.daemon + layout->params * MIRROR_BYTES;
    return trainers;
}

static enum tw_status measure(struct engine_bench *bench, struct row *row, struct tw_error *err) {
    TW_TRY(tw_run_apply_model(&bench->run, row->name, err));
    tw_run_apply_preset(&bench->run, TW_PRESET_STREAMING);
    TW_TRY(tw_layout_init(&bench->layout, &bench->run, err));
    struct tw_engine_config config = {
        .run = &bench->run, .layout = &bench->layout, .compute = bench->options->compute};
    row->params = bench->layout.params;
    row->trainers = weigh_trainers(bench);
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
    (void)printf(
        "%s\n {\"name\": \"%s\", \"family\": \"%s\", \"params\": %llu, \"layers\": %u, "
        "\"width\": %u, \"context\": %u, \"vocab\": %u, \"training_bytes\": %llu, "
        "\"fits\": %s, \"daemon_bytes\": %llu, \"daemon_bf16_bytes\": %llu, "
        "\"trainer_host_bytes\": %llu, "
        "\"adamw_fp32_bytes\": %llu, \"adamw_bf16_bytes\": %llu, \"lora_params\": %llu, "
        "\"lora_host_bytes\": %llu, \"lora_device_bytes\": %llu}",
        is_first ? "[" : ",", row->name, family_name(run), (unsigned long long)row->params,
        run->model.layers, run->model.width, run->model.context, run->model.vocab,
        (unsigned long long)row->training.total, row->does_fit ? "true" : "false",
        (unsigned long long)row->trainers.daemon, (unsigned long long)row->trainers.lean,
        (unsigned long long)row->trainers.host, (unsigned long long)row->trainers.fp32,
        (unsigned long long)row->trainers.bf16, (unsigned long long)row->trainers.lora_params,
        (unsigned long long)row->trainers.lora_host, (unsigned long long)row->trainers.lora_device);
}

static void print_trainers(const char *name, const struct trainers *trainers) {
    const uint64_t columns[] = {trainers->daemon,     trainers->lean, trainers->host,
                                trainers->fp32,       trainers->bf16, trainers->lora_host,
                                trainers->lora_device};
    char text[TW_UNITS_BYTES];
    (void)printf("%-15s", name);
    for (unsigned i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        (void)printf(" %9s", tw_units_bytes(text, (double)columns[i]));
    (void)putchar('\n');
}

/* Prints the second table, the memory of trainers that use libthinwire. */
static enum tw_status show_trainers(struct engine_bench *bench, struct tw_error *err) {
    struct row row = {.name = NULL};
    (void)printf("\n%-15s %19s %29s %19s\n%-15s %9s %9s %9s %9s %9s %9s %9s\n",
                 "your trainer:", "daemon", "PyTorch with AdamW", "LoRA of rank 16", "memory",
                 "float32", "bf16", "host", "fp32", "bf16", "host", "device");
    for (uint32_t i = 0; tw_run_model_name(i) != NULL; i++) {
        tw_run_defaults(&bench->run);
        row.name = tw_run_model_name(i);
        TW_TRY(measure(bench, &row, err));
        print_trainers(row.name, &row.trainers);
    }
    (void)printf(
        "\nyour trainer: fp32, bf16 and device are weights, gradients and moments without\n"
        "activations, spread over its GPUs; LoRA at each matrix of the layers, over a\n"
        "base model in bf16. daemon: anchor, outer momentum in float32 or bf16\n"
        "(`sync.momentum_type`; none with `sync.outer_momentum` = 0) and payloads, in\n"
        "memory or in a file (`anchors`); snapshots add up to 24 bytes a parameter where\n"
        "there is room. host: daemon (float32) and libthinwire together.\n");
    return TW_OK;
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
    const struct tw_engine_plan training = row.training;
    const uint32_t batch = bench->run.train.batch;
    const bool has_trainers = bench->options->has_trainers;
    if (has_trainers && show_trainers(bench, &err) != TW_OK) return engine_fail(&err);
    char limit[TW_UNITS_BYTES], engine[128];
    tw_engine_plan_describe(&training, engine, sizeof(engine));
    (void)printf(
        "\ntraining: memory for batches of %u on %s; there are %s.\n"
        "Begin with `thinwire run new NAME --model MODEL`. A model of your own, for your own\n"
        "trainer: `thinwire run new NAME --tensors FILE.safetensors`%s.\n",
        batch, engine, tw_units_bytes(limit, (double)training.limit),
        has_trainers ? "" : "; --trainers\nadds the memory that trainers need");
    return TW_EXIT_OK;
}
