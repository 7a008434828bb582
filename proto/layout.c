#include "proto/layout.h"

#include <stddef.h>
#include <string.h>

#include "base/assert.h"

static char *append_text(char *to, const char *from) {
    while (*from != '\0') *to++ = *from++;
    *to = '\0';
    return to;
}

static char *append_number(char *to, uint32_t number) {
    char reversed[10];
    unsigned count = 0;
    do {
        reversed[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0) *to++ = reversed[--count];
    return to;
}

static struct tw_tensor *add(struct tw_layout *layout, const char *name, uint32_t fragment) {
    TW_ASSERT(layout->tensors_count < TW_TENSORS_MAX);
    struct tw_tensor *tensor = &layout->tensors[layout->tensors_count++];
    memset(tensor, 0, sizeof(*tensor));
    (void)append_text(tensor->name, name);
    tensor->fragment = fragment;
    return tensor;
}

static void add_matrix(struct tw_layout *layout, const char *name, uint32_t fragment, uint32_t rows,
                       uint32_t cols) {
    struct tw_tensor *tensor = add(layout, name, fragment);
    tensor->rows = rows;
    tensor->cols = cols;
    tensor->rank = 2;
    tensor->has_decay = true;
}

static void add_vector(struct tw_layout *layout, const char *name, uint32_t fragment,
                       uint32_t size) {
    struct tw_tensor *tensor = add(layout, name, fragment);
    tensor->rows = size;
    tensor->cols = 1;
    tensor->rank = 1;
}

static void add_layer(struct tw_layout *layout, uint32_t layer, uint32_t fragment, uint32_t width) {
    /* Rows and columns in widths; 0 rows marks a vector of `cols` widths. */
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } rows[] = {
        {".ln_1.weight", 0, 1},      {".ln_1.bias", 0, 1},          {".attn.c_attn.weight", 1, 3},
        {".attn.c_attn.bias", 0, 3}, {".attn.c_proj.weight", 1, 1}, {".attn.c_proj.bias", 0, 1},
        {".ln_2.weight", 0, 1},      {".ln_2.bias", 0, 1},          {".mlp.c_fc.weight", 1, 4},
        {".mlp.c_fc.bias", 0, 4},    {".mlp.c_proj.weight", 4, 1},  {".mlp.c_proj.bias", 0, 1},
    };
    char name[sizeof(layout->tensors[0].name)];
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)append_text(append_number(append_text(name, "h."), layer), rows[i].name);
        if (rows[i].rows == 0) {
            add_vector(layout, name, fragment, rows[i].cols * width);
        } else {
            add_matrix(layout, name, fragment, rows[i].rows * width, rows[i].cols * width);
        }
    }
}

static uint32_t fragment_of_layer(const struct tw_run *run, uint32_t layer) {
    const uint32_t shared = run->sync.fragments - 1; /* fragments that hold layers */
    if (shared == 0) return 0;
    if (run->sync.pattern == TW_PATTERN_STRIDED) return 1 + layer % shared;
    return 1 + (uint32_t)((uint64_t)layer * shared / run->model.layers);
}

/* Gives every tensor its offset: fragment after fragment, model order within each. */
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

enum tw_status tw_layout_init(struct tw_layout *layout, const struct tw_run *run,
                              struct tw_error *err) {
    TW_TRY(tw_run_check(run, err));
    const uint64_t tensors = 4 + 12 * (uint64_t)run->model.layers;
    if (tensors > TW_TENSORS_MAX)
        return tw_fail(err, TW_LIMIT, "model.layers = %u makes %llu tensors; at most %d fit",
                       run->model.layers, (unsigned long long)tensors, TW_TENSORS_MAX);
    memset(layout, 0, sizeof(*layout));
    layout->fragments_count = run->sync.fragments;
    const uint32_t width = run->model.width;
    add_matrix(layout, "wte.weight", 0, run->model.vocab, width);
    add_matrix(layout, "wpe.weight", 0, run->model.context, width);
    for (uint32_t layer = 0; layer < run->model.layers; layer++)
        add_layer(layout, layer, fragment_of_layer(run, layer), width);
    add_vector(layout, "ln_f.weight", 0, width);
    add_vector(layout, "ln_f.bias", 0, width);
    place(layout);
    for (uint32_t i = 0; i < layout->fragments_count; i++) {
        const uint64_t elements = layout->fragment_begin[i + 1] - layout->fragment_begin[i];
        if (elements > TW_FRAGMENT_ELEMENTS_MAX)
            return tw_fail(err, TW_LIMIT,
                           "fragment %u has %llu parameters, at most %d fit one transfer: use a "
                           "smaller model or more sync.fragments",
                           i, (unsigned long long)elements, TW_FRAGMENT_ELEMENTS_MAX);
    }
    return TW_OK;
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
    /* units < 2^17 and sums < 2^36, so the products fit. */
    const uint64_t units = elements / TW_PART_ALIGN;
    const uint64_t first = units * before / total, last = units * (before + own) / total;
    *begin = first * TW_PART_ALIGN;
    *count = (last - first) * TW_PART_ALIGN;
}
