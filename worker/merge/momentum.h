/* momentum.h - outer steps on the momentum u in the type in which a run keeps it.
 *
 * A step computes in float32. With bf16, u is then rounded to nearest even; phi takes its step with
 * u as it was before. Without momentum, u begins each step at 0 and is dropped after it. All nodes
 * compute the same bits, because the type belongs to the manifest and rounding keeps no state. */
#ifndef TW_WORKER_MERGE_MOMENTUM_H
#define TW_WORKER_MERGE_MOMENTUM_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/outer.h"
#include "proto/run/run.h"

/* One outer step of elements [begin, begin + n). phi and u: arrays of the fragment, in/out. */
struct tw_momentum_step {
    enum tw_momentum momentum;
    float *phi;
    void *u; /* not touched where `momentum` is NONE */
    size_t begin, n;
};

/* The two outer steps and the pull of kernels/outer.h. delta, own, theirs (n) begin at `begin`. */
void tw_momentum_nesterov(const struct tw_momentum_step *step, const float *delta,
                          struct tw_outer rule);
void tw_momentum_heavyball(const struct tw_momentum_step *step, const float *delta,
                           struct tw_outer rule);
void tw_momentum_pull(const struct tw_momentum_step *step, const float *own, const float *theirs,
                      float half);

/* Returns the sum of squares of u[begin .. begin + n), in a fixed order; 0 where there is no u. */
double tw_momentum_squared(enum tw_momentum momentum, const void *u, size_t begin, size_t n);

/* Returns whether all n elements of u are finite. bf16 rounds values near the largest up to
 * infinity. */
bool tw_momentum_is_finite(enum tw_momentum momentum, const void *u, size_t n);

#endif
