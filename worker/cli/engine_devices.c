/* thinwire-engine info: lists the devices of this machine and the one that the settings select. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/units.h"
#include "worker/cli/engine_verb.h"
#include "worker/engine/devices.h"
#include "worker/support/nvml.h"
#include "worker/support/utf8.h"

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
