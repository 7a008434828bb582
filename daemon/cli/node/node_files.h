/* node_files.h - what `init` and `join` make alike: folders, identity, and the configuration file,
 * which is the commented example with values filled in. Nothing that exists is overwritten. */
#ifndef TW_DAEMON_CLI_NODE_NODE_FILES_H
#define TW_DAEMON_CLI_NODE_NODE_FILES_H

#include <stdbool.h>

#include "base/id.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/cli.h"

enum { TW_NODE_VALUES_MAX = 16 };

struct node_files {
    char config_path[TW_PATH_BYTES], key_path[TW_PATH_BYTES];
    struct tw_config config; /* what the file will mean; after node_files_plan */
    unsigned count;
    struct {
        const char *key, *text; /* borrowed */
    } values[TW_NODE_VALUES_MAX];
};

/* NULL-terminated: the flags node_files_options takes. */
#define NODE_FILES_OPTIONS                                                                         \
    "--dir", "--name", "--state-dir", "--run-dir", "--run", "--data", "--listen", "--peers",       \
        "--upload", "--threads", "--config", "--json"

/* Takes the flags above out of the command line; --dir DIR means DIR/node.conf with everything
 * beside it. TW_EXIT_USAGE when a path is too long. Call once a process. */
enum tw_exit node_files_options(struct cli *cli, struct node_files *files);

/* Sets a key of the configuration; NULL: not. */
void node_files_put(struct node_files *files, const char *key, const char *text);

/* Where the configuration goes, when no flag said it; then parses what it will hold. */
enum tw_exit node_files_find(const struct cli *cli, struct node_files *files);
enum tw_exit node_files_plan(struct node_files *files);

/* State folder and the configuration's own. */
enum tw_exit node_files_folders(const struct node_files *files);

enum tw_exit node_files_write_config(const struct node_files *files);

/* Whether systemd will run it, daemon and worker as units of their own. */
bool node_files_is_service(const struct node_files *files);

/* What a person does next: the shell line that makes this node the one `thinwire` means, unless it
 * is already, and `verbs`, a line each. */
void node_files_say_next(const struct node_files *files, const char *const *verbs);

#endif
