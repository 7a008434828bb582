#include "daemon/cli/run/run_memory.h"

#include <string.h>

#include "base/units.h"
#include "daemon/cli/run/run_speed.h"
#include "proto/shm.h"

enum {
    FP32_ADAMW_BYTES = 16,
    BF16_ADAMW_BYTES = 8
}; /* bytes of a parameter with its gradient and two moments */

#define GPU_BYTES 300e9 /* more memory than a GPU of today has */

uint64_t run_memory_least(const struct tw_run *run, const struct tw_layout *layout) {
    static struct tw_config config;
    tw_config_defaults(&config, "");
    config.node.snapshot = TW_SNAPSHOT_WISH_OFF;
    config.node.anchors = TW_ANCHORS_MEMORY;
    const struct tw_memory_plan plan = tw_memory_plan_of(&config, run, layout, UINT64_MAX);
    return tw_memory_plan_bytes(&plan);
}

uint64_t run_memory_snapshots(const struct tw_layout *layout) {
    return TW_SNAPSHOT_SLOTS * tw_shm_snapshot_bytes(layout->elements, TW_SNAPSHOT_FULL);
}

/* A worker that the daemon does not start is the user's own, unless it has a user of its own: then
 * it is the service thinwire-worker@. */
static bool has_own_trainer(const struct tw_config *config, const struct tw_run *run) {
    return run->model.family == TW_FAMILY_TENSORS || config->node.worker_command[0] != '\0' ||
           (!config->node.spawn_worker && config->node.worker_user[0] == '\0');
}

static void weigh_worker(struct run_memory *memory, const struct tw_config *config,
                         const struct tw_run *run, const struct tw_layout *layout) {
    enum { LIBRARY_BYTES = 8 }; /* estimated bytes per parameter for libthinwire's copies */
    struct cli_speed speed = {0};
    memory->is_estimate = !cli_speed_plan(run, &config->worker, &speed);
    if (memory->is_own_trainer) {
        memory->worker_bytes =
            memory->is_estimate ? layout->params * LIBRARY_BYTES : speed.library_bytes;
        memory->device_bytes = layout->params * FP32_ADAMW_BYTES;
        return;
    }
    memory->worker_bytes =
        memory->is_estimate ? layout->elements * FP32_ADAMW_BYTES : speed.host_bytes;
    memory->device_bytes = speed.device_bytes;
    memory->device_free_bytes = speed.device_limit_bytes;
    (void)snprintf(memory->engine, sizeof(memory->engine), "%s", speed.engine);
}

bool run_memory_weigh(struct run_memory *memory, const struct tw_config *config,
                      const struct tw_run *run, uint64_t free_bytes, bool is_running) {
    static struct tw_layout layout;
    *memory = (struct run_memory){.host_free_bytes = free_bytes,
                                  .is_own_trainer = has_own_trainer(config, run),
                                  .has_base = !tw_id_is_zero(&run->model.base)};
    if (tw_layout_init(&layout, run, NULL) != TW_OK) return false;
    weigh_worker(memory, config, run, &layout);
    memory->plan = tw_memory_plan_of(config, run, &layout, memory->host_free_bytes);
    if (is_running && memory->host_free_bytes < UINT64_MAX / 2) {
        /* The running node made its plan when the memory that it uses now was still free. */
        memory->host_free_bytes += tw_memory_plan_bytes(&memory->plan) + memory->worker_bytes;
        memory->plan = tw_memory_plan_of(config, run, &layout, memory->host_free_bytes);
        if (memory->device_free_bytes > 0) memory->device_free_bytes += memory->device_bytes;
    }
    memory->daemon_bytes = tw_memory_plan_bytes(&memory->plan);
    if (memory->plan.is_file)
        memory->file_bytes =
            memory->plan.anchor_bytes + memory->plan.snapshot_bytes + memory->plan.transit_bytes;
    return true;
}

enum { DAEMON_BYTES = 2 * TW_UNITS_BYTES + 24 };

