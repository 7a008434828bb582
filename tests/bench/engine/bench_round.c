/* bench_round.c - thinwire-round-bench: the cost of a run's rounds for a node's training. The
 * worker's own loop takes steps. Periods with the rounds of every fragment alternate with periods
 * without, so that a change of the machine's speed affects both. The daemon's side is in this
 * process: ENCODE, REDUCE of two nodes' contributions, APPLY. Snapshots and evaluation are left
 * out.
 *
 * The last line is JSON. encode_s and apply_s are the extra time of step boundaries with these
 * requests, over all rounds of a period. The overhead includes both, and the slowdown of steps
 * while REDUCE runs. The time of digests of (phi, u) is reported separately: without a hash
 * library, they are computed in plain C. check_s and check_step_s are processor times of a check of
 * a contribution (sync.jury) and of a step; contribution_bytes are those that its juror fetches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "compress/codec.h"
#include "sync/node.h"
#include "tests/worker/loop/fake_daemon.h"
#include "worker/engine/engine.h"
#include "worker/loop/trainer.h"
#include "worker/merge/merge_memory.h"

enum { PERIODS_MAX = 64, STEPS_MOST = 64, PARTS = 2, PATIENCE_MS = 60000 };

struct fragment {
    struct tw_span sent[PARTS], merged[PARTS];
    uint64_t begin[PARTS], count[PARTS];
    uint64_t round;
};

struct bench {
    struct tw_run run;
    struct tw_compute_config compute;
    uint32_t periods;
    struct fake_daemon daemon;
    struct tw_daemon_link link;
    struct tw_wmsg_welcome welcome;
    struct tw_shm shm;
    struct tw_engine *engine;
    struct tw_learner learner;
    struct tw_trainer trainer;
    uint32_t *tokens; /* (batch, context + 1) */
    struct fragment fragments[TW_FRAGMENTS_MAX];
    /* steps of a measured period: the run's, or more until all rounds have ended */
    uint32_t steps;
    double plain_s[PERIODS_MAX], rounds_s[PERIODS_MAX];
    /* seconds of the loop turns that answered ENCODE or APPLY, including their steps */
    double encode_s[PERIODS_MAX], apply_s[PERIODS_MAX];
};

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- a learner of random tokens -------------------------------------------------------------- */

static void learner_init(void *self, float *params) {
    const struct bench *bench = self;
    tw_engine_init_params(&bench->run, &bench->daemon.layout, params);
}

static const uint32_t *next_batch(void *self) {
    const struct bench *bench = self;
    return bench->tokens;
}

static enum tw_status learner_step(void *self, uint64_t *cursor, float lr,
                                   struct tw_step_result *result, struct tw_error *err) {
    struct bench *bench = self;
    *cursor += bench->learner.tokens_per_step;
    return tw_engine_step(bench->engine, bench->tokens, lr, result, err);
}

static enum tw_status learner_heldout(void *self, const float *params, double *loss,
                                      struct tw_error *err) {
    (void)self, (void)params, (void)loss;
    return tw_fail(err, TW_AGAIN, "nothing is held out here");
}

static enum tw_status learner_losses(void *self, const float *params, uint64_t seed,
                                     const uint64_t *cursors, uint32_t count, double *losses,
                                     struct tw_error *err) {
    struct bench *bench = self;
    (void)seed, (void)cursors;
    for (uint32_t i = 0; i < count; i++)
        TW_TRY(tw_engine_loss(bench->engine, params, bench->tokens, 1, &losses[i], err));
    return TW_OK;
}

static uint64_t learner_epoch(void *self) {
    (void)self;
    return 1 << 20;
}

static float learner_lr(void *self, uint64_t clock_tokens) {
    (void)self, (void)clock_tokens;
    return 1e-4f;
}

static enum tw_status learner_pull(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                                   struct tw_error *err) {
    return tw_engine_pull(((struct bench *)self)->engine, arrays, begin, n, err);
}

static enum tw_status learner_push(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                                   struct tw_error *err) {
    return tw_engine_push(((struct bench *)self)->engine, arrays, begin, n, err);
}

