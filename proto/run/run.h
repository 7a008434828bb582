/* run.h - the run manifest: the settings that every node of a run must share, byte for byte.
 *
 * The canonical text (PROTOCOL.md section 4) is the line `thinwire-run 1\n`, then one line
 * `section.key = value\n` per key of tw_run_keys() (run_key.h), in table order. The run id is its
 * SHA-256. Real numbers are stored as whole millionths, so that a value and its text cannot
 * disagree. */
#ifndef TW_PROTO_RUN_RUN_H
#define TW_PROTO_RUN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

enum tw_answer { TW_NO, TW_YES };
enum tw_family { TW_FAMILY_GPT2, TW_FAMILY_LLAMA, TW_FAMILY_TENSORS };
enum tw_tokenizer_kind { TW_TOKENIZER_BYTES, TW_TOKENIZER_IDS };
enum tw_form { TW_FORM_FILE, TW_FORM_DATASET };
enum tw_documents { TW_DOCUMENTS_JOINED, TW_DOCUMENTS_MASKED };
enum tw_loss { TW_LOSS_ALL, TW_LOSS_ANSWERS };
enum tw_optimizer { TW_OPTIMIZER_ADAMW, TW_OPTIMIZER_MUON };
enum tw_schedule { TW_SCHEDULE_COSINE, TW_SCHEDULE_WSD, TW_SCHEDULE_LINEAR };
enum tw_pattern { TW_PATTERN_STRIDED, TW_PATTERN_SEQUENTIAL };
enum tw_preset {
    TW_PRESET_DILOCO,
    TW_PRESET_STREAMING,
    TW_PRESET_EAGER,
    TW_PRESET_NOLOCO,
    TW_PRESET_CO2,
    TW_PRESET_DECOUPLED,
    TW_PRESET_SPARSELOCO,
    TW_PRESET_LOCAL_SGD,
    TW_PRESET_BTM,
};
enum tw_topology {
    TW_TOPOLOGY_GROUP, /* one shared anchor; every round merges all members */
    TW_TOPOLOGY_PAIR,  /* each node has its own anchor; every round merges two nodes */
    TW_TOPOLOGY_SOLO,  /* each node has its own anchor; nothing is merged while training */
};
/* How a node continues after it has sent Delta, until the merge is applied. `Delta sent` is anchor
 * - theta at the time of sending; anchor' is the new anchor. */
enum tw_sent {
    TW_SENT_MIX,     /* train on; at the merge theta = mix * theta + (1 - mix) * anchor' */
    TW_SENT_KEEP,    /* train on; at the merge theta += anchor' - anchor + Delta sent: the merge
                        replaces the work sent, and no step is lost */
    TW_SENT_RESTART, /* continue from the anchor; at the merge theta += anchor' - anchor */
    TW_SENT_EAGER,   /* as restart, but from the anchor plus the node's own weighted share of the
                        coming merge: Eager updates, arXiv 2502.12996 */
};
enum tw_outer_rule { TW_OUTER_NESTEROV, TW_OUTER_HEAVYBALL };
/* How nodes keep the outer momentum u between rounds. */
enum tw_momentum_type {
    TW_MOMENTUM_TYPE_FLOAT32, /* float32 by every rule. Not in the canonical text: runs of before
                                 this key keep their id */
    TW_MOMENTUM_TYPE_AUTO,    /* float32, or not at all where the rule has no momentum */
    TW_MOMENTUM_TYPE_BF16,    /* as auto, in bf16 */
};
/* How a run keeps u, by sync.momentum_type and the rule. */
enum tw_momentum { TW_MOMENTUM_FLOAT32, TW_MOMENTUM_BF16, TW_MOMENTUM_NONE };
enum tw_merge {
    TW_MERGE_MEAN,
    TW_MERGE_RDA,     /* averages directions and norms separately, as in Decoupled DiLoCo */
    TW_MERGE_TRIMMED, /* mean per coordinate, without the lowest and the highest quarter of the
                         values */
    TW_MERGE_MEDIAN,  /* median per coordinate */
    TW_MERGE_CLIPPED, /* centred clipping around the median */
};
enum tw_weights { TW_WEIGHTS_EQUAL, TW_WEIGHTS_TOKENS, TW_WEIGHTS_TOKENS_RATE };
/* The codecs of sync.codec and sync.result (compress/README.md): name, word, and whether training
 * suffers without error feedback because so much is lost in an encoding. */
