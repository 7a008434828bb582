/* evaluations.h - runs a program of the user's on a checkpoint after every N committed rounds, and
 * keeps the values that it prints (api/scores.h).
 *
 *   IDLE    -> SAVING   a multiple of N rounds was passed: a checkpoint is asked for
 *   SAVING  -> RUNNING  a checkpoint of at least that round is on disk; the program starts
 *   RUNNING -> IDLE     it ended, or was killed at the timeout
 *
 * One program runs at a time; multiples that pass meanwhile are left out. The program gets a second
 * name (hard link) of the checkpoint's file, so that later checkpoints do not replace it. */
#ifndef TW_DAEMON_RUNLOG_EVALUATIONS_H
#define TW_DAEMON_RUNLOG_EVALUATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct tw_evaluations;
struct tw_run_log;
struct tw_status_view;
struct uv_loop_s;

/* Name of the second name of a checkpoint, in the folder of the checkpoints. */
#define TW_EVALUATIONS_FILE "ckpt.evaluated.safetensors"

struct tw_evaluations_config {
    struct uv_loop_s *loop;
    struct tw_run_log *log;    /* borrowed, as all texts below */
    const char *command;       /* command line for the shell; "": no evaluations */
    uint32_t rounds;           /* rounds between evaluations; not 0 with a command */
    uint64_t timeout_us;       /* time that the program may take */
    const char *folder;        /* of the checkpoints */
    const char *config_path;   /* THINWIRE_CONFIG of the program */
    const char *manifest_path; /* THINWIRE_MANIFEST */
    const char *data_path;     /* THINWIRE_DATA; "": the trainer brings its own */
    void *user;
    /* Asks for a checkpoint; `now` of the next ticks shows when it is on disk. */
    void (*save)(void *user);
    /* An event for people: its name, and "key=value" pairs. */
    void (*note)(void *user, bool is_warning, const char *name, const char *text);
};

/* The newest checkpoint on disk, and the node's present round. */
struct tw_evaluations_now {
    uint64_t rounds; /* committed rounds of the lineage */
    bool is_saving;  /* a checkpoint is being saved */
    struct {
        bool is_whole; /* it has a position, and each fragment of it */
        uint32_t file; /* tw_checkpoint_file_name */
        uint64_t rounds, step, tokens;
    } newest;
};

/* TW_NOMEM. */
enum tw_status tw_evaluations_open(struct tw_evaluations **evaluations,
                                   const struct tw_evaluations_config *config,
                                   struct tw_error *err);
/* Call about four times a second, while the core runs. */
void tw_evaluations_tick(struct tw_evaluations *evaluations, const struct tw_evaluations_now *now,
                         uint64_t now_us);
void tw_evaluations_fill(const struct tw_evaluations *evaluations, uint64_t now_us,
                         struct tw_status_view *view);
/* Kills a program that runs. */
void tw_evaluations_close(struct tw_evaluations *evaluations);
/* The loop must have ended. NULL is allowed. */
void tw_evaluations_free(struct tw_evaluations *evaluations);

#endif
