/* tokenizer_json.h - helpers shared by the readers of a tokenizer.json's parts, and these
 * readers. */
#ifndef TW_WORKER_TOKENIZER_TOKENIZER_JSON_H
#define TW_WORKER_TOKENIZER_TOKENIZER_JSON_H

#include "worker/support/hf_json.h"
#include "worker/tokenizer/tokenizer_inner.h"

/* Fails with the message "WHAT VALUE is not supported: SUPPORTED". */
enum tw_status tw_tokenizer_refuse(struct tw_error *err, const char *what, const json_t *value,
                                   const char *supported);

/* Returns object[key], or NULL if it is missing or null. object may be NULL. */
const json_t *tw_tokenizer_part(const json_t *object, const char *key);

/* Returns object[key] if it is a string, else "". */
const char *tw_tokenizer_word(const json_t *object, const char *key);

/* Returns object[key] if it is a boolean, else `otherwise`. */
bool tw_tokenizer_flag(const json_t *object, const char *key, bool otherwise);

/* Reads vocabulary and merges. Fails with TW_CONFIG, TW_CORRUPT or TW_NOMEM. */
enum tw_status tw_tokenizer_read_model(struct tw_tokenizer *tokenizer, const json_t *root,
                                       struct tw_error *err);

/* Reads normalizer, pre-tokenizer, post-processor and decoder. Call after the model is read. */
enum tw_status tw_tokenizer_read_steps(struct tw_tokenizer *tokenizer, const json_t *root,
                                       struct tw_error *err);

/* Reads added tokens. Call after the model and the normalizer are read. */
enum tw_status tw_tokenizer_read_added(struct tw_tokenizer *tokenizer, const json_t *root,
                                       struct tw_error *err);

#endif
