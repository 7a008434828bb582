/* tokenizer_json.h - the parts of a tokenizer.json, for the files that read them. */
#ifndef TW_WORKER_TOKENIZER_TOKENIZER_JSON_H
#define TW_WORKER_TOKENIZER_TOKENIZER_JSON_H

#include "worker/support/hf_json.h"
#include "worker/tokenizer/tokenizer_inner.h"

/* "WHAT VALUE is not supported; SUPPORTED". */
enum tw_status tw_tokenizer_refuse(struct tw_error *err, const char *what, const json_t *value,
                                   const char *supported);

/* object[key], or NULL where it is missing or null; object may be NULL. */
const json_t *tw_tokenizer_part(const json_t *object, const char *key);

/* object[key] as a string, or "". */
const char *tw_tokenizer_word(const json_t *object, const char *key);

/* object[key] as a boolean, or `otherwise` where it is none. */
bool tw_tokenizer_flag(const json_t *object, const char *key, bool otherwise);

/* Vocabulary, merges, added tokens. TW_CONFIG, TW_CORRUPT, TW_NOMEM. */
enum tw_status tw_tokenizer_read_model(struct tw_tokenizer *tokenizer, const json_t *root,
                                       struct tw_error *err);

/* Normalizer, pre-tokenizer, post-processor, decoder, after the model. */
enum tw_status tw_tokenizer_read_steps(struct tw_tokenizer *tokenizer, const json_t *root,
                                       struct tw_error *err);

/* Added tokens, after the model and the normalizer. */
enum tw_status tw_tokenizer_read_added(struct tw_tokenizer *tokenizer, const json_t *root,
                                       struct tw_error *err);

#endif
