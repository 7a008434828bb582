/* punch_plan.h - the kind of this node's NAT, and when relayed links are punched. Pure. */
#ifndef TW_DAEMON_ROUTER_PUNCH_PLAN_H
#define TW_DAEMON_ROUTER_PUNCH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"

/* ==== the kind of NAT ========================================================================= */

/* Finds the kind of NAT between this node and the internet, by comparing the outer ports at which
 * two peers see connections from one local port. Pure: the caller passes time and messages.
 *
 * Two peers at different public IPv4 addresses are dialled with probes that ask for a PUNCH of the
 * stage `seen` (PROTOCOL.md section 13). This is done soon after the links came up, after a change
 * of this machine's address, and once an hour. The result is only shown to people: a peer may lie,
 * so no decision depends on it. */

enum {
    TW_NAT_SETTLE_US = 5 * 1000 * 1000,
    TW_NAT_ANSWER_US = 15 * 1000 * 1000,
    /* interval between tries while fewer than two peers can be asked */
    TW_NAT_LOOK_US = 10 * 1000 * 1000,
    /* wait after a request that did not get two answers */
    TW_NAT_RETRY_US = 300 * 1000 * 1000,
    TW_NAT_PEERS = 2,
    TW_NAT_SENTENCE_BYTES = 320,
};
#define TW_NAT_AGAIN_US UINT64_C(3600000000)

enum tw_nat {
    TW_NAT_UNKNOWN,
    TW_NAT_NONE,      /* peers see this machine's own address */
    TW_NAT_ENDPOINT,  /* one outer port per local port: endpoint-independent mapping */
    TW_NAT_SYMMETRIC, /* another outer port for each connection */
};

struct tw_nat_seen {
    struct tw_id by;
    bool is_seen;
    char address[TW_ADDR_BYTES];
};

struct tw_nat_kind {
    /* time of the next request; latest time for answers to the last one */
    uint64_t due_us, until_us;
    uint64_t token;          /* token of the open request; 0 = none is open */
    char own[TW_ADDR_BYTES]; /* this machine's address, without a port */
    struct tw_nat_seen seen[TW_NAT_PEERS];
    enum tw_nat result;
};

/* Returns true if a request is due. With zeroed memory it is due at once. */
bool tw_nat_kind_is_due(const struct tw_nat_kind *kind, uint64_t now_us);

/* Records that a request with `token` is sent to these peers. `own` is this machine's address.
 * `peers` is NULL if there are fewer than two. */
void tw_nat_kind_ask(struct tw_nat_kind *kind, uint64_t token, const struct tw_id *peers,
                     const char *own, uint64_t now_us);

/* Handles a peer's report of the address at which it saw the probe. */
void tw_nat_kind_heard(struct tw_nat_kind *kind, const struct tw_id *by, uint64_t token,
                       const char *address, uint64_t now_us);

/* Forgets the result, because this machine has another address. */
void tw_nat_kind_moved(struct tw_nat_kind *kind, uint64_t now_us);

/* Returns the name used in JSON: "unknown", "none", "endpoint_independent" or "symmetric". Static
 * storage. */
const char *tw_nat_kind_name(enum tw_nat nat);

/* Writes a sentence for people. `port` could be forwarded by the router; 0 if the node does not
 * listen. `is_reached` is true if other nodes reach this one, by a forwarded port or otherwise. */
void tw_nat_kind_sentence(enum tw_nat nat, uint16_t port, bool is_reached,
                          char text[TW_NAT_SENTENCE_BYTES]);

/* ==== when to punch =========================================================================== */

/* Decides when the two ends of a relayed link dial each other at the same time (PROTOCOL.md
 * section 13). Pure: the caller passes the time, the links and the messages.
 *
 *   state      entered when                                      left for
 *   FREE       -                                                 WAITING or DIRECT by a link
 *   GONE       there is no link                                  WAITING or DIRECT by a link; FREE
 *                                                                after TW_PUNCH_FORGET_US
 *   WAITING    the link is relayed                               ASKED by tw_punch_plan_next;
 *                                                                READIED by ASK
 *   ASKED      this end is the client and has sent ASK           PUNCHING by READY: GO is sent;
 *                                                                WAITING after TW_PUNCH_ASK_US
 *   READIED    this end is not the client and has sent READY     PUNCHING by GO; WAITING after
 *                                                                TW_PUNCH_ASK_US
 *   PUNCHING   both ends dial                                    DIRECT by the link; WAITING when
 *                                                                the time is over
 *   DIRECT     the link is not relayed                           WAITING or GONE with the link
 *
 * The client waits for half a round trip after GO, so that both dial at about the same time.
 *
 * A failure causes a pause, which doubles with each further failure up to an hour. A punched link
 * that ends within TW_PUNCH_STEADY_US counts as a failure. The pause belongs to the node and
 * outlives the relayed link, so a relay that comes and goes causes no extra attempts. A change of
 * this machine's address ends all pauses. */

