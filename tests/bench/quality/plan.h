/* plan.h - a plan: one case per line, with grids.
 *
 *     # comment
 *     default model=small nodes=8 seed=1,2,3       for the lines below, until the next default
 *     alone   kind=alone train.lr=0.002,0.004      name, then key=value; lists make a grid
 *
 * A line's pairs override those of `default`. Lists are expanded, the last key fastest. */
#ifndef TW_TESTS_QUALITY_PLAN_H
#define TW_TESTS_QUALITY_PLAN_H

#include "tests/bench/quality/setting.h"

enum { PLAN_CASES_MAX = 4096, PLAN_BYTES_MAX = 1 << 20 };

struct plan {
    struct setting *cases; /* heap */
    uint32_t count;
};

/* Heap. TW_CONFIG names the line; two cases must not have the same id. */
enum tw_status plan_parse(struct plan *plan, const char *words, const struct tw_id *text,
                          struct tw_error *err);
void plan_free(struct plan *plan);

#endif
