/* tokenizer_text.h - text to token numbers and back: bytes, or a byte-level BPE from
 * tokenizer.json.
 *
 * Ids are those of Hugging Face's `tokenizers` for the layouts of GPT-2, Llama 3, Qwen 2 and 3 and
 * SmolLM: normalizer none or NFC; pre-tokenizer ByteLevel, Split by a pattern, Digits and sequences
 * of these that end in ByteLevel; a BPE model with or without ignore_merges; post-processor none,
 * ByteLevel or TemplateProcessing; added tokens of every kind. What else a file may ask for is
 * refused by name. `truncation` and `padding` are not looked at: no text is cut here.
 *
 * Text is bytes. Where it is not valid UTF-8 (RFC 3629), which that package cannot be given, each
 * byte that no character can come of becomes the token of that byte, and the text before and after
 * it is encoded as if it were a text of its own. So join(encode(x)) = x for every x, valid or not,
 * if the tokenizer is exact (tw_tokenizer_is_exact).
 *
 * Four differences from the package are known. Characters that Unicode assigned after version 14
 * may be split otherwise, as PCRE2 knows them or not. NFC orders and composes the marks that
 * Unicode assigned in its versions 10 to 14, 98 of them, which the package leaves as they stand. A
 * word of more than TW_WORD_BYTES_MAX bytes is merged in parts. And an added token decodes to its
 * own text, always. */
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
    TW_TOKEN_BYTES_MAX = 1024,   /* text of one token */
    TW_WORD_BYTES_MAX = 2 << 20, /* merged at once, at 36 bytes of memory each */
    TW_TEXT_BYTES_MAX = 1 << 30, /* encoded in one call */
    TW_WORDS_CACHED = 1 << 15,   /* by one encoder, at 64 bytes of memory each */
};

/* Immutable: any number of threads may use one. */
struct tw_tokenizer;

/* *tokenizer is the caller's to destroy. A token is a byte, vocabulary 256. TW_NOMEM. */
enum tw_status tw_tokenizer_create_bytes(struct tw_tokenizer **tokenizer, struct tw_error *err);

/* From the bytes of a tokenizer.json, untrusted. TW_CONFIG names what is not supported, and what
 * is; TW_CORRUPT: malformed; TW_NOMEM. The file takes about ten times its bytes of memory while it
 * is read. */
enum tw_status tw_tokenizer_create_json(struct tw_tokenizer **tokenizer, const char *json,
                                        size_t size, struct tw_error *err);

/* From a file of at most TW_TOKENIZER_JSON_BYTES_MAX; errors name it. TW_IO: it cannot be read. */
enum tw_status tw_tokenizer_create_file(struct tw_tokenizer **tokenizer, const char *path,
                                        struct tw_error *err);

/* NULL is fine. No encoder or decoder of it may be left. */
void tw_tokenizer_destroy(struct tw_tokenizer *tokenizer);

/* Every token is smaller than this; not every smaller number need be a token. */
uint32_t tw_tokenizer_vocab(const struct tw_tokenizer *tokenizer);

/* The bytes of a token, within the tokenizer, not ended by NUL; *size is 0 for what is no token. */
const uint8_t *tw_tokenizer_token(const struct tw_tokenizer *tokenizer, uint32_t token,
                                  size_t *size);

/* Whether it is a special token: one that means something and is no text. */
bool tw_tokenizer_is_special(const struct tw_tokenizer *tokenizer, uint32_t token);

/* The added token with this text, e.g. "<|im_end|>", or TW_TOKEN_NONE. */
uint32_t tw_tokenizer_find(const struct tw_tokenizer *tokenizer, const char *text);

/* What begins a text and what ends one, or TW_TOKEN_NONE. tokenizer.json does not say; this is what
 * the template puts there, or an added token with one of the names that are usual. */
uint32_t tw_tokenizer_bos(const struct tw_tokenizer *tokenizer);
uint32_t tw_tokenizer_eos(const struct tw_tokenizer *tokenizer);

/* Whether join(encode(x)) = x for every x. Not so where the file asks for NFC, for a space before
 * the text, for added tokens that take white space along, or lacks tokens for some bytes. */
