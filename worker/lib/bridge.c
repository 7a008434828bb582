#include "worker/lib/bridge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/norm.h"
#include "worker/engine/engine.h"

/* Entry i describes the array in mirror[i] and before[i]: its flag, and its name in callbacks. */
static const struct {
    uint32_t flag;
    enum thinwire_array array;
    const char *name;
} arrays[3] = {
    {TW_ENGINE_THETA, THINWIRE_PARAMETERS, "parameters"},
    {TW_ENGINE_M, THINWIRE_MOMENT1, "first moments"},
    {TW_ENGINE_V, THINWIRE_MOMENT2, "second moments"},
};

/* ---- the trainer's thread: ranges as pieces of tensors --------------------------------------- */

enum direction { OUT_OF_TRAINER, INTO_TRAINER, ADD_TO_TRAINER };

static enum tw_status move_failed(const struct tw_tensor *tensor, enum direction direction,
                                  uint32_t place, struct tw_error *err) {
    return tw_fail(err, TW_DEVICE, "the trainer could not %s %s of tensor %s",
                   direction == INTO_TRAINER ? "take" : "give", arrays[place].name, tensor->name);
}

/* Moves elements [begin, begin + n) of a tensor between the trainer and `mirror`, where the first
 * of them lies. Returns false if a callback fails. */
static bool piece_move(const struct tw_bridge *bridge, enum direction direction, uint32_t place,
                       uint32_t tensor, uint64_t begin, uint64_t n, float *mirror) {
    const struct thinwire_trainer *trainer = &bridge->trainer;
    const enum thinwire_array array = arrays[place].array;
    if (direction == OUT_OF_TRAINER)
        return trainer->read(trainer->self, array, tensor, begin, n, mirror) == 0;
    if (direction == INTO_TRAINER)
        return trainer->write(trainer->self, array, tensor, begin, n, mirror) == 0;
    for (uint64_t at = 0; at < n; at += TW_BRIDGE_PIECE) {
        const uint64_t count = n - at < TW_BRIDGE_PIECE ? n - at : TW_BRIDGE_PIECE;
        if (trainer->read(trainer->self, array, tensor, begin + at, count, bridge->piece) != 0)
            return false;
        for (uint64_t i = 0; i < count; i++) bridge->piece[i] += mirror[at + i];
        if (trainer->write(trainer->self, array, tensor, begin + at, count, bridge->piece) != 0)
            return false;
    }
    return true;
}

/* Moves elements [begin, end) of an array, in the order of layout.h, between trainer and mirror.
 * Skips the padding of fragments, which the trainer does not have. */
static enum tw_status range_move(const struct tw_bridge *bridge, enum direction direction,
                                 uint32_t place, uint64_t begin, uint64_t end,
                                 struct tw_error *err) {
    const struct tw_layout *layout = bridge->layout;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const uint32_t index = bridge->order[i];
        const struct tw_tensor *tensor = &layout->tensors[index];
        const uint64_t tensor_end = tensor->offset + (uint64_t)tensor->rows * tensor->cols;
        const uint64_t from = begin > tensor->offset ? begin : tensor->offset;
        const uint64_t to = end < tensor_end ? end : tensor_end;
        if (from >= to) continue;
        if (!piece_move(bridge, direction, place, index, from - tensor->offset, to - from,
                        bridge->mirror[place] + from))
            return move_failed(tensor, direction, place, err);
    }
    return TW_OK;
}

static bool has_array(const struct tw_bridge *bridge, uint32_t place) {
    return place == 0 || bridge->trainer.has_moments;
}

enum tw_status tw_bridge_settle(struct tw_bridge *bridge, struct tw_error *err) {
    TW_ASSERT(pthread_mutex_lock(&bridge->handover.mutex) == 0);
    const struct tw_fragment_set late = bridge->late;
    TW_ASSERT(pthread_mutex_unlock(&bridge->handover.mutex) == 0);
    /* There are no late changes, and perhaps no layout yet. */
    if (tw_fragment_set_is_empty(&late)) return TW_OK;
    for (uint32_t p = 0; p < bridge->layout->fragments_count; p++) {
        if (!tw_fragment_set_has(&late, p)) continue;
        for (uint32_t place = 0; place < 3; place++) {
            if (bridge->before[place] == NULL) continue;
            TW_TRY(range_move(bridge, ADD_TO_TRAINER, place, bridge->layout->fragment_begin[p],
                              bridge->layout->fragment_begin[p + 1], err));
        }
    }
    TW_ASSERT(pthread_mutex_lock(&bridge->handover.mutex) == 0);
    for (uint32_t p = 0; p < bridge->layout->fragments_count; p++)
        if (tw_fragment_set_has(&late, p)) tw_fragment_set_remove(&bridge->late, p);
    TW_ASSERT(pthread_mutex_unlock(&bridge->handover.mutex) == 0);
    return TW_OK;
}

