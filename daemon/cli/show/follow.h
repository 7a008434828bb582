/* follow.h - output that goes on until Ctrl-C: `thinwire events --follow`, `thinwire logs`. */
#ifndef TW_DAEMON_CLI_SHOW_FOLLOW_H
#define TW_DAEMON_CLI_SHOW_FOLLOW_H

#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/line.h"

enum {
    FOLLOW_LOOK_MS = 300, /* between two looks for something new */
    FOLLOW_WIDTH = 4096,  /* lines are not cut: the terminal breaks them */
};

/* Prints each new event, with --json as one object per line. Waits for a daemon that goes away
 * later. Returns only on failure. */
enum tw_exit follow_events(struct cli *cli, const struct screen *screen);

/* The fields of a line `key=value key="text"` of the log, all as strings. A line of another form
 * becomes its `text`. A new reference; NULL without memory. */
json_t *log_line_json(const char *line);

#endif
