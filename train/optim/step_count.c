/* SPDX-License-Identifier: Apache-2.0
 *
 * Further inputs of some kinds of updates: the number of the step, and the places of whole parameters.
 */
#include <stdlib.h>

#include "common/error.h"
#include "optimizer.h"

void dtrain__fill_rates(const double *hypers, double lr, float *scalars)
{
	scalars[0] = (float)lr;
	scalars[1] = (float)hypers[1];
}

int dtrain__step_create(dtrain_optimizer *optimizer, beton_error *err)
{
	const dtrain__optimizer_kind *kind = optimizer->kind;
	int status =
		optimizer->api->alloc(optimizer->device, DTRAIN_STEPS * sizeof(float), (void **)&optimizer->step, err);
	if (status != BETON_OK)
		return status;
	const dtrain_op_attrs attrs = {
		.adam = {.beta1 = optimizer->hypers[kind->beta1], .beta2 = optimizer->hypers[kind->beta2]}};
	const dtrain__argument none = {.memory = NULL}, step = dtrain__optimizer_step(optimizer);
	return dtrain__optimizer_add(optimizer, &optimizer->update, DTRAIN_OP_COUNT_STEP, &attrs,
				     (const dtrain__argument[]){step, dtrain__optimizer_scaler(optimizer), none},
				     (const dtrain__argument[]){step, none}, err);
}

bool dtrain__range_has(const dtrain__update_range *range, const dtrain_param *param)
{
	return param->offset < range->begin + range->count && param->offset + param->count > range->begin;
}

/* ---- matrices ---- */

/* Whether Muon updates it. */
static bool is_matrix(const dtrain_optimizer *optimizer, int index)
{
	const dtrain_param *param = dtrain_params_at(optimizer->params, index);
	return optimizer->kind->needs_matrices && param->shape.ndim >= 2 && !param->frozen &&
	       !(optimizer->adamw && optimizer->adamw[index]) && dtrain__range_has(optimizer->range, param);
}

static int compare_matrices(const void *a, const void *b)
{
	const dtrain_matrices *left = a, *right = b;
	if (left->rows != right->rows)
		return left->rows < right->rows ? -1 : 1;
	return left->columns < right->columns ? -1 : left->columns > right->columns;
}

/* Where ranks have parts, the update is that of the whole matrix. */
static dtrain_matrices shape_of(const dtrain_param *param)
{
	int64_t rows = param->global_shape.dim[0];
	return (dtrain_matrices){rows, dtrain_shape_count(&param->global_shape) / rows, 1, 0};
}

/* Lists the shapes of matrices, each with the place of its first matrix. */
static int find_shapes(dtrain_optimizer *optimizer, beton_error *err)
{
	int params = dtrain_params_count(optimizer->params), count = 0, shapes = 0;
	int64_t place = 0;
	dtrain_matrices *all = calloc((size_t)params + 1, sizeof(*all));
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", optimizer->kind->info.name);
	for (int i = 0; i < params; i++)
		if (is_matrix(optimizer, i))
			all[count++] = shape_of(dtrain_params_at(optimizer->params, i));
	qsort(all, (size_t)count, sizeof(*all), compare_matrices);
	for (int i = 0; i < count; i++) {
		if (shapes && compare_matrices(&all[i], &all[shapes - 1]) == 0)
			all[shapes - 1].count++;
		else
			all[shapes++] = all[i];
	}
	for (int i = 0; i < shapes; i++) {
		all[i].place = place;
		place += all[i].count * all[i].rows * all[i].columns + DTRAIN_MATRIX_ALIGN - 1;
		place -= place % DTRAIN_MATRIX_ALIGN;
	}
	optimizer->range->matrices = all;
	optimizer->range->num_matrices = shapes;
	return BETON_OK;
}

/* The place of a matrix: matrices of its shape are stored in the order of parameters. */
static int64_t place_of(const dtrain_optimizer *optimizer, int index)
{
	const dtrain_matrices mine = shape_of(dtrain_params_at(optimizer->params, index)),
			      *all = optimizer->range->matrices;
	while (compare_matrices(all, &mine) != 0)
		all++;
	int64_t place = all->place;
	for (int i = 0; i < index; i++) {
		const dtrain_matrices other = shape_of(dtrain_params_at(optimizer->params, i));
		if (is_matrix(optimizer, i) && compare_matrices(&other, &mine) == 0)
			place += mine.rows * mine.columns;
	}
	return place;
}

