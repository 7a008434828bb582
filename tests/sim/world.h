/* world.h - the simulated world: what the files of the simulator share.
 *
 * One thread, one heap of timers, one seed. Nodes are real `struct tw_node`s; shell.c does for them
 * what daemon/node/runtime.c does, worker.c what a worker does, net.c what the internet does to
 * both, faults.c the rest. check.c looks at every event and action and is the only judge. */
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
    TW_SIM_TIMER_TO_CORE,    /* a: node; data: struct tw_event of worker or disk */
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
    TW_SIM_TIMER_STOP,       /* a: node; life: of the node; its goodbye is said */
    TW_SIM_TIMER_FAULT,      /* a: enum tw_sim_fault */
    TW_SIM_TIMER_HEAL,       /* a: enum tw_sim_fault, b: what */
    TW_SIM_TIMER_CALM,       /* faults stop */
    TW_SIM_TIMER_SAMPLE,     /* look at everything */
    TW_SIM_TIMER_END,
};

/* ---- network: net.c ------------------------------------------------------------------------- */

enum tw_sim_item_kind { TW_SIM_ITEM_MESSAGE, TW_SIM_ITEM_CHUNK, TW_SIM_ITEM_END };

struct tw_sim_item {
    struct tw_sim_item *next;
    uint64_t at_us;
    enum tw_sim_item_kind kind;
    const struct tw_sim_content *content; /* CHUNK; what `hash` was when sent */
    struct tw_id hash;
    uint64_t sent_us, upload_us; /* CHUNK: when it leaves the uplink, and how long that takes */
    uint32_t idx;
    struct tw_message *message; /* MESSAGE: owned, allocated up to its member */
};

/* One direction of one connection: in order, nothing overtakes. */
struct tw_sim_pipe {
    struct tw_sim_item *head, *tail;
    uint64_t last_us; /* arrival of the newest item */
    bool is_armed;    /* a PIPE timer is in the heap */
};

struct tw_sim_end {
    bool is_up, is_pending, is_closing;
    uint16_t peer;
};

/* A pair of nodes (low, high). pipes[2 * from + is_bulk], from 0 = low. */
struct tw_sim_link {
    uint32_t nodes[2];
    uint64_t life; /* generation of the connection */
    bool is_dialling;
    uint64_t backoff_us, latency_us;
    struct tw_sim_end ends[2];
    struct tw_sim_pipe pipes[4];
    uint32_t blocks[2]; /* one-way blocks from that end */
};

/* ---- nodes: shell.c and worker.c ------------------------------------------------------------ */

/* Rows of a pool: the core names some payloads it has no row for, only to drop them. */
enum { TW_SIM_POOL_MAX = TW_PAYLOADS_MAX + 2 * TW_PARTS_MAX };

/* A payload in the pool of a node. */
struct tw_sim_payload {
    struct tw_id hash;
    uint32_t bytes, chunks_count;
    uint64_t chunks; /* bit set of those stored */
    bool is_verified, is_corrupt;
    bool is_refused;   /* no room: chunks find no place */
    uint64_t elements; /* it must decode to; 0 = state */
    enum tw_content content_kind;
    const struct tw_sim_content *content; /* what was stored */
};

struct tw_sim_request {
    struct tw_sim_request *next;
    struct tw_id lineage; /* of the core when it asked */
    bool is_alone;        /* and it was the only one of it */
    struct tw_action action;
    const struct tw_sim_content *contents[TW_MEMBERS_MAX]; /* held from asking to answering */
};

/* What Delta of a fragment holds: the steps since then, if that is certain. */
struct tw_sim_delta {
    bool is_known;
    uint64_t step, tokens;
};

