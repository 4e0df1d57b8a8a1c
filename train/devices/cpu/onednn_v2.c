/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "onednn_v2.h"

/* Version 2 makes primitives from op descriptions. operation: one of these, if status is success. */
static dnnl_status_t finish(dnnl_primitive_desc_t *pd, dnnl_status_t status, const void *operation,
			    dnnl_engine_t engine, const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
	return status == dnnl_success ? dnnl_primitive_desc_create(pd, operation, attr, engine, hint) : status;
}

/* For two layouts that must be equal in version 2. */
static dnnl_status_t same(const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b)
{
	if (!a || !b)
		return dnnl_invalid_arguments;
	return dnnl_memory_desc_equal(a, b) ? dnnl_success : dnnl_unimplemented;
}

/* Copies *value to a new layout, if status is success. */
static dnnl_status_t new_md(onednn_md *md, dnnl_status_t status, const dnnl_memory_desc_t *value)
{
	if (status != dnnl_success)
		return status;
	*md = malloc(sizeof(**md));
	if (!*md)
		return dnnl_out_of_memory;
	**md = *value;
	return dnnl_success;
}

dnnl_status_t dnnl_memory_desc_create_with_strides(onednn_md *md, int ndims, const dnnl_dims_t dims,
						   dnnl_data_type_t type, const dnnl_dims_t strides)
{
	dnnl_memory_desc_t value;
	return new_md(md, dnnl_memory_desc_init_by_strides(&value, ndims, dims, type, strides), &value);
}

dnnl_status_t dnnl_memory_desc_create_with_tag(onednn_md *md, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
					       dnnl_format_tag_t tag)
{
	dnnl_memory_desc_t value;
	return new_md(md, dnnl_memory_desc_init_by_tag(&value, ndims, dims, type, tag), &value);
}

dnnl_status_t dnnl_memory_desc_clone(onednn_md *md, const_dnnl_memory_desc_t existing)
{
	return new_md(md, existing ? dnnl_success : dnnl_invalid_arguments, existing);
}

dnnl_status_t dnnl_memory_desc_destroy(onednn_md md)
{
	free(md);
	return dnnl_success;
}

dnnl_status_t dnnl_binary_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
						dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src0,
						const_dnnl_memory_desc_t src1, const_dnnl_memory_desc_t dst,
						const_dnnl_primitive_attr_t attr)
{
	dnnl_binary_desc_t binary;
	return finish(pd, dnnl_binary_desc_init(&binary, algorithm, src0, src1, dst), &binary, engine, NULL, attr);
}

dnnl_status_t dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
						const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights,
						const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst,
						const_dnnl_primitive_attr_t attr)
{
	dnnl_matmul_desc_t matmul;
	return finish(pd, dnnl_matmul_desc_init(&matmul, src, weights, bias, dst), &matmul, engine, NULL, attr);
}

dnnl_status_t dnnl_convolution_forward_primitive_desc_create(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t propagation, dnnl_alg_kind_t algorithm,
	const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias,
	const_dnnl_memory_desc_t dst, const dnnl_dims_t strides, const dnnl_dims_t dilates, const dnnl_dims_t padding_l,
	const dnnl_dims_t padding_r, const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t conv;
	dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
		&conv, propagation, algorithm, src, weights, bias, dst, strides, dilates, padding_l, padding_r);
	return finish(pd, status, &conv, engine, NULL, attr);
}

dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t diff_src,
	const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t diff_dst, const dnnl_dims_t strides,
	const dnnl_dims_t dilates, const dnnl_dims_t padding_l, const dnnl_dims_t padding_r,
	const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t conv;
	dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
		&conv, algorithm, diff_src, weights, diff_dst, strides, dilates, padding_l, padding_r);
	return finish(pd, status, &conv, engine, hint, attr);
}

dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src,
	const_dnnl_memory_desc_t diff_weights, const_dnnl_memory_desc_t diff_bias, const_dnnl_memory_desc_t diff_dst,
	const dnnl_dims_t strides, const dnnl_dims_t dilates, const dnnl_dims_t padding_l, const dnnl_dims_t padding_r,
	const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t conv;
	dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
		&conv, algorithm, src, diff_weights, diff_bias, diff_dst, strides, dilates, padding_l, padding_r);
	return finish(pd, status, &conv, engine, hint, attr);
}

