/* evaluation.h - held-out losses of parameters and anchor, and a sample of text, between steps. */
#ifndef TW_WORKER_LOOP_EVALUATION_H
#define TW_WORKER_LOOP_EVALUATION_H

#include <stdbool.h>

#include "base/status.h"

struct tw_trainer;

/* By the daemon's wish, every eval_steps steps; of a node that follows, when merges have changed
 * the model, in a twentieth of the time. */
bool tw_evaluation_is_due(const struct tw_trainer *trainer);

/* Evaluates, and tells the daemon: EVALUATED, then SAMPLE if one is due. Samples take at most a
 * two-hundredth of the time. Given up for a pause, it is due again. */
enum tw_status tw_evaluation_run(struct tw_trainer *trainer, struct tw_error *err);

#endif
