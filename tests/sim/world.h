/* world.h - the simulated world: the state and functions that the files of the simulator share.
 *
 * One thread, one heap of timers, one seed. The nodes run the real core, `struct tw_node`. shell.c
 * replaces the runtime of daemon/node/, worker.c the worker, and net.c the internet. faults.c
 * injects faults. check.c inspects every event and action. The check*.c files judge single actions,
 * the calm*.c files the state after a time without faults. */
#ifndef TW_SIM_WORLD_H
#define TW_SIM_WORLD_H

#include <stdio.h>

#include "base/rng.h"
#include "sync/node.h"
#include "tests/sim/content.h"
#include "tests/sim/heap.h"
#include "tests/sim/map.h"
#include "tests/sim/model.h"
#include "tests/sim/model_pair.h"
#include "tests/sim/options.h"
#include "tests/sim/sim.h"

enum tw_sim_timer_kind {
    TW_SIM_TIMER_TICK,       /* a: node */
    TW_SIM_TIMER_TO_CORE,    /* a: node; data: struct tw_event of its worker */
    TW_SIM_TIMER_STEP,       /* a: node; life: of the worker */
    TW_SIM_TIMER_WORKER_UP,  /* a: node */
    TW_SIM_TIMER_CHECKPOINT, /* a: node */
    TW_SIM_TIMER_STORED,     /* a: node; data: struct tw_sim_store */
    TW_SIM_TIMER_SAVED,      /* a: node; data: struct tw_sim_checkpoint */
    TW_SIM_TIMER_PIPE,       /* a: link, b: pipe; life: of the link */
    TW_SIM_TIMER_DIAL,       /* a: link */
    TW_SIM_TIMER_LINKED,     /* a: link, b: end; life: of the link */
    TW_SIM_TIMER_UNLINKED,   /* a: link, b: end; life: of the link */
    TW_SIM_TIMER_START,      /* a: node */
    TW_SIM_TIMER_STOP,       /* a: node; life: of the node; the node has sent its LEAVE */
    TW_SIM_TIMER_FAULT,      /* a: enum tw_sim_fault */
    TW_SIM_TIMER_HEAL,       /* a: enum tw_sim_fault, b: node, or 2 * link + end */
    TW_SIM_TIMER_CALM,       /* end of the faults */
    TW_SIM_TIMER_SAMPLE,     /* calm.c inspects all nodes */
    TW_SIM_TIMER_BETRAY,     /* a: node; a traitor speaks */
    TW_SIM_TIMER_LATE,       /* a: node, b: to; life: of the node; data: struct tw_message */
    TW_SIM_TIMER_END,
};

/* ---- network: net.c ------------------------------------------------------------------------- */

enum tw_sim_item_kind { TW_SIM_ITEM_MESSAGE, TW_SIM_ITEM_CHUNK, TW_SIM_ITEM_END };

struct tw_sim_item {
    struct tw_sim_item *next;
    uint64_t at_us;
    enum tw_sim_item_kind kind;
    const struct tw_sim_content *content; /* CHUNK: bytes of the payload `hash` */
    struct tw_id hash;
    uint64_t sent_us, upload_us; /* CHUNK: end and duration of its upload */
    uint32_t idx;
    struct tw_message *message; /* MESSAGE: owned; allocated up to the end of its union member */
};

/* One direction of one connection. Items arrive in the order in which they were sent. */
struct tw_sim_pipe {
    struct tw_sim_item *head, *tail;
    uint64_t last_us; /* arrival time of the newest item */
    bool is_armed;    /* a PIPE timer is in the heap */
};

struct tw_sim_end {
    bool is_up, is_pending, is_closing;
    uint16_t peer;
};

