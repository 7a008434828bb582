/* onednn.c - the calls of oneDNN whose C interface differs between its versions 2 and 3. */
#include "kernels/cpu/onednn.h"

enum { DIMS = 2 };

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t tw_onednn_layout_strided(struct tw_onednn_layout *layout, const dnnl_dims_t dims,
                                       dnnl_data_type_t type, const dnnl_dims_t strides) {
    layout->desc = NULL;
    return dnnl_memory_desc_create_with_strides(&layout->desc, DIMS, dims, type, strides);
}

dnnl_status_t tw_onednn_layout_tagged(struct tw_onednn_layout *layout, const dnnl_dims_t dims,
                                      dnnl_data_type_t type, dnnl_format_tag_t tag) {
    layout->desc = NULL;
    return dnnl_memory_desc_create_with_tag(&layout->desc, DIMS, dims, type, tag);
}

void tw_onednn_layout_deinit(struct tw_onednn_layout *layout) {
    if (layout->desc != NULL) (void)dnnl_memory_desc_destroy(layout->desc);
    layout->desc = NULL;
}

dnnl_status_t tw_onednn_describe_matmul(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                        const struct tw_onednn_layout *a,
                                        const struct tw_onednn_layout *b,
                                        const struct tw_onednn_layout *y,
                                        const_dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(primitive, engine, a->desc, b->desc, NULL, y->desc,
                                             attributes);
}

dnnl_status_t tw_onednn_describe_reorder(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                         const struct tw_onednn_layout *from,
                                         const struct tw_onednn_layout *to,
                                         const_dnnl_primitive_attr_t attributes) {
    return dnnl_reorder_primitive_desc_create(primitive, from->desc, engine, to->desc, engine,
                                              attributes);
}

dnnl_status_t tw_onednn_memory(dnnl_memory_t *memory, dnnl_engine_t engine,
                               const struct tw_onednn_layout *layout) {
    return dnnl_memory_create(memory, layout->desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t tw_onednn_memory_of(dnnl_memory_t *memory, size_t *bytes, dnnl_engine_t engine,
                                  const_dnnl_primitive_desc_t primitive, dnnl_query_t argument) {
    const const_dnnl_memory_desc_t desc = dnnl_primitive_desc_query_md(primitive, argument, 0);
    *bytes = dnnl_memory_desc_get_size(desc);
    return dnnl_memory_create(memory, desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t tw_onednn_append_sum(dnnl_post_ops_t post) {
    return dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef);
}

#else

dnnl_status_t tw_onednn_layout_strided(struct tw_onednn_layout *layout, const dnnl_dims_t dims,
                                       dnnl_data_type_t type, const dnnl_dims_t strides) {
    return dnnl_memory_desc_init_by_strides(&layout->desc, DIMS, dims, type, strides);
}

dnnl_status_t tw_onednn_layout_tagged(struct tw_onednn_layout *layout, const dnnl_dims_t dims,
                                      dnnl_data_type_t type, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(&layout->desc, DIMS, dims, type, tag);
}

void tw_onednn_layout_deinit(struct tw_onednn_layout *layout) {
    (void)layout; /* owns nothing */
}

dnnl_status_t tw_onednn_describe_matmul(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                        const struct tw_onednn_layout *a,
                                        const struct tw_onednn_layout *b,
                                        const struct tw_onednn_layout *y,
                                        const_dnnl_primitive_attr_t attributes) {
    dnnl_matmul_desc_t desc;
    const dnnl_status_t status = dnnl_matmul_desc_init(&desc, &a->desc, &b->desc, NULL, &y->desc);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(primitive, &desc, attributes, engine, NULL);
}

dnnl_status_t tw_onednn_describe_reorder(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                         const struct tw_onednn_layout *from,
                                         const struct tw_onednn_layout *to,
                                         const_dnnl_primitive_attr_t attributes) {
    return dnnl_reorder_primitive_desc_create(primitive, &from->desc, engine, &to->desc, engine,
                                              attributes);
}

dnnl_status_t tw_onednn_memory(dnnl_memory_t *memory, dnnl_engine_t engine,
                               const struct tw_onednn_layout *layout) {
    return dnnl_memory_create(memory, &layout->desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t tw_onednn_memory_of(dnnl_memory_t *memory, size_t *bytes, dnnl_engine_t engine,
                                  const_dnnl_primitive_desc_t primitive, dnnl_query_t argument) {
    const dnnl_memory_desc_t *desc = dnnl_primitive_desc_query_md(primitive, argument, 0);
    *bytes = dnnl_memory_desc_get_size(desc);
    return dnnl_memory_create(memory, desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t tw_onednn_append_sum(dnnl_post_ops_t post) {
    return dnnl_post_ops_append_sum(post, 1.0f);
}

#endif
