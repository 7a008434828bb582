/* evaluation.h - held-out losses of theta and anchor, and a sample of text, between steps. */
#ifndef TW_WORKER_LOOP_EVALUATION_H
#define TW_WORKER_LOOP_EVALUATION_H

#include <stdbool.h>

#include "base/status.h"

struct tw_trainer;

/* Makes an evaluation due a tenth of eval_steps from now, in addition to the regular ones: at ten
 * seconds a step, nobody should wait half an hour for the first one. */
void tw_evaluation_soon(struct tw_trainer *trainer);

/* Returns whether an evaluation is due. A training node evaluates every eval_steps steps, as the
 * daemon configures. A following node evaluates when merges have changed the model, for at most a
 * twentieth of the time. */
bool tw_evaluation_is_due(const struct tw_trainer *trainer);

/* Evaluates, and sends EVALUATED to the daemon, then SAMPLE if one is due. Samples use at most a
 * two-hundredth of the time. An evaluation that is stopped for a pause is due again later. */
enum tw_status tw_evaluation_run(struct tw_trainer *trainer, struct tw_error *err);

#endif
