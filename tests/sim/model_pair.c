/* model_pair.c - the arithmetic of a run in pairs over the stub model. */
#include "tests/sim/model_pair.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"

enum { CONTENT_PHI = 0x31505754, CONTENT_PHI_WHOLE = 0x32505754 }; /* first word of a content */

/* Returns D(value): the value after encoding and decoding. */
static float decoded(float value) {
    return floorf(value * 64) / 64;
}

static const uint8_t *floats_of(const struct tw_sim_content *content, uint64_t dims,
                                bool *is_whole) {
    if (content->size != 8 + dims * sizeof(float)) return NULL;
    const uint32_t kind = tw_get_u32(content->bytes);
    if (kind != CONTENT_PHI && kind != CONTENT_PHI_WHOLE) return NULL;
    if (tw_get_u32(content->bytes + 4) != dims) return NULL;
    *is_whole = kind == CONTENT_PHI_WHOLE;
    return content->bytes + 8;
}

bool tw_sim_content_is_phi(const struct tw_sim_content *content, uint64_t elements) {
    bool is_whole;
    const uint64_t dims = elements / TW_PART_ALIGN;
    const uint8_t *floats = floats_of(content, dims, &is_whole);
    for (uint64_t i = 0; floats != NULL && i < dims; i++) {
        float value;
        memcpy(&value, floats + i * sizeof value, sizeof value);
        if (!isfinite(value)) return false;
    }
    return floats != NULL;
}

/* Sets outbox->wanted := v = e + Delta, with the present Delta. */
static void fill_wanted(const struct tw_sim_model *model, const struct tw_sim_replica *replica,
                        struct tw_sim_outbox *outbox, uint32_t fragment) {
    const uint32_t n = model->dims_per_fragment, first = fragment * n;
    for (uint32_t d = first; d < first + n; d++) {
        outbox->wanted[d] = outbox->residual[d] + (replica->phi[d] - replica->theta[d]);
    }
}

void tw_sim_outbox_encode(const struct tw_sim_model *model, struct tw_sim_contents *contents,
                          struct tw_sim_replica *replica, struct tw_sim_outbox *outbox,
                          uint32_t fragment, uint64_t round, bool is_whole,
                          const struct tw_sim_content *made[TW_PAIR_PAYLOADS]) {
    const uint32_t n = model->dims_per_fragment, first = fragment * n;
    fill_wanted(model, replica, outbox, fragment);
    float delta[TW_SIM_FRAGMENT_DIMS_MAX];
    for (uint32_t i = 0; i < n; i++) delta[i] = decoded(outbox->wanted[first + i]);
    made[TW_PAIR_DELTA] = tw_sim_delta_put(contents, delta, n);
    uint8_t bytes[TW_SIM_CONTENT_BYTES_MAX];
    tw_put_u32(bytes, is_whole ? CONTENT_PHI_WHOLE : CONTENT_PHI);
    tw_put_u32(bytes + 4, n);
    memcpy(bytes + 8, replica->phi + first, n * sizeof(float));
    made[TW_PAIR_PHI] = tw_sim_contents_put(contents, bytes, 8 + n * sizeof(float));
    outbox->has_sent[fragment] = true;
    outbox->sent_round[fragment] = round;
}

/* Updates phi and theta by an outer step. `given` is the Delta that the step uses up. */
static void apply_outer(struct tw_sim_replica *replica, uint32_t d, float given, float outer,
                        bool is_final) {
    replica->phi[d] -= outer;
    replica->theta[d] = is_final ? replica->phi[d] : replica->theta[d] + (given - outer);
}