/* ---- in words -------------------------------------------------------------------------------- */

static const char *worker_name(const struct run_memory *memory) {
    return memory->is_own_trainer ? "libthinwire" : "thinwire-worker";
}

/* Returns the remedy for too little host memory. */
static const char *host_way_out(const struct run_memory *memory) {
    const bool has_snapshot = memory->plan.snapshot != TW_SNAPSHOT_OFF;
    if (memory->worker_bytes < memory->host_free_bytes && memory->daemon_bytes > 0) {
        if (memory->plan.is_file) return "set `snapshot = off` in [node]";
        return has_snapshot ? "set `snapshot = off` and `anchors = file` in [node]"
                            : "set `anchors = file` in [node]";
    }
    if (memory->is_own_trainer)
        return "train fewer tensors (`run new --train`), or adapters over a base model (`--base`)";
    if ((double)memory->worker_bytes > GPU_BYTES)
        return "no GPU has that much: train a smaller model (`thinwire run models` has "
               "their memory), or adapters over this one with your own trainer (`run new "
               "--tensors`)";
    return memory->device_bytes > 0 ? "train a smaller model, or give the machine more memory"
                                    : "train a smaller model, or on a GPU (`device = cuda`), or "
                                      "give the machine more memory";
}

bool run_memory_lacks(const struct run_memory *memory, struct run_memory_lack *lack) {
    char wants[TW_UNITS_BYTES], has[TW_UNITS_BYTES];
    const uint64_t host = memory->daemon_bytes + memory->worker_bytes;
    if (memory->host_free_bytes < host) {
        (void)snprintf(lack->text, sizeof(lack->text), "%s of memory wanted, %s free here",
                       tw_units_bytes(wants, (double)host),
                       tw_units_bytes(has, (double)memory->host_free_bytes));
        lack->side = "host";
        lack->way_out = host_way_out(memory);
        return true;
    }
    if (memory->device_free_bytes == 0 || memory->device_free_bytes >= memory->device_bytes)
        return false;
    (void)snprintf(lack->text, sizeof(lack->text), "%s of device memory wanted, %s free here",
                   tw_units_bytes(wants, (double)memory->device_bytes),
                   tw_units_bytes(has, (double)memory->device_free_bytes));
    lack->side = "device";
    lack->way_out = "set `micro_batch = 1` and `recompute = on` in [worker], or train a smaller "
                    "model, or with `device = cpu`";
    return true;
}

/* Writes the memory of the daemon and the size of its file: "1.2 GB", "a file of 3 GB" or both. */
static const char *daemon_part(const struct run_memory *memory, char text[DAEMON_BYTES]) {
    char bytes[TW_UNITS_BYTES], file[TW_UNITS_BYTES];
    (void)tw_units_bytes(bytes, (double)memory->daemon_bytes);
    (void)tw_units_bytes(file, (double)memory->file_bytes);
    if (memory->file_bytes == 0)
        (void)snprintf(text, DAEMON_BYTES, "%s", bytes);
    else if (memory->daemon_bytes == 0)
        (void)snprintf(text, DAEMON_BYTES, "a file of %s", file);
    else
        (void)snprintf(text, DAEMON_BYTES, "%s and a file of %s", bytes, file);
    return text;
}

const char *run_memory_line(const struct run_memory *memory, char *text) {
    char daemon[DAEMON_BYTES], worker[TW_UNITS_BYTES], device[TW_UNITS_BYTES], has[TW_UNITS_BYTES];
    size_t used = (size_t)snprintf(text, RUN_MEMORY_TEXT_BYTES, "memory: thinwired %s, %s %s",
                                   daemon_part(memory, daemon), worker_name(memory),
                                   tw_units_bytes(worker, (double)memory->worker_bytes));
    if (memory->device_bytes > 0)
        used += (size_t)snprintf(text + used, RUN_MEMORY_TEXT_BYTES - used, ", %s %s",
                                 memory->is_own_trainer ? "the trainer's weights and moments"
                                                        : "on the GPU",
                                 tw_units_bytes(device, (double)memory->device_bytes));
    if (memory->host_free_bytes < UINT64_MAX / 2)
        (void)snprintf(text + used, RUN_MEMORY_TEXT_BYTES - used, "; %s are free",
                       tw_units_bytes(has, (double)memory->host_free_bytes));
    return text;
}

