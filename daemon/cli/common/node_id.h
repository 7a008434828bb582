/* node_id.h - the id of a node, as a person names it. */
#ifndef TW_DAEMON_CLI_COMMON_NODE_ID_H
#define TW_DAEMON_CLI_COMMON_NODE_ID_H

#include "base/id.h"
#include "daemon/cli/common/cli.h"

/* Reads 64 hex digits or, if the daemon answers, the beginning of an id or a name as `thinwire
 * peers` shows them. Nodes choose their names, so the whole id is printed on standard error then.
 * Returns TW_EXIT_USAGE if no node is meant, or several are; prints errors itself. */
enum tw_exit cli_node_id(const struct cli *cli, const char *text, struct tw_id *node);

#endif
