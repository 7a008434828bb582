/* gguf_write.h - a model as GGUF version 3, as llama.cpp and its relatives read it.
 *
 *   "GGUF" | u32 3 | u64 tensors | u64 pairs | pairs: key, type, value | tensors: name, sizes,
 * type, offset | padding to 32 | data, each tensor padded to 32      (all little-endian)
 *
 * Matrices are (out, in) there: GPT-2's are transposed. Architecture `llama` rotates neighbouring
 * channels where Hugging Face and we rotate halves, so the rows of q and k are put in that order
 * (within each head row t (head_size / 2) + j becomes 2 j + t). qwen2 and qwen3, which biases and
 * norms of queries and keys make it, rotate halves as we do. Llama 3's scaling is the tensor
 * rope_freqs.weight. Vectors and GPT-2's positions are always float32.
 *
 * A model on bytes gets their vocabulary, one on token numbers the tokenizer's that is given, or
 * none: gguf_vocab.h. */
#ifndef TW_WORKER_FILES_GGUF_WRITE_H
#define TW_WORKER_FILES_GGUF_WRITE_H

#include <stdint.h>

#include "base/status.h"
#include "worker/files/model_feed.h"
#include "worker/tokenizer/tokenizer_text.h"

struct tw_gguf_options {
    enum tw_dtype dtype;                  /* F32, BF16 or F16, for matrices */
    const struct tw_tokenizer *tokenizer; /* NULL: that of bytes, or none */
};

/* Nothing is overwritten, what fails leaves nothing: out_file.h. TW_CONFIG also when no GGUF
 * architecture computes this model, or the tokenizer does not fit; TW_IO, TW_NOMEM, and what the
 * feed says. */
enum tw_status tw_gguf_write(const char *path, const struct tw_model_feed *feed,
                             const struct tw_gguf_options *options, uint64_t *bytes_out,
                             struct tw_error *err);

#endif
