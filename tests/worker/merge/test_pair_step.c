/* Tests of worker/merge/pairing.c: two nodes merge, and no work of either is lost or counted twice.
 *
 * A node consists of a fake daemon's memory, a merger, and a theta that the test moves. */
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

#include "base/rng.h"
#include "compress/lattice.h"
#include "kernels/norm.h"
#include "proto/worker_request.h"
#include "tests/worker/loop/fake_daemon.h"
#include "worker/merge/anchor.h"
#include "worker/merge/pairing.h"

enum { FRAGMENT = 1, NODES = 2, SEED = 23 };

struct node {
    struct fake_daemon dae;
    struct tw_merger merger;
    struct tw_pairing pairing;
    float *theta;
    struct tw_vectors vectors;
    struct tw_span delta, phi;               /* own payloads with their encoded sizes */
    struct tw_span theirs_delta, theirs_phi; /* copies of the partner's payloads */
};

static struct node nodes[NODES];
static size_t n; /* elements of the fragment */
static struct tw_error err;
static struct tw_rng rng;
static struct tw_run run;

static struct tw_shm_view anchor(struct node *node) {
    struct tw_shm_view view;
    tw_shm_view(&node->dae.shm, FRAGMENT, &view);
    return view;
}

static float *live(struct node *node) {
    return tw_merger_theta(&node->merger, FRAGMENT);
}

static float residual(struct node *node, size_t i) {
    const float *e = node->merger.inflight.residual;
    return e == NULL ? 0 : e[node->dae.shm.fragment_begin[FRAGMENT] + i];
}

static void open_all(enum tw_codec_id codec, uint32_t feedback_millionths) {
    tw_rng_seed(&rng, SEED);
    fake_run(&run);
    run.sync.topology = TW_TOPOLOGY_PAIR;
    run.sync.merge = TW_MERGE_MEAN;
    run.sync.lead_millionths = 0;
    run.sync.outer = TW_OUTER_HEAVYBALL;
    run.sync.sent = TW_SENT_KEEP;
    run.sync.mix_millionths = 0;
    run.sync.codec = codec;
    run.sync.feedback_millionths = feedback_millionths;
    run.sync.outer_lr_millionths = 700000;
    run.sync.outer_momentum_millionths = 500000;
    run.sync.consensus_millionths = 700000;
    for (unsigned i = 0; i < NODES; i++) {
        struct node *node = &nodes[i];
        memset(node, 0, sizeof(*node));
        fake_daemon_open(&node->dae, &run, TW_SNAPSHOT_OFF);
        node->theta = calloc((size_t)node->dae.shm.geometry.elements, sizeof(float));
        assert_non_null(node->theta);
        node->vectors = tw_vectors_host(node->theta, NULL, NULL);
        assert_int_equal(
            tw_merger_init(&node->merger, &node->dae.run, &node->dae.shm, &node->vectors, &err),
            TW_OK);
        assert_int_equal(tw_pairing_init(&node->pairing, &node->merger, &err), TW_OK);
    }
    n = (size_t)tw_shm_fragment_elements(&nodes[0].dae.shm, FRAGMENT);
}

