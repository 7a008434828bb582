/* two_nodes.h - two nodes that merge with each other, without a daemon: for tests of one file. */
#ifndef TW_TESTS_WORKER_MERGE_TWO_NODES_H
#define TW_TESTS_WORKER_MERGE_TWO_NODES_H

#include "tests/test.h"

#include <unistd.h>

#include "proto/worker_request.h"
#include "tests/worker/loop/fake_daemon.h"
#include "tests/worker/loop/stub_learner.h"
#include "worker/loop/session.h"
#include "worker/merge/anchor.h"
#include "worker/merge/merger.h"

/* Two nodes of one run, each with its own memory; the test copies payloads between their pools. */
struct node {
    struct fake_daemon dae;
    struct stub_learner stub;
    struct tw_learner learner;
    struct tw_merger merger;
    uint64_t cursor;
};

static struct node nodes[2];
static struct tw_error err;

static inline void node_open(struct node *node, uint64_t data_seed, const struct tw_run *run) {
    struct tw_train_state state;
    enum tw_worker_start start;
    fake_daemon_open(&node->dae, run, TW_SNAPSHOT_FULL);
    const struct tw_learner_config config = {
        .run = &node->dae.run, .layout = &node->dae.layout, .data_seed = data_seed};
    memset(&node->stub, 0, sizeof(node->stub));
    assert_int_equal(stub_learner_open(&node->stub, &node->learner, &config, &err), TW_OK);
    assert_int_equal(
        tw_merger_init(&node->merger, &node->dae.run, &node->dae.shm, &node->learner.vectors, &err),
        TW_OK);
    tw_start_state_build(&node->dae.welcome, &node->dae.shm, &node->learner, &state, &start);
    node->cursor = 0;
}

static inline void node_step(struct node *node, int count) {
    struct tw_step_result result;
    for (int i = 0; i < count; i++) {
        assert_int_equal(
            node->learner.step(node->learner.self, &node->cursor, 0.05f, &result, &err), TW_OK);
    }
}

static inline void run_with(struct tw_run *made, uint32_t momentum_millionths,
                            enum tw_codec_id codec) {
    struct tw_run run;
    fake_run(&run);
    run.sync.codec = codec;
    run.sync.result = codec;
    run.sync.outer_lr_millionths = 700000;
    run.sync.outer_momentum_millionths = momentum_millionths;
    run.sync.outer_ramp = 4;
    *made = run;
}

static inline void open_with(uint32_t momentum_millionths, enum tw_codec_id codec) {
    struct tw_run run;
    run_with(&run, momentum_millionths, codec);
    for (uint64_t i = 0; i < 2; i++) node_open(&nodes[i], i + 1, &run);
}

static inline int open_two(void **state) {
    open_with(900000, TW_CODEC_INT8);
    return 0;
}

static inline int close_two(void **state) {
    for (int i = 0; i < 2; i++) {
        tw_merger_deinit(&nodes[i].merger);
        stub_learner_close(&nodes[i].stub);
        (void)close(nodes[i].dae.worker_fd);
        fake_daemon_close(&nodes[i].dae);
    }
    return 0;
}

static inline struct tw_shm_view view_of(const struct node *node, uint32_t fragment) {
    struct tw_shm_view view;
    tw_shm_view(&node->dae.shm, fragment, &view);
    return view;
}

static inline void check_digest(const struct node *node, uint32_t fragment) {
    const struct tw_shm_view view = view_of(node, fragment);
    const struct tw_id digest =
        tw_shm_digest(view.phi, view.u, view.elements, node->dae.shm.momentum);
    assert_memory_equal(&digest, &view.state.digest, sizeof(digest));
}

/* Copies a payload into another node's pool. */
static inline struct tw_span carry(struct node *from, struct tw_span span, struct node *to) {
    const struct tw_span there = fake_daemon_room(&to->dae, span.bytes);
    memcpy(tw_shm_pool(&to->dae.shm, there.offset, there.bytes),
           tw_shm_pool(&from->dae.shm, span.offset, span.bytes), span.bytes);
    return there;
}

enum { PARTS = 2, ROOM = 65536 };

