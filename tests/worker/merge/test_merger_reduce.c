/* Tests of worker/merge/merger.c: every rule and weight of a merge, and every reason to
 * refuse a contribution. */
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

#include "kernels/merge.h"
#include "kernels/norm.h"
#include "tests/worker/loop/fake_daemon.h"
#include "worker/merge/merger.h"

enum { INPUTS_MAX = 8 };

static struct fake_daemon dae;
static struct tw_merger merger;
static float *theta;
static struct tw_vectors vectors;
static struct tw_error err;
static struct tw_run run;

static void open_run(void) {
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_OFF);
    theta = calloc((size_t)dae.shm.geometry.elements, sizeof(float));
    assert_non_null(theta);
    vectors = tw_vectors_host(theta, NULL, NULL);
    assert_int_equal(tw_merger_init(&merger, &dae.run, &dae.shm, &vectors, &err), TW_OK);
}

static int begin(void **state) {
    fake_run(&run);
    run.sync.nodes = 8;
    return 0;
}

static int end(void **state) {
    tw_merger_deinit(&merger);
    free(theta);
    (void)close(dae.worker_fd);
    fake_daemon_close(&dae);
    return 0;
}

#define FACT(name) TEST_IN(begin, end, name)

static struct tw_span encoded(const float *values, size_t n) {
    struct tw_span span = fake_daemon_room(&dae, (uint32_t)merger.codec->bound(n));
    size_t bytes = 0;
    assert_int_equal(merger.codec->encode(values, n, tw_shm_pool(&dae.shm, span.offset, span.bytes),
                                          span.bytes, &bytes),
                     TW_OK);
    span.bytes = (uint32_t)bytes;
    return span;
}

static void decoded(struct tw_span span, float *values, size_t n) {
    assert_int_equal(merger.result->decode(tw_shm_pool(&dae.shm, span.offset, span.bytes),
                                           span.bytes, values, n),
                     TW_OK);
}

static struct tw_wmsg_reduce request_of(uint32_t fragment, uint64_t from, uint64_t count) {
    struct tw_wmsg_reduce request = {.round = 4, .begin = from, .count = count};
    request.fragment = fragment;
    request.out = fake_daemon_room(&dae, (uint32_t)merger.result->bound((size_t)count));
    return request;
}

static void input_add(struct tw_wmsg_reduce *request, const float *values, uint64_t tokens,
                      uint32_t steps) {
    const uint32_t i = request->inputs_count++;
    request->inputs[i].in = encoded(values, (size_t)request->count);
    request->inputs[i].tokens = tokens;
    request->inputs[i].steps = steps;
}

static struct tw_wmsg_reduced reduced(struct tw_wmsg_reduce *request, float *values) {
    struct tw_wmsg_reduced reply;
    assert_int_equal(tw_merger_reduce(&merger, request, &reply, &err), TW_OK);
    request->out.bytes = reply.bytes;
    decoded(request->out, values, (size_t)request->count);
    return reply;
}

/* Merges constant inputs with equal tokens and steps. Returns one element of the result. */
static float merge_of(const float *inputs, uint32_t count, uint64_t *refused) {
    enum { N = 64 };
    float values[N];
    struct tw_wmsg_reduce request = request_of(1, 0, N);
    for (uint32_t i = 0; i < count; i++) {
        for (unsigned j = 0; j < N; j++) values[j] = inputs[i];
        input_add(&request, values, 100, 10);
    }
    const struct tw_wmsg_reduced reply = reduced(&request, values);
    if (refused != NULL) *refused = reply.refused;
    return values[N - 1];
}

FACT(far_too_large_is_refused) {
    uint64_t refused;
    open_run();
    assert_true(merge_of((float[]){1, -18, 2}, 3, &refused) == 1.5f);
    assert_int_equal(refused, 1 << 1);
    /* two inputs do not show which size is usual */
    assert_true(merge_of((float[]){1, -18}, 2, &refused) == -8.5f);
    assert_int_equal(refused, 0);
}