static int close_all(void **state) {
    for (unsigned i = 0; i < NODES; i++) {
        tw_pairing_deinit(&nodes[i].pairing);
        tw_merger_deinit(&nodes[i].merger);
        free(nodes[i].theta);
        (void)close(nodes[i].dae.worker_fd);
        fake_daemon_close(&nodes[i].dae);
    }
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

/* Moves theta at random. Returns the sum of the changes of all elements. */
static double train(struct node *node) {
    double went = 0;
    for (size_t i = 0; i < n; i++) {
        const float before = live(node)[i];
        live(node)[i] += (float)(tw_rng_unit(&rng) - 0.3) * 0.02f;
        went += (double)live(node)[i] - (double)before;
    }
    return went;
}

static void encode(struct node *node, uint64_t round, bool is_whole) {
    const size_t room = node->merger.codec->bound(n);
    struct tw_wmsg_encoded reply;
    node->dae.pool_used = 0;
    struct tw_wmsg_pair_encode request = {
        .round = round, .fragment = FRAGMENT, .is_whole = is_whole};
    request.delta = fake_daemon_room(&node->dae, (uint32_t)room);
    request.phi = fake_daemon_room(&node->dae, (uint32_t)tw_lattice_bound(n));
    assert_int_equal(tw_pairing_encode(&node->pairing, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.parts_count, 2);
    assert_int_equal(reply.round, round);
    node->delta = request.delta;
    node->delta.bytes = reply.bytes[TW_PAIR_DELTA];
    node->phi = request.phi;
    node->phi.bytes = reply.bytes[TW_PAIR_PHI];
}

static struct tw_span carried(struct node *to, struct node *from, struct tw_span span) {
    struct tw_span copy = fake_daemon_room(&to->dae, span.bytes);
    memcpy(tw_shm_pool(&to->dae.shm, copy.offset, span.bytes),
           tw_shm_pool(&from->dae.shm, span.offset, span.bytes), span.bytes);
    return copy;
}

static void trade(void) {
    for (unsigned i = 0; i < NODES; i++) {
        struct node *node = &nodes[i], *other = &nodes[1 - i];
        node->theirs_delta = carried(node, other, other->delta);
        node->theirs_phi = carried(node, other, other->phi);
    }
}

static struct tw_wmsg_pair_apply request_of(const struct node *node, uint64_t round,
                                            bool is_alone) {
    struct tw_wmsg_pair_apply request = {
        .round = round, .version = 100, .fragment = FRAGMENT, .is_alone = is_alone};
    if (is_alone) return request;
    request.own.delta = node->delta;
    request.own.phi = node->phi;
    request.theirs.delta = node->theirs_delta;
    request.theirs.phi = node->theirs_phi;
    return request;
}

static struct tw_wmsg_applied apply(struct node *node, uint64_t round, bool is_alone) {
    const struct tw_wmsg_pair_apply request = request_of(node, round, is_alone);
    struct tw_wmsg_applied reply;
    assert_int_equal(tw_pairing_apply(&node->pairing, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.rounds, round + 1);
    return reply;
}

/* Runs a pair round. Returns the distance between the anchors that the first node reports. */
static float exchange(uint64_t round, bool is_whole) {
    float told = 0;
    for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], round, is_whole);
    trade();
    for (unsigned i = NODES; i-- > 0;) {
        const struct tw_wmsg_applied reply = apply(&nodes[i], round, false);
        assert_int_equal(reply.is_alone, 0);
        told = reply.distance;
    }
    return told;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Follows the form and signs of the paper's code, where delta and momentum point along theta - phi.
 */
FACT(a_pair_takes_the_step_of_the_paper) {
    open_all(TW_CODEC_INT8, 0);
    for (uint64_t round = 0; round < 4; round++) {
        double *phi[NODES], *momentum[NODES], *went[NODES];
        for (unsigned i = 0; i < NODES; i++) (void)train(&nodes[i]);
        for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], round, false);
        trade();
        float *decoded = calloc(n, sizeof(float));
        for (unsigned i = 0; i < NODES; i++) {
            phi[i] = calloc(n, sizeof(double));
            momentum[i] = calloc(n, sizeof(double));
            went[i] = calloc(n, sizeof(double));
            struct node *node = &nodes[i];
            assert_int_equal(node->merger.codec->decode(
                                 tw_shm_pool(&node->dae.shm, node->delta.offset, node->delta.bytes),
                                 node->delta.bytes, decoded, n),
                             TW_OK);
            for (size_t k = 0; k < n; k++) {
                phi[i][k] = (double)anchor(node).phi[k];
                momentum[i][k] = -(double)((const float *)anchor(node).u)[k];
                went[i][k] = -(double)decoded[k];
            }
        }
        free(decoded);
        for (unsigned i = 0; i < NODES; i++) {
            double apart = 0, size = 0;
            for (size_t k = 0; k < n; k++) {
                apart += (phi[0][k] - phi[1][k]) * (phi[0][k] - phi[1][k]);
                size += phi[i][k] * phi[i][k];
            }
            const double told = (double)apply(&nodes[i], round, false).distance;
            const double is = size > 0 ? sqrt(apart / size) : 0;
            /* inexact: the partner's anchor comes from lattice form */
            assert_true(fabs(told - is) < 0.1 * is + 1e-6);
        }
        const float step = nodes[0].pairing.distance[FRAGMENT] / 32;
        for (unsigned i = 0; i < NODES; i++) {
            for (size_t k = 0; k < n; k++) {
                const double mean_went = (went[0][k] + went[1][k]) / 2;
                const double mean_phi = (phi[0][k] + phi[1][k]) / 2;
                const double delta =
                    0.5 * momentum[i][k] + 0.7 * mean_went + 0.7 * (mean_phi - phi[i][k]);
                assert_true(fabs(-delta - (double)((const float *)anchor(&nodes[i]).u)[k]) <
                            1e-6 + (double)step);
                assert_true(fabs(phi[i][k] + delta - (double)anchor(&nodes[i]).phi[k]) <
                            1e-6 + (double)step);
            }
        }
        for (unsigned i = 0; i < NODES; i++) {
            free(phi[i]);
            free(momentum[i]);
            free(went[i]);
        }
    }
}

