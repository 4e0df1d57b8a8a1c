/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of oneDNN 3's C API that the trainer uses and oneDNN 2 lacks, with version 3's names, parameters and
 * errors: https://uxlfoundation.github.io/oneDNN/v3.7/. If version 3 distinguishes layouts that are one in version 2,
 * unequal layouts are dnnl_unimplemented.
 */
#ifndef DTRAIN_CPU_ONEDNN_V2_H
#define DTRAIN_CPU_ONEDNN_V2_H

#include <oneapi/dnnl/dnnl.h>

/* In version 2 a layout is a structure, dnnl_memory_desc_t. */
typedef dnnl_memory_desc_t *onednn_md;
typedef const dnnl_memory_desc_t *const_dnnl_memory_desc_t;

enum { ONEDNN_NORM_BACKWARD_HAS_SHIFT = 1 };

/* Version 2's function has one parameter more: a factor. */
#define dnnl_post_ops_append_eltwise(post_ops, algorithm, alpha, beta) \
	dnnl_post_ops_append_eltwise(post_ops, 1, algorithm, alpha, beta)

#define dnnl_post_ops_append_sum(post_ops, scale, zero_point, type) \
	dnnl_post_ops_append_sum_v3(post_ops, scale, zero_point, type)

dnnl_status_t dnnl_memory_desc_create_with_strides(onednn_md *md, int ndims, const dnnl_dims_t dims,
						   dnnl_data_type_t type, const dnnl_dims_t strides);
dnnl_status_t dnnl_memory_desc_create_with_tag(onednn_md *md, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
					       dnnl_format_tag_t tag);
dnnl_status_t dnnl_memory_desc_clone(onednn_md *md, const_dnnl_memory_desc_t existing);
dnnl_status_t dnnl_memory_desc_destroy(onednn_md md);

dnnl_status_t dnnl_binary_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
						dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src0,
						const_dnnl_memory_desc_t src1, const_dnnl_memory_desc_t dst,
						const_dnnl_primitive_attr_t attr);

dnnl_status_t dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
						const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights,
						const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst,
						const_dnnl_primitive_attr_t attr);

dnnl_status_t dnnl_convolution_forward_primitive_desc_create(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t propagation, dnnl_alg_kind_t algorithm,
	const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias,
	const_dnnl_memory_desc_t dst, const dnnl_dims_t strides, const dnnl_dims_t dilates, const dnnl_dims_t padding_l,
	const dnnl_dims_t padding_r, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t diff_src,
	const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t diff_dst, const dnnl_dims_t strides,
	const dnnl_dims_t dilates, const dnnl_dims_t padding_l, const dnnl_dims_t padding_r,
	const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src,
	const_dnnl_memory_desc_t diff_weights, const_dnnl_memory_desc_t diff_bias, const_dnnl_memory_desc_t diff_dst,
	const dnnl_dims_t strides, const dnnl_dims_t dilates, const dnnl_dims_t padding_l, const dnnl_dims_t padding_r,
	const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr);

dnnl_status_t dnnl_batch_normalization_forward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
								     dnnl_prop_kind_t propagation,
								     const_dnnl_memory_desc_t src,
								     const_dnnl_memory_desc_t dst, float epsilon,
								     unsigned flags, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_batch_normalization_backward_primitive_desc_create(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t propagation,
	const_dnnl_memory_desc_t diff_src, const_dnnl_memory_desc_t diff_dst, const_dnnl_memory_desc_t src,
	float epsilon, unsigned flags, const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr);

dnnl_status_t dnnl_eltwise_forward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
							 dnnl_prop_kind_t propagation, dnnl_alg_kind_t algorithm,
							 const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst,
							 float alpha, float beta, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_eltwise_backward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
							  dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t diff_src,
							  const_dnnl_memory_desc_t diff_dst,
							  const_dnnl_memory_desc_t data, float alpha, float beta,
							  const_dnnl_primitive_desc_t hint,
							  const_dnnl_primitive_attr_t attr);

dnnl_status_t dnnl_pooling_forward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
							 dnnl_prop_kind_t propagation, dnnl_alg_kind_t algorithm,
							 const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst,
							 const dnnl_dims_t strides, const dnnl_dims_t kernel,
							 const dnnl_dims_t dilation, const dnnl_dims_t padding_l,
							 const dnnl_dims_t padding_r, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_pooling_backward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
							  dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t diff_src,
							  const_dnnl_memory_desc_t diff_dst, const dnnl_dims_t strides,
							  const dnnl_dims_t kernel, const dnnl_dims_t dilation,
							  const dnnl_dims_t padding_l, const dnnl_dims_t padding_r,
							  const_dnnl_primitive_desc_t hint,
							  const_dnnl_primitive_attr_t attr);

#endif
