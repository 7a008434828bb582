/* secret.h - what lets a node into a run: the run secret, or two of them while one replaces the
 * other.
 *
 * The file (private_file.h) holds one or two lines of 64 hex digits. The first is the one a node
 * proves itself with, either lets others in. So a secret is replaced without a moment in which
 * nodes cannot meet: the new one is added everywhere, then used everywhere, then the old one is
 * removed everywhere. Secrets are wiped from memory after use and never logged; people see marks.
 */
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
    uint32_t count;                        /* 0: none, the run is `open` */
    struct tw_secret list[TW_SECRETS_MAX]; /* the first is used, all are taken */
};

/* Makes a file with one new secret. Never overwrites: TW_CONFIG when `path` exists. */
enum tw_status tw_secret_create(const char *path, struct tw_error *err);

/* Reads secrets: TW_CONFIG with the way out when the file is missing, not private, or holds
 * anything but one or two different secrets. */
enum tw_status tw_secrets_open(const char *path, struct tw_secrets *secrets, struct tw_error *err);

/* Puts them into the file, new or not: all of them or, on failure, what was there before. */
enum tw_status tw_secrets_save(const char *path, const struct tw_secrets *secrets,
                               struct tw_error *err);

/* A fresh one from the system's random numbers. */
enum tw_status tw_secret_draw(struct tw_secret *secret, struct tw_error *err);

/* 64 hex digits, as a friend sent them. The sentence never repeats the text. */
enum tw_status tw_secret_parse(const char *hex, struct tw_secret *secret, struct tw_error *err);

/* Index, or -1. Constant time for each. */
int tw_secrets_find(const struct tw_secrets *secrets, const struct tw_secret *secret);

/* What people call a secret without knowing it: 8 hex digits of a hash of it. */
void tw_secret_mark(const struct tw_secret *secret, char mark[TW_SECRET_MARK_BYTES]);

void tw_secrets_wipe(struct tw_secrets *secrets);

#endif
