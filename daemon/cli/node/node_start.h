/* node_start.h - checks the needs of a daemon, starts it, and waits until it answers. */
#ifndef TW_DAEMON_CLI_NODE_NODE_START_H
#define TW_DAEMON_CLI_NODE_NODE_START_H

#include "daemon/cli/node/node_files.h"
#include "daemon/net/socket.h"

/* Checks `interface`, `bind` and `advertise`. Returns TW_CONFIG or TW_IO, with the remedy in the
 * error. */
enum tw_status cli_line_check(const struct tw_config *config, struct tw_egress *egress,
                              struct tw_error *err);

/* Tries to listen on an address for a moment. is_one_of_many, is_loopback_only: see socket.h.
 * Returns TW_CONFIG if it is not an address, or not loopback where only loopback is allowed.
 * Returns TW_IO if it is in use, not of this machine, or not permitted. */
enum tw_status cli_listen_check(const char *address, const struct tw_egress *egress,
                                bool is_one_of_many, bool is_loopback_only, struct tw_error *err);

/* Checks that the folder of sockets can be used or created. Returns TW_IO otherwise. */
enum tw_status cli_folder_check(const char *path, struct tw_error *err);

/* If the daemon starts the worker, checks that its program can be executed. Returns TW_CONFIG
 * otherwise. */
enum tw_status cli_worker_check(const struct tw_config *config, struct tw_error *err);

/* Starts the node's daemon. For a node under /etc/thinwire, enables its systemd units. Otherwise
 * starts the daemon in the background, with its log beside the configuration. First waits for the
 * end of a daemon that is stopping. Prints the result to `to`, or the reason of a failure. */
enum tw_exit node_start(const struct node_files *files, FILE *to);

/* Writes the path of that log. */
void node_log_path(const struct node_files *files, char path[TW_PATH_BYTES + 8]);

/* Returns whether a daemon listens on the socket. */
bool node_is_listening(const char *socket_path);

#endif
