/* layout.c - the tensors of a run as text, their offsets and fragments, and the sizes that follow.
 */
#include "proto/run/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"

/* ---- model.tensors -------------------------------------------------------------------------- */

/* One entry of the list, as positions in the text. */
struct entry {
    const char *name, *end; /* name including braces; `end` is the colon after it */
    uint32_t braces_count;
    struct {
        const char *from, *end; /* text between the braces */
    } braces[TW_TENSOR_BRACES_MAX];
    struct tw_tensor_shape shape;
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '.' ||
           c == '_' || c == '-';
}

uint64_t tw_tensor_shape_elements(const struct tw_tensor_shape *shape) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < shape->rank; i++) elements *= shape->sides[i];
    return elements;
}

/* ---- one entry ------------------------------------------------------------------------------- */

/* Reads a decimal of at most `max` without leading zeros. Returns false for any other text. */
static bool take_number(const char **at, uint64_t max, uint64_t *number) {
    const char *from = *at;
    *number = 0;
    if (!is_digit(*from) || (from[0] == '0' && is_digit(from[1]))) return false;
    for (; is_digit(*from); from++) {
        *number = *number * 10 + (uint64_t)(*from - '0');
        if (*number > max) return false;
    }
    *at = from;
    return true;
}

/* Reads the next number or range between two braces. */
static bool take_range(const char **at, uint64_t *first, uint64_t *last) {
    *last = 0;
    if (!take_number(at, TW_TENSOR_NUMBER_MAX, first)) return false;
    *last = *first;
    if (**at != '-') return true;
    (*at)++;
    return take_number(at, TW_TENSOR_NUMBER_MAX, last) && *last > *first;
}

/* Counts the numbers between two braces. Returns 0 unless they are two or more, ascending, in the
 * shortest form. */
static uint64_t count_numbers(const char *from, const char *end) {
    uint64_t count = 0, least = 0;
    for (;;) {
        uint64_t first, last;
        if (!take_range(&from, &first, &last) || from > end || first < least) return 0;
        count += last - first + 1;
        least = last + 2; /* last + 1 is refused: the shortest form includes it in the range */
        if (from == end) return count >= 2 ? count : 0;
        if (*from++ != ',') return 0;
    }
}

static const char *take_name(const char *at, struct entry *entry) {
    entry->name = at;
    entry->braces_count = 0;
    for (; *at != ':'; at++) {
        if (*at == '{') {
            const char *end = strchr(at, '}');
            const uint32_t i = entry->braces_count++;
            if (end == NULL) return "has an open brace";
            if (i == TW_TENSOR_BRACES_MAX) return "has more than two pairs of braces";
            entry->braces[i].from = at + 1;
            entry->braces[i].end = end;
            if (count_numbers(at + 1, end) == 0)
                return "needs two or more ascending numbers in braces, such as {0-3} or {0-2,5}";
            at = end;
        } else if (!is_name_character(*at)) {
            return *at == '\0' || *at == ' ' ? "has no shape: it is written NAME:ROWSxCOLS"
                                             : "has a name with other characters than "
                                               "A-Z, a-z, 0-9, point, hyphen and underscore";
        }
    }
    entry->end = at;
    return at == entry->name ? "has no name" : NULL;
}

static const char *take_shape(const char **at, struct tw_tensor_shape *shape) {
    uint64_t side, elements = 1, below = 1;
    *shape = (struct tw_tensor_shape){0};
    do {
        (*at)++; /* skips the colon or x */
        if (shape->rank == TW_TENSOR_RANK_MAX) return "has a shape of more than 6 numbers";
        if (!take_number(at, INT32_MAX, &side) || side == 0)
            return "has a shape that is not of numbers from 1 to 2147483647 with x between";
        if (elements > TW_TENSOR_ELEMENTS_MAX / side) return "has more than 2^40 elements";
        elements *= side;
        below *= shape->rank > 0 ? side : 1;
        if (below > UINT32_MAX) return "has rows of more than 2^32 elements";
        shape->sides[shape->rank++] = (uint32_t)side;
    } while (**at == 'x');
    return **at == '\0' || **at == ' ' ? NULL : "has characters after its shape";
}

/* Reads the entry at *at and the blank after it. Returns NULL, or the reason why it is malformed.
 */
static const char *take_entry(const char **at, struct entry *entry) {
    const char *why = take_name(*at, entry);
    if (why != NULL) return why;
    *at = entry->end;
    why = take_shape(at, &entry->shape);
    if (why == NULL && **at == ' ') (*at)++;
    return why;
}

/* ---- expansion ------------------------------------------------------------------------------- */

