/* Tests of worker/loop/snapshot.c and of all users of worker/engine/vectors.h. One learner has
 * its parameters in far memory, and NaN in its mirrors after every step. For all requests it gives
 * the same bits as a learner whose parameters are on the host. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "compress/lattice.h"
#include "proto/worker_request.h"
#include "tests/worker/loop/fake_worker.h"

enum { ROOM = 65536, FRAGMENTS = 3, SEEN_MAX = 256 };

/* The memory that holds the parameters: the host's; far memory, like a device's; far memory whose
 * device also encodes contributions. */
enum place { HOST, FAR, FAR_PACKED, PLACES };

/* Everything that is visible from outside the worker. */
static struct seen {
    uint64_t count;
    float values[SEEN_MAX];
    size_t elements;
    float *state; /* theta, m and v at the end: (3, elements) */
} seen[PLACES], *now;

static void see(float value) {
    assert_true(now->count < SEEN_MAX);
    assert_true(isfinite(value));
    now->values[now->count++] = value;
}

static void worker_open(enum place place, uint32_t calls_fail) {
    fake_worker_attach(&(struct stub_learner){.is_remote = place != HOST,
                                              .far.can_pack = place == FAR_PACKED,
                                              .far.calls_fail = calls_fail});
    assert_int_equal(tw_trainer_init(&trainer, &link_, &welcome, &shm, &learner, &err), TW_OK);
}

static void turn(void) {
    if (tw_trainer_turn(&trainer, &err) != TW_OK) fail_msg("%s", err.message);
    struct tw_worker_msg msg;
    while (fake_daemon_recv(&dae, TW_WMSG_EVALUATED, &msg)) {
        see(msg.u.evaluated.loss_live);
        see(msg.u.evaluated.loss_anchor);
        see(msg.u.evaluated.distance);
    }
}

/* Runs one turn with this request. Returns the last answer of this kind. */
static struct tw_worker_msg ask(struct tw_worker_msg *msg, uint32_t answer) {
    struct tw_worker_msg reply;
    fake_daemon_send(&dae, msg);
    if (tw_trainer_turn(&trainer, &err) != TW_OK) fail_msg("%s", err.message);
    assert_true(fake_daemon_recv(&dae, answer, &reply));
    return reply;
}

static struct tw_span encode(uint64_t round, uint32_t fragment) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_ENCODE};
    msg.u.encode.round = round;
    msg.u.encode.fragment = fragment;
    msg.u.encode.parts_count = 1;
    msg.u.encode.parts[0].count = tw_shm_fragment_elements(&dae.shm, fragment);
    msg.u.encode.parts[0].out = fake_daemon_room(&dae, ROOM);
    const struct tw_worker_msg reply = ask(&msg, TW_WMSG_ENCODED);
    assert_int_equal(reply.u.encoded.status, TW_OK);
    see(reply.u.encoded.norm);
    struct tw_span span = msg.u.encode.parts[0].out;
    span.bytes = reply.u.encoded.bytes[0];
    const uint8_t *bytes = tw_shm_pool(&dae.shm, span.offset, span.bytes);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < span.bytes; i++) sum = sum * 31 + bytes[i];
    see((float)(sum >> 8));
    return span;
}

/* Records theta, m and v before the next step, which overwrites m and v in this learner. */
static void see_moments(void) {
    const float *arrays = stub.is_remote ? stub.remote : stub.arrays;
    const size_t elements = (size_t)dae.layout.elements;
    far_unlock(&stub.far);
    for (size_t array = 0; array < 3; array++) {
        float sum = 0;
        for (size_t i = 0; i < elements; i++) sum += arrays[array * elements + i];
        see(sum);
    }
    far_lock(&stub.far);
}

static void apply(uint64_t round, uint32_t fragment, enum tw_apply_mode mode, struct tw_span result,
                  bool is_final) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_APPLY};
    msg.u.apply.round = round;
    msg.u.apply.version = round / FRAGMENTS;
    msg.u.apply.fragment = fragment;
    msg.u.apply.steps = 4;
    msg.u.apply.is_final = is_final;
    msg.u.apply.parts_count = 1;
    msg.u.apply.parts[0].count = tw_shm_fragment_elements(&dae.shm, fragment);
    msg.u.apply.parts[0].mode = (uint32_t)mode;
    msg.u.apply.parts[0].contributors = 2;
    if (mode != TW_APPLY_ABSENT) msg.u.apply.parts[0].in = result;
    assert_int_equal(ask(&msg, TW_WMSG_APPLIED).u.applied.status, TW_OK);
    see_moments();
}

