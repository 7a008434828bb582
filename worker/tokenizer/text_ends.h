/* text_ends.h - the tokens that begin, end and pad a text, as the files of a model say.
 *
 * Five files can say it: config.json, generation_config.json, tokenizer_config.json,
 * special_tokens_map.json and tokenizer.json. Generation stops where transformers stops: at the
 * tokens of generation_config.json, else of config.json. Documents end with the token that
 * tokenizer_config.json names. Names such as "</s>" in tokenizer.json count only where no other
 * file says anything. */
#ifndef TW_WORKER_TOKENIZER_TEXT_ENDS_H
#define TW_WORKER_TOKENIZER_TEXT_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/tokenizer/tokenizer_text.h"

enum {
    TW_STOPS_MAX = 16, /* most tokens that end a text */
    TW_TEXT_ENDS_BYTES_MAX =
        32 * 1024 * 1024, /* largest size of each file but tokenizer.json, in bytes */
};

/* Ids of the tokens that begin, end and pad a text. TW_TOKEN_NONE: no file names one. */
struct tw_end_ids {
    uint32_t eos[TW_STOPS_MAX], eos_count;
    uint32_t bos, pad;
};

/* An id that config.json has from the defaults of its class, such as 2 in Llama's, may be a token
 * of text in this vocabulary. Generation stops there, as in transformers; a document does not end
 * with it. */
struct tw_text_ends {
    struct tw_end_ids generation; /* generation stops at any eos */
    struct tw_end_ids
        config; /* ids that config.json names; if it names none, those of `generation` */
    struct tw_end_ids tokenizer; /* ids of the tokenizer, for documents: at most one eos */
    bool is_guessed;  /* the eos of `tokenizer` is known only by its usual name in tokenizer.json */
    uint32_t ignored; /* an eos_token_id outside the vocabulary, if no file names another one */
    /* tokenizer_config.json makes transformers 4 put another token before (after) a text than
     * tokenizer.json, which alone counts for transformers 5 and for this program */
    bool begins_otherwise, ends_otherwise;
};

struct tw_text_ends_source {
    const char *model;          /* folder of the model, or a file in it; NULL: none */
    const char *tokenizer_path; /* path of the tokenizer.json; NULL: none, or that of `model` */
    const struct tw_tokenizer
        *tokenizer;  /* NULL: there is none, so names of tokens are not looked up */
    uint32_t vocab;  /* size of the vocabulary: ids are below it */
    const char *eos; /* the user's choice: text or number; NULL: none */
};

/* Reads the files that exist in the model's folder and beside the tokenizer.json. TW_CONFIG: the
 * user's choice is no token; TW_CORRUPT names a malformed file; TW_IO; TW_NOMEM. */
enum tw_status tw_text_ends_read(struct tw_text_ends *ends,
                                 const struct tw_text_ends_source *source, struct tw_error *err);

/* Whether the token stands for text: it is a byte, or made of other tokens by a merge. */
bool tw_tokenizer_is_text(const struct tw_tokenizer *tokenizer, uint32_t token);

/* A text token at which generation stops, for a warning; TW_TOKEN_NONE: there is none. */
uint32_t tw_text_ends_text(const struct tw_text_ends *ends, const struct tw_tokenizer *tokenizer);

/* A sentence about begins_otherwise or ends_otherwise; NULL: both are false. */
const char *tw_text_ends_conflict(const struct tw_text_ends *ends);

/* Makes tw_tokenizer_bos and tw_tokenizer_eos say the same. A token that the template puts before a
 * text stays the begin token. */
void tw_tokenizer_set_ends(struct tw_tokenizer *tokenizer, const struct tw_text_ends *ends);

/* Whether generation stops at this token. */
bool tw_text_ends_at(const struct tw_text_ends *ends, uint32_t token);

#endif
