/* relay_choice.h - decides which node to call through which relay, and when. Pure: the caller
 * passes the time and a view of the links, and gets one call at a time.
 *
 * Level-triggered: tw_relay_choice_look compares the view with the last one. It therefore needs no
 * events, and cannot miss any.
 *
 *   state     entered when                      left for
 *   FREE      -                                 WAITING: an offer lists the node, or it is linked
 *                                               through a relay
 *   WAITING   there is no link to the node      CALLING by tw_relay_choice_next; DIRECT or RELAYED
 *                                               when the view shows that link; FREE when no offer
 *                                               has listed the node for a minute
 *   CALLING   a call is in progress             WAITING by tw_relay_choice_ended
 *   RELAYED   the view shows a relayed link     WAITING when the link is gone: another relay may be
 *                                               called at once
 *   DIRECT    the view shows a direct link      WAITING when the link is gone
 *
 * A node is called when it has been without a link for TW_RELAY_GRACE_US, or for TW_RELAY_HOPE_US
 * if a dial may still reach it. After the loss of a relayed link it is called at once. Of two
 * nodes, the one with the smaller id calls. The other one calls TW_RELAY_YIELD_US later if there is
 * still no link.
 *
 * Relays that list the node are ranked by the cost of the path to them, rounded to a power of two.
 * The cost is the round trip plus the time to send TW_RELAY_COST_BYTES. Relays of equal cost are
 * ranked by the number of links that this node has through them. A relay that failed for a node is
 * not used for that node during a pause, which doubles with each failure. A link that ends within
 * TW_RELAY_STEADY_US counts as a failure, so a relay that breaks links is not asked again and
 * again.
 *
 * The list of an offer is a claim, and a false claim costs one call. Few calls are in progress at a
 * time, at most two of them through one relay. */
#ifndef TW_DAEMON_ROUTER_RELAY_CHOICE_H
#define TW_DAEMON_ROUTER_RELAY_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

enum {
    TW_RELAY_GRACE_US = 2 * 1000 * 1000,
    TW_RELAY_HOPE_US = 6 * 1000 * 1000,
    TW_RELAY_YIELD_US = 10 * 1000 * 1000,
    TW_RELAY_PAUSE_MIN_US = 2 * 1000 * 1000,
    TW_RELAY_PAUSE_MAX_US = 120 * 1000 * 1000,
    /* pause of a relay after the end of a link that was not short */
    TW_RELAY_LOST_US = 5 * 1000 * 1000,
    TW_RELAY_STEADY_US = 30 * 1000 * 1000,
    TW_RELAY_FORGET_US = 60 * 1000 * 1000,
    TW_RELAY_COST_BYTES = 256 * 1024,
    /* round trip assumed for a path that is not measured yet */
    TW_RELAY_UNKNOWN_RTT_US = 200 * 1000,
    TW_RELAY_UNKNOWN_BYTES_PER_S = 1000 * 1000,
    TW_RELAY_OWN_CALLS_MAX = 4,       /* calls of this node in progress */
    TW_RELAY_OWN_CALLS_PER_RELAY = 2, /* calls of this node in progress through one relay */
    TW_RELAY_TARGETS_MAX = 256,
    TW_RELAY_PAUSES_MAX = 512,
};

/* A directly linked peer that offers to relay. */
struct tw_relay_offer {
    uint16_t peer;
    struct tw_id id;
    uint32_t rtt_us;      /* 0 = not measured */
    uint64_t bytes_per_s; /* 0 = not measured */
    uint32_t direct_count;
    struct tw_id direct[TW_PEERS_MAX]; /* nodes to which the relay claims to have a direct link */
};

struct tw_relay_linked {
    struct tw_id id;
    bool is_relayed;
    struct tw_id relay; /* the link's relay, if is_relayed */
};

/* The links of this node, and the claims of its peers, at one moment. */
struct tw_relay_view {
    struct tw_id self;
    uint32_t offers_count, linked_count, hopeful_count;
    struct tw_relay_offer offers[TW_PEERS_MAX];
    struct tw_relay_linked linked[TW_PEERS_MAX];
    struct tw_id hopeful[TW_KNOWN_MAX]; /* nodes that a dial may still reach */
};

enum tw_relay_target_state {
    TW_RELAY_FREE,
    TW_RELAY_WAITING,
    TW_RELAY_CALLING,
    TW_RELAY_RELAYED,
    TW_RELAY_DIRECT,
};

struct tw_relay_target {
    enum tw_relay_target_state state;
    struct tw_id id;
    struct tw_id relay; /* relay of the call or link, if CALLING or RELAYED */
    uint64_t since_us;  /* start of the state; for WAITING: time when the link was lost */
    uint64_t listed_us; /* time when an offer last listed this target */
    bool was_relayed;   /* WAITING: the lost link was relayed, so a call need not wait */
    uint32_t failures;  /* consecutive calls that did not result in a link */
};

struct tw_relay_pause {
    bool is_used;
    struct tw_id target, relay;
    uint64_t until_us, pause_us;
};

struct tw_relay_choice {
    struct tw_relay_target targets[TW_RELAY_TARGETS_MAX];
    struct tw_relay_pause pauses[TW_RELAY_PAUSES_MAX];
};

struct tw_relay_pick {
    uint16_t peer; /* peer number of the relay */
    struct tw_id relay, target;
};

/* Updates the targets from the view. Call it before tw_relay_choice_next. A zeroed struct is valid
 * and empty. */
void tw_relay_choice_look(struct tw_relay_choice *choice, const struct tw_relay_view *view,
                          uint64_t now_us);

/* Chooses the next call that is due; its node becomes CALLING. When the call has ended, call
 * tw_relay_choice_ended once. Returns false if no call is due. */
bool tw_relay_choice_next(struct tw_relay_choice *choice, const struct tw_relay_view *view,
                          uint64_t now_us, struct tw_relay_pick *pick);

/* Handles the end of the call to node `target`. `ok` is true if the node is linked, or will be in a
 * moment. */
void tw_relay_choice_ended(struct tw_relay_choice *choice, const struct tw_id *target, bool ok,
                           uint64_t now_us);

#endif
