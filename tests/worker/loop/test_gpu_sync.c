/* test_gpu_sync.c - whole workers, one on the CPU and one on a device. From the same theta they
 * send the same bytes and end with the same theta, for all kinds of runs and requests. Built for
 * the emulated device and for a GPU. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "compress/lattice.h"
#include "kernels/type.h"
#include "proto/worker_request.h"
#include "tests/worker/loop/fake_daemon.h"
#include "worker/engine/cuda/gpu_model.h"
#include "worker/learn/learner_engine.h"
#include "worker/loop/trainer.h"

#ifdef TW_CUDA_EMULATED
#include "tests/emulated/emulation.h"
#endif

enum { CPU, GPU, NODES, ROOM = 1 << 17, FRAGMENTS = 3 };

/* A device adds in another order. Eager's share w, and m after a merge has led the momentum, may
 * therefore differ by this much, relative to their size. */
#define NEARLY 1e-6

struct node {
    struct fake_daemon dae;
    struct tw_daemon_link link;
    struct tw_wmsg_welcome welcome;
    struct tw_shm shm;
    struct tw_learner_engine real;
    struct tw_learner learner;
    struct tw_trainer trainer;
};

static struct node nodes[NODES];
static struct tw_error err;
static char text_path[] = "/tmp/thinwire-test-XXXXXX";

/* ---- two workers ----------------------------------------------------------------------------- */

static enum tw_status node_open(struct node *node, const struct tw_run *run, bool is_gpu,
                                uint64_t memory_bytes) {
    int memfd;
    memset(node, 0, sizeof(*node));
    fake_daemon_open(&node->dae, run, TW_SNAPSHOT_OFF);
    node->link.fd = node->dae.worker_fd;
    fake_daemon_welcome(&node->dae);
    assert_int_equal(tw_daemon_link_greet(&node->link, "test", &err), TW_OK);
    assert_int_equal(tw_daemon_link_attach(&node->link, 1000, &node->welcome, &memfd, &err), TW_OK);
    assert_int_equal(tw_daemon_link_map(memfd, &node->welcome, &node->dae.layout, &node->shm, &err),
                     TW_OK);
    const struct tw_learner_config config = {
        .run = &node->welcome.run,
        .layout = &node->dae.layout,
        .data_path = text_path,
        .data_seed = 7,
        .compute = {.device = {.kind = is_gpu ? TW_DEVICE_CUDA : TW_DEVICE_CPU},
                    .compute = is_gpu ? TW_COMPUTE_BF16 : TW_COMPUTE_FP32,
                    .recompute = TW_RECOMPUTE_OFF,
                    .threads = 1,
                    .micro_batch = 2,
                    .memory_bytes = memory_bytes}};
    TW_TRY(tw_learner_engine_open(&node->real, &node->learner, &config, &err));
    assert_int_equal(node->learner.vectors.is_host, !is_gpu);
    /* so that step_all can send PAUSE early: a long step is not stopped for it */
    node->learner.watch = NULL;
    TW_TRY(tw_trainer_init(&node->trainer, &node->link, &node->welcome, &node->shm, &node->learner,
                           &err));
    TW_TRY(tw_trainer_start(&node->trainer, &err));
    struct tw_worker_msg ready;
    assert_true(fake_daemon_recv(&node->dae, TW_WMSG_READY, &ready));
    return TW_OK;
}

static void node_close(struct node *node) {
    if (node->trainer.waiting != NULL) tw_trainer_deinit(&node->trainer);
    tw_learner_engine_close(&node->real);
    tw_daemon_link_unmap(&node->shm);
    tw_daemon_link_close(&node->link);
    fake_daemon_close(&node->dae);
}

static void open_all(const struct tw_run *run) {
    struct tw_error why;
    if (tw_run_check(run, &why) != TW_OK) fail_msg("%s", why.message);
    for (int i = 0; i < NODES; i++)
        if (node_open(&nodes[i], run, i == GPU, 0) != TW_OK) fail_msg("%s", err.message);
}

