/* Tests of worker/merge/merger.c. */
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

#include "kernels/norm.h"
#include "proto/worker_request.h"
#include "tests/worker/loop/fake_daemon.h"
#include "worker/merge/merger.h"

static struct fake_daemon dae;
static struct tw_merger merger;
static float *theta;
static struct tw_vectors vectors;
static size_t n; /* elements of fragment 1 */
static struct tw_error err;

enum { FRAGMENT = 1, ROOM = 65536 };

static void open_run(const struct tw_run *run) {
    fake_daemon_open(&dae, run, TW_SNAPSHOT_OFF);
    theta = calloc((size_t)dae.shm.geometry.elements, sizeof(float));
    assert_non_null(theta);
    vectors = tw_vectors_host(theta, NULL, NULL);
    assert_int_equal(tw_merger_init(&merger, &dae.run, &dae.shm, &vectors, &err), TW_OK);
    n = (size_t)tw_shm_fragment_elements(&dae.shm, FRAGMENT);
}

static void open_with(enum tw_weights weights) {
    struct tw_run run;
    fake_run(&run);
    run.sync.weights = weights;
    if (weights != TW_WEIGHTS_EQUAL) run.sync.merge = TW_MERGE_MEAN;
    open_run(&run);
}

static int open_tokens(void **state) {
    open_with(TW_WEIGHTS_TOKENS);
    return 0;
}

static int close_all(void **state) {
    tw_merger_deinit(&merger);
    free(theta);
    (void)close(dae.worker_fd);
    fake_daemon_close(&dae);
    return 0;
}

#define FACT(name) TEST_IN(open_tokens, close_all, name)

/* Makes every element of the fragment's Delta `value`: phi is zero, so Delta = -theta. */
static void delta_set(float value) {
    float *live = tw_merger_theta(&merger, FRAGMENT);
    for (size_t i = 0; i < n; i++) live[i] = -value;
}

static struct tw_wmsg_encode encode_request(void) {
    struct tw_wmsg_encode request = {.fragment = FRAGMENT, .parts_count = 1};
    request.parts[0].count = n;
    request.parts[0].out = fake_daemon_room(&dae, ROOM);
    return request;
}

static float encoded_norm(void) {
    const struct tw_wmsg_encode request = encode_request();
    struct tw_wmsg_encoded reply;
    assert_int_equal(tw_merger_encode(&merger, &request, &reply, &err), TW_OK);
    return reply.norm;
}

static struct tw_span payload(float value) {
    struct tw_wmsg_encode request = encode_request();
    struct tw_wmsg_encoded reply;
    delta_set(value);
    assert_int_equal(tw_merger_encode(&merger, &request, &reply, &err), TW_OK);
    return (struct tw_span){.offset = request.parts[0].out.offset, .bytes = reply.bytes[0]};
}

static float decoded_by(const struct tw_codec *codec, struct tw_span span) {
    float *values = malloc(n * sizeof(float));
    assert_int_equal(
        codec->decode(tw_shm_pool(&dae.shm, span.offset, span.bytes), span.bytes, values, n),
        TW_OK);
    const float value = values[n - 1];
    free(values);
    return value;
}

static float decoded(struct tw_span span) {
    return decoded_by(merger.codec, span);
}

FACT(delta_is_anchor_minus_live) {
    const struct tw_span span = payload(0.5f);
    assert_true(decoded(span) == 0.5f);
    assert_true(fabsf(encoded_norm() - 0.5f * sqrtf((float)n)) < 1e-3f);
}

FACT(non_finite_delta_is_not_sent) {
    struct tw_wmsg_encode request = encode_request();
    struct tw_wmsg_encoded reply;
    delta_set(1);
    tw_merger_theta(&merger, FRAGMENT)[n - 1] = NAN;
    assert_int_equal(tw_merger_encode(&merger, &request, &reply, &err), TW_CORRUPT);
    assert_int_equal(reply.status, TW_CORRUPT);
    assert_int_equal(reply.bytes[0], 0);
    /* a finite value whose norm overflows in float */
    tw_merger_theta(&merger, FRAGMENT)[n - 1] = 3e38f;
    delta_set(3e38f);
    assert_int_equal(tw_merger_encode(&merger, &request, &reply, &err), TW_CORRUPT);
}

