/* hf_config.h - config.json of a Hugging Face model: read into a run's model, or refused by name.
 *
 * Read are gpt2, llama, mistral, qwen2 and qwen3, as far as the engine computes them to the letter.
 * Everything that would change the arithmetic and is not known here is refused, with the key, the
 * value found and what is supported. */
#ifndef TW_WORKER_FILES_HF_CONFIG_H
#define TW_WORKER_FILES_HF_CONFIG_H

#include <stddef.h>

#include "base/status.h"
#include "proto/run/run.h"

enum { TW_HF_CONFIG_BYTES_MAX = 1024 * 1024 };

/* Fills run->model (but its seed) and run->data.tokenizer from untrusted JSON; the rest of *run is
 * left alone. TW_CONFIG: not supported; TW_CORRUPT: malformed; TW_NOMEM. On failure *run is
 * unchanged. The result has every key within its range, but tw_run_check is the caller's. */
enum tw_status tw_hf_config_parse(struct tw_run *run, const char *json, size_t size,
                                  struct tw_error *err);

#endif
