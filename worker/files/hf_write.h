/* hf_write.h - writes a model as safetensors: one file, or a folder for Hugging Face's
 * transformers, split into several files if large.
 *
 * Never overwrites, and leaves nothing behind on failure: out_file.h. Needs memory for one block of
 * numbers only. */
#ifndef TW_WORKER_FILES_HF_WRITE_H
#define TW_WORKER_FILES_HF_WRITE_H

#include <stdint.h>

#include "base/status.h"
#include "proto/run/model_config.h"
#include "worker/files/hf_texts.h"
#include "worker/files/model_feed.h"

/* Writes one safetensors file with the layout's tensor names and `format = pt` in its metadata.
 * dtype: F32, BF16, F16, or TW_FEED_KEEP. *bytes_out (may be NULL): file size. TW_CONFIG, TW_IO,
 * TW_NOMEM, and errors of the feed. */
enum tw_status tw_hf_write_file(const char *path, const struct tw_model_feed *feed,
                                enum tw_dtype dtype, uint64_t *bytes_out, struct tw_error *err);

/* shard_bytes: tensor bytes per file, 0: no limit. A tensor is never split. */
struct tw_hf_folder {
    enum tw_dtype dtype; /* F32, BF16 or F16 */
    uint64_t shard_bytes;
    const struct tw_hf_texts *texts; /* files beside config.json; NULL: none */
    const struct tw_model_ids *ids;  /* tokens that config.json names; NULL: none */
    uint32_t files_count;            /* out */
    uint64_t bytes;                  /* out: size of all tensors */
};

/* Writes a folder with config.json, model.safetensors (or shards and their index) and the given
 * text files. It is written as PATH.part and then renamed. Errors as above. */
enum tw_status tw_hf_write_folder(const char *path, const struct tw_model_feed *feed,
                                  struct tw_hf_folder *folder, struct tw_error *err);

#endif