FACT(both_ends_read_the_same_anchors) {
    open_all(TW_CODEC_INT8, 0);
    for (uint64_t round = 0; round < 5; round++) {
        for (unsigned i = 0; i < NODES; i++) (void)train(&nodes[i]);
        (void)exchange(round, false);
        assert_memory_equal(nodes[0].pairing.own, nodes[1].pairing.theirs, n * sizeof(float));
        assert_memory_equal(nodes[1].pairing.own, nodes[0].pairing.theirs, n * sizeof(float));
        /* At first, phi is sent whole, then with one byte per element. */
        if (round == 0) assert_int_equal(nodes[0].phi.bytes, tw_lattice_bound(n));
        if (round > 0) assert_in_range(nodes[0].phi.bytes, n, n + n / 256 + 16);
    }
    encode(&nodes[0], 5, true);
    assert_int_equal(nodes[0].phi.bytes, tw_lattice_bound(n));
}

FACT(anchors_of_a_pair_come_together) {
    open_all(TW_CODEC_INT8, 0);
    (void)train(&nodes[0]); /* the anchors part */
    (void)apply(&nodes[0], 0, true);
    (void)apply(&nodes[1], 0, true);
    const float apart = tw_lattice_distance(anchor(&nodes[0]).phi, anchor(&nodes[1]).phi, n);
    const float told = exchange(1, false);
    for (uint64_t round = 2; round < 11; round++) (void)exchange(round, false);
    /* the distance is reported to the daemon */
    assert_true(told > 0 && exchange(11, false) < told / 5);
    const float now = tw_lattice_distance(anchor(&nodes[0]).phi, anchor(&nodes[1]).phi, n);
    assert_true(now < apart / 5);
}

/* Fills the guard's history with large distances, so that no share is scaled down. */
static void are_often_far_apart(struct node *node) {
    struct tw_pair_guard *guard = &node->pairing.guards[FRAGMENT];
    guard->count = TW_PAIR_GUARD_KEPT;
    for (unsigned i = 0; i < TW_PAIR_GUARD_KEPT; i++) guard->deltas[i] = guard->aparts[i] = 4;
}

/* With eta = 1, mu = 0 and beta = 1, only training changes the sum of theta - (1 - rho) * e over
 * both nodes, up to rounding. That holds for lossy codecs, for merges and for steps alone, and for
 * work that was sent in vain. */
