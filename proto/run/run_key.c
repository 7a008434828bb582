/* run_key.c - the table of manifest keys, and their values as text. */
#include "proto/run/run_key.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "proto/run/layout.h"

enum {
    MILLION = 1000000,
    BILLION = 1000000000,
    HOUR_MS = 3600000,
    DAY_MS = 86400000,
    LAYERS_MAX = (TW_TENSORS_MAX - 4) / 12,
};

_Static_assert(sizeof(enum tw_family) == sizeof(uint32_t), "enums are stored as uint32_t");

static const uint64_t tokens_max = (uint64_t)1000 * 1000 * 1000 * 1000 * 1000;

static const char *const answers[] = {"no", "yes", NULL};
static const char *const families[] = {"gpt2", "llama", "tensors", NULL};
static const char *const tokenizers[] = {"bytes", "ids", NULL};
static const char *const forms[] = {"file", "dataset", NULL};
static const char *const documents[] = {"joined", "masked", NULL};
static const char *const losses[] = {"all", "answers", NULL};
static const char *const optimizers[] = {"adamw", "muon", NULL};
static const char *const schedules[] = {"cosine", "wsd", "linear", NULL};
static const char *const presets[] = {"diloco",    "streaming",  "eager",     "noloco", "co2",
                                      "decoupled", "sparseloco", "local-sgd", "btm",    NULL};
static const char *const topologies[] = {"group", "pair", "solo", NULL};
static const char *const patterns[] = {"strided", "sequential", NULL};
static const char *const sents[] = {"mix", "keep", "restart", "eager", NULL};
static const char *const merges[] = {"mean", "rda", "trimmed", "median", "clipped", NULL};
static const char *const weights[] = {"equal", "tokens", "tokens_rate", NULL};
static const char *const outer_rules[] = {"nesterov", "heavyball", NULL};
static const char *const momentum_types[] = {"float32", "auto", "bf16", NULL};
#define CODEC_WORD(ID, word, needs_feedback) #word,
static const char *const codecs[] = {TW_CODECS_EACH(CODEC_WORD) NULL};
static const char *const paces[] = {"steps", "clock", NULL};
static const char *const admissions[] = {"secret", "open", "owner", NULL};

#define AT(member) (uint32_t) offsetof(struct tw_run, member)
#define ENUM_ROW(key, member, list, text, is_later)                                                \
    { key, text, TW_RUN_ENUM, AT(member), 0, sizeof(list) / sizeof((list)[0]) - 2, list, is_later }
#define ENUM(key, member, list, text) ENUM_ROW(key, member, list, text, false)
#define NUMBER_ROW(key, kind, member, min, max, text, is_later)                                    \
    { key, text, kind, AT(member), min, max, NULL, is_later }
#define NUMBER(key, kind, member, min, max, text)                                                  \
    NUMBER_ROW(key, kind, member, min, max, text, false)