/* Makes a result that contains only the payload sent. */
static struct tw_span result_of(struct tw_span sent, uint32_t fragment) {
    const size_t n = (size_t)tw_shm_fragment_elements(&dae.shm, fragment);
    struct tw_span span = fake_daemon_room(&dae, ROOM);
    float *values = malloc(n * sizeof(float));
    size_t bytes = 0;
    assert_non_null(values);
    assert_int_equal(trainer.merger.codec->decode(tw_shm_pool(&dae.shm, sent.offset, sent.bytes),
                                                  sent.bytes, values, n),
                     TW_OK);
    assert_int_equal(trainer.merger.result->encode(values, n,
                                                   tw_shm_pool(&dae.shm, span.offset, span.bytes),
                                                   span.bytes, &bytes),
                     TW_OK);
    free(values);
    span.bytes = (uint32_t)bytes;
    return span;
}

static void solo(uint64_t round, uint32_t fragment) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_SOLO};
    msg.u.solo.round = round;
    msg.u.solo.fragment = fragment;
    assert_int_equal(ask(&msg, TW_WMSG_APPLIED).u.applied.status, TW_OK);
}

static void load(uint64_t rounds, uint32_t fragment, enum tw_load_mode mode) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_LOAD};
    struct tw_shm_view view;
    tw_shm_view(&dae.shm, fragment, &view);
    msg.u.load.fragment = fragment;
    msg.u.load.mode = (uint32_t)mode;
    msg.u.load.rounds = rounds;
    msg.u.load.digest = view.state.digest;
    assert_int_equal(ask(&msg, TW_WMSG_APPLIED).u.applied.status, TW_OK);
}

/* Runs a pair round without a partner: only the node's own Delta is applied. */
static void pair_alone(uint64_t round, uint32_t fragment, bool is_final) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_PAIR_ENCODE};
    const uint64_t elements = tw_shm_fragment_elements(&dae.shm, fragment);
    msg.u.pair_encode.round = round;
    msg.u.pair_encode.fragment = fragment;
    msg.u.pair_encode.delta = fake_daemon_room(&dae, ROOM);
    msg.u.pair_encode.phi = fake_daemon_room(&dae, (uint32_t)tw_lattice_bound(elements));
    const struct tw_worker_msg reply = ask(&msg, TW_WMSG_ENCODED);
    assert_int_equal(reply.u.encoded.status, TW_OK);
    see(reply.u.encoded.norm);
    turn();
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_PAIR_APPLY;
    msg.u.pair_apply.round = round;
    msg.u.pair_apply.version = round;
    msg.u.pair_apply.fragment = fragment;
    msg.u.pair_apply.is_alone = true;
    msg.u.pair_apply.is_final = is_final;
    assert_int_equal(ask(&msg, TW_WMSG_APPLIED).u.applied.status, TW_OK);
}

static void star_script(void) {
    turn();
    struct tw_span result = encode(0, 0);
    turn();
    apply(0, 0, TW_APPLY_MIX, result, false);
    result = encode(1, 1);
    apply(1, 1, TW_APPLY_SHIFT, result, false);
    (void)encode(2, 2);
    turn();
    apply(2, 2, TW_APPLY_ABSENT, result, false);
    result = encode(3, 0);
    (void)encode(3, 0); /* withdraws the Delta in flight */
    apply(3, 0, TW_APPLY_MIX, result, false);
    solo(4, 1);
    turn();
    (void)encode(5, 2);
    load(6, 2, TW_LOAD_KEEP); /* withdraws the Delta in flight, too */
    turn();
    load(7, 1, TW_LOAD_SHIFT);
    turn();
    load(8, 0, TW_LOAD_RESET);
    turn();
    apply(9, 0, TW_APPLY_SHIFT, result, true);
}

/* Runs rounds of one fragment in which only the sender decodes the payloads. */
static void codec_script(void) {
    turn();
    for (uint64_t round = 0; round < 4; round++) {
        const struct tw_span sent = encode(round * FRAGMENTS, 0);
        turn();
        apply(round * FRAGMENTS, 0, round == 2 ? TW_APPLY_SHIFT : TW_APPLY_MIX, result_of(sent, 0),
              false);
        turn();
    }
}

static void pair_script(void) {
    turn();
    pair_alone(0, 0, false);
    pair_alone(1, 1, false);
    turn();
    pair_alone(2, 0, false);
    pair_alone(3, 2, true);
}

static void restart(enum place place) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_EXIT};
    struct tw_snapshot_slot meta;
    fake_daemon_send(&dae, &msg);
    turn();
    assert_true(trainer.is_over);
    fake_worker_detach();
    fake_daemon_reconnect(&dae);
    dae.welcome.start = TW_START_SNAPSHOT;
    dae.welcome.slot = (uint32_t)tw_shm_snapshot_newest(&dae.shm, &meta);
    worker_open(place, 0);
    assert_int_equal(tw_trainer_start(&trainer, &err), TW_OK);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
    assert_int_equal(msg.u.ready.start, TW_START_SNAPSHOT);
}