static void close_all(void) {
    for (int i = 0; i < NODES; i++) node_close(&nodes[i]);
}

static void turn(struct node *node) {
    if (tw_trainer_turn(&node->trainer, &err) != TW_OK) fail_msg("%s", err.message);
}

static void tell(struct node *node, uint32_t kind) {
    struct tw_worker_msg msg = {.kind = kind};
    fake_daemon_send(&node->dae, &msg);
    turn(node);
}

static void pull(void) {
    if (tw_engine_pull(nodes[GPU].real.engine, TW_ENGINE_STATE, 0, nodes[GPU].dae.layout.elements,
                       &err) != TW_OK)
        fail_msg("%s", err.message);
}

/* Lets both nodes take one step and pause. CPU and device round differently, so the CPU then
 * continues from the device's state. */
static void step_all(void) {
    const size_t bytes = (size_t)nodes[CPU].dae.layout.elements * sizeof(float);
    for (int i = 0; i < NODES; i++) {
        if (nodes[i].trainer.is_paused) tell(&nodes[i], TW_WMSG_RESUME);
        tell(&nodes[i], TW_WMSG_PAUSE); /* takes effect after the step */
    }
    assert_int_equal(nodes[CPU].trainer.step, nodes[GPU].trainer.step);
    pull();
    memcpy(nodes[CPU].learner.theta, nodes[GPU].learner.theta, bytes);
    memcpy(nodes[CPU].learner.m, nodes[GPU].learner.m, bytes);
    memcpy(nodes[CPU].learner.v, nodes[GPU].learner.v, bytes);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static size_t elements(void) {
    return (size_t)nodes[CPU].dae.layout.elements;
}

static void check_near(const char *what, const float *want, const float *got, size_t n) {
    double apart = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        apart += pow((double)want[i] - (double)got[i], 2.0);
        size += pow((double)want[i], 2.0);
    }
    if (!(apart <= NEARLY * NEARLY * size)) fail_msg("%s is off by %.3g", what, sqrt(apart / size));
}

static uint32_t bits(float value) {
    uint32_t as;
    memcpy(&as, &value, sizeof(as));
    return as;
}

static void check_array(const char *what, const float *want, const float *got) {
    for (size_t i = 0; i < elements(); i++) {
        if (bits(want[i]) != bits(got[i]))
            fail_msg("%s: element %zu is %.9g on the device, %.9g on the CPU", what, i,
                     (double)got[i], (double)want[i]);
    }
}

static void check_held(const char *what, const float *want, const float *live) {
    const struct tw_vectors *vectors = &nodes[GPU].learner.vectors;
    assert_int_equal(want == NULL, live == NULL);
    if (live == NULL || want == NULL) return;
    float *got = malloc(elements() * sizeof(float));
    assert_non_null(got);
    assert_int_equal(vectors->copy_out(vectors->self, got, live, elements(), &err), TW_OK);
    check_array(what, want, got);
    free(got);
}

/* Compares the Deltas of fragments in flight. After a merge, a Delta is no longer used, and the CPU
 * has freed its memory. */
static void check_given(const struct tw_inflight *cpu, const struct tw_inflight *gpu) {
    const struct tw_vectors *vectors = &nodes[GPU].learner.vectors;
    assert_int_equal(cpu->given == NULL, gpu->given == NULL);
    for (uint32_t p = 0; p < FRAGMENTS && cpu->given != NULL; p++) {
        const uint64_t begin = nodes[CPU].shm.fragment_begin[p];
        const size_t n = (size_t)tw_shm_fragment_elements(&nodes[CPU].shm, p);
        if (!cpu->fragments[p].is_out) continue;
        float *got = malloc(n * sizeof(float));
        assert_non_null(got);
        assert_int_equal(vectors->copy_out(vectors->self, got, gpu->given + begin, n, &err), TW_OK);
        for (size_t i = 0; i < n; i++) assert_int_equal(bits(cpu->given[begin + i]), bits(got[i]));
        free(got);
    }
}

