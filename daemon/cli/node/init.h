/* init.h - the questions of `thinwire init` on a terminal: run, data and upload rate. `join`
 * takes the same answers as flags. */
#ifndef TW_DAEMON_CLI_NODE_INIT_H
#define TW_DAEMON_CLI_NODE_INIT_H

#include "daemon/cli/common/cli.h"
#include "daemon/cli/node/node_files.h"

/* Checks the values that flags gave, as their questions do, and the addresses to listen on. Prints
 * the flag and the reason. If the manifest is yet to be fetched (has_run = false), --run names its
 * place, which the node must be able to see. Call before anything is made. */
enum tw_exit init_check(const struct node_files *files, bool has_run);

/* Asks for run, data and upload, unless a flag has set the key, or standard input or output is not
 * a terminal. An unusable answer is asked for again; an empty one sets nothing. Call once per
 * process, because `files` borrows the answers. Returns TW_EXIT_USAGE if the input ends, or if no
 * answer is usable. */
enum tw_exit init_ask(const struct cli *cli, struct node_files *files);

#endif
