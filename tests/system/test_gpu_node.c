/* A node on the CPU and a node on a GPU in one run, with real daemons and workers. Rounding makes
 * their thetas differ from the first step on, but their anchors must be equal in every round. Built
 * for the emulated device and, with a CUDA toolkit, for a GPU. Skipped if there is no GPU. */
#include <signal.h>

#include "base/exit_codes.h"
#include "kernels/cuda/runtime.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { CPU, GPU, NODES, ROUNDS = 6, PATIENCE_TURNS = 600 };

static struct cluster cluster;

/* The model is small: rounds wait for both nodes' steps, and the emulated device is about a hundred
 * times slower. */
static void start_both(const char *preset) {
    static const char *const devices[NODES] = {"[worker]\ndevice = cpu\n",
                                               "[worker]\ndevice = cuda:0\n"};
    const char *const keys[][2] = {
        {"sync.preset", preset}, {"sync.period", "8"}, {"sync.overlap", "1"},
        {"sync.fragments", "2"}, {"sync.quorum", "2"}, {"model.width", "16"},
        {"model.context", "16"}, {"train.batch", "2"}, {NULL, NULL},
    };
    cluster_open(&cluster, "1g");
    cluster_set_run(&cluster, keys);
    cluster_make(&cluster, NODES);
    for (uint32_t i = 0; i < NODES; i++) {
        const struct cluster_options options = {.network = devices[i], .is_unevaluated = true};
        cluster_configure(&cluster, i, &options);
        cluster_start(&cluster, i, NULL);
    }
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

/* Checks which device the node's worker reports. */
static bool says_device(uint32_t idx, const char *device) {
    char text[64];
    (void)snprintf(text, sizeof(text), "ev=engine device=\"%s", device);
    return cluster_says(&cluster, idx, text, 30);
}

/* Waits until both nodes have applied `least` rounds, with equal (phi, u) after each. */
static void expect_rounds(unsigned least) {
    unsigned equal = 0;
    for (int turn = 0; turn < PATIENCE_TURNS && equal < least; turn++) {
        cluster_pause(0.1);
        equal = cluster_digests(&cluster, CPU, GPU);
    }
    print_message("%u rounds applied by both, to the bit\n", equal);
    assert_true(equal >= least);
}

static void end_both(void) {
    for (uint32_t i = 0; i < NODES; i++) {
        const double loss = cluster_number(&cluster, i, "train.loss_nats");
        assert_true(loss > 0 && loss < 6); /* an untrained model has ln 256 = 5.55 nats */
        assert_non_null(strstr(cluster_log(&cluster, i), " contributors=2 "));
        assert_null(strstr(cluster_log(&cluster, i), "ev=misbehaved"));
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 30), TW_EXIT_OK);
    }
}

static void expect_same_anchors(const char *preset) {
    start_both(preset);
    assert_true(says_device(CPU, "cpu"));
    assert_true(says_device(GPU, "cuda:0"));
    expect_rounds(ROUNDS);
    end_both();
}

FACT(anchors_are_the_same_in_eager) {
    expect_same_anchors("eager");
}

FACT(anchors_are_the_same_in_sparseloco) {
    expect_same_anchors("sparseloco");
}

/* Anchors stay equal after the worker is killed. Snapshots and shared memory do not depend on the
 * device. */
FACT(anchors_are_the_same_in_streaming) {
    start_both("streaming");
    assert_true(says_device(CPU, "cpu"));
    assert_true(says_device(GPU, "cuda:0"));
    expect_rounds(ROUNDS / 2);
    const double pid = cluster_number(&cluster, GPU, "worker.pid");
    assert_true(pid > 1);
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    assert_true(cluster_says(&cluster, GPU, "ev=ready start=snapshot", 30));
    expect_rounds(cluster_digests(&cluster, CPU, GPU) + ROUNDS / 2);
    end_both();
}

int main(void) {
    struct tw_error why = {.message = ""};
    struct tw_cuda_info info;
    if (tw_cuda_count(&why) == 0 || tw_cuda_info(&info, 0, &why) != TW_OK ||
        info.reason[0] != '\0') {
        print_message("no device: %s%s\n", why.message, why.message[0] == '\0' ? info.reason : "");
        return 77;
    }
    return test_run(NULL, NULL);
}