FACT(short_room_is_refused) {
    struct tw_wmsg_encode request = encode_request();
    struct tw_wmsg_encoded reply;
    request.parts[0].out.bytes = 10;
    assert_int_equal(tw_merger_encode(&merger, &request, &reply, &err), TW_LIMIT);
    assert_int_equal(reply.bytes[0], 0);
}

FACT(kept_theta_is_clipped_once) {
    const float unit = sqrtf((float)n);
    delta_set(100);
    merger.must_clip[FRAGMENT] = true;
    assert_true(encoded_norm() > 99 * unit); /* not clipped: there is no norm to compare with yet */
    for (int i = 0; i < TW_NORMS_KEPT; i++) {
        delta_set(i % 2 == 0 ? 1.0f : 1.25f);
        (void)encoded_norm(); /* the median of the norms is 1 or 1.25 units */
        tw_merger_note_landed(&merger, FRAGMENT, true);
    }
    delta_set(100);
    merger.must_clip[FRAGMENT] = true;
    const float clipped = encoded_norm();
    assert_true(clipped >= 2.99f * unit && clipped <= 3.76f * unit);
    assert_true(encoded_norm() > 99 * unit); /* the next Delta is not clipped */
}

FACT(clip_leaves_small_ones_alone) {
    delta_set(1);
    (void)encoded_norm();
    tw_merger_note_landed(&merger, FRAGMENT, true);
    merger.must_clip[FRAGMENT] = true;
    delta_set(2);
    assert_true(fabsf(encoded_norm() - 2 * sqrtf((float)n)) < 1e-2f);
}

/* Merges payloads, all with the same tokens and steps. */
static struct tw_span merge_of(uint32_t count, const struct tw_span *payloads,
                               const struct tw_wmsg_reduced **reply_out) {
    static struct tw_wmsg_reduced reply;
    struct tw_wmsg_reduce request = {.count = n, .fragment = FRAGMENT, .inputs_count = count};
    for (uint32_t i = 0; i < count; i++) {
        request.inputs[i].in = payloads[i];
        request.inputs[i].tokens = 100;
        request.inputs[i].steps = 10;
    }
    request.out = fake_daemon_room(&dae, ROOM);
    assert_int_equal(tw_merger_reduce(&merger, &request, &reply, &err), TW_OK);
    request.out.bytes = reply.bytes;
    *reply_out = &reply;
    return request.out;
}

