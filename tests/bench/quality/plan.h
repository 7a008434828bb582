/* plan.h - a plan: one case per line, or a grid of cases.
 *
 *     # comment
 *     default model=small nodes=8 seed=1,2,3       for the lines below, until the next default
 *     alone   kind=alone train.lr=0.002,0.004      name, then key=value; lists make a grid
 *
 * A line's pairs override those of `default`. A line gives one case per combination of listed
 * values, in which the last key changes fastest. */
#ifndef TW_TESTS_QUALITY_PLAN_H
#define TW_TESTS_QUALITY_PLAN_H

#include "tests/bench/quality/setting.h"
#include "tests/bench/quality/texts.h"

enum { PLAN_CASES_MAX = 4096, PLAN_BYTES_MAX = 1 << 20 };

struct plan {
    struct setting *cases; /* heap */
    uint32_t count;
};

/* Reads a plan. Cases are on the heap. The message of TW_CONFIG names the line. No two cases may
 * have the same id. */
enum tw_status plan_parse(struct plan *plan, const char *words, const struct texts *texts,
                          struct tw_error *err);
void plan_free(struct plan *plan);

#endif
