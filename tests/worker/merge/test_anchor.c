/* Tests of worker/merge/anchor.c. */
#include "tests/test.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/norm.h"
#include "proto/worker_request.h"
#include "tests/worker/merge/two_nodes.h"
#include "worker/merge/anchor.h"
#include "worker/merge/merger.h"

#define FACT(name) TEST_IN(open_two, close_two, name)

FACT(two_nodes_end_with_the_same_bits) {
    for (uint64_t r = 0; r < 12; r++) {
        struct round round = {.round = r, .fragment = (uint32_t)(r % 3)};
        node_step(&nodes[0], 4);
        node_step(&nodes[1], 3); /* slower */
        round_merge(&round);
        const uint32_t modes[2] = {TW_APPLY_MIX, r % 4 == 1 ? TW_APPLY_SHIFT : TW_APPLY_MIX};
        struct tw_wmsg_applied replies[2];
        for (int i = 0; i < 2; i++) {
            const struct tw_wmsg_apply request = round_apply(&round, i, modes[i]);
            assert_int_equal(tw_anchor_apply(&nodes[i].merger, &request, &replies[i], &err), TW_OK);
            assert_int_equal(replies[i].rounds, r + 1);
            check_digest(&nodes[i], round.fragment);
        }
        assert_memory_equal(&replies[0].digest, &replies[1].digest, sizeof(struct tw_id));
    }
    for (uint32_t p = 0; p < 3; p++) {
        const struct tw_shm_view a = view_of(&nodes[0], p), b = view_of(&nodes[1], p);
        assert_memory_equal(a.phi, b.phi, a.elements * sizeof(float));
        assert_memory_equal(a.u, b.u, a.elements * sizeof(float));
        assert_true(tw_norm_squared(a.u, a.elements) > 0);
    }
    /* The nodes learnt different targets, so the anchor is nearer to the shared target than either
     * node. */
    double loss_anchor, loss[2];
    tw_shm_settle(&nodes[0].dae.shm);
    float *phi;
    void *u;
    tw_shm_home(&nodes[0].dae.shm, 0, &phi, &u);
    (void)nodes[0].learner.heldout(nodes[0].learner.self, phi, &loss_anchor, &err);
    (void)nodes[0].learner.heldout(nodes[0].learner.self, nodes[0].learner.theta, &loss[0], &err);
    (void)nodes[1].learner.heldout(nodes[1].learner.self, nodes[1].learner.theta, &loss[1], &err);
    print_message("loss anchor %.4f, live %.4f and %.4f\n", loss_anchor, loss[0], loss[1]);
    assert_true(isfinite(loss_anchor));
}

/* Applies a merge of fragment 1, in which the second part is missing, on the first node. The stub
 * learner has no moments, so the test provides m and v. */
static void lead_by(struct tw_wmsg_apply *request, float *m, const float *v) {
    struct tw_wmsg_applied reply;
    nodes[0].merger.inner.m = m;
    nodes[0].merger.inner.v = v;
    nodes[0].merger.inner.lr = 0.05f;
    nodes[0].merger.inner.correction2 = 0.5f;
    assert_int_equal(tw_anchor_apply(&nodes[0].merger, request, &reply, &err), TW_OK);
}

