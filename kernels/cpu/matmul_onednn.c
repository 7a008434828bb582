/* matmul_onednn.c - matrix products by oneDNN, versions 2 and 3 (onednn.h).
 *
 * bf16 uses oneDNN's matmul primitive, which uses AMX or avx512_bf16 if the processor has them,
 * with weights in its preferred layout. float32 uses oneDNN's sgemm, or the primitive for few rows
 * and a transposed b, where sgemm measured slower. Primitives are prepared once per shape and
 * multiplier; oneDNN's cache shares generated code.
 *
 * oneDNN runs on as many OpenMP threads as the calling thread may start: one.
 *
 * If there is no memory for a primitive, its scratch or a dense copy, that call is computed by
 * plain loops, and the next call tries again. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/cpu/onednn.h"
#include "kernels/matmul_library.h"

/* ---- packed weights without oneDNN ---------------------------------------------------------- */

/* Reads and writes oneDNN's packed bf16 weights element by element: slow, but
 * without any allocation: used when oneDNN finds no memory.
 *
 * Layout of a packed matrix (k, columns), padded with zeros: blocks of 64 columns, each of them
 * split into blocks of 32 rows. Such a block stores pairs of rows, interleaved over its 64 columns.
 */

enum { PACKED_BLOCK = TW_MATMUL_PAD_K * TW_MATMUL_PAD_N };

static size_t blocks_of(uint32_t n, size_t unit) {
    return (n + unit - 1) / unit;
}

/* Returns the index of element (l, j) of a packed matrix with k rows. */
static size_t place(uint32_t k, size_t l, size_t j) {
    const size_t block = j / TW_MATMUL_PAD_N * blocks_of(k, TW_MATMUL_PAD_K) + l / TW_MATMUL_PAD_K;
    const size_t pair = l % TW_MATMUL_PAD_K / 2;
    return block * PACKED_BLOCK + (pair * TW_MATMUL_PAD_N + j % TW_MATMUL_PAD_N) * 2 + l % 2;
}

static void packed_fill(void *packed, const struct tw_weight_panel *panel) {
    const size_t blocks =
        blocks_of(panel->k, TW_MATMUL_PAD_K) * blocks_of(panel->columns, TW_MATMUL_PAD_N);
    uint16_t *const to = packed;
    memset(packed, 0, blocks * PACKED_BLOCK * sizeof(*to));
    for (size_t l = 0; l < panel->k; l++) {
        for (size_t j = 0; j < panel->columns; j++) {
            const size_t at = panel->form == TW_MATMUL_NT ? j * panel->master_stride + l
                                                          : l * panel->master_stride + j;
            to[place(panel->k, l, j)] = tw_bf16_from_f32(panel->master[at]);
        }
    }
}

static void packed_multiply(void *y, const void *a, const void *packed,
                            const struct tw_matmul *shape) {
    const uint16_t *const weights = packed;
    for (size_t i = 0; i < shape->m; i++) {
        const uint16_t *const row = (const uint16_t *)a + i * shape->a_stride;
        for (size_t j = 0; j < shape->n; j++) {
            const size_t at = i * shape->y_stride + j;
            double sum = shape->is_added ? (double)((const float *)y)[at] : 0.0;
            for (size_t l = 0; l < shape->k; l++) {
                sum += (double)tw_bf16_to_f32(row[l]) *
                       (double)tw_bf16_to_f32(weights[place(shape->k, l, j)]);
            }
            if (shape->y_type == TW_F32)
                ((float *)y)[at] = (float)sum;
            else
                ((uint16_t *)y)[at] = tw_bf16_from_f32((float)sum);
        }
    }
}

/* ---- oneDNN --------------------------------------------------------------------------------- */

/* Declared here, because clang has no omp.h for gcc's OpenMP runtime. */
void omp_set_num_threads(int threads);

enum {
    WAYS = 8,
    SETS = TW_MATMUL_SHAPES_MAX / WAYS,
    SCRATCH_ALIGN = 4096,
};

enum kind { PRODUCT = 1, PACKED_PRODUCT, PACK };

/* Keys are compared as bytes, so the struct must have no padding. */
struct key {
    uint32_t kind, m, k, n, form, type, y_type, is_added;
    uint64_t a_stride, b_stride, y_stride;
};
_Static_assert(sizeof(struct key) == 8 * 4 + 3 * 8, "struct key has padding");