static enum tw_status learner_open(struct bench *bench, struct tw_error *err) {
    const struct tw_run *const run = &bench->run;
    const size_t count = (size_t)run->train.batch * (run->model.context + 1);
    const struct tw_layout *const layout = &bench->daemon.layout;
    const struct tw_engine_config config = {.run = run,
                                            .layout = layout,
                                            .compute = bench->compute,
                                            .sync_bytes = tw_merge_live_bytes(run, layout)};
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    bench->tokens = calloc(count, sizeof(*bench->tokens));
    if (bench->tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for a batch");
    for (size_t i = 0; i < count; i++) {
        bench->tokens[i] = (uint32_t)tw_rng_below(&rng, run->model.vocab);
    }
    TW_TRY(tw_engine_create(&bench->engine, &config, err));
    tw_engine_look_ahead(bench->engine, next_batch, bench);
    bench->learner =
        (struct tw_learner){.self = bench,
                            .theta = bench->engine->theta,
                            .m = bench->engine->m,
                            .v = bench->engine->v,
                            .is_host_idle = bench->engine->plan.is_on_gpu,
                            .updates = &bench->engine->updates,
                            .tokens_per_step = (uint64_t)run->train.batch * run->model.context,
                            .init = learner_init,
                            .step = learner_step,
                            .heldout = learner_heldout,
                            .drawn_losses = learner_losses,
                            .epoch_windows = learner_epoch,
                            .lr = learner_lr,
                            .pull = learner_pull,
                            .push = learner_push};
    if (bench->engine->plan.is_on_gpu)
        return tw_engine_vectors(bench->engine, &bench->learner.vectors, err);
    bench->learner.vectors =
        tw_vectors_host(bench->learner.theta, bench->learner.m, bench->learner.v);
    return TW_OK;
}

/* ---- the daemon's side of a round ------------------------------------------------------------ */

static void plan_fragment(struct bench *bench, uint32_t p) {
    const struct tw_layout *const layout = &bench->daemon.layout;
    const struct tw_codec *const codec = tw_codec_get(bench->run.sync.codec);
    const struct tw_codec *const result = tw_codec_get(bench->run.sync.result);
    const uint64_t elements = layout->fragment_begin[p + 1] - layout->fragment_begin[p];
    struct fragment *const fragment = &bench->fragments[p];
    const uint64_t half = elements / 2 / TW_PART_ALIGN * TW_PART_ALIGN;
    for (uint32_t i = 0; i < PARTS; i++) {
        fragment->begin[i] = i == 0 ? 0 : half;
        fragment->count[i] = i == 0 ? half : elements - half;
        const size_t n = (size_t)fragment->count[i];
        fragment->sent[i] = fake_daemon_room(&bench->daemon, (uint32_t)codec->bound(n));
        fragment->merged[i] = fake_daemon_room(&bench->daemon, (uint32_t)result->bound(n));
    }
}

static void ask_encode(struct bench *bench, uint32_t p) {
    struct fragment *const fragment = &bench->fragments[p];
    struct tw_worker_msg msg = {.kind = TW_WMSG_ENCODE};
    msg.u.encode.round = fragment->round;
    msg.u.encode.fragment = p;
    msg.u.encode.parts_count = PARTS;
    for (uint32_t i = 0; i < PARTS; i++) {
        msg.u.encode.parts[i].begin = fragment->begin[i];
        msg.u.encode.parts[i].count = fragment->count[i];
        msg.u.encode.parts[i].out = fragment->sent[i];
    }
    fake_daemon_send(&bench->daemon, &msg);
}

static void ask_reduce(struct bench *bench, uint32_t p, uint32_t part) {
    const struct fragment *const fragment = &bench->fragments[p];
    struct tw_worker_msg msg = {.kind = TW_WMSG_REDUCE};
    msg.u.reduce.round = fragment->round;
    msg.u.reduce.begin = fragment->begin[part];
    msg.u.reduce.count = fragment->count[part];
    msg.u.reduce.fragment = p;
    msg.u.reduce.part = part;
    msg.u.reduce.inputs_count = 2;
    msg.u.reduce.out = fragment->merged[part];
    for (uint32_t i = 0; i < 2; i++) {
        msg.u.reduce.inputs[i].in = fragment->sent[part];
        msg.u.reduce.inputs[i].tokens = 1;
        msg.u.reduce.inputs[i].steps = bench->run.sync.period;
    }
    fake_daemon_send(&bench->daemon, &msg);
}

static void ask_apply(struct bench *bench, uint32_t p) {
    struct fragment *const fragment = &bench->fragments[p];
    struct tw_worker_msg msg = {.kind = TW_WMSG_APPLY};
    msg.u.apply.round = fragment->round;
    msg.u.apply.version = fragment->round;
    msg.u.apply.min_step = bench->trainer.step + bench->run.sync.overlap;
    msg.u.apply.fragment = p;
    msg.u.apply.parts_count = PARTS;
    msg.u.apply.steps = bench->run.sync.period;
    for (uint32_t i = 0; i < PARTS; i++) {
        msg.u.apply.parts[i].begin = fragment->begin[i];
        msg.u.apply.parts[i].count = fragment->count[i];
        msg.u.apply.parts[i].mode = TW_APPLY_MIX;
        msg.u.apply.parts[i].contributors = 2;
        msg.u.apply.parts[i].in = fragment->merged[i];
    }
    fake_daemon_send(&bench->daemon, &msg);
    fragment->round++;
}

static enum tw_status refused(const char *what, uint32_t status, struct tw_error *err) {
    return tw_fail(err, TW_CORRUPT, "the worker refused to %s: %s", what,
                   tw_status_name((enum tw_status)status));
}

/* Sends the next request of fragment p's round, as a daemon would, once the worker has answered the
 * last one. *stage is 0 if no round is in progress, else 1 ENCODED, 2 REDUCED, 3 APPLIED. The first
 * period reduces both parts; later periods reuse the result of the other owner's part. */
static enum tw_status follow(struct bench *bench, uint32_t p, uint32_t *stage,
                             struct tw_error *err) {
    struct fragment *const fragment = &bench->fragments[p];
    struct tw_worker_msg msg;
    if (*stage == 1 && fake_daemon_recv(&bench->daemon, TW_WMSG_ENCODED, &msg)) {
        if (msg.u.encoded.status != TW_OK) return refused("encode", msg.u.encoded.status, err);
        for (uint32_t i = 0; i < PARTS; i++) fragment->sent[i].bytes = msg.u.encoded.bytes[i];
        ask_reduce(bench, p, 0);
        *stage = 2;
    } else if (*stage == 2 && fake_daemon_recv(&bench->daemon, TW_WMSG_REDUCED, &msg)) {
        if (msg.u.reduced.status != TW_OK) return refused("reduce", msg.u.reduced.status, err);
        fragment->merged[msg.u.reduced.part].bytes = msg.u.reduced.bytes;
        if (fragment->round == 0 && msg.u.reduced.part == 0) {
            ask_reduce(bench, p, 1);
        } else {
            ask_apply(bench, p);
            *stage = 3;
        }
    } else if (*stage == 3 && fake_daemon_recv(&bench->daemon, TW_WMSG_APPLIED, &msg)) {
        if (msg.u.applied.status != TW_OK) return refused("apply", msg.u.applied.status, err);
        *stage = 0;
    }
    return TW_OK;
}

/* Resets the spans, which have the size of the sent bytes, to their full room for the next round.
 */
static void room_again(struct bench *bench, uint32_t p) {
    const struct tw_codec *const codec = tw_codec_get(bench->run.sync.codec);
    const struct tw_codec *const result = tw_codec_get(bench->run.sync.result);
    struct fragment *const fragment = &bench->fragments[p];
    for (uint32_t i = 0; i < PARTS; i++) {
        fragment->sent[i].bytes = (uint32_t)codec->bound((size_t)fragment->count[i]);
    }
    fragment->merged[0].bytes = (uint32_t)result->bound((size_t)fragment->count[0]);
}

/* ---- periods --------------------------------------------------------------------------------- */

/* Seconds of one period, and of its steps in which the worker answered ENCODE or APPLY. */
struct taken {
    double all_s, encode_s, apply_s;
};

/* Runs one period. The first call is a warm-up. It sets the steps of all later periods
 * (bench->steps), because on a fast device, rounds may need more steps than the run's period has.
 */
static enum tw_status take_period(struct bench *bench, bool has_rounds, struct taken *taken,
                                  struct tw_error *err) {
    const uint32_t period = bench->run.sync.period, count = bench->daemon.layout.fragments_count;
    const uint32_t least = bench->steps > 0 ? bench->steps : period;
    uint32_t stage = 0, next = 0, p = 0, step = 0;
    const double begin_s = now_s();
    *taken = (struct taken){.all_s = 0};
    for (; step < least || stage != 0 || (has_rounds && next < count); step++) {
        if (has_rounds && stage == 0 && next < count && step >= next * (period / count)) {
            p = next++;
            if (bench->fragments[p].round > 0) room_again(bench, p);
            ask_encode(bench, p);
            stage = 1;
        }
        if (step >= STEPS_MOST * period) {
            return tw_fail(err, TW_LIMIT,
                           "a round does not end: %u of %u fragments had one in %u "
                           "steps",
                           (unsigned)next, (unsigned)count, (unsigned)step);
        }
        const uint32_t before = stage;
        const double turn_s = now_s();
        TW_TRY(tw_trainer_turn(&bench->trainer, err));
        const double took_s = now_s() - turn_s;
        TW_TRY(follow(bench, p, &stage, err));
        if (before == 1 && stage == 2) taken->encode_s += took_s;
        if (before == 3 && stage == 0) taken->apply_s += took_s;
        if (step + 1 == least) taken->all_s = now_s() - begin_s;
    }
    if (bench->steps == 0) bench->steps = step > period ? step + step / 4 : period;
    return TW_OK;
}

static int order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds, uint32_t n) {
    qsort(seconds, n, sizeof(*seconds), order);
    return seconds[n / 2];
}

