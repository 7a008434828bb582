/* load_weights.h - all parameters of a model from a file, through model_source.h. */
#ifndef TW_TESTS_WORKER_FILES_LOAD_WEIGHTS_H
#define TW_TESTS_WORKER_FILES_LOAD_WEIGHTS_H

#include "worker/files/model_source.h"

/* Fills params (layout->elements floats, padding zero) from a file or folder. `part` is "live" or
 * "anchor" and matters for checkpoints only. On failure params is undefined. */
enum tw_status load_weights(const char *path, const struct tw_layout *layout, const char *part,
                            float *params, struct tw_error *err);

#endif
