/* node_files.h - the files that `init` and `join` create: folders, identity and configuration. The
 * configuration is the commented example with values filled in. Existing files are never
 * overwritten. */
#ifndef TW_DAEMON_CLI_NODE_NODE_FILES_H
#define TW_DAEMON_CLI_NODE_NODE_FILES_H

#include <stdbool.h>

#include "base/id.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/cli.h"

enum { TW_NODE_VALUES_MAX = 16 };

struct node_files {
    char config_path[TW_PATH_BYTES], key_path[TW_PATH_BYTES];
    struct tw_config config; /* parsed configuration; valid after node_files_plan */
    unsigned count;
    struct {
        const char *key, *text; /* borrowed */
    } values[TW_NODE_VALUES_MAX];
};

/* Reads the options that `init` and `join` share, --name to --upload. --dir DIR puts the
 * configuration at DIR/node.conf, and all other files into DIR. Returns TW_EXIT_USAGE if a path is
 * too long. Call once per process.
 */
enum tw_exit node_files_options(struct cli *cli, struct node_files *files);

/* Sets a key of the configuration. If `text` is NULL, does nothing. */
void node_files_put(struct node_files *files, const char *key, const char *text);

/* Returns the value of the key, or NULL if it is not set. */
const char *node_files_value(const struct node_files *files, const char *key);

/* Makes a user's path absolute. It is relative to the working directory, whereas paths in the
 * configuration are relative to its file. Returns NULL if the path is too long. */
const char *node_files_from_here(const char *path, char absolute[TW_PATH_BYTES]);

/* node_files_find sets the default path of the configuration if no flag gave one. node_files_plan
 * parses its future contents. */
enum tw_exit node_files_find(const struct cli *cli, struct node_files *files);
enum tw_exit node_files_plan(struct node_files *files);

/* Creates the state folder and the configuration's folder. */
enum tw_exit node_files_folders(const struct node_files *files);

enum tw_exit node_files_write_config(const struct node_files *files);

/* Sets a key of an existing configuration, in place of its value or of the commented example.
 * Replaces the file completely or not at all; its owner and mode stay. */
enum tw_exit node_files_add_value(const struct node_files *files, const char *key,
                                  const char *text);

/* Gives the state folder that root made for a service, with all in it, to the service's user. Does
 * nothing if that user does not exist yet: systemd then does it at the first start. */
enum tw_exit node_files_hand_over(const struct node_files *files);

/* Returns true if systemd will run the node, with daemon and worker as separate units. */
bool node_files_is_service(const struct node_files *files);

/* Prints text as one word of a shell command, quoted if necessary. */
void node_files_print_word(const char *text);

/* Prints the next steps for a person: the commands `verbs`, one per line. Those of a service name
 * it. For another node that `thinwire` does not select already, first prints the shell line that
 * makes it do so. */
void node_files_say_next(const struct node_files *files, const char *const *verbs);

#endif
