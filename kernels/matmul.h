/* matmul.h - matrix products by a library: oneDNN, OpenBLAS, or a plain reference.
 *
 * Every product runs serially in the calling thread; no library starts threads. Callers split work
 * into row blocks, panels of columns or tiles, never along k, so results do not depend on the
 * split.
 *
 * A multiplier holds a thread's prepared kernels for the shapes it has seen, and their scratch
 * memory. It keeps at most TW_MATMUL_SHAPES_MAX kernels and replaces the oldest. Each thread needs
 * its own multiplier. The first product of a shape prepares it (milliseconds, heap); later ones do
 * not allocate. If there is no memory to prepare a shape, the product is computed by plain loops:
 * slow, but correct.
 *
 * Measured with tests/bench/engine on Zen 5 with avx512_bf16, one thread, peak 250 GFLOP/s in
 * float32 and 500 in bf16: from 64 rows and width 128 up, bf16 reaches 450-490 GFLOP/s with packed
 * weights and 390-440 unpacked. Float32 is not packed for good, which would cost 8 bytes per
 * parameter: one layer at a time is copied into panels (tw_weight_copy). Weight gradients use wide
 * tiles: TW_MATMUL_TILE_*. */
#ifndef TW_KERNELS_MATMUL_H
#define TW_KERNELS_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/type.h"

enum {
    TW_MATMUL_SHAPES_MAX = 256,
    /* Padding of k and n, used by is_padded of struct tw_weight_product. */
    TW_MATMUL_PAD_K = 32,
    TW_MATMUL_PAD_N = 64,
    /* Rows of activations per piece of work. */
    TW_MATMUL_ROWS = 128,
    /* Least tile of a weight gradient per piece of work, whatever the number of threads. */
    TW_MATMUL_TILE_M = 512,
    TW_MATMUL_TILE_N = 768,
    /* Least rows for which the faster products with a copy (tw_weight_copy) outweigh its cost. */
    TW_MATMUL_COPY_ROWS = 512,
};

enum tw_matmul_backend { TW_MATMUL_AUTO, TW_MATMUL_ONEDNN, TW_MATMUL_OPENBLAS, TW_MATMUL_REF };

enum tw_matmul_form {
    TW_MATMUL_NN, /* y (m, n) = a (m, k) * b (k, n) */
    TW_MATMUL_NT, /* y (m, n) = a (m, k) * b (n, k)^T */
    TW_MATMUL_TN, /* y (m, n) = a (k, m)^T * b (k, n): gradient of weights */
};

/* ---- libraries ----------------------------------------------------------------------------- */

struct tw_matmul_library;

/* Returns the library, or NULL if it was not built in. AUTO returns the fastest that was built in,
 * never NULL. */
const struct tw_matmul_library *tw_matmul_library_get(enum tw_matmul_backend backend);
/* Returns "oneDNN", "OpenBLAS" or "reference". */
const char *tw_matmul_library_name(const struct tw_matmul_library *library);
/* Returns whether the library is fast for that type on this processor. F32: always. BF16: the
 * reference, and oneDNN if the processor has bf16 instructions; without them, oneDNN would convert
 * and be slower. */
bool tw_matmul_library_has(const struct tw_matmul_library *library, enum tw_type type);

/* ---- products of two matrices of activations ------------------------------------------------ */

struct tw_multiplier;

/* Creates a multiplier, which borrows nothing. destroy accepts NULL. Errors: TW_NOMEM. */
enum tw_status tw_multiplier_create(struct tw_multiplier **multiplier,
                                    const struct tw_matmul_library *library, struct tw_error *err);
void tw_multiplier_destroy(struct tw_multiplier *multiplier);

struct tw_matmul {
    uint32_t m, k, n; /* each > 0 */
    enum tw_matmul_form form;
    enum tw_type type;   /* type of a and b, which the library must support */
    enum tw_type y_type; /* F32, or `type` */
    bool is_added;       /* adds to y instead of overwriting it; y_type must be F32 */
    size_t a_stride, b_stride, y_stride; /* elements between rows; 0: contiguous rows */
};

/* Writes the product to y, or adds it to y. Sums are float32, and y is rounded once. y overlaps
 * neither a nor b. */
