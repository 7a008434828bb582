/* handshake_limiter.h - decides which incoming connections may begin a handshake. Pure: the caller
 * passes the time.
 *
 * Hosts are of three kinds, each with its own token buckets:
 *   stranger   unknown host: spends from the bucket of its network (/24 of IPv4, /48 of IPv6) and
 *              from the bucket that all strangers share
 *   knocking   host that shows the run secret or a ticket in its ClientHello (knock.h): two such
 *              buckets, but for knocking hosts only. So strangers cannot shut a new member out.
 *   known      host of a member that was admitted within a day: spends from the host's own bucket
 *              only, so no flood from elsewhere shuts a member out
 * Tables have a fixed size; the least recently used row makes room.
 *
 * A fourth table limits the dials that a peer asks this node for. Its rows are hosts, so a new link
 * or a new node id gives a host no new allowance. */
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
    TW_DIAL_BACK_PAUSE_S = 20, /* seconds between later dials that one host asks for */
};

struct tw_handshake_limiter_row {
    uint8_t prefix[TW_HANDSHAKE_LIMITER_PREFIX_BYTES]; /* IPv4 is stored as ::ffff:a.b.c.d */
    uint64_t used_us;                                  /* 0 = the row is free */
    struct tw_rate rate;
};

/* Buckets of one kind: strangers, or hosts that knock. */
struct tw_handshake_limiter_class {
    struct tw_rate all;
    struct tw_handshake_limiter_row nets[TW_HANDSHAKE_LIMITER_NETS];
};

struct tw_handshake_limiter {
    struct tw_handshake_limiter_class strangers, knocking;
    /* Hosts from which members were admitted. */
    struct tw_handshake_limiter_row hosts[TW_HANDSHAKE_LIMITER_HOSTS];
    /* Hosts that asked for a dial. */
    struct tw_handshake_limiter_row backs[TW_HANDSHAKE_LIMITER_HOSTS];
};

void tw_handshake_limiter_init(struct tw_handshake_limiter *limiter, uint64_t now_us);

/* Charges one handshake. `has_knocked` is true if its ClientHello had a valid knock. Returns TW_OK,
 * or TW_LIMIT with a sentence that names the empty bucket. now_us must be above 0. */
enum tw_status tw_handshake_limiter_take(struct tw_handshake_limiter *limiter,
                                         const struct sockaddr_storage *from, bool has_knocked,
                                         uint64_t now_us, struct tw_error *err);

/* Records that a member was admitted from this address. */
void tw_handshake_limiter_admitted(struct tw_handshake_limiter *limiter,
                                   const struct sockaddr_storage *from, uint64_t now_us);

/* Charges one dial to the host that asked for it. Returns false if the dial has to wait. */
bool tw_handshake_limiter_dial_back(struct tw_handshake_limiter *limiter,
                                    const struct sockaddr_storage *host, uint64_t now_us);

/* Returns true if a member was admitted from this address within a day. */
bool tw_handshake_limiter_is_known(const struct tw_handshake_limiter *limiter,
                                   const struct sockaddr_storage *from, uint64_t now_us);

/* Writes the hosts of members as text, one line `prefix unix-seconds` each, so that a restart keeps
 * them. Returns the size in bytes. `now_s` is the current time(). */
enum { TW_HANDSHAKE_LIMITER_TEXT_MAX = TW_HANDSHAKE_LIMITER_HOSTS * 56 };
size_t tw_handshake_limiter_encode(const struct tw_handshake_limiter *limiter, uint64_t now_us,
                                   uint64_t now_s, char text[TW_HANDSHAKE_LIMITER_TEXT_MAX]);

/* Reads the text of tw_handshake_limiter_encode, which is untrusted. Skips bad lines and returns
 * their number. Ignores hosts that are older than a day, or in the future. */
uint32_t tw_handshake_limiter_decode(struct tw_handshake_limiter *limiter, const char *text,
                                     size_t size, uint64_t now_us, uint64_t now_s);

/* One host is one IPv4 address or one /64 of IPv6. */
bool tw_handshake_limiter_is_same_host(const struct sockaddr_storage *a,
                                       const struct sockaddr_storage *b);

#endif
