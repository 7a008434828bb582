/* run_log.h - the run log: lines about steps, evaluations, rounds and warnings, as JSON, in a
 * bounded ring of files (store/line_log.h, run_line.h).
 *
 * Lines are collected on the loop and written on libuv's pool, at most four times a second. If the
 * disk fails or is slow, lines that do not fit the buffer are lost, and a later line tells their
 * number. */
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
    /* Limit for all files together; 0 = no log, and every function does nothing. */
    uint64_t bytes_max;
    struct tw_history *history; /* receives the past that is in the log; NULL if not wanted */
    void *user;

    /* Fills in identity and progress for a line that is written now. */
    void (*moment)(void *user, struct tw_run_moment *moment);
    /* Called with the reason when the disk begins to refuse lines, and with NULL when it accepts
     * them again. */
    void (*failed)(void *user, const char *reason);
};

/* If the log cannot be opened, calls `failed`, and the node runs without it. Returns TW_NOMEM
 * without memory. */
enum tw_status tw_run_log_open(struct tw_run_log **log, const struct tw_run_log_config *config,
                               struct tw_error *err);

/* Returns identity and progress for a line that is written now. */
struct tw_run_moment tw_run_log_moment(const struct tw_run_log *log);

/* Writes the line of the daemon's start, with the identity of node and run. */
void tw_run_log_start(struct tw_run_log *log);

void tw_run_log_warning(struct tw_run_log *log, const struct tw_warning *warning, bool is_raised);

/* Returns true if a line about a step is due: after the start, then every ten seconds. */
bool tw_run_log_is_due(const struct tw_run_log *log);
void tw_run_log_step(struct tw_run_log *log, const struct tw_run_step *step);
/* `at` is the step that was evaluated. */
void tw_run_log_evaluation(struct tw_run_log *log, const struct tw_run_step *step, uint64_t at);

/* Writes a text that the model generated. */
void tw_run_log_sample(struct tw_run_log *log, const struct tw_wmsg_sample *sample);

void tw_run_log_scores(struct tw_run_log *log, const struct tw_run_scores *scores);

/* tw_run_log_round logs a committed round. In pairs, tw_run_log_pair adds its partner, which
 * becomes known a moment later. */
void tw_run_log_round(struct tw_run_log *log, const struct tw_view_round *round,
                      enum tw_outcome outcome);
void tw_run_log_pair(struct tw_run_log *log, const struct tw_id *partner);

/* Call about four times a second. */
void tw_run_log_tick(struct tw_run_log *log);
/* Starts to write the last lines. The loop must still run until they are written. */
void tw_run_log_close(struct tw_run_log *log, int exit_status);
/* Call after the loop has ended. NULL is allowed. */
void tw_run_log_free(struct tw_run_log *log);

#endif
