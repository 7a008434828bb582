/* ticket.h - ticket: the line of text that lets a machine join a run (PROTOCOL.md section 3).
 *
 *    tw1 + base32 of: run 32 | inviter's node id 32 | ticket id 8 | key 16 | expires, unix
 *    seconds u32 | uses u16 | addresses u8 | each: length u8, host:port | check 4
 *
 * The check is the first 4 bytes of the SHA-256 of all fields before it. The alphabet has no i, l,
 * o and u: readers accept them as 1, 1, 0 and v. Anybody who has the line can use it, so it is a
 * secret until its uses are spent. Pure. */
#ifndef TW_PROTO_TICKET_H
#define TW_PROTO_TICKET_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

enum {
    TW_TICKET_ID_BYTES = 8,
    TW_TICKET_KEY_BYTES = 16,
    TW_TICKET_TEXT_BYTES = 640, /* most bytes of a line, including NUL */
    TW_TICKET_USES_MAX = 64,
};

struct tw_ticket {
    struct tw_id run, inviter;
    uint8_t id[TW_TICKET_ID_BYTES];
    uint8_t key[TW_TICKET_KEY_BYTES];
    uint64_t expires_s;   /* below 2^32 */
    uint32_t uses;        /* 1 to TW_TICKET_USES_MAX */
    uint32_t addrs_count; /* at least 1 */
    char addrs[TW_ADDRS_MAX][TW_ADDR_BYTES];
};

/* Writes the line and a NUL. */
void tw_ticket_encode(const struct tw_ticket *ticket, char text[TW_TICKET_TEXT_BYTES]);

/* Reads a line that a person pasted, ignoring case and spaces. Returns TW_CONFIG and the reason if
 * it is not a valid ticket. */
enum tw_status tw_ticket_decode(const char *text, struct tw_ticket *ticket, struct tw_error *err);

/* Writes a ticket's name for people: the first 8 hex digits of its id. Two tickets of one node
 * rarely have the same name. */
void tw_ticket_name(const uint8_t id[TW_TICKET_ID_BYTES], char name[9]);

#endif
