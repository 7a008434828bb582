#include "daemon/cli/common/ticket_line.h"

#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/cli/common/cli.h"

/* Asks for the line with the terminal's echo off. */
static void ask(char text[TW_TICKET_LINE_BYTES]) {
    struct termios shown, hidden;
    const bool can_hide = tcgetattr(STDIN_FILENO, &shown) == 0;
    hidden = shown;
    hidden.c_lflag &= ~(tcflag_t)ECHO;
    /* before the prompt, because TCSAFLUSH discards everything typed so far */
    if (can_hide) (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
    (void)fprintf(stderr, "Line of `thinwire invite` (it is not shown): ");
    if (fgets(text, TW_TICKET_LINE_BYTES, stdin) == NULL) text[0] = '\0';
    if (can_hide) (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
    (void)fputc('\n', stderr);
}

enum tw_exit cli_ticket_line(const char *verb, char *line, char text[TW_TICKET_LINE_BYTES]) {
    const bool is_asked = line == NULL || strcmp(line, "-") == 0;
    memset(text, 0, TW_TICKET_LINE_BYTES);
    if (!is_asked) {
        (void)snprintf(text, TW_TICKET_LINE_BYTES, "%s", line);
        explicit_bzero(line, strlen(line));
        return TW_EXIT_OK;
    }
    (void)setvbuf(stdin, NULL, _IONBF,
                  0); /* without a stdio buffer, which would keep a copy of the ticket in memory */
    if (isatty(STDIN_FILENO) == 1) {
        ask(text);
    } else if (line != NULL) {
        text[fread(text, 1, TW_TICKET_LINE_BYTES - 1, stdin)] = '\0';
    } else {
        return cli_fail(TW_EXIT_USAGE,
                        "%s: the line of `thinwire invite` is missing (- reads it from standard "
                        "input)",
                        verb);
    }
    return TW_EXIT_OK;
}

bool cli_ticket_is_late(const struct tw_ticket *ticket, uint64_t now_s,
                        char text[TW_TICKET_AGE_BYTES]) {
    char until[TW_UNITS_BYTES], late[TW_UNITS_BYTES], name[9];
    if (now_s <= ticket->expires_s) return false;
    tw_ticket_name(ticket->id, name);
    (void)snprintf(text, TW_TICKET_AGE_BYTES,
                   "by the clock of this machine, ticket %s expired %s ago (it is valid until %s); "
                   "the inviter decides by its own clock",
                   name, tw_units_duration(late, (double)(now_s - ticket->expires_s)),
                   tw_units_utc(until, ticket->expires_s));
    return true;
}