#define TW_CODECS_EACH(X)                                                                          \
    X(BF16, bf16, false)                                                                           \
    X(INT8, int8, false)                                                                           \
    X(INT4, int4, false)                                                                           \
    X(E3M0, e3m0, false)                                                                           \
    X(SIGN, sign, true)                                                                            \
    X(ECSQ4, ecsq4, false)                                                                         \
    X(ECSQ3, ecsq3, false)                                                                         \
    X(ECSQ2, ecsq2, true)                                                                          \
    X(ECSQ1, ecsq1, true)                                                                          \
    X(ECSQ05, ecsq05, true)                                                                        \
    X(TOPK256, topk256, true)                                                                      \
    X(TOPK64, topk64, true)                                                                        \
    X(TOPK32, topk32, true)                                                                        \
    X(SPARSE8, sparse8, false)                                                                     \
    X(AUTO, auto, true)
#define TW_CODEC_NAME(ID, word, needs_feedback) TW_CODEC_##ID,
#define TW_CODEC_FEEDBACK(ID, word, needs_feedback) TW_CODEC_FEEDBACK_##ID = (needs_feedback),
enum tw_codec_id { TW_CODECS_EACH(TW_CODEC_NAME) };
enum { TW_CODECS_EACH(TW_CODEC_FEEDBACK) };
enum tw_pace { TW_PACE_STEPS, TW_PACE_CLOCK };
enum tw_admission { TW_ADMISSION_SECRET, TW_ADMISSION_OPEN, TW_ADMISSION_OWNER };

struct tw_run {
    char name[64]; /* [a-z0-9-], not empty */

    struct {
        enum tw_family family;
        char tensors[TW_TENSORS_TEXT_BYTES]; /* family tensors: list of names and shapes
                                                (layout.h); else empty */
        struct tw_id base; /* hash of the frozen weights below the run's tensors; zero = any */
        uint32_t layers, width, heads;
        uint32_t kv_heads, head_size, ffn; /* 0 = the family's default: tw_run_shape */
        uint32_t context, vocab;
        enum tw_answer is_tied; /* the output head is the token embedding */
        uint32_t norm_eps_millionths;
        /* llama only: */
        enum tw_answer qk_norm, qkv_bias;
        uint32_t rope_theta;
        uint32_t rope_factor_millionths; /* Llama 3's RoPE frequency scaling; 1 = none */
        uint32_t rope_low_millionths, rope_high_millionths, rope_original;
        uint64_t seed; /* seed of the initial weights */
    } model;

    struct {
        enum tw_tokenizer_kind tokenizer;
        enum tw_form form;   /* kind of file that sha256 identifies: a text, or the index of a
                                dataset */
        struct tw_id sha256; /* zero = any text */
        uint32_t heldout_millionths;    /* fraction that is never trained on */
        enum tw_documents documents;    /* masked: no token attends to documents before its own */
        uint32_t separator;             /* masked: the token that begins a document */
        uint32_t curriculum_millionths; /* fraction of a node's tokens over which the training
                                           windows go from easy to hard */
        enum tw_loss loss; /* tokens that the loss counts. Not in the canonical text if ALL */
    } data;

    struct {
        uint32_t batch;         /* sequences per inner step and node */
        uint64_t tokens;        /* token budget of the whole run: it ends when the run clock reaches
                                   this value */
        uint64_t warmup_tokens; /* tokens of the run clock over which the learning rate rises
                                   linearly */
        uint32_t lr_millionths; /* peak inner learning rate */
        uint32_t lr_final_millionths; /* final learning rate, as a fraction of the peak */
        enum tw_schedule schedule;
        /* schedule wsd: last fraction of the budget, over which the learning rate falls */
        uint32_t wsd_decay_millionths;
        enum tw_optimizer optimizer;
        uint32_t beta1_millionths, beta2_millionths;
        uint32_t muon_momentum_millionths;
        uint32_t decay_millionths;  /* weight decay on matrices */
        uint32_t clip_millionths;   /* largest norm of the whole gradient; 0 = no clipping */
        uint32_t z_loss_millionths; /* weight in the loss of the squared log of the softmax
                                       normaliser */
    } train;