/* The link of two nodes (low, high). Ends: 0 = low, 1 = high. Pipes: [2 * from + is_bulk]. */
struct tw_sim_link {
    uint32_t nodes[2];
    uint64_t life; /* generation of the connection; timers of older ones are stale */
    bool is_dialling;
    uint64_t backoff_us, latency_us;
    struct tw_sim_end ends[2];
    struct tw_sim_pipe pipes[4];
    uint32_t blocks[2]; /* one-way blocks now in force, by sending end */
    bool has_path;      /* the two nodes can link directly: paths.c */
    uint32_t relay;     /* node that carries the connection, or TW_SIM_NO_RELAY */
};

#define TW_SIM_NO_RELAY UINT32_MAX

/* ---- nodes: shell.c and worker.c ------------------------------------------------------------ */

/* Rows of a pool. A few payloads have no row in the core, which names them only to drop them. */
enum { TW_SIM_POOL_MAX = TW_PAYLOADS_MAX + 2 * TW_PARTS_MAX };

/* A payload in the pool of a node. */
struct tw_sim_payload {
    struct tw_id hash;
    uint32_t bytes, chunks_count;
    uint64_t chunks; /* bit set of the stored chunks */
    bool is_verified, is_corrupt;
    bool is_refused;   /* the pool had no room: chunks are discarded */
    uint64_t elements; /* number of elements that the payload must decode to; 0 = state */
    enum tw_content content_kind;
    const struct tw_sim_content *content; /* the stored bytes */
};

struct tw_sim_request {
    struct tw_sim_request *next;
    struct tw_id lineage; /* lineage of the core at the time of the request */
    bool is_alone;        /* whether the core was solo at that time */
    struct tw_action action;
    const struct tw_sim_content *contents[TW_MEMBERS_MAX]; /* inputs, pinned until the answer */
};

/* A worker's step and token counts at one moment, or the counts that one Delta contains. */
struct tw_sim_delta {
    bool is_known; /* the counts are certain */
    uint64_t step, tokens;
};

struct tw_sim_worker {
    bool is_up, is_finished;
    uint64_t life;
    uint64_t step, tokens;
    uint64_t clock_tokens, tokens_listed;
    uint32_t contributors;
    uint64_t told_us; /* time at which the worker's newest event reaches the core */
    struct tw_sim_request *head, *tail;
    bool has_memory; /* the memory shared with this life of the daemon holds a state */
    struct tw_sim_replica replica;
    struct tw_sim_outbox outbox;
    struct tw_sim_delta begun[TW_SIM_FRAGMENTS_MAX]; /* counts at the start of the current Delta */
    struct tw_sim_delta sent[TW_SIM_FRAGMENTS_MAX];  /* counts at the last encoding */
    struct tw_id sent_roots[TW_SIM_FRAGMENTS_MAX];   /* root of the contribution encoded last */
    struct tw_sim_delta
        held[TW_SIM_FRAGMENTS_MAX]; /* counts that the last encoded Delta contains */
    float target[TW_SIM_DIMS_MAX];
    struct {
        uint64_t step, tokens;
        uint64_t fragment_rounds[TW_SIM_FRAGMENTS_MAX];
        float theta[TW_SIM_DIMS_MAX];
    } snapshot;
};

struct tw_sim_checkpoint {
    bool is_there;
    struct tw_position position;
    uint64_t step, tokens;
    struct tw_sim_replica replica;
};

struct tw_sim_store {
    uint64_t seq;
    struct tw_vote vote;
};

struct tw_sim_disk {
    struct tw_sim_checkpoint checkpoint; /* the newest complete checkpoint */
    bool has_vote;
    struct tw_vote vote;
    const struct tw_sim_store *pending; /* newest unacknowledged write; owned by its timer */
};

struct tw_sim_node {
    uint32_t idx;
    struct tw_id id;
    struct tw_node *core; /* owned memory; initialised while is_running */
    struct tw_rng rng;
    bool is_running, is_leaving, has_started;
    uint64_t life; /* starts so far; also the `boot` number of its core */
    bool core_sees_worker, is_chunk_corrupted;
    uint32_t refusals; /* number of refusable requests still to be refused */
    uint64_t clock_offset_us, stalled_until_us;
    bool is_worker_stalled; /* the stall also stops the worker */
    double speed, slow;
    uint64_t upload_bytes_per_s, upload_free_us, disk_free_us;

