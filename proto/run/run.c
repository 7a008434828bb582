#include "proto/run/run.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
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

/* ---- relations between keys ---------------------------------------------------------------- */

static enum tw_status check_gpt2(const struct tw_run *run, struct tw_error *err) {
    const struct tw_run_shape shape = tw_run_shape(run);
    if (shape.kv_heads != shape.heads)
        return tw_fail(err, TW_CONFIG,
                       "model.kv_heads (%u) differs from model.heads (%u): shared heads need "
                       "model.family = llama",
                       shape.kv_heads, shape.heads);
    if (shape.q_width != run->model.width)
        return tw_fail(err, TW_CONFIG,
                       "model.head_size (%u) x model.heads (%u) is not model.width (%u): other "
                       "head sizes need model.family = llama",
                       shape.head_size, shape.heads, run->model.width);
    if (run->model.qk_norm || run->model.qkv_bias)
        return tw_fail(err, TW_CONFIG, "model.%s = yes needs model.family = llama",
                       run->model.qk_norm ? "qk_norm" : "qkv_bias");
    return TW_OK;
}

static enum tw_status check_llama(const struct tw_run *run, struct tw_error *err) {
    const struct tw_run_shape shape = tw_run_shape(run);
    if (shape.head_size % 2 != 0 || shape.head_size > 512)
        return tw_fail(err, TW_CONFIG,
                       "heads of %u channels cannot be rotated: model.width / model.heads, or "
                       "model.head_size, must be even and at most 512",
                       shape.head_size);
    if (run->model.rope_low_millionths >= run->model.rope_high_millionths)
        return tw_fail(err, TW_CONFIG,
                       "model.rope_low (%.6g) must be less than model.rope_high (%.6g)",
                       run->model.rope_low_millionths / 1e6, run->model.rope_high_millionths / 1e6);
    return TW_OK;
}

static enum tw_status check_shape(const struct tw_run *run, struct tw_error *err) {
    const uint32_t heads = run->model.heads, kv_heads = run->model.kv_heads;
    if (run->model.head_size == 0 && run->model.width % heads != 0)
        return tw_fail(err, TW_CONFIG,
                       "model.heads (%u) must divide model.width (%u) when model.head_size is 0: "
                       "each head gets an equal share of the channels",
                       heads, run->model.width);
    if (kv_heads != 0 && heads % kv_heads != 0)
        return tw_fail(err, TW_CONFIG,
                       "model.kv_heads (%u) must divide model.heads (%u): each serves an equal "
                       "group of heads",
                       kv_heads, heads);
    return run->model.family == TW_FAMILY_GPT2 ? check_gpt2(run, err) : check_llama(run, err);
}

static enum tw_status check_model(const struct tw_run *run, struct tw_error *err) {
    TW_TRY(tw_run_check_tensors(run, err));
    if (run->model.family != TW_FAMILY_TENSORS) TW_TRY(check_shape(run, err));
    if (run->data.tokenizer == TW_TOKENIZER_BYTES && run->model.vocab != 256)
        return tw_fail(err, TW_CONFIG,
                       "model.vocab is %u, but data.tokenizer = bytes has 256 tokens: set "
                       "model.vocab = 256, or data.tokenizer = ids for a file of token numbers",
                       run->model.vocab);
    return TW_OK;
}

static enum tw_status check_data(const struct tw_run *run, struct tw_error *err) {
    if (run->data.form == TW_FORM_DATASET && tw_id_is_zero(&run->data.sha256))
        return tw_fail(err, TW_CONFIG,
                       "data.form = dataset needs data.sha256, which names the dataset: `thinwire "
                       "run new --data FOLDER` sets both");
    if (run->data.documents == TW_DOCUMENTS_MASKED && run->data.separator >= run->model.vocab)
        return tw_fail(err, TW_CONFIG,
                       "data.separator (%u) is no token of model.vocab = %u: give the token that "
                       "begins a document",
                       run->data.separator, run->model.vocab);
    return TW_OK;
}

static enum tw_status check_train(const struct tw_run *run, struct tw_error *err) {
    const uint64_t step_tokens = (uint64_t)run->train.batch * run->model.context;
    if (run->train.tokens < step_tokens)
        return tw_fail(err, TW_CONFIG,
                       "train.tokens (%llu) is less than one inner step of one node "
                       "(train.batch x model.context = %llu): raise train.tokens",
                       (unsigned long long)run->train.tokens, (unsigned long long)step_tokens);
    if (run->train.warmup_tokens > run->train.tokens)
        return tw_fail(err, TW_CONFIG,
                       "train.warmup_tokens (%llu) is more than train.tokens (%llu): the run "
                       "would end before the warm-up does",
                       (unsigned long long)run->train.warmup_tokens,
                       (unsigned long long)run->train.tokens);
    return TW_OK;
}

static enum tw_status check_security(const struct tw_run *run, struct tw_error *err) {
    const bool has_owner = !tw_id_is_zero(&run->security.owner);
    if (run->security.admission == TW_ADMISSION_OWNER && !has_owner)
        return tw_fail(err, TW_CONFIG,
                       "security.admission = owner needs security.owner, the public key that signs "
                       "certificates: `thinwire owner new` makes one");
    if (run->security.admission != TW_ADMISSION_OWNER && has_owner)
        return tw_fail(err, TW_CONFIG,
                       "security.owner signs nothing unless security.admission = owner: set that, "
                       "or security.owner = any");
    return TW_OK;
}

enum tw_status tw_run_check(const struct tw_run *run, struct tw_error *err) {
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    for (uint32_t i = 0; i < count; i++) TW_TRY(tw_run_key_check(&keys[i], run, err));
    TW_TRY(check_model(run, err));
    TW_TRY(check_data(run, err));
    TW_TRY(check_train(run, err));
    TW_TRY(check_security(run, err));
    return tw_run_check_sync(run, err);
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

static bool is_momentum_type(const struct tw_run_key *key) {
    return strcmp(key->name, "sync.momentum_type") == 0;
}

static bool is_jury(const struct tw_run_key *key) {
    return strcmp(key->name, "sync.jury") == 0;
}

/* Runs of before sync.momentum_type and sync.jury keep their text, and so their id. */
static bool is_unsaid(const struct tw_run_key *key, const struct tw_run *run) {
    if (is_jury(key)) return run->sync.jury_millionths == 0;
    return is_momentum_type(key) && run->sync.momentum_type == TW_MOMENTUM_TYPE_FLOAT32;
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
        const bool is_optional =
            tw_run_is_for_engine(&keys[i], run) || is_momentum_type(&keys[i]) || is_jury(&keys[i]);
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
