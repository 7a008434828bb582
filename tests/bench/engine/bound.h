/* bound.h - time of the matrix products of one training step: a lower bound of the step's time with
 * that matrix library.
 *
 * The bound has the products of linear layers and head (forward, gradient of the input, gradient of
 * the weight), each over all rows of the step at once. Attention is left out. Each shape is first
 * timed in several ways: oneDNN over the whole matrix with all threads, with plain and with packed
 * weights; and rows and tiles divided among threads that each call the library. Rounds use the
 * fastest way. */
#ifndef TW_TESTS_BENCH_BOUND_H
#define TW_TESTS_BENCH_BOUND_H

#include <stdint.h>

#include "kernels/matmul.h"
#include "proto/run/run.h"

struct bound;

/* Prepares the products of a step with `rows` = sequences * context. Fails with TW_NOMEM. */
enum tw_status bound_create(struct bound **bound, const struct tw_run *run, uint64_t rows,
                            enum tw_type type, uint32_t threads, struct tw_error *err);
void bound_destroy(struct bound *bound);

/* Runs all products once. Returns the seconds. */
double bound_round(struct bound *bound);
/* Returns the number of multiplications and additions in a round. */
double bound_flops(const struct bound *bound);
/* Returns the highest rate of any shape, in FLOP/s. */
double bound_peak(const struct bound *bound);
/* Prints a line per shape with the GFLOP/s of each way (enum way in bound.c). A "*" marks the
 * fastest. */
void bound_print(const struct bound *bound);

#endif