static const struct tw_run_key keys[] = {
    NUMBER("run.name", TW_RUN_NAME, name, 1, 63, "name of the run, for people"),

    ENUM("model.family", model.family, families,
         "architecture; tensors: any model, trained by a program of the user's own"),
    NUMBER("model.tensors", TW_RUN_TENSORS, model.tensors, 0, 0,
           "tensors: the parameters that nodes train and merge, as NAME:ROWSxCOLS with {0-11} in "
           "place of the numbers of equal layers"),
    NUMBER("model.base", TW_RUN_SHA256, model.base, 0, 0,
           "tensors: SHA-256 of the weights below adapters; `any` leaves them to each node"),
    NUMBER("model.layers", TW_RUN_U32, model.layers, 1, LAYERS_MAX, "transformer blocks"),
    NUMBER("model.width", TW_RUN_U32, model.width, 8, 16384, "channels of the residual stream"),
    NUMBER("model.heads", TW_RUN_U32, model.heads, 1, 256, "attention heads"),
    NUMBER("model.kv_heads", TW_RUN_U32, model.kv_heads, 0, 256,
           "heads of keys and values, each shared by a group of attention heads; 0 is model.heads"),
    NUMBER("model.head_size", TW_RUN_U32, model.head_size, 0, 512,
           "channels of one head; 0 is model.width / model.heads"),
    NUMBER("model.ffn", TW_RUN_U32, model.ffn, 0, 131072,
           "channels between the feed-forward matrices; 0 is 4 model.width for gpt2, 8/3 of it "
           "rounded up to a multiple of 64 for llama"),
    NUMBER("model.context", TW_RUN_U32, model.context, 2, 131072, "tokens the model sees at once"),
    NUMBER("model.vocab", TW_RUN_U32, model.vocab, 256, 1 << 20, "tokens in the vocabulary"),
    ENUM("model.tied", model.is_tied, answers, "whether the output head is the token embedding"),
    NUMBER("model.norm_eps", TW_RUN_REAL, model.norm_eps_millionths, 1, MILLION / 100,
           "added to the variance by the norms"),
    ENUM("model.qk_norm", model.qk_norm, answers, "llama: norms on each head's queries and keys"),
    ENUM("model.qkv_bias", model.qkv_bias, answers,
         "llama: biases on queries, keys and values; gpt2 always has all of its own"),
    NUMBER("model.rope_theta", TW_RUN_U32, model.rope_theta, 1, BILLION,
           "llama: base of the rotation frequencies"),
    NUMBER("model.rope_factor", TW_RUN_REAL, model.rope_factor_millionths, MILLION, BILLION,
           "llama: divisor of the low frequencies, as in Llama 3; 1 leaves them"),
    NUMBER("model.rope_low", TW_RUN_REAL, model.rope_low_millionths, MILLION / 100, BILLION,
           "llama: a frequency is low below this many turns within rope_original"),
    NUMBER("model.rope_high", TW_RUN_REAL, model.rope_high_millionths, MILLION / 100, BILLION,
           "llama: a frequency is kept above this many turns within rope_original"),
    NUMBER("model.rope_original", TW_RUN_U32, model.rope_original, 2, 1 << 20,
           "llama: context length before the frequencies were scaled"),
    NUMBER("model.seed", TW_RUN_U64, model.seed, 0, UINT64_MAX, "seed of the initial weights"),

    ENUM("data.tokenizer", data.tokenizer, tokenizers,
         "how text becomes tokens; ids: the file holds token numbers already"),
    ENUM("data.form", data.form, forms,
         "file: data.sha256 names the training text itself; dataset: it names the index of a "
         "dataset, which nodes fetch from each other"),
    NUMBER("data.sha256", TW_RUN_SHA256, data.sha256, 0, 0,
           "SHA-256 of the training data of every node; `any` lets each node bring its own text"),
    NUMBER("data.heldout", TW_RUN_REAL, data.heldout_millionths, 1000, MILLION / 2,
           "share that is never trained on but gives the validation loss: the end of a file, or "
           "documents of a dataset chosen by their hashes"),
    ENUM("data.documents", data.documents, documents,
         "masked: within a window, no document attends to the documents before it"),
    NUMBER("data.separator", TW_RUN_U32, data.separator, 0, (1 << 20) - 1,
           "masked: the token that begins a document"),
    NUMBER(
        "data.curriculum", TW_RUN_REAL, data.curriculum_millionths, 0, MILLION,
        "share of a node's planned tokens over which its windows go from easy to hard; 0 is none"),
    ENUM_ROW("data.loss", data.loss, losses,
             "tokens whose loss counts; answers: those of the assistant, in a dataset of chats",
             true),

    NUMBER("train.batch", TW_RUN_U32, train.batch, 1, 65536, "sequences per inner step and node"),
    NUMBER("train.tokens", TW_RUN_TOKENS, train.tokens, 1, tokens_max,
           "token budget of the whole run, all nodes together; the run ends here"),
    NUMBER("train.warmup_tokens", TW_RUN_TOKENS, train.warmup_tokens, 0, tokens_max,
           "tokens of the run over which the learning rate rises from 0"),
    NUMBER("train.lr", TW_RUN_REAL, train.lr_millionths, 1, MILLION, "peak learning rate"),
    NUMBER("train.lr_final", TW_RUN_REAL, train.lr_final_millionths, 0, MILLION,
           "final learning rate as a share of the peak"),
    ENUM("train.schedule", train.schedule, schedules,
         "how the learning rate falls after the warm-up; wsd holds the peak until the last "
         "train.wsd_decay"),
    NUMBER("train.wsd_decay", TW_RUN_REAL, train.wsd_decay_millionths, 0, MILLION,
           "wsd: last share of train.tokens, over which the learning rate falls"),
    ENUM("train.optimizer", train.optimizer, optimizers,
         "muon: Muon for the matrices of the layers, AdamW for the rest"),
    NUMBER("train.beta1", TW_RUN_REAL, train.beta1_millionths, 0, MILLION - 1,
           "AdamW: decay of the first moment"),
    NUMBER("train.beta2", TW_RUN_REAL, train.beta2_millionths, 0, MILLION - 1,
           "AdamW: decay of the second moment"),
    NUMBER("train.muon_momentum", TW_RUN_REAL, train.muon_momentum_millionths, 0, MILLION - 1,
           "muon: decay of the momentum"),
    NUMBER("train.decay", TW_RUN_REAL, train.decay_millionths, 0, BILLION / 100,
           "weight decay of matrices"),
    NUMBER("train.clip", TW_RUN_REAL, train.clip_millionths, 0, BILLION,
           "largest norm of the whole gradient; 0 never clips"),
    NUMBER("train.z_loss", TW_RUN_REAL, train.z_loss_millionths, 0, MILLION,
           "weight of the squared log of the softmax normaliser in the loss; 0 is none"),

    ENUM("sync.preset", sync.preset, presets, "the preset that fills in the other sync keys"),
    ENUM("sync.topology", sync.topology, topologies,
         "group: all nodes merge into one shared anchor; pair: two nodes merge at a time and each "
         "keeps its own anchor; solo: nothing is merged while training"),
    NUMBER("sync.nodes", TW_RUN_U32, sync.nodes, 1, TW_MEMBERS_MAX,
           "nodes planned to train at a time; presets are fitted to this number, and solo runs "
           "divide the budget by it"),
    NUMBER("sync.together", TW_RUN_REAL, sync.together_millionths, 1, MILLION,
           "group: share of the budget that nodes train together; after it each continues alone, "
           "and `thinwire merge` combines their models; 1 is all of it"),
    NUMBER("sync.fragments", TW_RUN_U32, sync.fragments, 1, TW_FRAGMENTS_MAX,
           "fragments of the model, merged in turn"),
    ENUM("sync.pattern", sync.pattern, patterns, "how layers are assigned to fragments"),
    NUMBER("sync.period", TW_RUN_U32, sync.period, 1, 1000000,
           "inner steps between two merges of one fragment, a multiple of sync.fragments; with "
           "sync.pace = clock, steps of a node at the planned speed"),
    NUMBER("sync.overlap", TW_RUN_U32, sync.overlap, 0, 100000,
           "least number of inner steps between sending and applying; with sync.pace = clock, at "
           "most the time a node at the planned speed takes for them"),
    ENUM("sync.sent", sync.sent, sents,
         "parameters after sending, until the merge arrives: mix and keep train on, restart begins "
         "at the anchor, eager at the anchor with the node's own share added"),
    NUMBER("sync.mix", TW_RUN_REAL, sync.mix_millionths, 0, MILLION - 1,
           "sync.sent = mix: weight of the local parameters when a merge is applied"),
    ENUM("sync.merge", sync.merge, merges,
         "how contributions are merged; of five or more, median and clipped withstand arbitrary "
         "values from less than half, trimmed from up to a quarter; of fewer, the three are the "
         "mean"),
    ENUM("sync.weights", sync.weights, weights,
         "weight of each contributor; tokens_rate: tokens times tokens per step"),
    ENUM("sync.outer", sync.outer, outer_rules, "optimizer of the outer step"),
    NUMBER("sync.outer_lr", TW_RUN_REAL, sync.outer_lr_millionths, 1, BILLION / 100,
           "learning rate of the outer step; 1 with momentum 0 is plain averaging"),
    NUMBER("sync.outer_momentum", TW_RUN_REAL, sync.outer_momentum_millionths, 0, MILLION - 1,
           "momentum of the outer step, once sync.outer_ramp is over"),
    NUMBER("sync.outer_ramp", TW_RUN_U32, sync.outer_ramp, 0, 1000000,
           "outer steps of a fragment over which its momentum rises from 0"),
    ENUM_ROW(
        "sync.momentum_type", sync.momentum_type, momentum_types,
        "how nodes keep the outer momentum; auto: float32, or not at all where the rule has none; "
        "bf16: in half the memory; float32: by every rule",
        true),
    NUMBER("sync.lead", TW_RUN_REAL, sync.lead_millionths, 0, MILLION,
           "group: share of AdamW's first moment that a merge replaces by the common direction of "
           "all nodes"),
    NUMBER(
        "sync.consensus", TW_RUN_REAL, sync.consensus_millionths, 0, 10 * MILLION,
        "pair: strength with which the anchors of two nodes are pulled together when they merge"),
    NUMBER("sync.gap_penalty", TW_RUN_REAL, sync.gap_penalty_millionths, 0, 10 * MILLION,
           "heavyball: how strongly a change is damped, the more the further the anchor moves at a "
           "time; 0 is none"),
    NUMBER("sync.momentum_clip", TW_RUN_REAL, sync.momentum_clip_millionths, 0, BILLION,
           "heavyball: largest momentum of a parameter, as a multiple of the momentum that steady "
           "typical changes build up; 0 is none"),
    ENUM("sync.codec", sync.codec, codecs, "codec of outer gradients"),
    ENUM("sync.result", sync.result, codecs, "codec of merged results"),
    NUMBER("sync.feedback", TW_RUN_REAL, sync.feedback_millionths, 0, MILLION,
           "share of the quantisation error that is added to the next outer gradient; 0 is none"),
    NUMBER("sync.feedback_local", TW_RUN_REAL, sync.feedback_local_millionths, 0, MILLION,
           "feedback: share of the quantisation error that a node's own parameters keep until it "
           "is sent; that share is sent in full next time, of the rest sync.feedback"),
    ENUM("sync.pace", sync.pace, paces,
         "steps: rounds follow the steps of the nodes; clock: they follow the time"),
    NUMBER("sync.interval", TW_RUN_DURATION, sync.pace_ms, 10, DAY_MS,
           "clock: time between two rounds; a node at the planned speed makes sync.period / "
           "sync.fragments steps in it"),
    NUMBER("sync.quorum", TW_RUN_U32, sync.quorum, 1, TW_MEMBERS_MAX,
           "contributors needed before the grace starts"),
    NUMBER("sync.grace", TW_RUN_DURATION, sync.grace_ms, 0, HOUR_MS,
           "longest wait for late contributors"),
    NUMBER("sync.members", TW_RUN_U32, sync.members, 2, TW_MEMBERS_MAX, "most nodes in the group"),
    NUMBER_ROW(
        "sync.jury", TW_RUN_REAL, sync.jury_millionths, 0, MILLION,
        "share of contributions of which another node checks that they were trained on their "
        "sender's part of the data; 0 is none",
        true),

    ENUM("security.admission", security.admission, admissions,
         "nodes that may join; secret: holders of the run secret, open: all, owner: nodes with a "
         "certificate from the owner, which a new run gets by itself"),
    NUMBER("security.owner", TW_RUN_SHA256, security.owner, 0, 0,
           "owner: the public key that signs certificates (`thinwire owner new`)"),
};

