/* model_double.h - a second, simple implementation of the model in double, for finite differences.
 * Shares no code with worker/ and kernels/. */
#ifndef TW_TESTS_WORKER_ENGINE_MODEL_DOUBLE_H
#define TW_TESTS_WORKER_ENGINE_MODEL_DOUBLE_H

#include "proto/run/layout.h"
#include "proto/run/run.h"

/* Returns the mean loss in nats per token, including z-loss. `params` has layout.elements values,
 * `tokens` the shape (sequences, context + 1). */
double model_double_loss(const struct tw_run *run, const struct tw_layout *layout,
                         const double *params, const uint32_t *tokens, uint32_t sequences);

#endif
