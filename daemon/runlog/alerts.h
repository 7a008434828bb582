/* alerts.h - the user's programs: the hook for warnings, and the program that measures the model.
 */
#ifndef TW_DAEMON_RUNLOG_ALERTS_H
#define TW_DAEMON_RUNLOG_ALERTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* ==== warnings ================================================================================ */

/* Checks this node's warnings every second. When one is raised or cleared, reports that to the run
 * log and to the user's hook.
 *
 * The hook (process/hook.h) runs once for each change, one at a time. TW_HOOKS_BURST hooks may run
 * one right after the other, then one a minute. Changes wait meanwhile in the table of warnings.
 * The hook never hears of a warning that was raised and cleared before its turn. Warnings that are
 * not urgent go to the run log only. */

enum { TW_HOOKS_BURST = 10 };

struct tw_alerts;
struct tw_run_log;
struct tw_status_view;
struct uv_loop_s;

struct tw_alerts_config {
    struct uv_loop_s *loop;
    struct tw_run_log *log;  /* borrowed */
    const char *hook;        /* command line for the shell, or "" if there is no hook; borrowed */
    const char *config_path; /* value of THINWIRE_CONFIG for the hook; borrowed */
    void *user;
    /* Fills a view that tw_status_view_init has prepared. */
    void (*fill)(void *user, struct tw_status_view *view);
    /* A hook could not be started, failed or was killed. `text` is a sentence about it. */
    void (*failed)(void *user, const char *text);
};

/* Returns TW_NOMEM without memory. */
enum tw_status tw_alerts_open(struct tw_alerts **alerts, const struct tw_alerts_config *config,
                              struct tw_error *err);
/* Call at least once a second, while the core runs. */
void tw_alerts_tick(struct tw_alerts *alerts, uint64_t now_us);
/* Kills the running hook, if any. */
void tw_alerts_close(struct tw_alerts *alerts);
/* Call after the loop has ended. NULL is allowed. */
void tw_alerts_free(struct tw_alerts *alerts);

/* ==== evaluations ============================================================================= */

/* Runs a program of the user on a checkpoint after every N committed rounds, and keeps the values
 * that it prints (api/scores.h).
 *
 *   IDLE    -> SAVING   a multiple of N rounds was passed: a checkpoint is requested
 *   SAVING  -> RUNNING  a checkpoint of at least that round is on disk: the program starts
 *   RUNNING -> IDLE     the program ended, or was killed at the timeout
 *
 * One program runs at a time; multiples of N that pass meanwhile are skipped. The program gets a
 * second name (hard link) of the checkpoint's file, so that later checkpoints do not replace it. */

struct tw_evaluations;
struct tw_run_log;
struct tw_status_view;
struct uv_loop_s;

/* Second name of the evaluated checkpoint, in the folder of the checkpoints. */
#define TW_EVALUATIONS_FILE "ckpt.evaluated.safetensors"

struct tw_evaluations_config {
    struct uv_loop_s *loop;
    struct tw_run_log *log;    /* borrowed, like all texts below */
    const char *command;       /* command line for the shell, or "" for no evaluations */
    uint32_t rounds;           /* rounds between evaluations; not 0 with a command */
    uint64_t timeout_us;       /* time after which the program is killed */
    const char *folder;        /* folder of the checkpoints */
    const char *config_path;   /* value of THINWIRE_CONFIG for the program */
    const char *manifest_path; /* value of THINWIRE_MANIFEST */
    const char *data_path;     /* THINWIRE_DATA, or "" if the trainer brings its own data */
    void *user;
    /* Requests a checkpoint. `now` of a later tick shows when it is on disk. */
    void (*save)(void *user);
    /* Reports an event to people: its name, and "key=value" pairs. */
    void (*note)(void *user, bool is_warning, const char *name, const char *text);
};

/* The node's committed rounds, and the newest checkpoint on disk. */
struct tw_evaluations_now {
    uint64_t rounds; /* committed rounds of the lineage */
    bool is_saving;  /* a checkpoint is being saved */
    struct {
        bool is_whole; /* the checkpoint has a position and every fragment */
        uint32_t file; /* file number for tw_checkpoint_file_name */
        uint64_t rounds, step, tokens;
    } newest;
};

/* Returns TW_NOMEM without memory. */
enum tw_status tw_evaluations_open(struct tw_evaluations **evaluations,
                                   const struct tw_evaluations_config *config,
                                   struct tw_error *err);
/* Call about four times a second, while the core runs. */
void tw_evaluations_tick(struct tw_evaluations *evaluations, const struct tw_evaluations_now *now,
                         uint64_t now_us);
void tw_evaluations_fill(const struct tw_evaluations *evaluations, uint64_t now_us,
                         struct tw_status_view *view);
/* Kills the running program, if any. */
void tw_evaluations_close(struct tw_evaluations *evaluations);
/* Call after the loop has ended. NULL is allowed. */
void tw_evaluations_free(struct tw_evaluations *evaluations);

#endif