/* ---- calls of the session's thread ----------------------------------------------------------- */

struct move_call {
    struct tw_bridge *bridge;
    enum direction direction;
    uint32_t flags; /* flags of enum tw_engine_array */
    uint64_t begin, n;
};

static enum tw_status move_run(void *self, struct tw_error *err) {
    const struct move_call *call = self;
    TW_TRY(tw_bridge_settle(call->bridge, err));
    for (uint32_t place = 0; place < 3; place++) {
        if ((call->flags & arrays[place].flag) == 0 || !has_array(call->bridge, place)) continue;
        TW_TRY(range_move(call->bridge, call->direction, place, call->begin, call->begin + call->n,
                          err));
    }
    return TW_OK;
}

static enum tw_status move(struct tw_bridge *bridge, enum direction direction, uint32_t flags,
                           uint64_t begin, uint64_t n, struct tw_error *err) {
    struct move_call call = {bridge, direction, flags, begin, n};
    return tw_handover_call(&bridge->handover, move_run, &call, err);
}

static enum tw_status pull(void *self, uint32_t flags, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    return move(self, OUT_OF_TRAINER, flags, begin, n, err);
}

static enum tw_status push(void *self, uint32_t flags, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    return move(self, INTO_TRAINER, flags, begin, n, err);
}

static uint32_t borrowed_flags(const struct tw_bridge *bridge) {
    return bridge->leads ? TW_ENGINE_STATE : TW_ENGINE_THETA;
}

static enum tw_status borrow(void *self, uint64_t begin, uint64_t n, struct tw_error *err) {
    struct tw_bridge *bridge = self;
    bridge->begin = begin;
    bridge->n = n;
    bridge->is_released = false;
    return pull(bridge, borrowed_flags(bridge), begin, n, err);
}

/* Lets the trainer take steps, and keeps the borrowed values so that `written` can compute the
 * changes. A range longer than a fragment must be handed back before this call. */
static void release(void *self) {
    struct tw_bridge *bridge = self;
    bridge->is_released = true;
    tw_handover_release(&bridge->handover);
    if (bridge->n > bridge->largest) return;
    for (uint32_t place = 0; place < 3; place++) {
        if (bridge->before[place] == NULL) continue;
        memcpy(bridge->before[place], bridge->mirror[place] + bridge->begin,
               (size_t)bridge->n * sizeof(float));
    }
}

/* mirror := mirror - before. Returns true if any difference is not zero. */
static bool change_make(float *mirror, const float *before, uint64_t n) {
    bool is_changed = false;
    for (uint64_t i = 0; i < n; i++) {
        is_changed |= mirror[i] != before[i];
        mirror[i] -= before[i];
    }
    return is_changed;
}

static uint32_t fragment_at(const struct tw_bridge *bridge, uint64_t begin) {
    uint32_t p = 0;
    while (bridge->layout->fragment_begin[p] != begin) p++;
    return p;
}

/* Hands the borrowed range back to the trainer. The callback `finish` reports a failure. */
static void written(void *self, size_t begin, size_t n) {
    struct tw_bridge *bridge = self;
    TW_ASSERT(begin == bridge->begin);
    TW_ASSERT(n == bridge->n);
    if (!bridge->is_released) {
        const enum tw_status status = push(bridge, borrowed_flags(bridge) & ~(uint32_t)TW_ENGINE_V,
                                           begin, n, &bridge->failure_err);
        if (status != TW_OK) bridge->failure = status;
        return;
    }
    bool is_changed = false;
    for (uint32_t place = 0; place < 3; place++) {
        if (bridge->before[place] == NULL) continue;
        is_changed |= change_make(bridge->mirror[place] + begin, bridge->before[place], n);
    }
    if (!is_changed) return;
    TW_ASSERT(pthread_mutex_lock(&bridge->handover.mutex) == 0);
    tw_fragment_set_add(&bridge->late, fragment_at(bridge, begin));
    TW_ASSERT(pthread_mutex_unlock(&bridge->handover.mutex) == 0);
}

static enum tw_status finish(void *self, struct tw_error *err) {
    const struct tw_bridge *bridge = self;
    if (bridge->failure == TW_OK) return TW_OK;
    return tw_fail(err, bridge->failure, "%s", bridge->failure_err.message);
}

struct loss_call {
    struct tw_bridge *bridge;
    const float *params; /* parameters to evaluate; NULL: the trainer's own */
    double *loss;
};

