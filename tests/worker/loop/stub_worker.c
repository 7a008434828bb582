/* stub_worker.c - a worker without an engine, for tests of the daemon. The link, merging, snapshots
 * and loop are real; the learner is stub_learner.h. Needs no training text and no BLAS.
 *
 *     stub_worker --socket PATH [--step-us N] [--die-at-update N] [--nan-from-update N]
 *                 [--wild-from-update N]    the learning rate is far too high
 *                 [--poison-from-update N]  the anchor's loss is far too high
 *                 [--start-seed N]     first weights differ from the run's
 *                 [--gpu ADDRESS]      pretends to compute on this GPU
 *                 [--thin]             a large model of any tensors: little memory, quick steps
 *                 [--comes-back]       says that it is started again after its end */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/exit_codes.h"
#include "tests/worker/loop/stub_learner.h"
#include "worker/loop/session.h"

struct stub {
    struct stub_learner learner;
    uint64_t die_at; /* number of the update; 0 = never */
    const char *gpu; /* PCI address, or NULL for none */
    bool comes_back;
    enum tw_status (*step)(void *self, uint64_t *cursor, float lr, struct tw_step_result *result,
                           struct tw_error *err);
};

static enum tw_status step_or_die(void *self, uint64_t *cursor, float lr,
                                  struct tw_step_result *result, struct tw_error *err) {
    const struct stub *stub = self; /* valid: the learner is the first member of the stub */
    if (stub->die_at > 0 && stub->learner.updates + 1 >= stub->die_at) {
        (void)raise(SIGKILL);
    }
    return stub->step(self, cursor, lr, result, err);
}

static enum tw_status learner_open(void *self, struct tw_learner *learner,
                                   const struct tw_learner_config *config, struct tw_error *err) {
    struct stub *stub = self;
    TW_TRY(stub_learner_open(&stub->learner, learner, config, err));
    stub->step = learner->step;
    learner->step = step_or_die;
    learner->comes_back = stub->comes_back;
    if (stub->gpu != NULL) {
        (void)snprintf(learner->gpu, sizeof(learner->gpu), "%s", stub->gpu);
    }
    return TW_OK;
}

static void learner_close(void *self) {
    struct stub *stub = self;
    stub_learner_close(&stub->learner);
}

int main(int argc, char **argv) {
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},
        {"step-us", required_argument, NULL, 'u'},
        {"die-at-update", required_argument, NULL, 'd'},
        {"nan-from-update", required_argument, NULL, 'n'},
        {"wild-from-update", required_argument, NULL, 'w'},
        {"poison-from-update", required_argument, NULL, 'p'},
        {"start-seed", required_argument, NULL, 'i'},
        {"gpu", required_argument, NULL, 'g'},
        {"device-fails-at", required_argument, NULL, 'f'}, /* counts pulls and pushes */
        {"comes-back", no_argument, NULL, 'c'},
        {"thin", no_argument, NULL, 'm'},
        {"threads", required_argument, NULL, 't'}, /* an option of thinwire-worker; ignored */
        {NULL, 0, NULL, 0},
    };
    struct stub stub = {.learner = {.step_us = 10000}};
    struct tw_session_config config = {
        .device = "stub",
        .learner_open = learner_open,
        .learner_close = learner_close,
        .self = &stub,
    };
    int letter;
    while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (letter) {
        case 's': config.socket = optarg; break;
        case 'u': stub.learner.step_us = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'd': stub.die_at = strtoull(optarg, NULL, 10); break;
        case 'n': stub.learner.nan_from_step = strtoull(optarg, NULL, 10); break;
        case 'w': stub.learner.wild_from_step = strtoull(optarg, NULL, 10); break;
        case 'p': stub.learner.poison_from_step = strtoull(optarg, NULL, 10); break;
        case 'i': stub.learner.start_seed = strtoull(optarg, NULL, 10); break;
        case 'g': stub.gpu = optarg; break;
        case 'f':
            stub.learner.is_remote = true;
            stub.learner.far.calls_fail = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'c': config.comes_back = stub.comes_back = true; break;
        case 'm': stub.learner.is_thin = true; break;
        case 't': break;
        default: return TW_EXIT_USAGE;
        }
    }
    if (config.socket == NULL) {
        (void)fputs("stub_worker: --socket PATH is missing\n", stderr);
        return TW_EXIT_USAGE;
    }
    return tw_session_run(&config);
}
