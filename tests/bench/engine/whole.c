/* whole.c - one matrix product over whole matrices, with all threads of oneDNN's own pool. */
#include "tests/bench/engine/whole.h"

#include <stdlib.h>

#ifdef TW_HAVE_ONEDNN
#include "base/assert.h"
#include "kernels/cpu/onednn.h"

/* declared here because clang has no omp.h for gcc's runtime */
void omp_set_num_threads(int threads);

struct whole {
    struct tw_matmul product;
    int threads;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive; /* NULL: sgemm */
    dnnl_memory_t a, b, y;
    void *packed; /* b in the library's layout, or NULL if b is used directly */
};

static void must(dnnl_status_t status) {
    TW_ASSERT(status == dnnl_success);
}

static dnnl_data_type_t data_type(enum tw_type type) {
    return type == TW_BF16 ? dnnl_bf16 : dnnl_f32;
}

static struct tw_onednn_layout strided(uint32_t rows, uint32_t columns, enum tw_type type,
                                       size_t stride, bool is_transposed) {
    const dnnl_dims_t dims = {rows, columns};
    const dnnl_dims_t strides = {is_transposed ? 1 : (dnnl_dim_t)stride,
                                 is_transposed ? (dnnl_dim_t)stride : 1};
    struct tw_onednn_layout layout;
    must(tw_onednn_layout_strided(&layout, dims, data_type(type), strides));
    return layout;
}

/* Makes weights in the layout that the library prefers. Their values do not matter. */
static void *packed_weights(size_t bytes) {
    bytes = (bytes + 4095) / 4096 * 4096;
    char *packed = aligned_alloc(4096, bytes);
    TW_ASSERT(packed != NULL);
    for (size_t i = 0; i < bytes; i++) packed[i] = (char)(i % 2 == 0 ? i : 0x3e);
    return packed;
}

static void describe(struct whole *whole, bool is_packed) {
    const struct tw_matmul *p = &whole->product;
    const dnnl_dims_t b_dims = {p->k, p->n};
    struct tw_onednn_layout a = strided(p->m, p->k, p->type, p->a_stride, p->form == TW_MATMUL_TN);
    struct tw_onednn_layout y = strided(p->m, p->n, p->y_type, p->y_stride, false);
    struct tw_onednn_layout b = {0};
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t post;
    dnnl_primitive_desc_t primitive;
    size_t b_bytes;
    if (is_packed) {
        must(tw_onednn_layout_tagged(&b, b_dims, data_type(p->type), dnnl_format_tag_any));
    } else {
        b = strided(p->k, p->n, p->type, p->b_stride, p->form == TW_MATMUL_NT);
    }
    must(dnnl_primitive_attr_create(&attributes));
    must(dnnl_post_ops_create(&post));
    if (p->is_added) must(tw_onednn_append_sum(post));
    must(dnnl_primitive_attr_set_post_ops(attributes, post));
    must(tw_onednn_describe_matmul(&primitive, whole->engine, &a, &b, &y, attributes));
    must(dnnl_primitive_create(&whole->primitive, primitive));
    must(tw_onednn_memory(&whole->a, whole->engine, &a));
    must(tw_onednn_memory_of(&whole->b, &b_bytes, whole->engine, primitive, dnnl_query_weights_md));
    must(tw_onednn_memory(&whole->y, whole->engine, &y));
    if (is_packed) whole->packed = packed_weights(b_bytes);
    must(dnnl_primitive_desc_destroy(primitive));
    must(dnnl_post_ops_destroy(post));
    must(dnnl_primitive_attr_destroy(attributes));
    tw_onednn_layout_deinit(&a);
    tw_onednn_layout_deinit(&b);
    tw_onednn_layout_deinit(&y);
}

struct whole *whole_create(const struct tw_matmul *product, bool is_packed, uint32_t threads) {
    struct whole *whole = calloc(1, sizeof(*whole));
    if (whole == NULL) return NULL;
    whole->product = *product;
    whole->threads = (int)threads;
    omp_set_num_threads(whole->threads);
    must(dnnl_engine_create(&whole->engine, dnnl_cpu, 0));
    must(dnnl_stream_create(&whole->stream, whole->engine, dnnl_stream_in_order));
    const bool is_sgemm = product->type == TW_F32 && product->form != TW_MATMUL_NT && !is_packed;
    if (!is_sgemm) describe(whole, is_packed);
    return whole;
}

void whole_destroy(struct whole *whole) {
    if (whole == NULL) return;
    if (whole->primitive != NULL) {
        (void)dnnl_memory_destroy(whole->a);
        (void)dnnl_memory_destroy(whole->b);
        (void)dnnl_memory_destroy(whole->y);
        (void)dnnl_primitive_destroy(whole->primitive);
    }
    (void)dnnl_stream_destroy(whole->stream);
    (void)dnnl_engine_destroy(whole->engine);
    free(whole->packed);
    free(whole);
}

void whole_run(struct whole *whole, void *y, const void *a, void *b) {
    const struct tw_matmul *p = &whole->product;
    omp_set_num_threads(whole->threads);
    if (whole->primitive == NULL) {
        must(dnnl_sgemm(p->form == TW_MATMUL_TN ? 'T' : 'N', 'N', p->m, p->n, p->k, 1.0f, a,
                        (dnnl_dim_t)p->a_stride, b, (dnnl_dim_t)p->b_stride,
                        p->is_added ? 1.0f : 0.0f, y, (dnnl_dim_t)p->y_stride));
        return;
    }
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, whole->a}, {DNNL_ARG_WEIGHTS, whole->b}, {DNNL_ARG_DST, whole->y}};
    must(dnnl_memory_set_data_handle(whole->a, (void *)(uintptr_t)a));
    must(dnnl_memory_set_data_handle(whole->b, whole->packed != NULL ? whole->packed : b));
    must(dnnl_memory_set_data_handle(whole->y, y));
    must(dnnl_primitive_execute(whole->primitive, whole->stream, 3, arguments));
    must(dnnl_stream_wait(whole->stream));
}

#else

struct whole *whole_create(const struct tw_matmul *product, bool is_packed, uint32_t threads) {
    (void)product, (void)is_packed, (void)threads;
    return NULL;
}

void whole_destroy(struct whole *whole) {
    (void)whole;
}

void whole_run(struct whole *whole, void *y, const void *a, void *b) {
    (void)whole, (void)y, (void)a, (void)b;
}

#endif
