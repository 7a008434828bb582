/* model_shape.h - derives sizes, tensor offsets and rotation tables from a run; private to
 * model_*.c. */
#ifndef TW_WORKER_ENGINE_MODEL_SHAPE_H
#define TW_WORKER_ENGINE_MODEL_SHAPE_H

#include "worker/engine/model.h"

struct tw_model_shape tw_model_shape_of(const struct tw_run *run);

/* Fills the offsets and sizes of all tensors. model->config, shape and layers must already be set.
 */
void tw_model_find(struct tw_model *model);

/* Fills cos and sin for every position of the context. */
void tw_model_fill_rotation(struct tw_model *model);

#endif
