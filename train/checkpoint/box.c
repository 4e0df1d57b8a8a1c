/* SPDX-License-Identifier: Apache-2.0 */
#include "box.h"

int64_t dtrain__box_count(int ndim, const checkpoint_box *box)
{
	int64_t count = 1;
	for (int i = 0; i < ndim; i++)
		count *= box->extent[i];
	return count;
}

/* Number of elements for one index of dimension `dim`. */
static int64_t stride_of(int ndim, const checkpoint_box *box, int dim)
{
	int64_t stride = 1;
	for (int i = dim + 1; i < ndim; i++)
		stride *= box->extent[i];
	return stride;
}

/* Adds the box of indices begin .. begin + extent - 1 of dimension dim; earlier dimensions have the indices in `at`. */
static void put_slab(int ndim, const checkpoint_box *whole, const int64_t *at, int dim, int64_t begin, int64_t extent,
		     checkpoint_box *out)
{
	*out = *whole;
	for (int i = 0; i < dim; i++) {
		out->offset[i] = at[i];
		out->extent[i] = 1;
	}
	if (ndim) {
		out->offset[dim] = whole->offset[dim] + begin;
		out->extent[dim] = extent;
	}
}

int dtrain__box_split(int ndim, const checkpoint_box *whole, int64_t first, int64_t count,
		      checkpoint_box boxes[CHECKPOINT_BOXES_MAX])
{
	int made = 0;
	while (count) {
		/* Find the outermost dimension where the remaining range starts at a whole index. */
		int dim = 0;
		while (dim < ndim - 1 &&
		       (first % stride_of(ndim, whole, dim) != 0 || count < stride_of(ndim, whole, dim)))
			dim++;
		int64_t stride = ndim ? stride_of(ndim, whole, dim) : 1, at[DTRAIN_MAX_DIMS], rest = first;
		for (int i = 0; i < dim; i++) {
			at[i] = whole->offset[i] + rest / stride_of(ndim, whole, i);
			rest %= stride_of(ndim, whole, i);
		}
		int64_t begin = rest / stride, room = ndim ? whole->extent[dim] - begin : 1;
		int64_t extent = count / stride < room ? count / stride : room;
		put_slab(ndim, whole, at, dim, begin, extent, &boxes[made++]);
		first += extent * stride;
		count -= extent * stride;
	}
	return made;
}

bool dtrain__box_intersect(int ndim, const checkpoint_box *a, const checkpoint_box *b, checkpoint_box *out)
{
	for (int i = 0; i < ndim; i++) {
		int64_t a_end = a->offset[i] + a->extent[i], b_end = b->offset[i] + b->extent[i];
		int64_t begin = a->offset[i] > b->offset[i] ? a->offset[i] : b->offset[i];
		int64_t end = a_end < b_end ? a_end : b_end;
		if (begin >= end)
			return false;
		out->offset[i] = begin;
		out->extent[i] = end - begin;
	}
	return true;
}

int dtrain__box_compare(int ndim, const checkpoint_box *a, const checkpoint_box *b)
{
	for (int i = 0; i < ndim; i++)
		if (a->offset[i] != b->offset[i])
			return a->offset[i] < b->offset[i] ? -1 : 1;
	for (int i = 0; i < ndim; i++)
		if (a->extent[i] != b->extent[i])
			return a->extent[i] < b->extent[i] ? -1 : 1;
	return 0;
}

void dtrain__runs_begin(int ndim, const checkpoint_box *part, const checkpoint_box *from, const checkpoint_box *to,
			checkpoint_runs *runs)
{
	int inner = ndim;
	*runs = (checkpoint_runs){.count = 1, .left = 1};
	/* A run extends over a dimension if all inner dimensions are whole in both boxes. */
	bool whole = true;
	while (inner > 0 && whole) {
		inner--;
		runs->count *= part->extent[inner];
		whole = part->extent[inner] == from->extent[inner] && part->extent[inner] == to->extent[inner];
	}
	runs->outer = inner;
	for (int i = 0; i < ndim; i++) {
		int64_t from_stride = stride_of(ndim, from, i), to_stride = stride_of(ndim, to, i);
		runs->from += (part->offset[i] - from->offset[i]) * from_stride;
		runs->to += (part->offset[i] - to->offset[i]) * to_stride;
		runs->from_stride[i] = from_stride;
		runs->to_stride[i] = to_stride;
		runs->extent[i] = part->extent[i];
		if (i < inner)
			runs->left *= part->extent[i];
	}
	runs->pitch = inner ? runs->from_stride[inner - 1] : runs->count;
}

bool dtrain__runs_next(checkpoint_runs *runs)
{
	if (--runs->left == 0)
		return false;
	for (int i = runs->outer - 1; i >= 0; i--) {
		runs->from += runs->from_stride[i];
		runs->to += runs->to_stride[i];
		if (++runs->at[i] < runs->extent[i])
			break;
		runs->from -= runs->extent[i] * runs->from_stride[i];
		runs->to -= runs->extent[i] * runs->to_stride[i];
		runs->at[i] = 0;
	}
	return true;
}
