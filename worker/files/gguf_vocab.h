/* gguf_vocab.h - writes a tokenizer to the header of a GGUF file, as llama.cpp and related programs
 * read it.
 *
 * A byte-level BPE is written as tokens in GPT-2's characters for bytes, a type per token (normal,
 * control, user-defined, unused), merges in order, and llama.cpp's name of the pre-tokenizer. GGUF
 * cannot express NFC, which Qwen's files ask for. The byte tokenizer is written as 256 tokens
 * without merges; its end of text is byte 0, which does not occur in text.
 *
 * GGUF names up to three tokens that end a text (eos, eot, eom). If there is no begin token, the
 * end token is written in its place, as GPT-2 does. */
#ifndef TW_WORKER_FILES_GGUF_VOCAB_H
#define TW_WORKER_FILES_GGUF_VOCAB_H

#include <stdint.h>

#include "base/status.h"
#include "worker/files/gguf_head.h"
#include "worker/tokenizer/text_ends.h"

/* vocab: size of the model's vocabulary; ids that the tokenizer lacks are written as unused.
 * tokenizer NULL: the byte tokenizer. ends NULL: only byte 0 ends a text. Fails with TW_CONFIG if
 * the tokenizer has more tokens than the model, or no end of text is known; also if llama.cpp has
 * no name for the pre-tokenizer, or no equivalent of the template or of an added token. Fails with
 * TW_NOMEM. */
enum tw_status tw_gguf_put_vocab(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                                 uint32_t vocab, const struct tw_text_ends *ends,
                                 struct tw_error *err);

#endif
