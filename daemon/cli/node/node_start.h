/* node_start.h - starts the daemon of a node, and waits until it answers. */
#ifndef TW_DAEMON_CLI_NODE_NODE_START_H
#define TW_DAEMON_CLI_NODE_NODE_START_H

#include "daemon/cli/node/node_files.h"

/* For a node under /etc/thinwire starts a systemd unit. Otherwise starts the daemon in the
 * background, with its log beside the configuration. Waits for a daemon that is about to end.
 * Prints the result on `to`, or the reason of a failure. */
enum tw_exit node_start(const struct node_files *files, FILE *to);

/* The file of that log. */
void node_log_path(const struct node_files *files, char path[TW_PATH_BYTES + 8]);

/* Whether a daemon listens on the socket. */
bool node_is_listening(const char *socket_path);

#endif
