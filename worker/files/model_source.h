/* model_source.h - reads a model: a Hugging Face folder or one safetensors file.
 *
 * A folder holds config.json and model.safetensors, or model.safetensors.index.json and the files
 * it names. A file is a checkpoint of a node, weights written by `thinwire`, or model.safetensors.
 * All input is untrusted and checked. Numbers are read block by block. */
#ifndef TW_WORKER_FILES_MODEL_SOURCE_H
#define TW_WORKER_FILES_MODEL_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "proto/safetensors.h"
#include "worker/files/adapter.h"
#include "worker/files/hf_config.h"
#include "worker/files/tensor_file.h"

struct tw_model_place; /* place of a layout's tensor in the files */

struct tw_model_source {
    const char *path; /* borrowed */
    bool is_folder;
    char *config; /* text of config.json, or NULL */
    size_t config_bytes;
    bool has_index;
    struct tw_hf_index index;
    uint32_t files_count;
    struct tw_tensor_file *files;
    const struct tw_layout *layout; /* borrowed; NULL before tw_model_source_bind */
    struct tw_model_place *places;  /* (layout->tensors_count) */
    struct tw_adapter *adapter;     /* NULL: none */
};

/* Opens every file and checks every header. Fails with TW_CONFIG if the model exists only in an
 * unsupported format; also with TW_IO, TW_CORRUPT, TW_LIMIT or TW_NOMEM. On failure nothing is left
 * open. */
enum tw_status tw_model_source_open(struct tw_model_source *source, const char *path,
                                    struct tw_error *err);

void tw_model_source_close(struct tw_model_source *source);

/* Fills run->model from config.json (hf_config.h). Sets data.tokenizer to bytes if the
 * tokenizer.json beside config.json is the byte tokenizer. Fails with TW_CONFIG if there is no
 * config.json. */
enum tw_status tw_model_source_run(const struct tw_model_source *source, struct tw_run *run,
                                   struct tw_error *err);

/* Finds every tensor of the layout (borrowed until close), named `PART.NAME`, `NAME`,
 * `transformer.NAME`, or NAME without its "model."; all tensors must use the same form. A tied
 * embedding may be stored as the head alone, as safetensors.torch.save_model does; a head stored
 * beside it must have the same numbers. Fails with TW_CONFIG if a tensor is missing, has a wrong
 * shape or type, or is one that the model does not have. */
enum tw_status tw_model_source_bind(struct tw_model_source *source, const struct tw_layout *layout,
                                    const char *part, struct tw_error *err);

/* Merges the LoRA adapter in a folder into all that is read from now on (adapter.h). Call it after
 * bind, once. Fails as tw_adapter_open does. */
enum tw_status tw_model_source_adapt(struct tw_model_source *source, const char *folder,
                                     const struct tw_run *run, struct tw_error *err);

/* Call these after bind. dtype: the stored type of tensor `i`. read: its elements [first, first +
 * count); fails with TW_IO, or with TW_CORRUPT if one is not finite. */
enum tw_dtype tw_model_source_dtype(const struct tw_model_source *source, uint32_t i);

enum tw_status tw_model_source_read(const struct tw_model_source *source, uint32_t i,
                                    uint64_t first, uint64_t count, float *to,
                                    struct tw_error *err);

/* ---- the parameters to write to a file, read from memory or from other files ----------------- */

struct tw_model_feed {
    const struct tw_run *run;       /* borrowed, like all pointers below */
    bool says_run;                  /* whether the manifest of `run` is written into the
                                       file's metadata */
    const struct tw_layout *layout; /* layout of run */
    const float *params;            /* (layout->elements) parameters; NULL: read from `source` */
    const struct tw_model_source *source; /* bound to `layout` */
    bool (*is_interrupted)(void);         /* reading fails once this returns true; NULL: never */
    /* called with the number of elements just read; NULL: none */
    void (*progress)(void *user, uint64_t count);
    void *user;
};

/* dtype value that keeps each tensor's type in the source */
enum { TW_FEED_KEEP = TW_DTYPES_COUNT };

/* The type in which tensor `i` is written: `dtype` or, for TW_FEED_KEEP, the source's type (float32
 * from memory). */
enum tw_dtype tw_model_feed_dtype(const struct tw_model_feed *feed, uint32_t i,
                                  enum tw_dtype dtype);

/* Reads elements [first, first + count) of tensor `i`. Fails as tw_model_source_read does, or with
 * TW_AGAIN if interrupted. */
enum tw_status tw_model_feed_read(const struct tw_model_feed *feed, uint32_t i, uint64_t first,
                                  uint64_t count, float *to, struct tw_error *err);

/* Converts values[count] to `dtype` in place. Errors name the tensor. Fails with TW_CONFIG if a
 * number does not fit (the largest float16 is 65504), or with TW_CORRUPT if a number was not finite
 * before. */
enum tw_status tw_model_feed_store(const struct tw_model_feed *feed, uint32_t i,
                                   enum tw_dtype dtype, float *values, uint64_t count,
                                   struct tw_error *err);

/* ---- compares the arithmetic of two models --------------------------------------------------- */

/* Checks that the model of `found` (a config.json) and the model of `wanted` (a manifest) compute
 * the same function of the same tensors. All model keys must match, except the seed and, unless
 * positions are weights, the context. The message of TW_CONFIG names the first difference with both
 * values. */
enum tw_status tw_model_same(const struct tw_run *found, const struct tw_run *wanted,
                             struct tw_error *err);

/* ---- opens a model for a command of thinwire-engine, and reads or makes its manifest --------- */

/* Reads a manifest from a file and fills the layout. Fails with TW_IO if the file cannot be read,
 * and with TW_CONFIG if the manifest is invalid. */
enum tw_status tw_engine_manifest_read(const char *path, struct tw_run *run,
                                       struct tw_layout *layout, struct tw_error *err);

/* Makes a manifest to continue training the model of a config.json: model keys as found,
 * conservative training keys, and a run name derived from `name`. `context` is the caller's choice,
 * or 0 for the default. Sets *known (may be NULL) to the number of positions that the model
 * supports. Fails with TW_CONFIG, TW_CORRUPT or TW_NOMEM. */
enum tw_status tw_engine_manifest_make(const struct tw_model_source *source, const char *name,
                                       uint32_t context, struct tw_run *run, uint32_t *known,
                                       struct tw_error *err);

/* Opens a model and binds it to a layout. If a folder has a config.json, it must describe the
 * manifest's model. On failure nothing is left open. */
enum tw_status tw_engine_source_open(struct tw_model_source *source, const char *path,
                                     const struct tw_run *run, const struct tw_layout *layout,
                                     const char *part, struct tw_error *err);

/* ---- saves a model's parameters -------------------------------------------------------------- */

/* Writes params as float32 under the layout's names (hf_write.h). `run`, which must match the
 * layout, is the manifest to include; NULL: none. Fails with TW_CONFIG if `path` exists, or with
 * TW_IO. */
enum tw_status tw_weights_save(const char *path, const struct tw_layout *layout,
                               const struct tw_run *run, const float *params, struct tw_error *err);

#endif
