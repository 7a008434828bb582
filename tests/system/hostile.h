/* hostile.h - a client that does to a daemon what nobody should: TCP, TLS with keys of its own, and
 * frames byte by byte. Blocking, with an end to every wait; one thread. */
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

/* Whom to attack, and what the attacker knows. */
struct hostile_target {
    uint16_t port;
    const char *from; /* the address of 127/8 to come from; NULL = 127.0.0.1 */
    struct tw_id run;
    const struct tw_secret *secret; /* NULL: does not have it */
    int receive_bytes; /* 0, or what the kernel keeps of what we do not read: so few, nearly */
};

struct hostile {
    int fd;
    struct ssl_ctx_st *ctx;
    struct ssl_st *ssl;
    struct tw_identity identity;
    uint8_t ekm[TW_TLS_EXPORT_BYTES], tag[TW_TLS_EXPORT_BYTES];
    struct tw_reader reader;
    uint8_t in[TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX];
    struct tw_goodbye goodbye; /* as heard by hostile_ends */
    bool has_goodbye;
};

/* Reads secret and manifest of a cluster's folder; target->secret is left to the caller. */
void hostile_know(struct hostile_target *target, struct tw_secret *secret, const char *dir,
                  uint16_t port);

/* A TCP connection; -1 when there is none. */
int hostile_tcp(const struct hostile_target *target);

/* TCP and TLS with a fresh key, or with that of `like`. False: refused. */
bool hostile_open(struct hostile *h, const struct hostile_target *target,
                  const struct hostile *like);

/* One frame with a right checksum, and bytes as they are. False: the other side has closed. */
bool hostile_frame(struct hostile *h, uint16_t kind, const void *body, uint32_t size);
bool hostile_bytes(struct hostile *h, const void *bytes, size_t size);

/* HELLO as it should be but for `secret`. `tag`: of the control connection, for bulk. */
void hostile_hello(struct hostile *h, const struct hostile_target *target, enum tw_role role,
                   const uint8_t *tag, struct tw_hello *hello);
bool hostile_say(struct hostile *h, const struct tw_hello *hello);

/* A member: TCP, TLS, HELLO both ways. */
bool hostile_join(struct hostile *h, const struct hostile_target *target,
                  const struct hostile *like);

/* A control message of the sync core. */
bool hostile_message(struct hostile *h, const struct tw_message *message);

/* The next frame within `patience_s`; TW_AGAIN: none came, TW_IO: closed. */
enum tw_status hostile_next(struct hostile *h, double patience_s, struct tw_frame *frame);

/* Reads until the other side closes; false when it does not in time. */
bool hostile_ends(struct hostile *h, double patience_s);

void hostile_close(struct hostile *h);

#endif
