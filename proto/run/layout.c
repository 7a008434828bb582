#include "proto/run/layout.h"

#include <stddef.h>
#include <string.h>

#include "base/assert.h"

static char *append_text(char *to, const char *from) {
    while (*from != '\0') *to++ = *from++;
    *to = '\0';
    return to;
}

/* Names for the sizes of a tensor's dimensions, each computed from the run. */
enum size { NONE, WIDTH, Q, KV, QKV, FFN, HEAD, SIZES_COUNT };

struct row {
    const char *name;
    enum size rows, cols; /* cols = NONE: a vector */
    enum { ALWAYS, IF_QKV_BIAS, IF_QK_NORM } when;
    bool is_residual;
};

static const struct row gpt2_rows[] = {
    {".ln_1.weight", WIDTH, NONE, ALWAYS, false},
    {".ln_1.bias", WIDTH, NONE, ALWAYS, false},
    {".attn.c_attn.weight", WIDTH, QKV, ALWAYS, false},
    {".attn.c_attn.bias", QKV, NONE, ALWAYS, false},
    {".attn.c_proj.weight", Q, WIDTH, ALWAYS, true},
    {".attn.c_proj.bias", WIDTH, NONE, ALWAYS, false},
    {".ln_2.weight", WIDTH, NONE, ALWAYS, false},
    {".ln_2.bias", WIDTH, NONE, ALWAYS, false},
    {".mlp.c_fc.weight", WIDTH, FFN, ALWAYS, false},
    {".mlp.c_fc.bias", FFN, NONE, ALWAYS, false},
    {".mlp.c_proj.weight", FFN, WIDTH, ALWAYS, true},
    {".mlp.c_proj.bias", WIDTH, NONE, ALWAYS, false},
    {NULL, NONE, NONE, ALWAYS, false},
};

static const struct row llama_rows[] = {
    {".input_layernorm.weight", WIDTH, NONE, ALWAYS, false},
    {".self_attn.q_proj.weight", Q, WIDTH, ALWAYS, false},
    {".self_attn.k_proj.weight", KV, WIDTH, ALWAYS, false},
    {".self_attn.v_proj.weight", KV, WIDTH, ALWAYS, false},
    {".self_attn.q_proj.bias", Q, NONE, IF_QKV_BIAS, false},
    {".self_attn.k_proj.bias", KV, NONE, IF_QKV_BIAS, false},
    {".self_attn.v_proj.bias", KV, NONE, IF_QKV_BIAS, false},
    {".self_attn.q_norm.weight", HEAD, NONE, IF_QK_NORM, false},
    {".self_attn.k_norm.weight", HEAD, NONE, IF_QK_NORM, false},
    {".self_attn.o_proj.weight", WIDTH, Q, ALWAYS, true},
    {".post_attention_layernorm.weight", WIDTH, NONE, ALWAYS, false},
    {".mlp.gate_proj.weight", FFN, WIDTH, ALWAYS, false},
    {".mlp.up_proj.weight", FFN, WIDTH, ALWAYS, false},
    {".mlp.down_proj.weight", WIDTH, FFN, ALWAYS, true},
    {NULL, NONE, NONE, ALWAYS, false},
};

/* Names of the tensors in each model family. */
static const struct family {
    const char *layer; /* text before the layer number in a tensor's name */
    const struct row *rows;
    const char *tokens, *positions, *norm_weight, *norm_bias; /* NULL: no such tensor */
} families[] = {
    [TW_FAMILY_GPT2] = {"h.", gpt2_rows, "wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"},
    [TW_FAMILY_LLAMA] = {"model.layers.", llama_rows, "model.embed_tokens.weight", NULL,
                         "model.norm.weight", NULL},
};