static float merged(uint64_t tokens_a, uint64_t tokens_b) {
    struct tw_wmsg_reduce request = {
        .round = 9, .count = n, .fragment = FRAGMENT, .part = 0, .inputs_count = 2};
    struct tw_wmsg_reduced reply;
    request.inputs[0].in = payload(1);
    request.inputs[1].in = payload(2);
    request.inputs[0].tokens = tokens_a;
    request.inputs[1].tokens = tokens_b;
    request.inputs[0].steps = request.inputs[1].steps = 10;
    request.out = fake_daemon_room(&dae, ROOM);
    assert_int_equal(tw_merger_reduce(&merger, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.round, 9);
    request.out.bytes = reply.bytes;
    return decoded(request.out);
}

FACT(merge_is_weighted_as_the_run_says) {
    assert_true(merged(300, 100) == 1.25f);
    assert_true(merged(0, 0) == 1.5f);
    (void)close_all(NULL);
    open_with(TW_WEIGHTS_EQUAL);
    assert_true(merged(300, 100) == 1.5f);
}

FACT(bad_contribution_spoils_no_merge) {
    struct tw_wmsg_reduce request = {.count = n, .part = 3, .fragment = FRAGMENT};
    struct tw_wmsg_reduced reply;
    request.inputs_count = 2;
    request.inputs[0].in = payload(1);
    request.inputs[1].in = payload(2);
    request.inputs[1].in.bytes -= 2;
    request.out = fake_daemon_room(&dae, ROOM);
    assert_int_equal(tw_merger_reduce(&merger, &request, &reply, &err), TW_CORRUPT);
    assert_int_equal(reply.bytes, 0);
    assert_non_null(strstr(err.message, "contribution 1 to part 3"));
    uint8_t *bytes = tw_shm_pool(&dae.shm, request.inputs[1].in.offset, 2);
    bytes[0] = 0x80; /* bf16 infinity */
    bytes[1] = 0x7f;
    request.inputs[1].in.bytes += 2;
    /* An auditor does not check the sizes of so few inputs, so the merge itself finds the fault. */
    for (request.is_audit = 0; request.is_audit < 2; request.is_audit++) {
        err = (struct tw_error){.status = TW_OK};
        assert_int_equal(tw_merger_reduce(&merger, &request, &reply, &err), TW_CORRUPT);
        assert_int_equal(reply.bytes, 0);
        assert_non_null(strstr(err.message, "contribution 1 to part 3"));
    }
    request.inputs_count = 0;
    assert_int_equal(tw_merger_reduce(&merger, &request, &reply, &err), TW_PROTO);
}

FACT(check_counts_the_elements) {
    struct tw_wmsg_check request = {
        .tag = 31, .elements = n, .in = payload(1), .content = TW_CONTENT_DELTA};
    struct tw_wmsg_checked reply;
    assert_int_equal(tw_merger_check(&merger, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.tag, 31);
    request.elements--;
    assert_int_equal(tw_merger_check(&merger, &request, &reply, &err), TW_CORRUPT);
    assert_int_equal(reply.status, TW_CORRUPT);
    request.elements++;
    request.content = TW_CONTENT_OPAQUE;
    assert_int_equal(tw_merger_check(&merger, &request, &reply, &err), TW_PROTO);
    request.content = TW_CONTENT_PHI + 1;
    assert_int_equal(tw_merger_check(&merger, &request, &reply, &err), TW_PROTO);
    request.content = TW_CONTENT_PHI; /* an outer gradient is not an anchor */
    assert_int_equal(tw_merger_check(&merger, &request, &reply, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "no anchor"));
}

FACT(results_have_a_codec_of_their_own) {
    (void)close_all(NULL);
    struct tw_run run;
    fake_run(&run);
    run.sync.result = TW_CODEC_INT8;
    open_run(&run);
    const struct tw_wmsg_reduced *reply;
    const struct tw_span sent = payload(0.5f), result = merge_of(1, &sent, &reply);
    assert_int_equal(result.bytes, tw_codec_get(TW_CODEC_INT8)->bound(n));
    assert_true(fabsf(decoded_by(tw_codec_get(TW_CODEC_INT8), result) - 0.5f) < 0.01f);
    struct tw_wmsg_check request = {.elements = n, .in = result, .content = TW_CONTENT_RESULT};
    struct tw_wmsg_checked checked;
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_OK);
    request.in = sent;
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_CORRUPT);
    request.content = TW_CONTENT_DELTA;
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_OK);
    request.in = result;
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_CORRUPT);
}

FACT(check_tells_a_result_out_of_all_proportion) {
    const struct tw_span sent = payload(0.5f); /* this node's own outer gradient sets the scale */
    struct tw_wmsg_check request = {
        .elements = n, .in = sent, .content = TW_CONTENT_RESULT, .fragment = FRAGMENT};
    struct tw_wmsg_checked checked;
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_OK);
    assert_int_equal(checked.sanity, TW_SANITY_FAIR);
    request.in = payload(6);
    const struct tw_span wild = payload(20);
    (void)payload(0.5f);
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_OK);
    assert_int_equal(checked.sanity, TW_SANITY_OUTLIER);
    request.in = wild;
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_OK);
    assert_int_equal(checked.sanity, TW_SANITY_EXTREME);
    /* not checked here: the guard judges the sizes of outer gradients */
    request.content = TW_CONTENT_DELTA;
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_OK);
    assert_int_equal(checked.sanity, TW_SANITY_FAIR);
    request.content = TW_CONTENT_RESULT;
    request.begin = 1;
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_PROTO);
    request.begin = 0;
    request.fragment = TW_FRAGMENTS_MAX;
    assert_int_equal(tw_merger_check(&merger, &request, &checked, &err), TW_PROTO);
}

FACT(empty_part_needs_no_room) {
    struct tw_wmsg_encode request = encode_request();
    struct tw_wmsg_encoded reply;
    request.parts_count = 2;
    request.parts[1].begin = n;
    memset(&request.parts[1].out, 0, sizeof(request.parts[1].out));
    assert_int_equal(tw_merger_encode(&merger, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.bytes[1], 0);
}
