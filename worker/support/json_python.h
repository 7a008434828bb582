/* json_python.h - rewrites the JSON that Python writes and reads into JSON that jansson reads. */
#ifndef TW_WORKER_SUPPORT_JSON_PYTHON_H
#define TW_WORKER_SUPPORT_JSON_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Integers beyond 64 bits become real numbers. NaN and infinite numbers become strings with these
 * names, which no reader takes for numbers. with_strings: \u0000 and half a surrogate pair become
 * U+FFFD in strings. *out (*out_size) belongs to the caller; NULL: there was nothing to rewrite.
 * Text that is no JSON is copied. TW_NOMEM. */
enum tw_status tw_json_python(const char *json, size_t size, bool with_strings, char **out,
                              size_t *out_size, struct tw_error *err);

#endif
