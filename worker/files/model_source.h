/* model_source.h - a model to read: a Hugging Face folder, or one safetensors file.
 *
 * A folder holds config.json and model.safetensors, or model.safetensors.index.json and the files
 * it names. A file is a checkpoint of a node, weights written by `thinwire`, or model.safetensors.
 * Nothing is believed before it is checked; numbers are read by the block, never the whole. */
#ifndef TW_WORKER_FILES_MODEL_SOURCE_H
#define TW_WORKER_FILES_MODEL_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "worker/files/hf_index.h"
#include "worker/files/tensor_file.h"

struct tw_model_place; /* where a tensor of the layout lies */

struct tw_model_source {
    const char *path; /* borrowed */
    bool is_folder;
    char *config; /* text of config.json; NULL: there is none */
    size_t config_bytes;
    bool has_index;
    struct tw_hf_index index;
    uint32_t files_count;
    struct tw_tensor_file *files;
    const struct tw_layout *layout; /* borrowed; NULL before bind */
    struct tw_model_place *places;  /* (layout->tensors_count) */
};

/* Opens every file and checks every header. TW_IO, TW_CORRUPT, TW_LIMIT, TW_NOMEM; TW_CONFIG when
 * the model is there in a form that is not read. On failure nothing is left open. */
enum tw_status tw_model_source_open(struct tw_model_source *source, const char *path,
                                    struct tw_error *err);
void tw_model_source_close(struct tw_model_source *source);

/* The model config.json describes, into run->model and data.tokenizer: hf_config.h. TW_CONFIG when
 * there is no config.json. */
enum tw_status tw_model_source_run(const struct tw_model_source *source, struct tw_run *run,
                                   struct tw_error *err);

/* Finds every tensor of the layout (borrowed until close) as `PART.NAME`, `NAME` or
 * `transformer.NAME`, the same way for all. TW_CORRUPT: one is missing, or one is there that the
 * model has no place for; TW_CONFIG: another shape or type. An output head beside a tied embedding
 * must equal it. */
enum tw_status tw_model_source_bind(struct tw_model_source *source, const struct tw_layout *layout,
                                    const char *part, struct tw_error *err);

/* After bind: the type tensor `i` of the layout is stored as; elements [first, first + count) of
 * it. TW_IO; TW_CORRUPT when one is not finite. */
enum tw_dtype tw_model_source_dtype(const struct tw_model_source *source, uint32_t i);
enum tw_status tw_model_source_read(const struct tw_model_source *source, uint32_t i,
                                    uint64_t first, uint64_t count, float *to,
                                    struct tw_error *err);

#endif
