/* fit.h - a screen cut to the rows of a terminal: the important lines stay, and a last line counts
 * the missing ones. */
#ifndef TW_DAEMON_CLI_SHOW_FIT_H
#define TW_DAEMON_CLI_SHOW_FIT_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/cli/common/line.h"

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
