/* gguf_write.h - writes a model as GGUF version 3, as llama.cpp and related programs read it.
 *
 *   "GGUF" | u32 3 | u64 tensors | u64 pairs | pairs: key, type, value | tensors: name, sizes,
 *   type, offset | padding to 32 | data, each tensor padded to 32      (all little-endian)
 *
 * Matrices are (out, in) in GGUF, so GPT-2's are transposed. Architecture `llama` rotates adjacent
 * channels, while Hugging Face and this engine rotate halves. The rows of q and k are therefore
 * permuted: within each head, row t * (head_size / 2) + j becomes row 2 * j + t. A model with q/k/v
 * biases or QK-norm is written as qwen2 or qwen3, which rotate halves. Llama 3's frequency scaling
 * becomes the tensor rope_freqs.weight. Vectors and GPT-2's positions are always float32.
 *
 * A model on bytes gets the vocabulary of the byte tokenizer. A model on tokens gets the vocabulary
 * of the given tokenizer, or none: gguf_vocab.h. */
#ifndef TW_WORKER_FILES_GGUF_WRITE_H
#define TW_WORKER_FILES_GGUF_WRITE_H

#include <stdint.h>

#include "base/status.h"
#include "worker/files/model_feed.h"
#include "worker/tokenizer/text_ends.h"

struct tw_gguf_options {
    enum tw_dtype dtype; /* type of matrices: F32, BF16 or F16 */
    /* NULL: the byte tokenizer for a model on bytes, else none */
    const struct tw_tokenizer *tokenizer;
    const struct tw_text_ends *ends; /* tokens that end a text; NULL: byte 0 alone */
};

/* Never overwrites a file, and leaves nothing behind on failure: out_file.h. Fails with TW_CONFIG
 * also if no GGUF architecture computes this model, or the tokenizer does not fit. Other errors:
 * TW_IO, TW_NOMEM, errors of the feed. */
enum tw_status tw_gguf_write(const char *path, const struct tw_model_feed *feed,
                             const struct tw_gguf_options *options, uint64_t *bytes_out,
                             struct tw_error *err);

#endif
