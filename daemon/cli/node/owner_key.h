/* owner_key.h - the key of a run's owner where `thinwire run new` leaves it: owner.key in the
 * folder of the manifest. All runs of one folder have one owner. The holder of the key decides
 * which nodes are in the run, so `init` gives a node that is made beside the key a certificate at
 * once. */
#ifndef TW_DAEMON_CLI_NODE_OWNER_KEY_H
#define TW_DAEMON_CLI_NODE_OWNER_KEY_H

#include "base/status.h"
#include "daemon/auth/identity.h"
#include "daemon/config/config.h"
#include "proto/cert.h"
#include "proto/run/run.h"

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

#endif
