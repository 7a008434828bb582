/* check.h - state of the checkers: facts observed in the world. Shared by check*.c and lie.c.
 */
#ifndef TW_SIM_CHECK_H
#define TW_SIM_CHECK_H

#include "tests/sim/world.h"

/* A roster that names nodes by number. */
struct tw_sim_roster {
    uint32_t number, count;
    struct {
        uint64_t nonce;
        uint32_t node;
        bool has_weight, has_vote;
        uint8_t merges;
    } members[TW_MEMBERS_MAX];
};

enum { TW_SIM_BALLOTS_KEPT = 64, TW_SIM_ENCODED_KEPT = 16 };

/* A committed round record. */
struct tw_sim_commit {
    struct tw_id digest, parent, lineage;
    uint64_t round, clock_tokens;
    uint64_t usual_tokens; /* lower median of the contributors' tokens */
    uint32_t parts_count, contributors_count;
    struct {
        struct tw_id result;
        uint64_t contributors; /* bit set of roster indexes */
    } parts[TW_PARTS_MAX];
    struct tw_sim_roster roster, next;  /* roster of this round, and of the next */
    struct tw_id roots[TW_MEMBERS_MAX]; /* root of each member's contribution; zero: none */
    uint64_t listed[];                  /* tokens listed so far along the chain, by node */
};

/* The nodes that accepted a record. */
struct tw_sim_acceptance {
    uint64_t nodes; /* bit set: in any ballot, durable or not */
    bool is_locked; /* some member has a lock on the record */
    uint32_t count;
    struct {
        uint64_t ballot, nodes; /* bit set: durably locked in this ballot */
    } ballots[TW_SIM_BALLOTS_KEPT];
};

/* The record that was the first to have enough votes, and its lowest ballot with enough votes. */
struct tw_sim_chosen {
    struct tw_id digest;
    uint64_t ballot;
};

/* The highest ballots that a node sent in one round: `promised` in PROMISEs and ACCEPTs,
 * `lock_ballot` in the ACCEPTs of phase 2. */
struct tw_sim_told {
    uint64_t promised, lock_ballot;
    struct tw_id locked; /* record of the lock */
};

/* The contributions that a node encoded for one round: more than one if it restarted. */
struct tw_sim_encoded {
    uint32_t count;
    struct {
        struct tw_id root;
        bool is_told;              /* announced in a CONTRIB */
        uint64_t tokens;           /* tokens announced in that CONTRIB */
        struct tw_sim_delta delta; /* steps and tokens of the contribution */
    } all[TW_SIM_ENCODED_KEPT];
};

/* One node's side of an exchange. */
struct tw_sim_half {
    struct tw_id offer[TW_PAIR_PAYLOADS]; /* payloads that the node offered */
    bool is_merged;                       /* the node's worker merged */
    bool is_counted;                      /* the node's core reported the merge */
    bool is_deserted;      /* a PAIR_BUSY showed that this node's partner did not merge */
    uint64_t life, number; /* life of the node; number of the merge in that life */
    double moved[TW_SIM_FRAGMENT_DIMS_MAX]; /* movement of the node's theta - e */
};

struct tw_sim_exchange {
    uint32_t nodes[2]; /* the requesting node, the requested node */
    uint32_t fragment;
    bool is_accepted;
    struct tw_sim_half halves[2];
};

/* State of a node in a run in pairs, as its messages and reports show it. */
struct tw_sim_pairing {
    bool is_open, is_answered, is_merging, is_deserted;
    bool is_cut; /* the link failed during the merge: the node forgot its partner */
    struct tw_sim_key open, merging; /* names of the open exchange, of the one being merged */
    uint64_t open_us, stepped_us;    /* start of the open exchange; time of the last step */
    /* times of the last step before the end of the round before last, and of the last round */
    uint64_t before_us, committed_us;
    uint32_t asked_fragment, made_fragment; /* last requested from the worker, and last encoded */
    struct tw_id made[TW_PAIR_PAYLOADS];    /* the payloads that the node encoded last */
    /* merges and one-sided outcomes that the core reported; one-sided outcomes that PAIR_BUSYs
     * imply */
    uint64_t paired_count, one_sided_count, one_sided_due;
};