FACT(a_merge_leads_the_inner_momentum_once) {
    (void)close_two(NULL);
    open_with(0, TW_CODEC_BF16);
    nodes[0].dae.run.sync.lead_millionths = 500000;
    struct round round = {.round = 0, .fragment = 1};
    node_step(&nodes[0], 2);
    node_step(&nodes[1], 2);
    round_merge(&round);
    const size_t all = (size_t)nodes[0].dae.layout.elements;
    const size_t at = (size_t)nodes[0].dae.shm.fragment_begin[1];
    float *m = calloc(all, sizeof(float)), *v = calloc(all, sizeof(float)),
          *before = calloc(all, sizeof(float));
    for (size_t i = 0; i < all; i++) {
        before[i] = m[i] = sinf((float)i);
        v[i] = 1e-4f;
    }
    struct tw_wmsg_apply request = round_apply(&round, 0, TW_APPLY_MIX);
    request.parts[1].mode = TW_APPLY_ABSENT;
    request.steps = 2;
    const struct tw_shm_view old = view_of(&nodes[0], 1);
    float *phi = malloc((size_t)old.elements * sizeof(float));
    memcpy(phi, old.phi, (size_t)old.elements * sizeof(float));
    lead_by(&request, m, v);
    const struct tw_shm_view led = view_of(&nodes[0], 1);
    for (size_t i = 0; i < all; i++) {
        const bool is_led = i >= at && i < at + request.parts[0].count;
        assert_int_equal(m[i] != before[i], is_led);
        if (!is_led) continue;
        /* phi' = phi - 0.7 * delta; each Delta of this fragment spans two steps. */
        const float delta = (phi[i - at] - led.phi[i - at]) / 0.7f;
        const float step = sqrtf(v[i] / 0.5f) * delta / (0.05f * 2);
        assert_float_equal(m[i], (before[i] + step) / 2, 1e-5);
    }
    free(phi);
    memcpy(m, before, all * sizeof(float));
    lead_by(&request, m, v); /* repeating a round changes nothing */
    assert_memory_equal(m, before, all * sizeof(float));
    round.round = 3;
    node_step(&nodes[0], 2);
    node_step(&nodes[1], 2);
    round_merge(&round);
    request = round_apply(&round, 0, TW_APPLY_MIX); /* steps: not known */
    lead_by(&request, m, v);
    assert_memory_equal(m, before, all * sizeof(float));
    free(m);
    free(v);
    free(before);
}

FACT(outer_step_and_mix_are_the_formula) {
    (void)close_two(NULL);
    open_with(0, TW_CODEC_BF16); /* no momentum: phi' = phi - 0.7 * delta */
    struct round round = {.round = 0, .fragment = 1};
    node_step(&nodes[0], 2);
    node_step(&nodes[1], 2);
    const struct tw_shm_view before = view_of(&nodes[0], 1);
    const size_t n = (size_t)before.elements;
    float *phi = malloc(n * sizeof(float)), *theta = malloc(n * sizeof(float)),
          *other = malloc(n * sizeof(float));
    memcpy(phi, before.phi, n * sizeof(float));
    memcpy(theta, tw_merger_theta(&nodes[0].merger, 1), n * sizeof(float));
    memcpy(other, tw_merger_theta(&nodes[1].merger, 1), n * sizeof(float));
    round_merge(&round);
    struct tw_wmsg_applied reply;
    struct tw_wmsg_apply request = round_apply(&round, 0, TW_APPLY_MIX);
    request.parts[1].mode = TW_APPLY_SHIFT;
    assert_int_equal(tw_anchor_apply(&nodes[0].merger, &request, &reply, &err), TW_OK);
    const struct tw_shm_view after = view_of(&nodes[0], 1);
    const float *live = tw_merger_theta(&nodes[0].merger, 1);
    for (size_t i = 0; i < n; i++) {
        const float delta = phi[i] - (theta[i] + other[i]) / 2;
        const float wanted = phi[i] - 0.7f * delta;
        const float rounding = 0.01f * (fabsf(phi[i] - theta[i]) + fabsf(phi[i] - other[i]));
        assert_true(fabsf(after.phi[i] - wanted) <= rounding + 1e-6f);
        const bool is_mixed = i < round.count[0];
        const float followed =
            is_mixed ? 0.5f * theta[i] + 0.5f * after.phi[i] : theta[i] + (after.phi[i] - phi[i]);
        assert_true(fabsf(live[i] - followed) <= 1e-6f);
    }
    free(phi);
    free(theta);
    free(other);
}

