/* handshake_limiter.h - which of the connections that knock may begin a handshake. Pure: time comes
 * in.
 *
 * A stranger pays twice: into the bucket of its network (/24 of IPv4, /48 of IPv6), then into that
 * of all strangers together. A host a member came from within a day pays into a bucket of its own
 * and no other: a flood, wherever it comes from, shuts no member out. Tables are of fixed size; the
 * row unused for longest makes room. */
#ifndef TW_DAEMON_NET_HANDSHAKE_LIMITER_H
#define TW_DAEMON_NET_HANDSHAKE_LIMITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/rate.h"
#include "base/status.h"

struct sockaddr_storage;

enum {
    TW_HANDSHAKE_LIMITER_NETS = 256,
    TW_HANDSHAKE_LIMITER_HOSTS = 2 * TW_PEERS_MAX,
    TW_HANDSHAKE_LIMITER_PREFIX_BYTES = 16,
};

struct tw_handshake_limiter_row {
    uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES]; /* IPv4 as ::ffff:a.b.c.d */
    uint64_t used_us;                                  /* 0: the row is free */
    struct tw_rate rate;
};

struct tw_handshake_limiter {
    struct tw_rate strangers;
    struct tw_handshake_limiter_row nets[TW_HANDSHAKE_LIMITER_NETS];
    struct tw_handshake_limiter_row hosts[TW_HANDSHAKE_LIMITER_HOSTS]; /* members came from there */
};

void tw_handshake_limiter_init(struct tw_handshake_limiter *limiter, uint64_t now_us);

/* One connection from there: TW_OK and it is paid for, or TW_LIMIT and the sentence says whose
 * bucket is empty. now_us > 0. */
enum tw_status tw_handshake_limiter_take(struct tw_handshake_limiter *limiter,
                                         const struct sockaddr_storage *from, uint64_t now_us,
                                         struct tw_error *err);

/* A member was let in from there. */
void tw_handshake_limiter_admitted(struct tw_handshake_limiter *limiter,
                                   const struct sockaddr_storage *from, uint64_t now_us);

/* Did a member come from there within a day? */
bool tw_handshake_limiter_is_known(const struct tw_handshake_limiter *limiter,
                                   const struct sockaddr_storage *from, uint64_t now_us);

/* One IPv4 address, or one /64 of IPv6, is one host. */
bool tw_handshake_limiter_is_same_host(const struct sockaddr_storage *a,
                                       const struct sockaddr_storage *b);

#endif