enum { KEYS_COUNT = sizeof(keys) / sizeof(keys[0]) };

static const struct tw_unit plain_units[] = {{"", 1}, {NULL, 0}};
static const struct tw_unit real_units[] = {{"", MILLION}, {"%", MILLION / 100}, {NULL, 0}};
static const struct tw_unit token_units[] = {{"", 1},        {"k", 1000},
                                             {"m", MILLION}, {"g", BILLION},
                                             {"b", BILLION}, {"t", (uint64_t)MILLION *MILLION},
                                             {NULL, 0}};
static const struct tw_unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", HOUR_MS}, {NULL, 0}};

const struct tw_run_key *tw_run_keys(uint32_t *count) {
    *count = KEYS_COUNT;
    return keys;
}

const struct tw_run_key *tw_run_key_find(const char *name) {
    for (unsigned i = 0; i < KEYS_COUNT; i++) {
        if (strcmp(keys[i].name, name) == 0) return &keys[i];
    }
    return NULL;
}

const struct tw_run_key *tw_run_key_differing(const struct tw_run *a, const struct tw_run *b) {
    for (unsigned i = 0; i < KEYS_COUNT; i++) {
        char a_text[TW_RUN_VALUE_BYTES], b_text[TW_RUN_VALUE_BYTES];
        tw_run_key_format(&keys[i], a, a_text);
        tw_run_key_format(&keys[i], b, b_text);
        if (strcmp(a_text, b_text) != 0) return &keys[i];
    }
    return NULL;
}

