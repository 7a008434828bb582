/* tensor_list.h - the value of model.tensors: names and shapes of a run's tensors as one line of
 * text. PROTOCOL.md section 4. Pure.
 *
 *     model.embed_tokens.weight:32000x2048 model.layers.{0-15}.mlp.up_proj.weight:8192x2048
 *
 * Entries are separated by one blank. Braces enclose the numbers of the layers or experts that
 * share the entry: numbers and ranges, ascending. Neighbouring entries with the same text up to a
 * closing brace form a group. A group is expanded number by number: all its tensors of one layer,
 * then all of the next layer. */
#ifndef TW_PROTO_RUN_TENSOR_LIST_H
#define TW_PROTO_RUN_TENSOR_LIST_H

#include <stdint.h>

#include "base/limits.h"
#include "base/status.h"

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

#endif
