/* mesh.h - a few nodes in one process, with perfect links and workers that only count.
 *
 * Small enough to read in a debugger; tests/sim/ has the random faults. Time is virtual: a
 * message takes 10 ms, a worker's job 1 ms, a step 100 ms. phi of a fragment is one 64-bit
 * number. */
#ifndef TW_TESTS_SYNC_MESH_H
#define TW_TESTS_SYNC_MESH_H

#include "sync/node.h"

enum {
    MESH_NODES_MAX = 8,
    MESH_EVENTS_MAX = 65536,
    MESH_FRAGMENTS_MAX = 8,
    MESH_MERGES_MAX = 16384,
    MESH_HELD_MAX = 1024,
};

/* One fragment of a pair run in integer arithmetic: beta = gamma = 1, no momentum, D(x) = x
 * rounded down to a multiple of 16. phi is mesh_worker.phi read as a signed number. */
struct mesh_pair {
    int64_t theta, residual;
    bool has_sent;
    uint64_t sent_round;
    int64_t sent; /* Delta that was encoded */
};

/* One merge of a pair, and how far it moved the anchor of each node that applied it: see
 * mesh_pair_imbalance(). */
struct mesh_merge {
    struct tw_id deltas; /* XOR of the names of both Delta payloads */
    int64_t moved;
    uint32_t sides;
};

struct mesh_worker {
    bool is_up;
    uint64_t step, tokens, step_due_us;
    uint64_t phi[MESH_FRAGMENTS_MAX], rounds[MESH_FRAGMENTS_MAX];
    bool is_finished;
    struct mesh_pair pair[MESH_FRAGMENTS_MAX];
    int64_t worked[MESH_FRAGMENTS_MAX]; /* total that training subtracted from theta */
};

struct mesh_event {
    uint64_t at_us, seq;
    uint32_t to;
    struct tw_event event;
    struct tw_message *message; /* copy owned by the event, or NULL */
};

struct mesh {
    uint32_t nodes_count;
    uint64_t now_us, seq;
    uint64_t step_us[MESH_NODES_MAX];
    /* A node's uplink sends the chunks of packed states one after the other. 0: states are one
     * chunk, and no chunk waits for another. */
    uint64_t chunk_us[MESH_NODES_MAX], uplink_free_us[MESH_NODES_MAX];
    uint64_t export_us;                /* time to pack a state */
    uint32_t state_chunks;             /* size of a packed state at a node with such an uplink */
    uint64_t chunks_sent;              /* chunks of states sent by such nodes */
    uint64_t state_us[MESH_NODES_MAX]; /* extra delay of a packed (phi, u) sent to this node */
    uint64_t far_us[MESH_NODES_MAX][MESH_NODES_MAX]; /* extra delay of chunks between two nodes */
    uint32_t paired[MESH_NODES_MAX]
                   [MESH_NODES_MAX]; /* pairs: exchanges of node a with node b, as counted by a */
    bool is_down[MESH_NODES_MAX];
    bool is_poor[MESH_NODES_MAX]; /* the node's worker fails every encoding */
    bool is_mute[MESH_NODES_MAX]; /* the node's messages arrive, but the chunks it sends are lost */
    bool is_starved[MESH_NODES_MAX]; /* chunks sent to the node are lost */
    bool is_cut[MESH_NODES_MAX][MESH_NODES_MAX];
    bool is_linked[MESH_NODES_MAX][MESH_NODES_MAX];
    struct tw_node_config config;
    struct tw_id ids[MESH_NODES_MAX]; /* ids of the nodes, with whose keys they sign */
    struct tw_node *nodes[MESH_NODES_MAX];
    struct mesh_worker workers[MESH_NODES_MAX];
    struct tw_vote votes[MESH_NODES_MAX];
    bool has_vote[MESH_NODES_MAX];
    bool is_disk_full[MESH_NODES_MAX]; /* votes of this node are never stored */
    uint32_t boots[MESH_NODES_MAX];
    uint32_t commits[MESH_NODES_MAX], forks[MESH_NODES_MAX];
    uint32_t merged[MESH_NODES_MAX]; /* commits with contributions of more than half of the nodes */
    bool is_liar[MESH_NODES_MAX];    /* pair offers of this node claim a huge run clock */
    bool is_garbler[MESH_NODES_MAX]; /* outer gradients of this node cannot be decoded */
    bool is_giant[MESH_NODES_MAX];   /* outer gradients of this node are outliers */
    bool lacks_roles[MESH_NODES_MAX]; /* others take this node for one older than roles */
    /* certificates of these nodes give no vote, if config.has_rights */
    bool lacks_vote[MESH_NODES_MAX];
    /* score of this node's contributions in thousandths, before noise; cursors are told if
     * config.jury_millionths is set, but not by is_unplaced nodes */
    int32_t score[MESH_NODES_MAX];
    bool is_unplaced[MESH_NODES_MAX], is_no_juror[MESH_NODES_MAX];
    uint32_t judged[MESH_NODES_MAX][MESH_NODES_MAX]; /* checks of node b by node a */
    bool is_boaster[MESH_NODES_MAX]; /* STATUS of this node claims a huge run clock */
    struct tw_id held[MESH_NODES_MAX]
                     [MESH_HELD_MAX]; /* payloads encoded or verified; zero: free row */
    /* Filters for messages and for chunks, or NULL. A filter may change the message; false drops
     * it. */
    bool (*says)(struct mesh *mesh, uint32_t from, uint32_t to, struct tw_message *message);
    bool (*gives)(struct mesh *mesh, uint32_t from, uint32_t to, const struct tw_id *hash);
    /* How this node's worker rates the size of a result, or NULL: all are usual. */
    enum tw_sanity (*rates)(struct mesh *mesh, uint32_t node, const struct tw_id *hash);
    /* Called around each event of a core, or NULL. */
    struct {
        void (*hears)(struct mesh *mesh, uint32_t node, const struct tw_event *event);
        void (*acts)(struct mesh *mesh, uint32_t node, const struct tw_action *action);
        void (*ends)(struct mesh *mesh, uint32_t node);
    } tap;
    int64_t
        wrap_limit; /* largest distance at which phi in lattice form can be decoded; 0 = no limit */
    uint32_t wholes[MESH_NODES_MAX]; /* number of phi payloads encoded whole */
    struct mesh_merge *merges;
    uint32_t merges_count;
    uint64_t encodes;
    uint64_t states_asked; /* STATE_GETs of all nodes */
    struct mesh_event *events;
    uint32_t events_count;
};

