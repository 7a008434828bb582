/* hf_write.h - a model as safetensors: one file, or a folder as Hugging Face's transformers reads
 * it, in several files when it is large.
 *
 * Nothing is overwritten, and what fails leaves nothing behind: out_file.h. Memory: one block. */
#ifndef TW_WORKER_FILES_HF_WRITE_H
#define TW_WORKER_FILES_HF_WRITE_H

#include <stdint.h>

#include "base/status.h"
#include "worker/files/model_feed.h"

/* One safetensors file with the layout's names and `format = pt` in its metadata. dtype: F32, BF16,
 * F16, or TW_FEED_KEEP. *bytes_out (may be NULL): its size. TW_CONFIG, TW_IO, TW_NOMEM, and what
 * the feed says. */
enum tw_status tw_hf_write_file(const char *path, const struct tw_model_feed *feed,
                                enum tw_dtype dtype, uint64_t *bytes_out, struct tw_error *err);

/* shard_bytes: tensor data of one file before another is begun; a tensor is never cut; 0: no limit.
 */
struct tw_hf_folder {
    enum tw_dtype dtype; /* F32, BF16 or F16 */
    uint64_t shard_bytes;
    const char *tokenizer; /* text of a tokenizer.json to put beside the model; NULL: bytes, none */
    size_t tokenizer_bytes;
    uint32_t files_count; /* out */
    uint64_t bytes;       /* out: of tensors */
};

/* A folder with config.json, model.safetensors (or shards and their index) and tokenizer.json,
 * where one is given or the model is on bytes. It is written as PATH.part and renamed. Errors as
 * above. */
enum tw_status tw_hf_write_folder(const char *path, const struct tw_model_feed *feed,
                                  struct tw_hf_folder *folder, struct tw_error *err);

#endif