FACT(too_large_is_scaled_down) {
    uint64_t refused;
    open_run();
    assert_true(fabsf(merge_of((float[]){1, 4, 1}, 3, &refused) - 4.0f / 3) < 0.01f);
    assert_int_equal(refused, 0);
}

FACT(too_large_is_scaled_down_by_every_rule) {
    run.sync.merge = TW_MERGE_RDA;
    open_run();
    assert_true(fabsf(merge_of((float[]){1, 4, 1}, 3, NULL) - 4.0f / 3) < 0.01f);
    (void)end(state);
    run.sync.merge = TW_MERGE_TRIMMED;
    open_run();
    /* Each -4 is scaled to -2; without the least and the largest value, -2, 1 and 1 remain. */
    assert_true(fabsf(merge_of((float[]){-4, -4, 1, 1, 1}, 5, NULL)) < 0.01f);
}

FACT(contribution_of_more_steps_may_be_larger) {
    float values[64];
    open_run();
    struct tw_wmsg_reduce request = request_of(1, 0, 64);
    for (uint32_t i = 0; i < 3; i++) {
        for (unsigned j = 0; j < 64; j++) values[j] = i == 2 ? 4.0f : 1.0f;
        input_add(&request, values, 100, i == 2 ? 160 : 10);
    }
    assert_int_equal(reduced(&request, values).refused, 0);
    assert_true(values[0] == 2.0f);
}

FACT(weights_are_of_the_inputs_let_in) {
    float values[64];
    run.sync.merge = TW_MERGE_MEAN;
    run.sync.weights = TW_WEIGHTS_TOKENS_RATE;
    open_run();
    struct tw_wmsg_reduce request = request_of(1, 0, 64);
    const float inputs[] = {100, 1, 1, 2};
    const uint64_t tokens[] = {1000000, 300, 0, 100};
    const uint32_t steps[] = {4, 8, 4, 4};
    for (uint32_t i = 0; i < 4; i++) {
        for (unsigned j = 0; j < 64; j++) values[j] = inputs[i];
        input_add(&request, values, tokens[i], steps[i]);
    }
    assert_int_equal(reduced(&request, values).refused, 1);
    /* The weights tokens^2 / steps are 300^2 / 8 and 100^2 / 4; their ratio is limited to 4. */
    assert_true(fabsf(values[0] - (4 * 2500 + 2 * 2500) / 12500.0f) < 0.005f);
}

FACT(robust_rules_pass_over_the_odd_one) {
    static const enum tw_merge rules[] = {TW_MERGE_TRIMMED, TW_MERGE_MEDIAN, TW_MERGE_CLIPPED};
    for (unsigned i = 0; i < 3; i++) {
        run.sync.merge = rules[i];
        open_run();
        const float merged = merge_of((float[]){1, 1, -3, 1, 1, 1}, 6, NULL);
        if (rules[i] != TW_MERGE_CLIPPED) assert_true(merged == 1);
        assert_true(fabsf(merged - 1) < 0.01f);
        assert_false(merger.has_said_mean);
        /* Four inputs are too few for a robust rule. They are averaged, after the guard has scaled
         * -3 down. */
        assert_true(fabsf(merge_of((float[]){1, 1, -3, 1}, 4, NULL) - 0.25f) < 0.01f);
        assert_true(merger.has_said_mean);
        if (i < 2) (void)end(state);
    }
}

FACT(rules_differ_as_they_should) {
    const float inputs[] = {0.5f, 1, 1, 1.25f, 1.5f};
    run.sync.merge = TW_MERGE_MEDIAN;
    open_run();
    assert_true(merge_of(inputs, 5, NULL) == 1);
    (void)end(state);
    run.sync.merge = TW_MERGE_TRIMMED;
    open_run();
    assert_true(fabsf(merge_of(inputs, 5, NULL) - 3.25f / 3) < 0.005f);
    (void)end(state);
    run.sync.merge = TW_MERGE_CLIPPED;
    open_run();
    const float clipped = merge_of(inputs, 5, NULL);
    assert_true(clipped > 1.02f && clipped < 1.08f);
}