void mesh_init(struct mesh *mesh, uint32_t nodes_count, uint32_t fragments_count);
void mesh_deinit(struct mesh *mesh);
/* Links two nodes (peer number = node number). */
void mesh_link(struct mesh *mesh, uint32_t a, uint32_t b);
void mesh_unlink(struct mesh *mesh, uint32_t a, uint32_t b);
void mesh_link_all(struct mesh *mesh);
/* kill -9. mesh_start() restarts the node from `position` (NULL: no checkpoint). */
void mesh_kill(struct mesh *mesh, uint32_t node);
/* kill -STOP: the node hears and sends nothing more, and its links stay up. */
void mesh_stop(struct mesh *mesh, uint32_t node);
/* Lets the node say goodbye, then kills it. */
void mesh_leave(struct mesh *mesh, uint32_t node);
void mesh_start(struct mesh *mesh, uint32_t node, const struct tw_position *position);
/* Stops the worker and drops its pending answers. The node itself goes on. */
void mesh_stop_worker(struct mesh *mesh, uint32_t node);
void mesh_start_worker(struct mesh *mesh, uint32_t node);
void mesh_run(struct mesh *mesh, uint64_t for_us);
/* Sends a forged message of `from` to `to`. */
void mesh_say(struct mesh *mesh, uint32_t from, uint32_t to, const struct tw_message *message);
/* Delivers the event now and carries out the node's actions. */
void mesh_deliver(struct mesh *mesh, uint32_t node, const struct tw_event *event);
struct tw_node_view mesh_view(const struct mesh *mesh, uint32_t node);
/* Returns whether both nodes are in one lineage and hold the same phi of each fragment that has the
 * same round count at both. */
bool mesh_agree(const struct mesh *mesh, uint32_t a, uint32_t b);
struct tw_id mesh_digest(uint64_t value);

/* ---- mesh_pair.c ---------------------------------------------------------------------------- */

void mesh_pair_step(struct mesh_worker *worker, uint32_t node, uint32_t fragments_count);
/* Carries out PAIR_ENCODE and returns the names of its two payloads. */
void mesh_pair_encode(struct mesh *mesh, uint32_t node, const struct tw_action *action,
                      struct tw_id names[TW_PAIR_PAYLOADS]);
/* Carries out PAIR_APPLY. Returns true if it had to apply alone: is_refused, or phi is too far
 * away. */
bool mesh_pair_apply(struct mesh *mesh, uint32_t node, const struct tw_action *action,
                     bool is_refused);
void mesh_pair_solo(struct mesh_worker *worker, uint32_t fragment);
void mesh_pair_load(struct mesh_worker *worker, uint32_t fragment, enum tw_load_mode mode,
                    uint64_t phi_before);
/* Returns the total training minus the decrease of all theta and residuals, leaving out movement by
 * one-sided merges. 0 means that the books are even. Adds the number of one-sided merges to
 * *one_sided. */
int64_t mesh_pair_imbalance(const struct mesh *mesh, uint32_t *one_sided);

#endif
