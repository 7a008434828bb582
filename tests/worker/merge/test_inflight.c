/* Tests of worker/merge/inflight.c: no work is lost or counted twice, whether or not a sent Delta
 * is merged, and eager follows its equations.
 *
 * A node consists of a fake daemon's memory, a merger, and a theta that the test moves. For each
 * element, the test keeps `owed` in double: the work that is not in the anchor (in theta, in
 * flight, or in the residual), with the sign of an outer gradient. */
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

#include "base/rng.h"
#include "proto/run/run_key.h"
#include "tests/worker/loop/fake_daemon.h"
#include "worker/merge/anchor.h"
#include "worker/merge/merger.h"

enum { FRAGMENT = 1, FRAGMENTS = 3, ROOM = 65536, PARTS = 3, SEED = 11, NODES = 3 };

struct node {
    struct fake_daemon dae;
    struct tw_merger merger;
    float *theta;
    struct tw_vectors vectors;
    struct tw_wmsg_encode sent;
    struct tw_wmsg_encoded reply;
};

static struct node nodes[NODES];
static size_t n; /* elements of the fragment */
static struct tw_error err;
static struct tw_rng rng;

static void node_open(struct node *node, const struct tw_run *run) {
    fake_daemon_open(&node->dae, run, TW_SNAPSHOT_OFF);
    node->theta = calloc((size_t)node->dae.shm.geometry.elements, sizeof(float));
    assert_non_null(node->theta);
    node->vectors = tw_vectors_host(node->theta, NULL, NULL);
    assert_int_equal(
        tw_merger_init(&node->merger, &node->dae.run, &node->dae.shm, &node->vectors, &err), TW_OK);
    n = (size_t)tw_shm_fragment_elements(&node->dae.shm, FRAGMENT);
}

static void node_close(struct node *node) {
    tw_merger_deinit(&node->merger);
    free(node->theta);
    (void)close(node->dae.worker_fd);
    fake_daemon_close(&node->dae);
}

static float *live(struct node *node) {
    return tw_merger_theta(&node->merger, FRAGMENT);
}

static struct tw_shm_view anchor(struct node *node) {
    struct tw_shm_view view;
    tw_shm_view(&node->dae.shm, FRAGMENT, &view);
    return view;
}

/* Returns element i of an in-flight array, or 0 if the array is NULL. */
static double held(const struct node *node, const float *array, size_t i) {
    return array == NULL ? 0 : (double)array[node->dae.shm.fragment_begin[FRAGMENT] + i];
}

static float some(float scale) {
    return (float)(tw_rng_unit(&rng) - 0.5) * scale;
}

static void node_train(struct node *node, double *owed) {
    for (size_t i = 0; i < n; i++) {
        const float before = live(node)[i];
        live(node)[i] += some(0.02f);
        if (owed != NULL) owed[i] -= (double)live(node)[i] - (double)before;
    }
}

static void node_encode(struct node *node, uint64_t round, uint32_t parts) {
    node->dae.pool_used = 0;
    node->sent =
        (struct tw_wmsg_encode){.round = round, .fragment = FRAGMENT, .parts_count = parts};
    for (uint32_t k = 0; k < parts; k++) {
        const uint32_t equal[PARTS] = {0};
        tw_layout_part(n, equal, parts, k, &node->sent.parts[k].begin, &node->sent.parts[k].count);
        node->sent.parts[k].out = fake_daemon_room(&node->dae, ROOM);
    }
    assert_int_equal(tw_merger_encode(&node->merger, &node->sent, &node->reply, &err), TW_OK);
}

/* Returns D, the decoded payload, of the newest encoding. */
static float *node_decoded(struct node *node) {
    float *values = calloc(n, sizeof(float));
    for (uint32_t k = 0; k < node->sent.parts_count; k++) {
        const uint32_t bytes = node->reply.bytes[k];
        const uint8_t *payload = tw_shm_pool(&node->dae.shm, node->sent.parts[k].out.offset, bytes);
        assert_int_equal(node->merger.codec->decode(payload, bytes,
                                                    values + node->sent.parts[k].begin,
                                                    (size_t)node->sent.parts[k].count),
                         TW_OK);
    }
    return values;
}