static struct tw_tensor *add(struct tw_layout *layout, const char *name, uint32_t fragment,
                             uint32_t rows, uint32_t cols) {
    TW_ASSERT(layout->tensors_count < TW_TENSORS_MAX);
    struct tw_tensor *tensor = &layout->tensors[layout->tensors_count++];
    memset(tensor, 0, sizeof(*tensor));
    (void)append_text(tensor->name, name);
    tensor->fragment = fragment;
    tensor->rows = rows;
    tensor->cols = cols == 0 ? 1 : cols;
    tensor->shape.rank = cols == 0 ? 1 : 2;
    tensor->shape.sides[0] = rows;
    tensor->shape.sides[1] = cols;
    tensor->has_decay = cols != 0;
    return tensor;
}

static bool has_row(const struct tw_run *run, const struct row *row) {
    if (row->when == IF_QKV_BIAS) return run->model.qkv_bias == TW_YES;
    if (row->when == IF_QK_NORM) return run->model.qk_norm == TW_YES;
    return true;
}

static uint32_t rows_count(const struct tw_run *run) {
    uint32_t count = 0;
    for (const struct row *row = families[run->model.family].rows; row->name != NULL; row++)
        count += has_row(run, row);
    return count;
}

static void find_sizes(uint64_t sizes[SIZES_COUNT], const struct tw_run *run) {
    const struct tw_run_shape shape = tw_run_shape(run);
    sizes[NONE] = 0;
    sizes[WIDTH] = run->model.width;
    sizes[Q] = shape.q_width;
    sizes[KV] = shape.kv_width;
    sizes[QKV] = shape.q_width + 2 * shape.kv_width;
    sizes[FFN] = shape.ffn;
    sizes[HEAD] = shape.head_size;
}

static void add_layer(struct tw_layout *layout, const struct tw_run *run, uint32_t layer,
                      uint32_t fragment) {
    const struct family *family = &families[run->model.family];
    uint64_t sizes[SIZES_COUNT];
    find_sizes(sizes, run);
    char name[sizeof(layout->tensors[0].name)];
    for (const struct row *row = family->rows; row->name != NULL; row++) {
        if (!has_row(run, row)) continue;
        (void)append_text(tw_tensor_append_number(append_text(name, family->layer), layer),
                          row->name);
        const uint32_t cols = (uint32_t)sizes[row->cols];
        struct tw_tensor *tensor = add(layout, name, fragment, (uint32_t)sizes[row->rows], cols);
        tensor->is_hidden = cols != 0;
        tensor->is_residual = row->is_residual;
    }
}

static uint32_t fragment_of_layer(const struct tw_run *run, uint32_t layer) {
    const uint32_t shared = run->sync.fragments - 1; /* number of fragments that contain layers */
    if (shared == 0) return 0;
    if (run->sync.pattern == TW_PATTERN_STRIDED) return 1 + layer % shared;
    return 1 + (uint32_t)((uint64_t)layer * shared / run->model.layers);
}

/* Assigns every tensor its offset: fragment after fragment, within each in the model's order. */
static void place(struct tw_layout *layout) {
    uint64_t at = 0;
    for (uint32_t fragment = 0; fragment < layout->fragments_count; fragment++) {
        layout->fragment_begin[fragment] = at;
        for (uint32_t i = 0; i < layout->tensors_count; i++) {
            struct tw_tensor *tensor = &layout->tensors[i];
            if (tensor->fragment != fragment) continue;
            tensor->offset = at;
            at += (uint64_t)tensor->rows * tensor->cols;
            layout->params += (uint64_t)tensor->rows * tensor->cols;
        }
        at = (at + TW_PART_ALIGN - 1) / TW_PART_ALIGN * TW_PART_ALIGN;
    }
    layout->fragment_begin[layout->fragments_count] = at;
    layout->elements = at;
}

/* ---- fragments that begin inside tensors ----------------------------------------------------- */

/* Divides the sequence of tensors, whose offsets are set, into fragments of equal size. */
static void cut(struct tw_layout *layout) {
    layout->is_cut = true;
    const uint64_t units = (layout->params + TW_PART_ALIGN - 1) / TW_PART_ALIGN;
    layout->elements = units * TW_PART_ALIGN;
    for (uint32_t p = 0; p <= layout->fragments_count; p++)
        layout->fragment_begin[p] = units * p / layout->fragments_count * TW_PART_ALIGN;
    uint32_t fragment = 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        while (layout->tensors[i].offset >= layout->fragment_begin[fragment + 1]) fragment++;
        layout->tensors[i].fragment = fragment;
    }
}

