/* state_folder.h - finds the newest undamaged checkpoint in a node's state folder.
 *
 * The daemon writes ckpt.a.safetensors and ckpt.b.safetensors in turn (daemon/store/checkpoint.h).
 * Only their headers show which one is newer. The run's manifest is in the same folder or the one
 * above. */
#ifndef TW_WORKER_FILES_STATE_FOLDER_H
#define TW_WORKER_FILES_STATE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_STATE_PATH_BYTES = 1024 };

struct tw_state_found {
    char checkpoint[TW_STATE_PATH_BYTES]; /* path of the checkpoint */
    char manifest[TW_STATE_PATH_BYTES];   /* path of the manifest of the checkpoint's run, or "" if
                                             there is none */
    uint64_t step;
    char refused[256]; /* error of the other checkpoint, or "" if it has none */
};

/* Looks for checkpoints in `path`, or in one subfolder named by a run's id. Sets *is_one if there
 * are any. Then *found is the newest undamaged one: its header matches its SHA-256, and so does
 * every MiB that contains data of `part` ("live", "anchor"). Errors:
 * - TW_CORRUPT: every checkpoint is damaged;
 * - TW_CONFIG: checkpoints of several runs, or the path is too long;
 * - TW_IO, TW_NOMEM. */
enum tw_status tw_state_folder_find(const char *path, const char *part, bool *is_one,
                                    struct tw_state_found *found, struct tw_error *err);

#endif