static double squared(const float *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Returns false if the partner's payloads are far larger than the node's own: the partner has
 * diverged or lies. worker/merge/pairing.h is stricter. */
static bool is_size_plausible(const float *mine, const float *yours, const float *phi,
                              const float *phi_theirs, uint32_t n) {
    float apart[TW_SIM_FRAGMENT_DIMS_MAX];
    for (uint32_t i = 0; i < n; i++) apart[i] = phi_theirs[i] - phi[i];
    const double times = (double)TW_SIM_PARTNER_TIMES * TW_SIM_PARTNER_TIMES;
    const double anchors = fmax(squared(phi, n), n),
                 deltas = fmax(squared(mine, n), 1e-4 * anchors);
    return squared(yours, n) <= times * deltas && squared(apart, n) <= times * anchors;
}

enum tw_sim_merged tw_sim_outbox_merge(const struct tw_sim_model *model,
                                       struct tw_sim_replica *replica, struct tw_sim_outbox *outbox,
                                       const struct tw_action *action,
                                       const struct tw_sim_content *const *own,
                                       const struct tw_sim_content *const *theirs, double *moved) {
    const uint32_t fragment = action->u.pair_apply.fragment, n = model->dims_per_fragment;
    bool is_whole;
    const uint8_t *delta_own = tw_sim_delta_of(own[TW_PAIR_DELTA], n);
    const uint8_t *delta_theirs = tw_sim_delta_of(theirs[TW_PAIR_DELTA], n);
    const uint8_t *phi_theirs = floats_of(theirs[TW_PAIR_PHI], n, &is_whole);
    if (delta_own == NULL || delta_theirs == NULL || phi_theirs == NULL ||
        !outbox->has_sent[fragment] || outbox->sent_round[fragment] != action->u.pair_apply.round)
        return TW_SIM_MERGED_WRONG;
    float mine[TW_SIM_FRAGMENT_DIMS_MAX], yours[TW_SIM_FRAGMENT_DIMS_MAX],
        phi[TW_SIM_FRAGMENT_DIMS_MAX];
    memcpy(mine, delta_own, n * sizeof(float));
    memcpy(yours, delta_theirs, n * sizeof(float));
    memcpy(phi, phi_theirs, n * sizeof(float));
    const uint32_t first = fragment * n;
    for (uint32_t i = 0; i < n; i++) {
        if (mine[i] != decoded(outbox->wanted[first + i])) return TW_SIM_MERGED_WRONG;
        if (!is_whole && fabsf(phi[i] - replica->phi[first + i]) > TW_SIM_PHI_REACH)
            return TW_SIM_MERGED_NOT;
    }
    if (!is_size_plausible(mine, yours, replica->phi + first, phi, n)) return TW_SIM_MERGED_OUTLIER;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t d = first + i;
        const float outer = (mine[i] + yours[i]) / 2 + (replica->phi[d] - phi[i]) / 2;
        moved[i] = (double)mine[i] - (double)outer;
        apply_outer(replica, d, outbox->wanted[d] - outbox->residual[d], outer,
                    action->u.pair_apply.is_final);
        outbox->residual[d] = outbox->wanted[d] - mine[i];
    }
    outbox->has_sent[fragment] = false;
    return TW_SIM_MERGED;
}

void tw_sim_outbox_alone(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         struct tw_sim_outbox *outbox, const struct tw_action *action) {
    const uint32_t fragment = action->u.pair_apply.fragment, n = model->dims_per_fragment;
    const bool has_sent =
        outbox->has_sent[fragment] && outbox->sent_round[fragment] == action->u.pair_apply.round;
    if (!has_sent) fill_wanted(model, replica, outbox, fragment);
    for (uint32_t d = fragment * n; d < fragment * n + n; d++) {
        apply_outer(replica, d, outbox->wanted[d] - outbox->residual[d], outbox->wanted[d],
                    action->u.pair_apply.is_final);
        outbox->residual[d] = 0;
    }
    outbox->has_sent[fragment] = false;
}

void tw_sim_outbox_clear(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         struct tw_sim_outbox *outbox, uint32_t fragment, bool is_flushed) {
    const uint32_t n = model->dims_per_fragment;
    for (uint32_t d = fragment * n; d < fragment * n + n; d++) {
        if (is_flushed) replica->theta[d] -= outbox->residual[d];
        outbox->residual[d] = 0;
    }
    outbox->has_sent[fragment] = false;
}
