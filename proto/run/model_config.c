#include "proto/run/model_config.h"

#include <string.h>

#include "base/assert.h"
#include "proto/run/run_key.h"

enum tw_status tw_model_kind(const struct tw_run *run, struct tw_model_kind *kind,
                             struct tw_error *err) {
    if (run->model.family == TW_FAMILY_GPT2) {
        *kind = (struct tw_model_kind){"gpt2", "GPT2LMHeadModel"};
    } else if (run->model.qk_norm && run->model.qkv_bias) {
        return tw_fail(err, TW_CONFIG,
                       "model.qk_norm and model.qkv_bias together are no architecture of "
                       "transformers: a model to be exported has at most one of them");
    } else if (run->model.qk_norm) {
        *kind = (struct tw_model_kind){"qwen3", "Qwen3ForCausalLM"};
    } else if (run->model.qkv_bias) {
        *kind = (struct tw_model_kind){"qwen2", "Qwen2ForCausalLM"};
    } else {
        *kind = (struct tw_model_kind){"llama", "LlamaForCausalLM"};
    }
    return TW_OK;
}

/* Text being built. Its buffer is large enough for every model, which is asserted. */
struct text {
    char *bytes;
    size_t size;
};

static void put(struct text *text, const char *string) {
    const size_t size = strlen(string);
    TW_ASSERT(text->size + size <= TW_MODEL_CONFIG_BYTES);
    memcpy(text->bytes + text->size, string, size);
    text->size += size;
}

static void put_key(struct text *text, const char *key) {
    put(text, text->size == 0 ? "{\n  \"" : ",\n  \"");
    put(text, key);
    put(text, "\": ");
}

static void put_literal(struct text *text, const char *key, const char *value) {
    put_key(text, key);
    put(text, value);
}

static void put_text(struct text *text, const char *key, const char *value) {
    put_key(text, key);
    put(text, "\"");
    put(text, value);
    put(text, "\"");
}

static void put_number(struct text *text, const char *key, uint64_t value) {
    char number[TW_DECIMAL_BYTES];
    tw_value_format(value, 0, "", number);
    put_literal(text, key, number);
}

/* Writes a decimal point even for whole numbers, because readers distinguish floats from integers
 * by it. */
static void put_real(struct text *text, uint64_t millionths) {
    char number[TW_DECIMAL_BYTES];
    tw_value_format(millionths, 6, "", number);
    put(text, number);
    if (strchr(number, '.') == NULL) put(text, ".0");
}

static void put_gpt2(struct text *text, const struct tw_run *run) {
    put_number(text, "n_positions", run->model.context);
    put_number(text, "n_ctx", run->model.context);
    put_number(text, "n_embd", run->model.width);
    put_number(text, "n_layer", run->model.layers);
    put_number(text, "n_head", run->model.heads);
    put_number(text, "n_inner", tw_run_shape(run).ffn);
    put_text(text, "activation_function", "gelu_new");
    put_key(text, "layer_norm_epsilon");
    put_real(text, run->model.norm_eps_millionths);
    put_literal(text, "attn_pdrop", "0.0");
    put_literal(text, "embd_pdrop", "0.0");
    put_literal(text, "resid_pdrop", "0.0");
    put_literal(text, "scale_attn_weights", "true");
}

static void put_rope(struct text *text, const struct tw_run *run) {
    put_key(text, "rope_theta");
    put_real(text, (uint64_t)run->model.rope_theta * 1000000);
    put_key(text, "rope_scaling");
    if (run->model.rope_factor_millionths == 1000000) {
        put(text, "null");
        return;
    }
    char number[TW_DECIMAL_BYTES];
    put(text, "{\"rope_type\": \"llama3\", \"factor\": ");
    put_real(text, run->model.rope_factor_millionths);
    put(text, ", \"low_freq_factor\": ");
    put_real(text, run->model.rope_low_millionths);
    put(text, ", \"high_freq_factor\": ");
    put_real(text, run->model.rope_high_millionths);
    put(text, ", \"original_max_position_embeddings\": ");
    tw_value_format(run->model.rope_original, 0, "", number);
    put(text, number);
    put(text, "}");
}

static void put_llama(struct text *text, const struct tw_run *run) {
    const struct tw_run_shape shape = tw_run_shape(run);
    put_number(text, "max_position_embeddings", run->model.context);
    put_number(text, "hidden_size", run->model.width);
    put_number(text, "intermediate_size", shape.ffn);
    put_number(text, "num_hidden_layers", run->model.layers);
    put_number(text, "num_attention_heads", shape.heads);
    put_number(text, "num_key_value_heads", shape.kv_heads);
    put_number(text, "head_dim", shape.head_size);
    put_text(text, "hidden_act", "silu");
    put_key(text, "rms_norm_eps");
    put_real(text, run->model.norm_eps_millionths);
    put_rope(text, run);
    put_literal(text, "attention_bias", "false"); /* Qwen2's biases are implied by its type */
    put_literal(text, "attention_dropout", "0.0");
    put_literal(text, "mlp_bias", "false");
    put_literal(text, "use_sliding_window", "false");
}

static void put_id(struct text *text, const char *key, uint32_t id) {
    if (id != UINT32_MAX) {
        put_number(text, key, id);
    } else {
        put_literal(text, key, "null");
    }
}

static void put_ids(struct text *text, const struct tw_model_ids *ids) {
    put_id(text, "bos_token_id", ids->bos);
    put_id(text, "pad_token_id", ids->pad);
    if (ids->eos_count <= 1) {
        put_id(text, "eos_token_id", ids->eos_count == 1 ? ids->eos[0] : UINT32_MAX);
        return;
    }
    TW_ASSERT(ids->eos_count <= TW_MODEL_IDS_MAX);
    put_key(text, "eos_token_id");
    for (uint32_t i = 0; i < ids->eos_count; i++) {
        char number[TW_DECIMAL_BYTES];
        tw_value_format(ids->eos[i], 0, "", number);
        put(text, i == 0 ? "[" : ", ");
        put(text, number);
    }
    put(text, "]");
}

enum tw_status tw_model_config_write(const struct tw_run *run, enum tw_dtype dtype,
                                     const struct tw_model_ids *ids,
                                     char text[TW_MODEL_CONFIG_BYTES], size_t *size_out,
                                     struct tw_error *err) {
    struct text out = {text, 0};
    struct tw_model_kind kind = {0};
    TW_TRY(tw_model_kind(run, &kind, err));
    put_key(&out, "architectures");
    put(&out, "[\"");
    put(&out, kind.architecture);
    put(&out, "\"]");
    put_text(&out, "model_type", kind.type);
    put_number(&out, "vocab_size", run->model.vocab);
    if (run->model.family == TW_FAMILY_GPT2) {
        put_gpt2(&out, run);
    } else {
        put_llama(&out, run);
    }
    put_literal(&out, "tie_word_embeddings", run->model.is_tied ? "true" : "false");
    static const struct tw_model_ids NONE = {NULL, 0, UINT32_MAX, UINT32_MAX};
    put_ids(&out, ids != NULL ? ids : &NONE);
    put_text(&out, "torch_dtype",
             dtype == TW_DTYPE_F16    ? "float16"
             : dtype == TW_DTYPE_BF16 ? "bfloat16"
                                      : "float32");
    put(&out, "\n}\n");
    *size_out = out.size;
    return TW_OK;
}