static double digests_s(const struct bench *bench) {
    const double begin_s = now_s();
    for (uint32_t p = 0; p < bench->daemon.layout.fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(&bench->shm, p, &view);
        (void)tw_shm_digest(view.phi, view.u, view.elements, bench->shm.momentum);
    }
    return now_s() - begin_s;
}

static double processor_s(void) {
    struct timespec used;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* Checks the last contribution to fragment 0 between steps. Sets the processor time of the check
 * and of a step. */
static enum tw_status take_check(struct bench *bench, double *check_s, double *step_s,
                                 struct tw_error *err) {
    enum { STEPS = 4 };
    const struct fragment *const fragment = &bench->fragments[0];
    struct tw_worker_msg msg = {.kind = TW_WMSG_JUDGE}, answer;
    const double begin_s = processor_s();
    for (unsigned i = 0; i < STEPS; i++) TW_TRY(tw_trainer_turn(&bench->trainer, err));
    *step_s = (processor_s() - begin_s) / STEPS;
    msg.u.judge.tokens = bench->learner.tokens_per_step * bench->run.sync.period;
    msg.u.judge.cursor = 2 * msg.u.judge.tokens;
    msg.u.judge.parts_count = PARTS;
    for (uint32_t i = 0; i < PARTS; i++) {
        msg.u.judge.parts[i].begin = fragment->begin[i];
        msg.u.judge.parts[i].count = fragment->count[i];
        msg.u.judge.parts[i].in = fragment->sent[i];
    }
    fake_daemon_send(&bench->daemon, &msg);
    uint32_t steps = 0;
    const double from_s = processor_s();
    do {
        TW_TRY(tw_trainer_turn(&bench->trainer, err));
        steps++;
    } while (!fake_daemon_recv(&bench->daemon, TW_WMSG_JUDGED, &answer));
    *check_s = processor_s() - from_s - steps * *step_s;
    return answer.u.judged.status == TW_OK ? TW_OK : refused("judge", answer.u.judged.status, err);
}

static enum tw_status measure(struct bench *bench, struct tw_error *err) {
    char text[96];
    double check_s, check_step_s;
    struct taken taken;
    TW_TRY(take_period(bench, true, &taken, err)); /* warms up plans, graphs and caches */
    for (uint32_t i = 0; i < bench->periods; i++) {
        TW_TRY(take_period(bench, false, &taken, err));
        bench->plain_s[i] = taken.all_s;
        TW_TRY(take_period(bench, true, &taken, err));
        bench->rounds_s[i] = taken.all_s;
        bench->encode_s[i] = taken.encode_s;
        bench->apply_s[i] = taken.apply_s;
    }
    TW_TRY(take_check(bench, &check_s, &check_step_s, err));
    const double digests = digests_s(bench), plain = median(bench->plain_s, bench->periods),
                 rounds = median(bench->rounds_s, bench->periods);
    const double step_s = plain / bench->steps,
                 steps_s = bench->daemon.layout.fragments_count * step_s;
    tw_engine_describe(bench->engine, text, sizeof(text));
    (void)printf("{\"what\": \"%s\", \"params\": %llu, \"fragments\": %u, \"period\": %u, "
                 "\"step_s\": %.6f, \"period_plain_s\": %.6f, \"period_rounds_s\": %.6f, "
                 "\"encode_s\": %.6f, \"apply_s\": %.6f, \"digests_s\": %.6f, "
                 "\"overhead\": %.6f, \"check_s\": %.6f, \"check_step_s\": %.6f, "
                 "\"contribution_bytes\": %u}\n",
                 text, (unsigned long long)bench->daemon.layout.params,
                 (unsigned)bench->daemon.layout.fragments_count, (unsigned)bench->run.sync.period,
                 step_s, plain, rounds, median(bench->encode_s, bench->periods) - steps_s,
                 median(bench->apply_s, bench->periods) - steps_s, digests,
                 (rounds - plain) / (bench->run.sync.period * step_s), check_s, check_step_s,
                 (unsigned)(bench->fragments[0].sent[0].bytes + bench->fragments[0].sent[1].bytes));
    return TW_OK;
}

/* ---- command line ---------------------------------------------------------------------------- */

static enum tw_status read_options(struct bench *bench, int argc, char **argv,
                                   struct tw_error *err) {
    for (int i = 1; i < argc; i += 2) {
        const char *const name = argv[i], *const value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strncmp(name, "--", 2) != 0 || value == NULL) {
            return tw_fail(err, TW_CONFIG,
                           "usage: thinwire-round-bench [--model NAME] [--device DEVICE] "
                           "[--periods N] [--KEY VALUE ...]");
        }
        if (strcmp(name, "--device") == 0) {
            TW_TRY(tw_device_parse(value, &bench->compute.device, err));
        } else if (strcmp(name, "--periods") == 0) {
            bench->periods = (uint32_t)strtoul(value, NULL, 10);
            if (bench->periods < 1 || bench->periods > PERIODS_MAX) {
                return tw_fail(err, TW_CONFIG, "--periods %s: 1 to %d", value, PERIODS_MAX);
            }
        } else if (strcmp(name, "--model") == 0) {
            TW_TRY(tw_run_apply_model(&bench->run, value, err));
        } else {
            TW_TRY(tw_run_set(&bench->run, name + 2, value, err));
        }
    }
    tw_run_apply_preset(&bench->run, TW_PRESET_STREAMING);
    return tw_run_check(&bench->run, err);
}