/* ---- pieces ---- */

static int check_whole(const dtrain_optimizer *optimizer, int index, beton_error *err)
{
	const dtrain_param *param = dtrain_params_at(optimizer->params, index);
	int64_t begin = optimizer->range->begin, end = begin + optimizer->range->count;
	bool matrix = is_matrix(optimizer, index);
	if (!(optimizer->kind->needs_norms || matrix) ||
	    (param->offset >= begin && param->offset + param->count <= end))
		return BETON_OK;
	return bt_fail(err, BETON_UNSUPPORTED, "%s: needs %s '%s'; this rank has a part", optimizer->kind->info.name,
		       matrix ? "all of" : "the norm of", param->name);
}

/* A parameter's elements in the range, or of the whole parameter in the array of whole ones. begin: in that array. */
static int64_t count_inside(const dtrain_optimizer *optimizer, int index, int64_t *begin)
{
	const dtrain__update_range *range = optimizer->range;
	const dtrain_param *param = dtrain_params_at(optimizer->params, index);
	if (range->wholes) {
		*begin = range->wholes[index];
		return dtrain_shape_count(&param->global_shape);
	}
	int64_t end = range->begin + range->count, last = param->offset + param->count;
	int64_t first = param->offset > range->begin ? param->offset : range->begin;
	*begin = first - range->begin;
	return (last < end ? last : end) - first;
}

static int64_t pieces_of(const dtrain_optimizer *optimizer, int index)
{
	const dtrain_param *param = dtrain_params_at(optimizer->params, index);
	int64_t begin, count = dtrain__range_has(optimizer->range, param) ? count_inside(optimizer, index, &begin) : 0;
	return (count + DTRAIN_PIECE_ELEMENTS - 1) / DTRAIN_PIECE_ELEMENTS;
}

static void list_pieces(const dtrain_optimizer *optimizer, int index, int64_t first, int64_t *out)
{
	int64_t parts = pieces_of(optimizer, index), begin, count = count_inside(optimizer, index, &begin);
	int64_t place = is_matrix(optimizer, index) ? place_of(optimizer, index) : -1;
	for (int64_t i = 0; i < parts; i++, out += DTRAIN_PIECE_NUMBERS) {
		int64_t done = i * DTRAIN_PIECE_ELEMENTS, left = count - done;
		out[DTRAIN_PIECE_BEGIN] = begin + done;
		out[DTRAIN_PIECE_COUNT] = left < DTRAIN_PIECE_ELEMENTS ? left : DTRAIN_PIECE_ELEMENTS;
		out[DTRAIN_PIECE_FIRST] = first;
		out[DTRAIN_PIECE_PARTS] = parts;
		out[DTRAIN_PIECE_PLACE] = place < 0 ? -1 : place + done;
	}
}

int dtrain__pieces_count(dtrain_optimizer *optimizer, beton_error *err)
{
	int params = dtrain_params_count(optimizer->params);
	int status = optimizer->kind->needs_matrices ? find_shapes(optimizer, err) : BETON_OK;
	for (int i = 0; i < params && status == BETON_OK; i++) {
		const dtrain_param *param = dtrain_params_at(optimizer->params, i);
		status = dtrain__range_has(optimizer->range, param) ? check_whole(optimizer, i, err) : BETON_OK;
		optimizer->range->num_pieces += pieces_of(optimizer, i);
	}
	return status;
}

int dtrain__pieces_create(dtrain_optimizer *optimizer, beton_error *err)
{
	int params = dtrain_params_count(optimizer->params);
	size_t bytes = (size_t)optimizer->range->num_pieces * DTRAIN_PIECE_NUMBERS * sizeof(int64_t);
	int64_t *host = NULL, first = 0;
	if (!bytes)
		return BETON_OK;
	int status = optimizer->api->alloc(optimizer->device, bytes, (void **)&optimizer->range->pieces, err);
	if (status == BETON_OK)
		status = optimizer->api->host_alloc(optimizer->device, bytes, (void **)&host, err);
	if (status != BETON_OK)
		return status;
	for (int i = 0; i < params; i++) {
		int64_t count = pieces_of(optimizer, i);
		if (count)
			list_pieces(optimizer, i, first, host + first * DTRAIN_PIECE_NUMBERS);
		first += count;
	}
	status = dtrain__optimizer_upload(optimizer, optimizer->range->pieces, host, bytes, err);
	optimizer->api->host_free(optimizer->device, host);
	return status;
}
