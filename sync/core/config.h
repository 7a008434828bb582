/* config.h - the configuration of a node. */
#ifndef TW_SYNC_CORE_CONFIG_H
#define TW_SYNC_CORE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/rate.h"
#include "proto/message.h"
#include "proto/proof.h"
#include "proto/worker_request.h"

enum { TW_REFUSED_MAX = 16 };

enum { TW_JUDGES_MIN = 5 }; /* default of judges_min; robust merge rules also need five members */

/* Signature functions, which the runtime provides. Both are pure, and Ed25519 is deterministic, so
 * the same events still give the same actions. */
struct tw_signing {
    void *key; /* signing key of this node; borrowed for its life */
    void (*sign)(void *key, const void *text, size_t size, uint8_t signature[TW_SIGNATURE_BYTES]);
    /* True if the node `id` signed text[size]. */
    bool (*is_signed)(const struct tw_id *id, const void *text, size_t size,
                      const uint8_t signature[TW_SIGNATURE_BYTES]);
};

/* Payload sizes. They depend on the codecs, which the core does not know. */
struct tw_sizes {
    const void *run; /* borrowed for the node's life */
    /* Returns the largest size in bytes of a payload with this content and `elements` elements.
     * With OPAQUE, the payload is the packed (phi, u) of a fragment with `elements` elements. Equal
     * on all nodes of a run. NULL: only TW_PAYLOAD_BYTES_MAX bounds a payload. */
    uint64_t (*bytes_max)(const void *run, enum tw_content content, uint64_t elements);
};

struct tw_node_config {
    struct tw_id self;
    struct tw_id run; /* run id; also the parent of every lineage that did not fork from another */
    uint64_t seed;
    uint32_t boot;

    /* values from the run manifest */
    uint32_t fragments_count;
    uint64_t fragment_elements[TW_FRAGMENTS_MAX];
    uint32_t period_steps;  /* inner steps between two rounds of any fragment, >= 1: period /
                               fragments */
    uint32_t overlap_steps; /* tau: inner steps from sending a contribution to applying the round */
    uint64_t pace_us; /* time between rounds with sync.pace = clock; 0 with sync.pace = steps */
    uint64_t
        overlap_us; /* time of the overlap at the planned speed, with sync.pace = clock; else 0 */
    uint32_t quorum;
    uint64_t grace_us;
    uint64_t budget_tokens;
    uint32_t members_max;
    bool has_result_codec; /* results use another codec than outer gradients */
    bool is_pair;          /* topology pair (pair/pair.c) instead of one group */
    bool has_own_start;    /* each node starts from different weights: another trainer supplies the
                              model */
    uint64_t step_tokens;  /* planned tokens of one inner step; 0: unknown, so no bound is derived
                              from it */
    /* When the run clock reaches this value, merging ends (topology solo: 0). From then on, each of
     * alone_nodes nodes trains an equal part of the remaining tokens alone, and its own clock
     * counts each of its tokens alone_nodes times. With alone_nodes = 0, nodes merge to the end. */
    uint64_t together_tokens;
    uint32_t alone_nodes;

    /* this node */
    struct tw_signing signing;
    struct tw_sizes sizes;
    bool has_rights;        /* certificates say which nodes may vote (security.admission = owner);
                               otherwise every member votes */
    bool lacks_vote;        /* this node's certificate gives no vote: it founds no lineage, and its
                               seat is one without a vote (sync/core/voters.h) */
    enum tw_node_role role; /* a node that does not train votes and serves, and announces in each
                               round that it contributes nothing; one that reduces owns parts too */
    uint32_t weight;        /* relative size of the parts that this node wants to own, > 0 */
    uint64_t orphan_us;     /* time without a majority, after which this node founds a child lineage
                               (120 s) */
    /* Lineages that this node neither continues nor follows, because its operator rolled it back. A
     * position in one of them begins a child lineage instead. */
    uint32_t refused_count;
    struct tw_id refused[TW_REFUSED_MAX];
    /* Lineage of nobody (DESIGN.md, Recall): a node without a position waits in it for the run's
     * state, and founds no lineage. Zero: the node founds one. */
    struct tw_id awaited;
    /* Download rate limit that is charged for each requested chunk, in bytes. Borrowed for the
     * node's life, and shared with other downloads. NULL: no limit. */
    struct tw_rate *download;
    /* Roster size from which outlier results are refused. A smaller group refuses only extreme
     * results: an honest member that is new or was away for long can make a merge an outlier. */
    uint32_t judges_min;
    /* From the run manifest: share of listed contributions that are checked for training on their
     * sender's data (check/jury.h), in millionths. Needs a worker that answers JUDGE. */
    uint32_t jury_millionths;
#ifdef TW_MUTANTS
    int mutant; /* enum tw_mutant that is switched on; tests of the simulator only */
#endif
};

#endif
