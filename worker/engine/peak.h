/* peak.h - measures the rate of matrix products on this machine, the denominator of model FLOPs
 * utilisation (MFU).
 *
 * All threads multiply a block of activations with weights of several sizes. Each thread's best
 * time by its own CPU clock counts, so that other processes hardly lower the rate.
 *
 * The rate can still be too low: another process may share the core, the clock frequency may rise
 * later, or a hypervisor may take time away. The caller that computes MFU therefore raises the rate
 * by every faster step (tw_peak_raise), so MFU never exceeds 1. MFU compares a step with matrix
 * products on this machine, not with the peak of a data sheet. */
#ifndef TW_WORKER_ENGINE_PEAK_H
#define TW_WORKER_ENGINE_PEAK_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/matmul.h"

/* Stores operations per second in *flops_s. Takes 0.1 to 0.2 s and starts threads of its own.
 * TW_NOMEM. */
enum tw_status tw_peak_measure(const struct tw_matmul_library *library, enum tw_type type,
                               uint32_t threads, double *flops_s, struct tw_error *err);

/* *flops_s := max(*flops_s, reached), if `reached` is finite. */
void tw_peak_raise(double *flops_s, double reached);

#endif
