/* tickets.h - the tickets this node has given out, and who used them.
 *
 * Kept as text, in the private file STATE_DIR/RUN/tickets. A use counts once per node: the same
 * node with the same ticket again spends none, so a machine that lost its way between asking and
 * starting just asks again. What has expired or is used up stays for a week, so that who comes late
 * hears why. The marks of the run's secrets lie in the file too: so a secret that was replaced
 * while nobody looked is seen. Pure but for the file of the last two calls. */
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
    TW_TICKETS_TEXT_MAX = 384 * 1024, /* all of them, with NUL */
};

struct tw_ticket_row {
    uint8_t id[TW_TICKET_ID_BYTES];
    uint8_t key[TW_TICKET_KEY_BYTES];
    uint64_t expires_s; /* unix */
    bool is_withdrawn;
    uint32_t uses; /* in all */
    uint32_t guests_count;
    struct tw_id guests[TW_TICKET_USES_MAX];
};

struct tw_tickets {
    uint32_t marks_count; /* 0: it is not known which secrets there were */
    char marks[TW_SECRETS_MAX][TW_SECRET_MARK_BYTES];
    uint32_t count;
    struct tw_ticket_row rows[TW_TICKETS_MAX]; /* oldest first */
};

/* Adds one with a fresh id and key. TW_LIMIT: too many are still good; TW_CONFIG: uses or life out
 * of bounds. The row is valid until the next change. */
enum tw_status tw_tickets_add(struct tw_tickets *tickets, uint32_t uses, uint64_t life_s,
                              uint64_t now_s, struct tw_ticket_row **row, struct tw_error *err);

/* NULL: there is none, or it was withdrawn. */
struct tw_ticket_row *tw_tickets_find(struct tw_tickets *tickets,
                                      const uint8_t id[TW_TICKET_ID_BYTES]);

/* May `node` come in with it? TW_OK, and *is_new when that spends a use: it is counted then.
 * TW_TICKET_EXPIRED, TW_TICKET_USED with the detail. */
enum tw_status tw_ticket_use(struct tw_ticket_row *row, const struct tw_id *node, uint64_t now_s,
                             bool *is_new, struct tw_error *err);

/* Takes a ticket back, by the name people see (tw_ticket_name) or more of its id. TW_CONFIG: none
 * is called so, or more than one. */
enum tw_status tw_tickets_withdraw(struct tw_tickets *tickets, const char *name,
                                   struct tw_error *err);

/* These are the secrets of the run now. When one of them is new, takes back every ticket that let
 * somebody in: who shall be shut out must not fetch it with an old ticket. Returns how many; none
 * while it was not known which secrets there were. */
uint32_t tw_tickets_secrets(struct tw_tickets *tickets, const struct tw_secrets *secrets);

/* The file as text[TW_TICKETS_TEXT_MAX] with NUL; returns its bytes. */
size_t tw_tickets_encode(const struct tw_tickets *tickets, char *text);

/* Strict inverse: TW_CORRUPT with the line, and *tickets has none. */
enum tw_status tw_tickets_decode(struct tw_tickets *tickets, const char *text,
                                 struct tw_error *err);

/* No file: no tickets. */
enum tw_status tw_tickets_load(struct tw_tickets *tickets, const char *path, struct tw_error *err);

#endif