dnnl_status_t dnnl_batch_normalization_forward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
								     dnnl_prop_kind_t propagation,
								     const_dnnl_memory_desc_t src,
								     const_dnnl_memory_desc_t dst, float epsilon,
								     unsigned flags, const_dnnl_primitive_attr_t attr)
{
	dnnl_batch_normalization_desc_t norm;
	dnnl_status_t status = same(src, dst);
	if (status == dnnl_success)
		status = dnnl_batch_normalization_forward_desc_init(&norm, propagation, src, epsilon, flags);
	return finish(pd, status, &norm, engine, NULL, attr);
}

dnnl_status_t dnnl_batch_normalization_backward_primitive_desc_create(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t propagation,
	const_dnnl_memory_desc_t diff_src, const_dnnl_memory_desc_t diff_dst, const_dnnl_memory_desc_t src,
	float epsilon, unsigned flags, const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
	dnnl_batch_normalization_desc_t norm;
	dnnl_status_t status = same(diff_src, diff_dst);
	if (status == dnnl_success)
		status = dnnl_batch_normalization_backward_desc_init(&norm, propagation, diff_src, src, epsilon, flags);
	return finish(pd, status, &norm, engine, hint, attr);
}

dnnl_status_t dnnl_eltwise_forward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
							 dnnl_prop_kind_t propagation, dnnl_alg_kind_t algorithm,
							 const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst,
							 float alpha, float beta, const_dnnl_primitive_attr_t attr)
{
	dnnl_eltwise_desc_t eltwise;
	dnnl_status_t status = same(src, dst);
	if (status == dnnl_success)
		status = dnnl_eltwise_forward_desc_init(&eltwise, propagation, algorithm, src, alpha, beta);
	return finish(pd, status, &eltwise, engine, NULL, attr);
}

dnnl_status_t dnnl_eltwise_backward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
							  dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t diff_src,
							  const_dnnl_memory_desc_t diff_dst,
							  const_dnnl_memory_desc_t data, float alpha, float beta,
							  const_dnnl_primitive_desc_t hint,
							  const_dnnl_primitive_attr_t attr)
{
	dnnl_eltwise_desc_t eltwise;
	dnnl_status_t status = same(diff_src, diff_dst);
	if (status == dnnl_success)
		status = dnnl_eltwise_backward_desc_init(&eltwise, algorithm, diff_src, data, alpha, beta);
	return finish(pd, status, &eltwise, engine, hint, attr);
}

dnnl_status_t dnnl_pooling_forward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
							 dnnl_prop_kind_t propagation, dnnl_alg_kind_t algorithm,
							 const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst,
							 const dnnl_dims_t strides, const dnnl_dims_t kernel,
							 const dnnl_dims_t dilation, const dnnl_dims_t padding_l,
							 const dnnl_dims_t padding_r, const_dnnl_primitive_attr_t attr)
{
	dnnl_pooling_v2_desc_t pool;
	dnnl_status_t status = dnnl_pooling_v2_forward_desc_init(&pool, propagation, algorithm, src, dst, strides,
								 kernel, dilation, padding_l, padding_r);
	return finish(pd, status, &pool, engine, NULL, attr);
}

dnnl_status_t dnnl_pooling_backward_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
							  dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t diff_src,
							  const_dnnl_memory_desc_t diff_dst, const dnnl_dims_t strides,
							  const dnnl_dims_t kernel, const dnnl_dims_t dilation,
							  const dnnl_dims_t padding_l, const dnnl_dims_t padding_r,
							  const_dnnl_primitive_desc_t hint,
							  const_dnnl_primitive_attr_t attr)
{
	dnnl_pooling_v2_desc_t pool;
	dnnl_status_t status = dnnl_pooling_v2_backward_desc_init(&pool, algorithm, diff_src, diff_dst, strides, kernel,
								  dilation, padding_l, padding_r);
	return finish(pd, status, &pool, engine, hint, attr);
}
