/* matmul_library.h - the functions that each matrix library's wrapper implements. Callers use
 * matmul.h. */
#ifndef TW_KERNELS_MATMUL_LIBRARY_H
#define TW_KERNELS_MATMUL_LIBRARY_H

#include "kernels/matmul.h"

/* One panel of a weight's master, `columns` columns at `master`: (k, columns) for form NN,
 * (columns, k) for NT, with rows master_stride elements apart. */
struct tw_weight_panel {
    const float *master;
    size_t master_stride;
    enum tw_matmul_form form;
    enum tw_type type;
    uint32_t k, columns;
};

struct tw_matmul_library {
    const char *name;
    bool (*has)(enum tw_type type);
    bool is_faster_in_panels; /* see tw_weight_has_copy */

    /* Allocates the library's own struct, which begins with a struct tw_multiplier. Returns NULL if
     * there is no memory. */
    struct tw_multiplier *(*create)(void);
    void (*destroy)(struct tw_multiplier *multiplier);

    /* Works like tw_multiply; no stride is 0. */
    void (*multiply)(struct tw_multiplier *multiplier, void *y, const void *a, const void *b,
                     const struct tw_matmul *shape);

    /* Returns the bytes of a packed matrix. 0 means that masters are used directly, and the two
     * functions below are not called. Columns are stored in order: column c, a multiple of
     * TW_MATMUL_PAD_N, begins at byte packed_bytes(k, c, type). */
    size_t (*packed_bytes)(uint32_t k, uint32_t columns, enum tw_type type);
    void (*pack)(struct tw_multiplier *multiplier, void *packed,
                 const struct tw_weight_panel *panel);
    /* Computes y (m, n) = or += a (m, k) * packed columns (k, n). The shape has form NN and no
     * b_stride; its k and n may be rounded up within the padding of the packed matrix. */
    void (*multiply_packed)(struct tw_multiplier *multiplier, void *y, const void *a,
                            const void *packed, const struct tw_matmul *shape);
};

struct tw_multiplier {
    const struct tw_matmul_library *library;
};

extern const struct tw_matmul_library tw_matmul_onednn, tw_matmul_openblas, tw_matmul_ref;

#endif
