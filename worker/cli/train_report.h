/* train_report.h - what `thinwire train` shows: what it is about to do, one live line, JSON events.
 *
 * People read standard error: on a terminal one line that changes, elsewhere a line now and then.
 * Programs read standard output, where --json prints one event a line. */
#ifndef TW_WORKER_CLI_TRAIN_REPORT_H
#define TW_WORKER_CLI_TRAIN_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/data/data.h"
#include "worker/engine/engine.h"

struct tw_train_report {
    bool is_terminal, json;
    uint64_t step, first_step, steps; /* now, where this process began, where it will end */
    uint64_t tokens, step_tokens, skipped;
    uint64_t flops_token;
    double peak_flops_s; /* of products, or of a step that was faster; 0: not measured */
    double loss;         /* moving average over about 20 steps; NaN before the first */
    double grad_norm, lr;
    double validation; /* the last; NaN before */
    double step_s;     /* moving average of a step's duration */
    double start_s, shown_s;
};

/* Name, parameters, training and data, for people. */
void tw_train_report_run(const struct tw_run *run, const struct tw_layout *layout,
                         const char *data_path, const struct tw_data *data, uint64_t steps);

/* The arithmetic and the table of bytes by use. `engine` is what tw_engine_describe says; peak 0:
 * not measured. */
void tw_train_report_plan(const struct tw_engine_plan *plan, const char *engine, double peak);
void tw_train_report_plan_json(const struct tw_run *run, const struct tw_layout *layout,
                               const struct tw_engine_plan *plan, const char *engine, double peak);

/* After a step. */
void tw_train_report_step(struct tw_train_report *report, const struct tw_step_result *result,
                          float lr, double took_s);
void tw_train_report_validation(struct tw_train_report *report, double nats);
/* Model FLOPs utilisation of the last steps, at most 1; NaN before the first and where no peak was
 * measured. */
double tw_train_report_mfu(const struct tw_train_report *report);
/* The state of this step is on disk. */
void tw_train_report_saved(struct tw_train_report *report, const char *path);
/* It is not. */
void tw_train_report_unsaved(struct tw_train_report *report, const char *path, const char *reason);
/* The last line, or the event: "done", "interrupted". path NULL: nothing was written. */
void tw_train_report_end(struct tw_train_report *report, const char *event, const char *path,
                         uint64_t bytes, const char *data_path);

#endif
