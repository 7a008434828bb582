/* run_check.c - refuses combinations of manifest keys that cannot work, and keys without effect,
 * with the reason. */
#include "proto/run/run_key.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "proto/run/layout.h"

/* ---- runs of any model: keys that only this project's engine reads -------------------------- */

static const char *const engine_keys[] = {
    "model.layers",    "model.width",     "model.heads",         "model.kv_heads",
    "model.head_size", "model.ffn",       "model.tied",          "model.norm_eps",
    "model.qk_norm",   "model.qkv_bias",  "model.rope_theta",    "model.rope_factor",
    "model.rope_low",  "model.rope_high", "model.rope_original", "model.seed",
    "train.optimizer", "train.beta1",     "train.muon_momentum", "train.decay",
    "train.clip",      "train.z_loss",    "sync.pattern",
};

/* Keys of the training data. Unless data.sha256 names that data, the trainer chooses its own. */
static const char *const data_keys[] = {
    "model.vocab",    "data.tokenizer", "data.form",       "data.heldout",
    "data.documents", "data.separator", "data.curriculum", "data.loss",
};

static bool has(const char *const *names, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

static bool is_of_data(const struct tw_run_key *key) {
    return has(data_keys, sizeof(data_keys) / sizeof(data_keys[0]), key->name);
}

bool tw_run_is_for_engine(const struct tw_run_key *key, const struct tw_run *run) {
    if (run->model.family != TW_FAMILY_TENSORS) return false;
    if (has(engine_keys, sizeof(engine_keys) / sizeof(engine_keys[0]), key->name)) return true;
    return tw_run_has_own_data(run) && is_of_data(key);
}

void tw_run_clear_engine(struct tw_run *run) {
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (tw_run_is_for_engine(&keys[i], run)) tw_run_key_set_least(&keys[i], run);
    }
}

enum tw_status tw_run_apply_tensors(struct tw_run *run, const char *tensors, struct tw_error *err) {
    TW_TRY(tw_run_set(run, "model.tensors", tensors, err));
    run->model.family = TW_FAMILY_TENSORS;
    tw_run_clear_engine(run);
    return TW_OK;
}

static enum tw_status check_tensors(const struct tw_run *run, struct tw_error *err) {
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    if (run->model.family != TW_FAMILY_TENSORS) {
        if (run->model.tensors[0] == '\0' && tw_id_is_zero(&run->model.base)) return TW_OK;
        return tw_fail(err, TW_CONFIG,
                       "model.%s needs model.family = tensors: models of other families have the "
                       "tensors of their kind",
                       run->model.tensors[0] != '\0' ? "tensors" : "base");
    }
    if (run->model.tensors[0] == '\0')
        return tw_fail(err, TW_CONFIG,
                       "model.family = tensors needs model.tensors, the names and shapes of the "
                       "parameters: `thinwire run new NAME --tensors FILE` writes them");
    for (uint32_t i = 0; i < count; i++) {
        if (!tw_run_is_for_engine(&keys[i], run) || tw_run_key_is_least(&keys[i], run)) continue;
        return tw_fail(err, TW_CONFIG,
                       "%s has no effect where model.family = tensors%s, because the trainer "
                       "brings its own %s: leave it out",
                       keys[i].name, is_of_data(&keys[i]) ? " and data.sha256 = any" : "",
                       is_of_data(&keys[i])                      ? "data"
                       : strncmp(keys[i].name, "train.", 6) == 0 ? "optimizer"
                                                                 : "model");
    }
    return TW_OK;
}

enum tw_status tw_run_check_engine(const struct tw_run *run, struct tw_error *err) {
    if (run->model.family != TW_FAMILY_TENSORS) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "model.family = tensors is for trainers of your own, because this engine "
                   "computes gpt2 and llama alone: start your trainer, which attaches to the "
                   "daemon's worker socket, or name it with worker_path");
}

bool tw_run_has_own_data(const struct tw_run *run) {
    return run->model.family == TW_FAMILY_TENSORS && tw_id_is_zero(&run->data.sha256);
}

/* ---- model, data, train, security ----------------------------------------------------------- */

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
    TW_TRY(check_tensors(run, err));
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
    if (run->data.loss == TW_LOSS_ANSWERS && run->data.form != TW_FORM_DATASET)
        return tw_fail(
            err, TW_CONFIG,
            "data.loss = answers needs a dataset that marks answers: data.form = dataset");
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

