/* run_lists.h - lists of manifest keys, of presets and of codecs. */
#ifndef TW_DAEMON_CLI_RUN_RUN_LISTS_H
#define TW_DAEMON_CLI_RUN_RUN_LISTS_H

#include "daemon/cli/common/cli.h"

enum tw_exit cli_run_presets(struct cli *cli);
enum tw_exit cli_run_codecs(struct cli *cli);
enum tw_exit cli_run_keys(struct cli *cli);

#endif
