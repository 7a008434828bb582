/* model.c - the stub model: a noisy quadratic with a known optimum. */
#include "tests/sim/model.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"

enum { CONTENT_DELTA = 0x31445754, CONTENT_STATE = 0x31535754 }; /* first word of a content */

/* Returns the sum of four uniform values from one draw: mean 0, variance 1, bounded. */
static float noise_of(struct tw_rng *rng) {
    const uint64_t x = tw_rng_next(rng);
    const int32_t sum = (int32_t)(x & 0xFFFF) + (int32_t)(x >> 16 & 0xFFFF) +
                        (int32_t)(x >> 32 & 0xFFFF) + (int32_t)(x >> 48);
    return ((float)sum - 131070.0f) * (1.7320508f / 65535.0f);
}

void tw_sim_model_init(struct tw_sim_model *model, const struct tw_sim_options *options,
                       struct tw_rng *rng) {
    *model = (struct tw_sim_model){
        .fragments_count = options->fragments_count,
        .dims_per_fragment = options->dims_per_fragment,
        .dims_count = options->fragments_count * options->dims_per_fragment,
        .inner_lr = options->inner_lr,
        .outer_lr = options->outer_lr,
        .outer_momentum = options->outer_momentum,
        .alpha = options->alpha,
        .noise = options->noise,
        .budget_tokens = options->budget_tokens,
    };
    TW_ASSERT(model->dims_per_fragment <= TW_SIM_FRAGMENT_DIMS_MAX);
    TW_ASSERT(model->dims_count <= TW_SIM_DIMS_MAX);
    for (uint32_t d = 0; d < model->dims_count; d++) {
        model->curvature[d] = 0.2f + 0.8f * (float)tw_rng_unit(rng);
        model->optimum[d] = 3 * noise_of(rng);
    }
}

void tw_sim_replica_init(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         uint64_t start) {
    struct tw_rng rng;
    memset(replica, 0, sizeof *replica);
    tw_rng_seed(&rng, start);
    for (uint32_t d = 0; d < model->dims_count && start != 0; d++)
        replica->theta[d] = replica->phi[d] = noise_of(&rng);
    for (uint32_t f = 0; f < model->fragments_count; f++) {
        replica->digests[f] = tw_sim_replica_digest(model, replica, f);
    }
}

void tw_sim_model_step(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                       const float *target, uint64_t clock_tokens, struct tw_rng *rng) {
    const double done = (double)clock_tokens / (double)model->budget_tokens;
    const float lr = model->inner_lr * (float)(1 - 0.9 * (done < 1 ? done : 1));
    for (uint32_t d = 0; d < model->dims_count; d++) {
        const float gradient = model->curvature[d] * (replica->theta[d] - target[d]);
        replica->theta[d] -= lr * (gradient + model->noise * noise_of(rng));
    }
}

double tw_sim_model_loss(const struct tw_sim_model *model, const float *x) {
    double loss = 0;
    for (uint32_t d = 0; d < model->dims_count; d++) {
        const double distance = (double)x[d] - (double)model->optimum[d];
        loss += 0.5 * (double)model->curvature[d] * distance * distance;
    }
    return loss / model->dims_count;
}

struct tw_id tw_sim_replica_digest(const struct tw_sim_model *model,
                                   const struct tw_sim_replica *replica, uint32_t fragment) {
    const uint32_t n = model->dims_per_fragment, first = fragment * n;
    float both[2 * TW_SIM_FRAGMENT_DIMS_MAX];
    memcpy(both, replica->phi + first, n * sizeof(float));
    memcpy(both + n, replica->u + first, n * sizeof(float));
    return tw_sha256(both, 2 * n * sizeof(float));
}

static void put_header(uint8_t *bytes, uint32_t kind, uint32_t dims) {
    tw_put_u32(bytes, kind);
    tw_put_u32(bytes + 4, dims);
}

/* Returns the floats of a content of this kind and length, or NULL. */
static const uint8_t *floats_of(const struct tw_sim_content *content, uint32_t kind,
                                uint64_t dims) {
    if (content->size < 8 || tw_get_u32(content->bytes) != kind) return NULL;
    if (tw_get_u32(content->bytes + 4) != dims) return NULL;
    const uint64_t floats = kind == CONTENT_STATE ? 2 * dims : dims;
    if (content->size != 8 + floats * sizeof(float)) return NULL;
    return content->bytes + 8;
}

