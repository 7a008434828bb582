/* state_sample.h - a small model, its arrays and a position, for tests of stored state. */
#ifndef TW_TESTS_DAEMON_STORE_STATE_SAMPLE_H
#define TW_TESTS_DAEMON_STORE_STATE_SAMPLE_H

#include "daemon/store/checkpoint.h"

/* The five arrays of one node; m and v are float32 or, in the same bytes, bf16. */
struct sample_arrays {
    uint8_t *kinds[TW_CHECKPOINT_KINDS]; /* (layout->elements * 4) bytes, zeroed */
    struct tw_checkpoint_arrays at;
};

/* A model with the names and shapes of a small GPT-2: `layers` layers of the given width in
 * `fragments` fragments. Sets only run->model. */
void sample_layout(struct tw_layout *layout, struct tw_run *run, uint32_t layers, uint32_t width,
                   uint32_t fragments);

void sample_arrays_init(struct sample_arrays *arrays, const struct tw_layout *layout, bool bf16);
void sample_arrays_deinit(struct sample_arrays *arrays);

/* Fills all tensors with numbers drawn from the seed, the kind and the tensor's name. They are the
 * same for every layout of the same model, and exact in bf16. */
void sample_fill(struct sample_arrays *arrays, const struct tw_layout *layout, uint64_t seed);

/* Returns true if all tensors of the kind are as sample_fill makes them. */
bool sample_matches(const struct sample_arrays *arrays, const struct tw_layout *layout,
                    enum tw_checkpoint_kind kind, uint64_t seed);

/* Makes a state with a position in a lineage of `rounds` rounds. It has a tip if rounds > 0. */
void sample_state(struct tw_checkpoint_state *state, uint32_t fragments, uint64_t rounds,
                  uint64_t seed);

void sample_vote(struct tw_vote *vote, uint64_t round, uint64_t seed);

#endif