/* Decodes the result of part k of a request into values[n]. */
static void read_result(struct node *node, const struct tw_wmsg_apply *request, uint32_t k,
                        float *values) {
    const struct tw_span *span = &request->parts[k].in;
    const size_t count = (size_t)request->parts[k].count;
    if (count == 0) return;
    assert_int_equal(
        node->merger.result->decode(tw_shm_pool(&node->dae.shm, span->offset, span->bytes),
                                    span->bytes, values + request->parts[k].begin, count),
        TW_OK);
}

/* Encodes these values as the result of one part of a request. */
static struct tw_span result_of(struct node *node, const float *values, uint64_t begin,
                                uint64_t count) {
    struct tw_span span = fake_daemon_room(&node->dae, ROOM);
    size_t bytes = 0;
    if (count == 0) return (struct tw_span){0};
    assert_int_equal(node->merger.result->encode(
                         values + begin, (size_t)count,
                         tw_shm_pool(&node->dae.shm, span.offset, span.bytes), span.bytes, &bytes),
                     TW_OK);
    span.bytes = (uint32_t)bytes;
    return span;
}

static struct tw_wmsg_apply apply_request(struct node *node, uint64_t round, const float *values,
                                          const uint32_t *modes) {
    struct tw_wmsg_apply request = {.round = round,
                                    .version = round / FRAGMENTS,
                                    .fragment = FRAGMENT,
                                    .parts_count = node->sent.parts_count};
    for (uint32_t k = 0; k < request.parts_count; k++) {
        request.parts[k].begin = node->sent.parts[k].begin;
        request.parts[k].count = node->sent.parts[k].count;
        request.parts[k].mode = modes[k];
        if (modes[k] == TW_APPLY_ABSENT) continue;
        request.parts[k].contributors = NODES;
        request.parts[k].in =
            result_of(node, values, request.parts[k].begin, request.parts[k].count);
    }
    return request;
}

static void node_apply(struct node *node, const struct tw_wmsg_apply *request) {
    struct tw_wmsg_applied reply;
    if (tw_anchor_apply(&node->merger, request, &reply, &err) != TW_OK) fail_msg("%s", err.message);
}

/* ---- the books ------------------------------------------------------------------------------- */

/* Checks `owed` against the state of the node. */
static void check_books(struct node *node, const double *owed, const char *after) {
    const struct tw_inflight *inflight = &node->merger.inflight;
    const enum tw_sent sent = node->dae.run.sync.sent;
    const bool is_handed = inflight->fragments[FRAGMENT].is_out && sent != TW_SENT_KEEP;
    const double rho = node->dae.run.sync.feedback_local_millionths / 1e6;
    const struct tw_shm_view view = anchor(node);
    for (size_t i = 0; i < n; i++) {
        double have = (double)view.phi[i] + held(node, inflight->ahead, i) - (double)live(node)[i];
        have += (1 - rho) * held(node, inflight->residual, i);
        if (is_handed)
            have += held(node, inflight->given, i) - rho * held(node, inflight->residual_next, i);
        if (fabs(have - owed[i]) > 2e-4)
            fail_msg("after %s element %zu owes %.6f, not %.6f", after, i, have, owed[i]);
    }
}

static void book_apply(struct node *node, uint64_t round, double *owed, bool is_out) {
    float *decoded = node_decoded(node), *values = calloc(n, sizeof(float));
    const bool has_feedback = node->merger.inflight.residual != NULL;
    uint32_t modes[PARTS];
    for (size_t i = 0; i < n; i++) values[i] = some(0.05f);
    for (uint32_t k = 0; k < PARTS; k++) {
        modes[k] = tw_rng_below(&rng, 4) == 0 ? TW_APPLY_ABSENT : TW_APPLY_SHIFT;
        if (is_out && tw_rng_below(&rng, 2) == 0) modes[k] = TW_APPLY_MIX;
    }
    struct tw_wmsg_apply request = apply_request(node, round, values, modes);
    if (tw_rng_below(&rng, 8) == 0) request.parts_count = 0;
    for (uint32_t k = 0; k < request.parts_count; k++) {
        if (modes[k] != TW_APPLY_MIX) continue;
        const size_t begin = (size_t)request.parts[k].begin;
        read_result(node, &request, k, values);
        for (size_t i = begin; i < begin + request.parts[k].count; i++) {
            if (tw_run_needs_feedback(node->dae.run.sync.result) && values[i] == 0.0f) continue;
            owed[i] -=
                has_feedback ? (double)decoded[i] : held(node, node->merger.inflight.given, i);
        }
    }
    node_apply(node, &request);
    free(decoded);
    free(values);
}