const struct tw_run_key *tw_run_key_guess(const char *name) {
    /* A name without `section.` is compared only with the part of each key after the point. */
    const bool has_section = strchr(name, '.') != NULL;
    const char *words[KEYS_COUNT];
    for (unsigned i = 0; i < KEYS_COUNT; i++)
        words[i] = has_section ? keys[i].name : strchr(keys[i].name, '.') + 1;
    const char *nearest = tw_nearest(name, words, KEYS_COUNT);
    for (unsigned i = 0; i < KEYS_COUNT; i++) {
        if (words[i] == nearest) return &keys[i];
    }
    return NULL;
}

/* ---- numbers as text ------------------------------------------------------------------------ */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static char lower(char c) {
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static const struct tw_unit *find_unit(const char *text, const struct tw_unit *units) {
    for (; units->name != NULL; units++) {
        size_t i = 0;
        while (text[i] != '\0' && lower(text[i]) == units->name[i]) i++;
        if (text[i] == '\0' && units->name[i] == '\0') return units;
    }
    return NULL;
}

/* Appends one digit to *value. Returns false on overflow. */
static bool push_digit(uint64_t *value, char digit) {
    const uint64_t add = (uint64_t)(digit - '0');
    if (*value > (UINT64_MAX - add) / 10) return false;
    *value = *value * 10 + add;
    return true;
}

bool tw_value_parse(const char *text, const struct tw_unit *units, uint64_t *value) {
    uint64_t digits = 0;
    unsigned decimals = 0;
    if (!is_digit(*text) && *text != '.') return false;
    for (; is_digit(*text); text++) {
        if (!push_digit(&digits, *text)) return false;
    }
    if (*text == '.') {
        text++;
        if (!is_digit(*text)) return false;
        for (; is_digit(*text); text++, decimals++) {
            if (!push_digit(&digits, *text)) return false;
        }
    }
    const struct tw_unit *unit = find_unit(text, units);
    if (unit == NULL) return false;
    while (decimals > 0 && digits % 10 == 0) {
        digits /= 10;
        decimals--;
    }
    uint64_t scale = unit->scale;
    for (; decimals > 0; decimals--) {
        if (scale % 10 == 0) {
            scale /= 10;
        } else if (digits % 10 == 0) {
            digits /= 10;
        } else {
            return false;
        }
    }
    if (digits > UINT64_MAX / scale) return false;
    *value = digits * scale;
    return true;
}

void tw_value_format(uint64_t value, unsigned decimals, const char *unit,
                     char text[TW_DECIMAL_BYTES]) {
    TW_ASSERT(decimals <= 9);
    TW_ASSERT(strlen(unit) <= 4);
    while (decimals > 0 && value % 10 == 0) {
        value /= 10;
        decimals--;
    }
    char reversed[TW_DECIMAL_BYTES];
    unsigned count = 0;
    for (unsigned i = 0; i <= decimals || value > 0; i++) {
        if (i == decimals && decimals > 0) reversed[count++] = '.';
        reversed[count++] = (char)('0' + value % 10);
        value /= 10;
    }
    while (count > 0) *text++ = reversed[--count];
    while (*unit != '\0') *text++ = *unit++;
    *text = '\0';
}

/* ---- the value of a key --------------------------------------------------------------------- */

static bool is_wide(const struct tw_run_key *key) {
    return key->kind == TW_RUN_U64 || key->kind == TW_RUN_TOKENS;
}

static uint64_t load(const struct tw_run_key *key, const struct tw_run *run) {
    const uint8_t *from = (const uint8_t *)run + key->offset;
    uint32_t narrow;
    uint64_t wide;
    if (is_wide(key)) {
        memcpy(&wide, from, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, from, sizeof(narrow));
    return narrow;
}

static void store(const struct tw_run_key *key, struct tw_run *run, uint64_t value) {
    uint8_t *to = (uint8_t *)run + key->offset;
    const uint32_t narrow = (uint32_t)value;
    if (is_wide(key)) {
        memcpy(to, &value, sizeof(value));
    } else {
        memcpy(to, &narrow, sizeof(narrow));
    }
}

void tw_run_key_set_least(const struct tw_run_key *key, struct tw_run *run) {
    store(key, run, key->min);
}

bool tw_run_key_is_least(const struct tw_run_key *key, const struct tw_run *run) {
    return load(key, run) == key->min;
}

const char *tw_run_key_word(const char *name, const struct tw_run *run) {
    const struct tw_run_key *const key = tw_run_key_find(name);
    TW_ASSERT(key != NULL && key->kind == TW_RUN_ENUM);
    return key->names[load(key, run)];
}

static const struct tw_unit *units_of(enum tw_run_kind kind) {
    switch (kind) {
    case TW_RUN_TOKENS: return token_units;
    case TW_RUN_REAL: return real_units;
    case TW_RUN_DURATION: return duration_units;
    case TW_RUN_U32:
    case TW_RUN_U64:
    case TW_RUN_NAME:
    case TW_RUN_ENUM:
    case TW_RUN_SHA256:
    case TW_RUN_TENSORS: break;
    }
    return plain_units;
}

static void format_number(enum tw_run_kind kind, uint64_t value, char text[TW_DECIMAL_BYTES]) {
    if (kind == TW_RUN_REAL) {
        tw_value_format(value, 6, "", text);
    } else if (kind == TW_RUN_DURATION) {
        tw_value_format(value, 3, "s", text);
    } else {
        tw_value_format(value, 0, "", text);
    }
}

/* ---- text --------------------------------------------------------------------------------- */

static char *append(char *to, const char *from) {
    while (*from != '\0') *to++ = *from++;
    *to = '\0';
    return to;
}

static void accepts_names(const struct tw_run_key *key, char *text) {
    for (unsigned i = 0; key->names[i] != NULL; i++) {
        if (i > 0) text = append(text, key->names[i + 1] == NULL ? " or " : ", ");
        text = append(text, key->names[i]);
    }
}

void tw_run_key_accepts(const struct tw_run_key *key, char text[160]) {
    char number[TW_DECIMAL_BYTES];
    if (key->kind == TW_RUN_ENUM) {
        accepts_names(key, text);
    } else if (key->kind == TW_RUN_NAME) {
        (void)append(text, "1 to 63 of a-z, 0-9 and -");
    } else if (key->kind == TW_RUN_SHA256) {
        (void)append(text, "64 hex digits, or any");
    } else if (key->kind == TW_RUN_TENSORS) {
        (void)append(text, "none, or names and shapes");
    } else {
        format_number(key->kind, key->min, number);
        text = append(text, number);
        format_number(key->kind, key->max, number);
        text = append(append(text, " to "), number);
        if (key->kind == TW_RUN_TOKENS) (void)append(text, ", such as 500k or 2m");
        if (key->kind == TW_RUN_REAL) (void)append(text, ", such as 0.05 or 5%");
        if (key->kind == TW_RUN_DURATION) (void)append(text, ", such as 250ms or 1.5s");
    }
}

void tw_run_key_format(const struct tw_run_key *key, const struct tw_run *run,
                       char text[TW_RUN_VALUE_BYTES]) {
    const uint8_t *from = (const uint8_t *)run + key->offset;
    struct tw_id id;
    switch (key->kind) {
    case TW_RUN_NAME: memcpy(text, from, sizeof(run->name)); break;
    case TW_RUN_ENUM: (void)append(text, key->names[load(key, run)]); break;
    case TW_RUN_TENSORS: (void)append(text, from[0] == '\0' ? "none" : (const char *)from); break;
    case TW_RUN_SHA256:
        memcpy(&id, from, sizeof(id));
        if (tw_id_is_zero(&id)) {
            (void)append(text, "any");
        } else {
            tw_id_hex(&id, text);
        }
        break;
    case TW_RUN_U32:
    case TW_RUN_U64:
    case TW_RUN_TOKENS:
    case TW_RUN_REAL:
    case TW_RUN_DURATION: format_number(key->kind, load(key, run), text); break;
    }
}

static bool is_name(const char *text) {
    size_t size = 0;
    for (; text[size] != '\0'; size++) {
        const char c = text[size];
        if (size == sizeof(((struct tw_run *)0)->name) - 1) return false;
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
    }
    return size > 0;
}

static bool parse(const struct tw_run_key *key, const char *text, struct tw_run *run) {
    uint64_t value = 0;
    struct tw_id id = {{0}};
    uint8_t *to = (uint8_t *)run + key->offset;
    if (key->kind == TW_RUN_NAME) {
        if (!is_name(text)) return false;
        memset(to, 0, sizeof(run->name));
        memcpy(to, text, strlen(text) + 1);
        return true;
    }
    if (key->kind == TW_RUN_SHA256) {
        if (strcmp(text, "any") != 0 && !tw_id_parse(text, &id)) return false;
        memcpy(to, &id, sizeof(id));
        return true;
    }
    if (key->kind == TW_RUN_ENUM) {
        while (key->names[value] != NULL && strcmp(key->names[value], text) != 0) value++;
    } else if (!tw_value_parse(text, units_of(key->kind), &value)) {
        return false;
    }
    if (value < key->min || value > key->max) return false;
    store(key, run, value);
    return true;
}

static enum tw_status check_list(const char *text, struct tw_error *err) {
    struct tw_tensor_list_size size;
    return tw_tensor_list_check(text, &size, err);
}

static enum tw_status parse_list(const char *text, char to[TW_TENSORS_TEXT_BYTES],
                                 struct tw_error *err) {
    const bool is_none = strcmp(text, "none") == 0;
    if (!is_none) TW_TRY(check_list(text, err));
    memset(to, 0, TW_TENSORS_TEXT_BYTES);
    if (!is_none) memcpy(to, text, strlen(text));
    return TW_OK;
}

enum tw_status tw_run_key_parse(const struct tw_run_key *key, const char *text, struct tw_run *run,
                                struct tw_error *err) {
    char accepts[160];
    if (key->kind == TW_RUN_TENSORS) return parse_list(text, (char *)run + key->offset, err);
    if (parse(key, text, run)) return TW_OK;
    tw_run_key_accepts(key, accepts);
    return tw_fail(err, TW_CONFIG, "%s does not take `%.40s`: it takes %s", key->name, text,
                   accepts);
}

enum tw_status tw_run_key_check(const struct tw_run_key *key, const struct tw_run *run,
                                struct tw_error *err) {
    char accepts[160];
    bool is_good = true;
    if (key->kind == TW_RUN_NAME) {
        is_good = memchr(run->name, '\0', sizeof(run->name)) != NULL && is_name(run->name);
    } else if (key->kind == TW_RUN_TENSORS) {
        const char *list = (const char *)run + key->offset;
        is_good = memchr(list, '\0', TW_TENSORS_TEXT_BYTES) != NULL;
        if (is_good && list[0] != '\0') return check_list(list, err);
    } else if (key->kind != TW_RUN_SHA256) {
        const uint64_t value = load(key, run);
        is_good = value >= key->min && value <= key->max;
    }
    if (is_good) return TW_OK;
    tw_run_key_accepts(key, accepts);
    return tw_fail(err, TW_CONFIG, "%s is out of range: it takes %s", key->name, accepts);
}