static void play(const struct tw_run *run, enum place place, void (*script)(void)) {
    now = &seen[place];
    now->count = 0;
    fake_daemon_open(&dae, run, TW_SNAPSHOT_FULL);
    dae.welcome.eval_steps = 3;
    worker_open(place, 0);
    assert_int_equal(tw_trainer_start(&trainer, &err), TW_OK);
    struct tw_worker_msg msg;
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
    script();
    turn();
    restart(place);
    turn();
    turn();
    now->elements = (size_t)dae.layout.elements;
    now->state = malloc(3 * now->elements * sizeof(float));
    far_unlock(&stub.far);
    memcpy(now->state, stub.is_remote ? stub.remote : stub.arrays,
           3 * now->elements * sizeof(float));
    far_lock(&stub.far);
    fake_worker_detach();
    fake_daemon_close(&dae);
}

static void compare(const struct tw_run *run, void (*script)(void)) {
    struct tw_error why;
    if (tw_run_check(run, &why) != TW_OK) fail_msg("%s", why.message);
    for (enum place place = HOST; place < PLACES; place++) play(run, place, script);
    const struct seen *host = &seen[HOST];
    assert_true(host->count > 4);
    for (enum place place = FAR; place < PLACES; place++) {
        assert_int_equal(host->count, seen[place].count);
        assert_memory_equal(host->values, seen[place].values, host->count * sizeof(float));
        assert_memory_equal(host->state, seen[place].state, 3 * host->elements * sizeof(float));
    }
    for (enum place place = HOST; place < PLACES; place++) free(seen[place].state);
}

TEST(parameters_may_be_anywhere) {
    static const enum tw_sent sents[] = {TW_SENT_MIX, TW_SENT_KEEP, TW_SENT_RESTART, TW_SENT_EAGER};
    for (unsigned i = 0; i < 16; i++) {
        struct tw_run run;
        fake_run(&run);
        run.sync.sent = sents[i / 4];
        if (run.sync.sent != TW_SENT_MIX) run.sync.mix_millionths = 0;
        run.sync.lead_millionths = i % 2 == 0 ? 0 : 500000;
        run.sync.feedback_millionths = i % 4 < 2 ? 0 : 900000;
        run.sync.feedback_local_millionths =
            run.sync.sent == TW_SENT_MIX ? 0 : run.sync.feedback_millionths / 2;
        print_message("sent %u, lead %u, feedback %u\n", run.sync.sent, run.sync.lead_millionths,
                      run.sync.feedback_millionths);
        compare(&run, star_script);
    }
}

TEST(parameters_may_be_anywhere_in_every_codec) {
    uint32_t count;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    for (uint32_t i = 0; i < 2 * count; i++) {
        const struct tw_codec *codec = codecs[i / 2];
        struct tw_run run;
        fake_run(&run);
        run.sync.sent = i % 2 == 0 ? TW_SENT_EAGER : TW_SENT_RESTART;
        run.sync.mix_millionths = 0;
        run.sync.codec = codec->id;
        run.sync.result = TW_CODEC_BF16;
        run.sync.feedback_millionths = codec->needs_feedback || i % 2 == 0 ? 950000 : 0;
        run.sync.feedback_local_millionths =
            run.sync.sent == TW_SENT_MIX ? 0 : run.sync.feedback_millionths / 2;
        run.sync.outer = i % 2 == 0 ? TW_OUTER_HEAVYBALL : TW_OUTER_NESTEROV;
        print_message("%s\n", codec->name);
        compare(&run, codec_script);
    }
}

TEST(parameters_may_be_anywhere_in_pairs) {
    for (unsigned i = 0; i < 2; i++) {
        struct tw_run run;
        fake_run(&run);
        run.sync.topology = TW_TOPOLOGY_PAIR;
        run.sync.merge = TW_MERGE_MEAN;
        run.sync.lead_millionths = 0;
        run.sync.outer = TW_OUTER_HEAVYBALL;
        run.sync.sent = TW_SENT_KEEP;
        run.sync.mix_millionths = 0;
        run.sync.outer_lr_millionths = 700000;
        run.sync.outer_momentum_millionths = 500000;
        run.sync.consensus_millionths = 700000;
        run.sync.feedback_millionths = i * 900000;
        run.sync.feedback_local_millionths =
            run.sync.sent == TW_SENT_MIX ? 0 : run.sync.feedback_millionths / 2;
        compare(&run, pair_script);
    }
}