/* Evaluates on the trainer's thread. While the anchor is evaluated, its values replace the
 * parameters. */
static enum tw_status loss_run(void *self, struct tw_error *err) {
    const struct loss_call *call = self;
    struct tw_bridge *bridge = call->bridge;
    const struct thinwire_trainer *trainer = &bridge->trainer;
    const uint64_t elements = bridge->layout->elements;
    TW_TRY(tw_bridge_settle(bridge, err));
    if (call->params != NULL) {
        TW_TRY(range_move(bridge, OUT_OF_TRAINER, 0, 0, elements, err));
        float *own = bridge->mirror[0];
        bridge->mirror[0] = (float *)(uintptr_t)call->params; /* is only read */
        const enum tw_status status = range_move(bridge, INTO_TRAINER, 0, 0, elements, err);
        bridge->mirror[0] = own;
        TW_TRY(status);
    }
    const int failed = trainer->heldout(trainer->self, call->loss);
    if (call->params != NULL) TW_TRY(range_move(bridge, INTO_TRAINER, 0, 0, elements, err));
    if (failed != 0) return tw_fail(err, TW_DEVICE, "the trainer could not evaluate the model");
    return TW_OK;
}

static enum tw_status heldout(void *self, const float *params, double *loss, struct tw_error *err) {
    struct tw_bridge *bridge = self;
    struct loss_call call = {bridge, params == bridge->mirror[0] ? NULL : params, loss};
    if (bridge->trainer.heldout == NULL)
        return tw_fail(err, TW_AGAIN, "the trainer does not evaluate");
    return tw_handover_call(&bridge->handover, loss_run, &call, err);
}

