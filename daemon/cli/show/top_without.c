/* top_without.c - `thinwire top` in builds without ncurses. */
#include "daemon/cli/common/cli.h"

enum tw_exit cli_top(struct cli *cli) {
    (void)cli;
    return cli_fail(TW_EXIT_USAGE, "this build has no top, as it was made without ncurses; "
                                   "`thinwire status --watch` shows the same in lines");
}