/* ---- sync ----------------------------------------------------------------------------------- */

/* Refuses more fragments than can be filled: no fragment may be empty. */
static enum tw_status check_fragments(const struct tw_run *run, struct tw_error *err) {
    const uint32_t fragments = run->sync.fragments;
    if (run->model.family == TW_FAMILY_TENSORS) {
        struct tw_tensor_list_size size;
        TW_TRY(tw_tensor_list_check(run->model.tensors, &size, err));
        const uint64_t most = (size.elements + TW_PART_ALIGN - 1) / TW_PART_ALIGN;
        if (fragments <= most) return TW_OK;
        return tw_fail(err, TW_CONFIG,
                       "sync.fragments (%u) is too much for %llu parameters, because a fragment "
                       "has at least %d of them: set sync.fragments = %llu or less",
                       fragments, (unsigned long long)size.elements, TW_PART_ALIGN,
                       (unsigned long long)most);
    }
    /* A model whose whole layers need larger payloads than allowed has fragments that begin inside
     * layers (layout.h), so it may have more. */
    const uint64_t least = tw_layout_fragments_least(tw_layout_family_params(run));
    if (fragments > run->model.layers + 1 && fragments > least)
        return tw_fail(err, TW_CONFIG,
                       "sync.fragments (%u) is more than model.layers + 1 (%u): a fragment would "
                       "be empty; set sync.fragments = %u or less",
                       fragments, run->model.layers + 1, run->model.layers + 1);
    return TW_OK;
}

static enum tw_status check_rounds(const struct tw_run *run, struct tw_error *err) {
    const uint32_t fragments = run->sync.fragments, period = run->sync.period;
    TW_TRY(check_fragments(run, err));
    if (period % fragments != 0)
        return tw_fail(err, TW_CONFIG,
                       "sync.period (%u) must be a multiple of sync.fragments (%u): %u would do",
                       period, fragments, (period / fragments + 1) * fragments);
    if (run->sync.overlap >= period / fragments)
        return tw_fail(err, TW_CONFIG,
                       "sync.overlap (%u) must be less than sync.period / sync.fragments (%u): a "
                       "merge has to be applied before the next one starts; set sync.overlap = %u "
                       "or less",
                       run->sync.overlap, period / fragments, period / fragments - 1);
    if (run->sync.nodes > run->sync.members)
        return tw_fail(err, TW_CONFIG,
                       "sync.nodes (%u) is more than sync.members (%u): plan for fewer nodes, or "
                       "raise sync.members",
                       run->sync.nodes, run->sync.members);
    if (run->sync.quorum > run->sync.nodes)
        return tw_fail(
            err, TW_CONFIG,
            "sync.quorum (%u) is more than sync.nodes (%u): every round would wait for nodes that "
            "are not planned; set sync.quorum = %u or less, or plan for more nodes",
            run->sync.quorum, run->sync.nodes, run->sync.nodes);
    return TW_OK;
}

/* Returns the value of a key as text. */
static const char *word(const struct tw_run *run, const char *key, char text[TW_RUN_VALUE_BYTES]) {
    tw_run_key_format(tw_run_key_find(key), run, text);
    return text;
}

/* NoLoCo, arXiv 2506.10911, with mu = outer momentum, eta = outer learning rate, gamma = consensus:
 * the mean of the nodes converges if mu < eta. By equation 74 with n = 2, the nodes stay together
 * if mu < gamma < sqrt(2 + mu^2). */
static enum tw_status check_pair_rule(const struct tw_run *run, struct tw_error *err) {
    const uint64_t mu = run->sync.outer_momentum_millionths, gamma = run->sync.consensus_millionths;
    const uint64_t two = UINT64_C(2) * 1000000 * 1000000;
    if (run->sync.outer_lr_millionths <= mu)
        return tw_fail(err, TW_CONFIG,
                       "sync.outer_lr (%.6g) must be more than sync.outer_momentum (%.6g) in "
                       "pairs: with less NoLoCo is not known to converge; its own are 0.7 and "
                       "0.5",
                       run->sync.outer_lr_millionths / 1e6, (double)mu / 1e6);
    if (gamma <= mu || gamma * gamma >= two + mu * mu)
        return tw_fail(err, TW_CONFIG,
                       "sync.consensus (%.6g) must lie between sync.outer_momentum (%.6g) and "
                       "sqrt(2 + momentum^2): outside, the nodes drift apart",
                       (double)gamma / 1e6, (double)mu / 1e6);
    return TW_OK;
}

