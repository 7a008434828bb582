/* run.h - the run manifest: what every node of a run must agree on, to the byte.
 *
 * The canonical text (PROTOCOL.md section 4) is every key of tw_run_keys() (run_key.h) in table
 * order, one `section.key = value\n` per line after the line `thinwire-run 1\n`. The run id is its
 * SHA-256. Reals are carried as whole millionths, so that text and bytes cannot disagree. */
#ifndef TW_PROTO_RUN_RUN_H
#define TW_PROTO_RUN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

enum tw_answer { TW_NO, TW_YES };
enum tw_family { TW_FAMILY_GPT2, TW_FAMILY_LLAMA };
enum tw_tokenizer_kind { TW_TOKENIZER_BYTES, TW_TOKENIZER_IDS };
enum tw_form { TW_FORM_FILE, TW_FORM_DATASET };
enum tw_documents { TW_DOCUMENTS_JOINED, TW_DOCUMENTS_MASKED };
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
    TW_TOPOLOGY_GROUP, /* one shared anchor, every round merges all */
    TW_TOPOLOGY_PAIR,  /* each node its own anchor, every round merges two */
    TW_TOPOLOGY_SOLO,  /* each node its own anchor, nothing is merged while training */
};
/* What becomes of the work a node sent, from then until the merge with it is applied. `Delta sent`
 * is anchor - theta when it was sent. */
enum tw_sent {
    TW_SENT_MIX,     /* training goes on from it; then theta = mix theta + (1 - mix) anchor' */
    TW_SENT_KEEP,    /* training goes on from it; then theta += anchor' - anchor + Delta sent: the
                        merge takes the place of what was sent, and no step is lost */
    TW_SENT_RESTART, /* training goes on from the anchor; then theta += anchor' - anchor */
    TW_SENT_EAGER,   /* as restart, from the anchor with the node's own share in it: Eager updates,
                        arXiv 2502.12996 */
};
enum tw_outer_rule { TW_OUTER_NESTEROV, TW_OUTER_HEAVYBALL };
enum tw_merge {
    TW_MERGE_MEAN,
    TW_MERGE_RDA,     /* directions and norms apart: Decoupled DiLoCo */
    TW_MERGE_TRIMMED, /* per coordinate, without the quarter at each end */
    TW_MERGE_MEDIAN,  /* per coordinate */
    TW_MERGE_CLIPPED, /* centred clipping around the median */
};
enum tw_weights { TW_WEIGHTS_EQUAL, TW_WEIGHTS_TOKENS, TW_WEIGHTS_TOKENS_RATE };
enum tw_codec_id {
    TW_CODEC_BF16,
    TW_CODEC_INT8,
    TW_CODEC_INT4,
    TW_CODEC_NF4,
    TW_CODEC_E3M0,
    TW_CODEC_LM2,
    TW_CODEC_SIGN,
    TW_CODEC_ECSQ4,
    TW_CODEC_ECSQ3,
    TW_CODEC_ECSQ2,
    TW_CODEC_ECSQ1,
    TW_CODEC_ECSQ05,
    TW_CODEC_TOPK256,
    TW_CODEC_TOPK64,
    TW_CODEC_TOPK32,
    TW_CODEC_SPARSE8,
    TW_CODEC_AUTO,
};
enum tw_pace { TW_PACE_STEPS, TW_PACE_CLOCK };
enum tw_admission { TW_ADMISSION_SECRET, TW_ADMISSION_OPEN, TW_ADMISSION_OWNER };

struct tw_run {
    char name[64]; /* [a-z0-9-], not empty */

    struct {
        enum tw_family family;
        uint32_t layers, width, heads;
        uint32_t kv_heads, head_size, ffn; /* 0 = by the family: tw_run_shape says */
        uint32_t context, vocab;
        enum tw_answer is_tied; /* the output head is the token embedding */
        uint32_t norm_eps_millionths;
        /* llama only: */
        enum tw_answer qk_norm, qkv_bias;
        uint32_t rope_theta;
        uint32_t rope_factor_millionths; /* Llama 3's scaling of the frequencies; 1 = none */
        uint32_t rope_low_millionths, rope_high_millionths, rope_original;
        uint64_t seed; /* of the initial weights */
    } model;