FACT(more_inputs_than_members_are_refused) {
    run.sync.merge = TW_MERGE_MEDIAN;
    run.sync.nodes = run.sync.members = run.sync.quorum = 5;
    open_run();
    uint32_t largest = 0;
    for (uint32_t p = 1; p < 3; p++) {
        if (tw_shm_fragment_elements(&dae.shm, p) > tw_shm_fragment_elements(&dae.shm, largest))
            largest = p;
    }
    const size_t n = (size_t)tw_shm_fragment_elements(&dae.shm, largest);
    float *values = calloc(n, sizeof(float));
    struct tw_wmsg_reduce request = request_of(largest, 0, n);
    struct tw_wmsg_reduced reply;
    for (uint32_t i = 0; i < 6; i++) input_add(&request, values, 1, 1);
    assert_int_equal(tw_merger_reduce(&merger, &request, &reply, &err), TW_PROTO);
    assert_string_equal(err.message, "a merge of 6 contributions in a run of 5 members");
    request.inputs_count = 5;
    assert_int_equal(tw_merger_reduce(&merger, &request, &reply, &err), TW_OK);
    free(values);
}

/* Compares RDA per tensor and part with its plain form. Embeddings and head are compared with the
 * mean. */
static void rda_case(uint32_t fragment, uint64_t from, uint64_t count) {
    enum { COUNT = 3 };
    const size_t n = (size_t)count;
    float *rows[COUNT], *got = calloc(n, sizeof(float)), *want = calloc(n, sizeof(float));
    const float thirds[COUNT] = {(float)(1.0 / 3), (float)(1.0 / 3), (float)(1.0 / 3)};
    struct tw_wmsg_reduce request = request_of(fragment, from, count);
    for (unsigned i = 0; i < COUNT; i++) {
        size_t bytes;
        rows[i] = calloc(n, sizeof(float));
        for (size_t j = 0; j < n; j++)
            rows[i][j] = sinf((float)(j * (i + 1) + i)) + 0.2f * (float)i;
        input_add(&request, rows[i], 100, 10);
        bytes = request.inputs[i].in.bytes;
        assert_int_equal(
            merger.codec->decode(tw_shm_pool(&dae.shm, request.inputs[i].in.offset, bytes), bytes,
                                 rows[i], n),
            TW_OK);
        for (size_t j = 0; j < n; j++) want[j] += rows[i][j] / COUNT;
    }
    unsigned pieces = 0;
    for (uint32_t t = 0; t < dae.layout.tensors_count; t++) {
        const struct tw_tensor *tensor = &dae.layout.tensors[t];
        if (strstr(tensor->name, "wte") != NULL || strstr(tensor->name, "wpe") != NULL) continue;
        const uint64_t base = dae.layout.fragment_begin[fragment] + from;
        for (uint64_t j = 0, first = 0; j <= count; j++) {
            const bool is_inside =
                j < count && base + j >= tensor->offset &&
                base + j < tensor->offset + (uint64_t)tensor->rows * tensor->cols;
            if (!is_inside && j > first) {
                const float *x[COUNT] = {rows[0] + first, rows[1] + first, rows[2] + first};
                tw_rda_ref(want + first, x, thirds, COUNT, (size_t)(j - first));
                pieces++;
            }
            if (!is_inside) first = j + 1;
        }
    }
    assert_int_equal(reduced(&request, got).refused, 0);
    for (size_t j = 0; j < n; j++) assert_true(fabsf(got[j] - want[j]) <= 0.01f);
    print_message("fragment %u from %llu: %u pieces\n", fragment, (unsigned long long)from, pieces);
    assert_true(pieces > 0);
    for (unsigned i = 0; i < COUNT; i++) free(rows[i]);
    free(got);
    free(want);
}

FACT(rda_goes_by_tensor_and_part) {
    run.sync.merge = TW_MERGE_RDA;
    open_run();
    const uint64_t layer = tw_shm_fragment_elements(&dae.shm, 1);
    rda_case(1, 0, layer);
    rda_case(1, 1024, 1024);                               /* cuts tensors at both ends */
    rda_case(0, 0, tw_shm_fragment_elements(&dae.shm, 0)); /* the embeddings and the last norm */
}