/* Takes one step of the heavy-ball rule in double. The norms cover all parts that are present. */
static void heavy_step(double *phi, double *u, const float *delta, const bool *is_in, size_t n,
                       double mu) {
    double u_squared = 0, delta_squared = 0, count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_in[i]) continue;
        u_squared += u[i] * u[i];
        delta_squared += (double)delta[i] * (double)delta[i];
        count++;
    }
    const double step = 0.7 * sqrt(delta_squared);
    const double gain = 1 / (1 + 1.5 * (1 - mu) * sqrt(u_squared) / step);
    const double limit = 0.75 * step / sqrt(count) / (1 - mu);
    for (size_t i = 0; i < n; i++) {
        if (!is_in[i]) continue;
        u[i] = fmax(-limit, fmin(limit, mu * u[i] + 0.7 * gain * (double)delta[i]));
        phi[i] -= u[i];
    }
}

static void decode_results(const struct round *round, const struct tw_wmsg_apply *request,
                           float *delta, bool *is_in) {
    const struct tw_merger *merger = &nodes[0].merger;
    for (uint32_t k = 0; k < PARTS; k++) {
        const struct tw_span *in = &request->parts[k].in;
        const bool is_present = request->parts[k].mode != TW_APPLY_ABSENT;
        for (uint64_t i = 0; i < round->count[k]; i++) is_in[round->begin[k] + i] = is_present;
        if (!is_present) continue;
        assert_int_equal(merger->result->decode(tw_shm_pool(merger->shm, in->offset, in->bytes),
                                                in->bytes, delta + round->begin[k],
                                                (size_t)round->count[k]),
                         TW_OK);
    }
}

FACT(heavy_ball_uses_norms_of_the_whole_fragment) {
    (void)close_two(NULL);
    struct tw_run run;
    run_with(&run, 800000, TW_CODEC_INT8);
    run.sync.outer = TW_OUTER_HEAVYBALL;
    run.sync.gap_penalty_millionths = 1500000;
    run.sync.momentum_clip_millionths = 750000;
    for (uint64_t i = 0; i < 2; i++) node_open(&nodes[i], i + 1, &run);
    const size_t n = (size_t)tw_shm_fragment_elements(&nodes[0].dae.shm, 1);
    double *phi = calloc(n, sizeof(double)), *u = calloc(n, sizeof(double));
    float *delta = calloc(n, sizeof(float));
    bool *is_in = calloc(n, sizeof(bool));
    for (size_t i = 0; i < n; i++) phi[i] = (double)view_of(&nodes[0], 1).phi[i];
    for (uint64_t r = 0; r < 8; r++) {
        struct round round = {.round = 1 + 3 * r, .fragment = 1};
        for (int i = 0; i < 2; i++) node_step(&nodes[i], 3);
        round_merge(&round);
        struct tw_wmsg_applied replies[2];
        for (int i = 0; i < 2; i++) {
            struct tw_wmsg_apply request = round_apply(&round, i, TW_APPLY_MIX);
            if (r % 3 == 2) request.parts[r % 2].mode = TW_APPLY_ABSENT;
            if (i == 0) decode_results(&round, &request, delta, is_in);
            assert_int_equal(tw_anchor_apply(&nodes[i].merger, &request, &replies[i], &err), TW_OK);
        }
        assert_memory_equal(&replies[0].digest, &replies[1].digest, sizeof(struct tw_id));
        heavy_step(phi, u, delta, is_in, n, r < 4 ? 0.2 * (double)r : 0.8);
        for (size_t i = 0; i < n; i++) {
            assert_true(fabs((double)view_of(&nodes[0], 1).phi[i] - phi[i]) < 1e-5);
            assert_true(fabs((double)((const float *)view_of(&nodes[0], 1).u)[i] - u[i]) < 1e-5);
        }
    }
    free(phi), free(u), free(delta), free(is_in);
}

