/* secret.h - the run secret, which lets a node into a run; two of them while one replaces the
 * other.
 *
 * The file (private_file.h) holds one or two lines of 64 hex digits. A node proves itself with the
 * first and accepts either. A secret can thus be replaced without a gap: add the new one
 * everywhere, then use it everywhere, then remove the old one everywhere. Secrets are wiped from
 * memory after use and never logged. People see only the marks of secrets (tw_secret_mark). */
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
    uint32_t count;                        /* 0: none, an `open` run */
    struct tw_secret list[TW_SECRETS_MAX]; /* proofs use the first one; each is accepted */
};

/* Makes a file with one new secret. Never overwrites: TW_CONFIG when `path` exists. */
enum tw_status tw_secret_create(const char *path, struct tw_error *err);

/* Reads the secrets. TW_CONFIG, with the way out: the file is missing, not private, or holds
 * anything but one or two different secrets. */
enum tw_status tw_secrets_open(const char *path, struct tw_secrets *secrets, struct tw_error *err);

/* Writes the secrets to the file, new or existing. On failure the old content stays. */
enum tw_status tw_secrets_save(const char *path, const struct tw_secrets *secrets,
                               struct tw_error *err);

/* Draws a secret from the system's random numbers. */
enum tw_status tw_secret_draw(struct tw_secret *secret, struct tw_error *err);

/* Parses 64 hex digits. The error sentence never repeats the text. */
enum tw_status tw_secret_parse(const char *hex, struct tw_secret *secret, struct tw_error *err);

/* Index of the secret in the list, or -1. Constant time per secret. */
int tw_secrets_find(const struct tw_secrets *secrets, const struct tw_secret *secret);

/* A name for a secret that does not reveal it: 8 hex digits of a hash. */
void tw_secret_mark(const struct tw_secret *secret, char mark[TW_SECRET_MARK_BYTES]);

void tw_secrets_wipe(struct tw_secrets *secrets);

#endif
