/* adapter.h - a LoRA adapter as peft saves it: adapter_config.json and adapter_model.safetensors.
 *
 *     W' = W + s B A,   s = alpha / r, or alpha / sqrt(r) with use_rslora      (arXiv 2106.09685)
 *
 * A is (r, inputs), B (outputs, r). W is (outputs, inputs), or (inputs, outputs) in the layers of
 * gpt2. Adapters with more than these two factors are refused: DoRA, biases, whole modules, adapted
 * embeddings. All input is untrusted and checked. */
#ifndef TW_WORKER_FILES_ADAPTER_H
#define TW_WORKER_FILES_ADAPTER_H

#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"

struct tw_adapter;

/* Reads the adapter in a folder for the tensors of a layout (borrowed until close), all of its
 * factors into memory. Fails with TW_CONFIG, naming the key or the tensor, if it is of another
 * kind or of another model; with TW_CORRUPT, TW_IO or TW_NOMEM. */
enum tw_status tw_adapter_open(struct tw_adapter **adapter, const char *folder,
                               const struct tw_run *run, const struct tw_layout *layout,
                               struct tw_error *err);

void tw_adapter_close(struct tw_adapter *adapter); /* NULL is allowed */

/* Adds its change of tensor `i` to that tensor's elements [first, first + count), values[count]. */
void tw_adapter_add(const struct tw_adapter *adapter, uint32_t i, uint64_t first, uint64_t count,
                    float *values);

#endif
