/* welcome.h - WELCOME, the answer to a machine with a valid ticket (a guest). It contains all that
 * the machine needs to become a node of the run. PROTOCOL.md section 3. Pure. */
#ifndef TW_PROTO_WELCOME_H
#define TW_PROTO_WELCOME_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/cert.h"

enum {
    TW_WELCOME_SECRETS_MAX = 2,
    TW_WELCOME_SECRET_BYTES = 32,
    TW_WELCOME_PEERS_MAX = 16,
};

struct tw_welcome_peer {
    struct tw_id id;
    char addr[TW_ADDR_BYTES];
};

struct tw_welcome {
    uint32_t manifest_bytes;
    char manifest[TW_MANIFEST_BYTES_MAX + 1]; /* canonical text, with NUL */
    uint32_t secrets_count;                   /* 0: the run has no secret; the first one is used */
    uint8_t secrets[TW_WELCOME_SECRETS_MAX][TW_WELCOME_SECRET_BYTES];
    struct tw_certs certs; /* empty: the run has no owner */
    uint32_t peers_count;  /* other nodes of the run and their addresses */
    struct tw_welcome_peer peers[TW_WELCOME_PEERS_MAX];
};

/* Body bytes; returns their count. */
uint32_t tw_welcome_encode(const struct tw_welcome *welcome, uint8_t body[TW_WELCOME_BYTES_MAX]);

/* Strict inverse for untrusted bytes: TW_PROTO names the field. Reading the manifest
 * (proto/run/run.h) and comparing it with the ticket's run id are left to the caller. */
enum tw_status tw_welcome_decode(const uint8_t *body, size_t size, struct tw_welcome *welcome,
                                 struct tw_error *err);

#endif
