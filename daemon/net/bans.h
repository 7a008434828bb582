/* bans.h - temporary bans of nodes that broke the protocol. Pure: the caller passes the time.
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
#ifndef TW_DAEMON_NET_BANS_H
#define TW_DAEMON_NET_BANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

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

#endif
