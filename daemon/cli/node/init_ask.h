/* init_ask.h - the questions of `thinwire init` on a terminal: run, data and share of the line. */
#ifndef TW_DAEMON_CLI_NODE_INIT_ASK_H
#define TW_DAEMON_CLI_NODE_INIT_ASK_H

#include "daemon/cli/common/cli.h"
#include "daemon/cli/node/node_files.h"

/* Asks for the keys among run, data and upload that no flag has set, unless standard input or
 * output is no terminal. An answer that cannot be used is asked for again; an empty one sets
 * nothing. Call once per process: `files` borrows the answers. TW_EXIT_USAGE: the input ended, or
 * no answer could be used. */
enum tw_exit init_ask(const struct cli *cli, struct node_files *files);

#endif
