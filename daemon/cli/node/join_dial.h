/* join_dial.h - fetches a WELCOME from the node that issued a ticket. */
#ifndef TW_DAEMON_CLI_NODE_JOIN_DIAL_H
#define TW_DAEMON_CLI_NODE_JOIN_DIAL_H

#include "base/exit_codes.h"
#include "daemon/auth/identity.h"
#include "proto/ticket.h"
#include "proto/welcome.h"

/* Tries the ticket's addresses in turn, on a loop of its own. Prints the reason of each failure on
 * standard error. `name` is this node's, for the inviter's lists. On TW_EXIT_OK, *welcome is
 * filled, and address[TW_ADDR_BYTES] is the address that answered. Otherwise returns TW_EXIT_JOIN.
 */
enum tw_exit join_dial(const struct tw_ticket *ticket, const struct tw_identity *identity,
                       const char *name, struct tw_welcome *welcome, char *address);

#endif
