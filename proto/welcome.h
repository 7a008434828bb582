/* welcome.h - WELCOME, the answer to a machine with a valid ticket (a guest). It contains all data
 * that the machine needs to become a node of the run. PROTOCOL.md section 3. Pure. */
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
    uint32_t secrets_count;                   /* number of secrets, of which a node uses the first;
                                                 0: the run has none */
    uint8_t secrets[TW_WELCOME_SECRETS_MAX][TW_WELCOME_SECRET_BYTES];
    struct tw_certs certs; /* empty: the run has no owner */
    uint32_t peers_count;  /* other nodes of the run and their addresses */
    struct tw_welcome_peer peers[TW_WELCOME_PEERS_MAX];
};

/* Writes the body and returns its size in bytes. */
uint32_t tw_welcome_encode(const struct tw_welcome *welcome, uint8_t body[TW_WELCOME_BYTES_MAX]);

/* Decodes untrusted bytes. The TW_PROTO error names the field. The caller reads the manifest
 * (proto/run/run.h) and compares its run id with the ticket's. */
enum tw_status tw_welcome_decode(const uint8_t *body, size_t size, struct tw_welcome *welcome,
                                 struct tw_error *err);

#endif
