/* health.h - signs that merging harms this node, or that nodes attack the run. Pure. */
#ifndef TW_DAEMON_API_HEALTH_H
#define TW_DAEMON_API_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"

/* ==== health of the model ===================================================================== */

/* Signs of bad merging besides the anchor's loss.
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

/* ==== merging ================================================================================= */

/* Does merging help this node, or hurt it? Judged from its evaluations.
 *
 * Each evaluation gives the held-out loss of the live parameters and of the anchor. The anchor lags
 * behind the live parameters by the work that is not merged yet. The gap is largest at the start of
 * a run, when the anchor's loss may be twice as high. In healthy runs the anchor catches up within
 * some cycles (merges of every fragment). Where merging was broken, its loss stagnated or rose, 10
 * to 80 % above the live loss.
 *
 * An evaluation is judged if each fragment was merged since the last judged one. There are two bad
 * signs:
 *
 * - The anchor's loss has risen: it exceeds, by TW_MERGE_WORSE, both the live loss and the anchor's
 *   loss at one of the last TW_MERGE_CYCLES judged evaluations.
 * - The anchor's loss stagnates: it exceeds the live loss by TW_MERGE_BEHIND. And since a judged
 *   evaluation at least TW_MERGE_CYCLES cycles ago it has not closed TW_MERGE_PROGRESS of its gap
 *   to the live loss. One cycle is too short to judge: a small model needs a tenth of a second for
 *   it, and healthy anchors move in leaps. Anchors merged by sparse codecs stay 6 % behind for a
 *   while.
 *
 * A finding begins at the second or a later bad sign in a row, once TW_MERGE_SETTLES cycles lie
 * between the first and the last. A large outer step, as after a time alone, carries minutes of
 * work: its momentum makes the anchor overshoot and return within fewer cycles.
 *
 * While the finding holds, the node goes on with its own parameters: merges change its anchor but
 * not its parameters (daemon/node/health.h). It still contributes, because its contributions pull
 * the anchor back. The finding ends when the anchor is as good as the live parameters again, within
 * TW_MERGE_BACK, or when the node changes its lineage. Progress alone does not end it: a merge
 * would pull the parameters to an anchor that is still worse. Pure. */

#define TW_MERGE_WORSE 0.05f  /* risen: excess over live and earlier loss, as a fraction */
#define TW_MERGE_BEHIND 0.08f /* stagnating: excess over the live loss, as a fraction of it */
#define TW_MERGE_LEAST 0.05f  /* least excess in nats: near 0, a fraction of the loss is noise */
/* progress of the anchor's loss, as a fraction of its distance to the live loss */
#define TW_MERGE_PROGRESS 0.25f
#define TW_MERGE_BACK 0.02f /* excess that ends a finding, as a fraction of the live loss */

enum { TW_MERGE_SIGNS = 2, TW_MERGE_CYCLES = 4, TW_MERGE_SETTLES = 2 };

/* The anchor at one judged evaluation. */
struct tw_merge_point {
    float loss;
    uint64_t rounds; /* committed rounds that every fragment of the anchor includes */
};

struct tw_merge_health {
    struct tw_merge_point points[TW_MERGE_CYCLES]; /* anchors at the last judged evaluations, newest
                                                      first */
    uint32_t points_count;
    uint32_t bad_signs; /* consecutive bad signs */
    uint64_t bad_since; /* rounds at the first of these bad signs */
    bool is_bad;        /* the finding holds */
};

/* Judges one evaluation. live, anchor: held-out losses. rounds: committed rounds that every
 * fragment of the anchor includes. fragments: number of fragments, at least 1. Returns whether the
 * finding began or ended. A non-finite anchor loss is a bad sign. An evaluation with a non-finite
 * live loss is ignored. */
bool tw_merge_health_note(struct tw_merge_health *health, float live, float anchor, uint64_t rounds,
                          uint32_t fragments);

/* ==== attacks ================================================================================= */

/* Attacks on the run that this node noticed, for the warnings in its status. Pure. */

enum {
    TW_ATTACKS_PER_KIND = 4,
    TW_ATTACK_TEXT_BYTES = 256,
    TW_ATTACK_LABEL_BYTES = 64,
};

#define TW_ATTACK_SHOWN_US (UINT64_C(3600) * 1000 * 1000)

enum tw_attack_kind {
    TW_ATTACK_FORGED,    /* a record that no majority signed */
    TW_ATTACK_TWO_FACED, /* two signed votes or results that exclude each other */
    TW_ATTACK_LEFT,      /* no attack for sure, so its warning is called group_left: this node left
                            its lineage although most of its group was linked */
    TW_ATTACK_MERGE,     /* a result that is not the merge of its contributions */
    TW_ATTACK_OVERSIZED, /* a contribution far too large to be merged */
    TW_ATTACK_STATE,     /* a state that is not the members', given to this node as theirs */
    TW_ATTACK_UNTRAINED, /* work that was not trained on the data of its sender */
    TW_ATTACK_PROTOCOL,  /* any other breach of the protocol */
    TW_ATTACKS,
};

enum { TW_ATTACKS_MAX = TW_ATTACKS * TW_ATTACKS_PER_KIND };

/* Attacks of one kind by one node. */
struct tw_attack {
    enum tw_attack_kind kind;
    struct tw_id id;
    uint32_t count;  /* 0: an unused row */
    uint32_t others; /* attacks of this kind by nodes that have no row of their own */
    uint64_t at_us;  /* time of the newest attack */
};

/* Each kind has rows of its own, so that attacks of one kind push no other kind out. Nor does a
 * crowd of nodes push out the nodes that were there first: if a kind has no row left, the newest
 * node takes the row of the one before it, whose attacks are then counted among `others`. All zero
 * is empty. */
struct tw_attacks {
    struct tw_attack rows[TW_ATTACKS][TW_ATTACKS_PER_KIND];
    struct {
        uint32_t count;
        uint64_t at_us;
    } others[TW_ATTACKS];
};

/* Counts one attack. */
void tw_attacks_note(struct tw_attacks *attacks, enum tw_attack_kind kind, const struct tw_id *id,
                     uint64_t now_us);

/* Writes the attacks of the last TW_ATTACK_SHOWN_US to rows[TW_ATTACKS_MAX]: first the newest of
 * each kind, which alone has `others`, then the rest, either part newest first. Returns the number
 * of rows. */
uint32_t tw_attacks_recent(const struct tw_attacks *attacks, uint64_t now_us,
                           struct tw_attack *rows);

/* Writes a sentence: "Node ab12cd34 sent a round that its group did not decide (3 times); other
 * nodes did so 36 times". `label`
 * is the word for the node, at most TW_ATTACK_LABEL_BYTES with its NUL. */
void tw_attack_text(const struct tw_attack *attack, const char *label,
                    char text[TW_ATTACK_TEXT_BYTES]);

/* Returns advice to a person about an attack of this kind. Static storage. */
const char *tw_attack_way_out(enum tw_attack_kind kind);

#endif