/* Returns the newest text that the trainer gave. */
static enum tw_status sample(void *self, uint32_t bytes, struct tw_wmsg_sample *sample,
                             struct tw_error *err) {
    struct tw_bridge *bridge = self;
    (void)bytes; /* the trainer has chosen the size */
    TW_ASSERT(pthread_mutex_lock(&bridge->handover.mutex) == 0);
    const bool is_new = bridge->has_text;
    *sample = bridge->text;
    bridge->has_text = false;
    TW_ASSERT(pthread_mutex_unlock(&bridge->handover.mutex) == 0);
    return is_new ? TW_OK : tw_fail(err, TW_AGAIN, "the trainer gave no new text");
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Sets the initial parameters. A run of the family `tensors` (any model) begins with the trainer's
 * own parameters. */
static void init(void *self, float *params) {
    struct tw_bridge *bridge = self;
    TW_ASSERT(params == bridge->mirror[0]);
    if (bridge->run->model.family != TW_FAMILY_TENSORS) {
        tw_engine_init_params(bridge->run, bridge->layout, params);
        return;
    }
    bridge->failure =
        pull(bridge, TW_ENGINE_THETA, 0, bridge->layout->elements, &bridge->failure_err);
}

static float lr(void *self, uint64_t clock_tokens) {
    const struct tw_bridge *bridge = self;
    return tw_schedule_lr(bridge->run, clock_tokens, bridge->updates);
}

static void position_set(struct tw_bridge *bridge, float rate) {
    TW_ASSERT(pthread_mutex_lock(&bridge->handover.mutex) == 0);
    bridge->position.lr = rate;
    TW_ASSERT(pthread_mutex_unlock(&bridge->handover.mutex) == 0);
}

static enum tw_status step(void *self, uint64_t *cursor, float rate, struct tw_step_result *result,
                           struct tw_error *err) {
    struct tw_bridge *bridge = self;
    struct tw_report report;
    position_set(bridge, rate);
    const enum tw_status status = tw_handover_take(&bridge->handover, &report);
    if (status != TW_OK) return tw_fail(err, status, "the trainer closes");
    *result = report.result;
    *cursor = report.cursor;
    bridge->times = report.times;
    if (!report.result.is_skipped) bridge->updates++;
    return TW_OK;
}

static void rest(void *self, enum tw_rest why) {
    struct tw_bridge *bridge = self;
    tw_handover_rest(&bridge->handover, why == TW_REST_SETTLED);
}

static void begun(void *self, const struct tw_train_state *state, enum tw_worker_start start) {
    struct tw_bridge *bridge = self;
    (void)start;
    tw_handover_forget(&bridge->handover);
    TW_ASSERT(pthread_mutex_lock(&bridge->handover.mutex) == 0);
    bridge->position.step = state->step;
    bridge->position.tokens = state->tokens;
    bridge->position.cursor = state->cursor;
    bridge->position.updates = bridge->trainer.has_moments ? bridge->updates : 0;
    bridge->position.is_restored = true;
    TW_ASSERT(pthread_mutex_unlock(&bridge->handover.mutex) == 0);
    if (!bridge->trainer.has_moments) bridge->updates = 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void order_make(struct tw_bridge *bridge) {
    const struct tw_layout *layout = bridge->layout;
    uint32_t count = 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        uint32_t at = count++;
        for (; at > 0 && layout->tensors[bridge->order[at - 1]].offset > layout->tensors[i].offset;
             at--) {
            bridge->order[at] = bridge->order[at - 1];
        }
        bridge->order[at] = i;
    }
}

static enum tw_status arrays_make(struct tw_bridge *bridge, struct tw_error *err) {
    const struct tw_layout *layout = bridge->layout;
    for (uint32_t p = 0; p < layout->fragments_count; p++) {
        const uint64_t elements = layout->fragment_begin[p + 1] - layout->fragment_begin[p];
        if (elements > bridge->largest) bridge->largest = elements;
    }
    bridge->order = calloc(layout->tensors_count, sizeof(*bridge->order));
    bridge->piece = calloc(TW_BRIDGE_PIECE, sizeof(*bridge->piece));
    bool is_short = bridge->order == NULL || bridge->piece == NULL;
    for (uint32_t place = 0; place < 3; place++) {
        /* Zero pages from calloc use no memory until they are written. Mirrors of moments are never
         * written if the trainer does not expose its moments. */
        bridge->mirror[place] = calloc(layout->elements, sizeof(float));
        is_short |= bridge->mirror[place] == NULL;
        if (place > 0 && (!bridge->leads || place == 2)) continue;
        bridge->before[place] = calloc(bridge->largest, sizeof(float));
        is_short |= bridge->before[place] == NULL;
    }
    if (!is_short) return TW_OK;
    return tw_fail(err, TW_NOMEM, "no memory for a mirror of %llu parameters",
                   (unsigned long long)layout->elements);
}

enum tw_status tw_bridge_open(struct tw_bridge *bridge, struct tw_learner *learner,
                              const struct tw_learner_config *config, struct tw_error *err) {
    bridge->run = config->run;
    bridge->layout = config->layout;
    bridge->leads = bridge->trainer.has_moments && config->run->sync.lead_millionths > 0;
    const enum tw_status status = arrays_make(bridge, err);
    if (status != TW_OK) {
        tw_bridge_close(bridge);
        return status;
    }
    order_make(bridge);
    float *const m = bridge->leads ? bridge->mirror[1] : NULL;
    *learner = (struct tw_learner){
        .self = bridge,
        .theta = bridge->mirror[0],
        .m = bridge->mirror[1],
        .v = bridge->mirror[2],
        .vectors = tw_vectors_host(bridge->mirror[0], m, m == NULL ? NULL : bridge->mirror[2]),
        .updates = &bridge->updates,
        .is_patient = true,
        .tokens_per_step = (uint64_t)config->run->train.batch * config->run->model.context,
        .about = {.flops_token = bridge->trainer.flops_per_token,
                  .peak_flops_s = bridge->trainer.peak_flops_per_s,
                  .memory_bytes = bridge->trainer.memory_bytes},
        .init = init,
        .step = step,
        .heldout = heldout,
        .sample = sample,
        .lr = lr,
        .pull = pull,
        .push = push,
        .borrow = borrow,
        .release = release,
        .rest = rest,
        .begun = begun,
        .times = &bridge->times,
    };
    learner->vectors.self = bridge;
    learner->vectors.written = written;
    learner->vectors.finish = finish;
    if (bridge->trainer.engine != NULL) {
        const size_t length = strnlen(bridge->trainer.engine, sizeof(learner->about.engine) - 1);
        memcpy(learner->about.engine, bridge->trainer.engine, length);
    }
    return TW_OK;
}

/* Runs on the trainer's thread, so that this thread no longer uses the arrays that are freed. First
 * adds the last changes to the parameters. */
static enum tw_status close_run(void *self, struct tw_error *err) {
    struct tw_bridge *bridge = self;
    (void)tw_bridge_settle(bridge, err);
    for (uint32_t place = 0; place < 3; place++) {
        free(bridge->mirror[place]);
        free(bridge->before[place]);
        bridge->mirror[place] = bridge->before[place] = NULL;
    }
    free(bridge->order);
    free(bridge->piece);
    bridge->order = NULL;
    bridge->piece = NULL;
    bridge->layout = NULL;
    bridge->largest = 0;
    bridge->late = (struct tw_fragment_set){{0}};
    bridge->failure = TW_OK;
    return TW_OK;
}

void tw_bridge_close(struct tw_bridge *bridge) {
    (void)tw_handover_call(&bridge->handover, close_run, bridge, NULL);
}