    struct {
        enum tw_tokenizer_kind tokenizer;
        enum tw_form form;              /* what sha256 names: a text, or a dataset's index */
        struct tw_id sha256;            /* zero = any text */
        uint32_t heldout_millionths;    /* share that is never trained on */
        enum tw_documents documents;    /* whether a token sees the documents before its own */
        uint32_t separator;             /* masked: the token that begins a document */
        uint32_t curriculum_millionths; /* of a node's tokens, drawn from easy to hard */
    } data;

    struct {
        uint32_t batch;               /* sequences per inner step and node */
        uint64_t tokens;              /* budget of the whole run; the run clock ends here */
        uint64_t warmup_tokens;       /* linear warm-up on the run clock */
        uint32_t lr_millionths;       /* peak of the inner learning rate */
        uint32_t lr_final_millionths; /* end of the schedule, as a share of the peak */
        enum tw_schedule schedule;
        uint32_t wsd_decay_millionths; /* wsd: the last share of the budget, over which it falls */
        enum tw_optimizer optimizer;
        uint32_t beta1_millionths, beta2_millionths;
        uint32_t muon_momentum_millionths;
        uint32_t decay_millionths;  /* weight decay on matrices */
        uint32_t clip_millionths;   /* global gradient norm; 0 = no clip */
        uint32_t z_loss_millionths; /* weight of log^2 of the softmax's normaliser */
    } train;

    struct {
        enum tw_preset preset;
        enum tw_topology topology;
        uint32_t nodes;               /* planned to train at a time: a plan, never enforced */
        uint32_t together_millionths; /* group: share of the budget after which each goes alone */
        uint32_t fragments;
        enum tw_pattern pattern;
        uint32_t period;  /* H: inner steps between two syncs of one fragment */
        uint32_t overlap; /* tau: inner steps from send to apply, at least */
        enum tw_sent sent;
        uint32_t mix_millionths; /* alpha: weight of the local parameters when applying */
        enum tw_merge merge;
        enum tw_weights weights;
        enum tw_outer_rule outer;
        uint32_t outer_lr_millionths;       /* eta */
        uint32_t outer_momentum_millionths; /* mu, reached after outer_ramp outer steps */
        uint32_t outer_ramp;             /* outer steps of a fragment over which mu rises from 0 */
        uint32_t lead_millionths;        /* share of AdamW's first moment that a merge replaces */
        uint32_t consensus_millionths;   /* gamma: pull of a pair's anchors towards each other */
        uint32_t gap_penalty_millionths; /* kappa, of heavyball */
        uint32_t momentum_clip_millionths;  /* of heavyball; 0 = none */
        enum tw_codec_id codec;             /* of outer gradients */
        enum tw_codec_id result;            /* of merged ones */
        uint32_t feedback_millionths;       /* beta of error feedback; 0 = none */
        uint32_t feedback_local_millionths; /* share of what coding lost that theta keeps */
        enum tw_pace pace;
        uint32_t pace_ms;  /* clock pace: time between two rounds of any fragment */
        uint32_t quorum;   /* contributors wanted before the grace starts */
        uint32_t grace_ms; /* upper bound of the adaptive grace */
        uint32_t members;  /* roster size limit, <= TW_MEMBERS_MAX */
    } sync;

    struct {
        enum tw_admission admission;
        struct tw_id owner; /* Ed25519 public key that signs certificates; zero: no owner */
    } security;
};

/* A small model and the `streaming` preset: what `thinwire run new` starts from. */
void tw_run_defaults(struct tw_run *run);

/* Sets one key ("sync.period") from text, with its own checks and units. TW_CONFIG with a sentence
 * that names key, value and what would be accepted (did-you-mean for unknown keys); *run is then
 * unchanged. Setting sync.preset only records the name: follow it by tw_run_apply_preset. */
enum tw_status tw_run_set(struct tw_run *run, const char *key, const char *value,
                          struct tw_error *err);

/* Sizes that follow from the model's keys, with the family's choice where a key is 0. */
struct tw_run_shape {
    uint32_t heads, kv_heads, head_size;
    uint32_t q_width, kv_width; /* heads * head_size, kv_heads * head_size */
    uint32_t ffn;
};
struct tw_run_shape tw_run_shape(const struct tw_run *run);

