/* health.h - signs of bad merging besides the anchor's loss (merge_health.h).
 *
 * The signs are judged at each evaluation (a look). A finding, shown as a warning, begins with its
 * second bad sign in a row and ends with one good sign. REFUSED and LEFT_OUT are judged only after
 * as many rounds as there are fragments, and at least TW_HEALTH_ROUNDS.
 *
 * Bad signs since the last look:
 *
 * - REFUSED: owners refused this node's work in at least half of the rounds and in at least two.
 * - LEFT_OUT: no record lists this node, although the byte budget allowed each contribution and the
 *   rounds do not count as REFUSED.
 * - TAKES_OVER: this node took over every fragment's state from other nodes.
 * - FAR: the distance to the anchor exceeds TW_HEALTH_FAR, and TW_HEALTH_FURTHER times the largest
 *   earlier distance.
 * - RISING: the live held-out loss exceeds TW_HEALTH_RISEN times the lowest earlier one,
 *   and exceeds it by TW_HEALTH_RISEN_NATS.
 *
 * STUCK and NO_SEAT need no second sign. STUCK begins when the open round has been open for
 * TW_HEALTH_STUCK_US and for TW_HEALTH_STUCK_PERIODS usual periods, and ends with that round.
 * NO_SEAT begins when this node has waited that long for a seat in the group, and ends with the
 * seat.
 *
 * DIFFERS begins when most members had another anchor than this node for the second time within
 * TW_HEALTH_DIFFERS_US. It ends that long after the last difference. All nodes compute the same
 * anchors to the bit, so a difference comes from broken memory, a broken disk or a faulty program.
 *
 * FAR needs TW_HEALTH_LOOKS earlier distances, measured while the node was not alone. During a
 * linear learning-rate warm-up, the fourth distance is then at most 4/3 of the largest. Distances
 * just after a merge are near 0 and never count as FAR. A slow node contributes between two of its
 * own evaluations, so slowness does not cause LEFT_OUT. Pure. */
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
    TW_HEALTH_UNKNOWN_PERIODS = 10, /* limit while the usual period is unknown, in units of
                                       TW_HEALTH_STUCK_US */
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

/* Totals and values at one evaluation. */
struct tw_health_look {
    uint64_t listed, missed; /* committed rounds with and without this node */
    uint64_t refused; /* rounds in which an owner refused this node's work; each is also in `listed`
                         or `missed` */
    uint64_t budget_left_out; /* rounds without a contribution because of the byte budget */
    uint64_t states;          /* fragment states taken over from other nodes */
    uint32_t fragments;       /* at least 1 */
    bool is_alone; /* the node trains alone: nothing is merged, and the anchor follows the live
                      parameters */
    float live, distance; /* held-out loss in nats; distance to the anchor as a ratio */
};

struct tw_health {
    uint32_t signs[TW_FINDINGS];       /* consecutive bad signs; STUCK, NO_SEAT: SIGNS or 0;
                                          DIFFERS: differences, at most SIGNS */
    uint64_t differed_us;              /* time of the last DIFFERS sign */
    struct tw_health_look rounds_look; /* totals when REFUSED and LEFT_OUT were last judged */
    uint64_t states;
    uint32_t distances_count;
    float distance_most, live_least; /* largest distance that was not FAR; lowest live loss, 0: none
                                        yet */
};

/* Judges one evaluation. Returns the findings that began or ended, one bit each. */
uint32_t tw_health_note(struct tw_health *health, const struct tw_health_look *look);

/* open_us: age of the group's open round, or 0 if no round is open or no other node is linked.
 * period_us: usual time between two rounds, or 0 if unknown. Returns whether STUCK began or ended.
 */
bool tw_health_note_open(struct tw_health *health, uint64_t open_us, uint64_t period_us);

/* seatless_us: time for which this node has asked for a seat, or 0 if it has one or does not ask.
 * period_us: usual time between two rounds, or 0 if unknown. Returns whether NO_SEAT began or
 * ended. */
bool tw_health_note_seat(struct tw_health *health, uint64_t seatless_us, uint64_t period_us);

/* Notes that most members have another anchor than this node. Returns whether DIFFERS began. */
bool tw_health_note_differs(struct tw_health *health, uint64_t now_us);

/* Ends DIFFERS when its time is over; call it regularly. Returns whether DIFFERS ended. */
bool tw_health_tick(struct tw_health *health, uint64_t now_us);

bool tw_health_has(const struct tw_health *health, enum tw_finding finding);

/* "refused", "left_out", "takes_over", "far", "rising", "stuck", "differs",
 * "no_seat". Static storage. */
const char *tw_finding_name(enum tw_finding finding);

#endif
