/* run.c - a run manifest as text, well-known models, and the choice of an optimizer. */
#include "proto/run/run.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"

static const char first_line[] = "thinwire-run 1\n";
enum { FIRST_LINE_BYTES = sizeof(first_line) - 1, KEYS_MAX = 128 };

/* Longest line of a run file, including NUL: that of model.tensors. */
enum { LINE_BYTES_MAX = TW_TENSORS_TEXT_BYTES + 256 };

static const char *section_title(const char *key) {
    static const char *const titles[] = {
        "model: what is trained", "data: what it is trained on", "train: how every node trains",
        "sync: how nodes merge their work", "security: which nodes may take part"};
    for (unsigned i = 0; i < sizeof(titles) / sizeof(titles[0]); i++) {
        const size_t size = (size_t)(strchr(titles[i], ':') - titles[i]);
        if (strncmp(key, titles[i], size) == 0 && key[size] == '.') return titles[i];
    }
    return "run: its name";
}

/* ---- struct to text ------------------------------------------------------------------------ */

/* Text being built. */
struct text {
    char *bytes;
    size_t size;
};

static void put(struct text *text, const char *string) {
    const size_t size = strlen(string);
    TW_ASSERT(text->size + size <= TW_MANIFEST_BYTES_MAX);
    memcpy(text->bytes + text->size, string, size);
    text->size += size;
}

static void put_line(struct text *text, const struct tw_run_key *key, const struct tw_run *run) {
    char value[TW_RUN_VALUE_BYTES];
    tw_run_key_format(key, run, value);
    put(text, key->name);
    put(text, " = ");
    put(text, value);
    put(text, "\n");
}

/* Returns whether the canonical text omits the key. */
static bool is_unsaid(const struct tw_run_key *key, const struct tw_run *run) {
    return key->is_later && tw_run_key_is_least(key, run);
}

void tw_run_encode(const struct tw_run *run, char text[TW_MANIFEST_BYTES_MAX], size_t *size_out) {
    struct text out = {text, 0};
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    put(&out, first_line);
    for (uint32_t i = 0; i < count; i++)
        if (!is_unsaid(&keys[i], run)) put_line(&out, &keys[i], run);
    *size_out = out.size;
}

void tw_run_write(const struct tw_run *run, char text[TW_MANIFEST_BYTES_MAX], size_t *size_out) {
    struct text out = {text, 0};
    uint32_t count;
    const char *title = "";
    const struct tw_run_key *keys = tw_run_keys(&count);
    put(&out, first_line);
    put(&out, "# Every node of a run must hold this file with the same values: a run is named by\n"
              "# their SHA-256. A key that is left out takes its default.\n");
    for (uint32_t i = 0; i < count; i++) {
        char accepts[160];
        if (tw_run_is_for_engine(&keys[i], run)) continue;
        if (section_title(keys[i].name) != title) {
            title = section_title(keys[i].name);
            put(&out, "\n# ---- ");
            put(&out, title);
            put(&out, "\n");
        }
        tw_run_key_accepts(&keys[i], accepts);
        put(&out, "# ");
        put(&out, keys[i].help);
        put(&out, " (");
        put(&out, accepts);
        put(&out, ")\n");
        put_line(&out, &keys[i], run);
    }
    *size_out = out.size;
}

/* ---- text to struct ------------------------------------------------------------------------ */

enum tw_status tw_run_set(struct tw_run *run, const char *key, const char *value,
                          struct tw_error *err) {
    const struct tw_run_key *found = tw_run_key_find(key);
    if (found != NULL) return tw_run_key_parse(found, value, run, err);
    const struct tw_run_key *guess = tw_run_key_guess(key);
    if (guess != NULL)
        return tw_fail(err, TW_CONFIG, "there is no key `%.40s`: did you mean %s?", key,
                       guess->name);
    return tw_fail(err, TW_CONFIG, "there is no key `%.40s`: `thinwire run keys` lists them all",
                   key);
}

