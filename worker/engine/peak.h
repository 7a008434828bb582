/* peak.h - what this machine's matrix products reach: the yardstick of model FLOPs utilisation.
 *
 * Measured, not computed: products of a block of activations with weights of several sizes, on all
 * threads at a time, each thread's best by its own clock of CPU time, so that a busy neighbour does
 * not lower the yardstick much. It can still be too low: a neighbour that shares the core, a clock
 * that rises later, a hypervisor that gives the time to others. So who computes MFU raises it by
 * every step (tw_peak_raise), and MFU is never above 1. It says how much of a step is products at
 * their best; it is no share of what the data sheet promises. */
#ifndef TW_WORKER_ENGINE_PEAK_H
#define TW_WORKER_ENGINE_PEAK_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/matmul.h"

/* Operations per second into *flops_s; takes a tenth of a second or two, and threads of its own
 * meanwhile. TW_NOMEM. */
enum tw_status tw_peak_measure(const struct tw_matmul_library *library, enum tw_type type,
                               uint32_t threads, double *flops_s, struct tw_error *err);

/* *flops_s := the greater of it and `reached`, where that is finite. */
void tw_peak_raise(double *flops_s, double reached);

#endif
