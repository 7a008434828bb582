/* sim.h - the deterministic simulator: one call runs one seed. */
#ifndef TW_SIM_H
#define TW_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/message.h"
#include "sync/node.h"
#include "tests/sim/options.h"

/* Columns of the histogram: event kinds, then message kinds, of which some are unused. */
enum {
    TW_SIM_STATES = 4,
    TW_SIM_MESSAGES = TW_EV_GATHERED + 1,
    TW_SIM_EVENTS = TW_SIM_MESSAGES + TW_MESSAGE_KINDS,
    TW_SIM_TRIES = 12,
};

/* Costs of deciding rounds, summed over all nodes. */
struct tw_sim_costs {
    uint64_t bytes[TW_SIM_EVENTS]; /* bytes of sent messages by kind, frame headers included */
    uint64_t signed_count, checked_count; /* signatures */
    uint64_t proposed_round, proposed_us; /* newest round with a proposal, and the time of its first
                                             proposal */
    uint64_t decided_us, decided_count;   /* times from proposal to commit, over all nodes */
};

/* Control messages of some nodes, and their bytes if the costs are counted. */
struct tw_sim_use {
    double node_hours;
    uint64_t messages, sent_bytes, received_bytes;
};

struct tw_sim_result {
    bool is_failed;
    char invariant[16]; /* id of the first broken invariant: "G1", "17", "calm", ... */
    char message[512];
    uint64_t failed_us;
    int failed_node; /* -1: no node in particular */

    uint64_t hash; /* hash of every event delivered and every action taken */
    uint64_t timers, events, actions, messages, chunks, ticks;
    uint64_t chunks_again;  /* chunks that arrived although they were stored already */
    uint64_t chunks_thrown; /* chunks of payloads that were given up before they were complete */
    uint64_t faults[TW_SIM_FAULTS_COUNT];
    uint64_t power_tokens;    /* run clock of the newest checkpoint at the last power cut */
    uint64_t power_recovered; /* power cuts after which all went on from the newest checkpoint */
    uint64_t rounds;          /* number of committed (lineage, round) pairs */
    uint64_t group_rounds;    /* rounds with several contributors */
    uint64_t first_rounds;    /* group rounds that list the first node */
    /* late in the calm (the phase without faults): pairs of contributor and part in all rounds, and
     * pairs that were not merged */
    uint64_t calm_listed, calm_missing;
    uint64_t applied, mixed, votes, lineages, loads, steps;
    uint64_t lies_told, lies_committed; /* lies except subtle ones: published, committed */
    uint64_t lied_us;                   /* time of the last commit of a lie; 0 = never */
    uint64_t strikes;                   /* strikes after an audit */
    uint64_t checks, idlers_found;      /* checks of training; verdicts on idlers */
    uint64_t given_back;           /* parts given to owners that most honest nodes had struck */
    uint64_t tries[TW_SIM_TRIES];  /* group rounds, by bit length of the ballots above the first */
    uint64_t tries_most;           /* most ballots above the first in a round */
    uint64_t merges, merges_whole; /* merges with a partner; exchanges that both nodes merged */
    uint64_t merges_deserted;      /* one-sided outcomes that the merging node knows of */
    uint64_t phis_unread; /* outer steps taken alone because the partner's phi was unreadable or an
                             outlier */
    double consensus_end; /* rms distance of the anchors from their mean, at the end */
    uint64_t tokens;      /* in pairs: tokens trained by all nodes in all lives */
    bool is_overrun;      /* faults left more traitors than a roster survives: the world ended */
    uint64_t reduced_parts; /* parts of committed rounds that were merged by nodes that reduce */
    uint64_t trainer_bytes; /* bytes of results sent by nodes that train */
    uint32_t sybils_seated; /* most sybils in one roster */
    uint64_t bases;         /* records that name the state before their round */
    uint64_t false_states;  /* states offered by traitors with the lie "donor" */
    uint64_t false_donors;  /* reports of honest nodes that name the donor of a false state */
    uint64_t calm_paced;    /* rounds of the slowest honest node in the second half of the calm */
    /* with crews: */
    uint64_t crew_lost;     /* contributions whose CREW a hand did not find */
    uint64_t tokens_listed; /* tokens of hands that records list */
    uint64_t tokens_due;    /* tokens that they should list: those up to the newest answer to each
                               hand, without those before its first contribution */
    uint64_t tokens_open;   /* most tokens of a hand since then */
    double node_hours;      /* hours that the nodes ran, summed over nodes */
    double loss_start,
        loss_end;          /* loss of the initial model; mean loss of the running nodes' anchors */
    uint64_t clock_tokens; /* greatest clock at the end */
    /* one half of the nodes in the partition that the options define (split_us to split_end_us) */
    struct tw_sim_side {
        double loss;     /* lowest loss of an anchor of this half, at the end of the partition */
        uint64_t rounds; /* most rounds of a node of this half, at that time */
        uint64_t rounds_before,
            lineages; /* most rounds at the start; lineages at the end of the partition */
    } sides[2];
    uint32_t lineages_end, members_end, running_end, finished_end;
    uint64_t histogram[TW_SIM_STATES][TW_SIM_EVENTS];
    struct tw_sim_use use[2];  /* of the nodes in the mesh; of the others */
    struct tw_sim_costs costs; /* without is_costed, only the counts of signatures */
};

/* Runs to the end or to the first broken invariant. `trace` may be NULL. The same options give the
 * same result to the bit. A failed assertion of the core is a violation of invariant 23. */
void tw_sim_run(const struct tw_sim_options *options, struct tw_sim_result *result, FILE *trace);

uint64_t tw_sim_result_faults(const struct tw_sim_result *result);

/* Returns the name of a column of the histogram: "STEP", or "COMMIT" for a message kind. */
const char *tw_sim_event_name(uint32_t event);

/* Print a run as one screen of text, as a JSON object, and as a table of (state, event) counts. */
void tw_sim_result_print(const struct tw_sim_options *options, const struct tw_sim_result *result,
                         FILE *file);
void tw_sim_result_json(const struct tw_sim_options *options, const struct tw_sim_result *result,
                        FILE *file);
void tw_sim_histogram_print(const struct tw_sim_result *result, FILE *file);

#endif
