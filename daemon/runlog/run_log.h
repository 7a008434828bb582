/* run_log.h - the lines of the run log, as JSON. `thinwire help run-log` documents every key, and
 * tests/daemon/runlog/test_run_line.c compares the two.
 *
 * Each kind of line always has all keys of that kind; an unknown value is null. Each function
 * returns a new reference, or NULL without memory. */
#ifndef TW_DAEMON_RUNLOG_RUN_LOG_H
#define TW_DAEMON_RUNLOG_RUN_LOG_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/api/history.h"
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

/* ==== the log ================================================================================= */

/* The run log: lines about steps, evaluations, rounds and warnings, as JSON, in a bounded ring of
 * files (store/line_log.h).
 *
 * Lines are collected on the loop and written on libuv's pool, at most four times a second. If the
 * disk fails or is slow, lines that do not fit the buffer are lost, and a later line tells their
 * number. */

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

/* ==== the past of a run ======================================================================= */

enum { TW_RUN_PAST_BYTES = 8 << 20 }; /* bytes of newest lines that are read: about four days */

/* Adds the losses, evaluations and rounds of the newest lines to the history, oldest first.
 * `newest` is the number of the newest file of the ring (store/line_log.h). Unreadable lines are
 * skipped. Blocks for about 0.2 s. */
void tw_run_past_read(const char *folder, uint64_t newest, struct tw_history *history);

/* ==== the ledger on disk ====================================================================== */

/* The ledger of a run (daemon/api/ledger.h) and its file, which is saved once a minute and at the
 * end. */

struct tw_ledger;
struct tw_ledger_file;
struct tw_record;

/* Loads the file from `folder`, which is borrowed. A damaged file is logged, and the ledger begins
 * anew. Returns TW_NOMEM without memory. */
enum tw_status tw_ledger_file_open(struct tw_ledger_file **file, const char *folder,
                                   struct tw_error *err);
/* Returns the ledger, borrowed until tw_ledger_file_free. */
const struct tw_ledger *tw_ledger_file_table(const struct tw_ledger_file *file);
/* Like tw_ledger_begin: the next records follow `tip`. NULL if no record is known. */
void tw_ledger_file_begin(struct tw_ledger_file *file, const struct tw_record *tip);
/* Adds a committed record to the ledger. */
void tw_ledger_file_note(struct tw_ledger_file *file, const struct tw_record *record);
/* Call at least once a minute. */
void tw_ledger_file_tick(struct tw_ledger_file *file, uint64_t now_us);
/* Saves the ledger. NULL is allowed, here and below. */
void tw_ledger_file_close(struct tw_ledger_file *file);
void tw_ledger_file_free(struct tw_ledger_file *file);

#endif
