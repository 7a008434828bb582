/* Two workers in one process, one on the CPU and one on a device, each with a fake daemon. After
 * every round their anchors have the same bits. Needs no daemon, so it runs wherever the engine
 * builds: on the emulated device, and on a GPU if there is one. tests/system/test_gpu_node.c does
 * the same with real daemons. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compress/codec.h"
#include "kernels/cuda/runtime.h"
#include "tests/worker/loop/fake_daemon.h"
#include "worker/learn/learner_engine.h"
#include "worker/loop/trainer.h"

enum { CPU, GPU, NODES, ROUNDS = 4, STEPS_BETWEEN = 2, TURNS_MAX = 4000, PATIENCE_MS = 60000 };
enum { TEXT_LINES = 1500 };

/* Node i owns part i. */
struct node {
    bool is_open;
    struct fake_daemon daemon;
    struct tw_daemon_link link;
    struct tw_wmsg_welcome welcome;
    struct tw_shm shm;
    struct tw_learner_engine engine;
    struct tw_learner learner;
    struct tw_trainer trainer;
};

struct part {
    uint64_t begin, count;
    struct tw_span sent[NODES][NODES]; /* [sender][pool] */
    struct tw_span merged[NODES];      /* [pool] */
};

static struct node nodes[NODES];
static char text[] = "/tmp/tw-anchors-XXXXXX";
static struct tw_error err;

