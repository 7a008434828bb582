/* secret.h - the run secret, which lets a node into a run. While a new secret replaces the old one,
 * there are two.
 *
 * The file (private_file.h) holds one or two lines of 64 hex digits. A node proves itself with the
 * first secret and accepts both. A secret can thus be replaced without a gap: add the new one on
 * all nodes, then put it first on all nodes, then remove the old one. Secrets are wiped from memory
 * after use and never logged. People see only the marks of secrets (tw_secret_mark). */
#ifndef TW_DAEMON_AUTH_SECRET_H
#define TW_DAEMON_AUTH_SECRET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

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