FACT(nothing_is_lost_between_two) {
    const enum tw_codec_id codecs[] = {TW_CODEC_ECSQ05, TW_CODEC_SIGN, TW_CODEC_ECSQ2};
    for (unsigned c = 0; c < 3; c++) {
        if (c > 0) (void)close_all(NULL);
        open_all(codecs[c], 1000000);
        for (unsigned i = 0; i < NODES; i++) {
            nodes[i].dae.run.sync.outer_lr_millionths = 1000000;
            nodes[i].dae.run.sync.outer_momentum_millionths = 0;
            nodes[i].dae.run.sync.feedback_local_millionths = c * 500000;
        }
        double went = 0, stands = 0, moved = 0;
        for (uint64_t round = 0; round < 40; round++) {
            for (unsigned i = 0; i < NODES; i++) {
                went += train(&nodes[i]);
                are_often_far_apart(&nodes[i]);
            }
            if (round % 7 == 3) { /* both payloads are lost, so each node steps alone */
                for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], round, false);
                for (unsigned i = 0; i < NODES; i++) (void)apply(&nodes[i], round, true);
            } else if (round % 7 == 5) { /* the Delta of node 0 is never applied */
                encode(&nodes[0], round, false);
                (void)apply(&nodes[1], round, true);
            } else {
                /* phi is sent whole once the anchors have parted */
                (void)exchange(round, round % 7 == 4 || round % 7 == 6);
            }
        }
        for (unsigned i = 0; i < NODES; i++) {
            for (size_t k = 0; k < n; k++) {
                stands += (double)live(&nodes[i])[k];
                stands -= (1 - c * 0.5) * (double)residual(&nodes[i], k);
                moved += fabs((double)live(&nodes[i])[k]);
            }
        }
        assert_true(moved > 1);
        assert_true(fabs(stands - went) < 1e-5 * moved);
    }
}

/* ---- alone ----------------------------------------------------------------------------------- */

FACT(alone_takes_all_of_it_exactly) {
    open_all(TW_CODEC_SIGN, 1000000);
    for (unsigned i = 0; i < NODES; i++) nodes[i].dae.run.sync.outer_lr_millionths = 1000000;
    (void)train(&nodes[0]);
    memcpy(live(&nodes[1]), live(&nodes[0]), n * sizeof(float));
    encode(&nodes[0], 0, false); /* one node has sent its share, the other found no partner */
    for (unsigned i = 0; i < NODES; i++) (void)apply(&nodes[i], 0, true);
    assert_memory_equal(anchor(&nodes[0]).phi, anchor(&nodes[1]).phi, n * sizeof(float));
    assert_memory_equal(live(&nodes[0]), live(&nodes[1]), n * sizeof(float));
    for (size_t k = 0; k < n; k++) {
        assert_true(residual(&nodes[0], k) == 0.0f);
        assert_true(fabsf(live(&nodes[0])[k] - anchor(&nodes[0]).phi[k]) < 1e-6f);
    }
}

FACT(work_done_meanwhile_stays) {
    open_all(TW_CODEC_INT8, 0);
    for (unsigned alone = 0; alone < 2; alone++) {
        (void)train(&nodes[0]);
        (void)train(&nodes[1]);
        for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], alone, false);
        trade();
        float *before = calloc(n, sizeof(float));
        memcpy(before, live(&nodes[0]), n * sizeof(float));
        (void)train(&nodes[0]);
        for (size_t k = 0; k < n; k++) before[k] = live(&nodes[0])[k] - before[k];
        (void)apply(&nodes[0], alone, alone == 1);
        (void)apply(&nodes[1], alone, alone == 1);
        for (size_t k = 0; k < n; k++)
            assert_true(fabsf(live(&nodes[0])[k] - anchor(&nodes[0]).phi[k] - before[k]) < 1e-6f);
        free(before);
    }
}

static void assert_refused(struct tw_wmsg_applied reply) {
    assert_int_equal(reply.is_alone, 1);
    assert_int_equal(reply.is_outlier, 1);
    for (size_t k = 0; k < n; k++) assert_true(fabsf(anchor(&nodes[0]).phi[k]) < 1.0f);
}

