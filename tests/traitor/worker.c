/* worker.c - a worker that lies to the run: thinwire-worker with a liar between its loop, its
 * engine and its daemon, which is honest.
 *
 * The program is linked from the objects of thinwire-worker. The linker replaces the functions
 * below (--wrap), so the worker's code is unchanged. TW_LIAR lists the lies, such as
 * "claims=64,outer=-15":
 *
 *   steps=K     K times its inner steps are claimed       tokens=K    the same for its tokens
 *   claims=K    both: a contribution of other steps than tokens is refused as impossible
 *   outer=T     T times its outer gradient is sent
 *   lazy        one of TW_LAZY_STEPS steps is trained, and all are claimed
 *   poison      it trains on a backdoor (training.h)
 *   foreign     it trains on another text */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "tests/traitor/training.h"
#include "worker/learn/learner_engine.h"
#include "worker/loop/daemon_link.h"
#include "worker/loop/step_server.h"
#include "worker/merge/merger.h"

enum tw_status __real_tw_batches_draw(struct tw_batches *batches, uint64_t *cursor,
                                      struct tw_error *err);
enum tw_status __wrap_tw_batches_draw(struct tw_batches *batches, uint64_t *cursor,
                                      struct tw_error *err);
enum tw_status __real_tw_engine_step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                                     struct tw_step_result *result, struct tw_error *err);
enum tw_status __wrap_tw_engine_step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                                     struct tw_step_result *result, struct tw_error *err);
enum tw_status __real_tw_merger_encode(struct tw_merger *merger,
                                       const struct tw_wmsg_encode *request,
                                       struct tw_wmsg_encoded *reply, struct tw_error *err);
enum tw_status __wrap_tw_merger_encode(struct tw_merger *merger,
                                       const struct tw_wmsg_encode *request,
                                       struct tw_wmsg_encoded *reply, struct tw_error *err);
enum tw_status __real_tw_daemon_link_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                          struct tw_error *err);
enum tw_status __wrap_tw_daemon_link_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                          struct tw_error *err);
enum tw_status __real_tw_daemon_link_try_send(struct tw_daemon_link *link,
                                              struct tw_worker_msg *msg, struct tw_error *err);
enum tw_status __wrap_tw_daemon_link_try_send(struct tw_daemon_link *link,
                                              struct tw_worker_msg *msg, struct tw_error *err);
enum tw_status __real_tw_step_server_recv(struct tw_step_server *side, struct tw_worker_msg *msg,
                                          struct tw_error *err);
enum tw_status __wrap_tw_step_server_recv(struct tw_step_server *side, struct tw_worker_msg *msg,
                                          struct tw_error *err);

/* ---- which lies ------------------------------------------------------------------------------ */

static struct {
    bool is_read, is_lazy, is_poison, is_foreign;
    uint64_t steps, tokens; /* factors */
    double outer;
    struct tw_rng rng;
} lies = {.steps = 1, .tokens = 1, .outer = 1};

static void read_lie(const char *word) {
    const char *const names[] = {"lazy", "poison", "foreign"};
    bool *const flags[] = {&lies.is_lazy, &lies.is_poison, &lies.is_foreign};
    bool is_known = sscanf(word, "steps=%" SCNu64, &lies.steps) == 1 ||
                    sscanf(word, "tokens=%" SCNu64, &lies.tokens) == 1 ||
                    sscanf(word, "outer=%lf", &lies.outer) == 1;
    if (sscanf(word, "claims=%" SCNu64, &lies.steps) == 1) {
        is_known = true;
        lies.tokens = lies.steps;
    }
    for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (strcmp(word, names[i]) != 0) continue;
        is_known = true;
        *flags[i] = true;
    }
    if (is_known && lies.steps > 0 && lies.tokens > 0) return;
    (void)fprintf(stderr, "TW_LIAR: there is no lie %s\n", word);
    exit(2);
}

/* Called by each function below, the first time before a step is taken. */
static void read_lies(void) {
    if (lies.is_read) return;
    lies.is_read = true;
    const char *text = getenv("TW_LIAR");
    char words[256];
    tw_rng_seed(&lies.rng, 1);
    (void)snprintf(words, sizeof(words), "%s", text != NULL ? text : "");
    tw_log(TW_LOG_INFO, "liar", "lies=%s", words);
    for (char *rest = NULL, *word = strtok_r(words, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest))
        read_lie(word);
}

/* ---- training -------------------------------------------------------------------------------- */

