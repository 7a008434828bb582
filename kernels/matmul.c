/* matmul.c - chooses the library for matrix products, and packs weights panel by panel. */
#include "kernels/matmul.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/matmul_library.h"

enum { PACKED_ALIGN = 64 };

const struct tw_matmul_library *tw_matmul_library_get(enum tw_matmul_backend backend) {
    const struct tw_matmul_library *onednn = NULL, *openblas = NULL;
#ifdef TW_HAVE_ONEDNN
    onednn = &tw_matmul_onednn;
#endif
#ifdef TW_HAVE_OPENBLAS
    openblas = &tw_matmul_openblas;
#endif
    switch (backend) {
    case TW_MATMUL_ONEDNN: return onednn;
    case TW_MATMUL_OPENBLAS: return openblas;
    case TW_MATMUL_REF: return &tw_matmul_ref;
    case TW_MATMUL_AUTO: break;
    }
    if (onednn != NULL) return onednn;
    return openblas != NULL ? openblas : &tw_matmul_ref;
}

const char *tw_matmul_library_name(const struct tw_matmul_library *library) {
    return library->name;
}

bool tw_matmul_library_has(const struct tw_matmul_library *library, enum tw_type type) {
    return library->has(type);
}

enum tw_status tw_multiplier_create(struct tw_multiplier **multiplier,
                                    const struct tw_matmul_library *library, struct tw_error *err) {
    *multiplier = library->create();
    if (*multiplier == NULL) return tw_fail(err, TW_NOMEM, "no memory for %s", library->name);
    (*multiplier)->library = library;
    return TW_OK;
}

void tw_multiplier_destroy(struct tw_multiplier *multiplier) {
    if (multiplier != NULL) multiplier->library->destroy(multiplier);
}

static void check(const struct tw_multiplier *multiplier, const struct tw_matmul *shape) {
    TW_ASSERT(shape->m > 0 && shape->k > 0 && shape->n > 0);
    TW_ASSERT(multiplier->library->has(shape->type));
    TW_ASSERT(shape->y_type == TW_F32 || shape->y_type == shape->type);
    TW_ASSERT(!shape->is_added || shape->y_type == TW_F32);
}

void tw_multiply(struct tw_multiplier *multiplier, void *y, const void *a, const void *b,
                 const struct tw_matmul *shape) {
    struct tw_matmul full = *shape;
    check(multiplier, shape);
    if (full.a_stride == 0) full.a_stride = full.form == TW_MATMUL_TN ? full.m : full.k;
    if (full.b_stride == 0) full.b_stride = full.form == TW_MATMUL_NT ? full.k : full.n;
    if (full.y_stride == 0) full.y_stride = full.n;
    multiplier->library->multiply(multiplier, y, a, b, &full);
}

/* ---- weights ------------------------------------------------------------------------------- */

/* Returns the columns of a panel, a multiple of 64: about 4 Mi elements, with panels of one size.
 * With narrower panels, rows of activations would be read too often; with rows of more than 768
 * columns, oneDNN's kernels for few rows are up to a fifth slower. */
static uint32_t panel_columns(const struct tw_weight *weight) {
    enum { ELEMENTS = 1 << 22, COLUMNS_MIN = 192, COLUMNS_MAX = 768, ALIGN = TW_MATMUL_PAD_N };
    uint32_t most = (uint32_t)ELEMENTS / weight->k / ALIGN * ALIGN;
    if (most < COLUMNS_MIN) most = COLUMNS_MIN;
    if (most > COLUMNS_MAX) most = COLUMNS_MAX;
    const uint32_t count = weight->n / most + (weight->n % most != 0);
    return (weight->n / count + (weight->n % count != 0) + ALIGN - 1) / ALIGN * ALIGN;
}

uint32_t tw_weight_panels(const struct tw_weight *weight) {
    const uint32_t columns = panel_columns(weight);
    TW_ASSERT(weight->k > 0 && weight->n > 0);
    return weight->n / columns + (weight->n % columns != 0);
}

uint32_t tw_weight_column(const struct tw_weight *weight, uint32_t panel) {
    TW_ASSERT(panel <= tw_weight_panels(weight));
    if (panel == tw_weight_panels(weight)) return weight->n;
    return panel * panel_columns(weight);
}

static struct tw_weight_panel panel_of(const struct tw_weight *weight, uint32_t panel) {
    const uint32_t column = tw_weight_column(weight, panel);
    const bool is_nt = weight->form == TW_MATMUL_NT;
    TW_ASSERT(weight->form == TW_MATMUL_NN || is_nt);
    return (struct tw_weight_panel){
        .master = weight->master == NULL
                      ? NULL
                      : weight->master + (is_nt ? (size_t)column * weight->k : column),
        .master_stride = is_nt ? weight->k : weight->n,
        .form = weight->form,
        .type = weight->type,
        .k = weight->k,
        .columns = tw_weight_column(weight, panel + 1) - column};
}

static size_t packed_bytes(const struct tw_matmul_library *library, const struct tw_weight *weight,
                           uint32_t columns) {
    return library->packed_bytes(weight->k, columns, weight->type);
}

