/* hf_json.h - parses the JSON files of a model, with bounded size, no duplicate keys, and numbers
 * as Python writes them (json_python.h). */
#ifndef TW_WORKER_SUPPORT_HF_JSON_H
#define TW_WORKER_SUPPORT_HF_JSON_H

#include <jansson.h>
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

/* Formats a value for a message: compact, ASCII, truncated, "nothing" for NULL. */
const char *tw_hf_show(const json_t *value, char shown[TW_HF_SHOWN_BYTES]);

#endif