/* One line of a run file, split at `=`, without comment and surrounding spaces. For a blank line,
 * both are empty. */
struct line {
    char key[LINE_BYTES_MAX], value[LINE_BYTES_MAX];
};

static void copy_trimmed(const char *from, size_t size, char to[LINE_BYTES_MAX]) {
    while (size > 0 && (from[0] == ' ' || from[0] == '\t')) from++, size--;
    while (size > 0 && (from[size - 1] == ' ' || from[size - 1] == '\t')) size--;
    TW_ASSERT(size < LINE_BYTES_MAX);
    memcpy(to, from, size);
    to[size] = '\0';
}

/* Reads the next line of text[*at .. size). `number` is its line number, for messages. */
static enum tw_status next_line(const char *text, size_t size, size_t *at, unsigned number,
                                struct line *line, struct tw_error *err) {
    const char *from = text + *at;
    const char *newline = memchr(from, '\n', size - *at);
    size_t length = newline != NULL ? (size_t)(newline - from) : size - *at;
    *at += length + (newline != NULL);
    const char *comment = memchr(from, '#', length);
    if (comment != NULL) length = (size_t)(comment - from);
    if (length > 0 && from[length - 1] == '\r') length--;
    if (length >= LINE_BYTES_MAX)
        return tw_fail(err, TW_CONFIG, "line %u is longer than %d bytes: is this a run file?",
                       number, LINE_BYTES_MAX - 1);
    if (memchr(from, '\0', length) != NULL)
        return tw_fail(err, TW_CONFIG, "line %u holds a NUL byte: is this a run file?", number);
    const char *equals = memchr(from, '=', length);
    const size_t key_size = equals != NULL ? (size_t)(equals - from) : length;
    line->value[0] = '\0';
    copy_trimmed(from, key_size, line->key);
    if (equals != NULL) copy_trimmed(equals + 1, length - key_size - 1, line->value);
    if (line->key[0] != '\0' && equals == NULL && strcmp(line->key, "thinwire-run 1") != 0)
        return tw_fail(err, TW_CONFIG, "line %u: `%.40s` is not of the form `key = value`", number,
                       line->key);
    if (line->key[0] == '\0' && equals != NULL)
        return tw_fail(err, TW_CONFIG, "line %u has no key before the `=`", number);
    return TW_OK;
}

/* Line number of each key, in table order; 0: not in the file. */
struct lines {
    unsigned of_key[KEYS_MAX];
    uint32_t count;
};

/* Refuses a truncated file: the first keys of the table in order, and no others. A short file
 * passes, because people write run files that omit keys with default values. */
static enum tw_status check_end(const struct lines *lines, const struct tw_run *run,
                                struct tw_error *err) {
    enum { BY_HAND_MAX = 8 };
    uint32_t i = 0, first = 0, last = 0, keys_count;
    const struct tw_run_key *keys = tw_run_keys(&keys_count);
    for (; i < keys_count; i++) {
        const bool is_optional = tw_run_is_for_engine(&keys[i], run) || keys[i].is_later;
        if (lines->of_key[i] == 0 && is_optional) continue;
        if (lines->of_key[i] == 0 || (first > 0 && lines->of_key[i] < lines->of_key[last])) break;
        last = i;
        first++;
    }
    if (i == keys_count || lines->count != first || first <= BY_HAND_MAX) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "it ends after %s, key %u of %u in their order: was it cut off? Copy it again; "
                   "`thinwire run new` writes them all",
                   keys[last].name, last + 1, keys_count);
}

/* Returns the size of the byte order mark with which some editors begin a UTF-8 file. */
static size_t mark_bytes(const char *text, size_t size) {
    static const char MARK[] = "\xEF\xBB\xBF";
    const size_t bytes = sizeof(MARK) - 1;
    return size >= bytes && memcmp(text, MARK, bytes) == 0 ? bytes : 0;
}