static void print_trainer(FILE *to, const struct run_memory *memory) {
    char fp32[TW_UNITS_BYTES], bf16[TW_UNITS_BYTES], library[TW_UNITS_BYTES];
    const double device = (double)memory->device_bytes;
    (void)fprintf(
        to,
        "            libthinwire %s in your trainer; its weights, gradients and AdamW's moments"
        " are %s in fp32 or %s in bf16, without activations%s\n",
        tw_units_bytes(library, (double)memory->worker_bytes), tw_units_bytes(fp32, device),
        tw_units_bytes(bf16, device / FP32_ADAMW_BYTES * BF16_ADAMW_BYTES),
        memory->has_base ? " and base model" : "");
}

static void print_worker(FILE *to, const struct run_memory *memory) {
    char host[TW_UNITS_BYTES], device[TW_UNITS_BYTES];
    (void)fprintf(to, "            thinwire-worker %s",
                  tw_units_bytes(host, (double)memory->worker_bytes));
    if (memory->device_bytes > 0)
        (void)fprintf(to, " and %s on the GPU",
                      tw_units_bytes(device, (double)memory->device_bytes));
    if (memory->is_estimate)
        (void)fprintf(to, " without activations\n");
    else
        (void)fprintf(to, " with activations: %s\n", memory->engine);
}

void run_memory_print(FILE *to, const struct run_memory *memory) {
    char daemon[DAEMON_BYTES], has[TW_UNITS_BYTES];
    struct run_memory_lack lack;
    (void)fprintf(to, "  Memory    thinwired %s: anchor and momentum in %s, snapshots %s\n",
                  daemon_part(memory, daemon), memory->file_bytes > 0 ? "that file" : "memory",
                  tw_memory_plan_snapshot(&memory->plan));
    if (memory->is_own_trainer)
        print_trainer(to, memory);
    else
        print_worker(to, memory);
    if (run_memory_lacks(memory, &lack))
        (void)fprintf(to, "            TOO LITTLE: %s: %s\n", lack.text, lack.way_out);
    else if (memory->host_free_bytes < UINT64_MAX / 2)
        (void)fprintf(to, "            this machine has %s free\n",
                      tw_units_bytes(has, (double)memory->host_free_bytes));
}

json_t *run_memory_json(const struct run_memory *memory) {
    struct run_memory_lack lack = {.side = NULL};
    const bool does_lack = run_memory_lacks(memory, &lack);
    json_t *const json = json_pack(
        "{s:I,s:I,s:s,s:I,s:I,s:b,s:b,s:s?,s:s?}", "daemon_bytes", (json_int_t)memory->daemon_bytes,
        "file_bytes", (json_int_t)memory->file_bytes, "snapshot",
        tw_memory_plan_snapshot(&memory->plan), "worker_bytes", (json_int_t)memory->worker_bytes,
        "device_bytes", (json_int_t)memory->device_bytes, "own_trainer",
        (int)memory->is_own_trainer, "with_activations",
        (int)(!memory->is_own_trainer && !memory->is_estimate), "lacks",
        does_lack ? lack.side : NULL, "way_out", does_lack ? lack.way_out : NULL);
    if (memory->host_free_bytes < UINT64_MAX / 2)
        (void)json_object_set_new(json, "host_free_bytes",
                                  json_integer((json_int_t)memory->host_free_bytes));
    if (memory->device_free_bytes > 0)
        (void)json_object_set_new(json, "device_free_bytes",
                                  json_integer((json_int_t)memory->device_free_bytes));
    return json;
}
