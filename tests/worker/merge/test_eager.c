/* test_eager.c - after each outer step, the anchor of an eager node equals the per-node anchor of
 * the paper, computed with NumPy (tests/golden/eager.txt). */
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/worker/loop/fake_daemon.h"
#include "worker/merge/anchor.h"
#include "worker/merge/merger.h"

enum { FRAGMENT = 1, FRAGMENTS = 3, N = 40, STEPS = 6, CASES = 3 };

static const char *golden_path;
static struct fake_daemon dae;
static struct tw_merger merger;
static float *live; /* theta of the fragment; the test uses the first N elements */
static size_t n;
static struct tw_error err;

/* The same pseudo-random numbers as in make_rules.py. */
static float noise(uint32_t stream, uint32_t i) {
    uint32_t h = stream * 1000003u + i * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float)(h >> 8) / 16777216.0f - 0.5f;
}

/* Rounds half to even, like NumPy, to a value that bfloat16 represents exactly. */
static float coarse(double value) {
    return (float)(nearbyint(value * 128) / 128);
}

static void own_gradient(float own[N], uint32_t step) {
    for (uint32_t i = 0; i < N; i++) own[i] = coarse((double)noise(70 + step, i));
}

static void step_out(uint32_t step) {
    struct tw_wmsg_encode request = {
        .round = FRAGMENT + step * FRAGMENTS, .fragment = FRAGMENT, .parts_count = 1};
    struct tw_wmsg_encoded reply;
    float own[N];
    own_gradient(own, step);
    for (uint32_t i = 0; i < N; i++) live[i] -= own[i];
    request.parts[0].count = n;
    request.parts[0].out = fake_daemon_room(&dae, (uint32_t)merger.codec->bound(n));
    assert_int_equal(tw_merger_encode(&merger, &request, &reply, &err), TW_OK);
}

/* Merges the deltas of `nodes` nodes. */
static void merge_in(uint32_t step, uint32_t nodes) {
    struct tw_wmsg_apply request = {.round = FRAGMENT + step * FRAGMENTS,
                                    .version = step,
                                    .fragment = FRAGMENT,
                                    .parts_count = 1};
    struct tw_wmsg_applied reply;
    float own[N], *mean = calloc(n, sizeof(float));
    size_t bytes;
    own_gradient(own, step);
    for (uint32_t i = 0; i < N; i++)
        mean[i] = coarse((double)own[i] / nodes + (double)noise(80 + step, i) / 4);
    struct tw_span in = fake_daemon_room(&dae, (uint32_t)merger.result->bound(n));
    assert_int_equal(merger.result->encode(mean, n, tw_shm_pool(&dae.shm, in.offset, in.bytes),
                                           in.bytes, &bytes),
                     TW_OK);
    in.bytes = (uint32_t)bytes;
    request.parts[0].count = n;
    request.parts[0].mode = TW_APPLY_MIX;
    request.parts[0].contributors = nodes;
    request.parts[0].in = in;
    assert_int_equal(tw_anchor_apply(&merger, &request, &reply, &err), TW_OK);
    free(mean);
}

static void case_open(const double *args, float **theta, struct tw_vectors *vectors) {
    struct tw_run run;
    fake_run(&run);
    run.sync.sent = TW_SENT_EAGER;
    run.sync.mix_millionths = 0;
    run.sync.nodes = 4;
    run.sync.outer_lr_millionths = (uint32_t)lround(args[0] * 1e6);
    run.sync.outer_momentum_millionths = (uint32_t)lround(args[1] * 1e6);
    run.sync.outer = args[2] != 0 ? TW_OUTER_HEAVYBALL : TW_OUTER_NESTEROV;
    if (tw_run_check(&run, &err) != TW_OK) fail_msg("%s", err.message);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_OFF);
    *theta = calloc((size_t)dae.shm.geometry.elements, sizeof(float));
    assert_non_null(*theta);
    *vectors = tw_vectors_host(*theta, NULL, NULL);
    assert_int_equal(tw_merger_init(&merger, &dae.run, &dae.shm, vectors, &err), TW_OK);
    n = (size_t)tw_shm_fragment_elements(&dae.shm, FRAGMENT);
    assert_true(n > N);
    live = tw_merger_theta(&merger, FRAGMENT);
}

static void case_run(FILE *file, const double *args) {
    struct tw_vectors vectors;
    uint32_t count;
    float *theta;
    case_open(args, &theta, &vectors);
    assert_int_equal(fscanf(file, "%u", &count), 1);
    assert_int_equal(count, STEPS * N);
    for (uint32_t step = 0; step < STEPS; step++) {
        step_out(step);
        for (uint32_t i = 0; i < N; i++) {
            float want;
            assert_int_equal(fscanf(file, "%f ", &want), 1);
            if (fabsf(live[i] - want) > 2e-6f)
                fail_msg("step %u, element %u: %.9g, not %.9g", step, i, (double)live[i],
                         (double)want);
        }
        merge_in(step, (uint32_t)args[3]);
    }
    tw_merger_deinit(&merger);
    free(theta);
    (void)close(dae.worker_fd);
    fake_daemon_close(&dae);
}

TEST(node_stands_where_numpy_has_it) {
    uint32_t cases = 0;
    char line[256];
    double args[4];
    FILE *const file = fopen(golden_path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (line[0] == '#') continue;
        assert_int_equal(sscanf(line, "%lf %lf %lf %lf", &args[0], &args[1], &args[2], &args[3]),
                         4);
        case_run(file, args);
        cases++;
    }
    (void)fclose(file);
    assert_int_equal(cases, CASES);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    golden_path = argv[1];
    return test_run(NULL, NULL);
}
