/* node_start.h - starts the daemon of a node, and waits until it answers. */
#ifndef TW_DAEMON_CLI_NODE_NODE_START_H
#define TW_DAEMON_CLI_NODE_NODE_START_H

#include "daemon/cli/node/node_files.h"

/* Starts the node's daemon. For a node under /etc/thinwire, enables its systemd units. Otherwise
 * starts the daemon in the background, with its log beside the configuration. First waits for the
 * end of a daemon that is stopping. Prints the result to `to`, or the reason of a failure. */
enum tw_exit node_start(const struct node_files *files, FILE *to);

/* Writes the path of that log. */
void node_log_path(const struct node_files *files, char path[TW_PATH_BYTES + 8]);

/* Returns whether a daemon listens on the socket. */
bool node_is_listening(const char *socket_path);

#endif