static enum tw_status check_pair(const struct tw_run *run, struct tw_error *err) {
    char text[TW_RUN_VALUE_BYTES];
    if (run->sync.outer != TW_OUTER_HEAVYBALL)
        return tw_fail(err, TW_CONFIG,
                       "sync.topology = pair needs sync.outer = heavyball: the pull between the "
                       "anchors of a pair is part of that rule");
    if (run->sync.merge != TW_MERGE_MEAN)
        return tw_fail(err, TW_CONFIG,
                       "sync.merge = %s needs sync.topology = group: a pair takes the mean of its "
                       "two; set sync.merge = mean",
                       word(run, "sync.merge", text));
    if (run->sync.sent != TW_SENT_KEEP)
        return tw_fail(err, TW_CONFIG,
                       "sync.sent = %s needs sync.topology = group: a pair trains on from the "
                       "parameters that it sent; set sync.sent = keep",
                       word(run, "sync.sent", text));
    if (run->sync.weights != TW_WEIGHTS_EQUAL)
        return tw_fail(err, TW_CONFIG,
                       "sync.weights = %s needs sync.topology = group: the two of a pair count "
                       "alike; set sync.weights = equal",
                       word(run, "sync.weights", text));
    return check_pair_rule(run, err);
}

static enum tw_status check_outer(const struct tw_run *run, struct tw_error *err) {
    /* A step of u to mu * u must be more than half a unit in the last place of bf16, 2^-9 of u. */
    enum { BF16_MOMENTUM_MAX = 990000 };
    if (run->sync.lead_millionths > 0 && run->sync.topology != TW_TOPOLOGY_GROUP)
        return tw_fail(err, TW_CONFIG,
                       "sync.lead (%.6g) needs sync.topology = group: it follows the common "
                       "direction of many nodes; set sync.lead = 0",
                       run->sync.lead_millionths / 1e6);
    if (run->sync.together_millionths < 1000000 && run->sync.topology != TW_TOPOLOGY_GROUP)
        return tw_fail(err, TW_CONFIG,
                       "sync.together (%.6g) needs sync.topology = group: it says when a group "
                       "parts; set sync.together = 1",
                       run->sync.together_millionths / 1e6);
    if (run->sync.momentum_type == TW_MOMENTUM_TYPE_BF16 &&
        run->sync.outer_momentum_millionths > BF16_MOMENTUM_MAX)
        return tw_fail(err, TW_CONFIG,
                       "sync.momentum_type = bf16 needs sync.outer_momentum of 0.99 or less, not "
                       "%.6g: so slow a decay is rounded away in bf16; set that, or "
                       "sync.momentum_type = auto",
                       run->sync.outer_momentum_millionths / 1e6);
    if (run->sync.outer == TW_OUTER_HEAVYBALL) return TW_OK;
    if (run->sync.gap_penalty_millionths > 0)
        return tw_fail(err, TW_CONFIG,
                       "sync.gap_penalty needs sync.outer = heavyball, whose momentum it holds "
                       "back: set that, or sync.gap_penalty = 0");
    if (run->sync.momentum_clip_millionths > 0)
        return tw_fail(err, TW_CONFIG,
                       "sync.momentum_clip needs sync.outer = heavyball, whose momentum it clips: "
                       "set that, or sync.momentum_clip = 0");
    return TW_OK;
}

/* The gap penalty is computed from ||u||, also with momentum 0. A node alone never steps. */
enum tw_momentum tw_run_momentum(const struct tw_run *run) {
    if (run->sync.momentum_type == TW_MOMENTUM_TYPE_FLOAT32) return TW_MOMENTUM_FLOAT32;
    const bool has_use =
        run->sync.outer_momentum_millionths > 0 || run->sync.gap_penalty_millionths > 0;
    if (!has_use || run->sync.topology == TW_TOPOLOGY_SOLO) return TW_MOMENTUM_NONE;
    return run->sync.momentum_type == TW_MOMENTUM_TYPE_BF16 ? TW_MOMENTUM_BF16
                                                            : TW_MOMENTUM_FLOAT32;
}