/* In a run of arbitrary tensors, fragments begin and end inside tensors. */
FACT(rda_goes_by_tensor_where_fragments_cut_them) {
    assert_int_equal(tw_run_apply_tensors(&run, "a:30x100 b:3000 h.{0-1}.c:17x2x100", &err), TW_OK);
    run.sync.fragments = 3;
    run.sync.period = 12;
    run.sync.merge = TW_MERGE_RDA;
    open_run();
    for (uint32_t p = 0; p < 3; p++) rda_case(p, 0, tw_shm_fragment_elements(&dae.shm, p));
    rda_case(1, 1024, 1024);
}

/* ---- audits: the same merge, of those that were let in --------------------------------------- */

enum { AUDIT_N = 192 };

/* Fills contribution i: a direction common to all plus much noise of its own, scaled to `norm`. */
static void contribution_fill(float *values, uint32_t i, double norm) {
    for (unsigned j = 0; j < AUDIT_N; j++)
        values[j] = sinf((float)j * 0.7f) + cosf((float)(j * (i + 2) + i));
    const double now = sqrt(tw_norm_squared(values, AUDIT_N));
    for (unsigned j = 0; j < AUDIT_N; j++) values[j] *= (float)(norm / now);
}

/* An owner merges contributions of these norms. An auditor merges those that the owner lists, and
 * must get the same bits. Returns a bit mask of the contributions that the owner refused. */
static uint64_t audit_case(const double *norms, uint32_t count) {
    static const uint32_t steps[INPUTS_MAX] = {10, 10, 8, 12, 10, 11, 10, 9};
    float values[AUDIT_N], merged[AUDIT_N], again[AUDIT_N];
    struct tw_wmsg_reduce owner = request_of(1, 64, AUDIT_N);
    for (uint32_t i = 0; i < count; i++) {
        contribution_fill(values, i, norms[i] * sqrt((double)steps[i]));
        input_add(&owner, values, i == 1 ? 900000 : 1000 + 300 * i, steps[i]);
    }
    const struct tw_wmsg_reduced answer = reduced(&owner, merged);
    const uint64_t refused = answer.refused;
    uint16_t sizes[TW_MEMBERS_MAX] = {0};
    struct tw_wmsg_reduce auditor = request_of(1, 64, AUDIT_N);
    auditor.is_audit = 1;
    for (uint32_t i = 0; i < count; i++) {
        if ((refused >> i & 1) != 0) continue;
        sizes[auditor.inputs_count] = answer.sizes[i];
        auditor.inputs[auditor.inputs_count++] = owner.inputs[i];
    }
    const struct tw_wmsg_reduced repeated = reduced(&auditor, again);
    assert_int_equal(repeated.refused, 0);
    assert_memory_equal(repeated.sizes, sizes, sizeof(sizes));
    assert_int_equal(auditor.out.bytes, owner.out.bytes);
    assert_memory_equal(tw_shm_pool(&dae.shm, auditor.out.offset, auditor.out.bytes),
                        tw_shm_pool(&dae.shm, owner.out.offset, owner.out.bytes), owner.out.bytes);
    return refused;
}

/* Groups of every size, with one input refused and several scaled. An audit without the largest
 * input must not refuse a second one, as the guard would (15 of 1, 1, 2, 15). */
static void audit_cases(void) {
    assert_int_equal(audit_case((double[]){1}, 1), 0);
    assert_int_equal(audit_case((double[]){1, 30}, 2), 0);
    assert_int_equal(audit_case((double[]){1, 1.2, 18}, 3), 1 << 2);
    assert_int_equal(audit_case((double[]){1, 3, 1, 40}, 4), 1 << 3);
    assert_int_equal(audit_case((double[]){1, 1, 2, 15, 17}, 5), 1 << 4);
    /* too few for a robust rule */
    assert_int_equal(audit_case((double[]){1, 1, 1, 1, 18}, 5), 1 << 4);
    assert_int_equal(audit_case((double[]){500, 1, 1.1, 3, 0.9, 1, 2.5, 70}, 8), 1 << 7 | 1);
    assert_int_equal(audit_case((double[]){0, 0, 0, 0, 5, 0}, 6), 1 << 4);
}