    struct {
        enum tw_preset preset;
        enum tw_topology topology;
        uint32_t nodes; /* planned number of nodes that train at a time; not enforced */
        uint32_t together_millionths; /* group: fraction of the budget that nodes train together */
        uint32_t fragments;
        enum tw_pattern pattern;
        uint32_t period;  /* H: inner steps between two merges of one fragment */
        uint32_t overlap; /* tau: least number of inner steps from sending to applying */
        enum tw_sent sent;
        uint32_t mix_millionths; /* alpha: weight of the local parameters when a merge is applied */
        enum tw_merge merge;
        enum tw_weights weights;
        enum tw_outer_rule outer;
        uint32_t outer_lr_millionths;       /* eta: outer learning rate */
        uint32_t outer_momentum_millionths; /* mu, the momentum after outer_ramp outer steps */
        uint32_t outer_ramp; /* outer steps of a fragment over which mu rises from 0 */
        enum tw_momentum_type momentum_type;
        uint32_t lead_millionths; /* fraction of AdamW's first moment that a merge replaces by the
                                     nodes' common direction */
        uint32_t consensus_millionths;   /* gamma: strength that pulls a pair's anchors together */
        uint32_t gap_penalty_millionths; /* heavyball: kappa, strength of the gap penalty */
        uint32_t momentum_clip_millionths;  /* heavyball: bound on the momentum; 0 = none */
        enum tw_codec_id codec;             /* codec of outer gradients */
        enum tw_codec_id result;            /* codec of merged outer gradients */
        uint32_t feedback_millionths;       /* beta: fraction of the quantisation error added to the
                                               next outer gradient; 0 = none */
        uint32_t feedback_local_millionths; /* fraction of the quantisation error left in theta */
        enum tw_pace pace;
        uint32_t pace_ms;         /* clock: time between two rounds of any fragment */
        uint32_t quorum;          /* contributors needed before the grace starts */
        uint32_t grace_ms;        /* longest grace: the adaptive wait for late contributors */
        uint32_t members;         /* largest roster, at most TW_MEMBERS_MAX */
        uint32_t jury_millionths; /* fraction of contributions that a member checks for training */
    } sync;

    struct {
        enum tw_admission admission;
        struct tw_id owner; /* Ed25519 public key that signs certificates; zero: none */
    } security;
};

/* Sets every key to its default: a small model and the `streaming` preset. `thinwire run new`
 * starts from these. */
void tw_run_defaults(struct tw_run *run);

/* Sets one key ("sync.period") from text, with the key's checks and units. On failure returns
 * TW_CONFIG and leaves *run unchanged. The message names key, value and accepted values or, for an
 * unknown key, a similar one. Setting sync.preset only records the name: call tw_run_apply_preset
 * afterwards. */
enum tw_status tw_run_set(struct tw_run *run, const char *key, const char *value,
                          struct tw_error *err);

/* Sizes derived from the model's keys; a key of 0 means the family's default. */
struct tw_run_shape {
    uint32_t heads, kv_heads, head_size;
    uint32_t q_width, kv_width; /* heads * head_size, kv_heads * head_size */
    uint32_t ffn;
};
struct tw_run_shape tw_run_shape(const struct tw_run *run);

/* Sets data.tokenizer, and every model.* key except the seed, to a well-known shape such as
 * "gpt2-124m" or "llama-1b". Returns TW_CONFIG for an unknown name and leaves *run
 * unchanged. */
enum tw_status tw_run_apply_model(struct tw_run *run, const char *name, struct tw_error *err);

/* Turns the run into a run of any model: family tensors, with this list of tensors (layout.h).
 * Keys that only this project's engine reads are set to their least accepted values. On failure
 * returns TW_CONFIG, names the entry and leaves *run unchanged. */
enum tw_status tw_run_apply_tensors(struct tw_run *run, const char *tensors, struct tw_error *err);

/* Returns the name of well-known shape `i`, smallest first; NULL past the last. */
const char *tw_run_model_name(uint32_t i);

/* Sets train.warmup_tokens to 1 % of the budget, or to 100 steps of each node if that is more, but
 * at most a fifth of the budget. A short run that warms up too fast loses more than merging gains.
 */
void tw_run_fit_warmup(struct tw_run *run);

struct tw_layout;

/* Returns Muon's arithmetic as a share of the rest of a step (run_preset.c); about 5 * n / B for
 * matrices of (n, n) and B tokens a step. `layout` is the run's. 0 for a run of any model. */
double tw_run_muon_cost(const struct tw_run *run, const struct tw_layout *layout);

/* Sets train.optimizer: muon if its arithmetic adds at most three quarters to a step, else adamw.
 * Muon reaches the loss of AdamW with about half of the tokens (arXiv 2502.16982, and here), so a
 * step may cost that much more; and every byte that is sent carries more. Returns true for muon. A
 * run of any model brings its own optimizer. */
bool tw_run_fit_optimizer(struct tw_run *run, const struct tw_layout *layout);

