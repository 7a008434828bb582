/* layout.h - the tensors of a run: their list as text, their offsets and fragments, and the
 * payloads that nodes keep of them. Pure. */
#ifndef TW_PROTO_RUN_LAYOUT_H
#define TW_PROTO_RUN_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/status.h"
#include "proto/run/run.h"

/* ---- model.tensors -------------------------------------------------------------------------- */

/* The value of model.tensors: names and shapes of a run's tensors as one line of
 * text. PROTOCOL.md section 4. Pure.
 *
 *     model.embed_tokens.weight:32000x2048 model.layers.{0-15}.mlp.up_proj.weight:8192x2048
 *
 * Entries are separated by one blank. Braces enclose the numbers of the layers or experts that
 * share the entry: numbers and ranges, ascending. Neighbouring entries with the same text up to a
 * closing brace form a group. A group is expanded number by number: all its tensors of one layer,
 * then all of the next layer. */

enum {
    TW_TENSOR_BRACES_MAX = 2,      /* pairs of braces in a name: layers and experts */
    TW_TENSOR_NUMBER_MAX = 999999, /* largest number of a layer or an expert */
};

/* Largest number of elements of all tensors together. */
#define TW_TENSOR_ELEMENTS_MAX (UINT64_C(1) << 40)

struct tw_tensor_shape {
    uint32_t rank;                      /* 1 to TW_TENSOR_RANK_MAX */
    uint32_t sides[TW_TENSOR_RANK_MAX]; /* sizes of the dimensions, each at least 1, then zeros;
                                           row-major */
};

/* Returns the number of elements, below 2^40 for a shape of a checked list. */
uint64_t tw_tensor_shape_elements(const struct tw_tensor_shape *shape);

struct tw_tensor_list_size {
    uint32_t tensors; /* at most TW_TENSORS_MAX */
    uint32_t layers;  /* largest count of numbers in the first braces of a name; 1 without braces */
    uint64_t elements;
};

/* Checks that the text is a list of at least one tensor, within every bound and without duplicate
 * names, and sets *size. Returns TW_CONFIG otherwise; the message names the entry. */
enum tw_status tw_tensor_list_check(const char *text, struct tw_tensor_list_size *size,
                                    struct tw_error *err);

/* Calls take(self, name, shape) for every tensor of a checked list, in order. `name` has at most
 * TW_TENSOR_NAME_BYTES - 1 characters and is valid during the call. */
void tw_tensor_list_expand(const char *text,
                           void (*take)(void *self, const char *name,
                                        const struct tw_tensor_shape *shape),
                           void *self);

/* Writes a number in decimal, at most 20 digits, without NUL. Returns the address after the last
 * digit. */
char *tw_tensor_append_number(char *to, uint64_t number);

/* ---- offsets and fragments ------------------------------------------------------------------ */

/* The offset and fragment of every tensor of a run's model.
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

/* ---- payloads kept for others --------------------------------------------------------------- */

/* Payloads that a node keeps for others, by the size of the model: all nodes of a run keep
 * the same, and the daemon names their memory before it starts. */

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