/* If the anchor is replaced, the residual that is not in theta is dropped (inflight.h), and nothing
 * else is lost. */
static void book_loss(const struct node *node, double *owed) {
    const double apart = 1 - node->dae.run.sync.feedback_local_millionths / 1e6;
    for (size_t i = 0; i < n; i++) owed[i] -= apart * held(node, node->merger.inflight.residual, i);
}

/* Runs a solo round, after which all other work is in the anchor. */
static void book_solo(struct node *node, uint64_t round, double *owed) {
    const struct tw_wmsg_solo solo = {.round = round, .fragment = FRAGMENT};
    struct tw_wmsg_applied reply;
    book_loss(node, owed);
    for (size_t i = 0; i < n; i++) owed[i] -= (double)anchor(node).phi[i];
    assert_int_equal(tw_anchor_solo(&node->merger, &solo, &reply, &err), TW_OK);
    for (size_t i = 0; i < n; i++) {
        owed[i] += (double)anchor(node).phi[i];
        if (fabs(owed[i]) > 2e-4) fail_msg("alone, element %zu still owes %.6f", i, owed[i]);
    }
}

/* Plays one round of a fragment: up to three encodings, then a merge, a state of another node, or a
 * solo round. */
static void book_round(struct node *node, uint64_t round, double *owed) {
    bool is_out = false;
    for (uint64_t i = tw_rng_below(&rng, 4); i > 0; i--) {
        node_train(node, owed);
        node->merger.must_clip[FRAGMENT] = false; /* clipping would lose work */
        node_encode(node, round, 1 + (uint32_t)tw_rng_below(&rng, PARTS));
        check_books(node, owed, "encode");
        is_out = true;
    }
    node_train(node, owed);
    const uint64_t what = tw_rng_below(&rng, 12);
    struct tw_wmsg_applied reply;
    if (what == 0) {
        book_solo(node, round, owed);
        check_books(node, owed, "solo");
    } else if (what == 1) {
        const struct tw_wmsg_load load = {.fragment = FRAGMENT,
                                          .mode = TW_LOAD_KEEP + (uint32_t)tw_rng_below(&rng, 2),
                                          .rounds = round + 1,
                                          .digest = anchor(node).state.digest};
        book_loss(node, owed);
        assert_int_equal(tw_anchor_load(&node->merger, &load, &reply, &err), TW_OK);
        check_books(node, owed, "load");
    } else if (node->sent.parts_count > 0) {
        book_apply(node, round, owed, is_out);
        check_books(node, owed, "apply");
    }
}

static void keep_books_with(enum tw_sent sent, enum tw_outer_rule outer, enum tw_codec_id codec,
                            uint32_t feedback_millionths, uint32_t local_millionths,
                            enum tw_codec_id result) {
    struct tw_run run;
    fake_run(&run);
    run.sync.result = result;
    run.sync.sent = sent;
    run.sync.mix_millionths = 0;
    run.sync.outer = outer;
    run.sync.outer_lr_millionths = 700000;
    run.sync.outer_momentum_millionths = 600000;
    run.sync.outer_ramp = 3;
    if (outer == TW_OUTER_HEAVYBALL) {
        run.sync.gap_penalty_millionths = 1000000;
        run.sync.momentum_clip_millionths = 2000000;
    }
    run.sync.codec = codec;
    run.sync.feedback_millionths = feedback_millionths;
    run.sync.feedback_local_millionths = local_millionths;
    struct node *node = &nodes[0];
    memset(node, 0, sizeof(*node));
    node_open(node, &run);
    double *owed = calloc(n, sizeof(double));
    for (uint64_t r = 0; r < 40; r++) book_round(node, FRAGMENT + r * FRAGMENTS, owed);
    free(owed);
    node_close(node);
}

static void keep_books(enum tw_sent sent, enum tw_outer_rule outer, enum tw_codec_id codec,
                       uint32_t feedback_millionths, uint32_t local_millionths) {
    keep_books_with(sent, outer, codec, feedback_millionths, local_millionths, TW_CODEC_BF16);
}