/* A partner has diverged: its values are finite, but far beyond those of training. */
FACT(far_too_large_share_is_done_without) {
    open_all(TW_CODEC_INT8, 0);
    for (uint64_t round = 0; round < TW_PAIR_GUARD_LEAST; round++) {
        (void)train(&nodes[0]);
        (void)train(&nodes[1]);
        (void)exchange(round, false);
    }
    const uint64_t round = TW_PAIR_GUARD_LEAST;
    (void)train(&nodes[0]);
    for (size_t k = 0; k < n; k++) live(&nodes[1])[k] += 1e4f;
    for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], round, true);
    trade();
    assert_refused(apply(&nodes[0], round, false));
    /* Node 1's anchor is refused too, once it contains those values. */
    (void)apply(&nodes[1], round, true);
    for (unsigned i = 0; i < NODES; i++) {
        (void)train(&nodes[i]);
        encode(&nodes[i], round + 1, true);
    }
    trade();
    assert_refused(apply(&nodes[0], round + 1, false));
}

/* Trains node 0 and copies the result to node 1, so that their anchors stay equal. */
static void train_alike(void) {
    (void)train(&nodes[0]);
    memcpy(live(&nodes[1]), live(&nodes[0]), n * sizeof(float));
}

/* Runs a pair round. Returns how far the first node's anchor moves, relative to the norm of its
 * Delta. */
static double went_in(uint64_t round, struct tw_wmsg_applied *reply) {
    float *before = calloc(n, sizeof(float));
    memcpy(before, anchor(&nodes[0]).phi, n * sizeof(float));
    const double size = sqrt(tw_distance_squared(live(&nodes[0]), before, n));
    for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], round, true);
    trade();
    *reply = apply(&nodes[0], round, false);
    (void)apply(&nodes[1], round, false);
    const double went = sqrt(tw_distance_squared(anchor(&nodes[0]).phi, before, n));
    free(before);
    return went / size;
}

/* Of opposite Deltas, one five times as large is scaled down to three times, one ten times as large
 * is refused. */
FACT(a_large_share_is_scaled_down_before_it_is_refused) {
    struct tw_wmsg_applied reply;
    open_all(TW_CODEC_BF16, 0);
    for (unsigned i = 0; i < NODES; i++) {
        nodes[i].dae.run.sync.outer_lr_millionths = 1000000;
        nodes[i].dae.run.sync.outer_momentum_millionths = 0;
    }
    uint64_t round = 0;
    for (; round < TW_PAIR_GUARD_LEAST; round++) {
        train_alike();
        (void)exchange(round, true);
    }
    for (int times = 5; times <= 10; times += 5) {
        train_alike();
        const float *phi = anchor(&nodes[1]).phi;
        for (size_t k = 0; k < n; k++)
            live(&nodes[1])[k] = phi[k] - (float)times * (live(&nodes[1])[k] - phi[k]);
        const double went = went_in(round++, &reply);
        assert_int_equal(reply.is_alone, times == 10);
        assert_int_equal(reply.is_outlier, times == 10);
        assert_true(fabs(went - 1) < 0.1); /* |(1 - 3) / 2| or, alone, 1; not |(1 - 5) / 2| */
        memcpy(live(&nodes[0]), anchor(&nodes[0]).phi, n * sizeof(float));
        memcpy(live(&nodes[1]), anchor(&nodes[1]).phi, n * sizeof(float));
    }
}

