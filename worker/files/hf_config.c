#include "worker/files/hf_config.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/run/run_key.h"
#include "worker/support/hf_json.h"
#include "worker/support/out_file.h"

/* ---- model.safetensors.index.json ------------------------------------------------------------ */

void tw_hf_index_free(struct tw_hf_index *index) {
    free(index->files);
    free(index->entries);
    memset(index, 0, sizeof(*index));
}

const struct tw_hf_entry *tw_hf_index_find(const struct tw_hf_index *index, const char *name) {
    uint32_t low = 0, high = index->entries_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(index->entries[middle].name, name);
        if (order == 0) return &index->entries[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

static bool is_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

/* Accepts names like "model-00001-of-00002.safetensors": no folder, no hidden file, no terminal
 * control characters. */
static bool is_file_name(const char *name) {
    static const char END[] = ".safetensors";
    const size_t size = strlen(name), end = sizeof(END) - 1;
    if (size <= end || size >= TW_HF_FILE_BYTES || name[0] == '.') return false;
    for (size_t i = 0; i < size; i++) {
        if (!is_plain(name[i])) return false;
    }
    return strcmp(name + size - end, END) == 0;
}

static bool is_tensor_name(const char *name) {
    const size_t size = strlen(name);
    for (size_t i = 0; i < size; i++) {
        if (!is_plain(name[i])) return false;
    }
    return size > 0 && size < TW_SAFETENSORS_NAME_BYTES;
}

static enum tw_status add_entry(struct tw_hf_index *index, const char *name, const json_t *value,
                                struct tw_error *err) {
    char shown[TW_HF_SHOWN_BYTES];
    const char *const file = json_string_value(value);
    if (!is_tensor_name(name)) {
        return tw_fail(err, TW_CORRUPT, "weight_map names a tensor in another way than a-z . _");
    }
    if (file == NULL || !is_file_name(file)) {
        return tw_fail(err, TW_CORRUPT,
                       "weight_map puts %s into %s: it takes the plain name of a .safetensors file "
                       "in the same folder",
                       name, tw_hf_show(value, shown));
    }
    uint32_t at = 0;
    while (at < index->files_count && strcmp(index->files[at], file) != 0) at++;
    if (at == TW_HF_INDEX_FILES_MAX) {
        return tw_fail(err, TW_LIMIT, "weight_map names more than %d files", TW_HF_INDEX_FILES_MAX);
    }
    if (at == index->files_count) {
        memcpy(index->files[index->files_count++], file, strlen(file) + 1);
    }
    struct tw_hf_entry *const entry = &index->entries[index->entries_count++];
    memcpy(entry->name, name, strlen(name) + 1);
    entry->file = at;
    return TW_OK;
}

static int compare(const void *a, const void *b) {
    return strcmp(((const struct tw_hf_entry *)a)->name, ((const struct tw_hf_entry *)b)->name);
}

static enum tw_status fill_index(struct tw_hf_index *index, json_t *map, struct tw_error *err) {
    const size_t count = json_object_size(map);
    if (count == 0 || !json_is_object(map)) {
        return tw_fail(err, TW_CORRUPT, "it has no weight_map that names a tensor");
    }
    if (count > TW_HF_INDEX_TENSORS_MAX) {
        return tw_fail(err, TW_LIMIT, "weight_map has %zu tensors; at most %d can be read", count,
                       TW_HF_INDEX_TENSORS_MAX);
    }
    index->entries = calloc(count, sizeof(*index->entries));
    index->files = calloc(TW_HF_INDEX_FILES_MAX, sizeof(*index->files));
    if (index->entries == NULL || index->files == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for an index of %zu tensors", count);
    }
    for (void *at = json_object_iter(map); at != NULL; at = json_object_iter_next(map, at)) {
        TW_TRY(add_entry(index, json_object_iter_key(at), json_object_iter_value(at), err));
    }
    qsort(index->entries, index->entries_count, sizeof(*index->entries), compare);
    return TW_OK;
}

enum tw_status tw_hf_index_parse(struct tw_hf_index *index, const char *json, size_t size,
                                 struct tw_error *err) {
    json_t *root = NULL;
    memset(index, 0, sizeof(*index));
    TW_TRY(tw_hf_json_parse(&root, json, size, TW_HF_INDEX_BYTES_MAX, err));
    const enum tw_status status = fill_index(index, json_object_get(root, "weight_map"), err);
    json_decref(root);
    if (status != TW_OK) tw_hf_index_free(index);
    return status;
}

/* ---- config.json ----------------------------------------------------------------------------- */

/* Settings implied by a model_type. */
struct kind {
    const char *type, *architecture;
    const char *base; /* name of the architecture without an output head */
    enum tw_family family;
    enum tw_answer qkv_bias, qk_norm;
};

static const struct kind KINDS[] = {
    {"gpt2", "GPT2LMHeadModel", "GPT2Model", TW_FAMILY_GPT2, TW_NO, TW_NO},
    {"llama", "LlamaForCausalLM", "LlamaModel", TW_FAMILY_LLAMA, TW_NO, TW_NO},
    {"mistral", "MistralForCausalLM", "MistralModel", TW_FAMILY_LLAMA, TW_NO, TW_NO},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2Model", TW_FAMILY_LLAMA, TW_YES, TW_NO},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3Model", TW_FAMILY_LLAMA, TW_NO, TW_YES},
};

enum { KINDS_COUNT = sizeof(KINDS) / sizeof(KINDS[0]), MILLION = 1000000 };

static enum tw_status refuse(const char *key, const json_t *value, const char *supported,
                             struct tw_error *err) {
    char shown[TW_HF_SHOWN_BYTES];
    return tw_fail(err, TW_CONFIG, "%s is %s; supported: %s", key, tw_hf_show(value, shown),
                   supported);
}

/* Returns NULL for JSON null too, because transformers treats null as a missing key. */
static const json_t *get_key(const json_t *object, const char *key) {
    const json_t *const value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* ---- one value ------------------------------------------------------------------------------- */

static enum tw_status get_type(const json_t *root, const struct kind **kind_out,
                               struct tw_error *err) {
    const json_t *const type = get_key(root, "model_type");
    const char *const name = json_string_value(type);
    for (unsigned i = 0; name != NULL && i < KINDS_COUNT; i++) {
        if (strcmp(KINDS[i].type, name) != 0) continue;
        *kind_out = &KINDS[i];
        return TW_OK;
    }
    return refuse("model_type", type, "gpt2, llama, mistral, qwen2, qwen3", err);
}

/* If `architectures` is missing, model_type implies it. A base model is accepted, because it has a
 * head if the head is tied to the embedding; its tensors show whether it has. */
static enum tw_status check_architecture(const json_t *root, const struct kind *kind,
                                         struct tw_error *err) {
    const json_t *const list = get_key(root, "architectures");
    if (list == NULL) return TW_OK;
    const char *const name =
        json_array_size(list) == 1 ? json_string_value(json_array_get(list, 0)) : NULL;
    if (name != NULL && (strcmp(name, kind->architecture) == 0 || strcmp(name, kind->base) == 0))
        return TW_OK;
    return refuse("architectures", list, kind->architecture, err);
}

/* Reads a whole number within the range of manifest key `target`. JSON may write it as 500000.0. */
static enum tw_status get_whole(const json_t *object, const char *key, const char *target,
                                uint32_t *to, struct tw_error *err) {
    const json_t *const value = get_key(object, key);
    const struct tw_run_key *const range = tw_run_key_find(target);
    const double number = json_is_number(value) ? json_number_value(value) : -1;
    if (number >= (double)range->min && number <= (double)range->max && number == floor(number)) {
        *to = (uint32_t)number;
        return TW_OK;
    }
    char accepts[160], supported[200] = "a whole number, ";
    tw_run_key_accepts(range, accepts);
    memcpy(supported + strlen(supported), accepts, strlen(accepts) + 1);
    return refuse(key, value, supported, err);
}

/* Reads a number of whole millionths (1e-05 is 10) within the range of manifest key `target`. */
static enum tw_status get_real(const json_t *object, const char *key, const char *target,
                               uint32_t *to, struct tw_error *err) {
    const json_t *const value = get_key(object, key);
    const struct tw_run_key *const range = tw_run_key_find(target);
    const double number = json_is_number(value) ? json_number_value(value) * MILLION : -1;
    const double whole = round(number);
    if (whole >= (double)range->min && whole <= (double)range->max &&
        fabs(number - whole) <= 1e-9 * whole) {
        *to = (uint32_t)whole;
        return TW_OK;
    }
    char accepts[160], supported[200] = "whole millionths, ";
    tw_run_key_accepts(range, accepts);
    memcpy(supported + strlen(supported), accepts, strlen(accepts) + 1);
    return refuse(key, value, supported, err);
}

static enum tw_status get_flag(const json_t *object, const char *key, bool missing,
                               enum tw_answer *to, struct tw_error *err) {
    const json_t *const value = get_key(object, key);
    if (value != NULL && !json_is_boolean(value)) return refuse(key, value, "true, false", err);
    *to = value == NULL ? (missing ? TW_YES : TW_NO) : json_is_true(value) ? TW_YES : TW_NO;
    return TW_OK;
}

/* Refuses keys that are present with a value other than `wanted`. */
static enum tw_status check_flags(const json_t *root, const char *const *keys, bool wanted,
                                  struct tw_error *err) {
    for (; *keys != NULL; keys++) {
        enum tw_answer is_set = TW_NO;
        TW_TRY(get_flag(root, *keys, wanted, &is_set, err));
        if ((is_set == TW_YES) != wanted)
            return refuse(*keys, get_key(root, *keys), wanted ? "true" : "false", err);
    }
    return TW_OK;
}

static enum tw_status check_word(const json_t *object, const char *key, const char *const *words,
                                 const char *supported, struct tw_error *err) {
    const json_t *const value = get_key(object, key);
    const char *const word = json_string_value(value);
    for (; word != NULL && *words != NULL; words++) {
        if (strcmp(word, *words) == 0) return TW_OK;
    }
    return refuse(key, value, supported, err);
}

/* ---- gpt2 ------------------------------------------------------------------------------------ */

static enum tw_status get_gpt2(const json_t *root, struct tw_run *run, struct tw_error *err) {
    /* three names of the same formula */
    static const char *const GELU[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", NULL};
    static const char *const NO[] = {"scale_attn_by_inverse_layer_idx", "add_cross_attention",
                                     "is_encoder_decoder", NULL};
    static const char *const YES[] = {"scale_attn_weights", NULL};
    TW_TRY(get_whole(root, "n_layer", "model.layers", &run->model.layers, err));
    TW_TRY(get_whole(root, "n_embd", "model.width", &run->model.width, err));
    TW_TRY(get_whole(root, "n_head", "model.heads", &run->model.heads, err));
    TW_TRY(get_whole(root, "n_positions", "model.context", &run->model.context, err));
    run->model.kv_heads = 0;
    run->model.head_size = 0;
    run->model.ffn = 0;
    if (get_key(root, "n_inner") != NULL)
        TW_TRY(get_whole(root, "n_inner", "model.ffn", &run->model.ffn, err));
    if (run->model.ffn == 4 * run->model.width) run->model.ffn = 0;
    TW_TRY(get_real(root, "layer_norm_epsilon", "model.norm_eps", &run->model.norm_eps_millionths,
                    err));
    TW_TRY(check_word(root, "activation_function", GELU, "gelu_new, gelu_pytorch_tanh", err));
    TW_TRY(check_flags(root, NO, false, err));
    return check_flags(root, YES, true, err);
}

/* ---- llama ----------------------------------------------------------------------------------- */

struct rope {
    uint32_t theta; /* 0: not given */
    uint32_t factor_millionths, low_millionths, high_millionths, original;
};

static enum tw_status check_rope_keys(const json_t *object, const char *name,
                                      const char *const *known, struct tw_error *err) {
    for (void *at = json_object_iter((json_t *)object); at != NULL;
         at = json_object_iter_next((json_t *)object, at)) {
        const char *const key = json_object_iter_key(at);
        const char *const *word = known;
        while (*word != NULL && strcmp(*word, key) != 0) word++;
        if (*word == NULL) {
            char shown[TW_HF_SHOWN_BYTES];
            /* the key is untrusted and may contain any byte */
            json_t *const text = json_string(key);
            (void)tw_hf_show(text, shown);
            json_decref(text);
            return tw_fail(err, TW_CONFIG, "%s has the key %s, which is not supported", name,
                           shown);
        }
    }
    return TW_OK;
}

/* Reads rope_scaling or its newer form, rope_parameters, which also holds theta. */
static enum tw_status get_rope(const json_t *object, const char *name, struct rope *rope,
                               struct tw_error *err) {
    static const char *const TYPES[] = {"default", "llama3", NULL};
    static const char *const DEFAULT[] = {"type", "rope_type", "rope_theta",
                                          "partial_rotary_factor", NULL};
    static const char *const LLAMA3[] = {
        "type",   "rope_type",       "rope_theta",       "partial_rotary_factor",
        "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
        NULL};
    if (!json_is_object(object)) return refuse(name, object, "an object", err);
    const char *const key = get_key(object, "rope_type") != NULL ? "rope_type" : "type";
    const json_t *const type = get_key(object, key);
    /* rope_parameters may hold theta alone, without a type. */
    if (type != NULL) TW_TRY(check_word(object, key, TYPES, "default, llama3", err));
    const bool is_llama3 = type != NULL && strcmp(json_string_value(type), "llama3") == 0;
    TW_TRY(check_rope_keys(object, name, is_llama3 ? LLAMA3 : DEFAULT, err));
    const json_t *const part = get_key(object, "partial_rotary_factor");
    if (part != NULL && (!json_is_number(part) || json_number_value(part) != 1))
        return refuse("partial_rotary_factor", part, "1", err);
    if (get_key(object, "rope_theta") != NULL)
        TW_TRY(get_whole(object, "rope_theta", "model.rope_theta", &rope->theta, err));
    if (!is_llama3) return TW_OK;
    TW_TRY(get_real(object, "factor", "model.rope_factor", &rope->factor_millionths, err));
    TW_TRY(get_real(object, "low_freq_factor", "model.rope_low", &rope->low_millionths, err));
    TW_TRY(get_real(object, "high_freq_factor", "model.rope_high", &rope->high_millionths, err));
    return get_whole(object, "original_max_position_embeddings", "model.rope_original",
                     &rope->original, err);
}

static enum tw_status get_rotation(const json_t *root, const struct kind *kind, struct tw_run *run,
                                   struct tw_error *err) {
    static const char *const NAMES[] = {"rope_scaling", "rope_parameters"};
    static const struct rope NONE = {0, MILLION, MILLION, 4 * MILLION, 8192};
    struct rope rope = NONE, found[2];
    bool is_said = false;
    for (unsigned i = 0; i < 2; i++) {
        found[i] = NONE;
        const json_t *const object = get_key(root, NAMES[i]);
        if (object == NULL) continue;
        TW_TRY(get_rope(object, NAMES[i], &found[i], err));
        const uint32_t theta = rope.theta;
        if (is_said && (memcmp(&found[0].factor_millionths, &found[1].factor_millionths,
                               sizeof(NONE) - offsetof(struct rope, factor_millionths)) != 0))
            return refuse(NAMES[1], object, "the same as rope_scaling, or one of the two", err);
        rope = found[i];
        if (rope.theta == 0) rope.theta = theta;
        if (theta != 0 && rope.theta != theta)
            return refuse("rope_theta", get_key(object, "rope_theta"), "one value", err);
        is_said = true;
    }
    if (get_key(root, "rope_theta") != NULL) {
        uint32_t theta;
        TW_TRY(get_whole(root, "rope_theta", "model.rope_theta", &theta, err));
        if (rope.theta != 0 && rope.theta != theta)
            return refuse("rope_theta", get_key(root, "rope_theta"), "one value, not two", err);
        rope.theta = theta;
    }
    /* The config of the first Llama has no rope_theta. */
    if (rope.theta == 0 && strcmp(kind->type, "llama") == 0) rope.theta = 10000;
    if (rope.theta == 0) return refuse("rope_theta", NULL, "a number", err);
    run->model.rope_theta = rope.theta;
    run->model.rope_factor_millionths = rope.factor_millionths;
    run->model.rope_low_millionths = rope.low_millionths;
    run->model.rope_high_millionths = rope.high_millionths;
    run->model.rope_original = rope.original;
    return TW_OK;
}

/* Lowers the context to the window of attention, if there is one, because only full attention is
 * computed: within the window, it is the same. */
static enum tw_status apply_window(const json_t *root, const struct kind *kind, struct tw_run *run,
                                   struct tw_error *err) {
    enum tw_answer is_used = TW_NO;
    const json_t *const types = get_key(root, "layer_types");
    const json_t *const given = json_object_get(root, "sliding_window");
    TW_TRY(get_flag(root, "use_sliding_window", false, &is_used, err));
    /* Mistral has no key use_sliding_window, and uses a window by default. */
    const bool has_window =
        is_used == TW_YES || (strcmp(kind->type, "mistral") == 0 && !json_is_null(given));
    if (has_window) {
        const double window = json_is_number(given) ? json_number_value(given) : 0;
        if (!(window >= tw_run_key_find("model.context")->min))
            return refuse("sliding_window", given, "null, or a number of tokens", err);
        if (window < run->model.context) run->model.context = (uint32_t)window;
    }
    if (types != NULL && !json_is_array(types)) return refuse("layer_types", types, "a list", err);
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *const type = json_array_get(types, i);
        const char *const name = json_string_value(type);
        const bool is_known =
            name != NULL && (strcmp(name, "full_attention") == 0 ||
                             (has_window && strcmp(name, "sliding_attention") == 0));
        if (!is_known) return refuse("layer_types", type, "full_attention everywhere", err);
    }
    return TW_OK;
}

static enum tw_status get_llama(const json_t *root, const struct kind *kind, struct tw_run *run,
                                struct tw_error *err) {
    static const char *const SILU[] = {"silu", "swish", NULL};
    static const char *const NO[] = {"attention_bias", "mlp_bias", "is_encoder_decoder",
                                     "use_qk_norm", NULL};
    TW_TRY(get_whole(root, "num_hidden_layers", "model.layers", &run->model.layers, err));
    TW_TRY(get_whole(root, "hidden_size", "model.width", &run->model.width, err));
    TW_TRY(get_whole(root, "num_attention_heads", "model.heads", &run->model.heads, err));
    TW_TRY(get_whole(root, "intermediate_size", "model.ffn", &run->model.ffn, err));
    run->model.kv_heads = run->model.heads;
    if (get_key(root, "num_key_value_heads") != NULL || strcmp(kind->type, "llama") != 0)
        TW_TRY(get_whole(root, "num_key_value_heads", "model.kv_heads", &run->model.kv_heads, err));
    run->model.head_size = 0;
    /* Qwen3 needs head_dim, because its default head size is not width / heads. */
    if (get_key(root, "head_dim") != NULL || strcmp(kind->type, "qwen3") == 0)
        TW_TRY(get_whole(root, "head_dim", "model.head_size", &run->model.head_size, err));
    if (run->model.head_size == 0 && run->model.width % run->model.heads != 0)
        return refuse("num_attention_heads", get_key(root, "num_attention_heads"),
                      "a divisor of hidden_size", err);
    if (run->model.head_size == 0) run->model.head_size = run->model.width / run->model.heads;
    if (run->model.kv_heads == 0 || run->model.ffn == 0)
        return refuse(run->model.ffn == 0 ? "intermediate_size" : "num_key_value_heads",
                      json_object_get(root, run->model.ffn == 0 ? "intermediate_size"
                                                                : "num_key_value_heads"),
                      "a number above 0", err);
    TW_TRY(get_whole(root, "max_position_embeddings", "model.rope_original", &run->model.context,
                     err));
    const uint64_t most = tw_run_key_find("model.context")->max;
    /* With rotary positions, no weight depends on the context. */
    if (run->model.context > most) run->model.context = (uint32_t)most;
    TW_TRY(get_real(root, "rms_norm_eps", "model.norm_eps", &run->model.norm_eps_millionths, err));
    if (get_key(root, "hidden_act") != NULL)
        TW_TRY(check_word(root, "hidden_act", SILU, "silu", err));
    const json_t *const part = get_key(root, "partial_rotary_factor");
    if (part != NULL && (!json_is_number(part) || json_number_value(part) != 1))
        return refuse("partial_rotary_factor", part, "1", err);
    TW_TRY(check_flags(root, NO, false, err));
    TW_TRY(apply_window(root, kind, run, err));
    return get_rotation(root, kind, run, err);
}

/* ---- entry point ----------------------------------------------------------------------------- */

static enum tw_status read_all(const json_t *root, struct tw_run *run, struct tw_error *err) {
    const struct kind *kind = NULL;
    TW_TRY(get_type(root, &kind, err));
    TW_TRY(check_architecture(root, kind, err));
    static const char *const NEVER[] = {"auto_map", "quantization_config", "compression_config",
                                        NULL};
    for (const char *const *key = NEVER; *key != NULL; key++) {
        const json_t *const value = get_key(root, *key), *method;
        if (value == NULL) continue;
        method = get_key(value, "quant_method");
        if (method == NULL) return refuse(*key, value, "models without it", err);
        return refuse("quant_method", method,
                      "weights that are not quantised: take the model in bf16, f16 or f32", err);
    }
    run->model.family = kind->family;
    run->model.qkv_bias = kind->qkv_bias;
    run->model.qk_norm = kind->qk_norm;
    TW_TRY(get_whole(root, "vocab_size", "model.vocab", &run->model.vocab, err));
    const bool is_gpt2 = kind->family == TW_FAMILY_GPT2;
    TW_TRY(get_flag(root, "tie_word_embeddings", is_gpt2, &run->model.is_tied, err));
    TW_TRY(is_gpt2 ? get_gpt2(root, run, err) : get_llama(root, kind, run, err));
    /* config.json cannot show that tokens are bytes; tokenizer.json can. */
    run->data.tokenizer = TW_TOKENIZER_IDS;
    return TW_OK;
}

enum tw_status tw_hf_config_parse(struct tw_run *run, const char *json, size_t size,
                                  struct tw_error *err) {
    json_t *root = NULL;
    struct tw_run found = *run;
    TW_TRY(tw_hf_json_parse(&root, json, size, TW_HF_CONFIG_BYTES_MAX, err));
    const enum tw_status status = read_all(root, &found, err);
    json_decref(root);
    if (status == TW_OK) *run = found;
    return status;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Sets root[key] to a new value, whose reference is taken. */
static bool set_key(json_t *root, const char *key, json_t *value) {
    return value != NULL && json_object_set_new(root, key, value) == 0;
}

static json_t *eos_value(const struct tw_model_ids *ids) {
    if (ids->eos_count == 1) return json_integer(ids->eos[0]);
    json_t *const list = json_array();
    for (uint32_t i = 0; list != NULL && i < ids->eos_count; i++) {
        (void)json_array_append_new(list, json_integer(ids->eos[i]));
    }
    return list;
}

static bool change_keys(json_t *root, const struct tw_hf_config_change *change) {
    const char *const dtype = change->dtype == TW_DTYPE_BF16  ? "bfloat16"
                              : change->dtype == TW_DTYPE_F16 ? "float16"
                                                              : "float32";
    const struct kind *kind = NULL;
    struct tw_error why;
    const bool has_new = json_object_get(root, "dtype") != NULL;
    const char *const name = json_string_value(json_array_get(get_key(root, "architectures"), 0));
    bool is_good = get_type(root, &kind, &why) == TW_OK;
    if (is_good && name != NULL && strcmp(name, kind->base) == 0) {
        is_good = set_key(root, "architectures", json_pack("[s]", kind->architecture));
    }
    if (is_good && has_new) is_good = set_key(root, "dtype", json_string(dtype));
    if (is_good && (!has_new || json_object_get(root, "torch_dtype") != NULL)) {
        is_good = set_key(root, "torch_dtype", json_string(dtype));
    }
    if (is_good && change->context != 0 && kind->family == TW_FAMILY_LLAMA) {
        is_good = set_key(root, "max_position_embeddings", json_integer(change->context));
    }
    if (is_good && change->eos != NULL && change->eos->eos_count > 0) {
        is_good = set_key(root, "eos_token_id", eos_value(change->eos));
    }
    return is_good;
}

enum tw_status tw_hf_config_change(const char *json, size_t size,
                                   const struct tw_hf_config_change *change, char **text,
                                   struct tw_error *err) {
    json_t *root = NULL;
    *text = NULL;
    TW_TRY(tw_hf_json_parse(&root, json, size, TW_HF_CONFIG_BYTES_MAX, err));
    if (change_keys(root, change)) *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    return *text != NULL ? TW_OK : tw_fail(err, TW_NOMEM, "no memory for a config.json");
}

/* ---- chat template --------------------------------------------------------------------------- */

/* The template of a tokenizer_config.json: a string, or a list of named ones. */
static const char *template_in(const json_t *root) {
    const json_t *const said = json_object_get(root, "chat_template");
    if (json_is_string(said)) return json_string_value(said);
    for (size_t i = 0; i < json_array_size(said); i++) {
        const json_t *const one = json_array_get(said, i);
        if (strcmp(tw_hf_word(one, "name"), "default") == 0) return tw_hf_word(one, "template");
    }
    return "";
}

static enum tw_status read_template(const char *path, char **text, struct tw_error *err) {
    char *json = NULL;
    size_t size = 0;
    json_t *root = NULL;
    TW_TRY(tw_in_read_whole(path, TW_HF_TEMPLATE_BYTES_MAX, &json, &size, err));
    enum tw_status status = tw_hf_json_parse(&root, json, size, TW_HF_TEMPLATE_BYTES_MAX, err);
    free(json);
    if (status != TW_OK) return status;
    const char *const found = template_in(root);
    if (found[0] != 0) {
        *text = strdup(found);
        if (*text == NULL) status = tw_fail(err, TW_NOMEM, "no memory for a chat template");
    }
    json_decref(root);
    return status;
}

enum tw_status tw_hf_chat_template(const char *folder, char **text, struct tw_error *err) {
    char path[PATH_MAX];
    size_t size = 0;
    *text = NULL;
    int n = snprintf(path, sizeof(path), "%s/chat_template.jinja", folder);
    if (n < (int)sizeof(path) && access(path, F_OK) == 0) {
        TW_TRY(tw_in_read_whole(path, TW_HF_TEMPLATE_BYTES_MAX, text, &size, err));
        if (size > 0 && strlen(*text) == size) return TW_OK;
        free(*text);
        *text = NULL;
        return TW_OK;
    }
    n = snprintf(path, sizeof(path), "%s/tokenizer_config.json", folder);
    if (n >= (int)sizeof(path) || access(path, F_OK) != 0) return TW_OK;
    return read_template(path, text, err);
}
