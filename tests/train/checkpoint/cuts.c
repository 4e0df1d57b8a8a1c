/* SPDX-License-Identifier: Apache-2.0 */
#include "cuts.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static const struct {
	const char *names[DTRAIN_CHECKPOINT_SETS];
	dtrain_dtype dtype;
	dtrain_shape shape;
} tensors[CUT_TENSORS] = {
	{{"a.weight", "a.weight.momentum"}, DTRAIN_F32, {2, {7, 5}}},
	{{"a.bias", "a.bias.momentum"}, DTRAIN_F32, {1, {16}}},
	{{"conv", "conv.momentum"}, DTRAIN_BF16, {4, {5, 3, 2, 2}}},
	{{"count", "count.slow"}, DTRAIN_I64, {0}},
	{{"tall", "tall.momentum"}, DTRAIN_F64, {3, {4, 1, 3}}},
	{{"bytes", "bytes.slow"}, DTRAIN_U8, {2, {1, 11}}},
};

static dtrain_checkpoint_view *add(struct cut *out, int set, int tensor)
{
	dtrain_checkpoint_view *view = &out->views[set][out->lists[set].count++];
	*view = dtrain_checkpoint_view_whole(tensors[tensor].names[set], tensors[tensor].dtype, &tensors[tensor].shape,
					     NULL, NULL);
	return view;
}

/* Part `index` of `parts` of a dimension; false: it is empty. */
static bool take(dtrain_checkpoint_view *view, int dim, int index, int parts)
{
	int64_t whole = view->shape.dim[dim], each = (whole + parts - 1) / parts, begin = each * index;
	int64_t end = begin + each < whole ? begin + each : whole;
	if (begin >= end)
		return false;
	view->offset[dim] = begin;
	view->extent[dim] = end - begin;
	view->count = view->count / whole * (end - begin);
	return true;
}

/* The elements of [begin, end) that are of the range [at, at + count) of all tensors. */
static void take_range(dtrain_checkpoint_view *view, int64_t at, int64_t begin, int64_t end)
{
	int64_t first = begin > at ? begin - at : 0, last = end - at < view->count ? end - at : view->count;
	view->first = first < last ? first : 0;
	view->count = first < last ? last - first : 0;
}

static int64_t flat_count(void)
{
	int64_t all = 0;
	for (int i = 0; i < CUT_TENSORS; i++)
		all += dtrain_shape_count(&tensors[i].shape);
	return all;
}

/* Adds a part of `parts`; the first part is two elements long. */
static void add_flat(struct cut *out, int set, int index, int parts)
{
	int64_t all = flat_count(), at = 0, begin = 0, end = all;
	if (parts > 1) {
		int64_t each = (all - 2 + parts - 2) / (parts - 1);
		begin = index ? 2 + each * (index - 1) : 0;
		end = index ? begin + each : 2;
	}
	for (int i = 0; i < CUT_TENSORS; i++) {
		take_range(add(out, set, i), at, begin < all ? begin : all, end < all ? end : all);
		at += dtrain_shape_count(&tensors[i].shape);
	}
}

static void add_boxes(struct cut *out, int set, enum cut_kind kind, int rank, int size)
{
	for (int i = 0; i < CUT_TENSORS; i++) {
		dtrain_checkpoint_view *view = add(out, set, i);
		int ndim = view->shape.ndim;
		bool some = true;
		if (kind == CUT_ROWS && ndim)
			some = take(view, 0, rank, size);
		else if (kind == CUT_COLUMNS && ndim > 1)
			some = take(view, 1, rank, size);
		else if (kind == CUT_GRID && ndim > 1)
			some = take(view, 1, rank % 2, 2) && take(view, 0, rank / 2, size / 2);
		else if (kind == CUT_GRID_FLAT && ndim > 1)
			some = take(view, 1, rank / 2, size / 2);
		else if (kind == CUT_STAGES)
			some = i % size == rank;
		if (some && kind == CUT_GRID_FLAT && ndim > 1) {
			int64_t half = view->count / 2;
			view->first = rank % 2 ? half : 0;
			view->count = rank % 2 ? view->count - half : half;
		}
		if (!some)
			view->count = 0;
	}
}

static void add_set(struct cut *out, int set, enum cut_kind kind, int rank, int size)
{
	switch (kind) {
	case CUT_FLAT:
		add_flat(out, set, rank, size);
		break;
	case CUT_EMPTY:
		if (rank % 2 == 0)
			add_flat(out, set, rank / 2, (size + 1) / 2);
		break;
	case CUT_TWICE:
		add_flat(out, set, rank % (size / 2), size / 2);
		break;
	case CUT_OPTIMIZER:
		if (set == DTRAIN_CHECKPOINT_OPTIMIZER)
			add_flat(out, set, rank, size);
		else
			add_boxes(out, set, CUT_WHOLE, rank, size);
		break;
	default:
		add_boxes(out, set, kind, rank, size);
		break;
	}
}

void cut_make(struct cut *out, enum cut_kind kind, int rank, int size)
{
	memset(out, 0, sizeof(*out));
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		out->lists[set].views = out->views[set];
		add_set(out, set, kind, rank, size);
		for (size_t i = 0; i < out->lists[set].count; i++) {
			dtrain_checkpoint_view *view = &out->views[set][i];
			view->memory = out->memory + out->used;
			out->used += ((size_t)view->count * dtrain_dtype_size(view->dtype) + 7) / 8 * 8;
		}
	}
}

/* A byte of that element, in row-major order, of the whole tensor. */
static unsigned char byte_of(const char *name, int64_t element, size_t byte, int seed)
{
	unsigned hash = (unsigned)seed * 2654435761u + (unsigned)element * 40503u + (unsigned)byte * 97u;
	for (const char *at = name; *at; at++)
		hash = hash * 31 + (unsigned char)*at;
	return (unsigned char)(hash >> 7);
}

/* Where the i-th element of the view is in the tensor: computed one by one, in the plainest way. */
static int64_t element_of(const dtrain_checkpoint_view *view, int64_t i)
{
	int64_t rest = view->first + i, index[DTRAIN_MAX_DIMS], element = 0;
	for (int dim = view->shape.ndim - 1; dim >= 0; dim--) {
		index[dim] = view->offset[dim] + rest % view->extent[dim];
		rest /= view->extent[dim];
	}
	for (int dim = 0; dim < view->shape.ndim; dim++)
		element = element * view->shape.dim[dim] + index[dim];
	return element;
}

void cut_fill(struct cut *cut, int seed)
{
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		for (size_t k = 0; k < cut->lists[set].count; k++) {
			const dtrain_checkpoint_view *view = &cut->views[set][k];
			size_t size = dtrain_dtype_size(view->dtype);
			for (size_t i = 0; i < (size_t)view->count * size; i++)
				((unsigned char *)view->memory)[i] =
					byte_of(view->name, element_of(view, (int64_t)(i / size)), i % size, seed);
		}
}

bool cut_is_filled(const struct cut *cut, int seed, beton_error *err)
{
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		for (size_t k = 0; k < cut->lists[set].count; k++) {
			const dtrain_checkpoint_view *view = &cut->views[set][k];
			size_t size = dtrain_dtype_size(view->dtype);
			for (size_t i = 0; i < (size_t)view->count * size; i++)
				if (((unsigned char *)view->memory)[i] !=
				    byte_of(view->name, element_of(view, (int64_t)(i / size)), i % size, seed)) {
					bt_fail(err, BETON_DIVERGED, "tensor '%s': byte %zu is wrong", view->name, i);
					return false;
				}
		}
	return true;
}
