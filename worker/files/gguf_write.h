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
 * of the given tokenizer, or none: gguf_write.h. */
#ifndef TW_WORKER_FILES_GGUF_WRITE_H
#define TW_WORKER_FILES_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/files/model_source.h"
#include "worker/tokenizer/text_ends.h"

struct tw_gguf_options {
    enum tw_dtype dtype; /* type of matrices: F32, BF16 or F16 */
    /* NULL: the byte tokenizer for a model on bytes, else none */
    const struct tw_tokenizer *tokenizer;
    const struct tw_text_ends *ends; /* tokens that end a text; NULL: byte 0 alone */
    const char *chat_template;       /* Jinja; NULL: none */
};

/* Never overwrites a file, and leaves nothing behind on failure: out_file.h. Fails with TW_CONFIG
 * also if no GGUF architecture computes this model, or the tokenizer does not fit. Other errors:
 * TW_IO, TW_NOMEM, errors of the feed. */
enum tw_status tw_gguf_write(const char *path, const struct tw_model_feed *feed,
                             const struct tw_gguf_options *options, uint64_t *bytes_out,
                             struct tw_error *err);

/* ---- builds the header of a GGUF file: keys with typed values, all little-endian ------------- */

/* Value types of the format. */
enum tw_gguf_type {
    TW_GGUF_U32 = 4,
    TW_GGUF_I32 = 5,
    TW_GGUF_F32 = 6,
    TW_GGUF_BOOL = 7,
    TW_GGUF_STRING = 8,
    TW_GGUF_ARRAY = 9,
};

/* Zero-initialise all fields but `architecture`. The functions do not report a failed allocation:
 * check is_out_of_memory at the end. */
struct tw_gguf_head {
    const char *architecture; /* text that replaces "%s" in keys */
    uint8_t *bytes;           /* (size) bytes written of `capacity` allocated */
    size_t size, capacity;
    bool is_out_of_memory;
    uint32_t pairs_count;
};

void tw_gguf_head_deinit(struct tw_gguf_head *head);

/* ---- writes a tokenizer to the header as llama.cpp reads it ---------------------------------- */

/* A byte-level BPE is written as tokens in GPT-2's characters for bytes, a type per token (normal,
 * control, user-defined, unused), merges in order, and llama.cpp's name of the pre-tokenizer. GGUF
 * cannot express NFC, which Qwen's files ask for. The byte tokenizer is written as 256 tokens
 * without merges; its end of text is byte 0, which does not occur in text.
 *
 * GGUF names up to three tokens that end a text (eos, eot, eom). If there is no begin token, the
 * end token is written in its place, as GPT-2 does. */

/* vocab: size of the model's vocabulary; ids that the tokenizer lacks are written as unused.
 * tokenizer NULL: the byte tokenizer. ends NULL: only byte 0 ends a text. Fails with TW_CONFIG if
 * the tokenizer has more tokens than the model, or no end of text is known; also if llama.cpp has
 * no name for the pre-tokenizer, or no equivalent of the template or of an added token. Fails with
 * TW_NOMEM. */
enum tw_status tw_gguf_put_vocab(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                                 uint32_t vocab, const struct tw_text_ends *ends,
                                 struct tw_error *err);

#endif
