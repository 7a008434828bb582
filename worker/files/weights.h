/* weights.h - saves a model's parameters. */
#ifndef TW_WORKER_FILES_WEIGHTS_H
#define TW_WORKER_FILES_WEIGHTS_H

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"

/* Writes params as float32 under the layout's names (hf_write.h). `run`, which must match the
 * layout, is the manifest to include; NULL: none. Fails with TW_CONFIG if `path` exists, or with
 * TW_IO. */
enum tw_status tw_weights_save(const char *path, const struct tw_layout *layout,
                               const struct tw_run *run, const float *params, struct tw_error *err);

#endif
