#include "worker/files/model_same.h"

#include <stdbool.h>

enum tw_status tw_model_same(const struct tw_run *found, const struct tw_run *wanted,
                             struct tw_error *err) {
    const struct tw_run_shape a = tw_run_shape(found), b = tw_run_shape(wanted);
    const bool is_llama = found->model.family == TW_FAMILY_LLAMA;
    const bool is_scaled = is_llama && found->model.rope_factor_millionths != 1000000;
    const struct {
        const char *key;
        uint32_t found, wanted;
        bool matters;
    } PAIRS[] = {
        {"model.family (0 gpt2, 1 llama)", found->model.family, wanted->model.family, true},
        {"model.layers", found->model.layers, wanted->model.layers, true},
        {"model.width", found->model.width, wanted->model.width, true},
        {"model.heads", a.heads, b.heads, true},
        {"model.kv_heads", a.kv_heads, b.kv_heads, true},
        {"model.head_size", a.head_size, b.head_size, true},
        {"model.ffn", a.ffn, b.ffn, true},
        {"model.vocab", found->model.vocab, wanted->model.vocab, true},
        {"model.context", found->model.context, wanted->model.context, !is_llama},
        {"model.tied (1 yes)", found->model.is_tied, wanted->model.is_tied, true},
        {"model.norm_eps, in millionths,", found->model.norm_eps_millionths,
         wanted->model.norm_eps_millionths, true},
        {"model.qk_norm (1 yes)", found->model.qk_norm, wanted->model.qk_norm, is_llama},
        {"model.qkv_bias (1 yes)", found->model.qkv_bias, wanted->model.qkv_bias, is_llama},
        {"model.rope_theta", found->model.rope_theta, wanted->model.rope_theta, is_llama},
        {"model.rope_factor, in millionths,", found->model.rope_factor_millionths,
         wanted->model.rope_factor_millionths, is_llama},
        {"model.rope_low, in millionths,", found->model.rope_low_millionths,
         wanted->model.rope_low_millionths, is_scaled},
        {"model.rope_high, in millionths,", found->model.rope_high_millionths,
         wanted->model.rope_high_millionths, is_scaled},
        {"model.rope_original", found->model.rope_original, wanted->model.rope_original, is_scaled},
    };
    for (unsigned i = 0; i < sizeof(PAIRS) / sizeof(PAIRS[0]); i++) {
        if (PAIRS[i].matters && PAIRS[i].found != PAIRS[i].wanted)
            return tw_fail(err, TW_CONFIG, "%s is %u in config.json and %u in the manifest",
                           PAIRS[i].key, PAIRS[i].found, PAIRS[i].wanted);
    }
    return TW_OK;
}
