/* setup.h - everything a daemon needs before its loop turns: configuration, manifest, state folder,
 * identity, secret. Each failure is one sentence that names the thing and the way out, and an exit
 * status of exit_codes.h. Nothing on disk is changed but: missing folders are made, the count of
 * starts goes up, the lock is taken. */
#ifndef TW_DAEMON_NODE_SETUP_H
#define TW_DAEMON_NODE_SETUP_H

#include <stdbool.h>

#include "base/exit_codes.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/auth/secret.h"
#include "daemon/config/config.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"

struct tw_setup_options {
    const char *config; /* --config; NULL = where tw_config_find looks */
    bool is_fresh;      /* --fresh: damaged checkpoints are set aside */
};

struct tw_setup {
    struct tw_setup_options options;
    struct tw_config config;
    struct tw_run run;
    struct tw_id run_id;
    struct tw_layout layout;
    char manifest[TW_MANIFEST_BYTES_MAX + 1]; /* canonical text with NUL */
    char run_state_dir[TW_PATH_BYTES];        /* STATE_DIR/first 16 digits of the run id */
    char data_path[TW_PATH_BYTES];            /* what is trained on */
    bool is_data_fetched; /* it is RUN_STATE_DIR/data, and what lacks there comes from peers */
    char worker_path[TW_PATH_BYTES];
    char worker_socket[TW_PATH_BYTES];
    struct tw_identity identity;
    struct tw_secrets secrets;       /* none: the run is `open` or has an owner */
    char secret_path[TW_PATH_BYTES]; /* where they were read; "" */
    uint32_t boot;                   /* starts of this node, 1 = the first */
    bool has_gate;                   /* the run has an owner, and links are wanted */
    struct tw_gate gate;
    int lock_fd;
};

/* TW_EXIT_OK, or what to exit with; `err` holds the sentence. */
enum tw_exit tw_setup_open(struct tw_setup *setup, const struct tw_setup_options *options,
                           struct tw_error *err);

/* Reads certificate and revocations of the state folder again, in a run with an owner; keeps what
 * it had when a file is no good. At the start a certificate must be there. TW_EXIT_OK, or
 * TW_EXIT_IDENTITY with the sentence. */
enum tw_exit tw_setup_gate(struct tw_setup *setup, struct tw_error *err);

void tw_setup_close(struct tw_setup *setup);

#endif