const struct tw_sim_content *tw_sim_delta_put(struct tw_sim_contents *contents, const float *delta,
                                              uint32_t n) {
    uint8_t bytes[TW_SIM_CONTENT_BYTES_MAX];
    put_header(bytes, CONTENT_DELTA, n);
    memcpy(bytes + 8, delta, n * sizeof(float));
    return tw_sim_contents_put(contents, bytes, 8 + n * sizeof(float));
}

const uint8_t *tw_sim_delta_of(const struct tw_sim_content *content, uint32_t n) {
    return floats_of(content, CONTENT_DELTA, n);
}

static float delta_norm(const struct tw_sim_model *model, const struct tw_sim_replica *replica,
                        uint32_t fragment) {
    double sum = 0;
    const uint32_t first = fragment * model->dims_per_fragment;
    for (uint32_t d = first; d < first + model->dims_per_fragment; d++) {
        const double value = (double)replica->phi[d] - (double)replica->theta[d];
        sum += value * value;
    }
    return (float)sqrt(sum);
}

void tw_sim_replica_encoded(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                            uint32_t fragment) {
    float *mean = &replica->clip_norm[fragment];
    const float norm = delta_norm(model, replica, fragment);
    if (!replica->is_clipped_next[fragment]) *mean = *mean > 0 ? 0.8f * *mean + 0.2f * norm : norm;
    replica->is_clipped_next[fragment] = false;
}

const struct tw_sim_content *tw_sim_replica_encode(const struct tw_sim_model *model,
                                                   struct tw_sim_contents *contents,
                                                   const struct tw_sim_replica *replica,
                                                   uint32_t fragment, uint64_t begin,
                                                   uint64_t count) {
    const uint32_t n = (uint32_t)(count / TW_PART_ALIGN);
    const uint32_t first = fragment * model->dims_per_fragment + (uint32_t)(begin / TW_PART_ALIGN);
    float delta[TW_SIM_FRAGMENT_DIMS_MAX], scale = 1;
    const float limit = 3 * replica->clip_norm[fragment];
    if (replica->is_clipped_next[fragment] && limit > 0) {
        const float norm = delta_norm(model, replica, fragment);
        if (norm > limit) scale = limit / norm;
    }
    for (uint32_t i = 0; i < n; i++) {
        delta[i] = scale * (replica->phi[first + i] - replica->theta[first + i]);
    }
    return tw_sim_delta_put(contents, delta, n);
}

const struct tw_sim_content *tw_sim_model_reduce(struct tw_sim_contents *contents,
                                                 const struct tw_sim_content *const *inputs,
                                                 const uint64_t *tokens, uint32_t inputs_count,
                                                 uint64_t count) {
    const uint32_t n = (uint32_t)(count / TW_PART_ALIGN);
    double sum[TW_SIM_FRAGMENT_DIMS_MAX] = {0}, weights = 0;
    for (uint32_t k = 0; k < inputs_count; k++) weights += (double)tokens[k];
    for (uint32_t k = 0; k < inputs_count; k++) {
        const uint8_t *floats = floats_of(inputs[k], CONTENT_DELTA, n);
        if (floats == NULL) return NULL;
        const double weight =
            weights > 0 ? (double)tokens[k] / weights : 1.0 / (double)inputs_count;
        for (uint32_t i = 0; i < n; i++) {
            float value;
            memcpy(&value, floats + i * sizeof value, sizeof value);
            sum[i] += weight * (double)value;
        }
    }
    uint8_t bytes[TW_SIM_CONTENT_BYTES_MAX];
    put_header(bytes, CONTENT_DELTA, n);
    for (uint32_t i = 0; i < n; i++) {
        const float value = (float)sum[i];
        memcpy(bytes + 8 + i * sizeof value, &value, sizeof value);
    }
    return tw_sim_contents_put(contents, bytes, 8 + n * sizeof(float));
}

