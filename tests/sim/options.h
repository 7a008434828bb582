/* options.h - everything that is drawn before a simulated run starts.
 *
 * The seed first draws which classes of faults exist at all (each with p = 1/2, one seed in 16 has
 * none), then how often they strike (log-uniform), then the network, the run's own knobs up to
 * their extremes, and the training problem. A field set by hand after drawing is a fixed option. */
#ifndef TW_SIM_OPTIONS_H
#define TW_SIM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* X(NAME, text for people). Rates are per node-hour. */
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
    X(REFUSE, "no room, no memory or a failed write")

enum tw_sim_fault {
#define X(name, text) TW_SIM_##name,
    TW_SIM_FAULT_LIST(X)
#undef X
        TW_SIM_FAULTS_COUNT
};

struct tw_sim_options {
    uint64_t seed;
    uint32_t nodes_count;                       /* 1..64 */
    uint64_t chaos_us, calm_us;                 /* the two phases of the run */
    uint32_t faults;                            /* bit set of enum tw_sim_fault */
    double fault_per_hour[TW_SIM_FAULTS_COUNT]; /* per node */
    uint64_t outage_us; /* mean of what a fault lasts: down, cut off, stalled, slow */

    /* network */
    uint64_t latency_us, jitter_us; /* one way: mean over pairs, mean of the exponential part */
    uint64_t upload_bytes_per_s;    /* per node, mean */
    double loss;                    /* share of messages that meet a retransmission */
    uint32_t bytes_per_dim;         /* of a payload, per stub parameter */
    bool is_wire_checked;           /* messages travel as protobuf bodies */

    /* the run */
    uint32_t fragments_count, dims_per_fragment;
    uint32_t period_steps, overlap_steps, quorum, members_max;
    uint64_t pace_us, grace_us, orphan_us, budget_tokens;
    uint64_t together_tokens; /* then every node goes on alone; budget_tokens or more: never */

    /* the machines and the problem */
    uint64_t step_us;    /* of a machine of speed 1 */
    double slow_first;   /* the first machine is so many times slower; 0 or 1: it is not */
    double thin_first;   /* its upload is so many times less; 0 or 1: it is not */
    bool is_measured;    /* nodes know what they can upload */
    double speed_spread; /* speeds are e^U(-spread, spread) */
    uint32_t tokens_per_step, snapshot_steps;
    uint64_t checkpoint_us;
    float inner_lr, outer_lr, outer_momentum, alpha, noise, spread; /* spread: of local optima */

    /* by hand only */
    uint64_t split_us;     /* one partition in two halves at this time ... */
    uint64_t split_end_us; /* ... until then; 0 = none */
    uint32_t liars_count;  /* so many nodes, the last ones, lie: lie.h */
    int mutant;            /* bug switched on in the core; 0 = none */
    bool has_doubt;        /* honest nodes find every eighth result insane */
    bool is_pair;          /* two by two instead of one group */
};

/* Draws all of it. `nodes_count` 0 = draw it too; `hours` is split 2:1 into chaos and calm, and a
 * calm too short for what it must show is made longer. */
void tw_sim_options_draw(struct tw_sim_options *options, uint64_t seed, uint32_t nodes_count,
                         double hours);

/* One option per line, units included. */
void tw_sim_options_print(const struct tw_sim_options *options, FILE *file);

/* "worker crash". */
const char *tw_sim_fault_text(enum tw_sim_fault fault);

#endif