/* Elements that a sparse result leaves out are owed as before. */
TEST(elements_left_out_of_a_result_are_still_owed) {
    tw_rng_seed(&rng, SEED);
    for (unsigned outer = 0; outer < 2; outer++) {
        keep_books_with(TW_SENT_KEEP, outer, TW_CODEC_TOPK64, 1000000, 0, TW_CODEC_TOPK64);
        keep_books_with(TW_SENT_KEEP, outer, TW_CODEC_TOPK256, 1000000, 600000, TW_CODEC_TOPK64);
        keep_books_with(TW_SENT_KEEP, outer, TW_CODEC_INT8, 1000000, 300000, TW_CODEC_TOPK256);
    }
}

TEST(no_work_is_lost_or_counted_twice) {
    static const enum tw_sent sents[] = {TW_SENT_KEEP, TW_SENT_RESTART, TW_SENT_EAGER};
    tw_rng_seed(&rng, SEED);
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned outer = 0; outer < 2; outer++) {
            keep_books(sents[i], outer, TW_CODEC_INT8, 0, 0);
            keep_books(sents[i], outer, TW_CODEC_INT8, 1000000, 0);
            keep_books(sents[i], outer, TW_CODEC_SIGN, 1000000, 0);
            keep_books(sents[i], outer, TW_CODEC_SIGN, 1000000, 600000);
            keep_books(sents[i], outer, TW_CODEC_TOPK64, 1000000, 1000000);
        }
    }
}

/* ---- gradients in flight --------------------------------------------------------------------- */

static void open_first(enum tw_sent sent, enum tw_codec_id codec, uint32_t feedback_millionths) {
    struct tw_run run;
    fake_run(&run);
    run.sync.sent = sent;
    run.sync.mix_millionths = sent == TW_SENT_MIX ? 500000 : 0;
    run.sync.codec = codec;
    run.sync.feedback_millionths = feedback_millionths;
    run.sync.nodes = 2;
    memset(nodes, 0, sizeof(nodes));
    node_open(&nodes[0], &run);
    tw_rng_seed(&rng, SEED);
}

static void apply_with(uint64_t round, uint32_t mode, bool is_refused) {
    float *values = calloc(n, sizeof(float));
    for (size_t i = 0; i < n; i++) values[i] = some(0.05f);
    const uint32_t modes[PARTS] = {mode, mode, mode};
    struct tw_wmsg_apply request = apply_request(&nodes[0], round, values, modes);
    request.is_refused = is_refused;
    node_apply(&nodes[0], &request);
    free(values);
}

static void apply_mode(uint64_t round, uint32_t mode) {
    apply_with(round, mode, false);
}

/* Applies a round whose owners received this node's Delta, but refused it for its size. */
static void apply_refused(uint64_t round) {
    apply_with(round, TW_APPLY_SHIFT, true);
}

/* After a restart, a merge contains the worker's earlier Delta, which the snapshot may contain too.
 * So theta is set to phi. */
TEST(merge_of_work_before_a_restart_sets_theta) {
    static const enum tw_sent sents[] = {TW_SENT_KEEP, TW_SENT_RESTART, TW_SENT_EAGER};
    for (unsigned i = 0; i < 3; i++) {
        open_first(sents[i], TW_CODEC_BF16, 0);
        node_train(&nodes[0], NULL);
        node_encode(&nodes[0], 1, PARTS);
        apply_mode(1, TW_APPLY_MIX); /* in mode eager, this leaves a correction */
        node_train(&nodes[0], NULL);
        apply_mode(4, TW_APPLY_MIX);
        assert_memory_equal(live(&nodes[0]), anchor(&nodes[0]).phi, n * sizeof(float));
        for (size_t e = 0; e < n; e++)
            assert_true(held(&nodes[0], nodes[0].merger.inflight.ahead, e) == 0);
        node_close(&nodes[0]);
    }
}