/* A oneDNN primitive with its memory objects. */
struct prepared {
    struct key key; /* kind 0: free */
    uint64_t last_use;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, y, scratch; /* PACK: from a to y */
};

struct buffer {
    void *memory;
    size_t bytes;
};

struct multiplier {
    struct tw_multiplier base;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct buffer scratch; /* shared by all primitives, as large as any of them needs */
    struct buffer dense;   /* copies of a and y */
    uint64_t uses;
    struct prepared prepared[SETS][WAYS];
};

/* Asserts that a oneDNN call succeeded, for calls that fail only on wrong arguments. */
static void must(dnnl_status_t status) {
    TW_ASSERT(status == dnnl_success);
}

/* Returns false if oneDNN had no memory, which it reports in several ways. If oneDNN cannot
 * describe an implementation, it calls the implementation missing; if generated code gets no pages,
 * it fails at run time. */
static bool is_done(dnnl_status_t status) {
    TW_ASSERT(status != dnnl_invalid_arguments);
    return status == dnnl_success;
}

static size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

static dnnl_data_type_t data_type(enum tw_type type) {
    return type == TW_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* ---- layouts ------------------------------------------------------------------------------- */

/* Describes (rows, columns) with rows `stride` elements apart, or the transpose of such a matrix.
 */
static bool layout_matrix(struct tw_onednn_layout *layout, uint64_t rows, uint64_t columns,
                          enum tw_type type, uint64_t stride, bool is_transposed) {
    const dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)columns};
    const dnnl_dims_t strides = {is_transposed ? 1 : (dnnl_dim_t)stride,
                                 is_transposed ? (dnnl_dim_t)stride : 1};
    return is_done(tw_onednn_layout_strided(layout, dims, data_type(type), strides));
}

/* Describes a packed b for bf16 kernels. */
static bool layout_packed(struct tw_onednn_layout *layout, uint64_t k, uint64_t columns) {
    const dnnl_dims_t dims = {(dnnl_dim_t)k, (dnnl_dim_t)columns};
    return is_done(tw_onednn_layout_tagged(layout, dims, dnnl_bf16, dnnl_BA16a64b2a));
}

/* Returns the attributes of a primitive that adds to y if is_added, and whose caller provides the
 * scratch memory. Returns NULL if there is no memory. */
static dnnl_primitive_attr_t attributes_of(bool is_added) {
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t post = NULL;
    const bool is_good =
        is_done(dnnl_primitive_attr_create(&attributes)) &&
        is_done(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user)) &&
        is_done(dnnl_post_ops_create(&post)) &&
        (!is_added || is_done(tw_onednn_append_sum(post))) &&
        is_done(dnnl_primitive_attr_set_post_ops(attributes, post));
    if (post != NULL) (void)dnnl_post_ops_destroy(post);
    if (is_good) return attributes;
    if (attributes != NULL) (void)dnnl_primitive_attr_destroy(attributes);
    return NULL;
}

/* ---- prepared primitives ------------------------------------------------------------------- */