/* Returns true if a fragment of whole layers or an embedding is too large for one payload, and
 * equal ranges are not. */
static bool must_cut(const struct tw_layout *layout) {
    bool is_large = false;
    for (uint32_t p = 0; p < layout->fragments_count; p++)
        is_large |= layout->fragment_begin[p + 1] - layout->fragment_begin[p] >
                    (uint64_t)TW_FRAGMENT_ELEMENTS_MAX;
    return is_large && tw_layout_fragments_least(layout->params) <= layout->fragments_count;
}

/* Assigns every tensor its offset in one sequence, in the model's order, and divides that into
 * fragments. */
static void place_in_sequence(struct tw_layout *layout) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        layout->tensors[i].offset = at;
        at += (uint64_t)layout->tensors[i].rows * layout->tensors[i].cols;
    }
    cut(layout);
}

/* ---- runs of any model ----------------------------------------------------------------------- */

static void take_tensor(void *self, const char *name, const struct tw_tensor_shape *shape) {
    struct tw_layout *layout = self;
    const uint64_t elements = tw_tensor_shape_elements(shape);
    struct tw_tensor *tensor = add(layout, name, 0, shape->sides[0], 0);
    tensor->shape = *shape;
    tensor->cols = (uint32_t)(elements / shape->sides[0]);
    tensor->has_decay = tensor->is_hidden = shape->rank > 1;
    tensor->offset = layout->params;
    layout->params += elements;
}

static void init_tensors(struct tw_layout *layout, const struct tw_run *run) {
    tw_tensor_list_expand(run->model.tensors, take_tensor, layout);
    cut(layout);
}

uint64_t tw_layout_family_params(const struct tw_run *run) {
    const struct family *family = &families[run->model.family];
    const uint64_t width = run->model.width, vocab = run->model.vocab;
    uint64_t sizes[SIZES_COUNT], layer = 0;
    find_sizes(sizes, run);
    for (const struct row *row = family->rows; row->name != NULL; row++)
        if (has_row(run, row))
            layer += sizes[row->rows] * (row->cols == NONE ? 1 : sizes[row->cols]);
    return layer * run->model.layers + vocab * width * (run->model.is_tied ? 1 : 2) + width +
           (family->positions != NULL ? run->model.context * width : 0) +
           (family->norm_bias != NULL ? width : 0);
}

uint64_t tw_layout_fragments_least(uint64_t elements) {
    enum { UNITS_MAX = TW_FRAGMENT_ELEMENTS_MAX / TW_PART_ALIGN };
    const uint64_t units = (elements + TW_PART_ALIGN - 1) / TW_PART_ALIGN;
    return (units + UNITS_MAX - 1) / UNITS_MAX;
}

static enum tw_status fail_size(const struct tw_layout *layout, struct tw_error *err) {
    const uint64_t least = tw_layout_fragments_least(layout->params);
    if (least > TW_FRAGMENTS_MAX)
        return tw_fail(err, TW_LIMIT,
                       "the model has %llu parameters, and %d fragments of at most %d fit one "
                       "transfer each between nodes: train a smaller model, or fewer tensors "
                       "(`thinwire run new --tensors FILE --train PATTERN`), such as adapters",
                       (unsigned long long)layout->params, TW_FRAGMENTS_MAX,
                       TW_FRAGMENT_ELEMENTS_MAX);
    return tw_fail(err, TW_LIMIT,
                   "%llu parameters in %u fragments are too much for one transfer between nodes, "
                   "which holds at most %d: set sync.fragments = %llu or more",
                   (unsigned long long)layout->params, layout->fragments_count,
                   TW_FRAGMENT_ELEMENTS_MAX, (unsigned long long)least);
}

