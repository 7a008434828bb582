/* gguf_vocab.h - a tokenizer in the head of a GGUF file, as llama.cpp and its relatives read it.
 *
 * A byte-level BPE: its tokens with GPT-2's characters for bytes, what each is (normal, control,
 * user-defined, unused), its merges in their order, and the name by which they know how text is
 * split. NFC, which Qwen's files ask for, is not done there. The byte tokenizer is one of 256
 * tokens without merges, end of text being byte 0 which text does not hold. */
#ifndef TW_WORKER_FILES_GGUF_VOCAB_H
#define TW_WORKER_FILES_GGUF_VOCAB_H

#include <stdint.h>

#include "base/status.h"
#include "worker/files/gguf_head.h"
#include "worker/tokenizer/tokenizer_text.h"

/* vocab: tokens of the model; what the tokenizer does not have is filled with unused ones.
 * tokenizer NULL: bytes. TW_CONFIG: more tokens than the model has, or split in a way that has no
 * name there; TW_NOMEM. */
enum tw_status tw_gguf_put_vocab(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                                 uint32_t vocab, struct tw_error *err);

#endif
