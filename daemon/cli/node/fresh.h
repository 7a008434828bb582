/* fresh.h - `thinwire start --fresh`: sets damaged checkpoints aside. */
#ifndef TW_DAEMON_CLI_NODE_FRESH_H
#define TW_DAEMON_CLI_NODE_FRESH_H

#include <stdio.h>

#include "daemon/cli/common/cli.h"

/* Renames the checkpoints that a start would load to *.damaged, if all of them are damaged, so that
 * the node starts without any. Otherwise changes nothing. Says which it did on `out`. Needs a
 * stopped daemon, and does nothing while one runs. Prints errors itself. */
enum tw_exit cli_fresh(const struct tw_config *config, FILE *out);

#endif