/* Overwrites every model.* key but the seed, and data.tokenizer, with a well-known shape such as
 * "gpt2-124m" or "llama-1b": run_model.c. TW_CONFIG when there is none of that name; *run is then
 * unchanged. */
enum tw_status tw_run_apply_model(struct tw_run *run, const char *name, struct tw_error *err);

/* Name of shape `i`, smallest first; NULL past the last. */
const char *tw_run_model_name(uint32_t i);

/* Sets train.warmup_tokens: 1 % of the budget, but 100 steps of each node where that is no more
 * than a fifth of it: a short run that warms up too fast loses more than it gains by merging. */
void tw_run_fit_warmup(struct tw_run *run);

/* Overwrites every sync.* knob but sync.nodes, sync.members, sync.pace and sync.interval with the
 * row of the preset, fitted to the model and to the planned number of outer steps: run_preset.c. Of
 * what was there before a coarse sync.codec counts and sync.topology = pair: both want a shorter
 * period. */
void tw_run_apply_preset(struct tw_run *run, enum tw_preset preset);

/* What of the row follows from sync.period and sync.fragments, once these are set otherwise: of the
 * two the one that was not, where the fragments do not divide the period, the overlap, and the
 * outer constants, which follow from sync.codec too. And what the row has of keys that do not go
 * with the topology, rule or codec that was set gives way: lead where nobody is a group, the rule
 * of groups in pairs, no feedback for a codec that needs it. What was set has to be set again. */
void tw_run_refit(struct tw_run *run);

/* Tokens of the run clock up to which nodes merge; from then on each trains by itself. */
uint64_t tw_run_together_tokens(const struct tw_run *run);

/* Planned outer steps of each fragment: tokens / (batch context nodes period). 0 when the run ends
 * before the first one. An estimate: the nodes that will come are not known. */
uint64_t tw_run_outer_steps(const struct tw_run *run);

/* Clock pace: how long an inner step takes at the speed the run is planned for, of which a period
 * of each fragment takes sync.interval x sync.fragments. 0 with pace steps: no speed is planned. */
uint64_t tw_run_step_us(const struct tw_run *run);

/* Clock pace: ties sync.interval to sync.period for nodes whose steps take so long (> 0): the
 * interval follows, or where it was set the period, and what follows from that. */
void tw_run_fit_clock(struct tw_run *run, uint64_t step_us, bool has_interval);

/* Checks the range of every key and the relations between keys: kv_heads divide heads, fragments
 * divide period, overlap < period / fragments, ... TW_CONFIG. */
enum tw_status tw_run_check(const struct tw_run *run, struct tw_error *err);

/* Canonical text without NUL; *size_out <= TW_MANIFEST_BYTES_MAX. Cannot fail on a checked run. */
void tw_run_encode(const struct tw_run *run, char text[TW_MANIFEST_BYTES_MAX], size_t *size_out);

/* Strict inverse of encode: only the canonical bytes are accepted; then tw_run_check. TW_CONFIG, or
 * TW_VERSION for a manifest of another version; *run is then undefined. */
enum tw_status tw_run_decode(const char *text, size_t size, struct tw_run *run,
                             struct tw_error *err);

/* The run file a person edits: canonical text in which comments (`#`), blank lines, spaces and
 * human units are allowed, keys come in any order and may be left out. Keys left out take
 * tw_run_defaults, for sync.* the row of the preset the file names; but a file that has more than a
 * few of the first keys in their order and no other was cut off. TW_CONFIG names the line. */
enum tw_status tw_run_read(const char *text, size_t size, struct tw_run *run, struct tw_error *err);

/* As tw_run_read, of a text that nothing was cut off: one that a version with fewer keys wrote. */
enum tw_status tw_run_read_older(const char *text, size_t size, struct tw_run *run,
                                 struct tw_error *err);

/* A run file with a comment of help above every key; inverse of tw_run_read on a checked run. */
void tw_run_write(const struct tw_run *run, char text[TW_MANIFEST_BYTES_MAX], size_t *size_out);

/* SHA-256 of the canonical text. (Lives in tw_proto, needs tw_hash; the rest is in tw_run.) */
struct tw_id tw_run_id(const struct tw_run *run);

#endif
