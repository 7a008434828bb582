/* sim.h - the deterministic simulator: one call runs one seed. */
#ifndef TW_SIM_H
#define TW_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/message.h"
#include "sync/node.h"
#include "tests/sim/options.h"

/* Event kinds, then message kinds: 1 to 31, not all of them taken. */
enum {
    TW_SIM_STATES = 4,
    TW_SIM_MESSAGES = TW_EV_MEASURED + 1,
    TW_SIM_EVENTS = TW_SIM_MESSAGES + 32,
    TW_SIM_TRIES = 12,
};

struct tw_sim_result {
    bool is_failed;
    char invariant[16]; /* what was broken first: "G1", "17", "calm", ... */
    char message[512];
    uint64_t failed_us;
    int failed_node; /* -1: no node in particular */

    uint64_t hash; /* of every event delivered and every action taken */
    uint64_t timers, events, actions, messages, chunks, ticks;
    uint64_t chunks_again;  /* came where they were stored already */
    uint64_t chunks_thrown; /* stored, of payloads that were dropped before they were whole */
    uint64_t faults[TW_SIM_FAULTS_COUNT];
    uint64_t rounds;       /* different (lineage, round) that were committed */
    uint64_t group_rounds; /* of these, with more than one contributor */
    uint64_t first_rounds; /* of these, with the first node among them */
    uint64_t applied, mixed, votes, lineages, loads, steps;
    uint64_t lies_told, lies_committed; /* results; of those that are far too large */
    uint64_t lied_us;                   /* when the last lie was committed; 0: none was */
    uint64_t strikes;                   /* after an audit */
    uint64_t given_back;                /* parts of owners that most of the honest had struck */
    uint64_t tries[TW_SIM_TRIES];       /* rounds of a group, by 1 + log2 of the ballots above 1 */
    uint64_t tries_most;                /* of one round */
    uint64_t merges, merges_whole;      /* pair steps with a partner; exchanges that both took */
    uint64_t merges_deserted;           /* one-sided outcomes that the node heard of */
    uint64_t phis_unread;               /* steps alone, as the partner's phi was out of reach */
    double consensus_end;               /* rms distance of the anchors to their mean, at the end */
    uint64_t tokens;                    /* trained by all, in all lives */
    double node_hours;                  /* of running nodes */
    double loss_start, loss_end;        /* of the mean anchor of the nodes running at the end */
    uint64_t clock_tokens;              /* greatest, at the end */
    struct tw_sim_side {
        double loss;     /* best anchor of this side, when the split of the options ended */
        uint64_t rounds; /* its lineage had then */
        uint64_t rounds_before, lineages; /* when it began; lineages on this side when it ended */
    } sides[2];
    uint32_t lineages_end, members_end, running_end, finished_end;
    uint64_t histogram[TW_SIM_STATES][TW_SIM_EVENTS];
};

/* Runs to the end or to the first broken invariant. `trace` may be NULL. Same options, same
 * result, to the bit. Asserts of the core become invariant 23. */
void tw_sim_run(const struct tw_sim_options *options, struct tw_sim_result *result, FILE *trace);

uint64_t tw_sim_result_faults(const struct tw_sim_result *result);

/* "MESSAGE COMMIT", "STEP". */
const char *tw_sim_event_name(uint32_t event);

/* One screen about one run; the same as one JSON object; the pairs (state, event) reached. */
void tw_sim_result_print(const struct tw_sim_options *options, const struct tw_sim_result *result,
                         FILE *file);
void tw_sim_result_json(const struct tw_sim_options *options, const struct tw_sim_result *result,
                        FILE *file);
void tw_sim_histogram_print(const struct tw_sim_result *result, FILE *file);

#endif
