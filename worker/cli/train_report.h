/* train_report.h - prints the progress of `thinwire train`, as lines or as JSON. */
#ifndef TW_WORKER_CLI_TRAIN_REPORT_H
#define TW_WORKER_CLI_TRAIN_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/data/data.h"
#include "worker/engine/engine.h"
#include "worker/engine/profile.h"

struct tw_train_report {
    bool is_terminal, json;
    uint64_t step, first_step, steps; /* current step, first step of this process, final step */
    uint64_t tokens, step_tokens, skipped;
    uint64_t flops_token;
    double peak_flops_s; /* GEMM rate, or the rate of a step if that is faster, in FLOP/s; 0: not
                            measured */
    double loss;         /* moving average of the loss over about 20 steps; NaN before the first */
    double grad_norm, lr;
    double validation; /* latest held-out loss; NaN before the first */
    double step_s;     /* moving average of a step's duration, in seconds */
    double start_s, shown_s;
};

/* Prints the run's name, parameters, training and data to standard error. */
void tw_train_report_run(const struct tw_run *run, const struct tw_layout *layout,
                         const char *data_path, const struct tw_data *data, uint64_t steps);

/* Prints the engine's description and a table of memory by use. `engine` is the text of
 * tw_engine_describe; `peak` is the measured GEMM rate in FLOP/s, 0: not measured. */
void tw_train_report_plan(const struct tw_engine_plan *plan, const char *engine, double peak);
void tw_train_report_plan_json(const struct tw_run *run, const struct tw_layout *layout,
                               const struct tw_engine_plan *plan, const char *engine, double peak);

/* Call this after each step. */
void tw_train_report_step(struct tw_train_report *report, const struct tw_step_result *result,
                          float lr, double took_s);
void tw_train_report_validation(struct tw_train_report *report, double nats);
/* Model FLOPs utilisation (MFU) of recent steps, at most 1. NaN before the first step and without a
 * measured peak. */
double tw_train_report_mfu(const struct tw_train_report *report);
/* Reports that the state of this step is on disk. */
void tw_train_report_saved(struct tw_train_report *report, const char *path);
/* Reports that the state of this step could not be saved. */
void tw_train_report_unsaved(struct tw_train_report *report, const char *path, const char *reason);
/* Prints the time by operator, or the event "profile". */
void tw_train_report_profile(const struct tw_train_report *report,
                             const struct tw_profile *profile);
/* Prints the last line, or the event "done" or "interrupted". path NULL: nothing was written. */
void tw_train_report_end(struct tw_train_report *report, const char *event, const char *path,
                         uint64_t bytes, const char *data_path);

#endif
