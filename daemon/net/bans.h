/* bans.h - temporary bans of nodes that broke the protocol. Pure: the caller passes the time.
 *
 * Three offences within an hour ban a node for an hour. Each further ban lasts twice as long, up to
 * 7 days. The count of bans is forgotten 7 days after the last one ended. An offence is something
 * that only the node itself can have done: bytes from its TLS session that broke a rule. A broken
 * connection is never an offence, because anybody on the path can cause it.
 *
 * A new id costs nothing in runs with a secret. So the host of a banned node is closed for ten
 * minutes, too: a node under another id would have to wait, and could not fill the table to push
 * its own ban out. The caller decides which nodes of a closed host must wait (peer.c).
 *
 * Times are seconds of the wall clock, because the table outlives the process. A clock that was set
 * back does not make a ban longer than its length: the ban starts anew, once. */
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
    uint64_t until_s; /* 0: the row is free */
    struct sockaddr_storage host;
};

struct tw_bans {
    struct tw_ban rows[TW_BANS_MAX];
    struct tw_host_ban hosts[TW_HOST_BANS_MAX];
};

/* Whether a peer that is ended with this status broke a rule. */
bool tw_bans_is_offence(enum tw_status reason);

/* Counts one offence. Returns the seconds of the new ban, or 0 if the node is not banned for it. */
uint32_t tw_bans_offence(struct tw_bans *bans, const struct tw_id *id, uint64_t now_s);

/* Seconds until the ban ends; 0: not banned. */
uint64_t tw_bans_left_s(const struct tw_bans *bans, const struct tw_id *id, uint64_t now_s);

/* Closes the host of a banned node for TW_HOST_BAN_S. In a full table the row that ends first makes
 * room. */
void tw_bans_host(struct tw_bans *bans, const struct tw_id *id, const struct sockaddr_storage *host,
                  uint64_t now_s);

/* Seconds until the host is open again; 0: it is open. */
uint64_t tw_bans_host_left_s(const struct tw_bans *bans, const struct sockaddr_storage *host,
                             uint64_t now_s);

/* Lifts the ban of the node whose id begins with `hex` and of its hosts, forgets its offences, and
 * sets `*id`. Fails with a sentence: TW_CONFIG (not the beginning of exactly one id) or TW_AGAIN
 * (no banned node has it). */
enum tw_status tw_bans_lift(struct tw_bans *bans, const char *hex, uint64_t now_s, struct tw_id *id,
                            struct tw_error *err);

/* Restarts bans whose remaining time exceeds their full length: they began while the clock was
 * ahead. Does nothing until the clock is set. Call once a minute. Returns whether the table
 * changed. */
bool tw_bans_clock(struct tw_bans *bans, uint64_t now_s);

/* Writes the table as text: one line `id until length` per node that was ever banned. Returns the
 * bytes written. */
size_t tw_bans_encode(const struct tw_bans *bans, char text[TW_BANS_TEXT_MAX]);

/* Reads such a text into an empty table. The text is untrusted: bad lines are skipped and their
 * number is returned. */
uint32_t tw_bans_decode(struct tw_bans *bans, const char *text, size_t size);

#endif
