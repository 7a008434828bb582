/* config.h - the configuration of a node. */
#ifndef TW_SYNC_CORE_CONFIG_H
#define TW_SYNC_CORE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/rate.h"

enum { TW_JUDGES_MIN = 5 }; /* for judges_min; the robust merges want as many */

struct tw_node_config {
    struct tw_id self;
    struct tw_id run; /* run id: parent of every first lineage */
    uint64_t seed;
    uint32_t boot;

    /* the run, from its manifest */
    uint32_t fragments_count;
    uint64_t fragment_elements[TW_FRAGMENTS_MAX];
    uint32_t period_steps;  /* inner steps between two rounds of any fragment: H / P, >= 1 */
    uint32_t overlap_steps; /* tau */
    uint64_t pace_us;       /* clock pace: time between rounds; 0 = steps pace */
    uint64_t overlap_us;    /* clock pace: tau at the planned speed; 0 = steps pace */
    uint32_t quorum;
    uint64_t grace_us;
    uint64_t budget_tokens;
    uint32_t members_max;
    bool has_result_codec; /* results are in another codec than outer gradients */
    bool is_pair;          /* topology: two by two (pair.c) instead of one group */
    uint64_t step_tokens;  /* of one inner step; pairs only */
    /* From so many tokens of the clock on nothing is merged any more, and each of so many nodes
     * trains its share of what is left of the budget, its clock running for all of them. Topology
     * solo: from 0 on. alone_nodes 0: nodes merge to the end. */
    uint64_t together_tokens;
    uint32_t alone_nodes;

    /* this node */
    uint32_t weight;    /* share of parts it offers to own, > 0 */
    uint64_t orphan_us; /* no majority for this long: form a child lineage (120 s) */
    /* What the chunks that are asked for are paid from, in bytes; borrowed for the node's life,
     * shared with whoever else downloads. NULL: no cap. */
    struct tw_rate *download;
    /* Insane results are refused in rosters of so many. In a smaller group one honest member that
     * is new, or back after long, makes a merge as unlike those before as a lie would be: there
     * only wild ones are. */
    uint32_t judges_min;
#ifdef TW_MUTANTS
    int mutant; /* enum tw_mutant: a bug switched on, in tests of the simulator alone */
#endif
};

#endif
