/* weights.h - loads and saves a model's parameters: a node's checkpoint, exported weights, or a
 * Hugging Face folder. */
#ifndef TW_WORKER_FILES_WEIGHTS_H
#define TW_WORKER_FILES_WEIGHTS_H

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"

/* Fills params (layout->elements floats, layout order, padding zero) from a file or folder:
 * model_source.h. `part` is "live" or "anchor" and applies to checkpoints only. Reads float32,
 * bfloat16 and float16. On failure params is undefined. Does not check digests of checkpoints.
 * Errors:
 * - TW_IO: cannot be read;
 * - TW_CONFIG: other shape than the manifest's model;
 * - TW_CORRUPT: malformed, missing or extra tensor, or not finite. */
enum tw_status tw_weights_load(const char *path, const struct tw_layout *layout, const char *part,
                               float *params, struct tw_error *err);

/* Writes params as float32 under the layout's names: hf_write.h. `run`, which must match the
 * layout, is the manifest to include; NULL: none. TW_CONFIG if `path` exists; TW_IO. */
enum tw_status tw_weights_save(const char *path, const struct tw_layout *layout,
                               const struct tw_run *run, const float *params, struct tw_error *err);

#endif