/* Checks that the weights that matrix products use are a copy of theta. */
static void check_working_weights(void) {
    const struct tw_gpu *gpu = nodes[GPU].real.engine->memory->gpu;
    const float *theta = nodes[GPU].learner.theta;
    uint16_t *got = malloc(elements() * sizeof(*got));
    tw_cuda_copy_out(gpu->cuda, TW_CUDA_COMPUTE, got, gpu->copy, elements() * sizeof(*got));
    assert_int_equal(tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, &err), TW_OK);
    for (size_t i = 0; gpu->is_copied && i < elements(); i++) {
        const uint16_t want = tw_bf16_from_f32(theta[i]);
        if (want != got[i]) fail_msg("working weight %zu is old", i);
    }
    free(got);
}

/* Compares the two nodes after a request. Values that contain sums must be nearly equal, and are
 * then made equal. */
static void check_all(void) {
    struct tw_inflight *cpu = &nodes[CPU].trainer.merger.inflight;
    const struct tw_inflight *gpu = &nodes[GPU].trainer.merger.inflight;
    pull();
    check_working_weights();
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        struct tw_shm_view views[NODES];
        for (int i = 0; i < NODES; i++) tw_shm_view(&nodes[i].shm, p, &views[i]);
        assert_true(tw_id_equal(&views[CPU].state.digest, &views[GPU].state.digest));
        assert_int_equal(cpu->fragments[p].is_out, gpu->fragments[p].is_out);
        const double weight = (double)gpu->fragments[p].weight;
        assert_true(fabs((double)cpu->fragments[p].weight - weight) <= NEARLY * weight);
        cpu->fragments[p].weight = gpu->fragments[p].weight;
    }
    check_array("theta", nodes[CPU].learner.theta, nodes[GPU].learner.theta);
    check_array("v", nodes[CPU].learner.v, nodes[GPU].learner.v);
    check_near("m", nodes[CPU].learner.m, nodes[GPU].learner.m, elements());
    memcpy(nodes[CPU].learner.m, nodes[GPU].learner.m, elements() * sizeof(float));
    check_held("residual", cpu->residual, gpu->residual);
    check_given(cpu, gpu);
    check_held("share", cpu->share, gpu->share);
    check_held("ahead", cpu->ahead, gpu->ahead);
    check_held("ahead_u", cpu->ahead_u, gpu->ahead_u);
}

/* Sends the same request to both nodes and receives their answers of this kind. */
static void ask(struct tw_worker_msg msg, uint32_t kind, struct tw_worker_msg replies[NODES]) {
    for (int i = 0; i < NODES; i++) {
        fake_daemon_send(&nodes[i].dae, &msg);
        turn(&nodes[i]);
        assert_true(fake_daemon_recv(&nodes[i].dae, kind, &replies[i]));
    }
    check_all();
}

/* Allocates room at the same offset in both pools. */
static struct tw_span room(uint32_t bytes) {
    (void)fake_daemon_room(&nodes[CPU].dae, bytes);
    return fake_daemon_room(&nodes[GPU].dae, bytes);
}

static const uint8_t *bytes_of(int i, struct tw_span span) {
    return tw_shm_pool(&nodes[i].dae.shm, span.offset, span.bytes);
}

