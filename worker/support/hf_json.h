/* hf_json.h - reading of the JSON files of a model: bounded size, no duplicate keys, and numbers as
 * Python writes them (json_python.h). */
#ifndef TW_WORKER_SUPPORT_HF_JSON_H
#define TW_WORKER_SUPPORT_HF_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

enum { TW_HF_SHOWN_BYTES = 48 };

/* Parses an object into *root_out, which the caller releases with json_decref. TW_CORRUPT names
 * line and column; TW_NOMEM. */
enum tw_status tw_hf_json_parse(json_t **root_out, const char *json, size_t size, size_t bytes_max,
                                struct tw_error *err);

/* Like tw_hf_json_parse, for a file whose strings are tokens: a string that jansson cannot hold is
 * refused, not changed. */
enum tw_status tw_hf_json_parse_exact(json_t **root_out, const char *json, size_t size,
                                      size_t bytes_max, struct tw_error *err);

/* Formats a value for a message: compact, ASCII, truncated, "nothing" for NULL. */
const char *tw_hf_show(const json_t *value, char shown[TW_HF_SHOWN_BYTES]);

#endif