    uint64_t tick_us;     /* time of the valid TICK timer; UINT64_MAX = none */
    uint32_t tick_number; /* number of the valid TICK timer */
    uint64_t tick_second, ticks_in_second;

    struct tw_sim_worker worker;
    struct tw_sim_disk disk;
    struct tw_sim_payload *pool; /* array of TW_SIM_POOL_MAX */
    uint64_t *pool_prefix;       /* first 8 bytes of each hash; keeps the scan in cache */
    uint32_t pool_count;
    uint32_t links_count;
    uint32_t *links;                    /* the node's links, in the order of the other nodes */
    int32_t link_of_peer[TW_PEERS_MAX]; /* -1 = free */
    uint8_t side;                       /* side of the partition */
    uint64_t sent_count, sent_bytes;    /* messages, and their bytes if they are counted */
    uint64_t received_bytes;

    struct tw_traitor *traitor; /* NULL: honest */

    /* lineage of the core after the latest event */
    struct tw_id lineage;
    enum tw_node_state state;

    /* read by check.c and calm.c */
    uint64_t tokens_ever; /* tokens trained in all lives */
    /* Lineage of the newest contribution, and tokens before the first one to that lineage, which
     * none of its rounds can list. */
    struct tw_id offered;
    uint64_t tokens_before;
    uint64_t up_us,
        up_total_us; /* start of the node's present life; duration of all earlier lives */
    /* rounds, and rounds contributed to, by the middle of the calm */
    uint64_t calm_rounds, calm_rounds_contributed;
    uint64_t calm_merged; /* in pairs: rounds merged with a partner by that time */
    bool was_finished;    /* the node had finished by the middle of the calm */
};

struct tw_sim_check; /* check.c */
struct tw_traitor;   /* traitor.h */
struct tw_coven;

struct tw_sim_world {
    struct tw_sim_options options;
    struct tw_sim_result *result;
    FILE *trace;
    uint64_t now_us, end_us;
    uint64_t finish_us; /* time at which the first node finished; 0: none has */
    bool is_calm, is_over, is_calm_noted;
    bool liars_ruled;  /* liars were at least half of some roster */
    struct tw_rng rng; /* random draws of network and faults */
    struct tw_sim_heap heap;
    struct tw_sim_contents contents;
    struct tw_sim_map lies; /* hashes of false results, and of payloads that liars withhold */
    struct tw_sim_map false_states; /* digest of a true (phi, u): that of the false one */
    struct tw_sim_model model;
    struct tw_id run;
    uint32_t nodes_count;
    struct tw_sim_node *nodes;
    struct tw_sim_link *links; /* every pair of nodes that may ever be linked */
    uint32_t links_count;
    bool is_split, is_split_one_way;
    uint64_t loss_until_us;
    struct tw_message *scratch; /* the message being delivered */
    struct tw_action *action;   /* the action being taken */
    struct tw_node_view *view;
    struct tw_position *position;
    struct tw_sim_check *check;
    uint64_t voted;      /* set of nodes that had a vote in some roster */
    uint64_t treason_us; /* time at which the traitors began; 0: not yet */
    struct tw_coven *coven;
};

/* Returns the link of two nodes, or NULL if they never have one. */
static inline struct tw_sim_link *tw_sim_link_of(struct tw_sim_world *world, uint32_t a,
                                                 uint32_t b) {
    const struct tw_sim_node *node = &world->nodes[a];
    for (uint32_t i = 0; i < node->links_count; i++) {
        struct tw_sim_link *link = &world->links[node->links[i]];
        if (link->nodes[0] == b || link->nodes[1] == b) return link;
    }
    return NULL;
}

