/* identity.h - secrets of a node, with which it proves itself: private files, signatures, the
 * node's key, the run secret. */
#ifndef TW_DAEMON_AUTH_IDENTITY_H
#define TW_DAEMON_AUTH_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/signature.h"
#include "base/status.h"
#include "proto/cert.h"

/* ==== private files =========================================================================== */

/* Small files that only their owner may read: keys, secrets.
 *
 * They have mode 0600 and are opened without following links. A file that others can read is
 * refused, and the error ends with `; ` and the command that repairs it.
 *
 * The owner is the user of this process. Root works for other users: there the owner is that of
 * the file's folder. The state folder of a service belongs to the service's user, and all that
 * judge its files (daemon, `doctor`, `config check`) judge by this rule. */

enum {
    TW_PRIVATE_BYTES_MAX = 4096, /* size of a key or secret file, with NUL */
    TW_USER_NAME_BYTES = 32,     /* size of the name of a system user, with NUL */
};

/* Returns the user (uid) that private files in the folder must belong to. */
uint32_t tw_private_owner(const char *folder);

/* Writes the user's name, or its number if it has none. Returns `name`. */
const char *tw_user_name(uint32_t uid, char name[TW_USER_NAME_BYTES]);

/* Reads a whole file of at most capacity - 1 bytes and appends NUL. Returns TW_CONFIG if the file
 * is missing, a link, readable by others, owned by another user, or too large. Wipes `text` on
 * failure. */
enum tw_status tw_private_read(const char *path, char *text, size_t capacity, size_t *size,
                               struct tw_error *err);

/* Writes a new file durably, or leaves nothing behind. Root gives it to the owner of the folder.
 * Returns TW_CONFIG if `path` exists. */
enum tw_status tw_private_create(const char *path, const char *text, size_t size,
                                 struct tw_error *err);

/* Replaces `path` durably and atomically: after a crash, the old file or the new one is there. */
enum tw_status tw_private_replace(const char *path, const char *text, size_t size,
                                  struct tw_error *err);

/* Syncs the folder of `path`, so that its creation or removal is durable. */
enum tw_status tw_folder_sync(const char *path, struct tw_error *err);

/* ==== signatures ============================================================================== */

/* Ed25519 signatures (RFC 8032) of a run's owner and of nodes that admit others. */

struct evp_pkey_st;

/* Returns the public half of an Ed25519 key. */
struct tw_id tw_public_key(const struct evp_pkey_st *key);

/* Signs text[size]. The same text gives the same signature. */
void tw_sign(struct evp_pkey_st *key, const void *text, size_t size,
             uint8_t signature[TW_SIGNATURE_BYTES]);

/* ==== the node's key ========================================================================== */

/* Identity of this node: an Ed25519 key in a private file. The key is never logged,
 * and closing the identity wipes it from memory. */

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

/* ==== the run secret ========================================================================== */

/* The run secret, which lets a node into a run. While a new secret replaces the old one, there are
 * two.
 *
 * The private file holds one or two lines of 64 hex digits. A node proves itself with the
 * first secret and accepts both. A secret can thus be replaced without a gap: add the new one on
 * all nodes, then put it first on all nodes, then remove the old one. Secrets are wiped from memory
 * after use and never logged. People see only the marks of secrets (tw_secret_mark). */

enum { TW_SECRET_BYTES = 32, TW_SECRETS_MAX = 2, TW_SECRET_MARK_BYTES = 9 };

struct tw_secret {
    uint8_t bytes[TW_SECRET_BYTES];
};

struct tw_secrets {
    uint32_t count;                        /* 0: no secret, an `open` run */
    struct tw_secret list[TW_SECRETS_MAX]; /* the first one is for proofs; all are accepted */
};

/* Creates a file with one new secret. Never overwrites: returns TW_CONFIG if `path` exists. */
enum tw_status tw_secret_create(const char *path, struct tw_error *err);

/* Reads the secrets. Returns TW_CONFIG if the file is missing, not private, or holds anything but
 * one or two different secrets. The error names the remedy. */
enum tw_status tw_secrets_open(const char *path, struct tw_secrets *secrets, struct tw_error *err);

/* Writes the secrets to the file, new or existing. On failure the old content stays. */
enum tw_status tw_secrets_save(const char *path, const struct tw_secrets *secrets,
                               struct tw_error *err);

/* Draws a secret from the system's random numbers. */
enum tw_status tw_secret_draw(struct tw_secret *secret, struct tw_error *err);

/* Parses 64 hex digits. The error never repeats the text, which is secret. */
enum tw_status tw_secret_parse(const char *hex, struct tw_secret *secret, struct tw_error *err);

/* Returns the index of the secret in the list, or -1. Each comparison takes constant time. */
int tw_secrets_find(const struct tw_secrets *secrets, const struct tw_secret *secret);

/* Writes 8 hex digits of a hash: a name that does not reveal the secret. */
void tw_secret_mark(const struct tw_secret *secret, char mark[TW_SECRET_MARK_BYTES]);

void tw_secrets_wipe(struct tw_secrets *secrets);

#endif
