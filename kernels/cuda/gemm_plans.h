/* gemm_plans.h - the plan (algorithm) of each GEMM shape, and the file that caches the plans.
 *
 * The file is local to this machine: a header, an entry per plan, a checksum, little-endian. The
 * file is read completely or not at all. The library still checks each plan that was read. */
#ifndef TW_KERNELS_CUDA_GEMM_PLANS_H
#define TW_KERNELS_CUDA_GEMM_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/cuda/gemm.h"

enum { TW_GEMM_KEY_WORDS = 16, TW_GEMM_ALGO_WORDS = 8, TW_GEMM_OWNER_BYTES = 128 };

/* All values that the choice of an algorithm may depend on. */
struct tw_gemm_key {
    uint64_t words[TW_GEMM_KEY_WORDS];
};

struct tw_gemm_plan {
    uint64_t algo[TW_GEMM_ALGO_WORDS]; /* opaque to us, defined by the library */
    uint64_t workspace_bytes;
    uint64_t is_fused; /* 1 if the library computes the epilogue; 0 if separate kernels do */
    uint64_t is_timed; /* 1 if the algorithm was timed; 0 if it is a guess, which is not saved to
                          the file */
};

struct tw_gemm_plans {
    char owner[TW_GEMM_OWNER_BYTES]; /* names of device and library, padded with zeros */
    uint32_t count, oldest;
    bool is_changed; /* true if plans changed since the file was read or written */
    struct tw_gemm_key keys[TW_CUDA_GEMM_PLANS_MAX];
    struct tw_gemm_plan plans[TW_CUDA_GEMM_PLANS_MAX];
};

/* Returns the key of a GEMM, which does not depend on is_added. `align` is the largest power of
 * two, up to 256, that divides every address. */
struct tw_gemm_key tw_gemm_key(const struct tw_cuda_gemm *gemm, uint32_t align);

/* Initialises an empty list of plans for this owner. */
void tw_gemm_plans_init(struct tw_gemm_plans *plans, const char *owner);

/* Returns the slot of the key, or TW_CUDA_GEMM_PLANS_MAX if there is none. */
uint32_t tw_gemm_plans_find(const struct tw_gemm_plans *plans, const struct tw_gemm_key *key);

/* Stores a plan in the slot of its key, in a free slot, or in place of the oldest plan. Returns the
 * index of the slot. */
uint32_t tw_gemm_plans_put(struct tw_gemm_plans *plans, const struct tw_gemm_key *key,
                           const struct tw_gemm_plan *plan);

/* Returns `path` itself or, if it is a folder (ends in '/'), the file in it for that kind of
 * device. The caller frees the path. Returns NULL if there is no memory. */
char *tw_gemm_plans_path(const char *path, const char *device);

/* Returns true if the file exists, is complete and has this owner; otherwise the plans are
 * unchanged. */
bool tw_gemm_plans_read(struct tw_gemm_plans *plans, const char *path);

/* Replaces the file atomically, by a rename. Errors: TW_IO. */
enum tw_status tw_gemm_plans_write(struct tw_gemm_plans *plans, const char *path,
                                   struct tw_error *err);

#endif
