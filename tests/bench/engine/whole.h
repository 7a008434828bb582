/* whole.h - one product over whole matrices with all threads of oneDNN's own pool. */
#ifndef TW_TESTS_BENCH_WHOLE_H
#define TW_TESTS_BENCH_WHOLE_H

#include "kernels/matmul.h"

struct whole;

/* NULL: built without oneDNN, or it has no such product. is_packed: b has the library's preferred
 * layout; packing is not timed, because contents do not matter. */
struct whole *whole_create(const struct tw_matmul *product, bool is_packed, uint32_t threads);
void whole_destroy(struct whole *whole); /* NULL is allowed */
void whole_run(struct whole *whole, void *y, const void *a, void *b);

#endif
