/* layout.h - the offset and fragment of every tensor of a run's model.
 *
 * Parameters, anchor, momentum and optimizer state share one order: fragment after fragment, each
 * padded with zeros to a multiple of TW_PART_ALIGN elements. Fragment 0 contains the embeddings and
 * the final norm. Layer l belongs to fragment 1 + l mod (P - 1) (`strided`), or consecutive layers
 * share a fragment (`sequential`). With P = 1 everything is in fragment 0. A part of a round is a
 * range of elements of its fragment, with boundaries at multiples of TW_PART_ALIGN.
 *
 * The tensors of a run of any model (`model.family = tensors`) follow each other in the order of
 * model.tensors, and its fragments are equal ranges of that sequence. A fragment may begin inside a
 * tensor, and a tensor may span several fragments. The other families are laid out in the same way
 * if whole layers or an embedding would make a fragment of more than TW_FRAGMENT_ELEMENTS_MAX
 * elements, and equal ranges would not.
 *
 * Names and orientation are Hugging Face's. gpt2: Conv1D weights are (in, out), row-major. llama:
 * Linear weights are (out, in). The tensors of q, k, v and of gate, up are adjacent, so that each
 * group is one (out, in) matrix and its biases are one vector. */
#ifndef TW_PROTO_RUN_LAYOUT_H
#define TW_PROTO_RUN_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/status.h"
#include "proto/run/run.h"
#include "proto/run/tensor_list.h"

struct tw_tensor {
    char name[TW_TENSOR_NAME_BYTES]; /* "model.layers.3.self_attn.q_proj.weight" */
    struct tw_tensor_shape shape;
    uint32_t rows, cols; /* rows: first side of the shape; cols: the other sides multiplied;
                            row-major */
    uint32_t fragment;   /* fragment that contains the tensor's first element */
    uint64_t offset;     /* elements from the start of the parameters */
    bool has_decay;      /* weight decay applies: true for matrices only */
    bool is_hidden;   /* a matrix of a layer (not an embedding or the head), which Muon updates */
    bool is_residual; /* a matrix whose output is added to the residual stream */
};

struct tw_layout {
    uint32_t tensors_count, fragments_count;
    enum tw_momentum momentum; /* how the run keeps the outer momentum */
    bool is_cut;               /* fragments are equal ranges, and may begin inside a tensor */
    uint64_t params;           /* elements without padding */
    uint64_t elements;         /* elements with padding; the size of every per-parameter array */
    uint64_t fragment_begin[TW_FRAGMENTS_MAX + 1]; /* elements; [fragments_count] = elements */
    struct tw_tensor tensors[TW_TENSORS_MAX];      /* in the model's order, not by offset */
};

/* Fills *layout from a run. Returns TW_CONFIG if tw_run_check fails, TW_LIMIT if the model has too
 * many tensors. */
enum tw_status tw_layout_init(struct tw_layout *layout, const struct tw_run *run,
                              struct tw_error *err);

/* Returns the number of parameters of a gpt2 or llama model. The run must have been checked. */
uint64_t tw_layout_family_params(const struct tw_run *run);

/* Returns the smallest number of fragments with which a group can train a model of `elements`
 * parameters. */
uint64_t tw_layout_fragments_least(uint64_t elements);

/* Returns TW_LIMIT unless every fragment fits one payload. A model that one machine trains alone
 * needs no such check. */
enum tw_status tw_layout_check_group(const struct tw_layout *layout, struct tw_error *err);

/* Returns the elements of the largest fragment. */
uint64_t tw_layout_largest(const struct tw_layout *layout);

/* Returns the tensor of that name, or NULL. */
const struct tw_tensor *tw_layout_find(const struct tw_layout *layout, const char *name);

/* Computes the range [*begin, *begin + *count) of part `part` of `parts_count`, relative to the
 * start of a fragment of `elements` elements. Sizes are proportional to weights[]; if all are zero,
 * parts are equal. Boundaries are multiples of TW_PART_ALIGN; a part may be empty. */
void tw_layout_part(uint64_t elements, const uint32_t *weights, uint32_t parts_count, uint32_t part,
                    uint64_t *begin, uint64_t *count);

#endif
