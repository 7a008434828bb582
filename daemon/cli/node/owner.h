/* owner.h - shared by the commands of `thinwire owner`. */
#ifndef TW_DAEMON_CLI_NODE_OWNER_H
#define TW_DAEMON_CLI_NODE_OWNER_H

#include "daemon/auth/gate.h"
#include "daemon/cli/common/cli.h"
#include "proto/run/run.h"

/* The run, and this node's state folder. Options may set either. */
struct owner_place {
    struct tw_run run;
    struct tw_id run_id;
    char run_path[TW_PATH_BYTES]; /* of the manifest */
    bool has_config;              /* this machine has a node, whose folder is state_dir */
    char state_dir[TW_PATH_BYTES];
    struct tw_config config; /* with has_config */
};

/* Finds the run of the manifest `run_path` (--run), or this node's run if NULL. Prints errors
 * itself: no manifest, or a run without an owner. */
enum tw_exit owner_place_find(struct cli *cli, const char *run_path, struct owner_place *place);

/* Makes this process the user of the node, if there is one, before it writes files of the node.
 * Files that the caller named were opened before. Prints errors itself. */
enum tw_exit owner_become_node(const struct cli *cli, const struct owner_place *place);

/* Writes FOLDER/NAME. Returns false if it is too long. */
bool owner_path(const struct owner_place *place, const char *name, char path[TW_PATH_BYTES]);

/* Return the folder of a path, which is written to `copy`, and its file name, which points into
 * `path`. */
const char *owner_folder(const char *path, char copy[TW_PATH_BYTES]);
const char *owner_file(const char *path);

/* Opens the key `given` (--key). NULL: the one beside the manifest, or else in this folder. Writes
 * its path. */
enum tw_exit owner_key_open(const struct owner_place *place, const char *given,
                            char path[TW_PATH_BYTES], struct tw_identity *key);
enum tw_exit owner_sign(struct cli *cli);

/* owner_list.c */
enum tw_exit owner_revoke(struct cli *cli);
/* `thinwire pause --run` and `thinwire resume --run`. The caller has read the flag --run. */
enum tw_exit owner_pause_run(struct cli *cli, bool is_paused);

/* owner_recall.c */
enum tw_exit owner_recall(struct cli *cli);

#endif