void tw_sim_push(struct tw_sim_world *world, uint64_t at_us, enum tw_sim_timer_kind kind,
                 uint32_t a, uint32_t b, uint64_t life, void *data);

/* Returns an exponentially distributed time with this mean. */
uint64_t tw_sim_exponential_us(struct tw_rng *rng, double mean_us);

/* Prints a line about this node (NULL: the world) if --trace is on. */
void tw_sim_trace(struct tw_sim_world *world, const struct tw_sim_node *node, const char *fmt, ...)
    TW_PRINTF(3, 4);

/* Ends the run as failed. Only the first call counts. `invariant` is an id of tests/INVARIANTS.md,
 * such as "G1" or "17". `node` may be NULL. */
void tw_sim_fail(struct tw_sim_world *world, const struct tw_sim_node *node, const char *invariant,
                 const char *fmt, ...) TW_PRINTF(4, 5);

/* Mixes a value into the hash of the run. */
void tw_sim_hash(struct tw_sim_world *world, uint64_t value);

/* ---- paths.c */
void tw_sim_paths_init(struct tw_sim_world *world);
/* Returns whether so few nodes have a path to this one that all of them might lie. The node may
 * then never be admitted. */
bool tw_sim_paths_is_remote(struct tw_sim_world *world, uint32_t node);
/* Chooses the path of a connection about to be made. Returns false if there is none now. */
bool tw_sim_paths_choose(struct tw_sim_world *world, struct tw_sim_link *link);
/* Called when the node is gone: closes the connections that it relayed. */
void tw_sim_paths_relay_down(struct tw_sim_world *world, uint32_t relay);

/* ---- net.c */
void tw_sim_net_init(struct tw_sim_world *world);
void tw_sim_net_deinit(struct tw_sim_world *world);
bool tw_sim_net_is_blocked(const struct tw_sim_world *world, const struct tw_sim_link *link,
                           uint32_t from);
void tw_sim_net_message(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                        const struct tw_message *message);
/* Like tw_sim_net_message, for a message that no traitor may change. */
void tw_sim_net_say(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                    const struct tw_message *message);
/* Returns the peer number of the link to this node, or NO_PEER if it is not open. */
uint16_t tw_sim_peer_of(const struct tw_sim_world *world, const struct tw_sim_node *node,
                        const struct tw_id *id);
void tw_sim_net_chunk(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                      const struct tw_sim_payload *payload, uint32_t idx);
void tw_sim_net_close(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer);
void tw_sim_net_reset(struct tw_sim_world *world, struct tw_sim_link *link);
/* Called when the node's process ends. If `is_told`, its kernel closes the connections; otherwise
 * the machine is dead too, and no peer is notified. */
void tw_sim_net_node_down(struct tw_sim_world *world, struct tw_sim_node *node, bool is_told);
void tw_sim_net_node_up(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_net_healed(
    struct tw_sim_world *world); /* blocks were lifted: stalled pipes move again */
void tw_sim_net_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer);