static void check_bytes(struct tw_span span) {
    assert_true(span.bytes > 0);
    assert_memory_equal(bytes_of(CPU, span), bytes_of(GPU, span), span.bytes);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Encodes in two parts, the first of 1000 elements. Returns the spans of both in `sent`. */
static void encode(uint64_t round, uint32_t fragment, struct tw_span sent[2]) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_ENCODE}, replies[NODES];
    const uint64_t n = tw_shm_fragment_elements(&nodes[CPU].shm, fragment);
    msg.u.encode.round = round;
    msg.u.encode.fragment = fragment;
    msg.u.encode.parts_count = 2;
    msg.u.encode.parts[0].count = 1024;
    msg.u.encode.parts[1].begin = 1024;
    msg.u.encode.parts[1].count = n - 1024;
    for (int k = 0; k < 2; k++) {
        msg.u.encode.parts[k].out = sent[k] = room(ROOM);
        msg.u.encode.parts[k].bytes_max = nodes[CPU].dae.run.sync.codec == TW_CODEC_AUTO ? 900 : 0;
    }
    ask(msg, TW_WMSG_ENCODED, replies);
    for (int i = 0; i < NODES; i++) assert_int_equal(replies[i].u.encoded.status, TW_OK);
    const double norm = (double)replies[CPU].u.encoded.norm;
    assert_true(fabs(norm - (double)replies[GPU].u.encoded.norm) <= NEARLY * norm && norm > 0);
    for (int k = 0; k < 2; k++) {
        sent[k].bytes = replies[CPU].u.encoded.bytes[k];
        assert_int_equal(sent[k].bytes, replies[GPU].u.encoded.bytes[k]);
        check_bytes(sent[k]);
    }
}

/* Makes a result: the payload sent, slightly changed. */
static struct tw_span result_of(struct tw_span sent, uint64_t n) {
    const struct tw_merger *merger = &nodes[CPU].trainer.merger;
    float *values = malloc(n * sizeof(float));
    struct tw_span span = room(ROOM);
    assert_int_equal(merger->codec->decode(bytes_of(CPU, sent), sent.bytes, values, n), TW_OK);
    for (uint64_t i = 0; i < n; i++) values[i] = 0.6f * values[i] + (i % 3 == 0 ? 1e-4f : 0);
    for (int i = 0; i < NODES; i++) {
        size_t bytes = 0;
        assert_int_equal(
            merger->result->encode(
                values, n, tw_shm_pool(&nodes[i].dae.shm, span.offset, span.bytes), ROOM, &bytes),
            TW_OK);
        if (i + 1 == NODES) span.bytes = (uint32_t)bytes;
    }
    free(values);
    return span;
}

static void apply(uint64_t round, uint32_t fragment, const struct tw_span sent[2],
                  enum tw_apply_mode first, enum tw_apply_mode second) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_APPLY}, replies[NODES];
    const uint64_t n = tw_shm_fragment_elements(&nodes[CPU].shm, fragment);
    const enum tw_apply_mode modes[2] = {first, second};
    msg.u.apply.round = round;
    msg.u.apply.version = round / FRAGMENTS;
    msg.u.apply.fragment = fragment;
    msg.u.apply.steps = 4;
    msg.u.apply.parts_count = 2;
    for (int k = 0; k < 2; k++) {
        msg.u.apply.parts[k].begin = k == 0 ? 0 : 1024;
        msg.u.apply.parts[k].count = k == 0 ? 1024 : n - 1024;
        msg.u.apply.parts[k].mode = (uint32_t)modes[k];
        msg.u.apply.parts[k].contributors = 3;
        if (modes[k] == TW_APPLY_ABSENT) continue;
        msg.u.apply.parts[k].in = result_of(sent[k], msg.u.apply.parts[k].count);
    }
    ask(msg, TW_WMSG_APPLIED, replies);
    for (int i = 0; i < NODES; i++) assert_int_equal(replies[i].u.applied.status, TW_OK);
}

/* ---- runs in groups -------------------------------------------------------------------------- */

static void run_begin(struct tw_run *run, enum tw_sent sent, enum tw_codec_id codec) {
    fake_run(run);
    run->sync.sent = sent;
    if (sent != TW_SENT_MIX) run->sync.mix_millionths = 0;
    run->sync.codec = codec;
    run->sync.outer_lr_millionths = 700000;
    run->sync.outer_momentum_millionths = 600000;
}

