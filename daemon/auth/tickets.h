/* tickets.h - tickets that this node has issued, and the nodes that used them.
 *
 * They are kept as text in the private file STATE_DIR/RUN/tickets. A use counts once per node: the
 * same node with the same ticket spends no second use. A machine whose join was interrupted can
 * thus simply repeat it. Expired and used-up tickets stay for a week, so that a late guest learns
 * the reason.
 *
 * The file also holds the marks of the run's secrets, so that the daemon notices a secret that was
 * replaced while it was down. Pure, except that the last two calls access the file. */
#ifndef TW_DAEMON_AUTH_TICKETS_H
#define TW_DAEMON_AUTH_TICKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/auth/secret.h"
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
    uint32_t uses; /* total number of uses */
    uint32_t guests_count;
    struct tw_id guests[TW_TICKET_USES_MAX];
};

struct tw_tickets {
    uint32_t marks_count; /* 0: the previous secrets are unknown */
    char marks[TW_SECRETS_MAX][TW_SECRET_MARK_BYTES];
    uint32_t count;
    struct tw_ticket_row rows[TW_TICKETS_MAX]; /* oldest first */
};

/* Adds a ticket with a fresh id and key. TW_LIMIT: too many valid tickets. TW_CONFIG: uses or life
 * out of bounds. The row is valid until the next change. */
enum tw_status tw_tickets_add(struct tw_tickets *tickets, uint32_t uses, uint64_t life_s,
                              uint64_t now_s, struct tw_ticket_row **row, struct tw_error *err);

/* The ticket with this id; NULL: there is none, or it was revoked. */
struct tw_ticket_row *tw_tickets_find(struct tw_tickets *tickets,
                                      const uint8_t id[TW_TICKET_ID_BYTES]);

/* Removes tickets that ended more than TW_TICKET_KEPT_S ago, with their keys. Returns their number.
 */
uint32_t tw_tickets_sweep(struct tw_tickets *tickets, uint64_t now_s);

/* The ticket is neither expired nor withdrawn. Its uses may be spent: a guest may return. */
bool tw_ticket_may_return(const struct tw_ticket_row *row, uint64_t now_s);

/* Checks that `node` may join with the ticket. TW_OK; *is_new: the node had not used it before, so
 * a use is counted. An expired ticket lets nobody in, not even a node that used it.
 * TW_TICKET_EXPIRED or TW_TICKET_USED with the detail. */
enum tw_status tw_ticket_use(struct tw_ticket_row *row, const struct tw_id *node, uint64_t now_s,
                             bool *is_new, struct tw_error *err);

/* Revokes a ticket by its shown name (tw_ticket_name) or more digits of its id. TW_CONFIG: no
 * ticket, or more than one, has that name. */
enum tw_status tw_tickets_withdraw(struct tw_tickets *tickets, const char *name,
                                   struct tw_error *err);

/* Sets the run's present secrets. If one of them is new, revokes every ticket that was used: a node
 * that was shut out must not fetch the new secret with an old ticket. Returns the number of tickets
 * revoked; 0 while the previous secrets are unknown. */
uint32_t tw_tickets_secrets(struct tw_tickets *tickets, const struct tw_secrets *secrets);

/* Writes the file as text[TW_TICKETS_TEXT_MAX] with NUL. Returns the bytes written. */
size_t tw_tickets_encode(const struct tw_tickets *tickets, char *text);

/* Strict inverse. TW_CORRUPT with the line; *tickets is then empty. */
enum tw_status tw_tickets_decode(struct tw_tickets *tickets, const char *text,
                                 struct tw_error *err);

/* A missing file means no tickets. */
enum tw_status tw_tickets_load(struct tw_tickets *tickets, const char *path, struct tw_error *err);

#endif