/* Sets every key in the file, and records its line number in *lines. */
static enum tw_status read_keys(const char *text, size_t size, struct lines *lines,
                                struct tw_run *run, struct tw_error *err) {
    uint32_t keys_count;
    const struct tw_run_key *keys = tw_run_keys(&keys_count);
    TW_ASSERT(keys_count <= KEYS_MAX);
    memset(lines, 0, sizeof(*lines));
    bool has_started = false;
    size_t at = mark_bytes(text, size);
    for (unsigned number = 1; at < size; number++) {
        struct line line;
        struct tw_error why;
        TW_TRY(next_line(text, size, &at, number, &line, err));
        if (line.key[0] == '\0') continue;
        if (!has_started) {
            has_started = strcmp(line.key, "thinwire-run 1") == 0;
            if (has_started) continue;
            return tw_fail(err, TW_CONFIG, "line %u: a run file starts with `thinwire-run 1`",
                           number);
        }
        if (tw_run_set(run, line.key, line.value, &why) != TW_OK)
            return tw_fail(err, TW_CONFIG, "line %u: %.220s", number, why.message);
        unsigned *seen = &lines->of_key[tw_run_key_find(line.key) - keys];
        if (*seen != 0)
            return tw_fail(err, TW_CONFIG, "line %u: %s is already set in line %u", number,
                           line.key, *seen);
        *seen = number;
        lines->count++;
    }
    if (!has_started) return tw_fail(err, TW_CONFIG, "a run file starts with `thinwire-run 1`");
    return TW_OK;
}

static bool is_whole(const struct lines *lines) {
    uint32_t keys_count;
    (void)tw_run_keys(&keys_count);
    return lines->count > keys_count / 2;
}

/* A whole file without sync.momentum_type is of before this key, or canonical text. */
static void fit_momentum_type(const struct lines *lines, struct tw_run *run) {
    uint32_t keys_count;
    const struct tw_run_key *const keys = tw_run_keys(&keys_count);
    const struct tw_run_key *const key = tw_run_key_find("sync.momentum_type");
    if (is_whole(lines) && lines->of_key[key - keys] == 0)
        run->sync.momentum_type = TW_MOMENTUM_TYPE_FLOAT32;
}

/* Refuses keys without effect in a short file: a person who writes few keys expects each to have an
 * effect. */
static enum tw_status check_written(const struct lines *lines, const struct tw_run *run,
                                    struct tw_error *err) {
    uint32_t keys_count;
    const struct tw_run_key *keys = tw_run_keys(&keys_count);
    struct tw_error why;
    if (is_whole(lines)) return TW_OK;
    for (uint32_t k = 0; k < keys_count; k++) {
        if (lines->of_key[k] == 0 || tw_run_check_written(&keys[k], run, &why) == TW_OK) continue;
        return tw_fail(err, TW_CONFIG, "line %u: %.220s", lines->of_key[k], why.message);
    }
    return TW_OK;
}

static enum tw_status read_run(const char *text, size_t size, bool is_older, struct tw_run *run,
                               struct tw_error *err) {
    if (size > TW_MANIFEST_BYTES_MAX)
        return tw_fail(err, TW_CONFIG, "a run file has at most %d bytes, this one has %zu",
                       TW_MANIFEST_BYTES_MAX, size);
    struct lines lines;
    tw_run_defaults(run);
    /* The keys are read three times. The preset's row depends on keys of the file, the file
     * overrides the row, and the rest of the row is then fitted to the file. */
    TW_TRY(read_keys(text, size, &lines, run, err));
    tw_run_clear_engine(run);
    if (!is_older) TW_TRY(check_end(&lines, run, err));
    tw_run_fit_warmup(run);
    tw_run_apply_preset(run, run->sync.preset);
    TW_TRY(read_keys(text, size, &lines, run, err));
    tw_run_refit(run);
    TW_TRY(read_keys(text, size, &lines, run, err));
    fit_momentum_type(&lines, run);
    TW_TRY(tw_run_check(run, err));
    return check_written(&lines, run, err);
}

