/* matmul.h - matrix products by a library: oneDNN, OpenBLAS, or a plain reference.
 *
 * Every product runs serially in the calling thread: no library starts threads. Callers cut the
 * work into row blocks, panels of columns or tiles, never over k, so that results do not depend on
 * who computes what.
 *
 * A multiplier is what one thread multiplies with: the library's prepared kernels for the shapes
 * seen (at most TW_MATMUL_SHAPES_MAX, the oldest makes room) and their scratch memory. One per
 * thread; two threads must not use one at the same time. The first product of a shape prepares it
 * (milliseconds, heap); later ones take nothing from the heap. Where
 * there is no memory to prepare it, that product is computed plainly: slowly, and right.
 *
 * What was measured (tests/bench/engine, Zen 5 with avx512_bf16, one thread, of 250 GFLOP/s float32
 * and 500 bf16 at most): bf16 with packed weights 450-490 from 64 rows up and from width 128 up,
 * unpacked 390-440; float32 packed 220-245, unpacked 200-240, hence not packed: it would cost 8
 * bytes a parameter. Weight gradients: wide tiles, see TW_MATMUL_TILE_*. */
#ifndef TW_KERNELS_MATMUL_H
#define TW_KERNELS_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/type.h"

enum {
    TW_MATMUL_SHAPES_MAX = 256,
    /* See struct tw_weight_product, is_padded. */
    TW_MATMUL_PAD_K = 32,
    TW_MATMUL_PAD_N = 64,
    /* Rows of activations for one piece of work. */
    TW_MATMUL_ROWS = 128,
    /* Tile of a weight gradient for one piece of work, whatever the number of threads. */
    TW_MATMUL_TILE_M = 256,
    TW_MATMUL_TILE_N = 1024,
};

enum tw_matmul_backend { TW_MATMUL_AUTO, TW_MATMUL_ONEDNN, TW_MATMUL_OPENBLAS, TW_MATMUL_REF };

enum tw_matmul_form {
    TW_MATMUL_NN, /* y (m, n) = a (m, k) b (k, n) */
    TW_MATMUL_NT, /* y (m, n) = a (m, k) b (n, k)^T */
    TW_MATMUL_TN, /* y (m, n) = a (k, m)^T b (k, n): gradient of weights */
};

/* ---- libraries ----------------------------------------------------------------------------- */

struct tw_matmul_library;

/* NULL when that one was not built in. AUTO: the fastest built in, never NULL. */
const struct tw_matmul_library *tw_matmul_library_get(enum tw_matmul_backend backend);
/* "oneDNN", "OpenBLAS", "reference" */
const char *tw_matmul_library_name(const struct tw_matmul_library *library);
/* Whether it multiplies that type well on this processor. F32: always. BF16: oneDNN where the
 * processor has instructions for it (without, oneDNN would convert and lose); the reference. */
bool tw_matmul_library_has(const struct tw_matmul_library *library, enum tw_type type);

/* ---- products of two activations, or of anything plain ------------------------------------- */

struct tw_multiplier;

/* TW_NOMEM. Borrows nothing; destroy takes NULL. */
enum tw_status tw_multiplier_create(struct tw_multiplier **multiplier,
                                    const struct tw_matmul_library *library, struct tw_error *err);
void tw_multiplier_destroy(struct tw_multiplier *multiplier);

struct tw_matmul {
    uint32_t m, k, n; /* each > 0 */
    enum tw_matmul_form form;
    enum tw_type type;                   /* of a and b: one the library has */
    enum tw_type y_type;                 /* F32, or `type` */
    bool is_added;                       /* y += instead of y =; y_type is F32 */
    size_t a_stride, b_stride, y_stride; /* elements between rows; 0: rows touch */
};

/* y = or += the product; sums in float32, y rounded once. y overlaps neither a nor b. */
void tw_multiply(struct tw_multiplier *multiplier, void *y, const void *a, const void *b,
                 const struct tw_matmul *shape);

/* ---- products with a weight matrix --------------------------------------------------------- */

/* A weight matrix ready to be multiplied with: y (rows, n) = a (rows, k) W. The float32 master
 * stays where it is; libraries that gain by it (and every library in bf16) multiply with a packed
 * copy in `type`, to be renewed whenever the master changes. The forward pass and the gradient of
 * the input read one master as two weights (k and n, NN and NT swap). */
struct tw_weight {
    uint32_t k, n;
    enum tw_matmul_form form; /* of the master: NN (k, n), NT (n, k) */
    enum tw_type type;        /* of a, and of the packed copy */
    const float *master;      /* rows touch; borrowed */
    void *packed;             /* tw_weight_bytes, 64-byte aligned; NULL where that is 0; borrowed */
};

/* Bytes of the packed copy; 0: the product reads the master itself, tw_weight_pack does nothing. */
size_t tw_weight_bytes(const struct tw_matmul_library *library, const struct tw_weight *weight);

/* A weight is cut in panels of whole columns (panel i is columns [tw_weight_column(i),
 * tw_weight_column(i + 1))), so that threads can share the packing of even one large matrix. */
uint32_t tw_weight_panels(const struct tw_weight *weight);
uint32_t tw_weight_column(const struct tw_weight *weight, uint32_t panel);

/* Renews one panel of the packed copy from the master, rounded to nearest even. */
void tw_weight_pack(struct tw_multiplier *multiplier, const struct tw_weight *weight,
                    uint32_t panel);

/* Products over all columns with rows that touch (strides 0), or padded ones, are the fast ones;
 * any other goes through dense copies of a and y. */
struct tw_weight_product {
    uint32_t rows;
    uint32_t panel_first, panels; /* columns of y computed; panels 0: all */
    enum tw_type y_type;          /* F32, or the weight's type */
    bool is_added;                /* y += ; y_type is F32 */
    /* For k or n that are not round: a's rows go on with zeros (or with anything finite, where
     * the weight is not packed) up to a_stride, which is even and at most k rounded up to
     * TW_MATMUL_PAD_K; y's may be overwritten up to y_stride, at most n rounded up to
     * TW_MATMUL_PAD_N. panels is 0, or all. */
    bool is_padded;
    size_t a_stride, y_stride; /* elements between rows; 0: k, n */
};

/* y (rows, n) = or += a W in the columns of those panels; y and a point at column 0 of row 0. */
void tw_multiply_weight(struct tw_multiplier *multiplier, void *y, const void *a,
                        const struct tw_weight *weight, const struct tw_weight_product *product);

#endif
