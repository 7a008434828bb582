/* onednn.h - the calls of oneDNN whose C interface differs between its versions 2 and 3.
 *
 * A memory descriptor is a struct in version 2 and an allocated handle in version 3. A primitive
 * descriptor is made in two steps in version 2 and in one in version 3. Everything else of oneDNN
 * is called directly. Every function returns oneDNN's own status, so only files that use oneDNN
 * include this one. */
#ifndef TW_KERNELS_CPU_ONEDNN_H
#define TW_KERNELS_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>

/* Shape and layout of a matrix. A zeroed struct may be passed to deinit. */
struct tw_onednn_layout {
    dnnl_memory_desc_t desc;
};

/* Describes a matrix (rows, columns), with elements strides[0] and strides[1] apart along each.
 * Call deinit also after a failure. */
dnnl_status_t tw_onednn_layout_strided(struct tw_onednn_layout *layout, const dnnl_dims_t dims,
                                       dnnl_data_type_t type, const dnnl_dims_t strides);

/* Describes a matrix by the name of its layout; dnnl_format_tag_any lets the primitive choose. */
dnnl_status_t tw_onednn_layout_tagged(struct tw_onednn_layout *layout, const dnnl_dims_t dims,
                                      dnnl_data_type_t type, dnnl_format_tag_t tag);

void tw_onednn_layout_deinit(struct tw_onednn_layout *layout);

/* Describes the primitive y = a * b. The caller destroys *primitive. */
dnnl_status_t tw_onednn_describe_matmul(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                        const struct tw_onednn_layout *a,
                                        const struct tw_onednn_layout *b,
                                        const struct tw_onednn_layout *y,
                                        const_dnnl_primitive_attr_t attributes);

/* Describes the primitive that copies `from` to `to`, in another layout or type. The caller
 * destroys *primitive. */
dnnl_status_t tw_onednn_describe_reorder(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                         const struct tw_onednn_layout *from,
                                         const struct tw_onednn_layout *to,
                                         const_dnnl_primitive_attr_t attributes);

/* Makes a primitive add to y instead of overwriting y. */
dnnl_status_t tw_onednn_append_sum(dnnl_post_ops_t post);

/* Creates a memory object whose address is set later. The caller destroys *memory. */
dnnl_status_t tw_onednn_memory(dnnl_memory_t *memory, dnnl_engine_t engine,
                               const struct tw_onednn_layout *layout);

/* Creates a memory object for an argument of a primitive: its scratchpad or its weights. Stores the
 * size of the argument in *bytes. */
dnnl_status_t tw_onednn_memory_of(dnnl_memory_t *memory, size_t *bytes, dnnl_engine_t engine,
                                  const_dnnl_primitive_desc_t primitive, dnnl_query_t argument);

#endif
