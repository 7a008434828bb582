/* node_start.h - starts the daemon of a node, and waits until it answers. */
#ifndef TW_DAEMON_CLI_NODE_NODE_START_H
#define TW_DAEMON_CLI_NODE_NODE_START_H

#include "daemon/cli/node/node_files.h"

/* As a unit of systemd for a node under /etc/thinwire; else in the background, with its log beside
 * the configuration. A daemon that is leaving is waited for. Says what it did on `to`, or why it
 * did not come up. */
enum tw_exit node_start(const struct node_files *files, FILE *to);

#endif
