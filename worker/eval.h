/* eval.h - held-out loss of any parameters: the live ones or the anchor. */
#ifndef TW_WORKER_EVAL_H
#define TW_WORKER_EVAL_H

#include "worker/data.h"
#include "worker/engine.h"

/* Mean nats per token over `windows_count` evenly spaced held-out windows (0 or more than there
 * are: all of them). The same windows every time. */
enum tw_status tw_eval_heldout(struct tw_engine *engine, const struct tw_data *data,
                               const float *params, uint64_t windows_count, double *loss_out,
                               struct tw_error *err);

#endif
