/* owner.h - the owner of a run: its key, and the commands of `thinwire owner`. */
#ifndef TW_DAEMON_CLI_NODE_OWNER_H
#define TW_DAEMON_CLI_NODE_OWNER_H

#include "base/status.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/cli.h"
#include "daemon/config/config.h"
#include "proto/cert.h"
#include "proto/run/run.h"

/* ---- the key --------------------------------------------------------------------------------- */

/* `thinwire run new` leaves the key in the folder of the manifest. All runs of one folder have one
 * owner. The holder of the key decides which nodes are in the run, so `init` gives a node that is
 * made beside the key a certificate at once. */

#define OWNER_KEY_FILE "owner.key"

/* Effect of the loss of the key, as the rest of a sentence. */
#define OWNER_KEY_LOSS                                                                             \
    "training goes on, but nobody can be shut out, the run cannot be recalled, and nobody new "    \
    "gets in once the certificates of the nodes that invite end"

/* Writes the path of the key in the folder of the manifest. Returns false if it is too long. */
bool owner_key_beside(const char *manifest, char path[TW_PATH_BYTES]);

/* Reads the public half of the key, which is made first if there is none (*is_new). Fails as
 * tw_identity_open and tw_identity_create do. */
enum tw_status owner_key_have(const char *path, struct tw_id *owner, bool *is_new,
                              struct tw_error *err);

enum owner_key_state {
    OWNER_KEY_NONE,   /* there is no key beside the manifest, or that of another run */
    OWNER_KEY_HIDDEN, /* there is one that this process may not read */
    OWNER_KEY_HERE,   /* it is the key of the run's owner */
};

/* Looks for the key beside the manifest of a run with an owner, and writes its path. Opens *key if
 * it is HERE: close it with tw_identity_close. */
enum owner_key_state owner_key_look(const struct tw_run *run, const char *manifest,
                                    char path[TW_PATH_BYTES], struct tw_identity *key);

/* Completes and signs a certificate with the owner's key. The caller has set `run`, `node`, `may`
 * and `from_s`, the time now; it is valid for `days`. */
void owner_key_sign(const struct tw_identity *key, uint64_t days, struct tw_cert *cert);

/* Gives a node its certificate if the owner's key is beside the manifest: it trains, votes and
 * admits others. Writes the key's path. Returns TW_AGAIN if the key is not there or not readable.
 * Otherwise fails as tw_certs_save does. */
enum tw_status owner_key_admit(const struct tw_config *config, const struct tw_run *run,
                               const struct tw_id *node, char key_path[TW_PATH_BYTES],
                               struct tw_error *err);

/* ---- the commands ---------------------------------------------------------------------------- */

/* The run, and this node's state folder. Options may set either. */
struct owner_place {
    struct tw_run run;
    struct tw_id run_id;
    char run_path[TW_PATH_BYTES]; /* of the manifest */
    bool has_config;              /* this machine has a node, whose folder is state_dir */
    char state_dir[TW_PATH_BYTES];
    struct tw_config config; /* with has_config */
};

/* Finds the run of the manifest `run_path` (--run), or this node's run if NULL. Prints errors
 * itself: no manifest, or a run without an owner. */
enum tw_exit owner_place_find(struct cli *cli, const char *run_path, struct owner_place *place);

/* Makes this process the user of the node, if there is one, before it writes files of the node.
 * Files that the caller named were opened before. Prints errors itself. */
enum tw_exit owner_become_node(const struct cli *cli, const struct owner_place *place);

/* Writes FOLDER/NAME. Returns false if it is too long. */
bool owner_path(const struct owner_place *place, const char *name, char path[TW_PATH_BYTES]);

/* Return the folder of a path, which is written to `copy`, and its file name, which points into
 * `path`. */
const char *owner_folder(const char *path, char copy[TW_PATH_BYTES]);
const char *owner_file(const char *path);

enum tw_exit owner_sign(struct cli *cli);

enum tw_exit owner_revoke(struct cli *cli);
/* `thinwire pause --run` and `thinwire resume --run`. The caller has read the flag --run. */
enum tw_exit owner_pause_run(struct cli *cli, bool is_paused);

enum tw_exit owner_recall(struct cli *cli);

#endif
