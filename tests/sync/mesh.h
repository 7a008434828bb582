/* mesh.h - a handful of nodes in one process, perfect links, a worker that only counts.
 *
 * Small enough to read in a debugger; tests/sim/ is where the faults are. Time is virtual: a
 * message takes 10 ms, work takes 1 ms, a step 100 ms. phi of a fragment is one 64-bit number. */
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

/* A pair run's worker, in whole numbers: beta = gamma = 1, no momentum, D(x) = x rounded down to a
 * multiple of 16. phi is the signed value of mesh_worker.phi. */
struct mesh_pair {
    int64_t theta, residual;
    bool has_sent;
    uint64_t sent_round;
    int64_t sent; /* Delta that was encoded */
};

/* What one side of a merge moved, for the books: see mesh_imbalance(). */
struct mesh_merge {
    struct tw_id deltas; /* both payloads' names, xored */
    int64_t moved;
    uint32_t sides;
};

struct mesh_worker {
    bool is_up;
    uint64_t step, tokens, step_due_us;
    uint64_t phi[MESH_FRAGMENTS_MAX], rounds[MESH_FRAGMENTS_MAX];
    bool is_finished;
    struct mesh_pair pair[MESH_FRAGMENTS_MAX];
    int64_t worked[MESH_FRAGMENTS_MAX]; /* all that training ever took off theta */
};

struct mesh_event {
    uint64_t at_us, seq;
    uint32_t to;
    struct tw_event event;
    struct tw_message *message; /* owned copy, or NULL */
};

struct mesh {
    uint32_t nodes_count;
    uint64_t now_us, seq;
    uint64_t step_us[MESH_NODES_MAX];
    uint64_t state_us[MESH_NODES_MAX]; /* what a packed (phi, u) takes longer on its way to it */
    uint64_t far_us[MESH_NODES_MAX][MESH_NODES_MAX]; /* what chunks between two take longer */
    uint32_t paired[MESH_NODES_MAX][MESH_NODES_MAX]; /* exchanges of a with b, as a counts them */
    bool is_down[MESH_NODES_MAX];
    bool is_poor[MESH_NODES_MAX];    /* its worker encodes nothing */
    bool is_mute[MESH_NODES_MAX];    /* it says much, but its chunks never leave */
    bool is_starved[MESH_NODES_MAX]; /* chunks for it never arrive */
    bool is_cut[MESH_NODES_MAX][MESH_NODES_MAX];
    bool is_linked[MESH_NODES_MAX][MESH_NODES_MAX];
    struct tw_node_config config;
    struct tw_node *nodes[MESH_NODES_MAX];
    struct mesh_worker workers[MESH_NODES_MAX];
    struct tw_vote votes[MESH_NODES_MAX];
    bool has_vote[MESH_NODES_MAX];
    bool is_disk_full[MESH_NODES_MAX]; /* votes wait for room, everything else goes on */
    uint32_t boots[MESH_NODES_MAX];
    uint32_t commits[MESH_NODES_MAX], forks[MESH_NODES_MAX];
    uint32_t merged[MESH_NODES_MAX]; /* commits that list more than half of all nodes */
    bool is_liar[MESH_NODES_MAX];    /* its offers name a clock of the far future */
    bool is_garbler[MESH_NODES_MAX]; /* its outer gradients decode to nothing */
    bool is_giant[MESH_NODES_MAX];   /* they are far larger than those of others */
    bool is_boaster[MESH_NODES_MAX]; /* the clock in its STATUS is of the far future */
    struct tw_id held[MESH_NODES_MAX][MESH_HELD_MAX]; /* payloads made or verified, zero = none */
    /* What becomes of what `from` says, or gives, to `to`: it may be changed; false: lost. */
    bool (*says)(struct mesh *mesh, uint32_t from, uint32_t to, struct tw_message *message);
    bool (*gives)(struct mesh *mesh, uint32_t from, uint32_t to, const struct tw_id *hash);
    int64_t wrap_limit; /* phi further apart cannot be read in lattice form; 0 = any can */
    uint32_t wholes[MESH_NODES_MAX]; /* phi encoded whole, as the partner wished */
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
/* kill -9 and start again from `position` (NULL: from nothing). */
void mesh_kill(struct mesh *mesh, uint32_t node);
/* It says goodbye, and its process ends. */
void mesh_leave(struct mesh *mesh, uint32_t node);
void mesh_start(struct mesh *mesh, uint32_t node, const struct tw_position *position);
/* The node goes on without its worker, whose answers under way are lost. */
void mesh_stop_worker(struct mesh *mesh, uint32_t node);
void mesh_start_worker(struct mesh *mesh, uint32_t node);
void mesh_run(struct mesh *mesh, uint64_t for_us);
/* A message of `from` to `to` beside what its core says. */
void mesh_say(struct mesh *mesh, uint32_t from, uint32_t to, const struct tw_message *message);
/* Hands the event to the node now, and does what it asks. */
void mesh_deliver(struct mesh *mesh, uint32_t node, const struct tw_event *event);
struct tw_node_view mesh_view(const struct mesh *mesh, uint32_t node);
/* Both are in one lineage, and hold the same phi of every fragment that stands equally far. */
bool mesh_agree(const struct mesh *mesh, uint32_t a, uint32_t b);
struct tw_id mesh_digest(uint64_t value);

/* ---- mesh_pair.c ---------------------------------------------------------------------------- */

void mesh_pair_step(struct mesh_worker *worker, uint32_t node, uint32_t fragments_count);
/* Names of the two payloads of PAIR_ENCODE. */
void mesh_pair_encode(struct mesh *mesh, uint32_t node, const struct tw_action *action,
                      struct tw_id names[TW_PAIR_PAYLOADS]);
/* Returns whether the partner's phi could not be read. is_refused: it is not to be merged. */
bool mesh_pair_apply(struct mesh *mesh, uint32_t node, const struct tw_action *action,
                     bool is_refused);
void mesh_pair_solo(struct mesh_worker *worker, uint32_t fragment);
void mesh_pair_load(struct mesh_worker *worker, uint32_t fragment, enum tw_load_mode mode,
                    uint64_t phi_before);
/* Work done - (theta and residuals gone down): 0 when every merge was two-sided. Adds to *one_sided
 * the number of those that were not; what these moved is taken out. */
int64_t mesh_pair_imbalance(const struct mesh *mesh, uint32_t *one_sided);

#endif
