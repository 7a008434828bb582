/* tokenizer_text.h - text to tokens and back: bytes, or a byte-level BPE from tokenizer.json.
 *
 * Ids equal those of Hugging Face's `tokenizers` for the layouts of GPT-2, Llama 3, Qwen 2 and 3
 * and SmolLM. Supported are:
 * - normalizer: none or NFC;
 * - pre-tokenizer: ByteLevel, Split by a pattern, Digits, and sequences of these that end in
 *   ByteLevel;
 * - model: BPE with or without ignore_merges;
 * - post-processor: none, ByteLevel or TemplateProcessing;
 * - added tokens of every kind.
 *
 * A file with any other feature is refused, and the error names the feature. `truncation` and
 * `padding` are ignored: texts are never truncated.
 *
 * Text is bytes. Hugging Face's package does not accept invalid UTF-8 (RFC 3629). Here an invalid
 * byte becomes the token of that byte, and the text on each side is encoded separately. If the
 * tokenizer is exact (tw_tokenizer_is_exact), join(encode(x)) = x for every x, valid or not.
 *
 * Four differences from the package are known:
 * 1. Characters that Unicode assigned after version 14 may be split differently, depending on
 *   PCRE2.
 * 2. NFC reorders and composes 98 marks of Unicode 10 to 14 that the package leaves in place.
 * 3. A word of more than TW_WORD_BYTES_MAX bytes is merged in parts.
 * 4. An added token always decodes to its own text. */
#ifndef TW_WORKER_TOKENIZER_TOKENIZER_TEXT_H
#define TW_WORKER_TOKENIZER_TOKENIZER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/support/utf8.h"

#define TW_TOKEN_NONE UINT32_MAX

enum {
    TW_TOKENIZER_JSON_BYTES_MAX = 64 * 1024 * 1024,
    TW_TOKEN_BYTES_MAX = 1024, /* largest size of a token in bytes */
    /* limit of word bytes merged at once, at 36 bytes of memory each */
    TW_WORD_BYTES_MAX = 2 << 20,
    TW_TEXT_BYTES_MAX = 1 << 30, /* largest size of a text that is encoded in one call */
    TW_WORDS_CACHED = 1 << 15,   /* words in an encoder's cache, at 64 bytes each */
};

/* Immutable, so any number of threads may share one. */
struct tw_tokenizer;

/* Creates a byte tokenizer, whose 256 tokens are the bytes. The caller destroys it. Fails with
 * TW_NOMEM. */
enum tw_status tw_tokenizer_create_bytes(struct tw_tokenizer **tokenizer, struct tw_error *err);

/* Creates a tokenizer from an untrusted tokenizer.json. Fails with TW_CONFIG, naming the
 * unsupported feature and the supported ones, with TW_CORRUPT if it is malformed, or with TW_NOMEM.
 * Reading needs about ten times the file's size in memory. */
enum tw_status tw_tokenizer_create_json(struct tw_tokenizer **tokenizer, const char *json,
                                        size_t size, struct tw_error *err);

/* Like tw_tokenizer_create_json, from a file of at most TW_TOKENIZER_JSON_BYTES_MAX bytes. Errors
 * name the file. Fails also with TW_IO if it cannot be read. */
enum tw_status tw_tokenizer_create_file(struct tw_tokenizer **tokenizer, const char *path,
                                        struct tw_error *err);

/* NULL is allowed. Destroy its encoders and decoders first. */
void tw_tokenizer_destroy(struct tw_tokenizer *tokenizer);

/* Returns the size of the vocabulary: all token ids are below it, but not every id is in use. */
uint32_t tw_tokenizer_vocab(const struct tw_tokenizer *tokenizer);

/* Returns the smallest number above the ids of all tokens that are not added ones. A model's
 * vocabulary must not be smaller. */
uint32_t tw_tokenizer_normal_vocab(const struct tw_tokenizer *tokenizer);

/* Whether every token is the byte of the same number, as in a byte tokenizer. */
bool tw_tokenizer_is_bytes(const struct tw_tokenizer *tokenizer);

/* Returns the bytes of a token, borrowed from the tokenizer, without a NUL. *size is 0 for an
 * unused id. */
const uint8_t *tw_tokenizer_token(const struct tw_tokenizer *tokenizer, uint32_t token,
                                  size_t *size);

/* Returns the added token with this text, e.g. "<|im_end|>", or TW_TOKEN_NONE. */
uint32_t tw_tokenizer_find(const struct tw_tokenizer *tokenizer, const char *text);

/* Returns the token with this text, added or not, or TW_TOKEN_NONE. */
uint32_t tw_tokenizer_find_any(const struct tw_tokenizer *tokenizer, const char *text);

/* These return the token that begins or ends a text, or TW_TOKEN_NONE. tokenizer.json does not name
 * them: they are the template's first and last token, or an added token with one of the usual
 * names. Other files of a model are more reliable: text_ends.h. */
uint32_t tw_tokenizer_bos(const struct tw_tokenizer *tokenizer);
uint32_t tw_tokenizer_eos(const struct tw_tokenizer *tokenizer);

/* Whether join(encode(x)) = x for every x. Returns false if the file asks for NFC, a prefix space
 * or added tokens that strip white space, or lacks tokens for some bytes. */
