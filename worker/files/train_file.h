/* train_file.h - a training file: parameters, moments and counters in one safetensors file, from
 * which training can be resumed.
 *
 * It holds tensors `live.NAME`, `adam_m.NAME` and `adam_v.NAME` of the layout in F32. The metadata
 * (`thinwire.*`) holds counters, the run's manifest and an xxHash64 of everything. Any safetensors
 * reader can read the parameters. The file is replaced whole or not at all. */
#ifndef TW_WORKER_FILES_TRAIN_FILE_H
#define TW_WORKER_FILES_TRAIN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/compute.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/learn/train_state.h"
#include "worker/support/out_file.h"

/* Size and number type of the forward and backward passes that computed the steps. A resumed
 * training uses them again if it can, because others would round differently. */
struct tw_train_pass {
    uint32_t micro_batch;    /* number of sequences in one pass; 0: not recorded */
    enum tw_compute compute; /* FP32 or BF16; AUTO: not recorded */
};

struct tw_train_file {
    struct tw_run run;  /* run that was trained */
    uint64_t data_seed; /* seed of the sampling order */
    uint64_t skipped;   /* number of steps whose gradients were not finite */
    struct tw_train_pass pass;
    struct tw_train_state state;
};

/* Writes the whole file to `out`, which must be held (tw_out_hold), in place of the previous save.
 * After TW_IO or TW_CONFIG, the previous save stays. Fails with TW_CORRUPT and writes nothing if a
 * value is not finite. */
enum tw_status tw_train_file_save(struct tw_out_file *out, const struct tw_layout *layout,
                                  const struct tw_train_file *file, struct tw_error *err);

/* Reads only the header. Sets *is_one to whether the file declares itself a training file; an
 * unreadable one does not. *run is then its run; keys that an older version did not have get their
 * defaults. *pass (may be NULL) is the recorded pass. Fails with TW_CORRUPT if the training file is
 * damaged, or with TW_VERSION. */
enum tw_status tw_train_file_peek(const char *path, bool *is_one, struct tw_run *run,
                                  struct tw_train_pass *pass, struct tw_error *err);

/* Reads the manifest in a training file, or in weights saved with one. *has_run is false if there
 * is none or the file is unreadable. Fails with TW_CORRUPT if it is damaged, or with TW_VERSION. */
enum tw_status tw_train_file_run(const char *path, bool *has_run, struct tw_run *run,
                                 struct tw_error *err);

/* Encodes a manifest as the metadata value of the key TW_TRAIN_FILE_MANIFEST. */
#define TW_TRAIN_FILE_MANIFEST "thinwire.manifest"

void tw_train_file_manifest(const struct tw_run *run, char text[TW_MANIFEST_BYTES_MAX],
                            size_t *size);

/* Fills run, counters and the arrays that file->state points to, which belong to the caller and
 * have layout->elements floats. Fails with TW_IO, with TW_CORRUPT if the file is damaged or not a
 * training file, or with TW_CONFIG if the model has another shape. On failure the arrays are
 * undefined. */
enum tw_status tw_train_file_load(const char *path, const struct tw_layout *layout,
                                  struct tw_train_file *file, struct tw_error *err);

/* ---- finds the newest undamaged checkpoint in a node's state folder -------------------------- */

/* *
 * The daemon writes ckpt.a.safetensors and ckpt.b.safetensors in turn (daemon/store/checkpoint.h).
 * Only their headers show which one is newer. The run's manifest is in the same folder or the one
 * above. */

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