struct tw_sim_worker {
    bool is_up, is_finished;
    uint64_t life;
    uint64_t step, tokens;
    uint64_t clock_tokens, tokens_listed;
    uint32_t contributors;
    uint64_t told_us; /* when the last thing it said arrives: its socket is in order */
    struct tw_sim_request *head, *tail;
    bool has_memory; /* the memory it shares with this life of the daemon holds something */
    struct tw_sim_replica replica;
    struct tw_sim_outbox outbox;
    struct tw_sim_delta begun[TW_FRAGMENTS_MAX]; /* where Delta begins */
    struct tw_sim_delta sent[TW_FRAGMENTS_MAX];  /* and where it was encoded last */
    struct tw_id sent_roots[TW_FRAGMENTS_MAX];   /* as what */
    struct tw_sim_delta held[TW_FRAGMENTS_MAX];  /* so many were in it */
    float target[TW_SIM_DIMS_MAX];
    struct {
        uint64_t step, tokens;
        uint64_t fragment_rounds[TW_FRAGMENTS_MAX];
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
    struct tw_sim_checkpoint checkpoint; /* the newest whole one */
    bool has_vote;
    struct tw_vote vote;
    const struct tw_sim_store *pending; /* newest write that is not acknowledged; the timer's */
};

struct tw_sim_node {
    uint32_t idx;
    struct tw_id id;
    struct tw_node *core; /* owned memory; a live core when is_running */
    struct tw_rng rng;
    bool is_running, is_leaving, has_started;
    uint64_t life; /* starts so far; also `boot` */
    bool core_sees_worker, is_chunk_corrupted;
    uint32_t refusals; /* of the next things asked for that may be refused */
    uint64_t clock_offset_us, stalled_until_us;
    bool is_worker_stalled; /* the stall is of the whole machine */
    double speed, slow;
    uint64_t upload_bytes_per_s, upload_free_us, disk_free_us;

    uint64_t tick_us;     /* when the TICK timer that counts fires; UINT64_MAX = none */
    uint32_t tick_number; /* of that timer */
    uint64_t tick_second, ticks_in_second;

    struct tw_sim_worker worker;
    struct tw_sim_disk disk;
    struct tw_sim_payload *pool; /* TW_SIM_POOL_MAX */
    uint64_t *pool_prefix;       /* first bytes of each hash: the scan stays in cache */
    uint32_t pool_count;
    int32_t link_of_peer[TW_PEERS_MAX]; /* -1 = free */

    /* as its reports say */
    struct tw_id lineage;
    enum tw_node_state state;