bool tw_sim_replica_apply(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                          uint32_t fragment, const struct tw_apply_part *part,
                          const struct tw_sim_content *content, bool is_final) {
    const uint32_t n = (uint32_t)(part->count / TW_PART_ALIGN);
    const uint32_t first =
        fragment * model->dims_per_fragment + (uint32_t)(part->begin / TW_PART_ALIGN);
    const uint8_t *floats = NULL;
    if (part->mode != TW_APPLY_ABSENT) {
        floats = floats_of(content, CONTENT_DELTA, n);
        if (floats == NULL) return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t d = first + i;
        const float before = replica->phi[d];
        if (part->mode != TW_APPLY_ABSENT) {
            float delta;
            memcpy(&delta, floats + i * sizeof delta, sizeof delta);
            replica->u[d] = model->outer_momentum * replica->u[d] + delta;
            replica->phi[d] -= model->outer_lr * (delta + model->outer_momentum * replica->u[d]);
        }
        if (is_final) {
            replica->theta[d] = replica->phi[d];
        } else if (part->mode == TW_APPLY_MIX) {
            replica->theta[d] =
                model->alpha * replica->theta[d] + (1 - model->alpha) * replica->phi[d];
        } else if (part->mode == TW_APPLY_SHIFT) {
            replica->theta[d] += replica->phi[d] - before;
        }
    }
    return true;
}

void tw_sim_replica_solo(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         uint32_t fragment) {
    const uint32_t n = model->dims_per_fragment, first = fragment * n;
    memcpy(replica->phi + first, replica->theta + first, n * sizeof(float));
    memset(replica->u + first, 0, n * sizeof(float));
    replica->phi_of[fragment] = replica->theta_of[fragment];
}

const struct tw_sim_content *tw_sim_replica_export(const struct tw_sim_model *model,
                                                   struct tw_sim_contents *contents,
                                                   const struct tw_sim_replica *replica,
                                                   uint32_t fragment) {
    const uint32_t n = model->dims_per_fragment, first = fragment * n;
    uint8_t bytes[TW_SIM_CONTENT_BYTES_MAX];
    put_header(bytes, CONTENT_STATE, n);
    memcpy(bytes + 8, replica->phi + first, n * sizeof(float));
    memcpy(bytes + 8 + n * sizeof(float), replica->u + first, n * sizeof(float));
    return tw_sim_contents_put(contents, bytes, 8 + 2 * n * sizeof(float));
}

bool tw_sim_replica_load(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         uint32_t fragment, const struct tw_sim_content *content,
                         enum tw_load_mode mode) {
    const uint32_t n = model->dims_per_fragment, first = fragment * n;
    float before[TW_SIM_FRAGMENT_DIMS_MAX];
    memcpy(before, replica->phi + first, n * sizeof(float));
    if (content != NULL) {
        const uint8_t *floats = floats_of(content, CONTENT_STATE, n);
        if (floats == NULL) return false;
        memcpy(replica->phi + first, floats, n * sizeof(float));
        memcpy(replica->u + first, floats + n * sizeof(float), n * sizeof(float));
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t d = first + i;
        if (mode == TW_LOAD_RESET) replica->theta[d] = replica->phi[d];
        if (mode == TW_LOAD_SHIFT) replica->theta[d] += replica->phi[d] - before[i];
    }
    if (mode == TW_LOAD_KEEP) replica->is_clipped_next[fragment] = true;
    if (mode == TW_LOAD_RESET) replica->theta_of[fragment] = replica->phi_of[fragment];
    return true;
}

void tw_sim_replica_turn(const struct tw_sim_model *model, struct tw_sim_replica *replica) {
    memcpy(replica->theta, replica->phi, model->dims_count * sizeof(float));
    memcpy(replica->theta_of, replica->phi_of, sizeof replica->theta_of);
    memset(replica->is_clipped_next, 0, sizeof replica->is_clipped_next);
}

bool tw_sim_content_check(const struct tw_sim_content *content, uint64_t elements) {
    const uint64_t dims = elements / TW_PART_ALIGN;
    const uint8_t *floats = floats_of(content, CONTENT_DELTA, dims);
    uint64_t count = dims;
    if (floats == NULL) {
        floats = floats_of(content, CONTENT_STATE, dims);
        count = 2 * dims;
    }
    if (floats == NULL) return false;
    for (uint64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, floats + i * sizeof value, sizeof value);
        if (!isfinite(value)) return false;
    }
    return true;
}

uint32_t tw_sim_content_wire_bytes(const struct tw_sim_content *content, uint32_t bytes_per_dim) {
    return content->size + tw_get_u32(content->bytes + 4) * bytes_per_dim;
}
