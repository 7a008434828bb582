/* identity.h - who this node is (an Ed25519 key) and what lets it into a run (the run secret).
 *
 * Both are files of mode 0600 that only their owner may read; they are opened without following
 * links and refused, with the command that repairs it, when others could read them. Contents are
 * wiped from memory by the close calls and never logged. */
#ifndef TW_DAEMON_IDENTITY_H
#define TW_DAEMON_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"

enum { TW_SECRET_BYTES = 32 };

struct tw_identity {
    struct tw_id id;         /* SHA-256("thinwire-node-id-v1\0" || public key) */
    struct evp_pkey_st *key; /* owned */
    struct x509_st *cert;    /* owned; self-signed, pinned by `id`, never stored */
};

struct tw_secret {
    uint8_t bytes[TW_SECRET_BYTES];
};

/* Makes a new key file (PEM PKCS#8, 0600). Never overwrites: TW_CONFIG when `path` exists. */
enum tw_status tw_identity_create(const char *path, struct tw_error *err);

/* Loads the key and signs the certificate of this process. TW_CONFIG: missing, readable by others,
 * foreign owner, not Ed25519. Close with tw_identity_close. */
enum tw_status tw_identity_open(const char *path, struct tw_identity *identity,
                                struct tw_error *err);

/* A fresh key that is never stored: tests and benchmarks. */
enum tw_status tw_identity_ephemeral(struct tw_identity *identity, struct tw_error *err);

/* The node id of a key; false for anything but Ed25519. */
bool tw_identity_of_key(struct evp_pkey_st *key, struct tw_id *id);

void tw_identity_close(struct tw_identity *identity);

/* Makes a secret file: 64 hex digits and a newline, 0600. Never overwrites. */
enum tw_status tw_secret_create(const char *path, struct tw_error *err);

/* Writes a given secret (64 hex digits, as a friend sent it) to a new file. */
enum tw_status tw_secret_import(const char *path, const char *hex, struct tw_error *err);

enum tw_status tw_secret_open(const char *path, struct tw_secret *secret, struct tw_error *err);
void tw_secret_wipe(struct tw_secret *secret);

#endif
