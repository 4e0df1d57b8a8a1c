/* SPDX-License-Identifier: Apache-2.0 */
#include "fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

bool run_shapes_equal(const dtrain_shape *a, const dtrain_shape *b, int first)
{
	bool equal = a->ndim == b->ndim;
	for (int i = first; i < a->ndim && equal; i++)
		equal = a->dim[i] == b->dim[i];
	return equal;
}

static int allocate(const char *name, const dtrain_shape *shape, run_source_tensor *out, beton_error *err)
{
	*out = (run_source_tensor){.name = (char *)name, .shape = *shape};
	out->values = malloc((size_t)dtrain_shape_count(shape) * sizeof(float));
	return out->values ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the tensor '%s'", name);
}

int run_fit_join(const run_source_tensor *const parts[BT_TENSOR_PARTS], run_source_tensor *out, bool *fits,
		 beton_error *err)
{
	dtrain_shape shape = parts[0]->shape;
	*fits = shape.ndim > 0;
	for (int i = 0; i < BT_TENSOR_PARTS; i++)
		*fits = *fits && parts[i]->values && run_shapes_equal(&parts[i]->shape, &shape, 0);
	if (!*fits)
		return BETON_OK;
	size_t count = (size_t)dtrain_shape_count(&shape);
	shape.dim[0] *= BT_TENSOR_PARTS;
	int status = allocate(parts[0]->name, &shape, out, err);
	for (size_t i = 0; i < BT_TENSOR_PARTS && status == BETON_OK; i++)
		memcpy(out->values + i * count, parts[i]->values, count * sizeof(float));
	return status;
}

/* ---- positions ---- */

/* The side of the square of patches, all tokens but the class tokens; 0: not a square. */
static int64_t side_of(const dtrain_shape *shape, int64_t class_tokens)
{
	int64_t patches = shape->ndim == 3 && shape->dim[0] == 1 ? shape->dim[1] - class_tokens : 0;
	int64_t side = llround(sqrt((double)patches));
	return side * side == patches ? side : 0;
}

/* The number of class tokens, 0 or 1; -1: the shapes are not positions of one model at two picture sizes. */
static int64_t find_class_tokens(const dtrain_shape *from, const dtrain_shape *to)
{
	for (int64_t tokens = 1; tokens >= 0; tokens--)
		if (side_of(from, tokens) > 0 && side_of(to, tokens) > 0)
			return tokens;
	return -1;
}

bool run_fit_is_resized(const char *name, const dtrain_shape *from, const dtrain_shape *to)
{
	return strcmp(name, "pos_embed") == 0 && find_class_tokens(from, to) >= 0 && from->dim[1] != to->dim[1] &&
	       from->dim[2] == to->dim[2];
}

/* Keys' cubic convolution with a = -1/2. */
static double cubic(double x)
{
	x = fabs(x);
	if (x < 1)
		return (1.5 * x - 2.5) * x * x + 1;
	return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

/* The weights of `in` places for place i of `out`. A picture that shrinks is averaged, so that it has no aliases. */
static void find_weights(int64_t in, int64_t out, int64_t i, double *weights)
{
	double scale = (double)in / (double)out, width = scale > 1 ? scale : 1, centre = scale * ((double)i + 0.5);
	int64_t begin = (int64_t)(centre - 2 * width + 0.5), end = (int64_t)(centre + 2 * width + 0.5);
	double sum = 0;
	memset(weights, 0, (size_t)in * sizeof(*weights));
	for (int64_t k = begin > 0 ? begin : 0; k < (end < in ? end : in); k++)
		sum += weights[k] = cubic(((double)k - centre + 0.5) / width);
	for (int64_t k = 0; k < in; k++)
		weights[k] /= sum;
}

/* y [side, side, columns] of x [in, in, columns]. scratch: 2 * in + columns numbers. */
static void resize(const float *x, int64_t in, float *y, int64_t side, int64_t columns, double *scratch)
{
	double *down = scratch, *across = down + in, *sums = across + in;
	for (int64_t row = 0; row < side; row++)
		for (int64_t column = 0; column < side; column++, y += columns) {
			find_weights(in, side, row, down);
			find_weights(in, side, column, across);
			memset(sums, 0, (size_t)columns * sizeof(*sums));
			for (int64_t i = 0; i < in * in; i++) {
				double weight = down[i / in] * across[i % in];
				for (int64_t c = 0; c < columns && weight != 0; c++)
					sums[c] += weight * (double)x[i * columns + c];
			}
			for (int64_t c = 0; c < columns; c++)
				y[c] = (float)sums[c];
		}
}

int run_fit_resize(const run_source_tensor *from, const dtrain_shape *to, run_source_tensor *out, beton_error *err)
{
	int64_t tokens = find_class_tokens(&from->shape, to), in = side_of(&from->shape, tokens);
	int64_t columns = to->dim[2], first = tokens * columns;
	double *scratch = malloc((size_t)(2 * in + columns) * sizeof(*scratch));
	int status = scratch ? allocate(from->name, to, out, err)
			     : bt_fail(err, BETON_NO_MEMORY, "out of memory for the tensor '%s'", from->name);
	if (status == BETON_OK) {
		memcpy(out->values, from->values, (size_t)first * sizeof(float));
		resize(from->values + first, in, out->values + first, side_of(to, tokens), columns, scratch);
	}
	free(scratch);
	return status;
}
