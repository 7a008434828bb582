/* test_hf_config.c - config.json is read into a manifest, or refused with the unsupported key's
 * name. */
#include "worker/files/hf_config.h"

#include "proto/run/model_config.h"
#include "tests/test.h"
#include "worker/files/model_source.h"

static struct tw_error err;

static const char GPT2[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": 50257, "
    "\"n_positions\": 1024, \"n_ctx\": 1024, \"n_embd\": 768, \"n_layer\": 12, \"n_head\": 12, "
    "\"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-05, \"attn_pdrop\": 0.1}";

static const char LLAMA[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": "
    "128256, "
    "\"hidden_size\": 2048, \"intermediate_size\": 8192, \"num_hidden_layers\": 16, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 64, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-05, "
    "\"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32.0, "
    "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": "
    "8192}, \"attention_bias\": false, \"mlp_bias\": false, \"tie_word_embeddings\": true}";

static enum tw_status parse(struct tw_run *run, const char *json) {
    tw_run_defaults(run);
    return tw_hf_config_parse(run, json, strlen(json), &err);
}

/* Returns `json` with `key` set to `value`, or without `key` if `value` is NULL. A key's value ends
 * where the next key begins. */
static const char *with(const char *json, const char *key, const char *value) {
    static char text[4096];
    char quoted[64];
    (void)snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
    const char *const at = strstr(json, quoted);
    if (at == NULL) {
        (void)snprintf(text, sizeof(text), "%.*s, %s%s}", (int)strlen(json) - 1, json, quoted,
                       value);
        return text;
    }
    const char *end = at;
    for (int depth = 0; depth > 0 || (*end != ',' && *end != '}'); end++) {
        depth += (*end == '{' || *end == '[') - (*end == '}' || *end == ']');
    }
    if (value == NULL) {
        (void)snprintf(text, sizeof(text), "%.*s%s", (int)(at - json), json,
                       *end == ',' ? end + 2 : end);
    } else {
        (void)snprintf(text, sizeof(text), "%.*s%s%s%s", (int)(at - json), json, quoted, value,
                       end);
    }
    return text;
}

TEST(gpt2_is_understood) {
    struct tw_run run, preset;
    assert_int_equal(parse(&run, GPT2), TW_OK);
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    tw_run_defaults(&preset);
    assert_int_equal(tw_run_apply_model(&preset, "gpt2-124m", &err), TW_OK);
    assert_int_equal(tw_model_same(&run, &preset, &err), TW_OK);
    assert_int_equal(run.data.tokenizer, TW_TOKENIZER_IDS);
}

TEST(llama_with_scaled_rotation_is_understood) {
    struct tw_run run, preset;
    assert_int_equal(parse(&run, LLAMA), TW_OK);
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    tw_run_defaults(&preset);
    assert_int_equal(tw_run_apply_model(&preset, "llama-1b", &err), TW_OK);
    assert_int_equal(tw_model_same(&run, &preset, &err), TW_OK);
    assert_int_equal(run.model.context, 131072);
}

TEST(both_ways_of_writing_the_rotation_mean_the_same) {
    static const char NEWER[] =
        "{\"rope_type\": \"llama3\", \"rope_theta\": 500000, \"factor\": 32, \"low_freq_factor\": "
        "1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}";
    char json[4096];
    struct tw_run older, newer;
    assert_int_equal(parse(&older, LLAMA), TW_OK);
    (void)snprintf(json, sizeof(json), "%s", with(LLAMA, "rope_scaling", NULL));
    (void)snprintf(json, sizeof(json), "%s", with(json, "rope_theta", NULL));
    assert_int_equal(parse(&newer, json), TW_OK);
    /* the default of the first Llama, which had no such key */
    assert_int_equal(newer.model.rope_theta, 10000);
    assert_int_equal(parse(&newer, with(json, "rope_parameters", NEWER)), TW_OK);
    assert_memory_equal(&older, &newer, sizeof(older));
    assert_int_equal(parse(&newer, with(LLAMA, "rope_parameters", NEWER)), TW_OK);
    assert_memory_equal(&older, &newer, sizeof(older));
    assert_int_equal(parse(&newer, with(LLAMA, "rope_scaling", "null")), TW_OK);
    assert_int_equal(newer.model.rope_factor_millionths, 1000000);
}

TEST(types_decide_about_biases_and_norms) {
    static const struct {
        const char *type, *architecture;
        enum tw_answer bias, norm;
    } KINDS[] = {{"\"qwen2\"", "[\"Qwen2ForCausalLM\"]", TW_YES, TW_NO},
                 {"\"qwen3\"", "[\"Qwen3ForCausalLM\"]", TW_NO, TW_YES},
                 {"\"mistral\"", "[\"MistralForCausalLM\"]", TW_NO, TW_NO}};
    for (unsigned i = 0; i < 3; i++) {
        char json[4096];
        struct tw_run run;
        (void)snprintf(json, sizeof(json), "%s", with(LLAMA, "model_type", KINDS[i].type));
        (void)snprintf(json, sizeof(json), "%s",
                       with(json, "architectures", KINDS[i].architecture));
        (void)snprintf(json, sizeof(json), "%s", with(json, "sliding_window", "null"));
        assert_int_equal(parse(&run, json), TW_OK);
        assert_int_equal(run.model.qkv_bias, KINDS[i].bias);
        assert_int_equal(run.model.qk_norm, KINDS[i].norm);
        /* If the key were missing, mistral would have a sliding window, and qwen3 heads of 128. */
        if (i == 2) {
            assert_int_equal(parse(&run, with(json, "sliding_window", "\"no\"")), TW_CONFIG);
            assert_non_null(strstr(err.message, "sliding_window is \"no\""));
        }
        if (i == 1) {
            assert_int_equal(parse(&run, with(json, "head_dim", NULL)), TW_CONFIG);
            assert_non_null(strstr(err.message, "head_dim is nothing"));
        }
        if (i < 2) {
            assert_int_equal(parse(&run, with(json, "use_sliding_window", "true")), TW_CONFIG);
            assert_int_equal(parse(&run, with(json, "layer_types",
                                              "[\"full_attention\", \"sliding_attention\"]")),
                             TW_CONFIG);
            assert_non_null(strstr(err.message, "layer_types is \"sliding_attention\""));
        }
    }
}

/* Within its window, attention is full: the model is read, with no longer context. */
TEST(a_window_of_attention_bounds_the_context) {
    char json[4096], qwen[4096];
    struct tw_run run;
    (void)snprintf(json, sizeof(json), "%s", with(LLAMA, "model_type", "\"mistral\""));
    (void)snprintf(json, sizeof(json), "%s",
                   with(json, "architectures", "[\"MistralForCausalLM\"]"));
    assert_int_equal(parse(&run, with(json, "sliding_window", "null")), TW_OK);
    const uint32_t whole = run.model.context;
    assert_true(whole > 64);
    assert_int_equal(parse(&run, with(json, "sliding_window", "64")), TW_OK);
    assert_int_equal(run.model.context, 64);
    assert_int_equal(parse(&run, with(json, "sliding_window", "1000000")), TW_OK);
    assert_int_equal(run.model.context, whole);
    (void)snprintf(qwen, sizeof(qwen), "%s", with(LLAMA, "model_type", "\"qwen2\""));
    (void)snprintf(qwen, sizeof(qwen), "%s", with(qwen, "architectures", "[\"Qwen2ForCausalLM\"]"));
    (void)snprintf(qwen, sizeof(qwen), "%s", with(qwen, "sliding_window", "64"));
    assert_int_equal(parse(&run, qwen), TW_OK); /* not used */
    assert_int_equal(run.model.context, whole);
    (void)snprintf(qwen, sizeof(qwen), "%s", with(qwen, "use_sliding_window", "true"));
    (void)snprintf(qwen, sizeof(qwen), "%s",
                   with(qwen, "layer_types", "[\"full_attention\", \"sliding_attention\"]"));
    assert_int_equal(parse(&run, qwen), TW_OK);
    assert_int_equal(run.model.context, 64);
}

/* Each change is refused by itself, and the message names the key and the value. */
TEST(unsupported_config_is_refused_by_name) {
    static const struct {
        const char *base, *key, *value, *said;
    } CASES[] = {
        {LLAMA, "model_type", "\"gemma\"", "model_type is \"gemma\"; supported: gpt2, llama"},
        {LLAMA, "model_type", NULL, "model_type is nothing"},
        {LLAMA, "model_type", "7", "model_type is 7"},
        {LLAMA, "architectures", "[\"LlamaForSequenceClassification\"]", "architectures is "},
        {LLAMA, "architectures", "[\"LlamaForCausalLM\", \"LlamaModel\"]", "architectures is "},
        {LLAMA, "auto_map", "{\"AutoModel\": \"x.y\"}", "auto_map"},
        {LLAMA, "quantization_config", "{\"quant_method\": \"gptq\"}",
         "quant_method is \"gptq\"; supported: weights that are not quantised"},
        {LLAMA, "quantization_config", "{\"bits\": 4}", "quantization_config is {\"bits\":4}"},
        {LLAMA, "hidden_act", "\"gelu\"", "hidden_act is \"gelu\"; supported: silu"},
        {LLAMA, "attention_bias", "true", "attention_bias is true; supported: false"},
        {LLAMA, "attention_bias", "1", "attention_bias is 1"},
        {LLAMA, "mlp_bias", "true", "mlp_bias is true"},
        {LLAMA, "partial_rotary_factor", "0.5", "partial_rotary_factor is 0.5"},
        {LLAMA, "hidden_size", "\"many\"", "hidden_size is \"many\""},
        {LLAMA, "hidden_size", "2048.5", "hidden_size is 2048.5"},
        {LLAMA, "hidden_size", "-2048", "hidden_size is -2048"},
        {LLAMA, "hidden_size", "99999999999", "hidden_size is 99999999999"},
        {LLAMA, "hidden_size", NULL, "hidden_size is nothing"},
        {LLAMA, "num_hidden_layers", "0", "num_hidden_layers is 0"},
        {LLAMA, "num_key_value_heads", "0", "num_key_value_heads is 0"},
        {LLAMA, "intermediate_size", "0", "intermediate_size is 0"},
        {LLAMA, "vocab_size", "100", "vocab_size is 100"},
        {LLAMA, "rms_norm_eps", "1e-7", "rms_norm_eps is "},
        {LLAMA, "rms_norm_eps", "1.5e-6", "rms_norm_eps is "},
        {LLAMA, "rms_norm_eps", NULL, "rms_norm_eps is nothing"},
        {LLAMA, "rope_theta", "10000.5", "rope_theta is 10000.5"},
        {LLAMA, "tie_word_embeddings", "\"yes\"", "tie_word_embeddings is \"yes\""},
        {LLAMA, "rope_scaling", "{\"type\": \"linear\", \"factor\": 2.0}", "type is \"linear\""},
        {LLAMA, "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 2.0}",
         "rope_type is \"yarn\"; supported: default, llama3"},
        {LLAMA, "rope_scaling", "{\"factor\": 2.0}", "has the key \"factor\""},
        {LLAMA, "rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8.0}",
         "low_freq_factor is nothing"},
        {LLAMA, "rope_scaling", "{\"rope_type\": \"default\", \"rope_theta\": 7}",
         "rope_theta is 500000.0; supported: one value"},
        {LLAMA, "rope_scaling", "[]", "rope_scaling is []"},
        {LLAMA, "rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\"}}",
         "has the key \"full_attention\""},
        {LLAMA, "rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 500000}",
         "rope_parameters is "},
        {LLAMA, "rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 7}",
         "supported: the same"},
        {GPT2, "activation_function", "\"gelu\"",
         "activation_function is \"gelu\"; supported: gelu_new"},
        {GPT2, "activation_function", NULL, "activation_function is nothing"},
        {GPT2, "scale_attn_weights", "false", "scale_attn_weights is false; supported: true"},
        {GPT2, "scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx"},
        {GPT2, "add_cross_attention", "true", "add_cross_attention is true"},
        {GPT2, "n_inner", "\"x\"", "n_inner is \"x\""},
        {GPT2, "layer_norm_epsilon", "true", "layer_norm_epsilon is true"},
        {GPT2, "n_positions", "1e300", "n_positions is 1"},
        {GPT2, "vocab_size", "\"\\u001b[31m\"", "vocab_size is \"\\u001B[31m\""},
    };
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct tw_run run, before;
        tw_run_defaults(&before);
        const char *const json = with(CASES[i].base, CASES[i].key, CASES[i].value);
        const enum tw_status status = parse(&run, json);
        if (status != TW_CONFIG || strstr(err.message, CASES[i].said) == NULL) {
            fail_msg("%s = %s: status %d, %s", CASES[i].key, CASES[i].value, (int)status,
                     err.message);
        }
        assert_memory_equal(&run, &before, sizeof(run));
    }
}

TEST(malformed_json_is_refused_with_its_place) {
    static const char *const TEXTS[] = {"",
                                        "[]",
                                        "{",
                                        "{\"model_type\": \"gpt2\"",
                                        "{\"a\": nan}",
                                        "nul",
                                        "{\"a\": 1, \"a\": 2}",
                                        "{} {}",
                                        "{\"a\": \"\xff\"}"};
    struct tw_run run;
    for (unsigned i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        assert_int_equal(parse(&run, TEXTS[i]), TW_CORRUPT);
        assert_true(strlen(err.message) > 10);
    }
    enum { DEPTH = 5000, LARGE = TW_HF_CONFIG_BYTES_MAX + 2 };
    static char deep[2 * DEPTH + 1], large[LARGE + 1];
    memset(deep, '[', DEPTH);
    assert_int_equal(parse(&run, deep), TW_CORRUPT);
    memset(large, ' ', LARGE);
    large[0] = '{';
    large[LARGE - 1] = '}';
    assert_int_equal(parse(&run, large), TW_CORRUPT);
    assert_non_null(strstr(err.message, "at most"));
}

/* Every named shape is written as config.json and read back as the same model. */
TEST(written_config_is_read_back) {
    for (uint32_t i = 0; tw_run_model_name(i) != NULL; i++) {
        struct tw_run run, back;
        char text[TW_MODEL_CONFIG_BYTES];
        size_t size;
        tw_run_defaults(&run);
        assert_int_equal(tw_run_apply_model(&run, tw_run_model_name(i), &err), TW_OK);
        assert_int_equal(tw_model_config_write(&run, TW_DTYPE_BF16, NULL, text, &size, &err),
                         TW_OK);
        assert_in_range(size, 100, TW_MODEL_CONFIG_BYTES);
        tw_run_defaults(&back);
        if (tw_hf_config_parse(&back, text, size, &err) != TW_OK ||
            tw_model_same(&back, &run, &err) != TW_OK) {
            fail_msg("%s: %s", tw_run_model_name(i), err.message);
        }
        assert_int_equal(back.model.context, run.model.context);
        /* only model_source.h recognises byte tokens */
        assert_int_equal(back.data.tokenizer, TW_TOKENIZER_IDS);
    }
}

TEST(a_model_nobody_else_has_is_not_written) {
    struct tw_run run;
    char text[TW_MODEL_CONFIG_BYTES];
    size_t size;
    tw_run_defaults(&run);
    run.model.family = TW_FAMILY_LLAMA;
    run.model.qk_norm = run.model.qkv_bias = TW_YES;
    assert_int_equal(tw_model_config_write(&run, TW_DTYPE_F32, NULL, text, &size, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "model.qkv_bias"));
}

TEST(another_model_is_told_apart_by_each_key) {
    struct tw_run run, other;
    assert_int_equal(parse(&run, LLAMA), TW_OK);
    uint32_t *const KEYS[] = {&other.model.layers,
                              &other.model.width,
                              &other.model.heads,
                              &other.model.kv_heads,
                              &other.model.head_size,
                              &other.model.ffn,
                              &other.model.vocab,
                              &other.model.norm_eps_millionths,
                              &other.model.rope_theta,
                              &other.model.rope_factor_millionths,
                              &other.model.rope_low_millionths,
                              &other.model.rope_high_millionths,
                              &other.model.rope_original};
    for (unsigned i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        other = run;
        (*KEYS[i])++;
        assert_int_equal(tw_model_same(&run, &other, &err), TW_CONFIG);
    }
    other = run;
    other.model.is_tied = TW_NO;
    assert_int_equal(tw_model_same(&run, &other, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "model.tied"));
    other = run; /* llama has no weights per position, and the seed is not compared */
    other.model.context = 64;
    other.model.seed++;
    assert_int_equal(tw_model_same(&run, &other, &err), TW_OK);
    other.model.family = TW_FAMILY_GPT2;
    assert_int_equal(tw_model_same(&run, &other, &err), TW_CONFIG);
}

TEST(ids_of_ends_are_a_number_or_a_list) {
    static const uint32_t EOS[] = {4294967294u, 0, 17};
    char text[TW_MODEL_CONFIG_BYTES + 1];
    size_t size = 0;
    struct tw_run run;
    assert_int_equal(parse(&run, GPT2), TW_OK);
    const struct tw_model_ids many = {EOS, 3, 5, UINT32_MAX}, one = {EOS + 2, 1, UINT32_MAX, 3};
    assert_int_equal(tw_model_config_write(&run, TW_DTYPE_F32, &many, text, &size, &err), TW_OK);
    text[size] = 0;
    assert_non_null(strstr(text, "\"eos_token_id\": [4294967294, 0, 17],"));
    assert_non_null(strstr(text, "\"bos_token_id\": 5,"));
    assert_non_null(strstr(text, "\"pad_token_id\": null,"));
    assert_int_equal(tw_model_config_write(&run, TW_DTYPE_F32, &one, text, &size, &err), TW_OK);
    text[size] = 0;
    assert_non_null(strstr(text, "\"eos_token_id\": 17,"));
    assert_non_null(strstr(text, "\"bos_token_id\": null,"));
}