FACT(round_is_applied_exactly_once) {
    struct round round = {.round = 3, .fragment = 0};
    node_step(&nodes[0], 2);
    node_step(&nodes[1], 2);
    round_merge(&round);
    struct tw_wmsg_apply request = round_apply(&round, 0, TW_APPLY_MIX);
    struct tw_wmsg_applied first, again;
    assert_int_equal(tw_anchor_apply(&nodes[0].merger, &request, &first, &err), TW_OK);
    const float live = nodes[0].learner.theta[7];
    assert_int_equal(tw_anchor_apply(&nodes[0].merger, &request, &again, &err), TW_OK);
    assert_memory_equal(&first, &again, sizeof(first));
    assert_true(nodes[0].learner.theta[7] == live);
    request.round = 0; /* an older round */
    assert_int_equal(tw_anchor_apply(&nodes[0].merger, &request, &again, &err), TW_OK);
    assert_memory_equal(&first, &again, sizeof(first));
    check_digest(&nodes[0], 0);
}

FACT(absent_part_changes_nothing) {
    struct round round = {.round = 0, .fragment = 2};
    node_step(&nodes[0], 2);
    node_step(&nodes[1], 2);
    round_merge(&round);
    const size_t n = (size_t)tw_shm_fragment_elements(&nodes[0].dae.shm, 2);
    struct tw_shm_view before = view_of(&nodes[0], 2);
    float *phi = malloc(n * sizeof(float)), *theta = malloc(n * sizeof(float));
    memcpy(phi, before.phi, n * sizeof(float));
    memcpy(theta, tw_merger_theta(&nodes[0].merger, 2), n * sizeof(float));
    struct tw_wmsg_apply request = round_apply(&round, 0, TW_APPLY_MIX);
    request.parts[1].mode = TW_APPLY_ABSENT;
    memset(&request.parts[1].in, 0, sizeof(request.parts[1].in));
    struct tw_wmsg_applied reply;
    assert_int_equal(tw_anchor_apply(&nodes[0].merger, &request, &reply, &err), TW_OK);
    const struct tw_shm_view after = view_of(&nodes[0], 2);
    const size_t cut = (size_t)round.begin[1];
    assert_true(cut > 0 && cut < n);
    assert_memory_not_equal(after.phi, phi, cut * sizeof(float));
    assert_memory_equal(after.phi + cut, phi + cut, (n - cut) * sizeof(float));
    assert_memory_equal(tw_merger_theta(&nodes[0].merger, 2) + cut, theta + cut,
                        (n - cut) * sizeof(float));
    free(phi);
    free(theta);
}

