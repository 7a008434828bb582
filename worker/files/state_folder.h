/* state_folder.h - the state folder of a node as a model: its newest whole checkpoint.
 *
 * The daemon writes ckpt.a.safetensors and ckpt.b.safetensors in turn (daemon/store/checkpoint.h),
 * so which of them is the newer one only they can tell; run.manifest lies beside them. */
#ifndef TW_WORKER_FILES_STATE_FOLDER_H
#define TW_WORKER_FILES_STATE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_STATE_PATH_BYTES = 1024 };

struct tw_state_found {
    char checkpoint[TW_STATE_PATH_BYTES]; /* the file */
    char manifest[TW_STATE_PATH_BYTES];   /* of its run; "": there is none */
    uint64_t step;
    char refused[256]; /* what is wrong with the other one; "": nothing */
};

/* *is_one: `path` is a folder with checkpoints in it, or in one folder of it that is named by a
 * run's id; then *found is the newest one that is whole: its header and every MiB that holds
 * something of `part` ("live", "anchor") match their SHA-256. TW_CORRUPT: there are some and none
 * is whole; TW_IO; TW_CONFIG: there are those of several runs, or the path is too long; TW_NOMEM.
 */
enum tw_status tw_state_folder_find(const char *path, const char *part, bool *is_one,
                                    struct tw_state_found *found, struct tw_error *err);

#endif