static uint64_t hash_of(const struct key *key) {
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < sizeof(*key); i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static void forget(struct prepared *prepared) {
    if (prepared->key.kind == 0) return;
    if (prepared->a != NULL) (void)dnnl_memory_destroy(prepared->a);
    if (prepared->b != NULL) (void)dnnl_memory_destroy(prepared->b);
    if (prepared->y != NULL) (void)dnnl_memory_destroy(prepared->y);
    if (prepared->scratch != NULL) (void)dnnl_memory_destroy(prepared->scratch);
    if (prepared->primitive != NULL) (void)dnnl_primitive_destroy(prepared->primitive);
    memset(prepared, 0, sizeof(*prepared));
}

/* Makes the buffer at least `bytes` large. Returns false if there is no memory. The buffer then
 * keeps its size, on which prepared primitives rely. */
static bool grow(struct buffer *buffer, size_t bytes) {
    if (bytes <= buffer->bytes) return true;
    bytes = round_up(bytes, SCRATCH_ALIGN);
    void *const memory = aligned_alloc(SCRATCH_ALIGN, bytes);
    if (memory == NULL) return false;
    free(buffer->memory);
    buffer->memory = memory;
    buffer->bytes = bytes;
    return true;
}

/* Layouts of the arguments of a primitive. */
struct layouts {
    struct tw_onednn_layout a, b, y;
};

static void layouts_deinit(struct layouts *layouts) {
    tw_onednn_layout_deinit(&layouts->a);
    tw_onednn_layout_deinit(&layouts->b);
    tw_onednn_layout_deinit(&layouts->y);
}

static bool memory_of(dnnl_memory_t *memory, const struct multiplier *multiplier,
                      const struct tw_onednn_layout *layout) {
    return is_done(tw_onednn_memory(memory, multiplier->engine, layout));
}

/* The following two functions each create the memory objects and the primitive descriptor of one
 * kind of primitive. They return false if there is no memory. */
static bool describe_product(dnnl_primitive_desc_t *primitive, const struct multiplier *multiplier,
                             struct prepared *prepared) {
    const struct key *s = &prepared->key;
    const enum tw_type type = (enum tw_type)s->type;
    struct layouts l = {0};
    const dnnl_primitive_attr_t attributes = attributes_of(s->is_added != 0);
    const bool is_good =
        attributes != NULL &&
        layout_matrix(&l.a, s->m, s->k, type, s->a_stride, s->form == TW_MATMUL_TN) &&
        (s->kind == PACKED_PRODUCT
             ? layout_packed(&l.b, s->k, s->n)
             : layout_matrix(&l.b, s->k, s->n, type, s->b_stride, s->form == TW_MATMUL_NT)) &&
        layout_matrix(&l.y, s->m, s->n, (enum tw_type)s->y_type, s->y_stride, false) &&
        is_done(tw_onednn_describe_matmul(primitive, multiplier->engine, &l.a, &l.b, &l.y,
                                          attributes)) &&
        memory_of(&prepared->a, multiplier, &l.a) && memory_of(&prepared->b, multiplier, &l.b) &&
        memory_of(&prepared->y, multiplier, &l.y);
    if (attributes != NULL) (void)dnnl_primitive_attr_destroy(attributes);
    layouts_deinit(&l);
    return is_good;
}

static bool describe_pack(dnnl_primitive_desc_t *primitive, const struct multiplier *multiplier,
                          struct prepared *prepared) {
    const struct key *s = &prepared->key;
    struct layouts l = {0};
    const dnnl_primitive_attr_t attributes = attributes_of(false);
    const bool is_good =
        attributes != NULL &&
        layout_matrix(&l.a, s->k, s->n, TW_F32, s->b_stride, s->form == TW_MATMUL_NT) &&
        layout_packed(&l.y, s->k, s->n) &&
        is_done(
            tw_onednn_describe_reorder(primitive, multiplier->engine, &l.a, &l.y, attributes)) &&
        memory_of(&prepared->a, multiplier, &l.a) && memory_of(&prepared->y, multiplier, &l.y);
    if (attributes != NULL) (void)dnnl_primitive_attr_destroy(attributes);
    layouts_deinit(&l);
    return is_good;
}

/* Prepares the primitive of this key. Returns false if there is no memory; *prepared is then empty.
 */
static bool prepare(struct multiplier *multiplier, struct prepared *prepared,
                    const struct key *key) {
    dnnl_primitive_desc_t desc = NULL;
    forget(prepared);
    prepared->key = *key;
    bool is_good = key->kind == PACK ? describe_pack(&desc, multiplier, prepared)
                                     : describe_product(&desc, multiplier, prepared);
    if (is_good) {
        size_t scratch_bytes = 0;
        is_good =
            is_done(tw_onednn_memory_of(&prepared->scratch, &scratch_bytes, multiplier->engine,
                                        desc, dnnl_query_scratchpad_md)) &&
            grow(&multiplier->scratch, scratch_bytes) &&
            is_done(dnnl_primitive_create(&prepared->primitive, desc));
    }
    if (desc != NULL) (void)dnnl_primitive_desc_destroy(desc);
    if (!is_good) forget(prepared);
    return is_good;
}

/* NULL: no memory. */
static struct prepared *find(struct multiplier *multiplier, const struct key *key) {
    struct prepared *set = multiplier->prepared[hash_of(key) % SETS], *oldest = &set[0];
    for (int i = 0; i < WAYS; i++) {
        if (memcmp(&set[i].key, key, sizeof(*key)) == 0) {
            oldest = &set[i];
            break;
        }
        if (set[i].last_use < oldest->last_use) oldest = &set[i];
    }
    if (memcmp(&oldest->key, key, sizeof(*key)) != 0 && !prepare(multiplier, oldest, key)) {
        return NULL;
    }
    oldest->last_use = ++multiplier->uses;
    return oldest;
}

/* oneDNN's handles are not const, but oneDNN writes only to y and scratch. */
static void *handle(const void *pointer) {
    return (void *)(uintptr_t)pointer;
}

/* Runs the primitive of this key. Returns false, with y unchanged, if there is no memory. */
static bool execute(struct multiplier *multiplier, const struct key *key, void *y, const void *a,
                    const void *b) {
    omp_set_num_threads(1); /* applies to this thread only */
    const struct prepared *p = find(multiplier, key);
    const bool is_pack = key->kind == PACK;
    if (p == NULL) return false;
    const dnnl_exec_arg_t arguments[] = {{is_pack ? DNNL_ARG_FROM : DNNL_ARG_SRC, p->a},
                                         {is_pack ? DNNL_ARG_TO : DNNL_ARG_DST, p->y},
                                         {DNNL_ARG_SCRATCHPAD, p->scratch},
                                         {DNNL_ARG_WEIGHTS, p->b}};
    must(dnnl_memory_set_data_handle(p->a, handle(a)));
    must(dnnl_memory_set_data_handle(p->y, y));
    must(dnnl_memory_set_data_handle(p->scratch, multiplier->scratch.memory));
    if (!is_pack) must(dnnl_memory_set_data_handle(p->b, handle(b)));
    return is_done(
        dnnl_primitive_execute(p->primitive, multiplier->stream, is_pack ? 3 : 4, arguments));
}

/* ---- the library --------------------------------------------------------------------------- */

static bool has(enum tw_type type) {
    if (type == TW_F32) return true;
    const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(); /* a set of bits */
    return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

static void destroy(struct tw_multiplier *base) {
    struct multiplier *multiplier = (struct multiplier *)base;
    for (int i = 0; i < SETS * WAYS; i++) forget(&multiplier->prepared[i / WAYS][i % WAYS]);
    if (multiplier->stream != NULL) (void)dnnl_stream_destroy(multiplier->stream);
    if (multiplier->engine != NULL) (void)dnnl_engine_destroy(multiplier->engine);
    free(multiplier->scratch.memory);
    free(multiplier->dense.memory);
    free(multiplier);
}

static struct tw_multiplier *create(void) {
    struct multiplier *multiplier = calloc(1, sizeof(*multiplier));
    if (multiplier == NULL) return NULL;
    if (dnnl_engine_create(&multiplier->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&multiplier->stream, multiplier->engine, dnnl_stream_in_order) ==
            dnnl_success) {
        return &multiplier->base;
    }
    destroy(&multiplier->base);
    return NULL;
}

static struct key key_of(enum kind kind, const struct tw_matmul *s) {
    return (struct key){.kind = kind,
                        .m = s->m,
                        .k = s->k,
                        .n = s->n,
                        .form = s->form,
                        .type = s->type,
                        .y_type = s->y_type,
                        .is_added = s->is_added,
                        .a_stride = s->a_stride,
                        .b_stride = s->b_stride,
                        .y_stride = s->y_stride};
}

/* Returns whether one of the matrices is a column with gaps between its rows. The matmul primitive
 * of oneDNN 3.7 ignores the gaps of such a column, and the product is wrong. */
static bool has_loose_column(const struct tw_matmul *s) {
    return (s->n == 1 && s->y_stride > 1) ||
           (s->n == 1 && s->form != TW_MATMUL_NT && s->b_stride > 1) ||
           (s->m == 1 && s->form == TW_MATMUL_TN && s->a_stride > 1);
}

static void multiply(struct tw_multiplier *base, void *y, const void *a, const void *b,
                     const struct tw_matmul *s) {
    enum { SGEMM_ROWS = 384 }; /* with fewer, the primitive is faster for a transposed b */
    bool is_good;
    if (s->type == TW_F32 && (s->form != TW_MATMUL_NT || s->m >= SGEMM_ROWS)) {
        omp_set_num_threads(1);
        is_good = is_done(dnnl_sgemm(s->form == TW_MATMUL_TN ? 'T' : 'N',
                                     s->form == TW_MATMUL_NT ? 'T' : 'N', s->m, s->n, s->k, 1.0f, a,
                                     (dnnl_dim_t)s->a_stride, b, (dnnl_dim_t)s->b_stride,
                                     s->is_added ? 1.0f : 0.0f, y, (dnnl_dim_t)s->y_stride));
    } else if (has_loose_column(s)) {
        is_good = false; /* plain loops */
    } else {
        const struct key key = key_of(PRODUCT, s);
        is_good = execute((struct multiplier *)base, &key, y, a, b);
    }
    if (!is_good) tw_matmul_ref.multiply(base, y, a, b, s);
}

/* Float32 masters are not packed: tw_weight_copy gains as much. */
static size_t packed_bytes(uint32_t k, uint32_t columns, enum tw_type type) {
    if (type == TW_F32) return 0;
    return round_up(k, TW_MATMUL_PAD_K) * round_up(columns, TW_MATMUL_PAD_N) * sizeof(uint16_t);
}

static void pack(struct tw_multiplier *base, void *packed, const struct tw_weight_panel *panel) {
    const struct key key = {.kind = PACK,
                            .k = panel->k,
                            .n = panel->columns,
                            .form = panel->form,
                            .type = panel->type,
                            .b_stride = panel->master_stride};
    if (!execute((struct multiplier *)base, &key, packed, panel->master, NULL)) {
        packed_fill(packed, panel);
    }
}

/* Copies a to contiguous rows with an even k. If shape->k is odd, each row ends with a zero. */
static void *dense_copy(void *to, const void *a, const struct tw_matmul *shape, uint32_t k) {
    for (size_t i = 0; i < shape->m; i++) {
        uint16_t *row = (uint16_t *)to + i * k;
        memcpy(row, (const uint16_t *)a + i * shape->a_stride, shape->k * sizeof(*row));
        if (k > shape->k) row[shape->k] = 0;
    }
    return to;
}

/* Copies contiguous rows of n elements to y, or adds them to y if is_added. */
static void from_dense(void *y, const void *dense, const struct tw_matmul *shape) {
    const size_t bytes = tw_type_bytes(shape->y_type), n = shape->n;
    for (size_t i = 0; i < shape->m; i++) {
        if (!shape->is_added) {
            memcpy((char *)y + i * shape->y_stride * bytes, (const char *)dense + i * n * bytes,
                   n * bytes);
            continue;
        }
        float *to = (float *)y + i * shape->y_stride;
        for (size_t j = 0; j < n; j++) to[j] += ((const float *)dense)[i * n + j];
    }
}

/* Multiplies with packed weights. oneDNN's bf16 kernels need contiguous rows and an even k;
 * otherwise oneDNN silently uses its slow reference. */
static bool try_packed(struct multiplier *multiplier, void *y, const void *a, const void *packed,
                       const struct tw_matmul *shape) {
    struct tw_matmul dense = *shape;
    dense.k += dense.k % 2;
    dense.a_stride = dense.k;
    dense.y_stride = dense.n;
    const bool has_a = shape->a_stride == dense.k && shape->k == dense.k;
    const bool has_y = shape->y_stride == dense.n || shape->m == 1;
    dense.is_added = shape->is_added && has_y;
    const struct key key = key_of(PACKED_PRODUCT, &dense);
    if (has_a && has_y) return execute(multiplier, &key, y, a, packed);
    const size_t a_bytes = round_up((size_t)dense.m * dense.k * sizeof(uint16_t), SCRATCH_ALIGN);
    const size_t y_bytes = (size_t)dense.m * dense.n * tw_type_bytes(dense.y_type);
    if (!grow(&multiplier->dense, a_bytes + y_bytes)) return false;
    void *dense_y = (char *)multiplier->dense.memory + a_bytes;
    const void *dense_a = has_a ? a : dense_copy(multiplier->dense.memory, a, shape, dense.k);
    if (!execute(multiplier, &key, has_y ? y : dense_y, dense_a, packed)) return false;
    if (!has_y) from_dense(y, dense_y, shape);
    return true;
}

static void multiply_packed(struct tw_multiplier *base, void *y, const void *a, const void *packed,
                            const struct tw_matmul *shape) {
    if (try_packed((struct multiplier *)base, y, a, packed, shape)) return;
    packed_multiply(y, a, packed, shape);
}

const struct tw_matmul_library tw_matmul_onednn = {.name = "oneDNN",
                                                   .has = has,
                                                   .is_faster_in_panels = true,
                                                   .create = create,
                                                   .destroy = destroy,
                                                   .multiply = multiply,
                                                   .packed_bytes = packed_bytes,
                                                   .pack = pack,
                                                   .multiply_packed = multiply_packed};
