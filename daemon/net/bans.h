/* bans.h - which hosts get an answer, and how soon: bans, and the rate of handshakes. */
#ifndef TW_DAEMON_NET_BANS_H
#define TW_DAEMON_NET_BANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/rate.h"
#include "base/status.h"

/* ==== bans ==================================================================================== */

/* Temporary bans of nodes that broke the protocol. Pure: the caller passes the time.
 *
 * Three offences within an hour ban a node for an hour. Each further ban lasts twice as long, up to
 * 7 days. The count of bans is forgotten 7 days after the last one ended. An offence is something
 * that only the node itself can have done: bytes from its TLS session that broke a rule. A broken
 * connection is never an offence, because anybody on the path can cause it.
 *
 * In runs with a secret a new id costs nothing. The host of a banned node is therefore closed for
 * ten minutes, too. A node under another id then has to wait, and cannot fill the table until its
 * own ban is displaced. The caller decides which nodes of a closed host must wait (peer.c).
 *
 * Times are seconds of the wall clock, because the table outlives the process. If the clock was set
 * back, a ban starts anew, once: it never lasts longer than its length. */

enum {
    TW_BAN_OFFENCES = 3,
    TW_BAN_WINDOW_S = 3600,
    TW_BAN_FIRST_S = 3600,
    TW_BAN_MAX_S = 7 * 24 * 3600,
    TW_BANS_TEXT_MAX = TW_BANS_MAX * 112,
    TW_HOST_BAN_S = 600,
    TW_HOST_BANS_MAX = 64,
};

struct tw_ban {
    struct tw_id id;   /* zero: the row is free */
    uint64_t since_s;  /* time of the first offence that counts */
    uint64_t until_s;  /* end of the newest ban; 0: never banned */
    uint32_t length_s; /* length of the newest ban */
    uint32_t offences; /* offences since `since_s` */
};

/* A host from which a banned node came. Not kept across restarts. */
struct tw_host_ban {
    struct tw_id id;  /* the banned node */
    uint64_t until_s; /* 0 = the row is free */
    struct sockaddr_storage host;
};

struct tw_bans {
    struct tw_ban rows[TW_BANS_MAX];
    struct tw_host_ban hosts[TW_HOST_BANS_MAX];
};

/* Returns true if ending a link for this reason means that the peer broke a rule. */
bool tw_bans_is_offence(enum tw_status reason);

/* Counts one offence. Returns the length of the new ban in seconds, or 0 if the offence caused
 * none. */
uint32_t tw_bans_offence(struct tw_bans *bans, const struct tw_id *id, uint64_t now_s);

/* Returns the seconds until the ban ends, or 0 if the node is not banned. */
uint64_t tw_bans_left_s(const struct tw_bans *bans, const struct tw_id *id, uint64_t now_s);

/* Closes the host of a banned node for TW_HOST_BAN_S. In a full table the row that ends first makes
 * room. */
void tw_bans_host(struct tw_bans *bans, const struct tw_id *id, const struct sockaddr_storage *host,
                  uint64_t now_s);

/* Returns the seconds until the host is open again, or 0 if it is open. */
uint64_t tw_bans_host_left_s(const struct tw_bans *bans, const struct sockaddr_storage *host,
                             uint64_t now_s);

/* Lifts the ban of the node whose id begins with `hex`, and of its hosts. Forgets its offences and
 * sets `*id`. Returns TW_CONFIG if `hex` is not the beginning of one id, or TW_AGAIN if no banned
 * node has such an id, with a sentence. */
enum tw_status tw_bans_lift(struct tw_bans *bans, const char *hex, uint64_t now_s, struct tw_id *id,
                            struct tw_error *err);

/* Call this once a minute. Restarts bans whose remaining time exceeds their full length: they began
 * while the clock was ahead. Does nothing until the clock is set. Returns true if the table
 * changed. */
bool tw_bans_clock(struct tw_bans *bans, uint64_t now_s);

/* Writes the table as text: one line `id until length` per node that was ever banned. Returns the
 * number of bytes written. */
size_t tw_bans_encode(const struct tw_bans *bans, char text[TW_BANS_TEXT_MAX]);

/* Reads the text of tw_bans_encode into an empty table. The text is untrusted: bad lines are
 * skipped. Returns the number of bad lines. */
uint32_t tw_bans_decode(struct tw_bans *bans, const char *text, size_t size);

/* ==== the rate of handshakes ================================================================== */

/* Decides which incoming connections may begin a handshake. Pure: the caller
 * passes the time.
 *
 * Hosts are of three kinds, each with its own token buckets:
 *   stranger   unknown host: spends from the bucket of its network (/24 of IPv4, /48 of IPv6) and
 *              from the bucket that all strangers share
 *   knocking   host that shows the run secret or a ticket in its ClientHello (tickets.h): two such
 *              buckets, but for knocking hosts only. So strangers cannot shut a new member out.
 *   known      host of a member that was admitted within a day: spends from the host's own bucket
 *              only, so no flood from elsewhere shuts a member out
 * Tables have a fixed size; the least recently used row makes room.
 *
 * A fourth table limits the dials that a peer asks this node for. Its rows are hosts, so a new link
 * or a new node id gives a host no new allowance. */

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
