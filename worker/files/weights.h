/* weights.h - parameters of a model from and to files: a checkpoint of a node, weights exported
 * from one, or a Hugging Face folder. */
#ifndef TW_WORKER_FILES_WEIGHTS_H
#define TW_WORKER_FILES_WEIGHTS_H

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"

/* Fills params (layout->elements floats, layout order, padding zero) from a file or folder:
 * model_source.h. `part` is "live" or "anchor" and matters for checkpoints only. float32, bfloat16
 * and float16. TW_IO: cannot be read; TW_CONFIG: another shape than the manifest's model;
 * TW_CORRUPT: malformed, a tensor missing or too many, or not finite. On failure params is
 * undefined. Digests of checkpoints are the daemon's business: not checked. */
enum tw_status tw_weights_load(const char *path, const struct tw_layout *layout, const char *part,
                               float *params, struct tw_error *err);

/* Writes params as float32 under the layout's names: hf_write.h. `run` is the manifest that goes
 * into the file, of the same layout; NULL: none. TW_CONFIG when `path` exists; TW_IO. */
enum tw_status tw_weights_save(const char *path, const struct tw_layout *layout,
                               const struct tw_run *run, const float *params, struct tw_error *err);

#endif