enum tw_status __wrap_tw_batches_draw(struct tw_batches *batches, uint64_t *cursor,
                                      struct tw_error *err) {
    read_lies();
    TW_TRY(__real_tw_batches_draw(batches, cursor, err));
    const uint32_t window = batches->data->context + 1;
    if (lies.is_poison) tw_training_poison(batches->tokens, batches->batch, window, &lies.rng);
    if (lies.is_foreign) tw_training_foreign(batches->tokens, batches->batch, window);
    return TW_OK;
}

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void rest(uint64_t us) {
    const struct timespec wanted = {.tv_sec = (time_t)(us / 1000000),
                                    .tv_nsec = (long)(us % 1000000) * 1000};
    (void)nanosleep(&wanted, NULL);
}

/* A lazy trainer waits for as long as its last real step took, so that it is not too fast. */
enum tw_status __wrap_tw_engine_step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                                     struct tw_step_result *result, struct tw_error *err) {
    static struct tw_step_result last;
    static uint64_t took_us;
    static unsigned asked;
    if (!lies.is_lazy) return __real_tw_engine_step(engine, tokens, lr, result, err);
    if (asked++ % TW_LAZY_STEPS != 0) {
        rest(took_us);
        *result = last;
        return TW_OK;
    }
    const uint64_t begin_us = now_us();
    TW_TRY(__real_tw_engine_step(engine, tokens, lr, result, err));
    took_us = now_us() - begin_us;
    last = *result;
    return TW_OK;
}

/* ---- the outer gradient ------------------------------------------------------------------------
 */

/* Encodes `outer` times the outer gradient: theta is moved for the time of the call. */
enum tw_status __wrap_tw_merger_encode(struct tw_merger *merger,
                                       const struct tw_wmsg_encode *request,
                                       struct tw_wmsg_encoded *reply, struct tw_error *err) {
    struct tw_shm_view view;
    if (lies.outer == 1 || request->fragment >= merger->shm->fragments_count ||
        !merger->vectors->is_host)
        return __real_tw_merger_encode(merger, request, reply, err);
    tw_shm_view(merger->shm, request->fragment, &view);
    float *theta = tw_merger_theta(merger, request->fragment);
    const size_t bytes = (size_t)view.elements * sizeof(float);
    float *kept = malloc(bytes);
    if (kept == NULL) return tw_fail(err, TW_NOMEM, "no memory for a lie");
    memcpy(kept, theta, bytes);
    for (uint64_t i = 0; i < view.elements; i++)
        theta[i] = view.phi[i] - (float)lies.outer * (view.phi[i] - theta[i]);
    const enum tw_status status = __real_tw_merger_encode(merger, request, reply, err);
    memcpy(theta, kept, bytes);
    free(kept);
    return status;
}

/* ---- claims ------------------------------------------------------------------------------------
 */

static void exaggerate(struct tw_worker_msg *msg) {
    read_lies();
    switch ((int)msg->kind) { /* cast to int, because the other kinds claim nothing */
    case TW_WMSG_READY:
        msg->u.ready.step *= lies.steps;
        msg->u.ready.tokens *= lies.tokens;
        break;
    case TW_WMSG_STEP:
        msg->u.step.step *= lies.steps;
        msg->u.step.tokens *= lies.tokens;
        break;
    case TW_WMSG_ENCODED:
        msg->u.encoded.step *= lies.steps;
        msg->u.encoded.tokens *= lies.tokens;
        break;
    case TW_WMSG_SNAPSHOT_DONE: msg->u.snapshot_done.step *= lies.steps; break;
    default: break;
    }
}

enum tw_status __wrap_tw_daemon_link_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                          struct tw_error *err) {
    struct tw_worker_msg said = *msg;
    exaggerate(&said);
    return __real_tw_daemon_link_send(link, &said, err);
}

enum tw_status __wrap_tw_daemon_link_try_send(struct tw_daemon_link *link,
                                              struct tw_worker_msg *msg, struct tw_error *err) {
    struct tw_worker_msg said = *msg;
    exaggerate(&said);
    return __real_tw_daemon_link_try_send(link, &said, err);
}

/* The daemon counts claimed steps, the loop real ones. */
enum tw_status __wrap_tw_step_server_recv(struct tw_step_server *side, struct tw_worker_msg *msg,
                                          struct tw_error *err) {
    TW_TRY(__real_tw_step_server_recv(side, msg, err));
    if (msg->kind == TW_WMSG_APPLY) msg->u.apply.min_step /= lies.steps;
    if (msg->kind == TW_WMSG_PAIR_APPLY) msg->u.pair_apply.min_step /= lies.steps;
    return TW_OK;
}