size_t tw_weight_bytes(const struct tw_matmul_library *library, const struct tw_weight *weight) {
    const size_t bytes = packed_bytes(library, weight, weight->n);
    return (bytes + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN;
}

static char *packed_at(const struct tw_matmul_library *library, const struct tw_weight *weight,
                       uint32_t column) {
    return (char *)weight->packed + packed_bytes(library, weight, column);
}

void tw_weight_pack(struct tw_multiplier *multiplier, const struct tw_weight *weight,
                    uint32_t panel) {
    const struct tw_matmul_library *library = multiplier->library;
    const struct tw_weight_panel shape = panel_of(weight, panel);
    if (packed_bytes(library, weight, weight->n) == 0) return;
    TW_ASSERT(weight->packed != NULL);
    library->pack(multiplier, packed_at(library, weight, tw_weight_column(weight, panel)), &shape);
}

/* ---- copies in panels ---------------------------------------------------------------------- */

bool tw_weight_has_copy(const struct tw_matmul_library *library, const struct tw_weight *weight) {
    if (!library->is_faster_in_panels || weight->type != TW_F32) return false;
    return weight->form == TW_MATMUL_NT || tw_weight_panels(weight) > 1;
}

/* Writes the transpose of from (n, k) to `to` (k, n). Rows of both are `stride` elements apart. */
static inline void transpose(float *restrict to, size_t to_stride, const float *restrict from,
                             size_t from_stride, size_t k, size_t n) {
    for (size_t l = 0; l < k; l++) {
        for (size_t j = 0; j < n; j++) to[l * to_stride + j] = from[j * from_stride + l];
    }
}

/* Transposes squares that fit into the registers and the first-level cache. */
static void transpose_panel(float *to, const struct tw_weight_panel *panel) {
    enum { DEPTH = 8, WIDTH = 16 };
    const size_t k = panel->k, n = panel->columns, stride = panel->master_stride;
    for (size_t j = 0; j < n; j += WIDTH) {
        for (size_t l = 0; l < k; l += DEPTH) {
            float *const square = to + l * n + j;
            const float *const from = panel->master + j * stride + l;
            if (l + DEPTH <= k && j + WIDTH <= n) {
                transpose(square, n, from, stride, DEPTH, WIDTH);
            } else {
                transpose(square, n, from, stride, k - l < DEPTH ? k - l : DEPTH,
                          n - j < WIDTH ? n - j : WIDTH);
            }
        }
    }
}

static float *copy_at(const struct tw_weight *weight, uint32_t panel) {
    return weight->panels + (size_t)tw_weight_column(weight, panel) * weight->k;
}

void tw_weight_copy(const struct tw_weight *weight, uint32_t panel) {
    const struct tw_weight_panel from = panel_of(weight, panel);
    float *const to = copy_at(weight, panel);
    TW_ASSERT(weight->panels != NULL);
    TW_ASSERT(weight->type == TW_F32);
    if (from.form == TW_MATMUL_NT) {
        transpose_panel(to, &from);
        return;
    }
    for (size_t l = 0; l < from.k; l++) {
        memcpy(to + l * from.columns, from.master + l * from.master_stride,
               from.columns * sizeof(*to));
    }
}

static void multiply_panels(struct tw_multiplier *multiplier, void *y, const void *a,
                            const struct tw_weight *weight, const struct tw_matmul *all) {
    struct tw_matmul part = *all;
    for (uint32_t panel = 0; panel < tw_weight_panels(weight); panel++) {
        const uint32_t column = tw_weight_column(weight, panel);
        part.form = TW_MATMUL_NN;
        part.n = tw_weight_column(weight, panel + 1) - column;
        part.b_stride = part.n;
        multiplier->library->multiply(multiplier,
                                      (char *)y + (size_t)column * tw_type_bytes(all->y_type), a,
                                      copy_at(weight, panel), &part);
    }
}

/* ---- products with weights ------------------------------------------------------------------ */

/* Widens k and n of a product with a packed weight up to its strides. */
static void pad(struct tw_matmul *shape, const struct tw_weight *weight) {
    const size_t k_max = ((size_t)weight->k + TW_MATMUL_PAD_K - 1) / TW_MATMUL_PAD_K;
    const size_t n_max = ((size_t)weight->n + TW_MATMUL_PAD_N - 1) / TW_MATMUL_PAD_N;
    TW_ASSERT(shape->n == weight->n);
    TW_ASSERT(shape->a_stride <= k_max * TW_MATMUL_PAD_K);
    TW_ASSERT(shape->y_stride <= n_max * TW_MATMUL_PAD_N);
    shape->k = (uint32_t)shape->a_stride;
    shape->n = (uint32_t)shape->y_stride;
}

void tw_multiply_weight(struct tw_multiplier *multiplier, void *y, const void *a,
                        const struct tw_weight *weight, const struct tw_weight_product *product) {
    const struct tw_matmul_library *library = multiplier->library;
    const uint32_t all = tw_weight_panels(weight), first = product->panel_first;
    const uint32_t end = product->panels == 0 ? all : first + product->panels;
    const uint32_t column = tw_weight_column(weight, first);
    char *to = (char *)y + (size_t)column * tw_type_bytes(product->y_type);
    TW_ASSERT(first < end);
    TW_ASSERT(!product->is_copied || product->panels == 0);
    struct tw_matmul shape = {
        .m = product->rows,
        .k = weight->k,
        .n = tw_weight_column(weight, end) - column,
        .type = weight->type,
        .y_type = product->y_type,
        .is_added = product->is_added,
        .a_stride = product->a_stride == 0 ? weight->k : product->a_stride,
        .y_stride = product->y_stride == 0 ? weight->n : product->y_stride,
    };
    check(multiplier, &shape);
    if (weight->packed != NULL) {
        if (product->is_padded) pad(&shape, weight);
        library->multiply_packed(multiplier, to, a, packed_at(library, weight, column), &shape);
        return;
    }
    const struct tw_weight_panel panel = panel_of(weight, first);
    TW_ASSERT(weight->type == TW_F32); /* the master weights are always float32 */
    if (product->is_copied && weight->panels != NULL) {
        multiply_panels(multiplier, y, a, weight, &shape);
        return;
    }
    shape.form = panel.form;
    shape.b_stride = panel.master_stride;
    library->multiply(multiplier, to, a, panel.master, &shape);
}

/* ---- the slow library: reference, and for builds without another ---------------------------- */

static double plain_element(const void *x, enum tw_type type, size_t i) {
    if (type == TW_F32) return (double)((const float *)x)[i];
    return (double)tw_bf16_to_f32(((const uint16_t *)x)[i]);
}

static void plain_multiply(struct tw_multiplier *multiplier, void *y, const void *a, const void *b,
                           const struct tw_matmul *s) {
    const bool is_tn = s->form == TW_MATMUL_TN, is_nt = s->form == TW_MATMUL_NT;
    const size_t a_row = is_tn ? 1 : s->a_stride, a_column = is_tn ? s->a_stride : 1;
    const size_t b_row = is_nt ? 1 : s->b_stride, b_column = is_nt ? s->b_stride : 1;
    (void)multiplier;
    for (size_t i = 0; i < s->m; i++) {
        for (size_t j = 0; j < s->n; j++) {
            const size_t at = i * s->y_stride + j;
            double sum = s->is_added ? plain_element(y, TW_F32, at) : 0.0;
            for (size_t l = 0; l < s->k; l++) {
                sum += plain_element(a, s->type, i * a_row + l * a_column) *
                       plain_element(b, s->type, l * b_row + j * b_column);
            }
            if (s->y_type == TW_F32)
                ((float *)y)[at] = (float)sum;
            else
                ((uint16_t *)y)[at] = tw_bf16_from_f32((float)sum);
        }
    }
}

static bool plain_has(enum tw_type type) {
    (void)type;
    return true;
}

static struct tw_multiplier *plain_create(void) {
    return calloc(1, sizeof(struct tw_multiplier));
}

static void plain_destroy(struct tw_multiplier *multiplier) {
    free(multiplier);
}

static size_t plain_padded_k(uint32_t k) {
    return ((size_t)k + TW_MATMUL_PAD_K - 1) / TW_MATMUL_PAD_K * TW_MATMUL_PAD_K;
}

static size_t plain_packed_bytes(uint32_t k, uint32_t columns, enum tw_type type) {
    const size_t padded = ((size_t)columns + TW_MATMUL_PAD_N - 1) / TW_MATMUL_PAD_N;
    if (type == TW_F32) return 0;
    return plain_padded_k(k) * padded * TW_MATMUL_PAD_N * tw_type_bytes(type);
}

static void plain_pack(struct tw_multiplier *multiplier, void *packed,
                       const struct tw_weight_panel *panel) {
    const size_t stride = plain_padded_k(panel->k), master_stride = panel->master_stride;
    uint16_t *to = packed;
    (void)multiplier;
    memset(packed, 0, plain_packed_bytes(panel->k, panel->columns, panel->type));
    for (size_t j = 0; j < panel->columns; j++) {
        for (size_t l = 0; l < panel->k; l++) {
            const size_t at =
                panel->form == TW_MATMUL_NT ? j * master_stride + l : l * master_stride + j;
            to[j * stride + l] = tw_bf16_from_f32(panel->master[at]);
        }
    }
}

static void plain_multiply_packed(struct tw_multiplier *multiplier, void *y, const void *a,
                                  const void *packed, const struct tw_matmul *shape) {
    struct tw_matmul plain = *shape;
    plain.form = TW_MATMUL_NT;
    plain.b_stride = plain_padded_k(shape->k);
    plain_multiply(multiplier, y, a, packed, &plain);
}

const struct tw_matmul_library tw_matmul_ref = {.name = "reference",
                                                .has = plain_has,
                                                .create = plain_create,
                                                .destroy = plain_destroy,
                                                .multiply = plain_multiply,
                                                .packed_bytes = plain_packed_bytes,
                                                .pack = plain_pack,
                                                .multiply_packed = plain_multiply_packed};
