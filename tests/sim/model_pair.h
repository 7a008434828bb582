/* model_pair.h - the arithmetic of a run in pairs over the stub model.
 *
 *     outer = (D(v_own) + D(v_theirs)) / 2 + (phi_own - phi_theirs) / 2,   v = e + Delta
 *     phi   = phi - outer,   theta = theta + Delta - outer,   e = v - D(v_own)
 *
 * which is worker/merge/pairing.h without momentum, gamma = beta = 1. A node's theta - e moves by
 * D(v_own) - outer, and its partner's by the opposite: two of them together lose nothing. Alone,
 * outer = v and e = 0. What is under way and e live in the worker's memory and in no snapshot. */
#ifndef TW_SIM_MODEL_PAIR_H
#define TW_SIM_MODEL_PAIR_H

#include "tests/sim/model.h"

/* Whose phi is further away than this in one of its dims cannot be read in lattice form. */
#define TW_SIM_PHI_REACH 0.75f

/* So many times as large as ours a partner's outer gradient may be, and its anchor as far away. */
#define TW_SIM_PARTNER_TIMES 64

struct tw_sim_outbox {
    bool has_sent[TW_FRAGMENTS_MAX]; /* in this round: */
    uint64_t sent_round[TW_FRAGMENTS_MAX];
    float residual[TW_SIM_DIMS_MAX]; /* e */
    float wanted[TW_SIM_DIMS_MAX];   /* v of what was sent */
};

/* Delta and phi of a fragment, to be merged in this round. */
void tw_sim_outbox_encode(const struct tw_sim_model *model, struct tw_sim_contents *contents,
                          struct tw_sim_replica *replica, struct tw_sim_outbox *outbox,
                          uint32_t fragment, uint64_t round, bool is_whole,
                          const struct tw_sim_content *made[TW_PAIR_PAYLOADS]);

enum tw_sim_merged {
    TW_SIM_MERGED,
    TW_SIM_MERGED_NOT,     /* what they sent is out of reach: nothing changed */
    TW_SIM_MERGED_OUTLIER, /* it is of no size that training gives: nothing changed */
    TW_SIM_MERGED_WRONG,   /* nothing was sent in this round, or not these payloads: nothing changed
                            */
};

/* The step with a partner. `moved` (dims_per_fragment): what theta - e of this node moved by. */
enum tw_sim_merged tw_sim_outbox_merge(const struct tw_sim_model *model,
                                       struct tw_sim_replica *replica, struct tw_sim_outbox *outbox,
                                       const struct tw_action *action,
                                       const struct tw_sim_content *const *own,
                                       const struct tw_sim_content *const *theirs, double *moved);

/* The step without one: what was sent in this round, else all there is. */
void tw_sim_outbox_alone(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         struct tw_sim_outbox *outbox, const struct tw_action *action);

/* Nothing is under way any more; e goes back into theta if `is_flushed`, and is lost otherwise. */
void tw_sim_outbox_clear(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         struct tw_sim_outbox *outbox, uint32_t fragment, bool is_flushed);

/* It is a phi of so many finite elements. */
bool tw_sim_content_is_phi(const struct tw_sim_content *content, uint64_t elements);

#endif