FACT(audit_gives_the_bits_of_the_owner) {
    static const enum tw_merge rules[] = {TW_MERGE_MEAN, TW_MERGE_RDA, TW_MERGE_TRIMMED,
                                          TW_MERGE_MEDIAN, TW_MERGE_CLIPPED};
    static const enum tw_weights weights[] = {TW_WEIGHTS_EQUAL, TW_WEIGHTS_TOKENS,
                                              TW_WEIGHTS_TOKENS_RATE};
    const bool is_lossy[] = {false, true};
    for (unsigned i = 0; i < 5 * 3 * 2; i++) {
        /* Robust rules allow no weights, so no manifest combines the two. */
        if (rules[i / 6] >= TW_MERGE_TRIMMED && weights[i / 2 % 3] != TW_WEIGHTS_EQUAL) continue;
        if (i > 0) (void)end(state);
        run.sync.merge = rules[i / 6];
        run.sync.weights = weights[i / 2 % 3];
        if (run.sync.weights != TW_WEIGHTS_EQUAL) run.sync.merge = TW_MERGE_MEAN;
        run.sync.codec = is_lossy[i % 2] ? TW_CODEC_ECSQ4 : TW_CODEC_BF16;
        run.sync.result = is_lossy[i % 2] ? TW_CODEC_INT8 : TW_CODEC_BF16;
        open_run();
        audit_cases();
    }
}

/* Sizes are told for the steps that a contribution claims, which count up to four times the usual:
 * 15 times the norm and 64 times the steps are 7.5 times the usual size, scaled and not refused. */
FACT(scaled_inputs_are_told_with_their_size) {
    enum { N = 64 };
    float values[N];
    open_run();
    struct tw_wmsg_reduce request = request_of(1, 0, N);
    for (uint32_t i = 0; i < 5; i++) {
        for (unsigned j = 0; j < N; j++) values[j] = i == 3 ? -15 : 1;
        input_add(&request, values, 100, i == 3 ? 640 : 10);
    }
    const struct tw_wmsg_reduced reply = reduced(&request, values);
    assert_int_equal(reply.refused, 0);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) assert_int_equal(reply.sizes[i], i == 3 ? 75 : 0);
}

/* ---- too few contributions for the guard: the history of past merges ------------------------- */

/* Makes a history: past merges of fragment 1 had elements `merge`, and this node's own outer
 * gradient had elements `own`. */
static void past_of(float merge, float own) {
    const size_t n = (size_t)tw_shm_fragment_elements(&dae.shm, 1);
    float *values = malloc(n * sizeof(*values));
    struct tw_outlier_sizes sizes = {.count = {0}}, of_own = {.count = {0}};
    for (size_t j = 0; j < n; j++) values[j] = merge;
    tw_outlier_add(&sizes, values, 0, n, n);
    for (uint32_t i = 0; i < TW_OUTLIER_LEAST; i++)
        tw_outlier_note_merge(&merger.outlier[1], &sizes, n);
    for (size_t j = 0; j < n; j++) values[j] = own;
    tw_outlier_add(&of_own, values, 0, n, n);
    tw_outlier_note_own(&merger.outlier[1], &of_own);
    free(values);
}

/* Merges two constant contributions. Returns one element of the result. */
static float merge_of_two(float a, uint32_t a_steps, float b, uint32_t b_steps, uint64_t *refused) {
    struct tw_wmsg_reduce request = request_of(1, 0, 64);
    float values[64];
    for (unsigned j = 0; j < 64; j++) values[j] = a;
    input_add(&request, values, 100, a_steps);
    for (unsigned j = 0; j < 64; j++) values[j] = b;
    input_add(&request, values, 100, b_steps);
    *refused = reduced(&request, values).refused;
    return values[63];
}

