/* model_same.h - compares the arithmetic of two models. */
#ifndef TW_WORKER_FILES_MODEL_SAME_H
#define TW_WORKER_FILES_MODEL_SAME_H

#include "base/status.h"
#include "proto/run/run.h"

/* Checks that the model of `found` (a config.json) and the model of `wanted` (a manifest) compute
 * the same function of the same tensors. All model keys must match, except the seed and, unless
 * positions are weights, the context. The message of TW_CONFIG names the first difference with both
 * values. */
enum tw_status tw_model_same(const struct tw_run *found, const struct tw_run *wanted,
                             struct tw_error *err);

#endif
