#include "tests/worker/loop/stub_learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/rng.h"

#define WILD_LR 2.02f /* above 2, each step leads away from the target */

/* Returns a number in [-1, 1) that depends only on the arguments, or 0 in the padding. */
static float noise(const struct stub_learner *stub, uint64_t seed, uint64_t i) {
    const bool is_param = stub->is_thin ? i < stub->layout->params : stub->is_param[i] != 0;
    if (!is_param) return 0;
    uint64_t state = seed * 0x9E3779B97F4A7C15u + i;
    return (float)(tw_splitmix64(&state) >> 40) * 0x1p-23f - 1.0f;
}

static float own_noise(const struct stub_learner *stub) {
    return stub->batch_noise > 0 ? stub->batch_noise : 0.1f;
}

static float target_common(const struct stub_learner *stub, uint64_t i) {
    return noise(stub, stub->run->model.seed + 1, i);
}

static void init(void *self, float *params) {
    const struct stub_learner *stub = self;
    for (uint64_t i = 0; i < stub->layout->elements; i++) {
        params[i] = stub->start_seed != 0 ? 10.0f * noise(stub, stub->start_seed, i)
                                          : 0.1f * noise(stub, stub->run->model.seed, i);
    }
}

/* In a large model, a step reads and changes only one piece of THIN_ELEMENTS in THIN_SHARE. */
enum { THIN_ELEMENTS = 4096, THIN_SHARE = 64 };

/* Returns the next element after `i` that this step reads and changes. */
static uint64_t element_after(const struct stub_learner *stub, uint64_t i) {
    const bool is_last = (i + 1) % THIN_ELEMENTS == 0;
    return i + 1 + (stub->is_thin && is_last ? (THIN_SHARE - 1) * THIN_ELEMENTS : 0);
}

static uint64_t first_element(const struct stub_learner *stub) {
    return stub->is_thin ? stub->updates % THIN_SHARE * THIN_ELEMENTS : 0;
}

/* Moves theta by a share `lr` of its distance to the target. */
static void learn_thin(struct stub_learner *stub, float *theta, float lr) {
    const uint64_t elements = stub->layout->elements;
    for (uint64_t i = first_element(stub); i < elements; i = element_after(stub, i)) {
        const float target = target_common(stub, i) + 0.3f * noise(stub, stub->data_seed + 7, i);
        theta[i] += lr * (target - theta[i]);
    }
}

static double distance(const struct stub_learner *stub, const float *params) {
    double sum = 0;
    const uint64_t elements = stub->layout->elements;
    for (uint64_t i = first_element(stub); i < elements; i = element_after(stub, i)) {
        const double apart = (double)params[i] - (double)target_common(stub, i);
        sum += apart * apart;
    }
    return sum / (double)stub->layout->elements;
}

/* Moves theta by a share `lr` of its distance to the target; m becomes that distance, v its square.
 */
static void learn(struct stub_learner *stub, float *theta, uint64_t cursor, float lr) {
    const uint64_t elements = stub->layout->elements;
    const uint64_t batch_seed = stub->data_seed * 1000003 + cursor;
    float *m = theta + elements, *v = m + elements;
    for (uint64_t i = 0; i < elements; i++) {
        const float target = target_common(stub, i) + 0.3f * noise(stub, stub->data_seed + 7, i) +
                             own_noise(stub) * noise(stub, batch_seed, i);
        m[i] = target - theta[i];
        v[i] = m[i] * m[i];
        theta[i] += lr * m[i];
    }
}

/* Checks that theta is unchanged since the last `written`, takes a step, and fills the mirrors with
 * NaN. */
static void learn_far(struct stub_learner *stub, uint64_t cursor, float lr) {
    const uint64_t elements = stub->layout->elements;
    const size_t bytes = (size_t)elements * sizeof(float);
    TW_ASSERT(memcmp(stub->remote, stub->far.copy, bytes) == 0);
    learn(stub, stub->remote, cursor, lr);
    memcpy(stub->far.copy, stub->remote, bytes);
    for (uint64_t i = 0; i < 3 * elements; i++) stub->arrays[i] = NAN;
}

/* Sleeps in slices, so that the work can be stopped. */
static enum tw_status work_for(const struct stub_learner *stub, uint32_t us, struct tw_error *err) {
    enum { SLICE_US = 10000 };
    while (us > 0) {
        const uint32_t slice = us < SLICE_US ? us : SLICE_US;
        const struct timespec wanted = {.tv_nsec = slice * 1000L};
        if (stub->stop != NULL && atomic_load(stub->stop)) return tw_fail(err, TW_AGAIN, "stopped");
        (void)nanosleep(&wanted, NULL);
        us -= slice;
    }
    return TW_OK;
}

static void watch(void *self, const _Atomic bool *stop) {
    struct stub_learner *stub = self;
    stub->stop = stop;
}

static enum tw_status step(void *self, uint64_t *cursor, float lr, struct tw_step_result *result,
                           struct tw_error *err) {
    struct stub_learner *stub = self;
    TW_TRY(work_for(stub, stub->step_us, err));
    memset(result, 0, sizeof(*result));
    if (stub->nan_from_step > 0 && stub->updates + 1 >= stub->nan_from_step) {
        result->is_skipped = true;
        return TW_OK;
    }
    if (stub->wild_from_step > 0 && stub->updates + 1 >= stub->wild_from_step) lr = WILD_LR;
    if (stub->is_remote) {
        far_unlock(&stub->far);
        learn_far(stub, *cursor, lr);
        result->loss = (float)distance(stub, stub->remote);
        far_lock(&stub->far);
    } else if (stub->is_thin) {
        learn_thin(stub, stub->arrays, lr);
        result->loss = (float)distance(stub, stub->arrays);
    } else {
        learn(stub, stub->arrays, *cursor, lr);
        result->loss = (float)distance(stub, stub->arrays);
    }
    *cursor += (uint64_t)stub->run->train.batch * stub->run->model.context;
    stub->updates++;
    result->grad_norm = 1;
    return TW_OK;
}

