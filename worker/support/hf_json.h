/* hf_json.h - the JSON files beside a model, read strictly: bounded, no key twice. */
#ifndef TW_WORKER_SUPPORT_HF_JSON_H
#define TW_WORKER_SUPPORT_HF_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

enum { TW_HF_SHOWN_BYTES = 48 };

/* *root_out is an object, the caller's to json_decref. TW_CORRUPT names line and column; TW_NOMEM.
 */
enum tw_status tw_hf_json_parse(json_t **root_out, const char *json, size_t size, size_t bytes_max,
                                struct tw_error *err);

/* A value as a person may see it in a message: compact, ASCII, cut short, "nothing" for NULL. */
const char *tw_hf_show(const json_t *value, char shown[TW_HF_SHOWN_BYTES]);

#endif