/* Checks the number of bytes copied from and to far memory since the last call. */
static void see_traffic(uint64_t out, uint64_t in) {
    assert_int_equal(stub.far.bytes_out, out);
    assert_int_equal(stub.far.bytes_in, in);
    stub.far.bytes_out = stub.far.bytes_in = 0;
}

static void check_traffic(enum tw_sent sent, enum tw_codec_id codec, bool asks_for_merge) {
    struct tw_run run;
    fake_run(&run);
    run.sync.sent = sent;
    if (sent != TW_SENT_MIX) run.sync.mix_millionths = 0;
    run.sync.lead_millionths = asks_for_merge && sent != TW_SENT_EAGER ? 500000 : 0;
    run.sync.codec = codec;
    now = &seen[FAR_PACKED];
    now->count = 0;
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_OFF);
    worker_open(FAR_PACKED, 0);
    assert_int_equal(tw_trainer_start(&trainer, &err), TW_OK);
    const uint64_t floats = tw_shm_fragment_elements(&dae.shm, 1) * sizeof(float);
    struct tw_worker_msg msg;
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
    turn();
    struct tw_span span = encode(1, 1);
    see_traffic(span.bytes, floats); /* the anchor is copied in for the first time */
    apply(1, 1, TW_APPLY_MIX, result_of(span, 1), false);
    see_traffic(0, asks_for_merge ? 2 * floats : floats); /* the next anchor */
    turn();
    span = encode(4, 1);
    see_traffic(span.bytes, 0);
    apply(4, 1, TW_APPLY_SHIFT, result_of(span, 1), false);
    see_traffic(0, asks_for_merge ? 2 * floats : floats);
    fake_worker_detach();
    fake_daemon_close(&dae);
}

TEST(only_bytes_and_anchors_cross_the_bus) {
    check_traffic(TW_SENT_MIX, TW_CODEC_INT4, false);
    check_traffic(TW_SENT_MIX, TW_CODEC_INT4, true);
    check_traffic(TW_SENT_RESTART, TW_CODEC_BF16, false);
    check_traffic(TW_SENT_EAGER, TW_CODEC_INT8, true);
}

/* After a device fault at any call, the worker ends with TW_DEVICE. It sends no answer to the
 * unfinished request, and all anchors in shared memory are complete. */
static void fail_at(const struct tw_run *run, enum place place, uint32_t fail, bool *has_ended) {
    fake_daemon_open(&dae, run, TW_SNAPSHOT_FULL);
    dae.welcome.eval_steps = 2;
    worker_open(place, fail);
    enum tw_status status = tw_trainer_start(&trainer, &err);
    struct tw_worker_msg msg = {.kind = TW_WMSG_SOLO};
    msg.u.solo.fragment = 1;
    fake_daemon_send(&dae, &msg);
    msg = (struct tw_worker_msg){.kind = TW_WMSG_ENCODE};
    msg.u.encode.fragment = 2;
    msg.u.encode.parts_count = 1;
    msg.u.encode.parts[0].count = tw_shm_fragment_elements(&dae.shm, 2);
    msg.u.encode.parts[0].out = fake_daemon_room(&dae, ROOM);
    fake_daemon_send(&dae, &msg);
    for (unsigned i = 0; i < 5 && status == TW_OK; i++) status = tw_trainer_turn(&trainer, &err);
    *has_ended = status != TW_OK;
    if (*has_ended) {
        assert_int_equal(status, TW_DEVICE);
        assert_non_null(strstr(err.message, "device fell"));
    }
    const bool has_answered = fake_daemon_recv(&dae, TW_WMSG_READY, &msg) &&
                              fake_daemon_recv(&dae, TW_WMSG_APPLIED, &msg) &&
                              fake_daemon_recv(&dae, TW_WMSG_ENCODED, &msg);
    if (has_answered) assert_int_equal(msg.u.encoded.status, TW_OK);
    assert_true(has_answered || *has_ended);
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        struct tw_shm_view view;
        tw_shm_view(&dae.shm, p, &view);
        const struct tw_id digest =
            tw_shm_digest(view.phi, view.u, view.elements, dae.shm.momentum);
        assert_true(view.state.rounds <= (p == 1));
        assert_true(fail < 3 || tw_id_equal(&view.state.digest, &digest));
    }
    fake_worker_detach();
    fake_daemon_close(&dae);
}

TEST(failing_device_ends_the_worker) {
    struct tw_run run;
    fake_run(&run);
    run.sync.sent = TW_SENT_EAGER;
    run.sync.mix_millionths = 0;
    run.sync.feedback_millionths = 900000;
    for (enum place place = FAR; place < PLACES; place++) {
        bool has_ended = true;
        uint32_t fail = 1;
        for (; has_ended && fail < 100; fail++) fail_at(&run, place, fail, &has_ended);
        assert_in_range(fail, 20, 99);
    }
}