static enum tw_status heldout(void *self, const float *params, double *loss, struct tw_error *err) {
    struct stub_learner *stub = self;
    const bool is_live = stub->is_remote && params == stub->arrays;
    TW_TRY(work_for(stub, stub->heldout_us, err));
    if (is_live) far_unlock(&stub->far);
    *loss = distance(stub, is_live ? stub->remote : params);
    if (is_live) far_lock(&stub->far);
    const bool is_poisoned = stub->poison_from_step > 0 && stub->updates >= stub->poison_from_step;
    if (is_poisoned && params != stub->arrays) *loss += 3.0;
    return TW_OK;
}

/* The loss of a window is the distance to the target of the step that trains on it. */
static enum tw_status drawn_losses(void *self, const float *params, uint64_t seed,
                                   const uint64_t *cursors, uint32_t count, double *losses,
                                   struct tw_error *err) {
    const struct stub_learner *stub = self;
    const uint64_t batch = (uint64_t)stub->run->train.batch * stub->run->model.context;
    (void)err;
    for (uint32_t w = 0; w < count; w++) {
        const uint64_t batch_seed = seed * 1000003 + cursors[w] / batch * batch;
        losses[w] = 0;
        for (uint64_t i = 0; i < stub->layout->elements; i++) {
            const float target = target_common(stub, i) + 0.3f * noise(stub, seed + 7, i) +
                                 own_noise(stub) * noise(stub, batch_seed, i);
            const double apart = (double)params[i] - (double)target;
            losses[w] += apart * apart;
        }
    }
    return TW_OK;
}

static uint64_t epoch_windows(void *self) {
    (void)self;
    return 1 << 20;
}

static enum tw_status copy(struct stub_learner *stub, bool is_push, uint32_t arrays, uint64_t begin,
                           uint64_t n, struct tw_error *err) {
    float *to = is_push ? stub->remote : stub->arrays;
    const float *from = is_push ? stub->arrays : stub->remote;
    static const uint32_t order[] = {TW_ENGINE_THETA, TW_ENGINE_M, TW_ENGINE_V};
    TW_TRY(far_call(&stub->far, err));
    far_unlock(&stub->far);
    for (uint64_t i = 0; i < 3; i++) {
        const uint64_t at = i * stub->layout->elements + begin;
        if ((arrays & order[i]) != 0) memcpy(to + at, from + at, (size_t)n * sizeof(float));
    }
    memcpy(stub->far.copy + begin, stub->remote + begin, (size_t)n * sizeof(float));
    far_lock(&stub->far);
    return TW_OK;
}

static enum tw_status pull(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    struct stub_learner *stub = self;
    return copy(stub, false, arrays, begin, n, err);
}

static enum tw_status push(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    struct stub_learner *stub = self;
    return copy(stub, true, arrays, begin, n, err);
}

static float lr(void *self, uint64_t clock_tokens) {
    const struct stub_learner *stub = self;
    return clock_tokens < stub->run->train.tokens ? 0.05f : 0.01f;
}

static struct tw_vectors vectors_of(struct stub_learner *stub, size_t elements) {
    float *at = stub->is_remote ? stub->remote : stub->arrays;
    float *m = at + elements, *v = m + elements;
    if (!stub->is_remote) return tw_vectors_host(at, m, v);
    stub->far.theta = at;
    stub->far.copy = v + elements;
    return far_vectors(&stub->far, at, m, v);
}

enum tw_status stub_learner_open(struct stub_learner *stub, struct tw_learner *learner,
                                 const struct tw_learner_config *config, struct tw_error *err) {
    stub->run = config->run;
    stub->layout = config->layout;
    stub->data_seed = config->data_seed;
    stub->updates = 0;
    const size_t elements = (size_t)config->layout->elements;
    far_open(&stub->far);
    stub->arrays = calloc(3 * elements, sizeof(float));
    stub->remote = stub->is_remote ? far_alloc(&stub->far, 4 * elements) : NULL;
    stub->is_param = calloc(stub->is_thin ? 1 : elements, 1);
    if (stub->arrays == NULL || stub->is_param == NULL) {
        stub_learner_close(stub);
        return tw_fail(err, TW_NOMEM, "no memory for the stub's model");
    }
    for (uint32_t t = 0; t < config->layout->tensors_count && !stub->is_thin; t++) {
        const struct tw_tensor *tensor = &config->layout->tensors[t];
        memset(stub->is_param + tensor->offset, 1, (size_t)tensor->rows * tensor->cols);
    }
    *learner = (struct tw_learner){
        .self = stub,
        .theta = stub->arrays,
        .m = stub->arrays + elements,
        .v = stub->arrays + 2 * elements,
        .vectors = vectors_of(stub, elements),
        .updates = &stub->updates,
        .tokens_per_step = (uint64_t)config->run->train.batch * config->run->model.context,
        .init = init,
        .step = step,
        .heldout = heldout,
        .watch = watch,
        .drawn_losses = stub->is_thin || stub->is_remote ? NULL : drawn_losses,
        .epoch_windows = epoch_windows,
        .lr = lr,
        .pull = stub->is_remote ? pull : NULL,
        .push = stub->is_remote ? push : NULL,
    };
    return TW_OK;
}

void stub_learner_close(struct stub_learner *stub) {
    free(stub->arrays);
    if (stub->remote != NULL) far_close(&stub->far);
    free(stub->is_param);
    stub->arrays = stub->remote = NULL;
    stub->is_param = NULL;
}
