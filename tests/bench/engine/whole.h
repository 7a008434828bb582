/* whole.h - one matrix product over whole matrices, with all threads of oneDNN's own pool. */
#ifndef TW_TESTS_BENCH_WHOLE_H
#define TW_TESTS_BENCH_WHOLE_H

#include "kernels/matmul.h"

struct whole;

/* Returns NULL if oneDNN is not built in or has no such product. If is_packed, b has the layout
 * that the library prefers. Packing is not timed. */
struct whole *whole_create(const struct tw_matmul *product, bool is_packed, uint32_t threads);
void whole_destroy(struct whole *whole); /* NULL is allowed */
void whole_run(struct whole *whole, void *y, const void *a, void *b);

#endif