/* The work in a head's contribution, by its root. */
struct tw_sim_crew {
    uint32_t count;
    struct {
        uint32_t node;
        uint64_t tokens;
        struct tw_id root; /* of the node's own contribution */
    } rows[TW_CREW_MAX];
};

struct tw_sim_check {
    struct tw_sim_map crews;     /* root of a contribution -> struct tw_sim_crew */
    struct tw_sim_map commits;   /* digest -> struct tw_sim_commit */
    struct tw_sim_map rounds;    /* (lineage, round) -> digest */
    struct tw_sim_map memory;    /* (lineage, fragment, version) -> digest of (phi, u) */
    struct tw_sim_map clocks;    /* (digest of (phi, u), fragment) -> its clock, uint64_t */
    struct tw_sim_map accepted;  /* record digest -> struct tw_sim_acceptance */
    struct tw_sim_map chosen;    /* (lineage, round) -> struct tw_sim_chosen */
    struct tw_sim_map ballots;   /* (lineage, round, ballot) -> digest of the proposed record */
    struct tw_sim_map proposers; /* (lineage, round, ballot) -> number of the proposer */
    struct tw_sim_map tries;     /* (lineage, round) -> 1 + ballots above the lowest, uint64_t */
    struct tw_sim_map told;      /* (lineage, round, node) -> struct tw_sim_told */
    struct tw_sim_map encoded;   /* (lineage, round, node) -> struct tw_sim_encoded */
    struct tw_sim_map joins;     /* (lineage, nonce, rounds) of each JOIN */
    struct tw_sim_map exchanges; /* name of an exchange -> struct tw_sim_exchange */
    struct tw_sim_pairing *pairings; /* by node */
    struct tw_sim_known {
        struct tw_id lineage;
        uint64_t rounds, clock_tokens; /* at the newest commit reported since the last restart */
    } * nodes;                         /* by node */
};

static inline struct tw_sim_key tw_sim_key_of(const struct tw_id *id, uint64_t a, uint64_t b) {
    return (struct tw_sim_key){.id = *id, .a = a, .b = b};
}

/* Returns the index of a node in the roster, or -1. */
int tw_sim_roster_find(const struct tw_sim_roster *roster, uint32_t node);

/* Returns the committed record of this round, or NULL. */
const struct tw_sim_commit *tw_sim_check_find(const struct tw_sim_world *world,
                                              const struct tw_id *lineage, uint64_t round);

/* Returns the seat whose contribution to the round has work of the node, and sets *root to the root
 * of that work. Returns -1 if there is none. */
int tw_sim_check_seat(const struct tw_sim_world *world, const struct tw_sim_commit *commit,
                      const struct tw_sim_node *node, struct tw_id *root);

/* Called when a node reports a round as committed. */
void tw_sim_check_committed(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_action *action);

/* Called when the node has computed the present (phi, u) of a fragment. Records their clock. */
void tw_sim_check_made(struct tw_sim_world *world, const struct tw_sim_node *node,
                       uint32_t fragment, uint64_t clock_tokens);
/* Called when a node sends its STATUS. Its weights must have trained as far as the claimed clock.
 */
void tw_sim_check_claim(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_msg_status *status);

/* Called when a node sends a message about a ballot. */
void tw_sim_check_prepare(struct tw_sim_world *world, const struct tw_msg_prepare *prepare);
void tw_sim_check_promise(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_msg_promise *promise);
void tw_sim_check_accept(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_msg_accept *accept);
void tw_sim_check_lock(struct tw_sim_world *world, const struct tw_id *digest);
void tw_sim_check_propose(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_msg_propose *propose);

/* ---- treason.c */
void tw_sim_treason_roster(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_sim_commit *commit);

/* ---- check_pair.c */
void tw_sim_check_pair_start(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_check_pair_action(struct tw_sim_world *world, struct tw_sim_node *node,
                              const struct tw_action *action);
void tw_sim_check_pair_event(struct tw_sim_world *world, struct tw_sim_node *node,
                             const struct tw_event *event);
void tw_sim_check_pair_tick(struct tw_sim_world *world, struct tw_sim_node *node);
/* Called when a round of one node moves its clock from `before` to `clock_tokens`; it trained
 * `tokens`. */
void tw_sim_check_pair_clock(struct tw_sim_world *world, struct tw_sim_node *node,
                             uint64_t clock_tokens, uint64_t before, uint64_t tokens);

#endif
