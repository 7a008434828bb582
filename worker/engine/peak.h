/* peak.h - measures the GEMM rate of this machine, the denominator of model FLOPs utilisation
 * (MFU).
 *
 * All threads multiply a block of activations with weights of several sizes. Each thread's best
 * time by its own CPU clock counts, so that other processes hardly lower the rate.
 *
 * The rate can still be too low: another process may share the core, the clock frequency may rise
 * later, or a hypervisor may take time away. The caller that computes MFU therefore raises the rate
 * to that of every faster step (tw_peak_raise), so MFU never exceeds 1. MFU compares a step with
 * GEMMs on this machine, not with the peak of a data sheet. */
#ifndef TW_WORKER_ENGINE_PEAK_H
#define TW_WORKER_ENGINE_PEAK_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/matmul.h"

/* Stores floating-point operations per second in *flops_s. Takes 0.1 to 0.2 s and starts its own
 * threads. Errors: TW_NOMEM. */
enum tw_status tw_peak_measure(const struct tw_matmul_library *library, enum tw_type type,
                               uint32_t threads, double *flops_s, struct tw_error *err);

/* Sets *flops_s to max(*flops_s, reached), if `reached` is finite. */
void tw_peak_raise(double *flops_s, double reached);

#endif