/* Of a correct merge that is an outlier, an auditor names the input whose loss would mend it. */
FACT(audit_names_the_input_that_makes_the_merge_large) {
    enum { N = 64 };
    const float inputs[][3] = {{3, 12, 3}, {12, 12, 12}, {3, 3, 3}};
    const uint16_t sizes[] = {60, 0, 0}; /* of the merge; the usual one is 1 */
    open_run();
    past_of(1, 0.5f); /* above 4 a merge is an outlier */
    for (unsigned k = 0; k < 3; k++) {
        float values[N];
        struct tw_wmsg_reduce request = request_of(1, 0, N);
        /* Four times the steps allow four times the size: the guard leaves the input as it is. */
        for (uint32_t i = 0; i < 3; i++) {
            for (unsigned j = 0; j < N; j++) values[j] = inputs[k][i];
            input_add(&request, values, 100, inputs[k][i] > 3 ? 40 : 10);
        }
        request.is_audit = 1;
        const struct tw_wmsg_reduced reply = reduced(&request, values);
        assert_int_equal(reply.refused, 0);
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(reply.sizes[i], i == 1 ? sizes[k] : 0);
    }
}

FACT(of_two_the_one_far_beyond_all_merges_is_refused) {
    uint64_t refused;
    open_run();
    past_of(1, 0.5f); /* above 4 a contribution is an outlier, above 8 it is refused */
    assert_true(merge_of_two(1, 10, -1000, 10, &refused) == 1);
    assert_int_equal(refused, 1 << 1);
    assert_true(merge_of_two(9, 10, 1, 10, &refused) == 1);
    assert_int_equal(refused, 1 << 0);
    /* not scaled: an auditor could not repeat that */
    assert_true(merge_of_two(1, 10, 7, 10, &refused) == 4);
    assert_int_equal(refused, 0);
    /* four times the steps allow twice the size */
    assert_true(merge_of_two(1, 10, 15, 40, &refused) == 8);
    assert_int_equal(refused, 0);
    (void)merge_of_two(1, 10, 17, 40, &refused);
    assert_int_equal(refused, 1 << 1);
    /* claimed steps count up to 16 times the usual, so the limit is 8 * sqrt(16) = 32 */
    assert_true(merge_of_two(1, 0, 30, UINT32_MAX, &refused) == 15.5f);
    assert_int_equal(refused, 0);
    (void)merge_of_two(1, 0, 34, UINT32_MAX, &refused);
    assert_int_equal(refused, 1 << 1);
    past_of(1, 20); /* as in a warm-up: this node's own outer gradient has grown as much */
    (void)merge_of_two(1, 10, 70, 10, &refused);
    assert_int_equal(refused, 0);
}

FACT(one_alone_is_refused_with_a_reason) {
    float values[64];
    struct tw_wmsg_reduced reply;
    open_run();
    past_of(1, 0.5f);
    struct tw_wmsg_reduce request = request_of(1, 0, 64);
    /* accepted, as the usual number of steps is not known */
    for (unsigned j = 0; j < 64; j++) values[j] = 30;
    input_add(&request, values, 100, 10);
    assert_int_equal(reduced(&request, values).refused, 0);
    assert_true(values[0] == 30);
    request = request_of(1, 0, 64);
    for (unsigned j = 0; j < 64; j++) values[j] = 34;
    input_add(&request, values, 100, 10);
    assert_int_equal(tw_merger_reduce(&merger, &request, &reply, &err), TW_LIMIT);
    assert_string_equal(err.message,
                        "all that was contributed to part 0 of fragment 1 in round 4 is far larger "
                        "than merges of it are: nothing is merged");
    assert_int_equal(reply.bytes, 0);
    assert_int_equal(reply.refused, 0);
}

/* An auditor has no past merges, or not the owner's, so it merges exactly the inputs listed. */
FACT(auditor_takes_the_inputs_listed) {
    open_run();
    past_of(1, 0.5f);
    const double norm = sqrt(AUDIT_N);
    assert_int_equal(audit_case((double[]){norm, 50 * norm}, 2), 1 << 1);
    struct tw_wmsg_reduce request = request_of(1, 0, 64);
    float values[64];
    for (unsigned j = 0; j < 64; j++) values[j] = 1000;
    request.is_audit = 1;
    input_add(&request, values, 100, 10);
    assert_true(reduced(&request, values).sizes[0] > 0); /* merged, and named as large */
    assert_true(values[0] == 1000);
}
