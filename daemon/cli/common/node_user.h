/* node_user.h - the user that a node's files belong to, and the command that a person types for the
 * node. Only commands that open files of the node need its user; the daemon's socket has its own
 * rules. */
#ifndef TW_DAEMON_CLI_COMMON_NODE_USER_H
#define TW_DAEMON_CLI_COMMON_NODE_USER_H

#include "daemon/cli/common/cli.h"

enum { CLI_NODE_BYTES = TW_PATH_BYTES + 64, CLI_COMMAND_BYTES = CLI_NODE_BYTES + 160 };

/* Returns true if systemd runs the node of this configuration. */
bool cli_is_service(const char *config_path);

/* Returns true if the service of this configuration cannot see the path, because its unit hides
 * home folders (ProtectHome=) unless a drop-in shows them. */
bool cli_is_hidden(const char *config_path, const char *path);

#define CLI_HIDDEN                                                                                 \
    "a service sees no home folder; copy it elsewhere, such as to /srv, or show it by "            \
    "BindReadOnlyPaths= (`systemctl edit`)"

/* Returns true if a person needs sudo to manage the node: it is a service, and no root shell. */
bool cli_needs_sudo(const char *config_path);

/* Writes the command that runs `thinwire WORDS` for this node from any shell, such as
 * `sudo thinwire --config bible start`. Returns `text`. */
const char *cli_command(const char *config_path, bool has_sudo, const char *words,
                        char text[CLI_COMMAND_BYTES]);

/* Writes the command that runs `thinwire WORDS` for the node that this one was typed for, as short
 * as that allows. Returns `text`. */
const char *cli_next_command(const struct cli *cli, const char *words,
                             char text[CLI_COMMAND_BYTES]);

/* Makes this process the user that the node's files belong to, for good, if it is root: its checks
 * then judge the rights of the daemon, and its files belong to the daemon. Returns TW_CONFIG if it
 * is another user; the sentence ends with `; ` and the command that helps. Without a state folder,
 * does nothing. */
enum tw_status cli_become_node_user(const struct cli *cli, const struct tw_config *config,
                                    struct tw_error *err);

/* Loads the configuration and does the above. Prints errors itself. */
enum tw_exit cli_node_config(const struct cli *cli, struct tw_config *config);

#endif
