/* run_line.h - the lines of the run log, as JSON. deploy/GUIDE.md documents every key ("Keep a
 * record of a run"), and tests/daemon/runlog/test_run_line.c compares the two.
 *
 * Each kind of line always has all keys of that kind; an unknown value is null. Each function
 * returns a new reference, or NULL without memory. */
#ifndef TW_DAEMON_RUNLOG_RUN_LINE_H
#define TW_DAEMON_RUNLOG_RUN_LINE_H

#include <jansson.h>

#include "daemon/api/scores.h"
#include "daemon/api/status_view.h"
#include "daemon/api/view_warning.h"

/* The node, its run, and its progress at one moment. */
struct tw_run_moment {
    uint64_t unix_us;
    uint32_t boot;
    const struct tw_id *node, *run;
    const char *node_name, *run_name; /* borrowed */
    uint64_t step, tokens;            /* progress of this node */
    uint64_t clock_tokens;            /* tokens of all nodes of its lineage */
};

/* Figures of a step of the worker, and of its last evaluation. NaN if unknown. */
struct tw_run_step {
    float loss, lr, grad_norm;
    double tokens_per_s, utilisation;
    float loss_live, loss_anchor, distance; /* used only in lines about an evaluation */
};

/* Values that a program of the user measured at a checkpoint. */
struct tw_run_scores {
    uint64_t rounds, step, tokens; /* progress of the checkpoint */
    uint64_t took_us;
    const struct tw_scores *scores; /* borrowed */
};

json_t *tw_run_line_start(const struct tw_run_moment *moment);
json_t *tw_run_line_stop(const struct tw_run_moment *moment, int exit_status);
json_t *tw_run_line_step(const struct tw_run_moment *moment, const struct tw_run_step *step);
json_t *tw_run_line_evaluation(const struct tw_run_moment *moment, const struct tw_run_step *step);

json_t *tw_run_line_sample(const struct tw_run_moment *moment, const struct tw_wmsg_sample *sample);

/* `outcome` is "ours" if the round merged this node's contribution, "others" if it merged only
 * those of other nodes, "alone" if this node closed it alone, and "empty" if it merged none. */
json_t *tw_run_line_round(const struct tw_run_moment *moment, const struct tw_view_round *round,
                          const char *outcome);

/* `moment` must have the step and the tokens of the checkpoint. */
json_t *tw_run_line_scores(const struct tw_run_moment *moment, const struct tw_run_scores *scores);

/* A hook also gets this line, on its standard input. */
json_t *tw_run_line_warning(const struct tw_run_moment *moment, const struct tw_warning *warning,
                            bool is_raised);

/* Reports that `lines` lines before this one could not be written. */
json_t *tw_run_line_gap(const struct tw_run_moment *moment, uint64_t lines);

#endif