/* ---- shell.c */
/* Returns a signer for this node, which borrows the node. */
struct tw_signing tw_sim_signing(struct tw_sim_node *node);
void tw_sim_node_init(struct tw_sim_world *world, struct tw_sim_node *node, uint32_t idx);
void tw_sim_node_deinit(struct tw_sim_node *node);
void tw_sim_node_start(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_node_crash(struct tw_sim_world *world, struct tw_sim_node *node, bool is_told);
void tw_sim_node_leave(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_deliver(struct tw_sim_world *world, struct tw_sim_node *node,
                    const struct tw_event *event);
void tw_sim_shell_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer);

/* ---- pool.c: one function per action or event that concerns payloads */
struct tw_sim_payload *tw_sim_pool_find(struct tw_sim_node *node, const struct tw_id *hash);
void tw_sim_pool_expect(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action);
void tw_sim_pool_chunk(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                       const struct tw_sim_item *item);
/* Checks a PULL that the node sends: it requests no chunk that the node has (invariant 32). */
void tw_sim_pool_pull(struct tw_sim_world *world, struct tw_sim_node *node,
                      const struct tw_msg_pull *pull);
void tw_sim_pool_verify(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action);
void tw_sim_pool_send_chunk(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_action *action);
void tw_sim_pool_drop(struct tw_sim_world *world, struct tw_sim_node *node,
                      const struct tw_id *hash);
/* Adds to the pool the payloads that the worker made and that this event names. */
void tw_sim_pool_hold_made(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_event *event);
/* Returns true if this request is to be refused, and uses up one refusal. */
bool tw_sim_node_refuses(struct tw_sim_node *node);

/* ---- worker.c */
void tw_sim_worker_start(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_worker_crash(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_worker_end(struct tw_sim_node *node); /* the node's daemon ends */
void tw_sim_worker_ask(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_action *action);
void tw_sim_worker_verify(struct tw_sim_world *world, struct tw_sim_node *node,
                          struct tw_sim_payload *payload, const struct tw_action *action);
/* Reports a failed verification: there is no room for this payload. */
void tw_sim_worker_refuse(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_id *hash);
void tw_sim_worker_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer);
/* Sends an event of the worker to the core, delayed and in order. `is_mute`: the worker dies before
 * it sends, so nothing is sent. */
void tw_sim_worker_tell(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_event *event, bool is_mute);
/* Notes that (phi, u) of the event's fragment changed and are now those of `rounds`. Then completes
 * the event and sends it. */
void tw_sim_worker_publish(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_sim_request *request, struct tw_event *event,
                           uint64_t rounds, bool is_mute);

/* The role of a node, by its number. */
enum tw_node_role tw_sim_role(const struct tw_sim_world *world, const struct tw_sim_node *node);

/* ---- worker_pair.c */
void tw_sim_worker_pair(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_sim_request *request, bool is_mute);

/* ---- lie.c */
bool tw_sim_is_idler(const struct tw_sim_world *world, const struct tw_sim_node *node);
/* True for a head that lies to its hands. */
bool tw_sim_is_false_head(const struct tw_sim_world *world, const struct tw_sim_node *node);
bool tw_sim_is_liar(const struct tw_sim_world *world, const struct tw_sim_node *node);
/* Returns the false result that a liar publishes instead of `content`. */
const struct tw_sim_content *tw_sim_lie_make(struct tw_sim_world *world,
                                             const struct tw_sim_content *content);
bool tw_sim_is_lie(const struct tw_sim_world *world, const struct tw_id *result);
/* Returns a node's judgement of a result that decodes. */
enum tw_sanity tw_sim_sanity(const struct tw_sim_world *world, const struct tw_sim_node *node,
                             const struct tw_id *result);

/* Falsifies a message that a liar sends. */
void tw_sim_lie_message(const struct tw_sim_world *world, const struct tw_sim_node *node,
                        struct tw_message *message);
/* Returns whether no node founded this lineage: a liar only claimed to be in it. */
bool tw_sim_is_invented(const struct tw_id *lineage);

/* ---- treason.c */
void tw_sim_treason_init(struct tw_sim_world *world);
void tw_sim_treason_deinit(struct tw_sim_world *world);
bool tw_sim_is_traitor(const struct tw_sim_world *world, const struct tw_sim_node *node);

/* Returns whether the node is a sybil whose time has not come, so that it does not start yet. */
bool tw_sim_treason_is_early(const struct tw_sim_world *world, const struct tw_sim_node *node);

/* Returns whether the certificate of node `idx` gives it a vote. */
bool tw_sim_has_vote(const struct tw_sim_world *world, uint32_t idx);
/* Called when a message arrives at the node, before its core gets the message. */
void tw_sim_treason_hear(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                         const struct tw_message *message);
/* Called when the node sends this message (from malloc) to node `to`. Returns false if the function
 * has taken ownership and the message is not sent now. */
bool tw_sim_treason_pass(struct tw_sim_world *world, struct tw_sim_node *node, uint32_t to,
                         struct tw_message *message);
/* Returns the packed state that a traitor with the lie "donor" gives in place of its own, which is
 * `content`; otherwise `content`. */
const struct tw_sim_content *tw_sim_treason_export(struct tw_sim_world *world,
                                                   struct tw_sim_node *node, uint32_t fragment,
                                                   const struct tw_sim_content *content);
/* Returns a bit set of the nodes that may have voted for any record. */
uint64_t tw_sim_treason_voters(const struct tw_sim_world *world);
void tw_sim_treason_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer);
void tw_sim_treason_action(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_action *action);

/* ---- lie.c, in pairs */
/* Returns the bytes that a liar offers instead of this payload (TW_PAIR_DELTA or TW_PAIR_PHI). */
const struct tw_sim_content *tw_sim_lie_pair(struct tw_sim_world *world,
                                             const struct tw_sim_node *node, uint64_t round,
                                             unsigned payload,
                                             const struct tw_sim_content *content);
/* Returns whether the node never sends chunks of this payload. */
bool tw_sim_is_withheld(const struct tw_sim_world *world, const struct tw_sim_node *node,
                        const struct tw_id *hash);
/* After its step, a liar may send PAIR_BUSY, as if it had not merged. */
void tw_sim_lie_desert(struct tw_sim_world *world, struct tw_sim_node *node, uint64_t round);

/* ---- faults.c */
void tw_sim_faults_init(struct tw_sim_world *world);
void tw_sim_faults_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer);