static enum tw_status run(struct bench *bench, struct tw_error *err) {
    int memfd = -1;
    TW_TRY(learner_open(bench, err));
    fake_daemon_welcome(&bench->daemon);
    bench->link.fd = bench->daemon.worker_fd;
    TW_TRY(tw_daemon_link_greet(&bench->link, "bench", err));
    TW_TRY(tw_daemon_link_attach(&bench->link, PATIENCE_MS, &bench->welcome, &memfd, err));
    TW_TRY(tw_daemon_link_map(memfd, &bench->welcome, &bench->daemon.layout, &bench->shm, err));
    TW_TRY(tw_trainer_init(&bench->trainer, &bench->link, &bench->welcome, &bench->shm,
                           &bench->learner, err));
    enum tw_status status = tw_trainer_start(&bench->trainer, err);
    struct tw_worker_msg ready;
    if (status == TW_OK && !fake_daemon_recv(&bench->daemon, TW_WMSG_READY, &ready)) {
        status = tw_fail(err, TW_PROTO, "the worker does not say READY");
    }
    if (status == TW_OK) status = measure(bench, err);
    tw_trainer_deinit(&bench->trainer);
    tw_daemon_link_unmap(&bench->shm);
    return status;
}

int main(int argc, char **argv) {
    static struct bench bench = {.periods = 3, .compute.device.kind = TW_DEVICE_CPU};
    struct tw_error err;
    tw_run_defaults(&bench.run);
    bench.run.sync.nodes = 2;
    enum tw_status status = read_options(&bench, argc, argv, &err);
    if (status == TW_OK) {
        fake_daemon_open(&bench.daemon, &bench.run, TW_SNAPSHOT_OFF);
        for (uint32_t p = 0; p < bench.daemon.layout.fragments_count; p++) plan_fragment(&bench, p);
        status = run(&bench, &err);
        tw_daemon_link_close(&bench.link);
        fake_daemon_close(&bench.daemon);
    }
    if (status != TW_OK) (void)fprintf(stderr, "thinwire-round-bench: %s\n", err.message);
    tw_engine_destroy(bench.engine);
    free(bench.tokens);
    return status == TW_OK ? 0 : status == TW_CONFIG ? 2 : 1;
}
