/* join_dial.h - asks the node that made a ticket for what it takes to be a node of its run. */
#ifndef TW_DAEMON_CLI_NODE_JOIN_DIAL_H
#define TW_DAEMON_CLI_NODE_JOIN_DIAL_H

#include "base/exit_codes.h"
#include "daemon/auth/identity.h"
#include "proto/ticket.h"
#include "proto/welcome.h"

/* Tries the ticket's addresses in turn, on a loop of its own. Says on standard error why each of
 * them failed. TW_EXIT_OK with *welcome and, in address[TW_ADDR_BYTES], who answered; else
 * TW_EXIT_JOIN. */
enum tw_exit join_dial(const struct tw_ticket *ticket, const struct tw_identity *identity,
                       struct tw_welcome *welcome, char *address);

#endif