/* A node that returns from far away pulls no harder than one at twice the usual distance. */
FACT(an_anchor_far_away_draws_no_further_than_is_usual) {
    struct tw_wmsg_applied reply;
    open_all(TW_CODEC_BF16, 0);
    for (unsigned i = 0; i < NODES; i++) nodes[i].dae.run.sync.outer_momentum_millionths = 0;
    uint64_t round = 0;
    for (; round < TW_PAIR_GUARD_LEAST; round++) {
        train_alike();
        (void)exchange(round, true);
    }
    for (size_t k = 0; k < n; k++) live(&nodes[1])[k] += k % 2 == 0 ? 0.2f : -0.2f;
    for (unsigned i = 0; i < NODES; i++) (void)apply(&nodes[i], round, true);
    for (unsigned i = 0; i < NODES; i++) (void)train(&nodes[i]);
    const double went = went_in(round + 1, &reply);
    assert_int_equal(reply.is_alone, 0);
    assert_true(reply.distance > 1);
    assert_true(went < 0.7 + 0.7 + 0.1); /* eta + gamma / 2 * 2; without the limit, above 5 */
}

FACT(unreadable_share_is_done_without) {
    open_all(TW_CODEC_INT8, 0);
    for (uint64_t round = 0; round < 2; round++) {
        (void)train(&nodes[0]);
        (void)exchange(round, false);
    }
    /* The anchors are too far apart to decode the next lattice form. */
    (void)train(&nodes[1]);
    for (size_t k = 0; k < n; k++) live(&nodes[1])[k] += 1.0f;
    (void)apply(&nodes[0], 2, true);
    (void)apply(&nodes[1], 2, true);
    for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], 3, false);
    trade();
    for (unsigned i = 0; i < NODES; i++) assert_int_equal(apply(&nodes[i], 3, false).is_alone, 1);
    /* A phi that is sent whole can be decoded. */
    for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], 4, true);
    trade();
    for (unsigned i = 0; i < NODES; i++) assert_int_equal(apply(&nodes[i], 4, false).is_alone, 0);
    /* Damaged outer gradients and payloads of a wrong content type. */
    for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], 5, false);
    trade();
    nodes[0].theirs_delta.bytes--;
    nodes[1].theirs_phi = nodes[1].theirs_delta;
    for (unsigned i = 0; i < NODES; i++) assert_int_equal(apply(&nodes[i], 5, false).is_alone, 1);
}

/* ---- requests -------------------------------------------------------------------------------- */