/* Plays rounds that are merged, partly merged, withdrawn, begun again, and final. */
static void play_group(const struct tw_run *run) {
    struct tw_span sent[2], other[2];
    open_all(run);
    step_all();
    encode(0, 0, sent);
    encode(1, 1, other);
    step_all();
    apply(0, 0, sent, TW_APPLY_MIX, TW_APPLY_MIX);
    apply(1, 1, other, TW_APPLY_MIX, TW_APPLY_SHIFT);
    step_all();
    encode(3, 0, sent);
    step_all();
    apply(3, 0, sent, TW_APPLY_SHIFT, TW_APPLY_ABSENT);
    encode(6, 0, sent);
    encode(6, 0, sent); /* withdraws the Delta in flight */
    step_all();
    apply(6, 0, sent, TW_APPLY_MIX, TW_APPLY_MIX);
    step_all();
    encode(9, 0, sent);
    apply(9, 0, sent, TW_APPLY_MIX, TW_APPLY_MIX);
    apply(12, 0, sent, TW_APPLY_MIX, TW_APPLY_MIX); /* a round that this worker sent nothing for */
    close_all();
}

static void play_codec(const struct tw_run *run) {
    struct tw_span sent[2];
    open_all(run);
    for (uint64_t round = 0; round < 6; round += FRAGMENTS) {
        step_all();
        encode(round, 0, sent);
        apply(round, 0, sent, TW_APPLY_MIX, TW_APPLY_SHIFT);
    }
    close_all();
}

static void groups_do_on_a_device_as_on_the_cpu(void **state) {
    static const enum tw_sent sents[] = {TW_SENT_MIX, TW_SENT_KEEP, TW_SENT_RESTART, TW_SENT_EAGER};
    for (unsigned i = 0; i < 8; i++) {
        struct tw_run run;
        run_begin(&run, sents[i % 4], TW_CODEC_INT8);
        run.sync.feedback_millionths = i / 4 == 0 ? 0 : 900000;
        run.sync.feedback_local_millionths =
            run.sync.sent == TW_SENT_MIX ? 0 : run.sync.feedback_millionths / 2;
        run.sync.outer = (i + i / 4) % 2 == 0 ? TW_OUTER_NESTEROV : TW_OUTER_HEAVYBALL;
        run.sync.lead_millionths = i % 3 == 0 ? 500000 : 0;
        print_message("sent %u, feedback %u, outer %u, lead %u\n", run.sync.sent,
                      run.sync.feedback_millionths, run.sync.outer, run.sync.lead_millionths);
        play_group(&run);
    }
}

static void every_codec_has_the_same_bytes(void **state) {
    uint32_t count;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    for (uint32_t i = 0; i < count; i++) {
        struct tw_run run;
        run_begin(&run, i % 2 == 0 ? TW_SENT_EAGER : TW_SENT_RESTART, codecs[i]->id);
        run.sync.feedback_millionths = codecs[i]->needs_feedback || i % 4 < 2 ? 950000 : 0;
        run.sync.feedback_local_millionths =
            run.sync.sent == TW_SENT_MIX ? 0 : run.sync.feedback_millionths / 2;
        print_message("%s\n", codecs[i]->name);
        play_codec(&run);
    }
}

/* ---- the rare requests ----------------------------------------------------------------------- */

