/* ticket_line.h - reads the line of `thinwire invite`, which is as secret as a password: from a
 * terminal without showing it, from standard input, or from the command line. */
#ifndef TW_DAEMON_CLI_COMMON_TICKET_LINE_H
#define TW_DAEMON_CLI_COMMON_TICKET_LINE_H

#include "base/exit_codes.h"
#include "proto/ticket.h"

enum { TW_TICKET_LINE_BYTES = 2 * TW_TICKET_TEXT_BYTES };

/* Gets the line into `text`, with NUL, cut at its end; the caller wipes it. "-" reads standard
 * input, which a terminal does not show; NULL asks a terminal only, and fails without one: `verb`
 * begins the sentence. Any other `line` is an operand of the command line, which is overwritten at
 * once: other users of the machine can read the arguments of a process. */
enum tw_exit cli_ticket_line(const char *verb, char *line, char text[TW_TICKET_LINE_BYTES]);

#endif