TEST(last_round_leaves_nothing_under_way) {
    open_first(TW_SENT_EAGER, TW_CODEC_SIGN, 1000000);
    node_train(&nodes[0], NULL);
    node_encode(&nodes[0], 1, PARTS);
    struct tw_wmsg_apply request = {.round = 1, .fragment = FRAGMENT, .is_final = 1};
    node_apply(&nodes[0], &request);
    assert_memory_equal(live(&nodes[0]), anchor(&nodes[0]).phi, n * sizeof(float));
    assert_false(nodes[0].merger.inflight.fragments[FRAGMENT].is_out);
    assert_true(held(&nodes[0], nodes[0].merger.inflight.ahead, 0) == 0);
    assert_true(held(&nodes[0], nodes[0].merger.inflight.residual, 0) == 0);
    node_close(&nodes[0]);
}

TEST(loss_of_coding_counts_once_it_is_merged) {
    static const enum tw_sent sents[] = {TW_SENT_MIX, TW_SENT_KEEP, TW_SENT_RESTART};
    for (unsigned i = 0; i < 3; i++) {
        open_first(sents[i], TW_CODEC_SIGN, 500000);
        const struct tw_inflight *inflight = &nodes[0].merger.inflight;
        node_train(&nodes[0], NULL);
        const float delta = anchor(&nodes[0]).phi[7] - live(&nodes[0])[7];
        node_encode(&nodes[0], 1, PARTS);
        apply_mode(1, TW_APPLY_SHIFT);
        assert_true(held(&nodes[0], inflight->residual, 7) == 0);
        node_encode(&nodes[0], 4, PARTS);
        float *decoded = node_decoded(&nodes[0]);
        apply_mode(4, TW_APPLY_MIX);
        const double lost = held(&nodes[0], inflight->residual, 7);
        assert_true(fabs(lost - (double)(delta - decoded[7])) < 1e-6 && lost != 0);
        free(decoded);

        /* The next Delta contains half of that error. */
        for (size_t e = 0; e < n; e++) live(&nodes[0])[e] = anchor(&nodes[0]).phi[e];
        node_encode(&nodes[0], 7, PARTS);
        apply_mode(7, TW_APPLY_MIX);
        decoded = node_decoded(&nodes[0]);
        assert_true(fabs(held(&nodes[0], inflight->residual, 7) - (lost / 2 - (double)decoded[7])) <
                    1e-6);
        free(decoded);
        node_close(&nodes[0]);
    }
}

TEST(refused_delta_is_clipped_next) {
    static const enum tw_sent sents[] = {TW_SENT_MIX, TW_SENT_KEEP, TW_SENT_RESTART, TW_SENT_EAGER};
    for (unsigned i = 0; i < 4; i++) {
        open_first(sents[i], TW_CODEC_BF16, 0);
        for (uint64_t r = 1; r < 30; r += 3) {
            node_train(&nodes[0], NULL);
            node_encode(&nodes[0], r, PARTS);
            apply_mode(r, TW_APPLY_MIX);
            assert_false(nodes[0].merger.must_clip[FRAGMENT]);
        }
        const float usual = nodes[0].reply.norm;
        for (size_t e = 0; e < n; e++) live(&nodes[0])[e] += some(2);
        node_encode(&nodes[0], 31, PARTS);
        assert_true(nodes[0].reply.norm > 20 * usual);
        apply_refused(31);
        node_encode(&nodes[0], 34, PARTS);
        assert_true(nodes[0].reply.norm < 6 * usual);
        node_close(&nodes[0]);
    }
}

/* If a Delta is too late or has no link to its owner, no owner has judged its size. Nodes behind
 * NAT meet this in most rounds. If each Delta were then smaller than the last, the group would stop
 * learning. */
TEST(delta_that_no_owner_had_is_not_made_smaller) {
    open_first(TW_SENT_KEEP, TW_CODEC_BF16, 0);
    const struct tw_norm_history *history = &nodes[0].merger.history[FRAGMENT];
    for (uint64_t r = 1; r < 31; r += 3) {
        node_train(&nodes[0], NULL);
        node_encode(&nodes[0], r, PARTS);
        apply_mode(r, TW_APPLY_SHIFT);
        assert_true(history->reach == 0 && history->unmerged == 0);
        assert_false(nodes[0].merger.must_clip[FRAGMENT]);
    }
    node_close(&nodes[0]);
}

/* A restarted node has no norms of its own to compare with, so the merges of the others limit its
 * Deltas until one is accepted. */
