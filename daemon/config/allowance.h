/* allowance.h - the byte budget of a node: how large its next contribution may be. Pure: time and
 * traffic come in.
 *
 * Of what passes the socket a node decides about one thing, the size of what it contributes; the
 * results it serves and takes, votes and state for joiners follow from the run. So their rate is
 * measured and taken off the budget, and what is left until the next contribution of the same
 * fragment goes to it:
 *
 *     may = share ((budget - rest) cycle + credit / 2)
 *
 * share: of the fragment in the model, cycle: time in which every fragment has its round, credit:
 * what the budget allowed so far and was not used, which may be negative. Half of it per cycle
 * settles without swinging. What is known to go with every contribution (the anchor, in pairs) is
 * of the rest before it was ever measured. Where that is less than the least contribution there is
 * none, but where the credit alone pays for one: a node that can afford every k-th round takes part
 * in every k-th.
 */
#ifndef TW_DAEMON_CONFIG_ALLOWANCE_H
#define TW_DAEMON_CONFIG_ALLOWANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

/* As configured: bytes per second of upload, or bytes per 30 days in both directions together. */
struct tw_budget_config {
    uint64_t bytes; /* 0: no budget */
    bool is_month;
};

enum { TW_MONTH_S = 30 * 86400 };

struct tw_allowance {
    double bytes_per_s; /* 0: no budget */
    bool is_month, has_looked;
    uint64_t started_us, at_us, bytes; /* when it looked last, and the traffic then */
    double credit;                     /* bytes */
    double pending;                    /* contributed, and not seen at the socket yet */
    double rest_per_s;                 /* of what is no contribution */
    double cycle_s, least;             /* as last asked for, with what goes with it; 0: not yet */
};

void tw_allowance_init(struct tw_allowance *allowance, const struct tw_budget_config *config);

/* The traffic so far, in the directions that count; it never falls. About once a second. */
void tw_allowance_look(struct tw_allowance *allowance, uint64_t now_us, uint64_t bytes);

/* So many bytes were encoded for other nodes. */
void tw_allowance_sent(struct tw_allowance *allowance, uint64_t bytes);

struct tw_allowance_ask {
    uint64_t cycle_us; /* between two rounds of one fragment; 0: not known yet */
    double share;      /* of this fragment, in (0, 1] */
    uint64_t least;    /* bytes of the smallest contribution that could be made */
    uint64_t besides;  /* that go with it whatever its size */
};

/* True: this contribution may take *bytes_max (at least `least`; UINT64_MAX without a budget).
 * False: it is to be left out. */
bool tw_allowance_ask(struct tw_allowance *allowance, const struct tw_allowance_ask *ask,
                      uint64_t *bytes_max);

/* Whether the rest alone is more than the budget: no codec can help. */
bool tw_allowance_is_hopeless(const struct tw_allowance *allowance);

/* ---- among the owners of the parts ----------------------------------------------------------- */

struct tw_allowance_part {
    uint64_t elements;
    uint64_t link_max;  /* bytes its link carries in time; UINT64_MAX: not known */
    uint64_t bytes_max; /* out */
};

/* Deals out `bytes_max` by elements, to nobody more than its link carries: what one cannot take
 * goes to the others. */
void tw_allowance_deal(struct tw_allowance_part *parts, uint32_t parts_count, uint64_t bytes_max);

#endif
