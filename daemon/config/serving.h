/* serving.h - may this node send N bytes of kind K to node P now? The budgets of all that serves
 * other nodes alone. Pure: the caller passes time and traffic.
 *
 * A round that this node merges with its roster serves this node too, and is not limited here.
 * Everything else that a peer can ask for is. A node is *outside* if it is no member: it is in no
 * roster, was in none within a day, is not configured and, in pairs, no partner of a merge.
 *
 *   for                 of                          at most
 *   one member          states of fragments         64 states of the model an hour; of a capped
 *                                                   line at most half, but always two states
 *   one node outside    states of fragments         8 states an hour, of a capped line the same
 *                       chunks of the dataset       two datasets a day
 *                       a payload of a round        twice; more is charged as states
 *                       all these bytes, and        with a quota: 1/60 of it a day, or one state
 *                       relayed ones
 *   all nodes outside   states                      64 an hour: as many as a roster has seats
 *                       all these bytes             with a quota: 1/300 of it a day
 *   all nodes           all these bytes             with a quota: half of it a month; the other
 *                                                   half is kept for merges
 *   one node outside    control messages            with a quota: 2 MiB at once, 2 KiB/s after
 *   all nodes outside   control messages            with a quota: 8 MiB at once, 4 KiB/s after
 *
 * Of the share of nodes outside, dataset and relayed bytes get half (at least 1 MiB), and states of
 * one model always fit beside them: otherwise nobody could join at a small quota. A node that began
 * to copy a state earlier, and still asks for it, keeps the room for the rest of it: otherwise two
 * nodes could use up the share with a half each. The days are
 * those of daemon/config/quota.h. Hours and days of one node's states and data are sliding: bytes
 * are paid back evenly, so no node is shut out for longer than its last chunk lasts.
 *
 * The budgets of a node outlive its links, so a new link brings no new budget. There are more rows
 * than members; of the nodes outside the least recently served one is forgotten, and the budgets of
 * all of them together still hold. */
#ifndef TW_DAEMON_CONFIG_SERVING_H
#define TW_DAEMON_CONFIG_SERVING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

enum tw_serving_kind { TW_SERVING_STATE, TW_SERVING_DATA, TW_SERVING_PAYLOAD, TW_SERVING_RELAY };

/* The budget that has no room for a request. */
enum tw_serving_verdict {
    TW_SERVING_GRANTED,
    TW_SERVING_NODE,    /* the node's own */
    TW_SERVING_OUTSIDE, /* the one of all nodes outside */
    TW_SERVING_HALF,    /* the half of the quota that may serve others */
    TW_SERVING_VERDICTS,
};

struct tw_serving_ask {
    const struct tw_id *id;
    const struct tw_id *other; /* RELAY: the other end of the pipe, else NULL */
    bool is_wanted;            /* `id` is in the roster or configured */
    bool is_other_wanted;
    enum tw_serving_kind kind;
    uint64_t bytes;              /* RELAY: both arriving and departing bytes */
    const struct tw_id *payload; /* PAYLOAD: its name */
    uint32_t row, chunks;        /* PAYLOAD: its row in the pool, < TW_PAYLOADS_MAX; its size */
};

/* Rest of the quota. */
struct tw_serving_left {
    uint64_t quota_bytes;   /* bytes per month; 0: no quota */
    uint64_t month_bytes;   /* bytes that served others in this month */
    uint64_t outside_bytes; /* those of nodes outside on this day */
    uint64_t day;           /* days since 1970 */
};

/* Bytes that are paid back evenly over a period. */
struct tw_serving_level {
    uint64_t bytes, at_us;
};

