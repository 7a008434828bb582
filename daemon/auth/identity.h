/* identity.h - identity of this node: an Ed25519 key in a private file (private_file.h). The key is
 * never logged, and closing the identity wipes it from memory. */
#ifndef TW_DAEMON_AUTH_IDENTITY_H
#define TW_DAEMON_AUTH_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"

struct tw_identity {
    struct tw_id id;         /* public key; also the node's id */
    struct evp_pkey_st *key; /* owned */
    struct x509_st *cert;    /* owned; self-signed, pinned by `id`, never stored */
};

/* Creates a key file (PEM PKCS#8, mode 0600). Never overwrites: returns TW_CONFIG if `path` exists.
 */
enum tw_status tw_identity_create(const char *path, struct tw_error *err);

/* Loads the key and signs a certificate for this process. Returns TW_CONFIG if the file is missing,
 * readable by others, owned by another user, or not an Ed25519 key. Close with tw_identity_close.
 */
enum tw_status tw_identity_open(const char *path, struct tw_identity *identity,
                                struct tw_error *err);

/* Draws a fresh key that is never stored; for tests and benchmarks. */
enum tw_status tw_identity_ephemeral(struct tw_identity *identity, struct tw_error *err);

/* Writes the node id of a key: its public half. Returns false for anything but Ed25519. */
bool tw_identity_of_key(struct evp_pkey_st *key, struct tw_id *id);

void tw_identity_close(struct tw_identity *identity);

#endif
