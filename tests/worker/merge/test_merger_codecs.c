/* test_merger_codecs.c - the merger encodes outer gradients with every codec, with exactly as much
 * room as the codec's bound. */
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

#include "base/rng.h"
#include "proto/worker_request.h"
#include "tests/worker/loop/fake_daemon.h"
#include "worker/merge/merger.h"

enum { FRAGMENT = 1, INPUTS = 3 };

struct node {
    struct fake_daemon dae;
    struct tw_merger merger;
    float *theta;
    struct tw_vectors vectors;
    size_t n; /* elements of the fragment */
};

static void node_open(struct node *node, const struct tw_codec *codec) {
    struct tw_run run;
    struct tw_error err;
    fake_run(&run);
    run.sync.codec = codec->id;
    run.sync.result = codec->needs_feedback ? TW_CODEC_BF16 : codec->id;
    run.sync.feedback_millionths = codec->needs_feedback ? 950000 : 0;
    fake_daemon_open(&node->dae, &run, TW_SNAPSHOT_OFF);
    node->theta = calloc((size_t)node->dae.shm.geometry.elements, sizeof(float));
    assert_non_null(node->theta);
    node->vectors = tw_vectors_host(node->theta, NULL, NULL);
    assert_int_equal(
        tw_merger_init(&node->merger, &node->dae.run, &node->dae.shm, &node->vectors, &err), TW_OK);
    node->n = (size_t)tw_shm_fragment_elements(&node->dae.shm, FRAGMENT);
}

static void node_close(struct node *node) {
    tw_merger_deinit(&node->merger);
    free(node->theta);
    (void)close(node->dae.worker_fd);
    fake_daemon_close(&node->dae);
}

static struct tw_span encoded(struct node *node, const struct tw_codec *codec, struct tw_rng *rng) {
    struct tw_wmsg_encode request = {.fragment = FRAGMENT, .parts_count = 1};
    struct tw_wmsg_encoded reply;
    struct tw_error err;
    float *live = tw_merger_theta(&node->merger, FRAGMENT);
    for (size_t i = 0; i < node->n; i++) live[i] = (float)(tw_rng_unit(rng) - 0.5) * 1e-3f;
    request.parts[0].count = node->n;
    request.parts[0].out = fake_daemon_room(&node->dae, (uint32_t)codec->bound(node->n));
    assert_int_equal(tw_merger_encode(&node->merger, &request, &reply, &err), TW_OK);
    return (struct tw_span){.offset = request.parts[0].out.offset, .bytes = reply.bytes[0]};
}

TEST(outer_gradients_merge_in_every_codec) {
    uint32_t count;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    struct tw_rng rng;
    struct tw_error err;
    tw_rng_seed(&rng, 77);
    for (uint32_t c = 0; c < count; c++) {
        struct node node;
        node_open(&node, codecs[c]);
        struct tw_wmsg_reduce request = {
            .count = node.n, .fragment = FRAGMENT, .inputs_count = INPUTS};
        struct tw_wmsg_reduced reply;
        for (uint32_t i = 0; i < INPUTS; i++) {
            request.inputs[i].in = encoded(&node, codecs[c], &rng);
            request.inputs[i].tokens = 100 + i;
            request.inputs[i].steps = 1;
            struct tw_wmsg_check check = {
                .elements = node.n, .content = TW_CONTENT_DELTA, .in = request.inputs[i].in};
            struct tw_wmsg_checked checked;
            assert_int_equal(tw_merger_check(&node.merger, &check, &checked, &err), TW_OK);
            check.in.bytes--;
            assert_int_not_equal(tw_merger_check(&node.merger, &check, &checked, &err), TW_OK);
        }
        const struct tw_codec *result = tw_codec_get(node.dae.run.sync.result);
        const size_t room = codecs[c]->bound(node.n) > result->bound(node.n)
                                ? codecs[c]->bound(node.n)
                                : result->bound(node.n);
        request.out = fake_daemon_room(&node.dae, (uint32_t)room);
        assert_int_equal(tw_merger_reduce(&node.merger, &request, &reply, &err), TW_OK);
        assert_true(reply.bytes > 0 && reply.bytes <= room);
        node_close(&node);
    }
}

/* Each part fits its own bytes_max, and the residual equals the quantisation error. */
TEST(parts_keep_to_their_own_bytes) {
    enum { PART = 1024, PARTS = 2 };
    static const uint64_t most[PARTS] = {200, 600};
    const struct tw_codec *codec = tw_codec_get(TW_CODEC_AUTO);
    struct node node;
    struct tw_rng rng;
    struct tw_error err;
    tw_rng_seed(&rng, 78);
    node_open(&node, codec);
    assert_true(node.n > PART);
    struct tw_wmsg_encode request = {.fragment = FRAGMENT, .parts_count = PARTS};
    struct tw_wmsg_encoded reply;
    float *live = tw_merger_theta(&node.merger, FRAGMENT),
          *decoded = malloc(node.n * sizeof(float));
    for (size_t i = 0; i < node.n; i++) live[i] = (float)(tw_rng_unit(&rng) - 0.5) * 1e-3f;
    request.parts[0].count = PART;
    request.parts[1].begin = PART;
    request.parts[1].count = node.n - PART;
    for (unsigned k = 0; k < PARTS; k++) {
        request.parts[k].bytes_max = most[k];
        request.parts[k].out =
            fake_daemon_room(&node.dae, (uint32_t)codec->bound((size_t)request.parts[k].count));
    }
    assert_int_equal(tw_merger_encode(&node.merger, &request, &reply, &err), TW_OK);
    for (unsigned k = 0; k < PARTS; k++) {
        assert_true(reply.bytes[k] > 0 && reply.bytes[k] <= most[k]);
        const uint8_t *bytes =
            tw_shm_pool(&node.dae.shm, request.parts[k].out.offset, reply.bytes[k]);
        assert_int_equal(codec->decode(bytes, reply.bytes[k], decoded + request.parts[k].begin,
                                       (size_t)request.parts[k].count),
                         TW_OK);
    }
    const float *lost = node.merger.inflight.residual_next + node.dae.shm.fragment_begin[FRAGMENT];
    /* Delta is -theta, as phi is 0 */
    for (size_t i = 0; i < node.n; i++) assert_true(lost[i] == 0.0f - live[i] - decoded[i]);
    free(decoded);
    node_close(&node);
}