bool tw_tokenizer_is_exact(const struct tw_tokenizer *tokenizer);

/* ---- for formats that carry a vocabulary ------------------------------------------------------
 */

enum tw_token_kind {
    TW_TOKEN_UNUSED,  /* no token has this number */
    TW_TOKEN_NORMAL,  /* bytes of text */
    TW_TOKEN_CONTROL, /* special */
    TW_TOKEN_USER,    /* added, and text */
};
enum tw_token_kind tw_tokenizer_kind(const struct tw_tokenizer *tokenizer, uint32_t token);

/* How llama.cpp calls its way to split text: "gpt-2", "llama-bpe", "qwen2", "smollm". NULL: it has
 * no name there. */
const char *tw_tokenizer_split_name(const struct tw_tokenizer *tokenizer);

/* How many merges there are; into pairs (as many), in their order, unless pairs is NULL. */
struct tw_token_pair {
    uint32_t left, right, rank;
};
size_t tw_tokenizer_merges(const struct tw_tokenizer *tokenizer, struct tw_token_pair *pairs);

/* Whether the template puts the begin before a text, and the end after it. */
bool tw_tokenizer_puts_bos(const struct tw_tokenizer *tokenizer);
bool tw_tokenizer_puts_eos(const struct tw_tokenizer *tokenizer);

/* ---- encoding -------------------------------------------------------------------------------- */

/* Tokens in memory that grows. Zero-initialised is empty. */
struct tw_tokens {
    uint32_t *tokens; /* (count of capacity) */
    size_t count, capacity;
};
void tw_tokens_deinit(struct tw_tokens *tokens);

/* One thread's memory for encoding: 2 MiB of cached words, and what the longest word takes. Owns
 * itself, borrows the tokenizer. */
struct tw_encoder;

enum tw_status tw_encoder_create(struct tw_encoder **encoder, const struct tw_tokenizer *tokenizer,
                                 struct tw_error *err);
void tw_encoder_destroy(struct tw_encoder *encoder); /* NULL is fine */

enum tw_encode_flags {
    TW_ENCODE_PLAIN = 1,    /* special tokens written in the text are text: for text of strangers */
    TW_ENCODE_TEMPLATE = 2, /* puts around it what the post-processor asks for */
};

/* Appends the tokens of text[bytes]. Same text, same tokens, whatever was encoded before. TW_LIMIT:
 * more than TW_TEXT_BYTES_MAX, or a split pattern that takes too many steps; TW_NOMEM. On failure
 * tokens->count is as before. */
enum tw_status tw_encoder_append(struct tw_encoder *encoder, const uint8_t *text, size_t bytes,
                                 enum tw_encode_flags flags, struct tw_tokens *tokens,
                                 struct tw_error *err);

/* Bytes so far for which the vocabulary has no token: left out, or the unknown token's. */
uint64_t tw_encoder_lost_bytes(const struct tw_encoder *encoder);

/* ---- decoding -------------------------------------------------------------------------------- */

/* The bytes of tokens (count), one after the other, into text[room]; nothing for what is no token.
 * Returns how many there are, which may be more than room: then text holds what fits. */
size_t tw_tokenizer_join(const struct tw_tokenizer *tokenizer, const uint32_t *tokens, size_t count,
                         uint8_t *text, size_t room);

/* Text as it comes, token by token: characters come out whole, and U+FFFD for bytes that are none.
 * Zero-initialise but for the tokenizer. */
struct tw_decoder {
    const struct tw_tokenizer *tokenizer;
    struct tw_utf8_stream stream;
};

/* Writes what is settled by this token into out[TW_DECODER_BYTES_MAX]. Returns its bytes. */
enum { TW_DECODER_BYTES_MAX = 3 * (TW_TOKEN_BYTES_MAX + TW_UTF8_BYTES_MAX) };
size_t tw_decoder_take(struct tw_decoder *decoder, uint32_t token, uint8_t *out);

/* No token comes any more: U+FFFD for what is left. */
size_t tw_decoder_end(struct tw_decoder *decoder, uint8_t *out);

#endif