FACT(damaged_result_changes_nothing) {
    struct round round = {.round = 0, .fragment = 1};
    node_step(&nodes[0], 2);
    node_step(&nodes[1], 2);
    round_merge(&round);
    struct tw_wmsg_apply request = round_apply(&round, 0, TW_APPLY_MIX);
    const struct tw_id digest = view_of(&nodes[0], 1).state.digest;
    const float live = tw_merger_theta(&nodes[0].merger, 1)[3];
    struct tw_wmsg_applied reply;
    request.parts[1].in.bytes--; /* the second part is damaged, the first one valid */
    assert_int_equal(tw_anchor_apply(&nodes[0].merger, &request, &reply, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "result of part 1"));
    assert_int_equal(reply.status, TW_CORRUPT);
    assert_int_equal(reply.rounds, 0);
    assert_memory_equal(&reply.digest, &digest, sizeof(digest));
    check_digest(&nodes[0], 1);
    assert_true(tw_merger_theta(&nodes[0].merger, 1)[3] == live);
    request.parts[1].in.bytes++;
    assert_int_equal(tw_anchor_apply(&nodes[0].merger, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.rounds, 1);
}

FACT(overflowing_merge_is_refused) {
    (void)close_two(NULL);
    open_with(0, TW_CODEC_BF16);
    struct node *node = &nodes[0];
    const size_t n = (size_t)tw_shm_fragment_elements(&node->dae.shm, 1);
    float *phi;
    void *u;
    tw_shm_home(&node->dae.shm, 1, &phi, &u);
    phi[0] = -3e38f;
    const struct tw_shm_state was = {.digest = tw_shm_digest(phi, u, n, node->dae.shm.momentum)};
    tw_shm_home_set(&node->dae.shm, 1, &was);
    float *delta = calloc(n, sizeof(float));
    size_t bytes = 0;
    delta[0] = 3e38f;
    struct tw_wmsg_apply request = {.fragment = 1, .parts_count = 1};
    request.parts[0].count = n;
    request.parts[0].mode = TW_APPLY_MIX;
    request.parts[0].in = fake_daemon_room(&node->dae, ROOM);
    const struct tw_span *in = &request.parts[0].in;
    assert_int_equal(node->merger.result->encode(delta, n,
                                                 tw_shm_pool(&node->dae.shm, in->offset, in->bytes),
                                                 in->bytes, &bytes),
                     TW_OK);
    request.parts[0].in.bytes = (uint32_t)bytes;
    struct tw_wmsg_applied reply;
    assert_int_equal(tw_anchor_apply(&node->merger, &request, &reply, &err), TW_CORRUPT);
    assert_int_equal(reply.rounds, 0);
    check_digest(node, 1);
    free(delta);
}

FACT(final_round_sets_theta_to_the_anchor) {
    struct round round = {.round = 0, .fragment = 1};
    node_step(&nodes[0], 2);
    node_step(&nodes[1], 2);
    round_merge(&round);
    for (int i = 0; i < 2; i++) {
        struct tw_wmsg_applied reply;
        struct tw_wmsg_apply request =
            round_apply(&round, i, i == 0 ? TW_APPLY_MIX : TW_APPLY_SHIFT);
        request.is_final = 1;
        assert_int_equal(tw_anchor_apply(&nodes[i].merger, &request, &reply, &err), TW_OK);
        const struct tw_shm_view after = view_of(&nodes[i], 1);
        assert_memory_equal(tw_merger_theta(&nodes[i].merger, 1), after.phi,
                            after.elements * sizeof(float));
    }
}

/* The anchor already belongs to the new lineage, theta still to the old one. */
FACT(theta_of_another_lineage_stays) {
    struct round round = {.round = 0, .fragment = 1};
    struct tw_wmsg_applied reply;
    struct tw_merger *merger = &nodes[1].merger;
    node_step(&nodes[0], 2);
    node_step(&nodes[1], 2);
    round_merge(&round);
    const struct tw_wmsg_load load = {
        .fragment = 1, .mode = TW_LOAD_KEEP, .digest = view_of(&nodes[1], 1).state.digest};
    assert_int_equal(tw_anchor_load(merger, &load, &reply, &err), TW_OK);
    const float theta = tw_merger_theta(merger, 1)[9], phi = view_of(&nodes[1], 1).phi[9];
    struct tw_wmsg_apply request = round_apply(&round, 1, TW_APPLY_STAY);
    assert_int_equal(tw_anchor_apply(merger, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.rounds, 1);
    assert_true(view_of(&nodes[1], 1).phi[9] != phi);
    assert_true(tw_merger_theta(merger, 1)[9] == theta);
    check_digest(&nodes[1], 1);
}

FACT(solo_makes_theta_the_anchor) {
    struct tw_wmsg_applied reply, again;
    node_step(&nodes[0], 3);
    const struct tw_wmsg_solo request = {.round = 4, .fragment = 1};
    assert_int_equal(tw_anchor_solo(&nodes[0].merger, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.rounds, 5);
    const struct tw_shm_view after = view_of(&nodes[0], 1);
    assert_memory_equal(after.phi, tw_merger_theta(&nodes[0].merger, 1),
                        after.elements * sizeof(float));
    assert_true(tw_norm_squared(after.u, after.elements) == 0);
    check_digest(&nodes[0], 1);
    node_step(&nodes[0], 1);
    assert_int_equal(tw_anchor_solo(&nodes[0].merger, &request, &again, &err), TW_OK);
    assert_memory_equal(&reply, &again, sizeof(reply));

    tw_merger_theta(&nodes[0].merger, 2)[5] = NAN;
    const struct tw_wmsg_solo bad = {.round = 5, .fragment = 2};
    assert_int_equal(tw_anchor_solo(&nodes[0].merger, &bad, &reply, &err), TW_CORRUPT);
    assert_int_equal(view_of(&nodes[0], 2).state.rounds, 0);
    check_digest(&nodes[0], 2);
}

FACT(exported_state_loads_to_the_same_bits) {
    struct tw_wmsg_applied reply;
    node_step(&nodes[0], 3);
    node_step(&nodes[1], 2);
    for (uint32_t p = 0; p < 3; p++) {
        const struct tw_wmsg_solo solo = {.round = p, .fragment = p};
        assert_int_equal(tw_anchor_solo(&nodes[0].merger, &solo, &reply, &err), TW_OK);
        const size_t n = (size_t)tw_shm_fragment_elements(&nodes[0].dae.shm, p);
        const float kept = tw_merger_theta(&nodes[1].merger, p)[9];
        const float phi_old = view_of(&nodes[1], p).phi[9];
        const struct tw_wmsg_load load = exported(p, p); /* modes RESET, KEEP and SHIFT */
        nodes[1].merger.outlier[p].has_own = true;
        assert_int_equal(tw_anchor_load(&nodes[1].merger, &load, &reply, &err), TW_OK);
        /* Results are not compared with merges of another history. */
        assert_int_equal(nodes[1].merger.outlier[p].has_own, p == TW_LOAD_SHIFT);
        assert_int_equal(reply.rounds, p + 1);
        const struct tw_shm_view a = view_of(&nodes[0], p), b = view_of(&nodes[1], p);
        assert_memory_equal(a.phi, b.phi, n * sizeof(float));
        assert_memory_equal(a.u, b.u, n * sizeof(float));
        assert_memory_equal(&a.state, &b.state, sizeof(a.state));
        const float now = tw_merger_theta(&nodes[1].merger, p)[9];
        if (p == TW_LOAD_RESET) assert_true(now == b.phi[9]);
        if (p == TW_LOAD_KEEP) assert_true(now == kept);
        if (p == TW_LOAD_SHIFT) assert_true(now == kept + (b.phi[9] - phi_old));
    }
}

FACT(wrong_state_is_not_loaded) {
    struct tw_wmsg_applied reply;
    const struct tw_wmsg_solo solo = {.round = 0, .fragment = 1};
    node_step(&nodes[0], 3);
    assert_int_equal(tw_anchor_solo(&nodes[0].merger, &solo, &reply, &err), TW_OK);
    struct tw_wmsg_load load = exported(1, TW_LOAD_RESET);
    load.digest.bytes[0] ^= 1;
    assert_int_equal(tw_anchor_load(&nodes[1].merger, &load, &reply, &err), TW_CORRUPT);
    load.digest.bytes[0] ^= 1;
    load.in.bytes--;
    assert_int_equal(tw_anchor_load(&nodes[1].merger, &load, &reply, &err), TW_CORRUPT);
    load.in.bytes++;
    for (load.mode = TW_LOAD_BACK; load.mode <= TW_LOAD_TURN + 1; load.mode++)
        assert_int_equal(tw_anchor_load(&nodes[1].merger, &load, &reply, &err), TW_PROTO);
    assert_int_equal(reply.rounds, 0);
    check_digest(&nodes[1], 1);
}

/* Between two lineages, LOAD keeps theta. Then TURN sets all of theta to phi, or BACK sets phi to
 * theta. */
FACT(theta_of_all_fragments_turns_and_goes_back_at_once) {
    struct tw_wmsg_applied reply;
    struct tw_merger *merger = &nodes[1].merger;
    node_step(&nodes[1], 2);
    const struct tw_wmsg_load turn = {.mode = TW_LOAD_TURN};
    for (uint32_t p = 0; p < 3; p++)
        assert_true(tw_merger_theta(merger, p)[9] != view_of(&nodes[1], p).phi[9]);
    assert_int_equal(tw_anchor_load(merger, &turn, &reply, &err), TW_OK);
    for (uint32_t p = 0; p < 3; p++) {
        const size_t n = (size_t)tw_shm_fragment_elements(&nodes[1].dae.shm, p);
        assert_memory_equal(tw_merger_theta(merger, p), view_of(&nodes[1], p).phi,
                            n * sizeof(float));
    }
    node_step(&nodes[1], 2);
    const struct tw_wmsg_load back = {.fragment = 2, .rounds = 7, .mode = TW_LOAD_BACK};
    assert_int_equal(tw_anchor_load(merger, &back, &reply, &err), TW_OK);
    assert_int_equal(reply.rounds, 7);
    const struct tw_shm_view view = view_of(&nodes[1], 2);
    const size_t n = (size_t)tw_shm_fragment_elements(&nodes[1].dae.shm, 2);
    assert_memory_equal(tw_merger_theta(merger, 2), view.phi, n * sizeof(float));
    for (size_t i = 0; i < n; i++) assert_true(((const float *)view.u)[i] == 0.0f);
    check_digest(&nodes[1], 2);
    assert_true(tw_merger_theta(merger, 1)[9] != view_of(&nodes[1], 1).phi[9]);
}

FACT(empty_load_sets_the_rounds_only) {
    struct tw_wmsg_applied reply;
    const struct tw_shm_view before = view_of(&nodes[0], 1);
    struct tw_wmsg_load load = {
        .fragment = 1, .mode = TW_LOAD_KEEP, .rounds = 40, .digest = before.state.digest};
    assert_int_equal(tw_anchor_load(&nodes[0].merger, &load, &reply, &err), TW_OK);
    assert_int_equal(reply.rounds, 40);
    load.rounds = 2; /* a fork may have fewer rounds */
    assert_int_equal(tw_anchor_load(&nodes[0].merger, &load, &reply, &err), TW_OK);
    assert_int_equal(reply.rounds, 2);
    check_digest(&nodes[0], 1);
    load.digest.bytes[0] ^= 1;
    assert_int_equal(tw_anchor_load(&nodes[0].merger, &load, &reply, &err), TW_CORRUPT);
}

FACT(hostile_requests_are_refused) {
    struct tw_merger *merger = &nodes[0].merger;
    const struct tw_shm *shm = &nodes[0].dae.shm;
    const uint64_t n = tw_shm_fragment_elements(shm, 0);
    const uint64_t offsets[] = {0, 8, shm->geometry.pool - 1, shm->geometry.bytes,
                                UINT64_MAX - 100};
    struct tw_wmsg_applied applied;
    struct tw_wmsg_encoded encoded;
    struct tw_wmsg_reduced reduced;
    struct tw_wmsg_checked checked;
    struct tw_wmsg_exported packed;
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        const struct tw_span bad = {.offset = offsets[i], .bytes = ROOM};
        struct tw_wmsg_encode encode = {.parts_count = 1};
        encode.parts[0].count = n;
        encode.parts[0].out = bad;
        assert_int_equal(tw_merger_encode(merger, &encode, &encoded, &err), TW_PROTO);
        struct tw_wmsg_reduce reduce = {.count = n, .inputs_count = 1};
        reduce.inputs[0].in = bad;
        assert_int_equal(tw_merger_reduce(merger, &reduce, &reduced, &err), TW_PROTO);
        const struct tw_wmsg_check check = {.elements = n, .in = bad, .content = TW_CONTENT_DELTA};
        assert_int_equal(tw_merger_check(merger, &check, &checked, &err), TW_PROTO);
        struct tw_wmsg_apply apply = {.parts_count = 1};
        apply.parts[0].count = n;
        apply.parts[0].mode = TW_APPLY_MIX;
        apply.parts[0].in = bad;
        assert_int_equal(tw_anchor_apply(merger, &apply, &applied, &err), TW_PROTO);
        const struct tw_wmsg_export export = {.out = bad};
        assert_int_equal(tw_anchor_export(merger, &export, &packed, &err), TW_PROTO);
        const struct tw_wmsg_load load = {.in = bad};
        assert_int_equal(tw_anchor_load(merger, &load, &applied, &err), TW_PROTO);
    }
    struct tw_wmsg_apply apply = {.parts_count = TW_PARTS_MAX + 1};
    assert_int_equal(tw_anchor_apply(merger, &apply, &applied, &err), TW_PROTO);
    apply = (struct tw_wmsg_apply){.fragment = 3};
    assert_int_equal(tw_anchor_apply(merger, &apply, &applied, &err), TW_PROTO);
    apply = (struct tw_wmsg_apply){.parts_count = 2}; /* the same range twice */
    apply.parts[0].count = n;
    apply.parts[1].count = n;
    assert_int_equal(tw_anchor_apply(merger, &apply, &applied, &err), TW_PROTO);
    apply = (struct tw_wmsg_apply){.parts_count = 1};
    apply.parts[0].begin = UINT64_MAX;
    apply.parts[0].count = 2;
    assert_int_equal(tw_anchor_apply(merger, &apply, &applied, &err), TW_PROTO);
    apply = (struct tw_wmsg_apply){.parts_count = 1};
    apply.parts[0].mode = 3;
    assert_int_equal(tw_anchor_apply(merger, &apply, &applied, &err), TW_PROTO);
    struct tw_wmsg_encode encode = {.parts_count = UINT32_MAX};
    assert_int_equal(tw_merger_encode(merger, &encode, &encoded, &err), TW_PROTO);
    struct tw_wmsg_reduce reduce = {.count = 1, .inputs_count = TW_MEMBERS_MAX + 1};
    assert_int_equal(tw_merger_reduce(merger, &reduce, &reduced, &err), TW_PROTO);
    const struct tw_wmsg_check check = {.elements = UINT64_MAX};
    assert_int_equal(tw_merger_check(merger, &check, &checked, &err), TW_PROTO);
    for (uint32_t p = 0; p < 3; p++) {
        assert_int_equal(view_of(&nodes[0], p).state.rounds, 0);
        check_digest(&nodes[0], p);
    }
}

/* A child process works on the shared memory until it is killed at a random moment. */
FACT(killed_worker_leaves_whole_fragments) {
    struct node *node = &nodes[0];
    uint64_t rounds_total = 0;
    for (int round = 0; round < 20; round++) {
        int ready[2];
        assert_return_code(pipe(ready), errno);
        const pid_t child = fork();
        assert_return_code(child, errno);
        if (child == 0) {
            for (uint64_t r = rounds_total;; r++) {
                struct tw_wmsg_applied reply;
                const struct tw_wmsg_solo solo = {.round = r, .fragment = (uint32_t)(r % 3)};
                node->learner.theta[0] += 1; /* theta changes in each round */
                if (tw_anchor_solo(&node->merger, &solo, &reply, NULL) != TW_OK) _exit(1);
                if (write(ready[1], "x", 1) != 1) _exit(2);
            }
        }
        char byte;
        (void)close(ready[1]);
        for (int i = 0; i < 3 + round; i++) assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_return_code(kill(child, SIGKILL), errno);
        int status;
        assert_return_code(waitpid(child, &status, 0), errno);
        assert_true(WIFSIGNALED(status));
        (void)close(ready[0]);
        for (uint32_t p = 0; p < 3; p++) {
            check_digest(node, p);
            const uint64_t rounds = view_of(node, p).state.rounds;
            if (rounds > rounds_total) rounds_total = rounds;
        }
    }
    assert_true(rounds_total >= 3);
    print_message("killed 20 times in %llu rounds\n", (unsigned long long)rounds_total);
}