/* ---- every run ------------------------------------------------------------------------------- */

static enum tw_status init_family(struct tw_layout *layout, const struct tw_run *run,
                                  struct tw_error *err) {
    const struct family *family = &families[run->model.family];
    const uint32_t width = run->model.width, vocab = run->model.vocab;
    const uint64_t tensors = 4 + (uint64_t)rows_count(run) * run->model.layers;
    if (tensors > TW_TENSORS_MAX)
        return tw_fail(err, TW_LIMIT, "model.layers = %u makes %llu tensors; at most %d fit",
                       run->model.layers, (unsigned long long)tensors, TW_TENSORS_MAX);
    (void)add(layout, family->tokens, 0, vocab, width);
    if (family->positions != NULL)
        (void)add(layout, family->positions, 0, run->model.context, width);
    for (uint32_t layer = 0; layer < run->model.layers; layer++)
        add_layer(layout, run, layer, fragment_of_layer(run, layer));
    (void)add(layout, family->norm_weight, 0, width, 0);
    if (family->norm_bias != NULL) (void)add(layout, family->norm_bias, 0, width, 0);
    if (!run->model.is_tied) (void)add(layout, "lm_head.weight", 0, vocab, width);
    place(layout);
    if (must_cut(layout)) place_in_sequence(layout);
    return TW_OK;
}

enum tw_status tw_layout_init(struct tw_layout *layout, const struct tw_run *run,
                              struct tw_error *err) {
    TW_TRY(tw_run_check(run, err));
    memset(layout, 0, sizeof(*layout));
    layout->fragments_count = run->sync.fragments;
    layout->momentum = tw_run_momentum(run);
    if (run->model.family != TW_FAMILY_TENSORS) return init_family(layout, run, err);
    init_tensors(layout, run);
    return TW_OK;
}

enum tw_status tw_layout_check_group(const struct tw_layout *layout, struct tw_error *err) {
    for (uint32_t i = 0; i < layout->fragments_count; i++) {
        const uint64_t elements = layout->fragment_begin[i + 1] - layout->fragment_begin[i];
        if (elements > TW_FRAGMENT_ELEMENTS_MAX) return fail_size(layout, err);
    }
    return TW_OK;
}

uint64_t tw_layout_largest(const struct tw_layout *layout) {
    uint64_t largest = 0;
    for (uint32_t p = 0; p < layout->fragments_count; p++) {
        const uint64_t elements = layout->fragment_begin[p + 1] - layout->fragment_begin[p];
        if (elements > largest) largest = elements;
    }
    return largest;
}

const struct tw_tensor *tw_layout_find(const struct tw_layout *layout, const char *name) {
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        if (strcmp(layout->tensors[i].name, name) == 0) return &layout->tensors[i];
    }
    return NULL;
}

void tw_layout_part(uint64_t elements, const uint32_t *weights, uint32_t parts_count, uint32_t part,
                    uint64_t *begin, uint64_t *count) {
    TW_ASSERT(parts_count > 0);
    TW_ASSERT(parts_count <= TW_PARTS_MAX);
    TW_ASSERT(part < parts_count);
    TW_ASSERT(elements % TW_PART_ALIGN == 0);
    TW_ASSERT(elements <= TW_FRAGMENT_ELEMENTS_MAX);
    uint64_t before = 0, own = 0, total = 0;
    for (uint32_t i = 0; i < parts_count; i++) {
        before += i < part ? weights[i] : 0;
        own += i == part ? weights[i] : 0;
        total += weights[i];
    }
    if (total == 0) {
        before = part;
        own = 1;
        total = parts_count;
    }
    /* units < 2^17 and sums of weights < 2^36, so the products fit. */
    const uint64_t units = elements / TW_PART_ALIGN;
    const uint64_t first = units * before / total, last = units * (before + own) / total;
    *begin = first * TW_PART_ALIGN;
    *count = (last - first) * TW_PART_ALIGN;
}
