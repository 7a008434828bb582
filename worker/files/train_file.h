/* train_file.h - a training that can go on: parameters, moments and counters in one safetensors
 * file.
 *
 * Tensors `live.NAME`, `adam_m.NAME`, `adam_v.NAME` of the layout as F32; counters, the run's
 * manifest and an xxh64 of all of it in the metadata (`thinwire.*`). Whoever reads safetensors
 * reads the parameters. The file is replaced whole or not at all. */
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

/* What its steps were computed with: others round otherwise. */
struct tw_train_pass {
    uint32_t micro_batch;    /* sequences of one pass; 0: the file does not say */
    enum tw_compute compute; /* FP32 or BF16; AUTO: the file does not say */
};

struct tw_train_file {
    struct tw_run run;  /* it was trained with */
    uint64_t data_seed; /* of the sampling order */
    uint64_t skipped;   /* steps with gradients that were not finite */
    struct tw_train_pass pass;
    struct tw_train_state state;
};

/* Writes all of `out`, which is held (tw_out_hold), and puts it in place of what was saved before.
 * TW_IO, TW_CONFIG: the file is as it was; TW_CORRUPT: something is not finite, nothing was
 * written. */
enum tw_status tw_train_file_save(struct tw_out_file *out, const struct tw_layout *layout,
                                  const struct tw_train_file *file, struct tw_error *err);

/* Whether the file says that it is one of these; then *run is the run it was trained with, where a
 * version with fewer keys wrote it with their defaults, and *pass (NULL: not wanted) how. Reads the
 * header only; what cannot be read is none. TW_CORRUPT: it is one, but damaged; TW_VERSION. */
enum tw_status tw_train_file_peek(const char *path, bool *is_one, struct tw_run *run,
                                  struct tw_train_pass *pass, struct tw_error *err);

/* The manifest a file carries: a training file, or weights that were saved with one. *has_run
 * false: none, or it cannot be read at all. TW_CORRUPT: it is damaged; TW_VERSION. */
enum tw_status tw_train_file_run(const char *path, bool *has_run, struct tw_run *run,
                                 struct tw_error *err);

/* A manifest as a value of a safetensors file's metadata, under the key TW_TRAIN_FILE_MANIFEST. */
#define TW_TRAIN_FILE_MANIFEST "thinwire.manifest"
void tw_train_file_manifest(const struct tw_run *run, char text[TW_MANIFEST_BYTES_MAX],
                            size_t *size);

/* Fills run, counters, and the arrays file->state points to, which belong to the caller and have
 * layout->elements floats. TW_IO; TW_CORRUPT: damaged, or no training file; TW_CONFIG: of a model
 * of another shape. On failure the arrays are undefined. */
enum tw_status tw_train_file_load(const char *path, const struct tw_layout *layout,
                                  struct tw_train_file *file, struct tw_error *err);

#endif
