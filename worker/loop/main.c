/* main.c - thinwire-worker: the process that owns the parameters and one device. It connects to the
 * daemon, trains, and answers requests (session.h). proto/WORKER.md describes the link. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "base/log.h"
#include "base/machine.h"
#include "kernels/ops.h"
#include "proto/worker_msg.h"
#include "worker/engine/devices.h"
#include "worker/learn/learner_engine.h"
#include "worker/loop/session.h"

enum { THREADS_MAX = 4096 };

struct options {
    const char *socket;
    uint32_t threads; /* 0 = as in WELCOME */
    bool comes_back;  /* READY says so */
};

static const char usage[] =
    "usage: thinwire-worker --socket PATH [--threads N] [--comes-back]\n"
    "       thinwire-worker --version\n"
    "\n"
    "Trains the model of the thinwired that listens at PATH, and waits for it if it is not\n"
    "there yet. thinwired starts its own worker unless its configuration says otherwise.\n"
    "\n"
    "  --socket PATH   the daemon's worker socket, e.g. /run/thinwire/worker.sock\n"
    "  --threads N     cores to use; default: what the daemon's configuration says, or all\n"
    "                  that this process may use\n"
    "  --comes-back    somebody starts this program again whenever it ends, as systemd does:\n"
    "                  the daemon may end it in a pause, to give its memory back. If the daemon\n"
    "                  dies, it keeps its parameters for a minute and goes on with the next\n"
    "                  one; it ends where no daemon listens for that time, or for 10 s at first\n"
    "  --version       print the version and leave\n"
    "\n"
    "Ends with 0 when the daemon goes away or asks for it, 2 for a bad command line, 3 for a\n"
    "manifest it cannot train, 4 when the training text is missing or another one, 8 when the\n"
    "daemon refuses, 9 when training state is damaged, 11 when the device fails, 12 when no "
    "daemon\n"
    "listens (--comes-back), 1 for the rest.\n";

static bool threads_parse(const char *text, uint32_t *threads) {
    char *end;
    const unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > THREADS_MAX) return false;
    *threads = (uint32_t)value;
    return true;
}

/* Returns true if the program should continue; otherwise sets *exit_code. */
static bool options_parse(int argc, char **argv, struct options *options, int *exit_code) {
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'}, {"threads", required_argument, NULL, 't'},
        {"comes-back", no_argument, NULL, 'c'},   {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    *exit_code = TW_EXIT_USAGE;
    int letter;
    while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (letter) {
        case 's': options->socket = optarg; break;
        case 't':
            if (threads_parse(optarg, &options->threads)) break;
            (void)fprintf(stderr, "thinwire-worker: --threads wants 1 to %d, not '%s'\n",
                          THREADS_MAX, optarg);
            return false;
        case 'c': options->comes_back = true; break;
        case 'V':
            (void)printf("thinwire-worker %s (worker protocol %d)\n", TW_RELEASE,
                         TW_WORKER_VERSION);
            *exit_code = TW_EXIT_OK;
            return false;
        case 'h':
            (void)fputs(usage, stdout);
            *exit_code = TW_EXIT_OK;
            return false;
        default: (void)fputs(usage, stderr); return false;
        }
    }
    if (options->socket != NULL && optind == argc) return true;
    (void)fputs(usage, stderr);
    return false;
}

/* Passes the GPU's PCI address to the learner, so that the session can watch it.
 */
static void gpu_note(const struct tw_learner_engine *real, struct tw_learner *learner) {
    static struct tw_devices devices;
    const struct tw_engine_plan *const plan = &real->engine->plan;
    if (!plan->is_on_gpu) return;
    tw_devices_look(&devices);
    if (plan->ordinal >= devices.gpus_count) return;
    (void)snprintf(learner->gpu, sizeof(learner->gpu), "%s", devices.gpus[plan->ordinal].pci);
}

/* The object that `self` of learner_open points to. */
struct native {
    struct tw_learner_engine engine;
    bool comes_back;
};

static enum tw_status learner_open(void *self, struct tw_learner *learner,
                                   const struct tw_learner_config *config, struct tw_error *err) {
    struct native *native = self;
    const enum tw_status status = tw_learner_engine_open(&native->engine, learner, config, err);
    /* If the card has too little memory, other processes may be using it for a while. TW_DEVICE
     * tells the supervisor that the snapshot is not the cause. */
    if (status == TW_NOMEM && config->compute.device.kind == TW_DEVICE_CUDA) {
        if (err != NULL) err->status = TW_DEVICE;
        return TW_DEVICE;
    }
    TW_TRY(status);
    learner->comes_back = native->comes_back;
    gpu_note(&native->engine, learner);
    tw_log(TW_LOG_INFO, "engine",
           "device=\"%s\" memory_bytes=%llu flops_per_token=%llu peak_flops_per_s=%llu",
           learner->about.engine, (unsigned long long)learner->about.memory_bytes,
           (unsigned long long)learner->about.flops_token,
           (unsigned long long)learner->about.peak_flops_s);
    return TW_OK;
}

static void learner_close(void *self) {
    struct native *native = self;
    tw_learner_engine_close(&native->engine);
}

int main(int argc, char **argv) {
    struct options options = {.socket = NULL};
    struct native native = {.comes_back = false};
    char device[64];
    int exit_code = 0;
    if (!options_parse(argc, argv, &options, &exit_code)) return exit_code;
    native.comes_back = options.comes_back;
    (void)signal(SIGXFSZ, SIG_IGN); /* a write to a full disk fails, with a message */
    const uint32_t cores = options.threads > 0 ? options.threads : tw_machine_processors();
    (void)snprintf(device, sizeof(device), "cpu, %" PRIu32 " core%s, %s, %s", cores,
                   cores == 1 ? "" : "s", tw_ops_cpu(tw_ops_best_type(), 0)->name,
                   tw_matmul_library_name(tw_matmul_library_get(TW_MATMUL_AUTO)));
    const struct tw_session_config config = {
        .socket = options.socket,
        .device = device,
        .threads = options.threads,
        .comes_back = options.comes_back,
        .learner_open = learner_open,
        .learner_close = learner_close,
        .self = &native,
    };
    return tw_session_run(&config);
}
