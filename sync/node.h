/* node.h - the protocol core: a pure state machine.
 *
 *      TW_EV_*  -->  tw_node_event()  -->  tw_node_next_action()  -->  TW_ACT_*
 *
 * No socket, clock, thread, file, heap or float; no randomness but the seed. The runtime drives it:
 * daemon/node/runtime.c with libuv, tests/sim/ in virtual time. Same events, times and seed give
 * the same actions. Long work is requested by an action and answered by a later event. Payload
 * bytes never pass through the core, only their SHA-256 names. DESIGN.md explains a round. */
#ifndef TW_SYNC_NODE_H
#define TW_SYNC_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sync/core/interface.h"
#include "sync/core/position.h"

/* Opaque to the runtime: allocate tw_node_bytes() aligned to 64 and pass it in. */
struct tw_node;

size_t tw_node_bytes(void);

/* Starts without peers and without a worker. `position` and `vote` come from disk. Without them
 * (NULL) the node founds a lineage of its own. Asserts that the config keeps the bounds of
 * base/limits.h. */
void tw_node_init(struct tw_node *node, const struct tw_node_config *config,
                  const struct tw_position *position, const struct tw_vote *vote, uint64_t now_us);

/* Replaces the pointers in the configuration of a copied node. The memory of a node may be copied
 * between two events, once its actions are taken, and used in another process of the same version.
 */
void tw_node_rebind(struct tw_node *node, const struct tw_signing *signing,
                    const struct tw_sizes *sizes, struct tw_rate *download);

/* Advances the machine. `now_us` is any monotonic clock and never goes back. All actions must have
 * been drained before the call. Cannot fail: misbehaviour of a peer becomes TW_ACT_CLOSE. */
void tw_node_event(struct tw_node *node, const struct tw_event *event, uint64_t now_us);

/* Returns the reason why the last event had no effect, for traces; NONE: it had one. */
enum tw_drop tw_node_dropped(const struct tw_node *node);

/* Pops the oldest action. Returns false if there is none. */
bool tw_node_next_action(struct tw_node *node, struct tw_action *action);

/* True if this node waits for this chunk from this peer. The runtime asks before it stores the
 * bytes: an unrequested chunk must not overwrite a payload that is arriving, checked or held. */
bool tw_node_wants_chunk(const struct tw_node *node, uint16_t peer, const struct tw_id *hash,
                         uint32_t idx);

/* True if the held payload is a packed state of a fragment, made for nodes that join. */
bool tw_node_is_state(const struct tw_node *node, const struct tw_id *hash);

/* True if chunks were requested from this peer and have not arrived yet. */
bool tw_node_is_pulling(const struct tw_node *node, uint16_t peer);

/* Returns the time at which TW_EV_TICK is due, in us; UINT64_MAX for never. */
uint64_t tw_node_deadline(const struct tw_node *node);

/* Returns the record of a committed round of the lineage, or NULL if the log lacks it. Sets *proof
 * to the votes that decided it; ballot 0: they are not known. Both are valid until the next event.
 */
const struct tw_record *tw_node_round(const struct tw_node *node, uint64_t round,
                                      const struct tw_proof **proof);

/* Copies the position for a checkpoint, consistent with the last APPLIED event. */
void tw_node_position(const struct tw_node *node, struct tw_position *position);

/* Read-only view for status, metrics and checkers. */
struct tw_node_view {
    enum tw_node_state state;
    struct tw_id lineage, tip;
    bool is_founder;  /* this node founded its lineage */
    bool is_apart;    /* clock past config.together_tokens: nothing is merged any more */
    bool is_shut_out; /* this node is a receiver that asks to join a full roster */
    uint64_t rounds, clock_tokens, step, tokens;
    uint64_t rounds_contributed, rounds_missed; /* committed rounds with and without its work; a
                                                   node without steps misses none */
    uint64_t rounds_refused; /* committed rounds in which an owner refused this node's work */
    struct tw_id refused_by; /* the owner that last refused this node's work; zero: none yet */
    uint64_t open_us;        /* age of the open round of a group; 0: none is open */
    uint64_t seatless_us;    /* time since this node began to ask for a seat; 0: it does not ask for
                                one */
    uint32_t alive;          /* peers that sent STATUS, silent for less than TW_PEER_SILENCE_US */
    uint32_t mixed; /* peers whose work entered this node's anchor in the last 2 * P rounds (P
                       fragments) */
    uint32_t roster_count;
    uint32_t vote_merges; /* rounds that must merge this node's work until it votes, in a run
                             without certificates; 0: it votes, or has no seat */
    uint64_t audits;      /* merges of other owners that this node repeated */
    uint64_t checks;      /* contributions whose training this node checked */
    uint64_t unmerged;    /* contributions that this owner did not merge, as they were too large */
    uint64_t dropped[TW_DROPS_COUNT]; /* messages, chunks and answers without effect, by reason */
    bool is_contributing; /* true once this node's contribution to the open round is sent */
    struct {
        uint64_t merged, alone;  /* rounds merged with a partner, and rounds alone */
        uint64_t one_sided;      /* merged rounds whose partner announced that it took no step */
        uint64_t short_of_bytes; /* rounds alone because the byte budget was spent */
        uint64_t refused;        /* requests answered by PAIR_BUSY */
        bool is_trading;         /* true while an exchange with a partner is under way */
    } pairs;
    /* the state that a receiver fetches: bytes of all fragments, and those that have arrived.
     * Fragments without an offer are estimated from the others; 0: no offer yet */
    uint64_t fetch_bytes, fetch_bytes_here;
    uint32_t tokens_per_s;    /* own speed, as announced to the peers */
    uint32_t fetch_fragments; /* fragments that a receiver lacks */
    struct tw_roster roster;
    struct {
        bool is_up;
        struct tw_id id;
        struct tw_msg_status status; /* newest STATUS received */
        uint64_t received_us;        /* arrival of the peer's last message or chunk */
        bool is_member;
        uint64_t last_mixed_round; /* + 1; 0 = never */
        struct {
            uint32_t count, part; /* count: strikes so far; 0: the peer may own parts */
            uint64_t round, left_us;
            bool is_false; /* true: the result is proven not to be the merge; false: it was an
                              outlier */
        } strike;
        uint64_t owner_stall_us,
            proposer_stall_us; /* remaining time in which this node does not
                                  wait for the member, as owner and as proposer */
        struct {
            uint32_t merges, times; /* of the last merges of its work here, the large ones */
            uint32_t tenths;        /* newest large size, in tenths of the usual one */
            bool is_often;          /* half of them and more */
        } large;
        uint32_t unmerged; /* rounds in a row in which its contribution was too large to merge */
    } peers[TW_PEERS_MAX];
};

void tw_node_view(const struct tw_node *node, struct tw_node_view *view);

#endif
