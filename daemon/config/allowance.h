/* allowance.h - byte budget of a node: how large its next contribution may be. Pure: the caller
 * passes time and traffic.
 *
 * A node controls only one part of its traffic: the size of its contributions. All other traffic
 * (results, votes, state for joiners) follows from the run. The rate of that traffic (`rest` below)
 * is measured and subtracted from the budget. A contribution may use the bytes that are left until
 * the next contribution of the same fragment:
 *
 *     may = share * ((budget - rest) * cycle + credit / 2)
 *
 * - share: elements of the fragment, as a fraction of the model's
 * - budget, rest: bytes per second
 * - cycle: seconds in which every fragment has its round
 * - credit: bytes of the budget not used so far; may be negative. Spending half of it per cycle
 *   settles without oscillation.
 *
 * Bytes known to accompany every contribution (the anchor, in pairs) count as rest even before they
 * are measured. If the allowance is below the smallest contribution, the node skips the round,
 * unless its credit alone pays for one. A node that can afford only every k-th round thus takes
 * part in every k-th. */
#ifndef TW_DAEMON_CONFIG_ALLOWANCE_H
#define TW_DAEMON_CONFIG_ALLOWANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

/* The configured budget: bytes per second of upload, or bytes per 30 days in both directions
 * together. */
struct tw_budget_config {
    uint64_t bytes; /* 0: no budget */
    bool is_month;
};

enum { TW_MONTH_S = 30 * 86400 };

struct tw_allowance {
    double bytes_per_s; /* 0: no budget */
    bool is_month, has_looked;
    uint64_t started_us, at_us, bytes; /* time of the first and last measurement; total traffic at
                                          the last one */
    double credit;                     /* bytes */
    double pending;                    /* bytes of the newest contribution that are not sent yet */
    double rest_per_s;                 /* bytes per second other than contributions */
    double cycle_s, least; /* seconds per cycle, bytes of the smallest contribution; 0: no request
                              yet */
};

void tw_allowance_init(struct tw_allowance *allowance, const struct tw_budget_config *config);

/* Measures traffic. `bytes` is the node's total so far, in the directions that the budget counts.
 * Call about once a second. */
void tw_allowance_look(struct tw_allowance *allowance, uint64_t now_us, uint64_t bytes);

/* Records that a contribution of that many bytes was encoded for other nodes. */
void tw_allowance_sent(struct tw_allowance *allowance, uint64_t bytes);

struct tw_allowance_ask {
    uint64_t cycle_us; /* time between two rounds of one fragment; 0: unknown */
    double share;      /* elements of this fragment, as a fraction of the model's, in (0, 1] */
    uint64_t least;    /* bytes of the smallest possible contribution */
    uint64_t besides;  /* bytes sent with the contribution whatever its size */
};

/* Returns false if this round must be skipped. Otherwise the contribution may have *bytes_max
 * bytes: at least `least`, or UINT64_MAX without a budget. */
bool tw_allowance_ask(struct tw_allowance *allowance, const struct tw_allowance_ask *ask,
                      uint64_t *bytes_max);

/* Returns true if traffic other than contributions alone exceeds the budget: no codec can help
 * then. */
bool tw_allowance_is_hopeless(const struct tw_allowance *allowance);

/* ---- split among the owners of the parts --------------------------------------------------- */

struct tw_allowance_part {
    uint64_t elements;
    uint64_t link_max;  /* bytes that the link to the part's owner can carry in time; UINT64_MAX:
                           unknown */
    uint64_t bytes_max; /* out: bytes for this part */
};

/* Splits `bytes_max` in proportion to the elements, but gives no part more than `link_max`. The
 * excess goes to the other parts. */
void tw_allowance_deal(struct tw_allowance_part *parts, uint32_t parts_count, uint64_t bytes_max);

#endif
