/* runtime_words.h - error messages that both libraries of runtime.h use (C++). */
#ifndef TW_KERNELS_CUDA_RUNTIME_WORDS_H
#define TW_KERNELS_CUDA_RUNTIME_WORDS_H

#include "kernels/cuda/runtime.h"

static inline double tw_cuda_mib(uint64_t bytes) {
    return (double)bytes / (1u << 20);
}

static inline enum tw_status tw_cuda_say_full(struct tw_error *err, const struct tw_cuda_info *info,
                                              const char *what, uint64_t bytes, uint64_t used,
                                              uint64_t limit) {
    return tw_fail(err, TW_NOMEM,
                   "no memory for %s on cuda:%d (%s): %.1f MiB, with %.1f of %.1f MiB in use; give "
                   "it more memory, a smaller batch, or recompute",
                   what, info->ordinal, info->name, tw_cuda_mib(bytes), tw_cuda_mib(used),
                   tw_cuda_mib(limit));
}

static inline enum tw_status tw_cuda_say_no_host(struct tw_error *err,
                                                 const struct tw_cuda_info *info, const char *what,
                                                 uint64_t bytes) {
    return tw_fail(err, TW_NOMEM,
                   "no page-locked memory for %s (%.1f MiB) beside cuda:%d (%s): free host memory, "
                   "or raise the limit of locked memory",
                   what, tw_cuda_mib(bytes), info->ordinal, info->name);
}

static inline enum tw_status tw_cuda_say_fault(struct tw_error *err,
                                               const struct tw_cuda_info *info, const char *doing,
                                               const char *reason) {
    return tw_fail(err, TW_DEVICE,
                   "cuda:%d (%s) failed %s: %s; start the worker again, and if it comes back look "
                   "for Xid in the kernel's log",
                   info->ordinal, info->name, doing, reason);
}

static inline enum tw_status tw_cuda_say_no_device(struct tw_error *err, int ordinal, int count) {
    if (count == 0)
        return tw_fail(err, TW_CONFIG, "there is no cuda:%d: this machine shows no CUDA device",
                       ordinal);
    return tw_fail(err, TW_CONFIG, "there is no cuda:%d: this machine has cuda:0 to cuda:%d",
                   ordinal, count - 1);
}

#endif
