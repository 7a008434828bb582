/* identity.h - identity of this node: an Ed25519 key in a private file (private_file.h). Closing
 * wipes it from memory. It is never logged. */
#ifndef TW_DAEMON_AUTH_IDENTITY_H
#define TW_DAEMON_AUTH_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"

struct tw_identity {
    struct tw_id id;         /* the public key: anybody can check its signatures */
    struct evp_pkey_st *key; /* owned */
    struct x509_st *cert;    /* owned; self-signed, pinned by `id`, never stored */
};

/* Makes a new key file (PEM PKCS#8, 0600). Never overwrites: TW_CONFIG when `path` exists. */
enum tw_status tw_identity_create(const char *path, struct tw_error *err);

/* Loads the key and signs the certificate for this process. TW_CONFIG: missing, readable by others,
 * foreign owner, not Ed25519. Close with tw_identity_close. */
enum tw_status tw_identity_open(const char *path, struct tw_identity *identity,
                                struct tw_error *err);

/* A fresh key that is never stored; for tests and benchmarks. */
enum tw_status tw_identity_ephemeral(struct tw_identity *identity, struct tw_error *err);

/* The node id of a key: its public half. False for anything but Ed25519. */
bool tw_identity_of_key(struct evp_pkey_st *key, struct tw_id *id);

void tw_identity_close(struct tw_identity *identity);

#endif