static void anchors_come_and_go(void **state) {
    struct tw_run run;
    struct tw_span sent[2];
    struct tw_worker_msg msg = {.kind = TW_WMSG_EXPORT}, replies[NODES];
    run_begin(&run, TW_SENT_EAGER, TW_CODEC_BF16);
    run.sync.feedback_millionths = 900000;
    open_all(&run);
    step_all();
    msg.u.export.fragment = 1;
    msg.u.export.out = room(ROOM);
    ask(msg, TW_WMSG_EXPORTED, replies);
    struct tw_span old = msg.u.export.out;
    old.bytes = replies[GPU].u.exported.bytes;
    check_bytes(old);
    const struct tw_id digest = replies[GPU].u.exported.digest;
    encode(1, 1, sent);
    apply(1, 1, sent, TW_APPLY_MIX, TW_APPLY_MIX);
    for (uint32_t mode = TW_LOAD_RESET; mode <= TW_LOAD_SHIFT; mode++) {
        step_all();
        encode(4 + 6 * mode, 1, sent);
        msg = (struct tw_worker_msg){.kind = TW_WMSG_LOAD};
        msg.u.load.fragment = 1;
        msg.u.load.mode = mode;
        msg.u.load.rounds = 6 + 6 * mode;
        msg.u.load.digest = digest;
        msg.u.load.in = old;
        ask(msg, TW_WMSG_APPLIED, replies);
        for (int i = 0; i < NODES; i++) assert_int_equal(replies[i].u.applied.status, TW_OK);
        step_all();
        encode(7 + 6 * mode, 1, sent);
        apply(7 + 6 * mode, 1, sent, TW_APPLY_MIX, TW_APPLY_MIX);
    }
    step_all();
    msg = (struct tw_worker_msg){.kind = TW_WMSG_SOLO};
    msg.u.solo.round = 40;
    msg.u.solo.fragment = 1;
    ask(msg, TW_WMSG_APPLIED, replies);
    struct tw_shm_view view;
    tw_shm_view(&nodes[GPU].shm, 1, &view);
    assert_memory_equal(view.phi, nodes[GPU].learner.theta + nodes[GPU].shm.fragment_begin[1],
                        (size_t)view.elements * sizeof(float));
    close_all();
}

/* ---- runs in pairs --------------------------------------------------------------------------- */

static void pair_encode(uint64_t round, uint32_t fragment, struct tw_wmsg_pair_apply *apply) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_PAIR_ENCODE}, replies[NODES];
    msg.u.pair_encode.round = round;
    msg.u.pair_encode.fragment = fragment;
    msg.u.pair_encode.is_whole = round == 0;
    msg.u.pair_encode.delta = room(ROOM);
    msg.u.pair_encode.phi =
        room((uint32_t)tw_lattice_bound(tw_shm_fragment_elements(&nodes[CPU].shm, fragment)));
    ask(msg, TW_WMSG_ENCODED, replies);
    for (int i = 0; i < NODES; i++) assert_int_equal(replies[i].u.encoded.status, TW_OK);
    apply->own.delta = msg.u.pair_encode.delta;
    apply->own.phi = msg.u.pair_encode.phi;
    apply->own.delta.bytes = replies[GPU].u.encoded.bytes[TW_PAIR_DELTA];
    apply->own.phi.bytes = replies[GPU].u.encoded.bytes[TW_PAIR_PHI];
    check_bytes(apply->own.delta);
    check_bytes(apply->own.phi);
}

/* Merges with a partner that has the same anchor and sent the payloads `before`. */
static void pair_round(uint64_t round, const struct tw_span *before, struct tw_span *sent) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_PAIR_APPLY}, replies[NODES];
    msg.u.pair_apply.round = round;
    msg.u.pair_apply.version = round;
    step_all();
    pair_encode(round, 0, &msg.u.pair_apply);
    step_all();
    *sent = msg.u.pair_apply.own.delta;
    if (before == NULL) {
        memset(&msg.u.pair_apply.own, 0, sizeof(msg.u.pair_apply.own));
        msg.u.pair_apply.is_alone = 1;
    } else {
        msg.u.pair_apply.theirs.delta = *before;
        msg.u.pair_apply.theirs.phi = msg.u.pair_apply.own.phi;
    }
    ask(msg, TW_WMSG_APPLIED, replies);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(replies[i].u.applied.status, TW_OK);
        assert_int_equal(replies[i].u.applied.is_alone, 0); /* a partner took part */
    }
}

