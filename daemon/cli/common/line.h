/* line.h - one line of a screen: coloured pieces, never wider than the terminal. */
#ifndef TW_DAEMON_CLI_COMMON_LINE_H
#define TW_DAEMON_CLI_COMMON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

enum paint { PLAIN, BOLD, DIM, GREEN, YELLOW, RED, BLUE };

/* Properties of the screen. One column is one code point: this program's texts have no wide or
 * combining characters, and other nodes' texts are at worst truncated too early. */
struct screen {
    FILE *to;
    bool has_colour, has_utf8;
    unsigned width;  /* columns */
    unsigned height; /* rows; 0: any number */
};

struct line {
    const struct screen *screen;
    unsigned columns;
    bool is_full;
};

/* Begins a line with " Label ", dimmed. The caller then appends further pieces. */
struct line line_begin(const struct screen *screen, const char *label);
/* Appends text, truncated with an ellipsis at the screen's width. Control characters become spaces.
 */
void line_put(struct line *line, enum paint paint, const char *fmt, ...) TW_PRINTF(3, 4);
void line_end(struct line *line);

/* Prints text over several lines, broken at spaces, each indented by `indent` columns. `mark`
 * precedes the first line. */
void line_wrap(const struct screen *screen, enum paint paint, const char *mark, unsigned indent,
               const char *text);

#endif
