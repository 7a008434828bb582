/* bans.h - nodes that break the protocol are left alone for a while. Pure: time comes in.
 *
 * Three offences within an hour: an hour. Each further ban lasts twice as long, 7 days at most;
 * how often is forgotten 7 days after the last one ended. An offence is what only the node itself
 * can have done: what came out of its TLS session and broke a rule, never a broken connection,
 * which anybody on the way can cause. Times are seconds of the wall clock, for the table outlives
 * the process; a clock that was set back makes no ban longer than it was when it began: it begins
 * anew, once. */
#ifndef TW_DAEMON_NET_BANS_H
#define TW_DAEMON_NET_BANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

enum {
    TW_BAN_OFFENCES = 3,
    TW_BAN_WINDOW_S = 3600,
    TW_BAN_FIRST_S = 3600,
    TW_BAN_MAX_S = 7 * 24 * 3600,
    TW_BANS_TEXT_MAX = TW_BANS_MAX * 112,
};

struct tw_ban {
    struct tw_id id;   /* zero: the row is free */
    uint64_t since_s;  /* of the first offence that counts */
    uint64_t until_s;  /* of the newest ban; 0: there was none */
    uint32_t length_s; /* of that */
    uint32_t offences; /* since `since_s` */
};

struct tw_bans {
    struct tw_ban rows[TW_BANS_MAX];
};

/* One offence more. Returns how long the node is banned for it: 0, or the seconds of a new ban. */
uint32_t tw_bans_offence(struct tw_bans *bans, const struct tw_id *id, uint64_t now_s);

/* Seconds it stays banned; 0: it is not. */
uint64_t tw_bans_left_s(const struct tw_bans *bans, const struct tw_id *id, uint64_t now_s);

/* Lifts the ban of the node whose id begins with `hex` and forgets what it did: `*id` is whose. A
 * sentence for TW_CONFIG (that is no beginning of an id, or of several) and TW_AGAIN (it is of
 * nobody who is banned). */
enum tw_status tw_bans_lift(struct tw_bans *bans, const char *hex, uint64_t now_s, struct tw_id *id,
                            struct tw_error *err);

/* Bans that have more than their length to go began under a clock that was ahead: they begin now.
 * Says nothing while the clock was never set. Once a minute; true: the table changed. */
bool tw_bans_clock(struct tw_bans *bans, uint64_t now_s);

/* The table as text: a line `id until length` per node that was ever banned. Returns its bytes. */
size_t tw_bans_encode(const struct tw_bans *bans, char text[TW_BANS_TEXT_MAX]);

/* Takes such a text back, into an empty table; untrusted: bad lines are skipped, their number is
 * returned. */
uint32_t tw_bans_decode(struct tw_bans *bans, const char *text, size_t size);

#endif