TEST(node_refused_twice_sends_the_size_of_merges) {
    open_first(TW_SENT_KEEP, TW_CODEC_BF16, 0);
    const struct tw_norm_history *history = &nodes[0].merger.history[FRAGMENT];
    for (uint64_t r = 1; r < 7; r += 3) {
        for (size_t e = 0; e < n; e++) live(&nodes[0])[e] += some(2);
        node_encode(&nodes[0], r, PARTS);
        assert_true(nodes[0].reply.norm > 20 * history->merge);
        apply_refused(r);
    }
    node_encode(&nodes[0], 7, PARTS);
    assert_true(history->merge > 0 && nodes[0].reply.norm < 2.01f * history->merge);
    apply_refused(7); /* still too large */
    node_encode(&nodes[0], 10, PARTS);
    assert_true(nodes[0].reply.norm < 1.01f * history->merge);
    uint64_t round = 10;
    for (; history->reach > 0 && round < 1000; round += 3) { /* the limit grows each time */
        const float merge = history->merge, reach = history->reach;
        assert_true(nodes[0].reply.norm < 1.01f * reach * merge);
        apply_mode(round, TW_APPLY_MIX);
        assert_int_equal(history->unmerged, 0);
        node_encode(&nodes[0], round + 3, PARTS);
    }
    assert_in_range(round, 16, 60); /* all of the work has been sent after a few rounds */
    assert_false(nodes[0].merger.must_clip[FRAGMENT]);
    node_close(&nodes[0]);
}

/* The next outer gradient contains the part that a clip left out. */
TEST(clipped_part_is_sent_later) {
    static const enum tw_sent sents[] = {TW_SENT_KEEP, TW_SENT_RESTART, TW_SENT_EAGER};
    for (unsigned i = 0; i < 3; i++) {
        open_first(sents[i], TW_CODEC_BF16, 0);
        double *owed = calloc(n, sizeof(double));
        node_train(&nodes[0], owed);
        node_encode(&nodes[0], 1, PARTS);
        for (size_t e = 0; e < n; e++)
            owed[e] -= held(&nodes[0], nodes[0].merger.inflight.given, e);
        apply_mode(1, TW_APPLY_MIX);
        node_encode(&nodes[0], 4, PARTS);
        apply_refused(4);
        for (unsigned k = 0; k < 40; k++) node_train(&nodes[0], owed);
        node_encode(&nodes[0], 7, PARTS);
        check_books(&nodes[0], owed, "clipped encode");
        for (size_t e = 0; e < n; e++)
            owed[e] -= held(&nodes[0], nodes[0].merger.inflight.given, e);
        apply_mode(7, TW_APPLY_MIX);
        check_books(&nodes[0], owed, "apply");
        node_encode(&nodes[0], 10, PARTS);
        assert_true(nodes[0].reply.norm > 0.1f);
        free(owed);
        node_close(&nodes[0]);
    }
}

/* Sends a round. Returns w, the share of its decoded Delta that eager adds to the correction c. */
static double share_given(uint64_t round) {
    node_train(&nodes[0], NULL);
    node_encode(&nodes[0], round, PARTS);
    float *decoded = node_decoded(&nodes[0]);
    const double given = held(&nodes[0], nodes[0].merger.inflight.share, 5) / (double)decoded[5];
    free(decoded);
    return given;
}

/* Applies a merge that equals the payload sent, multiplied by `times`. */
static void merge_of(uint64_t round, float times) {
    const uint32_t modes[PARTS] = {TW_APPLY_MIX, TW_APPLY_MIX, TW_APPLY_MIX};
    float *decoded = node_decoded(&nodes[0]);
    for (size_t i = 0; i < n; i++) decoded[i] *= times;
    const struct tw_wmsg_apply request = apply_request(&nodes[0], round, decoded, modes);
    node_apply(&nodes[0], &request);
    free(decoded);
}

TEST(share_is_the_regression_of_the_last_merge) {
    const float times[] = {0.6f, 0.5f, 1.5f, 0.1f, -1.0f};
    const double want[] = {0.6, 0.5, 1, 1.0 / NODES, 1.0 / NODES};
    open_first(TW_SENT_EAGER, TW_CODEC_BF16, 0);
    assert_true(share_given(1) == 1);
    merge_of(1, 0.0f); /* w would be 0, but is at least 1 / M */
    assert_true(fabs(share_given(4) - 1.0 / NODES) < 1e-6);
    for (unsigned i = 0; i < 5; i++) {
        merge_of(4 + 3 * i, times[i]);
        assert_true(fabs(share_given(7 + 3 * i) - want[i]) < 0.01);
    }
    apply_mode(19, TW_APPLY_ABSENT); /* an absent part gives no new estimate of w */
    assert_true(fabs(share_given(22) - 1.0 / NODES) < 0.01);
    node_close(&nodes[0]);
}