enum tw_status tw_run_read(const char *text, size_t size, struct tw_run *run,
                           struct tw_error *err) {
    return read_run(text, size, false, run, err);
}

enum tw_status tw_run_read_older(const char *text, size_t size, struct tw_run *run,
                                 struct tw_error *err) {
    return read_run(text, size, true, run, err);
}

enum tw_status tw_run_decode(const char *text, size_t size, struct tw_run *run,
                             struct tw_error *err) {
    char canonical[TW_MANIFEST_BYTES_MAX];
    size_t canonical_size;
    if (size > TW_MANIFEST_BYTES_MAX)
        return tw_fail(err, TW_CONFIG, "a manifest has at most %d bytes, this one has %zu",
                       TW_MANIFEST_BYTES_MAX, size);
    if (size < FIRST_LINE_BYTES || memcmp(text, first_line, FIRST_LINE_BYTES) != 0)
        return tw_fail(err, TW_VERSION,
                       "a manifest of this version starts with the line `thinwire-run 1`");
    TW_TRY(tw_run_read(text, size, run, err));
    tw_run_encode(run, canonical, &canonical_size);
    if (canonical_size != size || memcmp(canonical, text, size) != 0)
        return tw_fail(err, TW_CONFIG, "the manifest is valid but not in canonical form");
    return TW_OK;
}

/* ---- shapes of models ----------------------------------------------------------------------- */

struct tw_run_shape tw_run_shape(const struct tw_run *run) {
    const uint32_t width = run->model.width, heads = run->model.heads;
    struct tw_run_shape shape = {
        .heads = heads,
        .kv_heads = run->model.kv_heads != 0 ? run->model.kv_heads : heads,
        .head_size = run->model.head_size != 0 ? run->model.head_size : width / heads,
        .ffn = run->model.ffn,
    };
    shape.q_width = shape.heads * shape.head_size;
    shape.kv_width = shape.kv_heads * shape.head_size;
    if (shape.ffn == 0) {
        shape.ffn = run->model.family == TW_FAMILY_GPT2 ? 4 * width
                                                        : (8 * width + 3 * 64 - 1) / (3 * 64) * 64;
    }
    return shape;
}

enum { BYTES = 256, QK_NORM = 1, BIAS = 2 };

struct shape {
    const char *name;
    enum tw_family family;
    uint32_t layers, width, heads, kv_heads, head_size, ffn, context, vocab;
    enum tw_answer is_tied;
    uint32_t norm_eps_millionths, rope_theta, rope_factor;
    uint32_t extras; /* set of QK_NORM, BIAS */
};

/* Sources: the config.json of the models of these names (openai-community/gpt2*,
 * HuggingFaceTB/SmolLM-*, TinyLlama-1.1B, Qwen2.5-0.5B, Qwen3-0.6B, Llama-3.2-1B, -3B,
 * Llama-3.1-8B, -70B); for llama-60m to -350m, table 5 of arXiv 2403.03507. Contexts are usual
 * training lengths, not the longest that the model supports. The shapes 1m, 5m and 15m are this
 * project's own; their tokens are bytes. */
