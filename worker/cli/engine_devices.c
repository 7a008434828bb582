/* engine_devices.c - thinwire-engine models, info, speed: which models fit this machine, and how
 * fast. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/units.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"
#include "worker/cli/engine_verb.h"
#include "worker/engine/devices.h"
#include "worker/learn/worker_weight.h"
#include "worker/support/nvml.h"
#include "worker/support/utf8.h"

/* ---- models: named shapes, their sizes, and the memory to train them here -------------------- */

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

static enum tw_status measure_memory(struct engine_bench *bench, struct row *row,
                                     struct tw_error *err) {
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

static void print(const struct tw_run *run, const struct row *row) {
    char params[TW_UNITS_BYTES], memory[TW_UNITS_BYTES];
    (void)printf("%-15s %-6s %6s %6u %6u %7u %8u %9s%s\n", row->name,
                 tw_run_key_word("model.family", run), tw_units_short(params, (double)row->params),
                 run->model.layers, run->model.width, run->model.context, run->model.vocab,
                 tw_units_bytes(memory, (double)row->training.total),
                 row->does_fit ? "" : "  more than there is");
}

static void print_models_json(const struct tw_run *run, const struct row *row, bool is_first) {
    (void)printf(
        "%s\n {\"name\": \"%s\", \"family\": \"%s\", \"params\": %llu, \"layers\": %u, "
        "\"width\": %u, \"context\": %u, \"vocab\": %u, \"training_bytes\": %llu, "
        "\"fits\": %s, \"daemon_bytes\": %llu, \"daemon_bf16_bytes\": %llu, "
        "\"trainer_host_bytes\": %llu, "
        "\"adamw_fp32_bytes\": %llu, \"adamw_bf16_bytes\": %llu, \"lora_params\": %llu, "
        "\"lora_host_bytes\": %llu, \"lora_device_bytes\": %llu}",
        is_first ? "[" : ",", row->name, tw_run_key_word("model.family", run),
        (unsigned long long)row->params, run->model.layers, run->model.width, run->model.context,
        run->model.vocab, (unsigned long long)row->training.total, row->does_fit ? "true" : "false",
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
        TW_TRY(measure_memory(bench, &row, err));
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
        if (measure_memory(bench, &row, &err) != TW_OK) return engine_fail(&err);
        if (json) {
            print_models_json(&bench->run, &row, i == 0);
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

/* ---- info: the devices of this machine, and the one that the settings select ----------------- */

struct gpu_look {
    bool is_seen;
    struct tw_nvml_look now;
    char driver[TW_NVML_VERSION_BYTES];
};

static void look_at(const struct tw_cuda_info *gpu, struct gpu_look *look) {
    struct tw_nvml *nvml;
    *look = (struct gpu_look){.is_seen = false};
    if (gpu->pci[0] == '\0' || tw_nvml_open(&nvml, NULL, gpu->pci, NULL) != TW_OK) return;
    look->is_seen = true;
    tw_nvml_look(nvml, &look->now);
    (void)snprintf(look->driver, sizeof(look->driver), "%s", tw_nvml_version(nvml));
    tw_nvml_close(nvml);
}

static double free_of(const struct tw_nvml_look *look) {
    return (double)look->memory_bytes - (double)look->memory_used_bytes;
}

/* Describes the CPU, for example "2 processors, AVX-512, bf16, oneDNN". */
static void describe_cpu(char *text, size_t size) {
    const enum tw_type type = tw_ops_best_type();
    const uint32_t cores = tw_machine_processors();
    const struct tw_matmul_library *const library = tw_matmul_library_get(TW_MATMUL_AUTO);
    (void)snprintf(text, size, "%" PRIu32 " processor%s, %s, %s, %s", cores, cores == 1 ? "" : "s",
                   tw_ops_cpu(type, 0)->name,
                   type == TW_BF16 && tw_matmul_library_has(library, type) ? "bf16" : "fp32",
                   tw_matmul_library_name(library));
}

/* ---- text output -------------------------------------------------------------------------------
 */

static void print_gpu(const struct tw_cuda_info *gpu) {
    char all[TW_UNITS_BYTES], left[TW_UNITS_BYTES];
    struct gpu_look look;
    look_at(gpu, &look);
    (void)printf("  cuda:%-3d  %s, compute capability %d.%d, %d processors\n", gpu->ordinal,
                 gpu->name, gpu->major, gpu->minor, gpu->processors);
    (void)printf("            %s", tw_units_bytes(all, (double)gpu->total_bytes));
    if (look.now.memory_bytes > 0)
        (void)printf(", %s of it free", tw_units_bytes(left, free_of(&look.now)));
    if (look.now.temperature_c > 0) (void)printf(", %" PRIu32 " C", look.now.temperature_c);
    if (look.now.power_mw > 0) (void)printf(", %.0f W", look.now.power_mw / 1e3);
    if (look.now.power_max_mw > 0) (void)printf(" of %.0f W", look.now.power_max_mw / 1e3);
    if (look.driver[0] != '\0') (void)printf(", driver %s", look.driver);
    (void)printf("\n");
    if (gpu->reason[0] != '\0') (void)printf("            cannot be used: %s\n", gpu->reason);
}

static void print_all(const struct tw_devices *devices, const char *cpu) {
    (void)printf("  cpu       %s\n", cpu);
    for (uint32_t i = 0; i < devices->gpus_count; i++) print_gpu(&devices->gpus[i]);
    if (devices->why_no_gpu[0] != '\0') (void)printf("\nNo GPU: %s\n", devices->why_no_gpu);
}

/* ---- JSON output -------------------------------------------------------------------------------
 */

static void print_gpu_json(const struct tw_cuda_info *gpu) {
    struct gpu_look look;
    look_at(gpu, &look);
    (void)printf(", {\"device\": \"cuda:%d\", \"model\": ", gpu->ordinal);
    tw_json_string_print(stdout, gpu->name);
    (void)printf(", \"compute_capability\": \"%d.%d\", \"processors\": %d, \"memory_bytes\": "
                 "%" PRIu64 ", \"refusal\": ",
                 gpu->major, gpu->minor, gpu->processors, gpu->total_bytes);
    tw_json_string_print(stdout, gpu->reason);
    if (look.now.memory_bytes > 0)
        (void)printf(", \"memory_free_bytes\": %.0f", free_of(&look.now));
    if (look.now.temperature_c > 0)
        (void)printf(", \"temperature_c\": %" PRIu32, look.now.temperature_c);
    if (look.now.power_mw > 0) (void)printf(", \"power_w\": %.3f", look.now.power_mw / 1e3);
    if (look.now.power_max_mw > 0)
        (void)printf(", \"power_max_w\": %.3f", look.now.power_max_mw / 1e3);
    if (look.driver[0] != '\0') {
        (void)printf(", \"driver\": ");
        tw_json_string_print(stdout, look.driver);
    }
    (void)printf("}");
}

static void print_json(const struct tw_devices *devices, const char *cpu, const char *chosen,
                       const char *refusal) {
    (void)printf("{\"devices\": [{\"device\": \"cpu\", \"model\": ");
    tw_json_string_print(stdout, cpu);
    (void)printf("}");
    for (uint32_t i = 0; i < devices->gpus_count; i++) print_gpu_json(&devices->gpus[i]);
    (void)printf("], \"why_no_gpu\": ");
    tw_json_string_print(stdout, devices->why_no_gpu);
    (void)printf(", \"chosen\": ");
    tw_json_string_print(stdout, chosen);
    (void)printf(", \"error\": ");
    tw_json_string_print(stdout, refusal);
    (void)printf("}\n");
}

enum tw_exit engine_devices(struct engine_bench *bench) {
    static struct tw_devices devices;
    struct tw_device_choice device;
    struct tw_error err = {.message = ""};
    char cpu[128], name[TW_DEVICE_TEXT_BYTES] = "";
    tw_devices_look(&devices);
    describe_cpu(cpu, sizeof(cpu));
    const enum tw_status status =
        tw_devices_choose(&devices, &bench->compute.device, &device, &err);
    if (status == TW_OK) (void)tw_device_print(&device, name);
    if (bench->options->json) {
        print_json(&devices, cpu, name, status == TW_OK ? "" : err.message);
        return status == TW_OK ? TW_EXIT_OK : TW_EXIT_FAILURE;
    }
    print_all(&devices, cpu);
    if (status != TW_OK) return engine_fail(&err);
    char wanted[TW_DEVICE_TEXT_BYTES];
    (void)printf("\ndevice = %s chooses %s\n", tw_device_print(&bench->compute.device, wanted),
                 name);
    return TW_EXIT_OK;
}

/* ---- speed: the duration of a run's inner step here ------------------------------------------ */

enum { STEPS_MAX = 5 };
static const double WHOLE_S = 2; /* in seconds: a longer step is measured on part of the batch */

/* in seconds: limit for one sequence, the smallest batch that can be measured */
static const double LONGEST_S = 10;
static const double ENOUGH_S = 3;

struct speed {
    double step_s; /* duration of a step on the run's whole batch, in seconds */
    uint32_t steps, sequences;
    struct tw_engine_plan plan; /* memory plan for the whole batch */
    bool does_fit;
};

static enum tw_status plan_memory(struct engine_bench *bench, struct speed *speed,
                                  struct tw_error *err) {
    const struct tw_engine_config config = {
        .run = &bench->run,
        .layout = &bench->layout,
        .compute = bench->compute,
        .sync_bytes = tw_worker_sync_bytes(&bench->run, &bench->layout),
    };
    const enum tw_status status = tw_engine_plan_make(&speed->plan, &config, err);
    speed->does_fit = status == TW_OK;
    return status == TW_NOMEM ? TW_OK : status;
}

/* Chooses the number of sequences that a step would train on in WHOLE_S seconds at the measured
 * GEMM rate. */
static enum tw_status plan_batch(struct engine_bench *bench, const struct tw_engine_plan *plan,
                                 uint32_t *sequences, struct tw_error *err) {
    const uint32_t batch = bench->run.train.batch, context = bench->run.model.context;
    double flops_s;
    TW_TRY(tw_engine_peak(plan, &flops_s, err));
    const double one_s = (double)tw_engine_flops_token(&bench->run) * context / flops_s;
    if (one_s > LONGEST_S)
        return tw_fail(err, TW_CONFIG, "one sequence of %" PRIu32 " tokens takes %.0f s and more",
                       context, one_s);
    const double count = WHOLE_S / one_s;
    *sequences = count < 1 ? 1 : count < batch ? (uint32_t)count : batch;
    return TW_OK;
}

/* Times a few steps after a warm-up and takes the fastest, because other processes may use the
 * processor. Each timed step trains on one part of a batch and updates the parameters. A real step
 * updates once for all of its parts, so the estimate is somewhat too slow. */
static enum tw_status time_steps(struct engine_bench *bench, const uint32_t *tokens,
                                 struct speed *speed, struct tw_error *err) {
    const uint32_t batch = bench->run.train.batch;
    double least_s = 1e9;
    const double begin_s = engine_now_s();
    for (uint32_t i = 0; i <= STEPS_MAX; i++) {
        struct tw_step_result result;
        const double from_s = engine_now_s();
        TW_TRY(tw_engine_step(bench->engine, tokens, 0.0f, &result, err));
        const double took_s = engine_now_s() - from_s;
        if (i > 0 || took_s > ENOUGH_S) least_s = took_s < least_s ? took_s : least_s;
        speed->steps = i > 0 ? i : 1;
        if (least_s < 1e9 && engine_now_s() - begin_s > ENOUGH_S) break;
    }
    speed->sequences = batch;
    speed->step_s = least_s;
    return TW_OK;
}

static enum tw_status measure(struct engine_bench *bench, struct speed *speed,
                              struct tw_error *err) {
    const uint32_t batch = bench->run.train.batch;
    uint32_t sequences = 0;
    if (!speed->does_fit) return tw_fail(err, TW_NOMEM, "the model does not fit into the memory");
    TW_TRY(plan_batch(bench, &speed->plan, &sequences, err));
    bench->run.train.batch = sequences;
    const size_t count = (size_t)sequences * (bench->run.model.context + 1);
    uint32_t *const tokens = calloc(count, sizeof(*tokens));
    if (tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for a batch of tokens");
    for (size_t i = 0; i < count; i++) tokens[i] = (uint32_t)(i * 7919 % bench->run.model.vocab);
    enum tw_status status = engine_open(bench, ENGINE_TRAIN, err);
    if (status == TW_OK) {
        tw_engine_init_params(&bench->run, &bench->layout, bench->engine->theta);
        status = tw_engine_push(bench->engine, TW_ENGINE_THETA, 0, bench->layout.elements, err);
    }
    if (status == TW_OK) status = time_steps(bench, tokens, speed, err);
    free(tokens);
    speed->step_s *= (double)batch / sequences;
    return status;
}

enum tw_exit engine_speed(struct engine_bench *bench) {
    struct speed speed = {0};
    struct tw_error err;
    char engine[128] = "";
    const uint32_t batch = bench->run.train.batch;
    const bool is_known = bench->run.model.family != TW_FAMILY_TENSORS;
    if (is_known && plan_memory(bench, &speed, &err) != TW_OK) return engine_fail(&err);
    if (!bench->options->is_plan && measure(bench, &speed, &err) != TW_OK) return engine_fail(&err);
    if (is_known) tw_engine_plan_describe(&speed.plan, engine, sizeof(engine));
    const struct tw_worker_weight weight =
        tw_worker_weigh(&bench->run, &bench->layout, is_known ? &speed.plan : NULL);
    (void)printf("{\"host_bytes\": %" PRIu64 ", \"device_bytes\": %" PRIu64
                 ", \"device_limit_bytes\": %" PRIu64 ", \"library_bytes\": %" PRIu64 ", ",
                 weight.host, weight.device, weight.device_limit, weight.library);
    (void)printf("\"step_s\": %.6g, \"steps\": %" PRIu32 ", \"sequences\": %" PRIu32
                 ", \"batch\": %" PRIu32 ", \"engine\": \"%s\", \"training_bytes\": %" PRIu64
                 ", \"limit_bytes\": %" PRIu64 ", \"fits\": %s}\n",
                 speed.step_s, speed.steps, speed.sequences, batch, engine, speed.plan.total,
                 speed.plan.limit, speed.does_fit ? "true" : "false");
    return TW_EXIT_OK;
}