enum {
    /* time for an ordinary dial to succeed, after a relayed link came up */
    TW_PUNCH_SETTLE_US = 3 * 1000 * 1000,
    TW_PUNCH_ASK_US = 5 * 1000 * 1000,
    TW_PUNCH_DELAY_MAX_US = 1000 * 1000,
    TW_PUNCH_PAUSE_MIN_US = 30 * 1000 * 1000,
    /* Shortest time between two READY messages to one node. */
    TW_PUNCH_ANSWER_US = 15 * 1000 * 1000,
    TW_PUNCH_STEADY_US = 30 * 1000 * 1000,
    TW_PUNCH_AT_ONCE = 2,
    TW_PUNCH_TARGETS_MAX = 128,
};
#define TW_PUNCH_PAUSE_MAX_US UINT64_C(3600000000)
#define TW_PUNCH_FORGET_US UINT64_C(7200000000)

_Static_assert((int)TW_PUNCH_AT_ONCE <= (int)TW_PUNCHES_MAX, "the transport has room for them");

/* A linked peer, as input of tw_punch_plan_look. */
struct tw_punch_row {
    uint16_t peer;
    struct tw_id id;
    bool is_relayed;
    bool is_client;  /* if is_relayed: this node is the client, which asks */
    bool can;        /* if is_relayed: the link can be punched (tw_transport_punch_info) */
    bool is_punched; /* if not is_relayed: a punch made the link */
};

enum tw_punch_state {
    TW_PUNCH_FREE,
    TW_PUNCH_GONE,
    TW_PUNCH_WAITING,
    TW_PUNCH_ASKED,
    TW_PUNCH_READIED,
    TW_PUNCH_PUNCHING,
    TW_PUNCH_DIRECT,
};

struct tw_punch_target {
    enum tw_punch_state state;
    struct tw_id id;
    uint16_t peer;
    bool is_client, can, is_punched;
    uint64_t token;    /* ASKED, READIED, PUNCHING: token of the attempt */
    uint64_t since_us; /* time when the state began */
    uint64_t due_us; /* WAITING: earliest ASK; ASKED, READIED, PUNCHING: latest end of the state */
    uint64_t pause_us;   /* last pause after a failure; 0 = the last punch did not fail */
    uint64_t rest_us;    /* time before which no ASK is sent */
    uint64_t readied_us; /* time when READY was last sent; 0 = never */
};

struct tw_punch_plan {
    struct tw_punch_target targets[TW_PUNCH_TARGETS_MAX];
    uint64_t tries, successes; /* punches begun, and successful ones, since the start */
};

struct tw_punch_pick {
    uint16_t peer;
    uint64_t token;
};

/* Action to take after a message. */
enum tw_punch_action {
    TW_PUNCH_NOTHING,
    TW_PUNCH_SEND_READY,
    TW_PUNCH_SEND_GO, /* send GO, and punch after *delay_us */
    TW_PUNCH_BEGIN,   /* begin to punch at once */
};

/* Updates the plan from the present links. A zeroed struct is an empty plan. */
void tw_punch_plan_look(struct tw_punch_plan *plan, const struct tw_punch_row *rows, uint32_t count,
                        uint64_t now_us);

/* Chooses the next node to send ASK to and makes it ASKED. `token` is a random number. Returns
 * false if no node is due. */
bool tw_punch_plan_next(struct tw_punch_plan *plan, uint64_t token, uint64_t now_us,
                        struct tw_punch_pick *pick);

/* Handles a PUNCH message of node `id`. The addresses in it must agree with the relay's. */
enum tw_punch_action tw_punch_plan_heard(struct tw_punch_plan *plan, const struct tw_id *id,
                                         enum tw_punch_stage stage, uint64_t token, uint64_t now_us,
                                         uint64_t *delay_us);

/* Returns the row of node `id`, or NULL. */
const struct tw_punch_target *tw_punch_plan_find(const struct tw_punch_plan *plan,
                                                 const struct tw_id *id);

/* Ends all pauses, because this machine has another address. */
void tw_punch_plan_moved(struct tw_punch_plan *plan, uint64_t now_us);

#endif
