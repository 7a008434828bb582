/* tickets.h - tickets that this node has issued, and the nodes that used them.
 *
 * They are kept as text in the private file STATE_DIR/RUN/tickets. A node that presents the same
 * ticket again spends no second use, so a machine can simply repeat an interrupted join. Expired
 * and used-up tickets stay for a week, so that a late guest learns the reason.
 *
 * The file also holds the marks of the run's secrets, by which the daemon notices a secret that was
 * replaced while it was down. Pure, except that the last two functions access the file. */
#ifndef TW_DAEMON_AUTH_TICKETS_H
#define TW_DAEMON_AUTH_TICKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/auth/identity.h"
#include "proto/ticket.h"

enum {
    TW_TICKETS_MAX = 64,
    TW_TICKET_KEPT_S = 7 * 86400,
    TW_TICKET_LIFE_MAX_S = 365 * 86400,
    TW_TICKETS_TEXT_MAX = 384 * 1024, /* size of the file, with NUL */
};

struct tw_ticket_row {
    uint8_t id[TW_TICKET_ID_BYTES];
    uint8_t key[TW_TICKET_KEY_BYTES];
    uint64_t expires_s; /* unix time */
    bool is_withdrawn;
    bool lacks_vote; /* run with an owner: the certificates of the guests give no vote */
    uint32_t uses;   /* number of nodes that may use the ticket */
    uint32_t guests_count;
    struct tw_id guests[TW_TICKET_USES_MAX];
};

struct tw_tickets {
    uint32_t marks_count; /* 0: the previous secrets are unknown */
    char marks[TW_SECRETS_MAX][TW_SECRET_MARK_BYTES];
    uint32_t count;
    struct tw_ticket_row rows[TW_TICKETS_MAX]; /* oldest first */
};

/* Adds a ticket with a fresh id and key. Returns TW_LIMIT if there are too many valid tickets, or
 * TW_CONFIG if uses or life_s are out of bounds. *row is valid until the next change. */
enum tw_status tw_tickets_add(struct tw_tickets *tickets, uint32_t uses, uint64_t life_s,
                              uint64_t now_s, struct tw_ticket_row **row, struct tw_error *err);

/* Returns the ticket with this id, or NULL if there is none or it was revoked. */
struct tw_ticket_row *tw_tickets_find(struct tw_tickets *tickets,
                                      const uint8_t id[TW_TICKET_ID_BYTES]);

/* Removes tickets that expired more than TW_TICKET_KEPT_S ago, and wipes their keys. Returns their
 * number. */
uint32_t tw_tickets_sweep(struct tw_tickets *tickets, uint64_t now_s);

/* Returns whether the ticket is neither expired nor withdrawn. Even if its uses are spent, a guest
 * that used it may come back. */
bool tw_ticket_may_return(const struct tw_ticket_row *row, uint64_t now_s);

/* Lets `node` join with the ticket. The node's first use sets *is_new and counts. A used-up ticket
 * still admits the nodes that used it; an expired ticket admits none. Returns TW_TICKET_EXPIRED or
 * TW_TICKET_USED, with the detail in `err`. */
enum tw_status tw_ticket_use(struct tw_ticket_row *row, const struct tw_id *node, uint64_t now_s,
                             bool *is_new, struct tw_error *err);

/* Revokes the ticket whose id begins with `name`: the name shown (tw_ticket_name), or more digits.
 * Returns TW_CONFIG if no ticket or more than one matches. */
enum tw_status tw_tickets_withdraw(struct tw_tickets *tickets, const char *name,
                                   struct tw_error *err);

/* Sets the run's present secrets. If one of them is new, revokes every ticket that was used: a node
 * that was shut out must not fetch the new secret with its old ticket. Returns the number of
 * revoked tickets, or 0 while the previous secrets are unknown. */
uint32_t tw_tickets_secrets(struct tw_tickets *tickets, const struct tw_secrets *secrets);

/* Writes the file as text[TW_TICKETS_TEXT_MAX] with NUL. Returns the bytes written. */
size_t tw_tickets_encode(const struct tw_tickets *tickets, char *text);

/* Parses exactly what tw_tickets_encode writes. Otherwise returns TW_CORRUPT, names the line and
 * empties *tickets. */
enum tw_status tw_tickets_decode(struct tw_tickets *tickets, const char *text,
                                 struct tw_error *err);

/* Loads the file. A missing file means no tickets. */
enum tw_status tw_tickets_load(struct tw_tickets *tickets, const char *path, struct tw_error *err);

/* ==== knocks ================================================================================== */

/* A short MAC (a knock) in the server name of a ClientHello, like WireGuard's mac1. It shows that
 * its sender knows the run secret or a ticket. Pure bytes; PROTOCOL.md section 3 is normative.
 *
 *    name   hex(nonce || mac) ".invalid"
 *    nonce  8 bytes: the low byte of the hour, 7 random bytes
 *    mac    first 16 bytes of HMAC-SHA256(secret, "thinwire-knock" || run id || nonce || hour u64)
 *
 * In a run without a secret, the key is zeros: the knock then shows knowledge of the run id alone,
 * which is in the manifest. A knock proves nothing: an observer can copy it for up to three hours,
 * and the copy is accepted once 256 other knocks have been seen in between. It only decides which
 * bucket of bans.h pays for a connection, before this node has computed or sent
 * anything. */

enum {
    TW_KNOCK_NAME_BYTES = 57, /* with NUL */
    TW_KNOCKS_SEEN = 256,     /* number of remembered knocks, by which a copy is recognised */
};

/* Key of a knock. Borrowed. */
struct tw_knock_key {
    const uint8_t *bytes; /* run secret, or the ticket's key */
    size_t size;
    struct tw_id run;
};

/* Nonces of the newest knocks. A full ring forgets the oldest one. Only holders of a key can fill
 * it. */
struct tw_knocks {
    uint64_t seen[TW_KNOCKS_SEEN];
    uint32_t count; /* next index modulo TW_KNOCKS_SEEN; the ring is full if it is not less */
};

/* Writes a server name with a knock, or "" if the system has no random bytes. */
void tw_knock_write(const struct tw_knock_key *key, uint64_t now_s, char name[TW_KNOCK_NAME_BYTES]);

/* Returns true if the name was made with that key in this hour, the previous or the next one.
 * name[size] is untrusted. */
bool tw_knock_is_of(const struct tw_knock_key *key, const char *name, size_t size, uint64_t now_s);

/* Remembers a knock with a correct MAC. Returns false if the same knock was seen before. */
bool tw_knocks_add(struct tw_knocks *knocks, const char *name);

#endif