struct round {
    uint64_t round, begin[PARTS], count[PARTS];
    uint32_t fragment;
    /* contributions of node i in its own pool; result of part k in the pool of nodes[k] */
    struct tw_span contributions[2][PARTS], results[PARTS];
    float norms[2];
};

static inline void round_encode(struct round *round, int who) {
    struct node *node = &nodes[who];
    struct tw_wmsg_encode request = {
        .round = round->round, .fragment = round->fragment, .parts_count = PARTS};
    struct tw_wmsg_encoded reply;
    for (uint32_t k = 0; k < PARTS; k++) {
        tw_layout_part(tw_shm_fragment_elements(&node->dae.shm, round->fragment),
                       (uint32_t[]){0, 0}, PARTS, k, &round->begin[k], &round->count[k]);
        request.parts[k].begin = round->begin[k];
        request.parts[k].count = round->count[k];
        request.parts[k].out = fake_daemon_room(&node->dae, ROOM);
    }
    assert_int_equal(tw_merger_encode(&node->merger, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.status, TW_OK);
    assert_int_equal(reply.parts_count, PARTS);
    round->norms[who] = reply.norm;
    for (uint32_t k = 0; k < PARTS; k++) {
        round->contributions[who][k] = request.parts[k].out;
        round->contributions[who][k].bytes = reply.bytes[k];
    }
}

/* Merges part k, whose owner is nodes[k]. */
static inline void round_reduce(struct round *round, uint32_t k) {
    struct node *owner = &nodes[k];
    struct tw_wmsg_reduce request = {.round = round->round,
                                     .begin = round->begin[k],
                                     .count = round->count[k],
                                     .fragment = round->fragment,
                                     .part = k,
                                     .inputs_count = 2};
    struct tw_wmsg_reduced reply;
    for (int i = 0; i < 2; i++) {
        request.inputs[i].in = i == (int)k ? round->contributions[i][k]
                                           : carry(&nodes[i], round->contributions[i][k], owner);
        request.inputs[i].tokens = 100;
        request.inputs[i].steps = 3;
    }
    request.out = fake_daemon_room(&owner->dae, ROOM);
    assert_int_equal(tw_merger_reduce(&owner->merger, &request, &reply, &err), TW_OK);
    assert_int_equal(reply.part, k);
    round->results[k] = request.out;
    round->results[k].bytes = reply.bytes;
}

static inline struct tw_wmsg_apply round_apply(const struct round *round, int who, uint32_t mode) {
    struct tw_wmsg_apply request = {.round = round->round,
                                    .version = round->round / 3,
                                    .fragment = round->fragment,
                                    .parts_count = PARTS};
    for (uint32_t k = 0; k < PARTS; k++) {
        request.parts[k].begin = round->begin[k];
        request.parts[k].count = round->count[k];
        request.parts[k].mode = mode;
        request.parts[k].in =
            (int)k == who ? round->results[k] : carry(&nodes[k], round->results[k], &nodes[who]);
    }
    return request;
}

static inline void round_merge(struct round *round) {
    for (int i = 0; i < 2; i++) round_encode(round, i);
    for (uint32_t k = 0; k < PARTS; k++) round_reduce(round, k);
}

/* Exports a fragment of nodes[0], and returns its LOAD for nodes[1]. */
static inline struct tw_wmsg_load exported(uint32_t fragment, uint32_t mode) {
    struct tw_wmsg_exported reply;
    const size_t n = (size_t)tw_shm_fragment_elements(&nodes[0].dae.shm, fragment);
    struct tw_wmsg_export request = {.fragment = fragment};
    request.out = fake_daemon_room(&nodes[0].dae, (uint32_t)tw_pack_bound(n));
    assert_int_equal(tw_anchor_export(&nodes[0].merger, &request, &reply, &err), TW_OK);
    struct tw_span payload = {.offset = request.out.offset, .bytes = reply.bytes};
    return (struct tw_wmsg_load){.fragment = fragment,
                                 .mode = mode,
                                 .rounds = reply.rounds,
                                 .digest = reply.digest,
                                 .in = carry(&nodes[0], payload, &nodes[1])};
}

#endif
