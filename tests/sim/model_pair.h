/* model_pair.h - the arithmetic of a run in pairs over the stub model.
 *
 *     outer = (D(v_own) + D(v_theirs)) / 2 + (phi_own - phi_theirs) / 2,   v = e + Delta
 *     phi   = phi - outer,   theta = theta + Delta - outer,   e = v - D(v_own)
 *
 * D is coding and decoding, e the residual. This is worker/merge/pairing.h without momentum and
 * with gamma = beta = 1. A merge moves a node's theta - e by D(v_own) - outer, and its partner's by
 * the opposite, so the sum of both stays. Alone, outer = v and e = 0. The outbox (e, and the work
 * that was encoded but not merged yet) lies in the worker's memory and is in no snapshot. */
#ifndef TW_SIM_MODEL_PAIR_H
#define TW_SIM_MODEL_PAIR_H

#include "tests/sim/model.h"

/* A phi in lattice form is readable if each dim differs from the reader's phi by at most this much.
 */
#define TW_SIM_PHI_REACH 0.75f

/* Bound on a partner's outer gradient and anchor distance, in multiples of the node's own norms. */
#define TW_SIM_PARTNER_TIMES 64

struct tw_sim_outbox {
    bool has_sent[TW_SIM_FRAGMENTS_MAX];       /* encoded and not yet merged */
    uint64_t sent_round[TW_SIM_FRAGMENTS_MAX]; /* round of that encoding */
    float residual[TW_SIM_DIMS_MAX];           /* e */
    float wanted[TW_SIM_DIMS_MAX];             /* v of that encoding */
};

/* Encodes Delta and phi of a fragment for a merge in this round. If `is_whole`, phi is lossless. */
void tw_sim_outbox_encode(const struct tw_sim_model *model, struct tw_sim_contents *contents,
                          struct tw_sim_replica *replica, struct tw_sim_outbox *outbox,
                          uint32_t fragment, uint64_t round, bool is_whole,
                          const struct tw_sim_content *made[TW_PAIR_PAYLOADS]);

enum tw_sim_merged {
    TW_SIM_MERGED,
    TW_SIM_MERGED_NOT,     /* the partner's phi is unreadable: nothing changed */
    TW_SIM_MERGED_OUTLIER, /* a payload is far too large: nothing changed */
    TW_SIM_MERGED_WRONG,   /* not the payloads encoded for this round: nothing changed */
};

/* Applies the outer step with a partner. Writes the movement of theta - e to `moved`
 * (dims_per_fragment values). */
enum tw_sim_merged tw_sim_outbox_merge(const struct tw_sim_model *model,
                                       struct tw_sim_replica *replica, struct tw_sim_outbox *outbox,
                                       const struct tw_action *action,
                                       const struct tw_sim_content *const *own,
                                       const struct tw_sim_content *const *theirs, double *moved);

/* Applies the outer step without a partner. Uses v as encoded for this round, or else the present
 * v. */
void tw_sim_outbox_alone(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         struct tw_sim_outbox *outbox, const struct tw_action *action);

/* Drops an encoding in progress. e is added back into theta if `is_flushed`, otherwise it is lost.
 */
void tw_sim_outbox_clear(const struct tw_sim_model *model, struct tw_sim_replica *replica,
                         struct tw_sim_outbox *outbox, uint32_t fragment, bool is_flushed);

/* Returns whether the content is a phi of this many finite elements. */
bool tw_sim_content_is_phi(const struct tw_sim_content *content, uint64_t elements);

#endif