bool tw_run_is_robust(enum tw_merge merge) {
    return merge == TW_MERGE_TRIMMED || merge == TW_MERGE_MEDIAN || merge == TW_MERGE_CLIPPED;
}

/* Median and trimmed mean shrink a merge of sparse payloads. Measured norm of the merge divided by
 * that of the mean of the same payloads, for eight outer gradients with a tenth in common: topk64
 * 0.04 (median) and 0.11 (trimmed), ecsq05 0.24 and 0.34, ecsq1 0.59 and 0.66; int8 1.1. */
bool tw_run_can_code(enum tw_merge merge, enum tw_codec_id codec) {
    if (merge != TW_MERGE_MEDIAN && merge != TW_MERGE_TRIMMED) return true;
    return codec == TW_CODEC_SIGN || !tw_run_is_coarse(codec);
}

static enum tw_status check_merge(const struct tw_run *run, struct tw_error *err) {
    enum { ROBUST_NODES_MIN = 5 };
    char text[TW_RUN_VALUE_BYTES], codec[TW_RUN_VALUE_BYTES];
    const bool is_robust = tw_run_is_robust(run->sync.merge);
    /* `clipped` is the default for any number of nodes: among fewer it is the mean. */
    if (is_robust && run->sync.merge != TW_MERGE_CLIPPED && run->sync.nodes < ROBUST_NODES_MIN)
        return tw_fail(err, TW_CONFIG,
                       "sync.merge = %s finds outliers among at least %d nodes, and sync.nodes is "
                       "%u: set sync.merge = clipped, or plan for more nodes",
                       word(run, "sync.merge", text), ROBUST_NODES_MIN, run->sync.nodes);
    if (is_robust && run->sync.weights != TW_WEIGHTS_EQUAL)
        return tw_fail(err, TW_CONFIG,
                       "sync.merge = %s counts every node as one, because a node could lie about "
                       "its tokens: set sync.weights = equal",
                       word(run, "sync.merge", text));
    if (!tw_run_can_code(run->sync.merge, run->sync.codec))
        return tw_fail(
            err, TW_CONFIG,
            "sync.merge = %s merges each parameter by itself, and most parameters are sent as 0 "
            "with sync.codec = %s: little of the work would be merged, and the rest never sent "
            "again; set sync.merge = clipped, or sync.codec = ecsq2 or finer",
            word(run, "sync.merge", text), word(run, "sync.codec", codec));
    if (run->sync.mix_millionths > 0 && run->sync.sent != TW_SENT_MIX)
        return tw_fail(err, TW_CONFIG,
                       "sync.mix (%.6g) belongs to sync.sent = mix; with %s it must be 0",
                       run->sync.mix_millionths / 1e6, word(run, "sync.sent", text));
    return TW_OK;
}

#define CODEC_FEEDBACK(ID, word, needs_feedback) needs_feedback,

bool tw_run_needs_feedback(enum tw_codec_id codec) {
    static const bool needs[] = {TW_CODECS_EACH(CODEC_FEEDBACK)};
    TW_ASSERT((size_t)codec < sizeof(needs) / sizeof(needs[0]));
    return needs[codec];
}

bool tw_run_is_coarse(enum tw_codec_id codec) {
    return tw_run_needs_feedback(codec) && codec != TW_CODEC_ECSQ2;
}

static enum tw_status check_feedback(const struct tw_run *run, struct tw_error *err) {
    if (run->sync.feedback_local_millionths == 0) return TW_OK;
    if (run->sync.feedback_millionths == 0)
        return tw_fail(err, TW_CONFIG,
                       "sync.feedback_local (%.6g) needs sync.feedback, which stores the "
                       "quantisation error: set that, such as 0.95, or sync.feedback_local = 0",
                       run->sync.feedback_local_millionths / 1e6);
    if (run->sync.sent == TW_SENT_MIX)
        return tw_fail(err, TW_CONFIG,
                       "sync.feedback_local (%.6g) cannot go with sync.sent = mix, which pulls a "
                       "node's parameters to the anchor: set sync.sent = keep, or "
                       "sync.feedback_local = 0",
                       run->sync.feedback_local_millionths / 1e6);
    return TW_OK;
}

/* Returns how many of 4096 elements a sparse codec keeps; 0 for others. */
static uint32_t kept_by(enum tw_codec_id codec) {
    return codec == TW_CODEC_TOPK256  ? 256
           : codec == TW_CODEC_TOPK64 ? 64
           : codec == TW_CODEC_TOPK32 ? 32
                                      : 0;
}

