/* text_ends.h - the tokens that begin, end and pad a text, according to the files of a model.
 *
 * Five files can name them: config.json, generation_config.json, tokenizer_config.json,
 * special_tokens_map.json and tokenizer.json. Generation stops where transformers stops: at the
 * tokens of generation_config.json, else of config.json. Documents end with the token that
 * tokenizer_config.json names. Names such as "</s>" in tokenizer.json count only if no other file
 * names a token. */
#ifndef TW_WORKER_TOKENIZER_TEXT_ENDS_H
#define TW_WORKER_TOKENIZER_TEXT_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/tokenizer/tokenizer_text.h"

enum {
    TW_STOPS_MAX = 16, /* limit of the tokens that end a text */
    /* largest size in bytes of each file but tokenizer.json */
    TW_TEXT_ENDS_BYTES_MAX = 32 * 1024 * 1024,
};

/* Ids of the tokens that begin, end and pad a text. TW_TOKEN_NONE: no file names one. */
struct tw_end_ids {
    uint32_t eos[TW_STOPS_MAX], eos_count;
    uint32_t bos, pad;
};

/* Tokens for generation, for config.json and for documents. They can differ: config.json may have a
 * default id of its class, such as 2 of Llama, that is ordinary text in this vocabulary. Generation
 * stops at this id, as in transformers, but no document ends with it. */
struct tw_text_ends {
    struct tw_end_ids generation; /* ids for generation, which stops at any eos */
    /* ids that config.json names or, if it names none, those of `generation` */
    struct tw_end_ids config;
    struct tw_end_ids tokenizer; /* ids of the tokenizer, for documents, with at most one eos */
    bool is_guessed; /* the eos of `tokenizer` was found only by its usual name in tokenizer.json */
    uint32_t ignored; /* an eos_token_id outside the vocabulary, if no file names a valid one */
    /* whether tokenizer_config.json makes transformers 4 put another token before (after) a text
     * than tokenizer.json, which alone counts for transformers 5 and this program */
    bool begins_otherwise, ends_otherwise;
};

struct tw_text_ends_source {
    const char *model;          /* folder of the model, or a file in it; NULL: none */
    const char *tokenizer_path; /* path of the tokenizer.json; NULL: none, or the one of `model` */
    /* NULL: there is none, so tokens cannot be found by name */
    const struct tw_tokenizer *tokenizer;
    uint32_t vocab;  /* size of the vocabulary, above every valid id */
    const char *eos; /* the user's choice of the end token, as text or number; NULL: none */
};

/* Reads those files that exist in the model's folder and beside tokenizer.json. Fails with
 * TW_CONFIG if the user's choice is no token, with TW_CORRUPT, naming a malformed file, or with
 * TW_IO or TW_NOMEM. */
enum tw_status tw_text_ends_read(struct tw_text_ends *ends,
                                 const struct tw_text_ends_source *source, struct tw_error *err);

/* Whether the token is ordinary text: a byte, or the result of a merge. */
bool tw_tokenizer_is_text(const struct tw_tokenizer *tokenizer, uint32_t token);

/* Returns a token of ordinary text at which generation stops, for a warning, or TW_TOKEN_NONE. */
uint32_t tw_text_ends_text(const struct tw_text_ends *ends, const struct tw_tokenizer *tokenizer);

/* Returns a sentence about begins_otherwise or ends_otherwise, or NULL if both are false. */
const char *tw_text_ends_conflict(const struct tw_text_ends *ends);

/* Sets the results of tw_tokenizer_bos and tw_tokenizer_eos to the tokens in *ends. A token that
 * the template puts before a text stays the begin token. */
void tw_tokenizer_set_ends(struct tw_tokenizer *tokenizer, const struct tw_text_ends *ends);

/* Whether generation stops at this token. */
bool tw_text_ends_at(const struct tw_text_ends *ends, uint32_t token);

#endif
