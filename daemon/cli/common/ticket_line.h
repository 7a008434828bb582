/* ticket_line.h - reads the line of `thinwire invite`, which is as secret as a password: from a
 * terminal without showing it, from standard input, or from the command line. */
#ifndef TW_DAEMON_CLI_COMMON_TICKET_LINE_H
#define TW_DAEMON_CLI_COMMON_TICKET_LINE_H

#include "base/exit_codes.h"
#include "proto/ticket.h"

enum { TW_TICKET_LINE_BYTES = 2 * TW_TICKET_TEXT_BYTES };

/* Gets the line into `text`, with NUL, cut at its end; the caller wipes it. "-" reads standard
 * input, without echo on a terminal. NULL asks on the terminal, and fails if there is none; the
 * error message begins with the command's name `verb`. Any other `line` is an operand of the
 * command line. It is overwritten at once, as other users of the machine can read a process's
 * arguments. */
enum tw_exit cli_ticket_line(const char *verb, char *line, char text[TW_TICKET_LINE_BYTES]);

#endif