    /* for check.c and calm.c */
    uint64_t tokens_ever;                          /* trained in all lives */
    uint64_t up_us, up_total_us;                   /* since when it runs; all earlier lives */
    uint64_t calm_rounds, calm_rounds_contributed; /* in the middle of the calm */
    uint64_t calm_merged;                          /* in pairs: rounds with a partner, then */
    bool was_finished;                             /* then */
};

struct tw_sim_check; /* check.c */

struct tw_sim_world {
    struct tw_sim_options options;
    struct tw_sim_result *result;
    FILE *trace;
    uint64_t now_us, end_us;
    bool is_calm, is_over, is_calm_noted;
    bool liars_ruled;  /* they were half of some roster */
    struct tw_rng rng; /* network and faults */
    struct tw_sim_heap heap;
    struct tw_sim_contents contents;
    struct tw_sim_map lies; /* hashes of false results */
    struct tw_sim_model model;
    struct tw_id run;
    uint32_t nodes_count;
    struct tw_sim_node *nodes;
    struct tw_sim_link *links; /* [low * nodes_count + high] */
    uint8_t side[TW_MEMBERS_MAX];
    bool is_split, is_split_one_way;
    uint64_t loss_until_us;
    struct tw_message *scratch; /* one message being delivered */
    struct tw_action *action;   /* one action being taken */
    struct tw_node_view *view;
    struct tw_position *position;
    struct tw_sim_check *check;
};

static inline struct tw_sim_link *tw_sim_link_of(struct tw_sim_world *world, uint32_t a,
                                                 uint32_t b) {
    return &world->links[a < b ? a * world->nodes_count + b : b * world->nodes_count + a];
}

void tw_sim_push(struct tw_sim_world *world, uint64_t at_us, enum tw_sim_timer_kind kind,
                 uint32_t a, uint32_t b, uint64_t life, void *data);

/* Exponentially distributed with this mean. */
uint64_t tw_sim_exponential_us(struct tw_rng *rng, double mean_us);

/* A line of --trace about this node; nothing when tracing is off. */
void tw_sim_trace(struct tw_sim_world *world, const struct tw_sim_node *node, const char *fmt, ...)
    TW_PRINTF(3, 4);

/* The run has failed: the first call is kept. `invariant` as in tests/INVARIANTS.md: "G1", "17",
 * ... */
void tw_sim_fail(struct tw_sim_world *world, const struct tw_sim_node *node, const char *invariant,
                 const char *fmt, ...) TW_PRINTF(4, 5);

/* Mixes a value into the hash of the run. */
void tw_sim_hash(struct tw_sim_world *world, uint64_t value);

/* ---- net.c */
void tw_sim_net_init(struct tw_sim_world *world);
void tw_sim_net_deinit(struct tw_sim_world *world);
bool tw_sim_net_is_blocked(const struct tw_sim_world *world, const struct tw_sim_link *link,
                           uint32_t from);
void tw_sim_net_message(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                        const struct tw_message *message);
void tw_sim_net_chunk(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                      const struct tw_sim_payload *payload, uint32_t idx);
void tw_sim_net_close(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer);
void tw_sim_net_reset(struct tw_sim_world *world, struct tw_sim_link *link);
/* The node is gone; its kernel says so (`is_told`) or nobody does. */
void tw_sim_net_node_down(struct tw_sim_world *world, struct tw_sim_node *node, bool is_told);
void tw_sim_net_node_up(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_net_healed(struct tw_sim_world *world); /* blocks changed: stalled pipes move again */
void tw_sim_net_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer);

/* ---- shell.c */
void tw_sim_node_init(struct tw_sim_world *world, struct tw_sim_node *node, uint32_t idx);
void tw_sim_node_deinit(struct tw_sim_node *node);
void tw_sim_node_start(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_node_crash(struct tw_sim_world *world, struct tw_sim_node *node, bool is_told);
void tw_sim_node_leave(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_deliver(struct tw_sim_world *world, struct tw_sim_node *node,
                    const struct tw_event *event);
void tw_sim_shell_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer);

/* ---- pool.c: one function per action or event that is about payloads */
struct tw_sim_payload *tw_sim_pool_find(struct tw_sim_node *node, const struct tw_id *hash);
void tw_sim_pool_expect(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action);
void tw_sim_pool_chunk(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                       const struct tw_sim_item *item);
/* It asks for chunks: none that it stored, whatever was cut meanwhile (invariant 32). */
void tw_sim_pool_pull(struct tw_sim_world *world, struct tw_sim_node *node,
                      const struct tw_msg_pull *pull);
void tw_sim_pool_verify(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action);
void tw_sim_pool_send_chunk(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_action *action);
void tw_sim_pool_drop(struct tw_sim_world *world, struct tw_sim_node *node,
                      const struct tw_id *hash);
/* The worker says it made these bytes: from now on they have a name here. */
void tw_sim_pool_hold_made(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_event *event);
/* True when the next thing asked for is to be refused. */
bool tw_sim_node_refuses(struct tw_sim_node *node);

/* ---- worker.c */
void tw_sim_worker_start(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_worker_crash(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_worker_end(struct tw_sim_node *node); /* with its daemon */
void tw_sim_worker_ask(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_action *action);
void tw_sim_worker_verify(struct tw_sim_world *world, struct tw_sim_node *node,
                          struct tw_sim_payload *payload, const struct tw_action *action);
/* "There is no room for this payload", as a failed verification. */
void tw_sim_worker_refuse(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_id *hash);
void tw_sim_worker_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer);
/* What it says reaches the core in order, a little later; never, when it dies of it. */
void tw_sim_worker_tell(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_event *event, bool is_mute);
/* (phi, u) of event's fragment changed, and stand at `rounds`: completes the event and tells it. */
void tw_sim_worker_publish(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_sim_request *request, struct tw_event *event,
                           uint64_t rounds, bool is_mute);

/* ---- worker_pair.c */
void tw_sim_worker_pair(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_sim_request *request, bool is_mute);

/* ---- lie.c */
bool tw_sim_is_liar(const struct tw_sim_world *world, const struct tw_sim_node *node);
/* What a liar says its merge came to. */
const struct tw_sim_content *tw_sim_lie_make(struct tw_sim_world *world,
                                             const struct tw_sim_content *content);
bool tw_sim_is_lie(const struct tw_sim_world *world, const struct tw_id *result);
/* What a node thinks of a result that decodes. */
enum tw_sanity tw_sim_sanity(const struct tw_sim_world *world, const struct tw_sim_node *node,
                             const struct tw_id *result);

/* ---- lie_pair.c */
/* What a liar gives its partner instead of this payload (TW_PAIR_DELTA, TW_PAIR_PHI). */
const struct tw_sim_content *tw_sim_lie_pair(struct tw_sim_world *world,
                                             const struct tw_sim_node *node, uint64_t round,
                                             unsigned payload,
                                             const struct tw_sim_content *content);
/* Its chunks never leave. */
bool tw_sim_is_withheld(const struct tw_sim_world *world, const struct tw_sim_node *node,
                        const struct tw_id *hash);
/* The step is done, and it may say that it took none. */
void tw_sim_lie_desert(struct tw_sim_world *world, struct tw_sim_node *node, uint64_t round);
/* What it says, on its way out. */
void tw_sim_lie_message(const struct tw_sim_world *world, const struct tw_sim_node *node,
                        struct tw_message *message);

/* ---- faults.c */
void tw_sim_faults_init(struct tw_sim_world *world);
void tw_sim_faults_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer);

/* ---- check.c */
void tw_sim_check_init(struct tw_sim_world *world);
void tw_sim_check_deinit(struct tw_sim_world *world);
void tw_sim_check_start(struct tw_sim_world *world, struct tw_sim_node *node);
/* The core has just left `lineage`, where it was in `state` and the clock stood at this. */
void tw_sim_check_moved(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_id *lineage, enum tw_node_state state,
                        uint64_t clock_tokens);
void tw_sim_check_action(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_action *action);
void tw_sim_check_event(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_event *event);
void tw_sim_check_tick(struct tw_sim_world *world, struct tw_sim_node *node);
/* A vote was not written down: it stands in memory alone. */
void tw_sim_check_unwritten(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_vote *vote);
/* A vote became durable. */
void tw_sim_check_vote(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_vote *vote);
/* (phi, u) of a fragment changed by this request; `rounds` is what they were before. */
/* An inner step is about to be taken: with the parameters of one lineage. */
void tw_sim_check_model(struct tw_sim_world *world, struct tw_sim_node *node);
/* An APPLY: is the theta that it moves of the lineage of phi? */
void tw_sim_check_theta(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action);
/* What it holds after an event, if it gives it to others, is of one lineage. */
void tw_sim_check_whole(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_check_memory(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_sim_request *request, uint32_t fragment,
                         uint64_t rounds_before);
/* The round that is applied merges this contribution of the node, and no other one of it. */
bool tw_sim_check_is_merged(struct tw_sim_world *world, const struct tw_sim_node *node,
                            const struct tw_sim_request *apply, const struct tw_id *root);

/* The worker took a pair step: theta less what is owed to it moved by so much (dims_per_fragment).
 */
void tw_sim_check_merged(struct tw_sim_world *world, struct tw_sim_node *node, const double *moved);

/* ---- calm.c */
void tw_sim_calm_sample(struct tw_sim_world *world);
void tw_sim_calm_end(struct tw_sim_world *world);
/* Longest a round may take on average when nothing is wrong. */
double tw_sim_calm_round_us(const struct tw_sim_world *world);

/* ---- calm_pair.c */
void tw_sim_calm_pair_end(struct tw_sim_world *world);

#endif
