/* ticket_line.h - reads the line of `thinwire invite`, which is as secret as a password: from a
 * terminal without echo, from standard input, or from the command line. */
#ifndef TW_DAEMON_CLI_COMMON_TICKET_LINE_H
#define TW_DAEMON_CLI_COMMON_TICKET_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/exit_codes.h"
#include "proto/ticket.h"

enum { TW_TICKET_LINE_BYTES = 2 * TW_TICKET_TEXT_BYTES };

/* Copies the line into `text`, NUL-terminated and truncated if too long. The caller wipes it.
 * `line` says where it is from:
 *
 * - "-": standard input, without echo on a terminal
 * - NULL: asks on the terminal. Without a terminal it fails, with an error that begins with the
 *   command's name `verb`
 * - any other text: the line itself, given as an argument. It is overwritten at once, because other
 *   users of the machine can read a process's arguments */
enum tw_exit cli_ticket_line(const char *verb, char *line, char text[TW_TICKET_LINE_BYTES]);

enum { TW_TICKET_AGE_BYTES = 200 };

/* Returns true if the ticket has expired by the clock of this machine, and says so in `text`. The
 * inviter decides, by its own clock: so this is a warning, for `join` and for `doctor`. */
bool cli_ticket_is_late(const struct tw_ticket *ticket, uint64_t now_s,
                        char text[TW_TICKET_AGE_BYTES]);

#endif
