/* join_dial.h - fetches a WELCOME from the node that made a ticket. */
#ifndef TW_DAEMON_CLI_NODE_JOIN_DIAL_H
#define TW_DAEMON_CLI_NODE_JOIN_DIAL_H

#include "base/exit_codes.h"
#include "daemon/auth/identity.h"
#include "proto/ticket.h"
#include "proto/welcome.h"

/* Tries the ticket's addresses in turn, on its own loop, and prints the reason of each failure on
 * standard error. TW_EXIT_OK: fills *welcome, and address[TW_ADDR_BYTES] with the address that
 * answered. Otherwise TW_EXIT_JOIN. */
enum tw_exit join_dial(const struct tw_ticket *ticket, const struct tw_identity *identity,
                       struct tw_welcome *welcome, char *address);

#endif
