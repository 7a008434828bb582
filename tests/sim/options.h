/* options.h - all options of a simulated run, drawn from its seed.
 *
 * The seed first decides which classes of faults exist (each with p = 1/2; one seed in 16 has none)
 * and their rates (log-uniform). Then it draws the network, the options of the run up to their
 * extremes, and the training problem. A caller may change any field after the draw. */
#ifndef TW_SIM_OPTIONS_H
#define TW_SIM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/limits.h"

enum {
    TW_SIM_NODES_MAX = 16384,
    TW_SIM_HEADS_MAX = TW_PEERS_MAX / 2, /* so that a head has room for as many other links */
};

/* X(NAME, text; also a key of the JSON output). Rates are per node-hour. */
#define TW_SIM_FAULT_LIST(X)                                                                       \
    X(CRASH, "crash and restart")                                                                  \
    X(DISK, "crash with loss of the disk")                                                         \
    X(WORKER, "worker crash")                                                                      \
    X(STALL, "process or machine stopped for a while")                                             \
    X(SLOW, "slow machine")                                                                        \
    X(LEAVE, "leave and return")                                                                   \
    X(LATE, "late start")                                                                          \
    X(PARTITION, "partition")                                                                      \
    X(ONEWAY, "one-way block of a link")                                                           \
    X(RESET, "link reset")                                                                         \
    X(LOSS, "loss bursts: stalled links")                                                          \
    X(CORRUPT, "a chunk stored wrongly")                                                           \
    X(REFUSE, "no room, no memory or a failed write")                                              \
    X(POWER, "power cut of all nodes that vote")

enum tw_sim_fault {
#define X(name, text) TW_SIM_##name,
    TW_SIM_FAULT_LIST(X)
#undef X
        TW_SIM_FAULTS_COUNT
};

/* Faults that end no process and disconnect no node. */
#define TW_SIM_MILD_FAULTS                                                                         \
    (1u << TW_SIM_WORKER | 1u << TW_SIM_SLOW | 1u << TW_SIM_RESET | 1u << TW_SIM_CORRUPT |         \
     1u << TW_SIM_REFUSE)

struct tw_sim_options {
    uint64_t seed;
    uint32_t nodes_count;       /* 1 to TW_SIM_NODES_MAX */
    uint64_t chaos_us, calm_us; /* durations of the phases with and without faults */
    uint32_t faults;            /* bit set of enum tw_sim_fault */
    double fault_per_hour[TW_SIM_FAULTS_COUNT]; /* mean number of faults per node and hour */
    uint64_t outage_us; /* mean duration of a fault: down, cut off, stalled or slow */

    /* network */
    uint64_t latency_us, jitter_us; /* one way: mean over links; mean of the exponential part */
    uint64_t upload_bytes_per_s;    /* per node, mean */
    double loss;                    /* fraction of items that need a retransmission */
    uint32_t bytes_per_dim;         /* bytes of a payload per stub parameter */
    uint32_t homes_count; /* nodes behind NAT, the last of the nodes: no two of them have a path */
    double cut_share;     /* fraction of the other pairs without a path, except pairs with node 0 */
    bool has_relays;      /* pairs without a path are linked through a public node */
    bool is_wire_checked; /* each message is encoded and decoded as protobuf */

    /* the run */
    uint32_t fragments_count, dims_per_fragment;
    uint32_t period_steps, overlap_steps, quorum, members_max;
    uint64_t pace_us, grace_us, orphan_us, budget_tokens;
    uint64_t together_tokens; /* clock at which the group splits up; budget_tokens or more: never */

    /* machines and training problem */
    uint64_t step_us;    /* duration of a step at speed 1 */
    double slow_first;   /* factor by which the first machine is slower; 0 or 1: none */
    double thin_first;   /* factor by which the first machine uploads less; 0 or 1: none */
    bool is_measured;    /* nodes know their upload rates */
    double speed_spread; /* speeds are 1 + U(-spread, spread) */
    uint32_t tokens_per_step, snapshot_steps;
    uint64_t checkpoint_us;
    float inner_lr, outer_lr, outer_momentum, alpha, noise,
        spread; /* spread: scale of the nodes' distances from the common optimum */

