/* hf_config.h - reads the config.json of a Hugging Face model into a run's model keys.
 *
 * Supported are gpt2, llama, mistral, qwen2 and qwen3 where the engine computes exactly the same.
 * Any other key or value that would change the arithmetic is refused; the error names the key, the
 * value and the supported values. */
#ifndef TW_WORKER_FILES_HF_CONFIG_H
#define TW_WORKER_FILES_HF_CONFIG_H

#include <stddef.h>

#include "base/status.h"
#include "proto/run/run.h"

enum { TW_HF_CONFIG_BYTES_MAX = 1024 * 1024 };

/* Fills run->model (except its seed) from untrusted JSON, and sets run->data.tokenizer to ids.
 * Other members of *run stay. On success every key is within its range; the caller must still call
 * tw_run_check. Fails with TW_CONFIG if the model is not supported, TW_CORRUPT if the JSON is
 * malformed, or TW_NOMEM; then *run is unchanged. */
enum tw_status tw_hf_config_parse(struct tw_run *run, const char *json, size_t size,
                                  struct tw_error *err);

#endif
