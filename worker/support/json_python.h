/* json_python.h - rewrites JSON in Python's dialect into JSON that jansson reads. */
#ifndef TW_WORKER_SUPPORT_JSON_PYTHON_H
#define TW_WORKER_SUPPORT_JSON_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Integers beyond 64 bits become real numbers. NaN and infinite numbers become strings with these
 * names, which no reader mistakes for numbers. with_strings: \u0000 and a lone surrogate become
 * U+FFFD in strings. *out (*out_size) belongs to the caller; it is NULL if nothing had to be
 * rewritten. Text that is not JSON is copied. Fails with TW_NOMEM. */
enum tw_status tw_json_python(const char *json, size_t size, bool with_strings, char **out,
                              size_t *out_size, struct tw_error *err);

#endif