TEST(share_that_was_not_merged_is_taken_back) {
    static const uint32_t modes[] = {TW_APPLY_SHIFT, TW_APPLY_ABSENT};
    for (unsigned i = 0; i < 2; i++) {
        open_first(TW_SENT_EAGER, TW_CODEC_BF16, 0);
        const struct tw_inflight *inflight = &nodes[0].merger.inflight;
        node_train(&nodes[0], NULL);
        node_encode(&nodes[0], 1, PARTS);
        assert_true(fabs(held(&nodes[0], inflight->ahead, 5)) > 1e-4);
        apply_mode(1, modes[i]);
        assert_true(fabs(held(&nodes[0], inflight->ahead, 5)) < 1e-8);
        assert_true(fabs(held(&nodes[0], inflight->ahead_u, 5)) < 1e-8);
        node_close(&nodes[0]);
    }
}

TEST(correction_fades_when_nothing_is_sent) {
    struct tw_run run;
    fake_run(&run);
    run.sync.sent = TW_SENT_EAGER;
    run.sync.mix_millionths = 0;
    run.sync.outer_lr_millionths = 700000;
    run.sync.outer_momentum_millionths = 700000;
    memset(nodes, 0, sizeof(nodes));
    node_open(&nodes[0], &run);
    tw_rng_seed(&rng, SEED);
    node_train(&nodes[0], NULL);
    node_encode(&nodes[0], 1, PARTS);
    apply_mode(1, TW_APPLY_MIX);
    double first = 0, last = 0;
    for (size_t i = 0; i < n; i++)
        first += fabs(held(&nodes[0], nodes[0].merger.inflight.ahead, i));
    for (uint64_t r = 4; r < 130; r += 3) {
        nodes[0].dae.pool_used = 0;
        apply_mode(r, TW_APPLY_SHIFT);
    }
    for (size_t i = 0; i < n; i++) last += fabs(held(&nodes[0], nodes[0].merger.inflight.ahead, i));
    print_message("c from %.3g to %.3g\n", first, last);
    assert_true(first > 0 && last < 1e-4 * first);
    node_close(&nodes[0]);
}

TEST(memory_is_only_taken_where_it_is_used) {
    open_first(TW_SENT_MIX, TW_CODEC_BF16, 0);
    assert_null(nodes[0].merger.inflight.memory);
    node_close(&nodes[0]);
    open_first(TW_SENT_KEEP, TW_CODEC_BF16, 0);
    assert_non_null(nodes[0].merger.inflight.given);
    assert_null(nodes[0].merger.inflight.residual);
    assert_null(nodes[0].merger.inflight.ahead);
    node_close(&nodes[0]);
}

/* Freed pages go back to the system; when they are used again, they are zero. */
TEST(memory_of_merged_work_is_given_back) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE) / sizeof(float);
    open_first(TW_SENT_KEEP, TW_CODEC_BF16, 0);
    for (uint64_t round = 1; round < 8; round += FRAGMENTS) {
        node_train(&nodes[0], NULL);
        node_encode(&nodes[0], round, PARTS);
        size_t before = 0, after = 0;
        for (size_t i = 0; i < n; i++)
            before += held(&nodes[0], nodes[0].merger.inflight.given, i) != 0;
        apply_mode(round, TW_APPLY_MIX);
        for (size_t i = 0; i < n; i++)
            after += held(&nodes[0], nodes[0].merger.inflight.given, i) != 0;
        assert_true(before > n / 2);
        assert_true(after < 2 * page && after < before / 2);
    }
    node_close(&nodes[0]);
}

/* ---- eager against its equation ---------------------------------------------------------------
 */

/* The state of one node in the paper, in double: its own anchor and its own momentum. */
struct replica {
    double *phi, *u, *own, *others; /* own: w(t-1) * Delta_m(t-1); others: Delta(t-1) */
    double w;
};

