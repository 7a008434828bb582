/* health.h - signs of bad merging besides the anchor's loss (merge_health.h).
 *
 * The signs are judged at each evaluation (a look). A finding, shown as a warning, begins with its
 * second bad sign in a row, and ends with one good sign. REFUSED and LEFT_OUT are judged only when
 * as many rounds have passed as there are fragments, and TW_HEALTH_ROUNDS at least.
 *
 * Bad signs since the last look:
 *
 * - REFUSED: owners refused this node's work in half of the rounds or more, and in two at least.
 * - LEFT_OUT: no record lists this node, although the byte budget allowed each contribution and the
 *   rounds do not count as REFUSED.
 * - TAKES_OVER: this node took over every fragment's state from other nodes.
 * - FAR: the distance to the anchor is above TW_HEALTH_FAR, and above TW_HEALTH_FURTHER times the
 *   largest one before.
 * - RISING: the live held-out loss is above TW_HEALTH_RISEN times the lowest one before, and
 *   TW_HEALTH_RISEN_NATS above it.
 *
 * STUCK and NO_SEAT need no second sign. STUCK begins when the open round has been open for
 * TW_HEALTH_STUCK_US and for TW_HEALTH_STUCK_PERIODS usual periods, and ends with that round.
 * NO_SEAT begins when this node has asked for a seat in the group for that long, and ends with the
 * seat.
 *
 * DIFFERS begins when most members had another anchor than this node for the second time within
 * TW_HEALTH_DIFFERS_US. It ends that long after the last time. All nodes compute the same
 * anchors to the bit, so a difference comes from broken memory, a broken disk or a faulty program.
 *
 * FAR needs TW_HEALTH_LOOKS earlier distances, of a node that is not alone: with a learning rate
 * that warms up linearly the fourth is then at most 4/3 of the largest. Distances are near 0 just
 * after a merge, so a small one is never far. A slow node contributes between two of its own
 * evaluations, so slowness does not cause LEFT_OUT. Pure. */
#ifndef TW_DAEMON_API_HEALTH_H
#define TW_DAEMON_API_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define TW_HEALTH_FAR 0.25f
#define TW_HEALTH_FURTHER 3.0f
#define TW_HEALTH_RISEN 1.25f
#define TW_HEALTH_RISEN_NATS 0.1f
#define TW_HEALTH_STUCK_US (UINT64_C(60) * 1000 * 1000)
#define TW_HEALTH_DIFFERS_US (UINT64_C(3600) * 1000 * 1000)

enum {
    TW_HEALTH_SIGNS = 2,
    TW_HEALTH_ROUNDS = 4,
    TW_HEALTH_LOOKS = 3,
    TW_HEALTH_STUCK_PERIODS = 8,
    TW_HEALTH_UNKNOWN_PERIODS = 10, /* replaces the usual period while that is not known, as a
                                       multiple of TW_HEALTH_STUCK_US */
};

enum tw_finding {
    TW_FINDING_REFUSED,
    TW_FINDING_LEFT_OUT,
    TW_FINDING_TAKES_OVER,
    TW_FINDING_FAR,
    TW_FINDING_RISING,
    TW_FINDING_STUCK,
    TW_FINDING_DIFFERS,
    TW_FINDING_NO_SEAT,
    TW_FINDINGS,
};

/* Totals and values of one evaluation. */
struct tw_health_look {
    uint64_t listed, missed; /* committed rounds with and without this node */
    uint64_t refused; /* rounds in which an owner refused this node's work; each also counts as
                         listed or missed */
    uint64_t budget_left_out; /* rounds without a contribution, because of the byte budget */
    uint64_t states;          /* fragments' states that came from other nodes */
    uint32_t fragments;       /* at least 1 */
    bool is_alone; /* the node trains alone: nothing is merged, and the anchor follows the live
                      parameters */
    float live, distance; /* held-out loss; distance to the anchor, a ratio */
};

struct tw_health {
    uint32_t signs[TW_FINDINGS];       /* bad signs in a row; STUCK, NO_SEAT: SIGNS or 0; DIFFERS:
                                          differences, SIGNS at most */
    uint64_t differed_us;              /* time of the last difference */
    struct tw_health_look rounds_look; /* totals at the last look that counted rounds */
    uint64_t states;
    uint32_t distances_count;
    float distance_most, live_least; /* largest distance and lowest live loss at good signs;
                                        live_least 0: none yet */
};

/* Returns the set of findings, as bits, that began or ended. */
uint32_t tw_health_note(struct tw_health *health, const struct tw_health_look *look);

/* open_us: how long the group's open round has been open; 0: none is, or no other node is linked.
 * period_us: usual time between two rounds; 0: not known. Returns whether STUCK began or ended. */
bool tw_health_note_open(struct tw_health *health, uint64_t open_us, uint64_t period_us);

/* seatless_us: for how long this node has asked for a seat; 0: it has one, or does not ask.
 * period_us: as above. Returns whether NO_SEAT began or ended. */
bool tw_health_note_seat(struct tw_health *health, uint64_t seatless_us, uint64_t period_us);

/* Most members have another anchor than this node. Returns whether DIFFERS began. */
bool tw_health_note_differs(struct tw_health *health, uint64_t now_us);

/* Call from time to time. Returns whether DIFFERS ended. */
bool tw_health_tick(struct tw_health *health, uint64_t now_us);

bool tw_health_has(const struct tw_health *health, enum tw_finding finding);

/* "refused", "left_out", "takes_over", "far", "rising", "stuck", "differs",
 * "no_seat". Static storage. */
const char *tw_finding_name(enum tw_finding finding);

#endif