static const struct shape shapes[] = {
    {"llama-1m", TW_FAMILY_LLAMA, 4, 128, 4, 2, 0, 0, 128, BYTES, TW_YES, 10, 10000, 1, 0},
    {"1m", TW_FAMILY_GPT2, 4, 128, 4, 0, 0, 0, 128, BYTES, TW_YES, 10, 10000, 1, 0},
    {"5m", TW_FAMILY_GPT2, 6, 256, 8, 0, 0, 0, 256, BYTES, TW_YES, 10, 10000, 1, 0},
    {"llama-15m", TW_FAMILY_LLAMA, 8, 384, 6, 2, 0, 0, 512, BYTES, TW_YES, 10, 10000, 1, 0},
    {"15m", TW_FAMILY_GPT2, 8, 384, 6, 0, 0, 0, 512, BYTES, TW_YES, 10, 10000, 1, 0},
    {"llama-60m", TW_FAMILY_LLAMA, 8, 512, 8, 0, 0, 1376, 1024, 32000, TW_NO, 1, 10000, 1, 0},
    {"gpt2-124m", TW_FAMILY_GPT2, 12, 768, 12, 0, 0, 0, 1024, 50257, TW_YES, 10, 10000, 1, 0},
    {"llama-130m", TW_FAMILY_LLAMA, 12, 768, 12, 0, 0, 2048, 1024, 32000, TW_NO, 1, 10000, 1, 0},
    {"smollm-135m", TW_FAMILY_LLAMA, 30, 576, 9, 3, 0, 1536, 2048, 49152, TW_YES, 10, 10000, 1, 0},
    {"gpt2-350m", TW_FAMILY_GPT2, 24, 1024, 16, 0, 0, 0, 1024, 50257, TW_YES, 10, 10000, 1, 0},
    {"smollm-360m", TW_FAMILY_LLAMA, 32, 960, 15, 5, 0, 2560, 2048, 49152, TW_YES, 10, 10000, 1, 0},
    {"llama-350m", TW_FAMILY_LLAMA, 24, 1024, 16, 0, 0, 2736, 1024, 32000, TW_NO, 1, 10000, 1, 0},
    {"qwen2.5-0.5b", TW_FAMILY_LLAMA, 24, 896, 14, 2, 0, 4864, 4096, 151936, TW_YES, 1, 1000000, 1,
     BIAS},
    {"qwen3-0.6b", TW_FAMILY_LLAMA, 28, 1024, 16, 8, 128, 3072, 4096, 151936, TW_YES, 1, 1000000, 1,
     QK_NORM},
    {"gpt2-774m", TW_FAMILY_GPT2, 36, 1280, 20, 0, 0, 0, 1024, 50257, TW_YES, 10, 10000, 1, 0},
    {"tinyllama-1.1b", TW_FAMILY_LLAMA, 22, 2048, 32, 4, 0, 5632, 2048, 32000, TW_NO, 10, 10000, 1,
     0},
    {"llama-1b", TW_FAMILY_LLAMA, 16, 2048, 32, 8, 64, 8192, 8192, 128256, TW_YES, 10, 500000, 32,
     0},
    {"gpt2-1.5b", TW_FAMILY_GPT2, 48, 1600, 25, 0, 0, 0, 1024, 50257, TW_YES, 10, 10000, 1, 0},
    {"smollm-1.7b", TW_FAMILY_LLAMA, 24, 2048, 32, 0, 0, 8192, 2048, 49152, TW_YES, 10, 10000, 1,
     0},
    {"llama-3b", TW_FAMILY_LLAMA, 28, 3072, 24, 8, 128, 8192, 8192, 128256, TW_YES, 10, 500000, 32,
     0},
    {"llama-8b", TW_FAMILY_LLAMA, 32, 4096, 32, 8, 128, 14336, 8192, 128256, TW_NO, 10, 500000, 8,
     0},
    {"llama-70b", TW_FAMILY_LLAMA, 80, 8192, 64, 8, 128, 28672, 8192, 128256, TW_NO, 10, 500000, 8,
     0},
};

enum { SHAPES_COUNT = sizeof(shapes) / sizeof(shapes[0]) };

const char *tw_run_model_name(uint32_t i) {
    return i < SHAPES_COUNT ? shapes[i].name : NULL;
}

static const struct shape *shape_find(const char *name) {
    for (unsigned i = 0; i < SHAPES_COUNT; i++) {
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    }
    return NULL;
}

/* Fails with the models of that size, such as gpt2-124m for 124m. Returns TW_OK if there are none.
 */
