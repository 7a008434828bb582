/* follow.h - output that continues until Ctrl-C: `thinwire events --follow`, `thinwire logs`. */
#ifndef TW_DAEMON_CLI_SHOW_FOLLOW_H
#define TW_DAEMON_CLI_SHOW_FOLLOW_H

#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/line.h"

enum {
    FOLLOW_LOOK_MS = 300, /* interval between checks for new events or lines */
    FOLLOW_WIDTH = 4096,  /* wide enough that lines are not truncated: the terminal wraps them */
};

/* Prints each new event, with --json as one object per line. If the daemon stops later, waits for
 * it to come back. Returns only on failure. */
enum tw_exit follow_events(struct cli *cli, const struct screen *screen);

#endif