bool tw_tokenizer_is_exact(const struct tw_tokenizer *tokenizer);

/* ---- for formats that carry a vocabulary ----------------------------------------------------- */

enum tw_token_kind {
    TW_TOKEN_UNUSED,  /* no token has this id */
    TW_TOKEN_NORMAL,  /* bytes of text */
    TW_TOKEN_CONTROL, /* special token */
    TW_TOKEN_USER,    /* added token that is ordinary text */
};

enum tw_token_kind tw_tokenizer_kind(const struct tw_tokenizer *tokenizer, uint32_t token);

/* Returns llama.cpp's name for this pre-tokenizer, "gpt-2", "llama-bpe", "qwen2" or "smollm", or
 * NULL if it has none. */
const char *tw_tokenizer_split_name(const struct tw_tokenizer *tokenizer);

/* Returns the number of merges. Writes them to pairs, in order, unless pairs is NULL. */
struct tw_token_pair {
    uint32_t left, right, rank;
};

size_t tw_tokenizer_merges(const struct tw_tokenizer *tokenizer, struct tw_token_pair *pairs);

/* puts_bos: whether the template puts exactly one token, the begin token, before a text. puts_eos:
 * whether it puts exactly one token after a text. */
bool tw_tokenizer_puts_bos(const struct tw_tokenizer *tokenizer);
bool tw_tokenizer_puts_eos(const struct tw_tokenizer *tokenizer);

/* Returns the i-th token that the template puts before a text, counted from 0, or TW_TOKEN_NONE. */
uint32_t tw_tokenizer_before(const struct tw_tokenizer *tokenizer, uint32_t i);

/* template_size: number of tokens that the template puts before and after a text. first: the first
 * token before the text. last: the last token after the text. Both may be TW_TOKEN_NONE. */
uint32_t tw_tokenizer_template_size(const struct tw_tokenizer *tokenizer);
uint32_t tw_tokenizer_first(const struct tw_tokenizer *tokenizer);
uint32_t tw_tokenizer_last(const struct tw_tokenizer *tokenizer);

/* Returns an added token that strips white space or matches whole words only, or TW_TOKEN_NONE. */
uint32_t tw_tokenizer_strips(const struct tw_tokenizer *tokenizer);

/* ---- encoding -------------------------------------------------------------------------------- */

/* A growing array of tokens. A zero-initialised one is empty. */
struct tw_tokens {
    uint32_t *tokens; /* (count) used, of `capacity` allocated */
    size_t count, capacity;
};

void tw_tokens_deinit(struct tw_tokens *tokens);

/* One thread's encoding state: a word cache of 2 MiB, and scratch for the longest word. Borrows the
 * tokenizer. */
struct tw_encoder;

enum tw_status tw_encoder_create(struct tw_encoder **encoder, const struct tw_tokenizer *tokenizer,
                                 struct tw_error *err);

void tw_encoder_destroy(struct tw_encoder *encoder); /* NULL is allowed */

enum tw_encode_flags {
    /* encodes names of special tokens in the text as ordinary text; use it for untrusted text */
    TW_ENCODE_PLAIN = 1,
    TW_ENCODE_TEMPLATE = 2, /* adds the tokens of the post-processor's template */
};

/* Appends the tokens of text[bytes]. The tokens depend only on this text, not on earlier calls.
 * Fails with TW_LIMIT if the text exceeds TW_TEXT_BYTES_MAX or a split pattern needs too many
 * steps, or with TW_NOMEM. On failure tokens->count is unchanged. */
enum tw_status tw_encoder_append(struct tw_encoder *encoder, const uint8_t *text, size_t bytes,
                                 enum tw_encode_flags flags, struct tw_tokens *tokens,
                                 struct tw_error *err);

/* Returns the number of bytes so far for which the vocabulary has no token: they were dropped, or
 * encoded as the unknown token. */
uint64_t tw_encoder_lost_bytes(const struct tw_encoder *encoder);

/* Returns the number of names of special tokens so far that TW_ENCODE_PLAIN made ordinary text. */
uint64_t tw_encoder_names(const struct tw_encoder *encoder);

/* ---- decoding -------------------------------------------------------------------------------- */

/* Writes the bytes of tokens (count), concatenated, to text[room]. Unused ids add nothing. Returns
 * the full size, which may exceed room; text then holds the part that fits. */
size_t tw_tokenizer_join(const struct tw_tokenizer *tokenizer, const uint32_t *tokens, size_t count,
                         uint8_t *text, size_t room);

/* Decodes token by token into whole characters; an invalid byte becomes U+FFFD. Zero-initialise all
 * fields but the tokenizer. */
struct tw_decoder {
    const struct tw_tokenizer *tokenizer;
    struct tw_utf8_stream stream;
};

/* Writes the text that this token completes to out[TW_DECODER_BYTES_MAX]. Returns its size in
 * bytes. */
enum { TW_DECODER_BYTES_MAX = 3 * (TW_TOKEN_BYTES_MAX + TW_UTF8_BYTES_MAX) };
size_t tw_decoder_take(struct tw_decoder *decoder, uint32_t token, uint8_t *out);

/* Ends the text: writes U+FFFD for each byte still held. Returns the size written in bytes. */
size_t tw_decoder_end(struct tw_decoder *decoder, uint8_t *out);

#endif
