/* gemm_plans.h - which algorithm each shape of product is done by, and the file that keeps it.
 *
 * The file is this machine's own cache: a header, an entry per plan, a checksum, little-endian. It
 * is read whole or not at all; what it says is still put before the library's own check. */
#ifndef TW_KERNELS_CUDA_GEMM_PLANS_H
#define TW_KERNELS_CUDA_GEMM_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/cuda/gemm.h"

enum { TW_GEMM_KEY_WORDS = 16, TW_GEMM_ALGO_WORDS = 8, TW_GEMM_OWNER_BYTES = 128 };

/* All that the choice of an algorithm may depend on. */
struct tw_gemm_key {
    uint64_t words[TW_GEMM_KEY_WORDS];
};

struct tw_gemm_plan {
    uint64_t algo[TW_GEMM_ALGO_WORDS]; /* the library's own words */
    uint64_t workspace_bytes;
    uint64_t is_fused; /* 0: what follows the product is done after it */
};

struct tw_gemm_plans {
    char owner[TW_GEMM_OWNER_BYTES]; /* the device and the library, in words; zeros after them */
    uint32_t count, oldest;
    bool is_changed; /* since the file was read or written */
    struct tw_gemm_key keys[TW_CUDA_GEMM_PLANS_MAX];
    struct tw_gemm_plan plans[TW_CUDA_GEMM_PLANS_MAX];
};

/* `align`: the power of two, at most 256, that every address is a multiple of. */
struct tw_gemm_key tw_gemm_key(const struct tw_cuda_gemm *gemm, uint32_t align);

/* Empty. */
void tw_gemm_plans_init(struct tw_gemm_plans *plans, const char *owner);

/* The slot of that key; TW_CUDA_GEMM_PLANS_MAX: none. */
uint32_t tw_gemm_plans_find(const struct tw_gemm_plans *plans, const struct tw_gemm_key *key);

/* Puts a plan in: for the one of that key, or where there is no room for the oldest; its slot. */
uint32_t tw_gemm_plans_put(struct tw_gemm_plans *plans, const struct tw_gemm_key *key,
                           const struct tw_gemm_plan *plan);

/* path itself; or of a folder, which ends with '/', the file of that kind of device in it. The
 * caller's to free; NULL: no memory. */
char *tw_gemm_plans_path(const char *path, const char *device);

/* Whether the file was there, whole and of this owner; else the plans stay as they are. */
bool tw_gemm_plans_read(struct tw_gemm_plans *plans, const char *path);

/* Replaces the file at once, by a rename. TW_IO. */
enum tw_status tw_gemm_plans_write(struct tw_gemm_plans *plans, const char *path,
                                   struct tw_error *err);

#endif
