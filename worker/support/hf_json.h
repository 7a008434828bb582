/* hf_json.h - parses the JSON files of a model, with bounded size, no duplicate keys, and numbers
 * as Python writes them. */
#ifndef TW_WORKER_SUPPORT_HF_JSON_H
#define TW_WORKER_SUPPORT_HF_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { TW_HF_SHOWN_BYTES = 48 };

/* Parses an object into *root_out, which the caller releases with json_decref. The message of
 * TW_CORRUPT names line and column. Fails also with TW_NOMEM. */
enum tw_status tw_hf_json_parse(json_t **root_out, const char *json, size_t size, size_t bytes_max,
                                struct tw_error *err);

/* Like tw_hf_json_parse, for a file whose strings are tokens. A string that jansson cannot
 * represent is refused instead of changed. */
enum tw_status tw_hf_json_parse_exact(json_t **root_out, const char *json, size_t size,
                                      size_t bytes_max, struct tw_error *err);

/* Returns object[key] if it is a string, else "". */
const char *tw_hf_word(const json_t *object, const char *key);

/* Returns object[key] if it is a boolean, else `otherwise`. */
bool tw_hf_flag(const json_t *object, const char *key, bool otherwise);

/* Formats a value for a message: compact, ASCII, truncated, "nothing" for NULL. */
const char *tw_hf_show(const json_t *value, char shown[TW_HF_SHOWN_BYTES]);

/* ---- rewrites JSON in Python's dialect into JSON that jansson reads -------------------------- */

/* Integers beyond 64 bits become real numbers. NaN and infinite numbers become strings with these
 * names, which no reader mistakes for numbers. with_strings: \u0000 and a lone surrogate become
 * U+FFFD in strings. *out (*out_size) belongs to the caller; it is NULL if nothing had to be
 * rewritten. Text that is not JSON is copied. Fails with TW_NOMEM. */
enum tw_status tw_json_python(const char *json, size_t size, bool with_strings, char **out,
                              size_t *out_size, struct tw_error *err);

#endif
