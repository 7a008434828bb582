/* model.h - the stub model: a noisy quadratic with a known optimum.
 *
 *     f_i(x) = 1/2 sum_d a_d (x_d - t_id)^2,   t_id = c_d + s xi_id,   f = mean_i f_i
 *
 * theta, phi and u are float32 values carried in the payloads, so a lost, doubled or misapplied
 * update shows in the numbers. One stub parameter ("dim") stands for TW_PART_ALIGN elements, so
 * part boundaries fall between dims. */
#ifndef TW_SIM_MODEL_H
#define TW_SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/rng.h"
#include "sync/node.h"
#include "tests/sim/content.h"
#include "tests/sim/options.h"

enum {
    TW_SIM_FRAGMENTS_MAX = 9,
    TW_SIM_FRAGMENT_DIMS_MAX = 16,
    TW_SIM_DIMS_MAX = TW_SIM_FRAGMENTS_MAX * TW_SIM_FRAGMENT_DIMS_MAX,
};

struct tw_sim_model {
    uint32_t fragments_count, dims_per_fragment, dims_count;
    float curvature[TW_SIM_DIMS_MAX], optimum[TW_SIM_DIMS_MAX]; /* a, c */
    float inner_lr, outer_lr, outer_momentum, alpha, noise;
    uint64_t budget_tokens; /* tokens over which the inner learning rate falls to a tenth */
};

/* The state of one node: theta belongs to its worker, (phi, u) lie in memory that outlives a
 * worker. */
struct tw_sim_replica {
    float theta[TW_SIM_DIMS_MAX], phi[TW_SIM_DIMS_MAX], u[TW_SIM_DIMS_MAX];
    uint64_t fragment_rounds[TW_SIM_FRAGMENTS_MAX];
    struct tw_id digests[TW_SIM_FRAGMENTS_MAX];
    float clip_norm[TW_SIM_FRAGMENTS_MAX]; /* running norm of Delta */
    bool is_clipped_next[TW_SIM_FRAGMENTS_MAX];
    /* For check_model.c: lineage of each fragment's theta and phi. */
    struct tw_id theta_of[TW_SIM_FRAGMENTS_MAX], phi_of[TW_SIM_FRAGMENTS_MAX];
};

void tw_sim_model_init(struct tw_sim_model *model, const struct tw_sim_options *options,
                       struct tw_rng *rng);
/* start = 0: the same first weights on every node; otherwise weights drawn from that number. */
void tw_sim_replica_init(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         uint64_t start);

/* One inner step towards `target` (dims_count values) with gradient noise, at this run clock. */
void tw_sim_model_step(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                       const float *target, uint64_t clock_tokens, struct tw_rng *rng);

/* Returns f(x) minus the minimum of f, per dim. */
double tw_sim_model_loss(const struct tw_sim_model *model, const float *x);

/* Returns the SHA-256 of (phi, u) of one fragment. */
struct tw_id tw_sim_replica_digest(const struct tw_sim_model *model,
                                   const struct tw_sim_replica *replica, uint32_t fragment);

/* Encodes Delta of elements [begin, begin + count) of a fragment, clipped if `is_clipped_next`. */
const struct tw_sim_content *tw_sim_replica_encode(const struct tw_sim_model *model,
                                                   struct tw_sim_contents *contents,
                                                   const struct tw_sim_replica *replica,
                                                   uint32_t fragment, uint64_t begin,
                                                   uint64_t count);

/* Called after all parts of a fragment's Delta were encoded: updates clip_norm, clears
 * is_clipped_next. */
void tw_sim_replica_encoded(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                            uint32_t fragment);

/* Returns the mean of Deltas weighted by tokens, summed in this order. Returns NULL if an input
 * does not have `count` elements. */
const struct tw_sim_content *tw_sim_model_reduce(struct tw_sim_contents *contents,
                                                 const struct tw_sim_content *const *inputs,
                                                 const uint64_t *tokens, uint32_t inputs_count,
                                                 uint64_t count);

/* Applies the outer step to one part, then updates theta by the part's mode. Returns false and
 * changes nothing if the content has the wrong length. */
bool tw_sim_replica_apply(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                          uint32_t fragment, const struct tw_apply_part *part,
                          const struct tw_sim_content *content, bool is_final);

/* Sets phi := theta and u := 0 of one fragment. */
void tw_sim_replica_solo(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         uint32_t fragment);
/* Returns (phi, u) of one fragment as a payload. */
const struct tw_sim_content *tw_sim_replica_export(const struct tw_sim_model *model,
                                                   struct tw_sim_contents *contents,
                                                   const struct tw_sim_replica *replica,
                                                   uint32_t fragment);
/* Sets (phi, u) := content, or leaves them if `content` is NULL. Then updates theta by `mode`.
 * Returns false and changes nothing if the content has the wrong length. */
bool tw_sim_replica_load(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         uint32_t fragment, const struct tw_sim_content *content,
                         enum tw_load_mode mode);

/* Sets theta := phi for all fragments. */
void tw_sim_replica_turn(const struct tw_sim_model *model, struct tw_sim_replica *replica);

/* tw_sim_delta_put() stores an outer gradient of n dims as a payload. tw_sim_delta_of() returns the
 * n floats of that payload, or NULL. */
const struct tw_sim_content *tw_sim_delta_put(struct tw_sim_contents *contents, const float *delta,
                                              uint32_t n);
const uint8_t *tw_sim_delta_of(const struct tw_sim_content *content, uint32_t n);

/* Returns whether the content decodes to this many finite elements, as an outer gradient or a
 * state. */
bool tw_sim_content_check(const struct tw_sim_content *content, uint64_t elements);

/* Returns the size of a payload on the simulated wire, in bytes. */
uint32_t tw_sim_content_wire_bytes(const struct tw_sim_content *content, uint32_t bytes_per_dim);

#endif