    /* never drawn, set by the caller */
    uint64_t split_us;        /* start of one partition into two halves */
    uint64_t split_end_us;    /* end of that partition; 0 = no such partition */
    uint32_t liars_count;     /* number of nodes that lie (lie.c); the last ones */
    uint32_t traitors_count;  /* nodes without an honest core (treason.c); the last ones */
    uint32_t voters_count;    /* nodes whose certificates give a vote: the first ones, and the last
                                 voting_traitors; 0: no certificates, all vote */
    uint32_t voting_traitors; /* traitors among the voters */
    uint32_t sybils_count;    /* traitors that are ids of one holder of the run secret: they start
                                 once the others are an old group, and do no work; 0: none, or all
                                 traitors_count */
    bool are_sybils_silent;   /* the sybils take seats and say no more */
    uint32_t jury_millionths; /* share of contributions that are checked for training; 0: none */
    uint32_t idlers_count;    /* nodes that send work they did not do; the last ones */
    uint32_t lies;            /* lies of the traitors, bit set of enum tw_lie; 0: drawn */
    int mutant;               /* mutant switched on in the core; 0 = none */
    bool is_costed;           /* the costs of deciding rounds are counted */
    bool has_doubt;           /* each honest node judges every eighth result an outlier */
    bool is_pair;             /* nodes merge in pairs instead of one group */
    bool has_own_starts;      /* each node starts from different weights */
    uint32_t reducers_count;  /* nodes that reduce; the last ones */
    uint32_t followers_count; /* nodes that follow; the last ones before those that reduce */
    uint32_t heads_count;  /* the first nodes, linked to each other: they alone have seats; 0: all
                              nodes are linked to each other */
    uint32_t crew_max;     /* nodes whose work a head contributes, itself included; 0: none */
    uint32_t hand_links;   /* links that each other node keeps, all to heads */
    uint32_t false_heads;  /* heads that lie to their hands (lie.c); the last ones */
    uint32_t killed_heads; /* heads that die at `kill_us`, for a minute; the last ones */
    uint64_t kill_us;
};

/* Draws all options. If `nodes_count` is 0, it is drawn too. `hours` is split 2:1 into chaos (with
 * faults) and calm; a calm too short for its checks is lengthened. */
void tw_sim_options_draw(struct tw_sim_options *options, uint64_t seed, uint32_t nodes_count,
                         double hours);

/* Also draws nodes behind NAT (homes), pairs without a path, and relays, for options already drawn.
 * Needs three nodes. */
void tw_sim_options_draw_homes(struct tw_sim_options *options);

/* Makes `count` nodes traitors (0: a drawn number, at most a third). Also draws which of the other
 * faults stay. */
void tw_sim_options_draw_traitors(struct tw_sim_options *options, uint32_t count);

/* Adds `count` sybils, at most 24, to the nodes already drawn, and leaves only mild faults. */
void tw_sim_options_draw_sybils(struct tw_sim_options *options, uint32_t count, bool are_silent);

/* Makes some of the nodes traitors that give false states, fewer than a third of the voters while
 * few nodes are down. Nodes lose their disks and come back, some after the end of the run. Needs
 * seven nodes. */
void tw_sim_options_draw_donors(struct tw_sim_options *options);

/* Gives only some nodes a vote, four at least, for options with traitors or without. Also draws how
 * many of the voters are traitors, at most a third, and how many of the others, at most all. Needs
 * five nodes. */
void tw_sim_options_draw_committee(struct tw_sim_options *options);

/* Leaves power cuts alone of the faults, in a world in which a group is soon whole again. */
void tw_sim_options_draw_power(struct tw_sim_options *options);

/* Also lets heads contribute the work of the nodes without a seat. */
void tw_sim_options_draw_crews(struct tw_sim_options *options);

/* Gives seats to the first `heads` nodes alone, and each other node a link to three of them at
 * most. */
void tw_sim_options_draw_heads(struct tw_sim_options *options, uint32_t heads);

/* Prints one option per line, units included. */
void tw_sim_options_print(const struct tw_sim_options *options, FILE *file);

/* "worker crash". */
const char *tw_sim_fault_text(enum tw_sim_fault fault);

#endif
