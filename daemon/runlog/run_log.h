/* run_log.h - the run log: lines about steps, evaluations, rounds and warnings, as JSON, in a
 * bounded ring of files (store/line_log.h, run_line.h).
 *
 * Lines are collected on the loop and written on libuv's pool, at most four times a second. When
 * the disk refuses or is slow, lines beyond the buffer are lost, and a line counts them. */
#ifndef TW_DAEMON_RUNLOG_RUN_LOG_H
#define TW_DAEMON_RUNLOG_RUN_LOG_H

#include <jansson.h>

#include "base/status.h"
#include "daemon/api/history.h"
#include "daemon/runlog/run_line.h"

struct uv_loop_s;
struct tw_run_log;

struct tw_run_log_config {
    struct uv_loop_s *loop;
    const char *folder;
    uint64_t bytes_max; /* of all files together; 0: no log, and every function does nothing */
    struct tw_history *history; /* gets the past that is in the log; NULL: nobody wants it */
    void *user;

    /* Fills identity and progress for a line of this moment. */
    void (*moment)(void *user, struct tw_run_moment *moment);
    /* Called when the disk begins to refuse lines, with the reason, and with NULL when it takes
     * them again. */
    void (*failed)(void *user, const char *reason);
};

/* A node runs without its run log if the disk refuses it: `failed` is called then. TW_NOMEM. */
enum tw_status tw_run_log_open(struct tw_run_log **log, const struct tw_run_log_config *config,
                               struct tw_error *err);

/* Identity and progress for a line of this moment. */
struct tw_run_moment tw_run_log_moment(const struct tw_run_log *log);

/* The daemon has started: a line with the identity of node and run. */
void tw_run_log_start(struct tw_run_log *log);

void tw_run_log_warning(struct tw_run_log *log, const struct tw_warning *warning, bool is_raised);

/* Whether a line about a step is due: the first of this start, then one every ten seconds. */
bool tw_run_log_is_due(const struct tw_run_log *log);
void tw_run_log_step(struct tw_run_log *log, const struct tw_run_step *step);
/* `at`: the step that was evaluated. */
void tw_run_log_evaluation(struct tw_run_log *log, const struct tw_run_step *step, uint64_t at);

/* A text that the model wrote. */
void tw_run_log_sample(struct tw_run_log *log, const struct tw_wmsg_sample *sample);

void tw_run_log_scores(struct tw_run_log *log, const struct tw_run_scores *scores);

/* A committed round, and in pairs its partner, which is known a moment later. */
void tw_run_log_round(struct tw_run_log *log, const struct tw_view_round *round,
                      enum tw_outcome outcome);
void tw_run_log_pair(struct tw_run_log *log, const struct tw_id *partner);

/* Call about four times a second. */
void tw_run_log_tick(struct tw_run_log *log);
/* Writes the last lines while the loop ends. */
void tw_run_log_close(struct tw_run_log *log, int exit_status);
/* The loop must have ended. NULL is allowed. */
void tw_run_log_free(struct tw_run_log *log);

#endif
