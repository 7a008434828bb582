/* results.h - a line of JSON per finished case, which a continued plan does not repeat. */
#ifndef TW_TESTS_QUALITY_RESULTS_H
#define TW_TESTS_QUALITY_RESULTS_H

#include <stdbool.h>

#include "tests/bench/quality/measure.h"

/* Returns true if the file at `path` has the case. A line truncated by a kill does not count. */
bool results_have(const char *path, const struct tw_id *id);

/* Returns the number of cases run by another build of the program, whose results may not be
 * comparable. */
unsigned results_foreign(const char *path, const struct tw_id *program);

/* Appends a case. The line does not depend on time or speed. `program` is the SHA-256 of the bench.
 * Fails with TW_IO. */
enum tw_status results_add(const char *path, const struct setting *setting,
                           const struct texts *texts, const struct tw_id *program,
                           const struct outcome *outcome, struct tw_error *err);

#endif