/* Sets every sync.* key except sync.nodes, sync.members, sync.pace and sync.interval to the
 * preset's row. The row is fitted to the model and to the planned number of outer steps
 * (run_preset.c). It also depends on the previous sync.codec and sync.topology: a coarse codec and
 * pairs need a shorter period. */
void tw_run_apply_preset(struct tw_run *run, enum tw_preset preset);

/* Adapts the preset's row after other keys were set. If sync.fragments does not divide sync.period,
 * the one of the two that was not set is changed. Overlap and outer constants follow sync.period,
 * sync.fragments and sync.codec. Keys that contradict the new topology, rule or codec are reset:
 * lead outside groups, merge rules of groups in pairs, and feedback 0 with a codec that needs
 * feedback. Keys that were set explicitly must be set again afterwards. */
void tw_run_refit(struct tw_run *run);

/* Returns how nodes keep the outer momentum of this run. NONE: no outer step reads it. */
enum tw_momentum tw_run_momentum(const struct tw_run *run);

/* Returns the bytes of the outer momentum of one parameter. */
static inline uint64_t tw_momentum_bytes(enum tw_momentum momentum) {
    return momentum == TW_MOMENTUM_FLOAT32 ? 4 : momentum == TW_MOMENTUM_BF16 ? 2 : 0;
}

/* Returns the value of the run clock, in tokens, up to which nodes merge. After it each node trains
 * alone. */
uint64_t tw_run_together_tokens(const struct tw_run *run);

/* Returns the planned outer steps of each fragment: tokens / (batch * context * nodes * period),
 * with the tokens that nodes train together. 0 if the run ends before the first one. The real
 * number depends on how many nodes take part. */
uint64_t tw_run_outer_steps(const struct tw_run *run);

/* With sync.pace = clock: returns the time of an inner step at the planned speed, at which
 * sync.period steps take sync.interval * sync.fragments. Returns 0 with sync.pace = steps, which
 * plans no speed. */
uint64_t tw_run_step_us(const struct tw_run *run);

/* With sync.pace = clock: makes sync.interval and sync.period consistent for nodes whose inner
 * steps take step_us (> 0). The interval is computed from the period. If the interval was set
 * (has_interval), the period and all keys that depend on it are computed from the interval. */
void tw_run_fit_clock(struct tw_run *run, uint64_t step_us, bool has_interval);

/* Checks the range of every key and the relations between keys: kv_heads divides heads, fragments
 * divides period, overlap < period / fragments, ... Returns TW_CONFIG if one is violated. */
enum tw_status tw_run_check(const struct tw_run *run, struct tw_error *err);

/* Returns TW_CONFIG for family tensors: this project's engine cannot train such a model, only the
 * user's own trainer can. */
enum tw_status tw_run_check_engine(const struct tw_run *run, struct tw_error *err);

/* Returns true if the run is of any model and the trainer has its own data: no node stores or
 * fetches any. */
bool tw_run_has_own_data(const struct tw_run *run);

/* Writes the canonical text without NUL; *size_out <= TW_MANIFEST_BYTES_MAX. Cannot fail on a
 * checked run. */
void tw_run_encode(const struct tw_run *run, char text[TW_MANIFEST_BYTES_MAX], size_t *size_out);

/* Decodes canonical text and nothing else, then calls tw_run_check. Returns TW_CONFIG, or
 * TW_VERSION for a manifest of another version; *run is then undefined. */
enum tw_status tw_run_decode(const char *text, size_t size, struct tw_run *run,
                             struct tw_error *err);

/* Reads a run file that a person edits: canonical text plus comments (`#`), blank lines, spaces and
 * convenient units, with keys in any order. A missing sync.* key gets its value from the named
 * preset, any other missing key from tw_run_defaults. A file counts as truncated if it has more
 * than a few keys, and these are the first keys of the table, in order. The TW_CONFIG error names
 * the line. */
enum tw_status tw_run_read(const char *text, size_t size, struct tw_run *run, struct tw_error *err);

/* Like tw_run_read, but without the check for truncation: for text written by a version that had
 * fewer keys. */
enum tw_status tw_run_read_older(const char *text, size_t size, struct tw_run *run,
                                 struct tw_error *err);

/* Writes a run file with a help comment above every key; inverse of tw_run_read on a checked run.
 * In a run of any model, keys that only this project's engine reads are left out. */
void tw_run_write(const struct tw_run *run, char text[TW_MANIFEST_BYTES_MAX], size_t *size_out);

/* Returns the SHA-256 of the canonical text. It is in the library tw_proto, because it needs
 * tw_hash; all other functions are in tw_run. */
struct tw_id tw_run_id(const struct tw_run *run);

#endif
