/* bound.h - time of the matrix products of one training step alone: a lower bound of the step with
 * that library.
 *
 * Products of linear layers and head, forward, gradient of the input and of the weight, over all
 * rows of the step at once; those of attention are left out. Each shape is first timed in several
 * ways: oneDNN over the whole matrix with all threads, plain and with packed weights; and rows and
 * tiles divided among threads that each call the library. Rounds use the fastest way. */
#ifndef TW_TESTS_BENCH_BOUND_H
#define TW_TESTS_BENCH_BOUND_H

#include <stdint.h>

#include "kernels/matmul.h"
#include "proto/run/run.h"

struct bound;

/* TW_NOMEM. rows: of a step, sequences * context. */
enum tw_status bound_create(struct bound **bound, const struct tw_run *run, uint64_t rows,
                            enum tw_type type, uint32_t threads, struct tw_error *err);
void bound_destroy(struct bound *bound);

/* Runs all products once; returns seconds. */
double bound_round(struct bound *bound);
/* Multiplications and additions of a round. */
double bound_flops(const struct bound *bound);
/* The highest rate of any shape, FLOP/s. */
double bound_peak(const struct bound *bound);
/* Prints a line per shape: GFLOP/s of each way to compute it (enum way in bound.c); "*" marks the
 * fastest. */
void bound_print(const struct bound *bound);

#endif
