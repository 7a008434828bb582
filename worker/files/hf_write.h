/* hf_write.h - writes a model as safetensors: one file, or a folder for Hugging Face's
 * transformers, split into several files if large.
 *
 * Never overwrites a file, and leaves nothing behind on failure: out_file.h. Memory holds only one
 * block of numbers at a time. */
#ifndef TW_WORKER_FILES_HF_WRITE_H
#define TW_WORKER_FILES_HF_WRITE_H

#include <stdint.h>

#include "base/status.h"
#include "proto/run/model_config.h"
#include "worker/files/hf_texts.h"
#include "worker/files/model_feed.h"

/* Writes one safetensors file with the layout's tensor names and `format = pt` in its metadata.
 * dtype: F32, BF16, F16, or TW_FEED_KEEP. Sets *bytes_out (may be NULL) to the file size. Fails
 * with TW_CONFIG, TW_IO, TW_NOMEM, or an error of the feed. */
enum tw_status tw_hf_write_file(const char *path, const struct tw_model_feed *feed,
                                enum tw_dtype dtype, uint64_t *bytes_out, struct tw_error *err);

/* shard_bytes: limit of tensor bytes per file; 0: no limit. A tensor is never split. */
struct tw_hf_folder {
    enum tw_dtype dtype; /* F32, BF16 or F16 */
    uint64_t shard_bytes;
    const struct tw_hf_texts *texts; /* text files beside config.json; NULL: none */
    const struct tw_model_ids *ids;  /* special tokens that config.json names; NULL: none */
    uint32_t files_count;            /* out */
    uint64_t bytes;                  /* out: total size of the tensors */
};

/* Writes a folder with config.json, model.safetensors (or shards and their index) and the given
 * text files. It is written as PATH.part and then renamed. Fails as tw_hf_write_file does. */
enum tw_status tw_hf_write_folder(const char *path, const struct tw_model_feed *feed,
                                  struct tw_hf_folder *folder, struct tw_error *err);

#endif
