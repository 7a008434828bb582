/* init.h - checks of the values that `thinwire init` and `thinwire join` take as flags. */
#ifndef TW_DAEMON_CLI_NODE_INIT_H
#define TW_DAEMON_CLI_NODE_INIT_H

#include "daemon/cli/common/cli.h"
#include "daemon/cli/node/node_files.h"

/* Checks the values that flags gave, as their questions do, and the addresses to listen on. Prints
 * the flag and the reason. If the manifest is yet to be fetched (has_run = false), --run names its
 * place, which the node must be able to see. Call before anything is made. */
enum tw_exit init_check(const struct node_files *files, bool has_run);

#endif