/* ---- check.c */
void tw_sim_check_init(struct tw_sim_world *world);
void tw_sim_check_deinit(struct tw_sim_world *world);
void tw_sim_check_start(struct tw_sim_world *world, struct tw_sim_node *node);
/* Called when the core has just left `lineage`, in which it had this state and this clock. */
void tw_sim_check_moved(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_id *lineage, enum tw_node_state state,
                        uint64_t clock_tokens);
void tw_sim_check_action(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_action *action);
void tw_sim_check_event(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_event *event);
/* Called when the core of a head has the merge of its crew. */
void tw_sim_check_gathered(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_event *event);
void tw_sim_check_tick(struct tw_sim_world *world, struct tw_sim_node *node);
/* Called when writing a vote failed: the vote exists only in memory. */
void tw_sim_check_unwritten(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_vote *vote);
/* Called when a vote became durable. */
void tw_sim_check_vote(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_vote *vote);
/* Called before an inner step: all parameters must belong to one lineage. */
void tw_sim_check_model(struct tw_sim_world *world, struct tw_sim_node *node);
/* Called before an APPLY: the theta that it moves must belong to the lineage of phi. */
void tw_sim_check_theta(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action);
/* Called after an event: all state that the node serves must belong to one lineage. */
void tw_sim_check_whole(struct tw_sim_world *world, struct tw_sim_node *node);
/* Called when this request has changed (phi, u) of a fragment, which had `rounds_before` rounds. */
void tw_sim_check_memory(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_sim_request *request, uint32_t fragment,
                         uint64_t rounds_before);
/* Returns whether the round that `apply` applies merged the node's contribution with this root. */
bool tw_sim_check_is_merged(struct tw_sim_world *world, const struct tw_sim_node *node,
                            const struct tw_sim_request *apply, const struct tw_id *root);

/* Called when the worker has merged with a partner, which moved its theta - e by `moved`
 * (dims_per_fragment values). */
void tw_sim_check_merged(struct tw_sim_world *world, struct tw_sim_node *node, const double *moved);

/* ---- calm.c */
void tw_sim_calm_sample(struct tw_sim_world *world);
void tw_sim_calm_end(struct tw_sim_world *world);
/* Returns the longest average duration of a round without faults, in microseconds. */
double tw_sim_calm_round_us(const struct tw_sim_world *world);

#endif
