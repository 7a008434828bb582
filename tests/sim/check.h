/* check.h - what the judge remembers; shared by the check*.c files and nobody else. */
#ifndef TW_SIM_CHECK_H
#define TW_SIM_CHECK_H

#include "tests/sim/world.h"

/* A roster by node number. */
struct tw_sim_roster {
    uint32_t number, count;
    struct {
        uint64_t nonce;
        uint8_t node;
        bool has_weight;
    } members[TW_MEMBERS_MAX];
};

enum { TW_SIM_BALLOTS_KEPT = 64, TW_SIM_ENCODED_KEPT = 4 };

/* A committed manifest. */
struct tw_sim_commit {
    struct tw_id digest, parent, lineage;
    uint64_t round, clock_tokens;
    uint32_t parts_count, contributors_count;
    struct {
        struct tw_id result;
        uint64_t contributors; /* by roster index */
    } parts[TW_PARTS_MAX];
    struct tw_sim_roster roster, next;  /* that decided it, that decides the next one */
    uint64_t listed[TW_MEMBERS_MAX];    /* tokens of each node along the chain so far */
    struct tw_id roots[TW_MEMBERS_MAX]; /* of what each node contributed to this one */
};

/* Who durably accepted a manifest, per ballot. */
struct tw_sim_acceptance {
    uint64_t nodes; /* in any ballot, whether or not their disks took it */
    uint32_t count;
    struct {
        uint64_t ballot, nodes; /* bit set of node numbers */
    } ballots[TW_SIM_BALLOTS_KEPT];
};

struct tw_sim_chosen {
    struct tw_id digest;
    uint64_t ballot;
};

/* What a node told others about its vote in one round. */
struct tw_sim_told {
    uint64_t promised, accepted_ballot;
};

/* Contributions a node encoded for one round (more than one after a restart). */
struct tw_sim_encoded {
    uint32_t count;
    struct {
        struct tw_id root;
        bool is_told;
        uint64_t tokens;
        struct tw_sim_delta delta; /* what it holds */
    } all[TW_SIM_ENCODED_KEPT];
};

/* What one side of an exchange of two nodes brought, and what it made of it. */
struct tw_sim_half {
    struct tw_id offer[TW_PAIR_PAYLOADS];
    bool is_merged;        /* by its worker */
    bool is_counted;       /* its core said so, ... */
    bool is_deserted;      /* ... and has heard that the other did not */
    uint64_t life, number; /* of the node, of its merges in this life */
    double moved[TW_SIM_FRAGMENT_DIMS_MAX];
};

struct tw_sim_exchange {
    uint32_t nodes[2]; /* who asked, who was asked */
    uint32_t fragment;
    bool is_accepted;
    struct tw_sim_half halves[2];
};

/* Where a node stands in a run in pairs, as it has told. */
struct tw_sim_pairing {
    bool is_open, is_answered, is_merging, is_deserted;
    bool is_cut; /* merging, and the link was down meanwhile: it has forgotten whom it was with */
    struct tw_sim_key open, merging; /* names of exchanges */
    uint64_t open_us, stepped_us;
    uint64_t before_us, committed_us;       /* its last step when its last two rounds ended */
    uint32_t asked_fragment, made_fragment; /* of its worker, by its worker */
    struct tw_id made[TW_PAIR_PAYLOADS];
    uint64_t paired_count, one_sided_count, one_sided_due;
};

struct tw_sim_check {
    struct tw_sim_map commits; /* digest -> struct tw_sim_commit */
    struct tw_sim_map rounds;  /* (lineage, round) -> digest */
    struct tw_sim_map memory;  /* (lineage, fragment, version) -> digest of (phi, u) */
    struct tw_sim_map clocks;  /* (digest of (phi, u), fragment) -> clock it stands for, uint64_t */
    struct tw_sim_map accepted;  /* manifest digest -> struct tw_sim_acceptance */
    struct tw_sim_map chosen;    /* (lineage, round) -> struct tw_sim_chosen */
    struct tw_sim_map ballots;   /* (lineage, round, ballot) -> digest of what was proposed */
    struct tw_sim_map proposers; /* (lineage, round, ballot) -> node that proposed it */
    struct tw_sim_map tries;     /* (lineage, round) -> 1 + ballots above the lowest, uint64_t */
    struct tw_sim_map told;      /* (lineage, round, node) -> struct tw_sim_told */
    struct tw_sim_map encoded;   /* (lineage, round, node) -> struct tw_sim_encoded */
    struct tw_sim_map joins;     /* (lineage, nonce, rounds): asked to join there */
    struct tw_sim_map exchanges; /* of pairs, by name -> struct tw_sim_exchange */
    struct tw_sim_pairing pairings[TW_MEMBERS_MAX];
    struct {
        struct tw_id lineage;
        uint64_t rounds, clock_tokens; /* of the newest commit it reported in this life */
    } nodes[TW_MEMBERS_MAX];
};

static inline struct tw_sim_key tw_sim_key_of(const struct tw_id *id, uint64_t a, uint64_t b) {
    return (struct tw_sim_key){.id = *id, .a = a, .b = b};
}

/* Place of a node in the roster, or -1. */
int tw_sim_roster_find(const struct tw_sim_roster *roster, uint32_t node);

/* What was committed as this round, or NULL. */
const struct tw_sim_commit *tw_sim_check_find(const struct tw_sim_world *world,
                                              const struct tw_id *lineage, uint64_t round);

/* A node reports a round as committed. */
void tw_sim_check_committed(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_action *action);

/* It made (phi, u) of a fragment what they are, and committed so much by then. */
void tw_sim_check_made(struct tw_sim_world *world, const struct tw_sim_node *node,
                       uint32_t fragment, uint64_t clock_tokens);
/* A node tells others how far it is. */
void tw_sim_check_claim(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_msg_status *status);

/* A node says something about a ballot. */
void tw_sim_check_prepare(struct tw_sim_world *world, const struct tw_msg_prepare *prepare);
void tw_sim_check_promise(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_msg_promise *promise);
void tw_sim_check_accept(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_msg_accept *accept);
void tw_sim_check_propose(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_msg_propose *propose);

/* ---- check_pair.c */
void tw_sim_check_pair_start(struct tw_sim_world *world, struct tw_sim_node *node);
void tw_sim_check_pair_action(struct tw_sim_world *world, struct tw_sim_node *node,
                              const struct tw_action *action);
void tw_sim_check_pair_event(struct tw_sim_world *world, struct tw_sim_node *node,
                             const struct tw_event *event);
void tw_sim_check_pair_tick(struct tw_sim_world *world, struct tw_sim_node *node);
/* A round of the node's own, in which it trained on so many tokens. */
void tw_sim_check_pair_clock(struct tw_sim_world *world, struct tw_sim_node *node,
                             uint64_t clock_tokens, uint64_t before, uint64_t tokens);

#endif
