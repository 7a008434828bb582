/* setup.h - everything that the daemon needs before its loop runs: configuration, manifest, state
 * folder, identity, secret.
 *
 * A failure is an exit status (base/exit_codes.h) and one sentence with the cause and the remedy.
 * On disk, tw_setup_open only creates missing folders, increments the count of starts and takes the
 * lock. */
#ifndef TW_DAEMON_SETUP_SETUP_H
#define TW_DAEMON_SETUP_SETUP_H

#include <stdbool.h>

#include "base/exit_codes.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/config/config.h"
#include "daemon/config/memory_plan.h"
#include "daemon/store/notes.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"

struct tw_setup_options {
    const char *config; /* value of --config; NULL: search as tw_config_find does */
    bool is_fresh;      /* --fresh: damaged checkpoints are set aside */
};

struct tw_setup {
    struct tw_setup_options options;
    struct tw_config config;
    struct tw_run run;
    struct tw_id run_id;
    struct tw_layout layout;
    struct tw_memory_plan memory;
    char manifest[TW_MANIFEST_BYTES_MAX + 1]; /* the manifest's canonical text, with NUL */
    char run_state_dir[TW_PATH_BYTES];        /* STATE_DIR/ID, with the first 16 digits of the run
                                                 id */
    char data_path[TW_PATH_BYTES]; /* text or dataset to train on; "": the trainer brings its own,
                                      or the node reduces and needs none */
    bool is_data_fetched;          /* data_path is the folder `data` in run_state_dir, filled by
                                      peers */
    bool spawns_worker;            /* the daemon starts and restarts the worker */
    char worker_path[TW_PATH_BYTES];
    char worker_socket[TW_PATH_BYTES];
    uint32_t worker_uid; /* second user that may run the worker; 0: none */
    struct tw_identity identity;
    struct tw_secrets secrets;       /* run secrets; none if the run is `open` or has an owner */
    char secret_path[TW_PATH_BYTES]; /* path of the secret file; "": none */
    uint32_t boot;                   /* starts of this node so far, this one included */
    bool has_gate;                   /* the run has an owner, and network.links is on */
    struct tw_gate gate;
    struct tw_lineages refused; /* lineages that this node refuses since a rollback or a recall */
    struct tw_id awaited;       /* lineage of no node, in which this one waits for a recalled state
                                   (setup.h); zero: no wait */
    bool is_restart_wanted;     /* the process must restart itself after the daemon has ended */
    int lock_fd;
};

/* Returns TW_EXIT_OK, or another exit status with the sentence in `err`. */
enum tw_exit tw_setup_open(struct tw_setup *setup, const struct tw_setup_options *options,
                           struct tw_error *err);

/* Reads certificate and revocations from the state folder, in a run with an owner. An invalid file
 * leaves the gate unchanged. At the start, a certificate must exist. Returns TW_EXIT_OK, or
 * TW_EXIT_IDENTITY with the sentence in `err`. */
enum tw_exit tw_setup_gate(struct tw_setup *setup, struct tw_error *err);

/* Adds a lineage to those refused from the next start on. Changes only the disk. Returns TW_IO or
 * TW_CORRUPT on failure. */
enum tw_status tw_setup_refuse(const struct tw_setup *setup, const struct tw_id *lineage,
                               struct tw_error *err);

void tw_setup_close(struct tw_setup *setup);

#endif