static void pairs_do_on_a_device_as_on_the_cpu(void **state) {
    for (unsigned i = 0; i < 4; i++) {
        struct tw_run run;
        struct tw_span sent[4];
        run_begin(&run, TW_SENT_KEEP, i % 2 == 0 ? TW_CODEC_INT8 : TW_CODEC_ECSQ2);
        run.sync.topology = TW_TOPOLOGY_PAIR;
        run.sync.merge = TW_MERGE_MEAN;
        run.sync.outer = TW_OUTER_HEAVYBALL;
        run.sync.lead_millionths = 0;
        run.sync.consensus_millionths = 700000;
        run.sync.feedback_millionths = i / 2 == 0 && i % 2 == 0 ? 0 : 900000;
        open_all(&run);
        pair_round(0, NULL, &sent[0]);
        pair_round(1, &sent[0], &sent[1]);
        pair_round(2, &sent[1], &sent[2]);
        pair_round(3, NULL, &sent[3]);
        struct tw_worker_msg msg = {.kind = TW_WMSG_PAIR_APPLY}, replies[NODES];
        msg.u.pair_apply.round = 4; /* a round that was not encoded, so the present v is used */
        msg.u.pair_apply.version = 4;
        msg.u.pair_apply.is_alone = 1;
        ask(msg, TW_WMSG_APPLIED, replies);
        close_all();
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* New anchors and merges cross the bus from page-locked memory, which is several times faster. */
static void anchors_and_merges_are_page_locked(void **state) {
    struct tw_run run;
    run_begin(&run, TW_SENT_MIX, TW_CODEC_INT4);
    open_all(&run);
    const struct tw_merger *merger = &nodes[GPU].trainer.merger;
    struct tw_shm_view last;
    tw_shm_view(merger->shm, FRAGMENTS - 1, &last);
    assert_ptr_equal(merger->pinned, merger->shm->base + merger->shm->geometry.phi);
    assert_true((const void *)last.phi >= merger->pinned);
    assert_true(merger->shm->geometry.phi < merger->shm->geometry.spare_u);
    assert_null(nodes[CPU].trainer.merger.pinned);
    close_all();
#ifdef TW_CUDA_EMULATED
    tw_emulation_set_pins(false); /* slower, and no error */
    assert_int_equal(node_open(&nodes[GPU], &run, true, 0), TW_OK);
    assert_null(merger->pinned);
    node_close(&nodes[GPU]);
    tw_emulation_set_pins(true);
#endif
}

static void memory_of_a_sync_is_in_the_plan(void **state) {
    struct tw_run run;
    struct tw_span sent[2];
    run_begin(&run, TW_SENT_EAGER, TW_CODEC_INT4);
    run.sync.feedback_millionths = 900000;
    open_all(&run);
    const struct tw_engine_plan plan = nodes[GPU].real.engine->plan;
    const uint64_t array = elements() * sizeof(float);
    assert_true(plan.sync > 7 * array && plan.sync < 10 * array);
    close_all();

    assert_int_equal(node_open(&nodes[GPU], &run, true, plan.total), TW_OK);
    assert_int_equal(node_open(&nodes[CPU], &run, false, 0), TW_OK);
    assert_int_equal(nodes[GPU].real.engine->plan.sync, plan.sync);
    assert_int_equal(nodes[CPU].real.engine->plan.sync, 0);
    step_all();
    encode(0, 0, sent);
    apply(0, 0, sent, TW_APPLY_MIX, TW_APPLY_MIX);
    close_all();

    assert_int_equal(node_open(&nodes[GPU], &run, true, plan.total - 1), TW_OK);
    const struct tw_engine_plan least = nodes[GPU].real.engine->plan;
    assert_true(plan.keeps_outputs && !least.keeps_outputs && least.sync == plan.sync);
    node_close(&nodes[GPU]);
    assert_int_equal(node_open(&nodes[GPU], &run, true, least.total - 1), TW_NOMEM);
    assert_non_null(strstr(err.message, "outer gradients and anchors"));
    node_close(&nodes[GPU]);
}

#ifdef TW_CUDA_EMULATED
/* Takes a step, then sends and merges a round. */
static enum tw_status live(const struct tw_run *run) {
    struct node *node = &nodes[GPU];
    enum tw_status status = node_open(node, run, true, 0);
    if (status == TW_OK) {
        struct tw_worker_msg msg = {.kind = TW_WMSG_ENCODE};
        const uint64_t n = tw_shm_fragment_elements(&node->shm, 0);
        msg.u.encode.parts_count = 1;
        msg.u.encode.parts[0].count = n;
        msg.u.encode.parts[0].out = fake_daemon_room(&node->dae, ROOM);
        fake_daemon_send(&node->dae, &msg);
        status = tw_trainer_turn(&node->trainer, &err);
        const bool has_answer = fake_daemon_recv(&node->dae, TW_WMSG_ENCODED, &msg);
        assert_int_equal(has_answer, status == TW_OK);
    }
    if (status == TW_OK) {
        struct tw_worker_msg msg = {.kind = TW_WMSG_SOLO};
        fake_daemon_send(&node->dae, &msg);
        status = tw_trainer_turn(&node->trainer, &err);
        assert_int_equal(fake_daemon_recv(&node->dae, TW_WMSG_APPLIED, &msg), status == TW_OK);
    }
    for (uint32_t p = 0; p < FRAGMENTS && node->trainer.merger.shm != NULL; p++) {
        struct tw_shm_view view;
        tw_shm_view(&node->shm, p, &view);
        const struct tw_id digest =
            tw_shm_digest(view.phi, view.u, view.elements, node->shm.momentum);
        assert_true(tw_id_is_zero(&view.state.digest) || tw_id_equal(&view.state.digest, &digest));
    }
    node_close(node);
    return status;
}

static void every_fault_ends_the_worker_and_leaves_anchors_whole(void **state) {
    struct tw_run run;
    run_begin(&run, TW_SENT_EAGER, TW_CODEC_INT4);
    run.sync.feedback_millionths = 900000;
    const uint64_t before = tw_emulation_calls();
    if (live(&run) != TW_OK) fail_msg("%s", err.message);
    const uint64_t calls = tw_emulation_calls() - before;
    print_message("%llu calls\n", (unsigned long long)calls);
    for (uint64_t call = 1; call <= calls; call += call + 100 < calls ? calls / 8 : 7) {
        tw_emulation_fail_after(call);
        const enum tw_status status = live(&run);
        tw_emulation_fail_after(0);
        if (status != TW_DEVICE && status != TW_NOMEM)
            fail_msg("call %llu: status %d, %s", (unsigned long long)call, status, err.message);
    }
}
#endif

static int text_write(void **state) {
    const int fd = mkstemp(text_path);
    FILE *text = fdopen(fd, "w");
    if (text == NULL) return -1;
    for (int i = 0; i < 4000; i++)
        (void)fprintf(text, "line %d of a text that repeats itself\n", i);
    return fclose(text);
}

static int text_remove(void **state) {
    return unlink(text_path);
}

int main(void) {
    struct tw_cuda_info info;
    if (tw_cuda_count(&err) == 0 || tw_cuda_info(&info, 0, &err) != TW_OK ||
        info.reason[0] != '\0') {
        print_message("no device can be used\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_do_on_a_device_as_on_the_cpu),
        cmocka_unit_test(every_codec_has_the_same_bytes),
        cmocka_unit_test(anchors_come_and_go),
        cmocka_unit_test(pairs_do_on_a_device_as_on_the_cpu),
        cmocka_unit_test(anchors_and_merges_are_page_locked),
        cmocka_unit_test(memory_of_a_sync_is_in_the_plan),
#ifdef TW_CUDA_EMULATED
        cmocka_unit_test(every_fault_ends_the_worker_and_leaves_anchors_whole),
#endif
    };
    return cmocka_run_group_tests(tests, text_write, text_remove);
}