struct expansion {
    void (*take)(void *self, const char *name, const struct tw_tensor_shape *shape);
    void *self;
    uint64_t numbers[TW_TENSOR_BRACES_MAX]; /* numbers that currently replace the braces */
};

char *tw_tensor_append_number(char *to, uint64_t number) {
    char reversed[20];
    unsigned count = 0;
    do {
        reversed[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0) *to++ = reversed[--count];
    return to;
}

static void list_take_tensor(const struct expansion *expansion, const struct entry *entry) {
    char name[TW_TENSOR_NAME_BYTES + 32], *to = name;
    uint32_t brace = 0;
    for (const char *at = entry->name; at < entry->end; at++) {
        TW_ASSERT(to < name + TW_TENSOR_NAME_BYTES);
        if (*at == '{') {
            at = entry->braces[brace].end;
            to = tw_tensor_append_number(to, expansion->numbers[brace++]);
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
    expansion->take(expansion->self, name, &entry->shape);
}

/* Returns true if both names have the same text up to the closing brace of this level. */
static bool is_grouped(const struct entry *a, const struct entry *b, uint32_t level) {
    if (b->braces_count <= level) return false;
    const size_t size = (size_t)(a->braces[level].end - a->name);
    return size == (size_t)(b->braces[level].end - b->name) && memcmp(a->name, b->name, size) == 0;
}

/* Returns the end of the group whose first entry is the one before `next`. */
static const char *group_end(const struct entry *entry, const char *next, const char *end,
                             uint32_t level) {
    while (next < end) {
        struct entry other;
        const char *after = next;
        (void)take_entry(&after, &other);
        if (!is_grouped(entry, &other, level)) break;
        next = after;
    }
    return next;
}

/* Expands the entries of [at, end). The numbers of the first `level` pairs of braces are already
 * chosen. */
static void expand(struct expansion *expansion, const char *at, const char *end, uint32_t level) {
    while (at < end) {
        struct entry entry;
        const char *next = at;
        (void)take_entry(&next, &entry);
        if (entry.braces_count <= level) {
            list_take_tensor(expansion, &entry);
            at = next;
            continue;
        }
        next = group_end(&entry, next, end, level);
        const char *range = entry.braces[level].from;
        while (range < entry.braces[level].end) {
            uint64_t first, last;
            (void)take_range(&range, &first, &last);
            for (uint64_t n = first; n <= last; n++) {
                expansion->numbers[level] = n;
                expand(expansion, at, next, level + 1); /* the recursion is at most
                                                           TW_TENSOR_BRACES_MAX levels deep */
            }
            range++; /* skips the comma */
        }
        at = next;
    }
}

void tw_tensor_list_expand(const char *text,
                           void (*take)(void *self, const char *name,
                                        const struct tw_tensor_shape *shape),
                           void *self) {
    struct expansion expansion = {.take = take, .self = self};
    expand(&expansion, text, text + strlen(text), 0);
}

/* ---- checks ---------------------------------------------------------------------------------- */

enum { NAME_SLOTS = 2 * TW_TENSORS_MAX };

/* Hashes of the names, in a table with open addressing. Two names with equal hashes count as
 * duplicates: the chance of that is 2^-40. */
struct names {
    uint64_t slots[NAME_SLOTS]; /* 0: free */
    char twice[TW_TENSOR_NAME_BYTES];
};

static void add_name(void *self, const char *name, const struct tw_tensor_shape *shape) {
    struct names *names = self;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    (void)shape;
    for (const char *at = name; *at != '\0'; at++)
        hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    if (hash == 0) hash = 1;
    size_t i = hash % NAME_SLOTS;
    while (names->slots[i] != 0 && names->slots[i] != hash) i = (i + 1) % NAME_SLOTS;
    if (names->slots[i] == hash) memcpy(names->twice, name, strlen(name) + 1);
    names->slots[i] = hash;
}

static enum tw_status fail_entry(const char *entry, const char *why, struct tw_error *err) {
    const size_t size = strcspn(entry, " ");
    return tw_fail(err, TW_CONFIG, "model.tensors: `%.*s` %s", (int)(size < 60 ? size : 60), entry,
                   why);
}

/* Returns the length of the longest name that the entry expands to. */
static size_t name_size(const struct entry *entry) {
    size_t size = (size_t)(entry->end - entry->name);
    for (uint32_t i = 0; i < entry->braces_count; i++) {
        const char *from = entry->braces[i].from, *end = entry->braces[i].end;
        const char *last = end;
        while (last > from && is_digit(last[-1])) last--;
        size -= (size_t)(last - from) + 2; /* the last number between the braces is the longest */
    }
    return size;
}

static enum tw_status measure(const char *entry_text, const struct entry *entry,
                              struct tw_tensor_list_size *size, struct tw_error *err) {
    uint64_t count = 1;
    if (name_size(entry) >= TW_TENSOR_NAME_BYTES)
        return fail_entry(entry_text, "has a name of more than 127 characters", err);
    if (entry->end - entry->name == 12 && memcmp(entry->name, "__metadata__", 12) == 0)
        return fail_entry(entry_text, "has a name that safetensors files use for other things",
                          err);
    for (uint32_t i = 0; i < entry->braces_count; i++) {
        const uint64_t numbers = count_numbers(entry->braces[i].from, entry->braces[i].end);
        count *= numbers; /* < 2^40 */
        if (i == 0 && numbers > size->layers) size->layers = (uint32_t)numbers;
    }
    if (count > TW_TENSORS_MAX - size->tensors)
        return tw_fail(err, TW_CONFIG, "model.tensors: more than %d tensors", TW_TENSORS_MAX);
    size->tensors += (uint32_t)count;
    /* cannot overflow: below 2^12 * 2^40 */
    size->elements += count * tw_tensor_shape_elements(&entry->shape);
    if (size->elements > TW_TENSOR_ELEMENTS_MAX)
        return tw_fail(err, TW_CONFIG, "model.tensors: more than 2^40 elements");
    return TW_OK;
}

enum tw_status tw_tensor_list_check(const char *text, struct tw_tensor_list_size *size,
                                    struct tw_error *err) {
    const char *at = text;
    struct tw_tensor_list_size sum = {.layers = 1};
    if (strlen(text) >= TW_TENSORS_TEXT_BYTES)
        return tw_fail(err, TW_CONFIG, "model.tensors: more than %d characters",
                       TW_TENSORS_TEXT_BYTES - 1);
    do {
        struct entry entry;
        const char *const begin = at;
        const char *const why = take_entry(&at, &entry);
        if (why != NULL) return fail_entry(begin, why, err);
        TW_TRY(measure(begin, &entry, &sum, err));
    } while (*at != '\0' || at[-1] == ' ');
    struct names names = {{0}, {0}};
    tw_tensor_list_expand(text, add_name, &names);
    if (names.twice[0] != '\0')
        return tw_fail(err, TW_CONFIG, "model.tensors: %s is there twice", names.twice);
    *size = sum;
    return TW_OK;
}

/* ---- offsets and fragments ------------------------------------------------------------------ */

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
                       "(`thinwire run new NAME --tensors FILE --train PATTERN`), such as adapters",
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

/* ---- payloads kept for others --------------------------------------------------------------- */

static uint64_t at_least(uint64_t value, uint64_t least) {
    return value > least ? value : least;
}

static uint64_t at_most(uint64_t value, uint64_t most) {
    return value < most ? value : most;
}

struct tw_kept tw_kept(uint64_t elements, uint64_t largest, uint64_t result_bytes,
                       uint64_t rounds_most) {
    enum { SMALL_ELEMENTS = 32 << 20, SMALL_BYTES = 64 << 20, ROUNDS_LEAST = 4 };
    const uint64_t states = at_least(elements / 8, SMALL_ELEMENTS);
    const uint64_t bytes = at_least(elements / 2, SMALL_BYTES);
    struct tw_kept kept = {
        .states = at_least(at_most(states, TW_STATES_KEPT * largest), largest),
        .rounds = at_most(rounds_most, TW_RESULT_ROUNDS_MAX),
    };
    if (result_bytes > 0)
        kept.rounds = at_most(kept.rounds, at_least(bytes / result_bytes, ROUNDS_LEAST));
    return kept;
}

uint64_t tw_kept_anchor_bytes(const struct tw_layout *layout) {
    return (layout->elements + tw_layout_largest(layout)) *
           (sizeof(float) + tw_momentum_bytes(layout->momentum));
}

uint64_t tw_kept_transit_bytes(const struct tw_run *run, const struct tw_layout *layout,
                               uint64_t sent_bytes, uint64_t result_bytes) {
    /* gaps between payloads count as a contribution of each round; the pages of small payloads are
     * never given back */
    enum { CONTRIBUTIONS = 6, FLOOR_BYTES = 4 << 20 };
    if (run->sync.topology == TW_TOPOLOGY_SOLO) return 0;
    const struct tw_kept kept = tw_kept(layout->elements, tw_layout_largest(layout), result_bytes,
                                        UINT64_C(4) * layout->fragments_count);
    const uint64_t state_bytes = sizeof(float) + tw_momentum_bytes(layout->momentum);
    return FLOOR_BYTES + kept.states * state_bytes + kept.rounds * result_bytes +
           CONTRIBUTIONS * sent_bytes;
}