static void must(enum tw_status status) {
    if (status != TW_OK) fail_msg("%s", err.message);
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void node_open(struct node *node, uint32_t idx, const struct tw_run *run) {
    int memfd = -1;
    memset(node, 0, sizeof(*node));
    fake_daemon_open(&node->daemon, run, TW_SNAPSHOT_OFF);
    fake_daemon_welcome(&node->daemon);
    node->link.fd = node->daemon.worker_fd;
    must(tw_daemon_link_greet(&node->link, "test", &err));
    must(tw_daemon_link_attach(&node->link, PATIENCE_MS, &node->welcome, &memfd, &err));
    must(tw_daemon_link_map(memfd, &node->welcome, &node->daemon.layout, &node->shm, &err));
    const struct tw_learner_config config = {
        .run = &node->daemon.run,
        .layout = &node->daemon.layout,
        .data_path = text,
        .data_seed = idx,
        .compute = {.device = {.kind = idx == GPU ? TW_DEVICE_CUDA : TW_DEVICE_CPU}, .threads = 1}};
    must(tw_learner_engine_open(&node->engine, &node->learner, &config, &err));
    assert_int_equal(node->engine.engine->plan.is_on_gpu, idx == GPU);
    must(tw_trainer_init(&node->trainer, &node->link, &node->welcome, &node->shm, &node->learner,
                         &err));
    node->is_open = true;
    must(tw_trainer_start(&node->trainer, &err));
    struct tw_worker_msg ready;
    assert_true(fake_daemon_recv(&node->daemon, TW_WMSG_READY, &ready));
}

/* Also runs after a failed test: the threads of a node must end before its memory is freed. */
static int nodes_close(void **state) {
    for (struct node *node = nodes; node < nodes + NODES; node++) {
        if (!node->is_open) continue;
        tw_trainer_deinit(&node->trainer);
        tw_learner_engine_close(&node->engine);
        tw_daemon_link_unmap(&node->shm);
        tw_daemon_link_close(&node->link);
        fake_daemon_close(&node->daemon);
        node->is_open = false;
    }
    return 0;
}

/* Trains the node until it sends a message of this kind. */
static void await(struct node *node, uint32_t kind, struct tw_worker_msg *msg) {
    for (int turn = 0; turn < TURNS_MAX; turn++) {
        if (fake_daemon_recv(&node->daemon, kind, msg)) return;
        must(tw_trainer_turn(&node->trainer, &err));
    }
    fail_msg("no packet of kind %u", kind);
}

/* Copies a payload into the other node's pool, as a transfer does. */
static struct tw_span carry(struct node *to, const struct node *from, struct tw_span span) {
    const struct tw_span there = fake_daemon_room(&to->daemon, span.bytes);
    memcpy(tw_shm_pool(&to->daemon.shm, there.offset, there.bytes),
           tw_shm_pool(&from->daemon.shm, span.offset, span.bytes), span.bytes);
    return there;
}

/* ---- a round ------------------------------------------------------------------------------- */

static void encode(uint32_t whose, uint64_t round, uint32_t fragment, struct part parts[NODES]) {
    struct node *node = &nodes[whose];
    const struct tw_codec *codec = tw_codec_get(node->daemon.run.sync.codec);
    struct tw_worker_msg msg = {.kind = TW_WMSG_ENCODE};
    msg.u.encode.round = round;
    msg.u.encode.fragment = fragment;
    msg.u.encode.parts_count = NODES;
    for (uint32_t i = 0; i < NODES; i++) {
        const uint32_t most = (uint32_t)codec->bound((size_t)parts[i].count);
        parts[i].sent[whose][whose] = fake_daemon_room(&node->daemon, most);
        msg.u.encode.parts[i].begin = parts[i].begin;
        msg.u.encode.parts[i].count = parts[i].count;
        msg.u.encode.parts[i].out = parts[i].sent[whose][whose];
    }
    fake_daemon_send(&node->daemon, &msg);
    await(node, TW_WMSG_ENCODED, &msg);
    assert_int_equal(msg.u.encoded.status, TW_OK);
    for (uint32_t i = 0; i < NODES; i++) {
        parts[i].sent[whose][whose].bytes = msg.u.encoded.bytes[i];
        parts[i].sent[whose][!whose] = carry(&nodes[!whose], node, parts[i].sent[whose][whose]);
    }
}

static void reduce(uint32_t owner, uint64_t round, uint32_t fragment, struct part *part) {
    struct node *node = &nodes[owner];
    const struct tw_codec *codec = tw_codec_get(node->daemon.run.sync.result);
    struct tw_worker_msg msg = {.kind = TW_WMSG_REDUCE};
    msg.u.reduce.round = round;
    msg.u.reduce.begin = part->begin;
    msg.u.reduce.count = part->count;
    msg.u.reduce.fragment = fragment;
    msg.u.reduce.part = owner;
    msg.u.reduce.inputs_count = NODES;
    part->merged[owner] =
        fake_daemon_room(&node->daemon, (uint32_t)codec->bound((size_t)part->count));
    msg.u.reduce.out = part->merged[owner];
    for (uint32_t i = 0; i < NODES; i++) {
        msg.u.reduce.inputs[i].in = part->sent[i][owner];
        msg.u.reduce.inputs[i].tokens = 1;
        msg.u.reduce.inputs[i].steps = STEPS_BETWEEN;
    }
    fake_daemon_send(&node->daemon, &msg);
    await(node, TW_WMSG_REDUCED, &msg);
    assert_int_equal(msg.u.reduced.status, TW_OK);
    part->merged[owner].bytes = msg.u.reduced.bytes;
    part->merged[!owner] = carry(&nodes[!owner], node, part->merged[owner]);
}

static struct tw_id apply(uint32_t whose, uint64_t round, uint32_t fragment,
                          const struct part parts[NODES]) {
    struct node *node = &nodes[whose];
    struct tw_worker_msg msg = {.kind = TW_WMSG_APPLY};
    msg.u.apply.round = round;
    msg.u.apply.version = round / node->daemon.layout.fragments_count;
    msg.u.apply.min_step = node->trainer.step + 1;
    msg.u.apply.fragment = fragment;
    msg.u.apply.parts_count = NODES;
    msg.u.apply.steps = STEPS_BETWEEN;
    for (uint32_t i = 0; i < NODES; i++) {
        msg.u.apply.parts[i].begin = parts[i].begin;
        msg.u.apply.parts[i].count = parts[i].count;
        msg.u.apply.parts[i].mode = TW_APPLY_MIX;
        msg.u.apply.parts[i].contributors = NODES;
        msg.u.apply.parts[i].in = parts[i].merged[whose];
    }
    fake_daemon_send(&node->daemon, &msg);
    await(node, TW_WMSG_APPLIED, &msg);
    assert_int_equal(msg.u.applied.status, TW_OK);
    assert_int_equal(msg.u.applied.rounds, round + 1);
    return msg.u.applied.digest;
}

static void compare(uint32_t fragment) {
    struct tw_shm_view views[NODES];
    for (uint32_t i = 0; i < NODES; i++) tw_shm_view(&nodes[i].daemon.shm, fragment, &views[i]);
    const size_t bytes = (size_t)views[CPU].elements * sizeof(float);
    assert_memory_equal(views[CPU].phi, views[GPU].phi, bytes);
    assert_memory_equal(views[CPU].u, views[GPU].u, bytes);
}

static void take_round(uint64_t round) {
    const struct tw_layout *layout = &nodes[CPU].daemon.layout;
    const uint32_t fragment = (uint32_t)(round % layout->fragments_count);
    const uint64_t elements =
        layout->fragment_begin[fragment + 1] - layout->fragment_begin[fragment];
    const uint64_t half = elements / 2 / TW_PART_ALIGN * TW_PART_ALIGN;
    struct part parts[NODES] = {{.count = half}, {.begin = half, .count = elements - half}};
    struct tw_id digests[NODES];
    for (uint32_t i = 0; i < NODES; i++) {
        for (int step = 0; step < STEPS_BETWEEN; step++)
            must(tw_trainer_turn(&nodes[i].trainer, &err));
        encode(i, round, fragment, parts);
    }
    for (uint32_t i = 0; i < NODES; i++) reduce(i, round, fragment, &parts[i]);
    for (uint32_t i = 0; i < NODES; i++) digests[i] = apply(i, round, fragment, parts);
    assert_memory_equal(&digests[CPU], &digests[GPU], sizeof(digests[CPU]));
    compare(fragment);
}

static void group(enum tw_preset preset) {
    struct tw_run run;
    fake_run(&run);
    run.model.context = 8; /* a small model: the emulated device is slow */
    run.sync.fragments = 2;
    run.sync.preset = preset;
    tw_run_apply_preset(&run, preset);
    run.sync.fragments = 2;
    run.sync.period = 2 * STEPS_BETWEEN;
    run.sync.overlap = 1;
    must(tw_run_check(&run, &err));
    for (uint32_t i = 0; i < NODES; i++) node_open(&nodes[i], i, &run);
    for (uint64_t round = 0; round < ROUNDS; round++) take_round(round);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void anchors_are_the_same_in_streaming(void **state) {
    group(TW_PRESET_STREAMING);
}

static void anchors_are_the_same_in_sparseloco(void **state) {
    group(TW_PRESET_SPARSELOCO);
}

static void anchors_are_the_same_in_co2(void **state) {
    group(TW_PRESET_CO2);
}

static int text_make(void) {
    const int fd = mkstemp(text);
    FILE *const file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (file == NULL) return -1;
    for (unsigned i = 0; i < TEXT_LINES; i++) {
        (void)fprintf(file, "In the beginning was word %u, and word %u was with word %u.\n", i,
                      i * 7 % 101, i * 13 % 57);
    }
    return fclose(file);
}

int main(void) {
    struct tw_error why = {.message = ""};
    struct tw_cuda_info info;
    if (tw_cuda_count(&why) == 0 || tw_cuda_info(&info, 0, &why) != TW_OK ||
        info.reason[0] != '\0') {
        print_message("no device: %s%s\n", why.message, why.message[0] == '\0' ? info.reason : "");
        return 77;
    }
    if (text_make() != 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(anchors_are_the_same_in_streaming, nodes_close),
        cmocka_unit_test_teardown(anchors_are_the_same_in_sparseloco, nodes_close),
        cmocka_unit_test_teardown(anchors_are_the_same_in_co2, nodes_close),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(text);
    return failed;
}