static void replica_step(struct replica *replica, const float *fresh, const struct tw_run *run) {
    const double lr = run->sync.outer_lr_millionths / 1e6;
    const double mu = run->sync.outer_momentum_millionths / 1e6;
    for (size_t i = 0; i < n; i++) {
        const double delta = replica->w * (double)fresh[i] + (replica->others[i] - replica->own[i]);
        if (run->sync.outer == TW_OUTER_HEAVYBALL) {
            replica->u[i] = mu * replica->u[i] + lr * delta;
            replica->phi[i] -= replica->u[i];
        } else {
            replica->u[i] = mu * replica->u[i] + delta;
            replica->phi[i] -= lr * (delta + mu * replica->u[i]);
        }
        replica->own[i] = replica->w * (double)fresh[i];
    }
}

/* Computes w, the regression coefficient of the mean on the node's own delta. */
static void replica_weigh(struct replica *replica, const float *own, const float *mean) {
    double along = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        along += (double)own[i] * (double)mean[i];
        squares += (double)own[i] * (double)own[i];
        replica->others[i] = (double)mean[i];
    }
    replica->w = fmin(fmax(along / squares, 1.0 / NODES), 1.0);
}

/* Computes the mean of the decoded payloads. */
static void merge_all(float *const *decoded, float *mean) {
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (unsigned m = 0; m < NODES; m++) sum += (double)decoded[m][i];
        mean[i] = (float)(sum / NODES);
    }
    const struct tw_codec *codec = nodes[0].merger.result;
    size_t bytes;
    uint8_t *payload = malloc(codec->bound(n));
    assert_int_equal(codec->encode(mean, n, payload, codec->bound(n), &bytes), TW_OK);
    assert_int_equal(codec->decode(payload, bytes, mean, n), TW_OK);
    free(payload);
}

static void eager_round(struct replica *replicas, const struct tw_run *run, uint64_t round) {
    const uint32_t modes[PARTS] = {TW_APPLY_MIX, TW_APPLY_MIX, TW_APPLY_MIX};
    float *decoded[NODES], *mean = calloc(n, sizeof(float));
    for (unsigned m = 0; m < NODES; m++) {
        node_train(&nodes[m], NULL);
        node_encode(&nodes[m], round, PARTS);
        decoded[m] = node_decoded(&nodes[m]);
        replica_step(&replicas[m], decoded[m], run);
        /* theta equals the paper's anchor, from which training continues. */
        for (size_t i = 0; i < n; i++)
            assert_true(fabs((double)live(&nodes[m])[i] - replicas[m].phi[i]) < 1e-5);
    }
    merge_all(decoded, mean);
    for (unsigned m = 0; m < NODES; m++) {
        /* a merge may arrive after more training */
        if (m != round % NODES) node_train(&nodes[m], NULL);
        const struct tw_wmsg_apply request = apply_request(&nodes[m], round, mean, modes);
        node_apply(&nodes[m], &request);
        replica_weigh(&replicas[m], decoded[m], mean);
        free(decoded[m]);
    }
    free(mean);
}

TEST(eager_is_a_mixture_of_own_now_and_others_late) {
    tw_rng_seed(&rng, SEED);
    for (unsigned outer = 0; outer < 2; outer++) {
        struct replica replicas[NODES];
        struct tw_run run;
        fake_run(&run);
        run.sync.sent = TW_SENT_EAGER;
        run.sync.mix_millionths = 0;
        run.sync.nodes = NODES;
        run.sync.outer = outer;
        run.sync.outer_lr_millionths = 700000;
        run.sync.outer_momentum_millionths = 800000;
        run.sync.codec = TW_CODEC_INT4;
        memset(nodes, 0, sizeof(nodes));
        for (unsigned m = 0; m < NODES; m++) {
            node_open(&nodes[m], &run);
            double *zeros = calloc(4 * n, sizeof(double));
            replicas[m] = (struct replica){zeros, zeros + n, zeros + 2 * n, zeros + 3 * n, 1};
        }
        for (uint64_t r = 0; r < 30; r++) eager_round(replicas, &run, FRAGMENT + r * FRAGMENTS);
        for (unsigned m = 0; m < NODES; m++) {
            node_close(&nodes[m]);
            free(replicas[m].phi);
        }
    }
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
