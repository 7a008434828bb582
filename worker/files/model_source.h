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
#include "worker/files/hf_index.h"
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

/* Call these after bind. dtype: the stored type of tensor `i`. read: its elements [first, first +
 * count); fails with TW_IO, or with TW_CORRUPT if one is not finite. */
enum tw_dtype tw_model_source_dtype(const struct tw_model_source *source, uint32_t i);
enum tw_status tw_model_source_read(const struct tw_model_source *source, uint32_t i,
                                    uint64_t first, uint64_t count, float *to,
                                    struct tw_error *err);

#endif
