/* results.h - a line of JSON per finished case; what a plan that goes on does not do again. */
#ifndef TW_TESTS_QUALITY_RESULTS_H
#define TW_TESTS_QUALITY_RESULTS_H

#include <stdbool.h>

#include "tests/bench/quality/measure.h"

/* Does the file at path hold the case? A line that was cut off by a kill does not count. */
bool results_have(const char *path, const struct tw_id *id);

/* Cases in it that another build of the program has run: what they came to may not compare. */
unsigned results_foreign(const char *path, const struct tw_id *program);

/* Appends the case. Nothing of it depends on when or how fast it ran. program: SHA-256 of the
 * bench. TW_IO. */
enum tw_status results_add(const char *path, const struct setting *setting,
                           const struct tw_id *program, const struct outcome *outcome,
                           struct tw_error *err);

#endif