FACT(rounds_are_taken_once_and_only_when_sent) {
    open_all(TW_CODEC_INT8, 0);
    struct tw_wmsg_applied reply;
    for (unsigned i = 0; i < NODES; i++) (void)train(&nodes[i]);
    (void)exchange(0, false);
    const struct tw_id digest = anchor(&nodes[0]).state.digest;
    struct tw_wmsg_pair_apply request = request_of(&nodes[0], 0, false);
    assert_int_equal(tw_pairing_apply(&nodes[0].pairing, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.rounds, 1);
    assert_memory_equal(&reply.digest, &digest, sizeof(digest));
    request.round = 1; /* node 0 sent nothing in this round */
    assert_int_equal(tw_pairing_apply(&nodes[0].pairing, &request, &reply, &err), TW_AGAIN);
    assert_non_null(strstr(err.message, "nothing of fragment"));
    assert_int_equal(reply.rounds, 1);
    encode(&nodes[0], 1, false);
    request = request_of(&nodes[0], 1, false);
    request.own.delta.bytes--; /* a damaged own payload */
    assert_int_equal(tw_pairing_apply(&nodes[0].pairing, &request, &reply, &err), TW_CORRUPT);
    request.own.delta.offset = UINT64_MAX - 5;
    assert_int_equal(tw_pairing_apply(&nodes[0].pairing, &request, &reply, &err), TW_PROTO);
    request.fragment = 99;
    assert_int_equal(tw_pairing_apply(&nodes[0].pairing, &request, &reply, &err), TW_PROTO);
    const struct tw_id still = anchor(&nodes[0]).state.digest;
    assert_memory_equal(&still, &digest, sizeof(digest));
}

FACT(group_has_no_pairs) {
    open_all(TW_CODEC_INT8, 0);
    tw_pairing_deinit(&nodes[0].pairing);
    nodes[0].dae.run.sync.topology = TW_TOPOLOGY_GROUP;
    assert_int_equal(tw_pairing_init(&nodes[0].pairing, &nodes[0].merger, &err), TW_OK);
    assert_null(nodes[0].pairing.own);
    const struct tw_wmsg_pair_apply request = request_of(&nodes[0], 0, true);
    struct tw_wmsg_applied reply;
    assert_int_equal(tw_pairing_apply(&nodes[0].pairing, &request, &reply, &err), TW_PROTO);
    assert_non_null(strstr(err.message, "not one in pairs"));
}

FACT(numbers_that_are_not_finite_go_nowhere) {
    open_all(TW_CODEC_INT8, 0);
    live(&nodes[0])[7] = NAN;
    struct tw_wmsg_pair_apply request = request_of(&nodes[0], 0, true);
    struct tw_wmsg_applied reply;
    assert_int_equal(tw_pairing_apply(&nodes[0].pairing, &request, &reply, &err), TW_CORRUPT);
    assert_int_equal(reply.rounds, 0);
    struct tw_wmsg_encoded encoded;
    struct tw_wmsg_pair_encode send = {.fragment = FRAGMENT};
    send.delta = fake_daemon_room(&nodes[0].dae, (uint32_t)nodes[0].merger.codec->bound(n));
    send.phi = fake_daemon_room(&nodes[0].dae, (uint32_t)tw_lattice_bound(n));
    assert_int_equal(tw_pairing_encode(&nodes[0].pairing, &send, &encoded, &err), TW_CORRUPT);
    assert_int_equal(encoded.bytes[TW_PAIR_PHI], 0);
    send.phi.bytes = 5;
    assert_int_equal(tw_pairing_encode(&nodes[0].pairing, &send, &encoded, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "could not be encoded"));
}

FACT(the_last_round_leaves_theta_at_the_anchor) {
    open_all(TW_CODEC_SIGN, 1000000);
    for (unsigned i = 0; i < NODES; i++) (void)train(&nodes[i]);
    for (unsigned i = 0; i < NODES; i++) encode(&nodes[i], 0, false);
    trade();
    struct tw_wmsg_pair_apply request = request_of(&nodes[0], 0, false);
    struct tw_wmsg_applied reply;
    request.is_final = 1;
    assert_int_equal(tw_pairing_apply(&nodes[0].pairing, &request, &reply, &err), TW_OK);
    assert_memory_equal(live(&nodes[0]), anchor(&nodes[0]).phi, n * sizeof(float));
}

static void solo_puts_back(uint32_t local_millionths) {
    const float apart = 1.0f - (float)local_millionths / 1e6f;
    open_all(TW_CODEC_SIGN, 1000000);
    for (unsigned i = 0; i < NODES; i++)
        nodes[i].dae.run.sync.feedback_local_millionths = local_millionths;
    for (unsigned i = 0; i < NODES; i++) (void)train(&nodes[i]);
    (void)exchange(0, false);
    float *expected = calloc(n, sizeof(float));
    double lost = 0;
    for (size_t k = 0; k < n; k++) {
        expected[k] = live(&nodes[0])[k] - apart * residual(&nodes[0], k);
        lost += fabs((double)residual(&nodes[0], k));
    }
    assert_true(lost > 0.1);
    const struct tw_wmsg_solo request = {.round = 1, .fragment = FRAGMENT};
    struct tw_wmsg_applied reply;
    assert_int_equal(tw_anchor_solo(&nodes[0].merger, &request, &reply, &err), TW_OK);
    for (size_t k = 0; k < n; k++) assert_true(fabsf(live(&nodes[0])[k] - expected[k]) < 1e-6f);
    assert_memory_equal(anchor(&nodes[0]).phi, live(&nodes[0]), n * sizeof(float));
    for (size_t k = 0; k < n; k++) assert_true(residual(&nodes[0], k) == 0.0f);
    free(expected);
}

/* A solo round puts the residual back into theta, except for the share that theta already contains.
 */
FACT(solo_puts_the_residual_back) {
    solo_puts_back(0);
    (void)close_all(NULL);
    solo_puts_back(600000);
}
