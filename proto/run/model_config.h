/* model_config.h - writes config.json: a run's model in the form that Hugging Face's transformers
 * reads.
 *
 * gpt2 is GPT2LMHeadModel. llama is LlamaForCausalLM; with biases it is Qwen2ForCausalLM, with
 * norms on queries and keys Qwen3ForCausalLM. RoPE is written as rope_theta and rope_scaling, which
 * old and new releases of transformers read. Pure. */
#ifndef TW_PROTO_RUN_MODEL_CONFIG_H
#define TW_PROTO_RUN_MODEL_CONFIG_H

#include <stddef.h>

#include "base/status.h"
#include "proto/run/run.h"
#include "proto/safetensors.h"

enum { TW_MODEL_CONFIG_BYTES = 2048, TW_MODEL_IDS_MAX = 16 };

/* Returns type and architecture of a checked run, such as "qwen2" and "Qwen2ForCausalLM". Returns
 * TW_CONFIG if transformers has no such architecture: biases together with norms on queries and
 * keys. */
struct tw_model_kind {
    const char *type, *architecture;
};
enum tw_status tw_model_kind(const struct tw_run *run, struct tw_model_kind *kind,
                             struct tw_error *err);

/* Ids of the tokens that begin, end and pad a text, with config.json's names. UINT32_MAX: none. */
struct tw_model_ids {
    const uint32_t *eos; /* (eos_count), borrowed; one is written as a number, several as a list */
    uint32_t eos_count, bos, pad;
};

/* Writes the text without NUL. dtype (F32, BF16 or F16) is the type of the stored tensors; ids may
 * be NULL if no id is known. Returns TW_CONFIG if tw_model_kind fails. */
enum tw_status tw_model_config_write(const struct tw_run *run, enum tw_dtype dtype,
                                     const struct tw_model_ids *ids,
                                     char text[TW_MODEL_CONFIG_BYTES], size_t *size_out,
                                     struct tw_error *err);

#endif
