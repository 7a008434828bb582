/* run_model.c - the shape of a model: sizes derived from its keys, and well-known shapes by name.
 */
#include <string.h>

#include "base/nearest.h"
#include "proto/run/run.h"

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

static const struct shape *find(const char *name) {
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
    const struct shape *shape = find(name);
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