static enum tw_status say_sizes(const char *size, struct tw_error *err) {
    char list[120] = "";
    size_t used = 0;
    for (unsigned i = 0; i < SHAPES_COUNT; i++) {
        const char *const dash = strrchr(shapes[i].name, '-');
        const size_t length = strlen(shapes[i].name);
        if (dash == NULL || strcmp(dash + 1, size) != 0 || used + length + 5 > sizeof(list))
            continue;
        if (used > 0) memcpy(list + used, " or ", 4);
        used += used > 0 ? 4 : 0;
        memcpy(list + used, shapes[i].name, length + 1);
        used += length;
    }
    if (used == 0) return TW_OK;
    return tw_fail(err, TW_CONFIG, "there is no model `%.40s`: did you mean %s?", size, list);
}

enum tw_status tw_run_apply_model(struct tw_run *run, const char *name, struct tw_error *err) {
    const struct shape *shape = shape_find(name);
    if (shape == NULL) {
        TW_TRY(say_sizes(name, err));
        const char *names[SHAPES_COUNT];
        for (unsigned i = 0; i < SHAPES_COUNT; i++) names[i] = shapes[i].name;
        const char *nearest = tw_nearest(name, names, SHAPES_COUNT);
        return tw_fail(err, TW_CONFIG, "there is no model `%.40s`: %s%s%s", name,
                       nearest != NULL ? "did you mean " : "they go from 1m to llama-70b; ",
                       nearest != NULL ? nearest : "`thinwire run models` names them",
                       nearest != NULL ? "?" : "");
    }
    run->model.family = shape->family;
    run->model.layers = shape->layers;
    run->model.width = shape->width;
    run->model.heads = shape->heads;
    run->model.kv_heads = shape->kv_heads;
    run->model.head_size = shape->head_size;
    run->model.ffn = shape->ffn;
    run->model.context = shape->context;
    run->model.vocab = shape->vocab;
    run->model.is_tied = shape->is_tied;
    run->model.norm_eps_millionths = shape->norm_eps_millionths;
    run->model.qk_norm = (shape->extras & QK_NORM) != 0 ? TW_YES : TW_NO;
    run->model.qkv_bias = (shape->extras & BIAS) != 0 ? TW_YES : TW_NO;
    run->model.rope_theta = shape->rope_theta;
    run->model.rope_factor_millionths = shape->rope_factor * 1000000;
    run->model.rope_low_millionths = 1000000;
    run->model.rope_high_millionths = 4000000;
    run->model.rope_original = 8192;
    run->data.tokenizer = shape->vocab == BYTES ? TW_TOKENIZER_BYTES : TW_TOKENIZER_IDS;
    return TW_OK;
}

/* ---- the optimizer -------------------------------------------------------------------------- */

/* Chooses between AdamW and Muon by the arithmetic that Muon adds to a step. */

/* Multiplications of the five Newton-Schulz steps of a matrix (kernels/muon.h): a Gram matrix of
 * its shorter side, its square, and a product with the matrix. */
static double of_matrix(const struct tw_tensor *tensor) {
    enum { STEPS = 5 };
    const double rows = tensor->rows, cols = tensor->cols;
    const double side = rows < cols ? rows : cols, deep = rows < cols ? cols : rows;
    return STEPS * (2 * side * side * deep + side * side * side);
}

double tw_run_muon_cost(const struct tw_run *run, const struct tw_layout *layout) {
    const double tokens = (double)run->train.batch * run->model.context;
    const double attention =
        2.0 * run->model.layers * tw_run_shape(run).q_width * run->model.context;
    double muon = 0;
    if (run->model.family == TW_FAMILY_TENSORS) return 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++)
        if (layout->tensors[i].is_hidden) muon += of_matrix(&layout->tensors[i]);
    /* forward once, backward twice */
    return muon / (3 * tokens * ((double)layout->params + attention));
}

bool tw_run_fit_optimizer(struct tw_run *run, const struct tw_layout *layout) {
    const double most = 0.75;
    run->train.optimizer = TW_OPTIMIZER_ADAMW;
    if (run->model.family == TW_FAMILY_TENSORS || tw_run_muon_cost(run, layout) > most)
        return false;
    run->train.optimizer = TW_OPTIMIZER_MUON;
    return true;
}
