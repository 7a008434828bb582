/* layout.h - the offset and fragment of every tensor of a run's model.
 *
 * Parameters, anchor, momentum and optimizer state share one order: fragment after fragment, each
 * padded with zeros to TW_PART_ALIGN elements. Fragment 0 holds the embeddings and the final norm.
 * Layer l belongs to fragment 1 + l mod (P-1) (`strided`) or to consecutive blocks (`sequential`).
 * With one fragment everything is in fragment 0. A part of a round is a range of elements of its
 * fragment, cut at multiples of TW_PART_ALIGN.
 *
 * The tensors of a run of any model (`model.family = tensors`) lie one after the other in the order
 * of model.tensors, and its fragments are equal ranges of that sequence. A fragment may begin
 * inside a tensor, and a tensor may reach over several fragments. So do the tensors of other
 * families, in the model's order, if whole layers or an embedding would make a fragment of more
 * than TW_FRAGMENT_ELEMENTS_MAX elements, and if equal ranges do not.
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
    uint32_t rows, cols; /* first side of the shape, and the product of the others; row-major */
    uint32_t fragment;   /* fragment that holds the tensor's first element */
    uint64_t offset;     /* elements from the start of the parameters */
    bool has_decay;      /* the optimizer decays it: true for matrices only */
    bool is_hidden;   /* a matrix of a layer (not an embedding or the head), which Muon updates */
    bool is_residual; /* a matrix whose product is added to the residual stream */
};

struct tw_layout {
    uint32_t tensors_count, fragments_count;
    bool is_cut;       /* fragments are ranges of one sequence of tensors */
    uint64_t params;   /* elements without padding */
    uint64_t elements; /* elements with padding; the size of every per-parameter array */
    uint64_t fragment_begin[TW_FRAGMENTS_MAX + 1]; /* elements; [fragments_count] = elements */
    struct tw_tensor tensors[TW_TENSORS_MAX];      /* in the model's order, not by offset */
};

/* Fills *layout from a run. TW_CONFIG from tw_run_check; TW_LIMIT when the model has too many
 * tensors. */
enum tw_status tw_layout_init(struct tw_layout *layout, const struct tw_run *run,
                              struct tw_error *err);

/* Parameters of a gpt2 or llama model. The run is checked. */
uint64_t tw_layout_family_params(const struct tw_run *run);

/* Least number of fragments with which a group can train so many parameters. */
uint64_t tw_layout_fragments_least(uint64_t elements);

/* Checks that every fragment fits one transfer between nodes: TW_LIMIT. Not needed for a model that
 * one machine trains alone. */
enum tw_status tw_layout_check_group(const struct tw_layout *layout, struct tw_error *err);

/* The tensor of that name, or NULL. */
const struct tw_tensor *tw_layout_find(const struct tw_layout *layout, const char *name);

/* Elements [*begin, *begin + *count) of part `part` of `parts_count`, relative to the start of a
 * fragment of `elements` elements. weights[] are relative; all zero: equal parts.
 * Boundaries are multiples of TW_PART_ALIGN; a part may be empty. */
void tw_layout_part(uint64_t elements, const uint32_t *weights, uint32_t parts_count, uint32_t part,
                    uint64_t *begin, uint64_t *count);

#endif
