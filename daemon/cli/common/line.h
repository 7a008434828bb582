/* line.h - lines of a screen: coloured pieces, never wider than the terminal, and parts that fit
 * its height. */
#ifndef TW_DAEMON_CLI_COMMON_LINE_H
#define TW_DAEMON_CLI_COMMON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jansson.h>

#include "base/status.h"

enum paint { PLAIN, BOLD, DIM, GREEN, YELLOW, RED, BLUE };

/* Properties of the screen. One column is one code point: this program's texts have no wide or
 * combining characters, and other nodes' texts are at worst truncated too early. */
struct screen {
    FILE *to;
    bool has_colour, has_utf8;
    unsigned width;    /* columns */
    unsigned height;   /* rows; 0: any number */
    const char *typed; /* the words that a person types for `thinwire` here, such as `sudo thinwire
                          --config bible `, with a blank at the end; NULL: `thinwire ` */
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
/* The same for advice of the daemon, which does not know how a person types commands here: each
 * `thinwire ...` in backquotes begins with the words of screen->typed. */
void line_wrap_advice(const struct screen *screen, enum paint paint, const char *mark,
                      unsigned indent, const char *text);

/* ---- parts that fit the height ----------------------------------------------------------------
 */

enum { FIT_PARTS_MAX = 24 };

/* Lines that can be cut: those of a part behind its first `left`. */
struct fit_cut {
    unsigned part, left;
    bool is_whole; /* the lines belong together: all of them are cut, or none */
};

struct fit {
    void (*const *print)(const struct screen *, const json_t *); /* prints part i, top to bottom */
    const struct fit_cut *cuts;                                  /* least important lines first */
    unsigned parts_count, cuts_count;
    /* Prints the last line. shown[i]: lines of part i that are shown. */
    void (*print_rest)(const struct screen *, const json_t *, unsigned gone, const unsigned *shown);
};

/* Prints the parts, cut to screen->height rows if that is not 0. Lines outside of `cuts` are always
 * printed. */
void fit_print(const struct screen *screen, const json_t *json, const struct fit *fit);

/* Prints a drawn list, cut to screen->height rows. `keeps_end`: its newest lines are its last ones.
 * `verb`: the command that prints all of it. */
void fit_list(const struct screen *screen, const char *drawn, bool keeps_end, const char *verb);

#endif
