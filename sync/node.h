/* node.h - the protocol core: a pure state machine.
 *
 *      TW_EV_*  -->  tw_node_event()  -->  tw_node_next_action()  -->  TW_ACT_*
 *
 * No socket, clock, thread, file, heap or float; no randomness but the seed. The runtime drives it:
 * daemon/node/runtime.c with libuv, tests/sim/ in virtual time. Same events, times and seed give
 * the same actions. Long work is requested by an action and answered by a later event. Payload
 * bytes never pass through here, only their SHA-256 names. DESIGN.md tells the story of a round. */
#ifndef TW_SYNC_NODE_H
#define TW_SYNC_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sync/core/action.h"
#include "sync/core/config.h"
#include "sync/core/event.h"
#include "sync/core/position.h"

/* Opaque to the runtime: allocate tw_node_bytes() aligned to 64 and pass it in. */
struct tw_node;

size_t tw_node_bytes(void);

/* Starts without peers and without a worker. `position` and `vote` come from disk, or NULL: then
 * the node starts a lineage of its own. Asserts on a config that breaks limits.h. */
void tw_node_init(struct tw_node *node, const struct tw_node_config *config,
                  const struct tw_position *position, const struct tw_vote *vote, uint64_t now_us);

/* Advances the machine. `now_us` is any monotonic clock and never goes back. All actions must have
 * been drained before the call. Cannot fail: misbehaviour of a peer becomes TW_ACT_CLOSE. */
void tw_node_event(struct tw_node *node, const struct tw_event *event, uint64_t now_us);

/* Pops the oldest action. False when there is none. */
bool tw_node_next_action(struct tw_node *node, struct tw_action *action);

/* This node waits for this chunk from this peer. The runtime asks before it stores the bytes: a
 * chunk that was not requested must not touch a payload that is arriving, being checked or held. */
bool tw_node_wants_chunk(const struct tw_node *node, uint16_t peer, const struct tw_id *hash,
                         uint32_t idx);

/* Chunks were requested from this peer and have not come yet. */
bool tw_node_is_pulling(const struct tw_node *node, uint16_t peer);

/* When TW_EV_TICK is due, in us; UINT64_MAX for never. */
uint64_t tw_node_deadline(const struct tw_node *node);

/* A copy of what a checkpoint must hold, consistent with the last APPLIED event. */
void tw_node_position(const struct tw_node *node, struct tw_position *position);

/* Read-only view for status, metrics and checkers. */
struct tw_node_view {
    enum tw_node_state state;
    struct tw_id lineage, tip;
    bool is_apart;    /* the common part of the budget is over: together_tokens */
    bool is_shut_out; /* a receiver that asks to join a full roster */
    uint64_t rounds, clock_tokens, step, tokens;
    uint64_t rounds_contributed, rounds_missed; /* committed rounds that list us / do not */
    uint32_t alive; /* peers with a STATUS, silent for less than TW_PEER_SILENCE_US */
    uint32_t mixed; /* peers whose work entered our anchor in the last 2 P rounds */
    uint32_t roster_count;
    uint64_t audits;      /* merges of other owners that were done again here */
    uint64_t unmerged;    /* contributions that were too large to be merged here */
    bool is_contributing; /* our contribution to the open round is sent */
    struct {
        uint64_t merged, alone;  /* rounds */
        uint64_t one_sided;      /* merged ones whose partner announced that it took no step */
        uint64_t short_of_bytes; /* of those alone: no byte budget, so nobody was asked */
        uint64_t refused;        /* requests answered by PAIR_BUSY */
        bool is_trading;         /* an exchange is under way */
    } pairs;
    struct tw_roster roster;
    struct {
        bool is_up;
        struct tw_id id;
        struct tw_msg_status status; /* the newest one received */
        uint64_t received_us;        /* when anything arrived last */
        bool is_member;
        uint64_t last_mixed_round; /* + 1; 0 = never */
        struct {
            uint32_t count, part; /* count 0: it may own parts */
            uint64_t round, left_us;
            bool is_false; /* proven: that result is not the merge; else it was an outlier */
        } strike;
        uint64_t owner_stall_us, proposer_stall_us; /* left of the time nobody waits for it */
        uint32_t unmerged; /* rounds in a row in which its contribution was too large here */
    } peers[TW_PEERS_MAX];
};

void tw_node_view(const struct tw_node *node, struct tw_node_view *view);

#endif