/* Returns true if a result in this codec leaves out small elements, as 0, and is close for others.
 */
static bool leaves_out(enum tw_codec_id codec) {
    return codec == TW_CODEC_ECSQ2 || codec == TW_CODEC_ECSQ1 || codec == TW_CODEC_ECSQ05 ||
           kept_by(codec) > 0;
}

/* The elements that a sparse result leaves out are kept for later by their senders (inflight.h).
 * These need a residual, and must not have applied their own values. */
static enum tw_status check_sparse_result(const struct tw_run *run, struct tw_error *err) {
    char text[TW_RUN_VALUE_BYTES], codec[TW_RUN_VALUE_BYTES];
    const uint32_t kept = kept_by(run->sync.codec), wanted = kept_by(run->sync.result);
    if (run->sync.feedback_millionths == 0 || run->sync.sent != TW_SENT_KEEP)
        return tw_fail(err, TW_CONFIG,
                       "sync.result = %s leaves out much of a merge, which the senders keep for "
                       "later: it needs sync.sent = keep and sync.feedback, such as 0.95; or set "
                       "sync.result = sparse8",
                       word(run, "sync.result", text));
    if (wanted > 0 && (run->sync.codec == TW_CODEC_AUTO || (kept > 0 && kept < wanted)))
        return tw_fail(err, TW_CONFIG,
                       "sync.result = %s sends more values than a contribution in sync.codec = %s "
                       "may have: set sync.result to the same codec, or to ecsq1",
                       word(run, "sync.result", text), word(run, "sync.codec", codec));
    return TW_OK;
}

/* Any number of bits is allowed in sync.result, because only its quantisation error matters: ecsq3,
 * at 3 bits, loses less than e3m0 at 4.25 (tests/RECORDS.md). With 2 bits or fewer, the loss is a
 * tenth of a merge or more; unless the result is sparse. */
static enum tw_status check_codec(const struct tw_run *run, struct tw_error *err) {
    char text[TW_RUN_VALUE_BYTES];
    if (run->sync.topology == TW_TOPOLOGY_SOLO) return TW_OK;
    if (tw_run_needs_feedback(run->sync.codec) && run->sync.feedback_millionths == 0)
        return tw_fail(err, TW_CONFIG,
                       "sync.codec = %s has a large quantisation error: set sync.feedback, such as "
                       "0.95, so that it is sent later",
                       word(run, "sync.codec", text));
    TW_TRY(check_feedback(run, err));
    if (run->sync.topology != TW_TOPOLOGY_GROUP || !tw_run_needs_feedback(run->sync.result))
        return TW_OK;
    if (!leaves_out(run->sync.result))
        return tw_fail(
            err, TW_CONFIG,
            "sync.result = %s loses much of every merge, and the loss is never sent later: "
            "ecsq1 and sparse8 suit sparse contributions, int4 or int8 any",
            word(run, "sync.result", text));
    return check_sparse_result(run, err);
}

/* A juror draws the windows of others by its own engine, from the same data. */
static enum tw_status check_jury(const struct tw_run *run, struct tw_error *err) {
    if (run->sync.jury_millionths == 0) return TW_OK;
    if (run->model.family == TW_FAMILY_TENSORS)
        return tw_fail(err, TW_CONFIG,
                       "sync.jury needs a model that Thinwire's own engine computes, and "
                       "model.family is tensors: set sync.jury = 0");
    if (tw_id_is_zero(&run->data.sha256))
        return tw_fail(
            err, TW_CONFIG,
            "sync.jury needs the same data on every node, and data.sha256 is any: set it to the "
            "SHA-256 of the data, or set sync.jury = 0");
    return TW_OK;
}

static enum tw_status check_sync(const struct tw_run *run, struct tw_error *err) {
    TW_TRY(check_rounds(run, err));
    TW_TRY(check_outer(run, err));
    TW_TRY(check_merge(run, err));
    TW_TRY(check_codec(run, err));
    TW_TRY(check_jury(run, err));
    if (run->sync.topology == TW_TOPOLOGY_PAIR) return check_pair(run, err);
    if (run->sync.consensus_millionths > 0)
        return tw_fail(err, TW_CONFIG,
                       "sync.consensus needs sync.topology = pair: a group has one anchor, there "
                       "is nothing to pull together; set sync.consensus = 0");
    return TW_OK;
}

