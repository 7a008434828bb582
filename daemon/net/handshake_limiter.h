/* handshake_limiter.h - decides which incoming connections may begin a handshake. Pure: the caller
 * passes the time.
 *
 * Token buckets, of three kinds:
 *   stranger   host of which nothing is known: takes from the bucket of its network (/24 of IPv4,
 *              /48 of IPv6), then from the bucket that all strangers share
 *   knocking   host that shows the run secret or a ticket in its ClientHello (knock.h): as a
 *              stranger, but from buckets of this kind. So strangers cannot shut a new member out.
 *   known      host that a member came from within a day: only from its own bucket, so no flood
 *              from elsewhere shuts a member out
 * Tables have a fixed size; the least recently used row makes room.
 *
 * A fourth table limits the dials that a peer asks this node for. Its rows are hosts: a new link,
 * or a new node id, gives a host no new allowance. */
#ifndef TW_DAEMON_NET_HANDSHAKE_LIMITER_H
#define TW_DAEMON_NET_HANDSHAKE_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/rate.h"
#include "base/status.h"

struct sockaddr_storage;

enum {
    TW_HANDSHAKE_LIMITER_NETS = 256,
    TW_HANDSHAKE_LIMITER_HOSTS = 2 * TW_PEERS_MAX,
    TW_HANDSHAKE_LIMITER_PREFIX_BYTES = 16,
    TW_DIAL_BACKS_BURST = 4,   /* dials that one host may ask for at once */
    TW_DIAL_BACK_PAUSE_S = 20, /* pause between later dials that one host asks for */
};

struct tw_handshake_limiter_row {
    uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES]; /* IPv4 is stored as ::ffff:a.b.c.d */
    uint64_t used_us;                                  /* 0: the row is free */
    struct tw_rate rate;
};

/* Buckets of one kind: strangers, or hosts that knock. */
struct tw_handshake_limiter_class {
    struct tw_rate all;
    struct tw_handshake_limiter_row nets[TW_HANDSHAKE_LIMITER_NETS];
};

struct tw_handshake_limiter {
    struct tw_handshake_limiter_class strangers, knocking;
    struct tw_handshake_limiter_row
        hosts[TW_HANDSHAKE_LIMITER_HOSTS]; /* hosts that members came from */
    struct tw_handshake_limiter_row
        backs[TW_HANDSHAKE_LIMITER_HOSTS]; /* hosts that asked for a dial */
};

void tw_handshake_limiter_init(struct tw_handshake_limiter *limiter, uint64_t now_us);

/* Charges one handshake. has_knocked: its ClientHello had a valid knock. TW_OK, or TW_LIMIT with a
 * sentence that names the empty bucket. now_us > 0. */
enum tw_status tw_handshake_limiter_take(struct tw_handshake_limiter *limiter,
                                         const struct sockaddr_storage *from, bool has_knocked,
                                         uint64_t now_us, struct tw_error *err);

/* Records that a member was admitted from this address. */
void tw_handshake_limiter_admitted(struct tw_handshake_limiter *limiter,
                                   const struct sockaddr_storage *from, uint64_t now_us);

/* Charges one dial to a host that asked for it. False: it has to wait. */
bool tw_handshake_limiter_dial_back(struct tw_handshake_limiter *limiter,
                                    const struct sockaddr_storage *host, uint64_t now_us);

/* True if a member came from this address within a day. */
bool tw_handshake_limiter_is_known(const struct tw_handshake_limiter *limiter,
                                   const struct sockaddr_storage *from, uint64_t now_us);

/* Hosts of members as text, to keep them across restarts: a line `prefix unix-seconds` each.
 * Returns the size. `now_s`: time() now. */
enum { TW_HANDSHAKE_LIMITER_TEXT_MAX = TW_HANDSHAKE_LIMITER_HOSTS * 56 };
size_t tw_handshake_limiter_encode(const struct tw_handshake_limiter *limiter, uint64_t now_us,
                                   uint64_t now_s, char text[TW_HANDSHAKE_LIMITER_TEXT_MAX]);

/* Reads such a text, which is untrusted. Returns the number of bad lines, which are skipped. Hosts
 * of more than a day ago, or of the future, are left out. */
uint32_t tw_handshake_limiter_decode(struct tw_handshake_limiter *limiter, const char *text,
                                     size_t size, uint64_t now_us, uint64_t now_s);

/* One host is one IPv4 address or one /64 of IPv6. */
bool tw_handshake_limiter_is_same_host(const struct sockaddr_storage *a,
                                       const struct sockaddr_storage *b);

#endif