void tw_multiply(struct tw_multiplier *multiplier, void *y, const void *a, const void *b,
                 const struct tw_matmul *shape);

/* Splits `size` rows or columns of a weight gradient into tiles of one size (the last may be
 * smaller): the smallest that is at least `least`. A smaller size is one tile. oneDNN repacks its
 * operands only if 1 / rows + 1 / columns of a product is below 0.0038, and without that its AVX2
 * kernel is a fifth slower. */
static inline uint32_t tw_matmul_tile(uint32_t size, uint32_t least) {
    enum { ALIGN = 16 };
    const uint32_t count = size < least ? 1 : size / least;
    return ((size + count - 1) / count + ALIGN - 1) / ALIGN * ALIGN;
}

static inline uint32_t tw_matmul_tiles(uint32_t size, uint32_t least) {
    const uint32_t tile = tw_matmul_tile(size, least);
    return size / tile + (size % tile != 0);
}

/* ---- products with a weight matrix --------------------------------------------------------- */

/* A weight matrix W for y (rows, n) = a (rows, k) * W. The float32 master stays in place. Libraries
 * that are faster with a packed copy (in bf16, every library) multiply with such a copy in `type`.
 * It must be renewed after each change of the master. The forward pass and the gradient of the
 * input use one master as two weights, with k and n, and NN and NT, swapped. */
struct tw_weight {
    uint32_t k, n;
    enum tw_matmul_form form; /* form of the master: NN (k, n), NT (n, k) */
    enum tw_type type;        /* type of a and of the packed copy */
    const float *master;      /* contiguous rows; borrowed */
    void *packed;             /* packed copy of tw_weight_bytes, 64-byte aligned, borrowed; NULL if
                                 that is 0 */
    float *panels; /* memory for the copy of tw_weight_copy, k * n floats, borrowed; NULL:
                      none */
};

/* Returns the bytes of the packed copy. 0 means that products read the master, and tw_weight_pack
 * does nothing. */
size_t tw_weight_bytes(const struct tw_matmul_library *library, const struct tw_weight *weight);

/* A weight is split into panels of whole columns: panel i has columns [tw_weight_column(i),
 * tw_weight_column(i + 1)). Threads can thus share the packing of one large matrix. */
uint32_t tw_weight_panels(const struct tw_weight *weight);
uint32_t tw_weight_column(const struct tw_weight *weight, uint32_t panel);

/* Renews one panel of the packed copy from the master, rounded to nearest even. */
void tw_weight_pack(struct tw_multiplier *multiplier, const struct tw_weight *weight,
                    uint32_t panel);

/* Returns whether products of blocks of rows are faster with a copy of a float32 weight in panels:
 * each panel (k, its columns) contiguous, one after the other. That is so with oneDNN, for masters
 * in form NT or with more than one panel. */
bool tw_weight_has_copy(const struct tw_matmul_library *library, const struct tw_weight *weight);

/* Copies one panel of the master to `panels`. */
void tw_weight_copy(const struct tw_weight *weight, uint32_t panel);

/* A product with a weight. All columns with contiguous rows (strides 0) or padded rows are fast;
 * other products use dense copies of a and y. */
struct tw_weight_product {
    uint32_t rows;
    uint32_t panel_first, panels; /* panels of columns to compute; panels = 0: all */
    enum tw_type y_type;          /* F32, or the weight's type */
    bool is_added;                /* adds to y instead of overwriting it; y_type must then be F32 */
    bool is_copied; /* reads the copy in panels if the weight has memory for one; panels
                       must be 0 */
    /* Allows faster products if k or n is no multiple of the padding. Rows of a continue with zeros
     * up to a_stride (with any finite values if the weight is not packed); a_stride is even and at
     * most k rounded up to TW_MATMUL_PAD_K. Rows of y may be overwritten up to y_stride, at most n
     * rounded up to TW_MATMUL_PAD_N. panels must be 0, or all. */
    bool is_padded;
    size_t a_stride, y_stride; /* elements between rows; 0 stands for k and n */
};

/* Computes y (rows, n) = or += a * W in the columns of the chosen panels. y and a point to row 0,
 * column 0. */
void tw_multiply_weight(struct tw_multiplier *multiplier, void *y, const void *a,
                        const struct tw_weight *weight, const struct tw_weight_product *product);

#endif