struct tw_serving_row {
    struct tw_id id;    /* zero if the row is free */
    uint64_t used_us;   /* time of the last request */
    uint64_t member_us; /* last time in the roster; 0: never */
    uint64_t logged_us; /* last time when a refusal was to be logged; 0: never */
    struct tw_serving_level states, data, control;
    uint64_t day, day_bytes; /* bytes served on that day */
    struct {
        uint64_t day, bytes, began_us;
    } copy; /* of a node outside: bytes of states on that day, and when the first was sent */
    uint16_t given[TW_PAYLOADS_MAX]; /* chunks sent of each payload of a round */
};

struct tw_serving {
    uint64_t state_bytes, data_bytes; /* sizes of the model's state and of the dataset */
    uint64_t line_bytes_s;            /* upload cap; 0: none */
    struct tw_serving_left left;
    struct tw_serving_level outside_states, outside_control;
    struct tw_serving_row rows[TW_SERVING_ROWS];
    struct tw_id payloads[TW_PAYLOADS_MAX]; /* payloads that `given` counts */
    uint64_t month_fresh, outside_fresh;    /* charged since tw_serving_take */
    uint64_t bytes;                         /* charged since the start */
    uint64_t refused[TW_SERVING_VERDICTS];  /* requests refused since the start, by reason */
};

/* `state_bytes` is the size of the packed (phi, u) of the whole model. */
void tw_serving_init(struct tw_serving *serving, uint64_t state_bytes);

/* Sets the size of the dataset, once it is known. */
void tw_serving_set_data(struct tw_serving *serving, uint64_t bytes);

/* Sets the upload cap, in bytes per second on the line; 0: none. */
void tw_serving_set_line(struct tw_serving *serving, uint64_t bytes_per_s);

/* Sets the rest of the quota. Call it once a second, after tw_serving_take. */
void tw_serving_set_left(struct tw_serving *serving, const struct tw_serving_left *left);

/* Returns the bytes that were charged to the month since the last call, and those of them that are
 * due to nodes outside. */
uint64_t tw_serving_take(struct tw_serving *serving, uint64_t *outside);

/* Notes that this node is in the roster now. */
void tw_serving_member(struct tw_serving *serving, const struct tw_id *id, uint64_t now_us);

/* Returns the budget that has no room for the request. Charges nothing. */
enum tw_serving_verdict tw_serving_look(struct tw_serving *serving,
                                        const struct tw_serving_ask *ask, uint64_t now_us);

/* Returns the seconds after which a request that was refused with this verdict has room, if nothing
 * else is served meanwhile; at least 1. `day_left_s` and `month_left_s`: seconds until the day
 * (UTC) and the month end. */
uint32_t tw_serving_wait_s(struct tw_serving *serving, const struct tw_serving_ask *ask,
                           enum tw_serving_verdict verdict, uint64_t now_us, uint32_t day_left_s,
                           uint32_t month_left_s);

/* Charges bytes that are sent now, whether or not there was room for them. */
void tw_serving_charge(struct tw_serving *serving, const struct tw_serving_ask *ask,
                       uint64_t now_us);

/* Takes back the charge of bytes that could not be sent because the link broke. */
void tw_serving_refund(struct tw_serving *serving, const struct tw_serving_ask *ask,
                       uint64_t now_us);

/* Charges bytes of control messages, in both directions, to a linked node. Returns true if its link
 * is to end: it is outside, there is a quota, and it has used up its budget, or that of all nodes
 * outside and more than a little itself. Honest nodes need a tenth of this. */
bool tw_serving_control(struct tw_serving *serving, const struct tw_id *id, bool is_wanted,
                        uint64_t bytes, uint64_t now_us);

/* Counts a refusal. Returns the node that would have paid, if this is to be logged: once an hour
 * for each node. Otherwise returns NULL. */
const struct tw_id *tw_serving_refuse(struct tw_serving *serving, const struct tw_serving_ask *ask,
                                      enum tw_serving_verdict verdict, uint64_t now_us);

/* Returns a sentence for people and for the node that is refused. Static storage. */
const char *tw_serving_sentence(enum tw_serving_verdict verdict);

#endif
