/* run_new.h - `thinwire run new`: makes a manifest from options. */
#ifndef TW_DAEMON_CLI_RUN_RUN_NEW_H
#define TW_DAEMON_CLI_RUN_RUN_NEW_H

#include "daemon/cli/common/cli.h"

enum tw_exit cli_run_new(struct cli *cli);

/* `thinwire run models`. Becomes the engine, which computes the memory that each model needs on
 * this machine. Returns only if that fails. */
enum tw_exit cli_run_models(struct cli *cli);

#endif
