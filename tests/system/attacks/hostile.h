/* hostile.h - a hostile client: TCP, TLS with its own keys, and frames byte by byte. Calls
 * block, but every wait is bounded. Not thread-safe. */
#ifndef TW_TESTS_HOSTILE_H
#define TW_TESTS_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/auth/identity.h"
#include "daemon/net/handshake.h"
#include "proto/frame.h"
#include "proto/message.h"

struct ssl_st;
struct ssl_ctx_st;

/* The daemon to attack, and the attacker's knowledge. */
struct hostile_target {
    uint16_t port;
    const char *from; /* source address in 127/8; NULL: 127.0.0.1 */
    struct tw_id run;
    const struct tw_secret *secret; /* NULL: not known */
    int receive_bytes;              /* approximate receive buffer of the socket; 0: default */
};

struct hostile {
    int fd;
    struct ssl_ctx_st *ctx;
    struct ssl_st *ssl;
    struct tw_identity identity;
    uint8_t ekm[TW_TLS_EXPORT_BYTES], tag[TW_TLS_EXPORT_BYTES];
    struct tw_reader reader;
    uint8_t in[TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX];
    struct tw_goodbye goodbye; /* GOODBYE that hostile_ends received */
    bool has_goodbye;
};

/* Reads the secret and the manifest from a cluster's folder. An attacker that knows the secret
 * must also set target->secret. */
void hostile_know(struct hostile_target *target, struct tw_secret *secret, const char *dir,
                  uint16_t port);

/* Opens a TCP connection. Returns its socket, or -1 on failure. */
int hostile_tcp(const struct hostile_target *target);

/* Writes the ClientHello of a TLS client, with a knock (daemon/auth/tickets.h) if the target's
 * secret is known. Returns the number of bytes. */
size_t hostile_client_hello(const struct hostile_target *target, uint8_t *bytes, size_t capacity);

/* Opens TCP and TLS with a fresh key, or with the key of `like`. Returns false if it was
 * refused. */
bool hostile_open(struct hostile *h, const struct hostile_target *target,
                  const struct hostile *like);

/* Sends one frame with a valid checksum, or raw bytes. Returns false if the daemon has closed
 * the connection. */
bool hostile_frame(struct hostile *h, uint16_t kind, const void *body, uint32_t size);
bool hostile_bytes(struct hostile *h, const void *bytes, size_t size);

/* Makes a HELLO, whose proof is valid if target->secret is set. For a bulk connection, `tag` is
 * the tag of its control connection. */
void hostile_hello(struct hostile *h, const struct hostile_target *target, enum tw_role role,
                   const uint8_t *tag, struct tw_hello *hello);
bool hostile_say(struct hostile *h, const struct tw_hello *hello);

/* Links as a member does: TCP, TLS, and HELLO in both directions. Returns false if it was
 * refused. */
bool hostile_join(struct hostile *h, const struct hostile_target *target,
                  const struct hostile *like);

/* Sends a control message of the sync core. */
bool hostile_message(struct hostile *h, const struct tw_message *message);

/* Reads the next frame. Returns TW_AGAIN if none arrives within `patience_s` seconds, or TW_IO
 * if the daemon closed the connection. */
enum tw_status hostile_next(struct hostile *h, double patience_s, struct tw_frame *frame);

/* Reads until the daemon closes the connection. Returns false if it does not within `patience_s`
 * seconds. */
bool hostile_ends(struct hostile *h, double patience_s);

void hostile_close(struct hostile *h);

#endif
