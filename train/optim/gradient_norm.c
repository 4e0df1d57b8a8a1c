/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms of gradients, added up in an order that does not depend on how ranks share the parameters. Every unit is
 * divided into norm_parts pieces; no shard divides a piece. Each piece has its own state of clipping in a table, where
 * its part is added up. Ranks add up their tables; each piece is zero in all but one, so that the order of these
 * additions does not matter. Then the table is halved until one state is left.
 */
#include "common/error.h"
#include "core/params.h"
#include "optimizer.h"

dtrain__argument dtrain__norm_table(const dtrain_optimizer *optimizer, int64_t first, int64_t states)
{
	return dtrain__argument_array(DTRAIN_F32, states * DTRAIN_CLIPS, optimizer->norm_table + first * DTRAIN_CLIPS);
}

static int add(dtrain_optimizer *optimizer, dtrain__argument a, dtrain__argument b, dtrain__argument to,
	       beton_error *err)
{
	const dtrain__argument none = {.memory = NULL};
	return dtrain__optimizer_add(optimizer, &optimizer->before, DTRAIN_OP_ADD, NULL,
				     (const dtrain__argument[]){a, b, none}, (const dtrain__argument[]){to, none}, err);
}

/* first: element of the range. piece: of all units. */
static int add_piece(dtrain_optimizer *optimizer, int64_t first, int64_t count, int64_t piece,
		     const dtrain_op_attrs *attrs, beton_error *err)
{
	const dtrain__argument none = {.memory = NULL}, state = dtrain__norm_table(optimizer, piece, 1);
	const dtrain_dtype dtype = dtrain_params_dtype(optimizer->params);
	char *grads = (char *)optimizer->range->raw_grads + (size_t)first * dtrain_dtype_size(dtype);
	const dtrain__argument inputs[] = {dtrain__argument_array(dtype, count, grads), state,
					   optimizer->scaler ? dtrain__argument_four(optimizer->scaler) : none, none};
	return dtrain__optimizer_add(optimizer, &optimizer->before, DTRAIN_OP_GRAD_NORM, attrs, inputs,
				     (const dtrain__argument[]){state, none}, err);
}

static int add_pieces(dtrain_optimizer *optimizer, bool shared, const dtrain_op_attrs *attrs, beton_error *err)
{
	int parts = optimizer->norm_parts, status = BETON_OK;
	for (int i = 0; i < optimizer->num_ranges; i++) {
		const dtrain__update_range *range = optimizer->range = &optimizer->ranges[i];
		for (int k = 0; k < dtrain_params_unit_count(optimizer->params) * parts; k++) {
			const dtrain_unit *unit = dtrain_params_unit_at(optimizer->params, k / parts);
			int64_t count = unit->count / parts, first = unit->offset + k % parts * count - range->begin;
			bool inside = first >= 0 && first + count <= range->count;
			if (range->shared == shared && inside && status == BETON_OK)
				status = add_piece(optimizer, first, count, k, attrs, err);
		}
	}
	return status;
}

/* The states, and as many that stay 0. */
int dtrain__norm_table_create(dtrain_optimizer *optimizer, int64_t states, beton_error *err)
{
	dtrain_device *device = optimizer->before.device;
	optimizer->norm_table_bytes = (size_t)states * DTRAIN_CLIPS * sizeof(float);
	return dtrain_device_get_api(device)->alloc(device, 2 * optimizer->norm_table_bytes,
						    (void **)&optimizer->norm_table, err);
}

int dtrain__norm_table_zero(dtrain_optimizer *optimizer, int64_t states, beton_error *err)
{
	const dtrain__argument zeros = dtrain__norm_table(optimizer, states, states);
	return add(optimizer, zeros, zeros, dtrain__norm_table(optimizer, 0, states), err);
}

/* Units must be whole pieces; the number of states is a power of two. */
static int allocate(dtrain_optimizer *optimizer, int64_t *out, beton_error *err)
{
	const dtrain_params *params = optimizer->params;
	int64_t pieces = (int64_t)dtrain_params_unit_count(params) * optimizer->norm_parts;
	for (int i = 0; i < dtrain_params_unit_count(params); i++)
		if (dtrain_params_unit_at(params, i)->count % optimizer->norm_parts != 0)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "norm_parts is %d, and unit %d has %lld elements",
				       optimizer->norm_parts, i + 1,
				       (long long)dtrain_params_unit_at(params, i)->count);
	for (*out = 1; *out < pieces;)
		*out *= 2;
	return dtrain__norm_table_create(optimizer, *out, err);
}

int dtrain__norm_create(dtrain_optimizer *optimizer, const dtrain_op_attrs *attrs, beton_error *err)
{
	const dtrain__argument clip = dtrain__argument_four(optimizer->clip);
	int64_t states = 0;
	int status = allocate(optimizer, &states, err);
	if (status != BETON_OK)
		return status;
	status = dtrain__norm_table_zero(optimizer, states, err);
	if (status == BETON_OK)
		status = add_pieces(optimizer, false, attrs, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_add_sum(optimizer, &optimizer->before, optimizer->norm_table,
						   states * DTRAIN_CLIPS, err);
	if (status == BETON_OK)
		status = add_pieces(optimizer, true, attrs, err);
	for (int64_t half = states / 2; half > 0 && status == BETON_OK; half /= 2) {
		const dtrain__argument low = dtrain__norm_table(optimizer, 0, half);
		status = add(optimizer, low, dtrain__norm_table(optimizer, half, half), low, err);
	}
	return status == BETON_OK ? add(optimizer, clip, dtrain__norm_table(optimizer, 0, 1), clip, err) : status;
}
