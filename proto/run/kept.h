/* kept.h - payloads that a node keeps for others, by the size of the model: all nodes of a run keep
 * the same, and the daemon names their memory before it starts. */
#ifndef TW_PROTO_RUN_KEPT_H
#define TW_PROTO_RUN_KEPT_H

#include <stdint.h>

#include "proto/run/layout.h"

struct tw_kept {
    uint64_t states; /* elements of packed states for joining nodes */
    uint64_t rounds; /* rounds whose results are kept for members that missed them */
};

/* elements, largest: of the model, and of its largest fragment. result_bytes: the most bytes of a
 * merge of the largest fragment; 0: unknown. A small model keeps TW_STATES_KEPT states of its
 * largest fragment and results of up to `rounds_most` rounds. A large one keeps less: states of an
 * eighth of its elements, and half a byte of results per parameter, but always one state and
 * results of four rounds. */
struct tw_kept tw_kept(uint64_t elements, uint64_t largest, uint64_t result_bytes,
                       uint64_t rounds_most);

/* Returns the bytes of anchor, momentum and spare buffer, which daemon and worker share. */
uint64_t tw_kept_anchor_bytes(const struct tw_layout *layout);

/* Returns the most bytes of payloads in the daemon's memory at a time: packed states, kept results,
 * and the contributions of two rounds, of which a node sends one and receives one. sent_bytes,
 * result_bytes: the most bytes of a contribution and of a merge of the largest fragment. */
uint64_t tw_kept_transit_bytes(const struct tw_run *run, const struct tw_layout *layout,
                               uint64_t sent_bytes, uint64_t result_bytes);

enum { TW_RESULT_ROUNDS_MAX = 24 }; /* most rounds for which results are kept */

#endif
