/* model_config.h - config.json: a run's model as Hugging Face's transformers reads it.
 *
 * gpt2 is GPT2LMHeadModel; llama is LlamaForCausalLM, with biases Qwen2ForCausalLM, with norms on
 * queries and keys Qwen3ForCausalLM. The rotation is written as rope_theta and rope_scaling, which
 * old and new releases read. Pure. */
#ifndef TW_PROTO_RUN_MODEL_CONFIG_H
#define TW_PROTO_RUN_MODEL_CONFIG_H

#include <stddef.h>

#include "base/status.h"
#include "proto/run/run.h"
#include "proto/safetensors.h"

enum { TW_MODEL_CONFIG_BYTES = 2048 };

/* "qwen2" and "Qwen2ForCausalLM" of a checked run. TW_CONFIG when transformers has no architecture
 * of that kind: biases and norms on queries and keys together. */
struct tw_model_kind {
    const char *type, *architecture;
};
enum tw_status tw_model_kind(const struct tw_run *run, struct tw_model_kind *kind,
                             struct tw_error *err);

/* Writes the text without NUL; dtype (F32, BF16 or F16) is what the tensors are stored as.
 * TW_CONFIG from tw_model_kind. */
enum tw_status tw_model_config_write(const struct tw_run *run, enum tw_dtype dtype,
                                     char text[TW_MODEL_CONFIG_BYTES], size_t *size_out,
                                     struct tw_error *err);

#endif