/* ---- all keys ------------------------------------------------------------------------------- */

enum tw_status tw_run_check(const struct tw_run *run, struct tw_error *err) {
    uint32_t count;
    const struct tw_run_key *keys = tw_run_keys(&count);
    for (uint32_t i = 0; i < count; i++) TW_TRY(tw_run_key_check(&keys[i], run, err));
    TW_TRY(check_model(run, err));
    TW_TRY(check_data(run, err));
    TW_TRY(check_train(run, err));
    TW_TRY(check_security(run, err));
    return check_sync(run, err);
}

/* ---- keys without effect -------------------------------------------------------------------- */

/* Finds keys that have no effect in a given kind of run. A person who writes such a
 * key expects an effect. */
static bool is_solo(const struct tw_run *run) {
    return run->sync.topology == TW_TOPOLOGY_SOLO;
}

static bool is_pair(const struct tw_run *run) {
    return run->sync.topology == TW_TOPOLOGY_PAIR;
}

static bool is_by_steps(const struct tw_run *run) {
    return run->sync.pace == TW_PACE_STEPS;
}

static bool is_adamw(const struct tw_run *run) {
    return run->train.optimizer == TW_OPTIMIZER_ADAMW;
}

static bool is_no_wsd(const struct tw_run *run) {
    return run->train.schedule != TW_SCHEDULE_WSD;
}

static const struct idle {
    bool (*is_idle)(const struct tw_run *run);
    const char *where, *why, *instead;
    const char *keys[20]; /* ends with NULL */
} rows[] = {
    {is_solo,
     "sync.topology = solo",
     "nothing is sent and nothing merged while training",
     "sync.topology = group or pair",
     {"sync.overlap",    "sync.sent",          "sync.mix",         "sync.merge",
      "sync.weights",    "sync.outer",         "sync.outer_lr",    "sync.outer_momentum",
      "sync.outer_ramp", "sync.momentum_type", "sync.gap_penalty", "sync.momentum_clip",
      "sync.codec",      "sync.result",        "sync.feedback",    "sync.feedback_local",
      "sync.quorum",     "sync.grace",         "sync.jury",        NULL}},
    {is_solo,
     "sync.topology = solo",
     "each node goes by its own steps",
     "sync.topology = group or pair",
     {"sync.pace", "sync.interval", NULL}},
    {is_pair,
     "sync.topology = pair",
     "a pair has no roster",
     "sync.topology = group",
     {"sync.members", "sync.jury", NULL}},
    {is_pair,
     "sync.topology = pair",
     "both nodes merge for themselves and send no result",
     "sync.topology = group",
     {"sync.result", NULL}},
    {is_pair,
     "sync.topology = pair",
     "a pair always has exactly two contributors",
     "sync.topology = group",
     {"sync.quorum", "sync.grace", NULL}},
    {is_by_steps,
     "sync.pace = steps",
     "rounds follow sync.period, not the time",
     "sync.pace = clock",
     {"sync.interval", NULL}},
    {is_adamw,
     "train.optimizer = adamw",
     "its momentum is train.beta1",
     "train.optimizer = muon",
     {"train.muon_momentum", NULL}},
    {is_no_wsd,
     "train.schedule is not wsd",
     "the learning rate falls by another rule",
     "train.schedule = wsd",
     {"train.wsd_decay", NULL}},
};

static bool has_key(const struct idle *row, const char *key) {
    for (unsigned i = 0; row->keys[i] != NULL; i++) {
        if (strcmp(row->keys[i], key) == 0) return true;
    }
    return false;
}

enum tw_status tw_run_check_written(const struct tw_run_key *key, const struct tw_run *run,
                                    struct tw_error *err) {
    if (tw_run_is_for_engine(key, run))
        return tw_fail(err, TW_CONFIG,
                       "%s has no effect where model.family = tensors, because our engine alone "
                       "reads it: leave it out",
                       key->name);
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!rows[i].is_idle(run) || !has_key(&rows[i], key->name)) continue;
        return tw_fail(err, TW_CONFIG,
                       "%s has no effect where %s, because %s: leave it out, or set %s", key->name,
                       rows[i].where, rows[i].why, rows[i].instead);
    }
    return TW_OK;
}
