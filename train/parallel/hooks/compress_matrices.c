/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD: the gradient M of a matrix is sent as P (Q^T of all ranks), where P = M Q, added up and made orthonormal,
 * and Q = M^T P, added up. Names follow the paper, and PyTorch's hook. Here both are sums over the ranks, so that P Q^T
 * is the sum of the gradients; scaled matrices are made orthonormal afterwards anyway.
 *
 * Two arrays are sent. `left` has all P, followed by gradients that are not matrices; `right` has all Q.
 */
#include <stdlib.h>

#include "common/error.h"
#include "compress.h"
#include "parallel/data/traffic.h"

/* Elements at which an operand begins. */
enum { PLACE_ALIGN = 16 };

typedef struct matrix {
	const dtrain_hook_part *part;
	int64_t rows, columns, rank;
	int64_t left, right; /* of P and of Q: the first element there */
	int64_t *random;     /* on the device */
	/* error += gradient; P = M Q; Q = M^T P; gradient = P Q^T; error -= mean gradient; orthonormal P and Q */
	dtrain_op *add, *left_product, *right_product, *product, *carry, *left_columns, *right_columns;
} matrix;

/* A part that is sent as it is. */
typedef struct rest {
	const dtrain_hook_part *part;
	int64_t left;
} rest;

typedef struct matrices_range {
	compress_range base;
	matrix *matrices;
	rest *rests;
	int num_matrices, num_rests;
	float *left, *right;
	int64_t left_count, right_count;
	int64_t *randoms;
	float *error; /* as of the base, for the matrices alone */
} matrices_range;

static void destroy(void *state)
{
	matrices_range *range = state;
	for (int i = 0; i < range->num_matrices; i++) {
		matrix *m = &range->matrices[i];
		dtrain_op *ops[] = {m->add,   m->left_product, m->right_product, m->product,
				    m->carry, m->left_columns, m->right_columns};
		for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++)
			dtrain__compress_destroy_op(&range->base, ops[k]);
	}
	free(range->matrices);
	free(range->rests);
	dtrain__compress_close(&range->base);
}

/* ---- which parts are matrices ---- */

static int64_t aligned(int64_t count)
{
	return (count + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

/* A matrix has no more columns to send than it has rows and columns. */
static int64_t rank_of(const dtrain_compression *options, int64_t rows, int64_t columns)
{
	int64_t most = rows < columns ? rows : columns;
	return options->rank < most ? options->rank : most;
}

/* PyTorch's rule, for a parameter seen as its first dimension and the rest. A vector is sent as it is. */
static bool is_matrix(const dtrain_compression *options, const dtrain_hook_part *part)
{
	const dtrain_param *param = part->param;
	if (part->begin != 0 || part->count != param->count || param->shape.ndim < 2)
		return false;
	int64_t rows = param->shape.dim[0], columns = param->count / rows;
	double sent = (double)(rows + columns) * (double)rank_of(options, rows, columns);
	return sent * options->min_rate < (double)param->count;
}

static void add_matrix(matrices_range *range, const dtrain_hook_part *part)
{
	int64_t rows = part->param->shape.dim[0], columns = part->count / rows;
	matrix *m = &range->matrices[range->num_matrices++];
	*m = (matrix){.part = part,
		      .rows = rows,
		      .columns = columns,
		      .rank = rank_of(&range->base.context->options, rows, columns),
		      .left = range->left_count,
		      .right = range->right_count};
	range->left_count += aligned(rows * m->rank);
	range->right_count += aligned(columns * m->rank);
}

static int sort_parts(matrices_range *range, beton_error *err)
{
	const dtrain_hook_range *all = &range->base.range;
	range->matrices = calloc((size_t)all->num_parts + 1, sizeof(*range->matrices));
	range->rests = calloc((size_t)all->num_parts + 1, sizeof(*range->rests));
	if (!range->matrices || !range->rests)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %s", all->label);
	for (int i = 0; i < all->num_parts; i++)
		if (is_matrix(&range->base.context->options, &all->parts[i]))
			add_matrix(range, &all->parts[i]);
	for (int i = 0; i < all->num_parts; i++)
		if (!is_matrix(&range->base.context->options, &all->parts[i])) {
			range->rests[range->num_rests++] = (rest){&all->parts[i], range->left_count};
			range->left_count += aligned(all->parts[i].count);
		}
	return BETON_OK;
}

static bool feeds_back(const matrices_range *range)
{
	return range->base.context->options.error_feedback && range->num_matrices;
}

/* ---- ops ---- */

static int create_op(matrices_range *range, dtrain_op_desc desc, dtrain_op **out, beton_error *err)
{
	return dtrain__compress_op(&range->base, &desc, out, err);
}

static int create_products(matrices_range *range, matrix *m, beton_error *err)
{
	const dtrain_operand gradient = dtrain__compress_operand(DTRAIN_F32, m->rows, m->columns, 0),
			     left = dtrain__compress_operand(DTRAIN_F32, m->rows, m->rank, 0),
			     right = dtrain__compress_operand(DTRAIN_F32, m->columns, m->rank, 0);
	/* Sums of P and Q are sent; their product is not, and the ranks' must not differ. */
	const dtrain_matmul_attrs plain = {.alpha = 1}, of_a = {.alpha = 1, .transpose_a = true},
				  of_b = {.alpha = 1, .transpose_b = true, .deterministic = true};
	int status =
		create_op(range, (dtrain_op_desc){DTRAIN_OP_MATMUL, {.matmul = plain}, 2, 1, {gradient, right}, {left}},
			  &m->left_product, err);
	if (status == BETON_OK)
		status = create_op(
			range, (dtrain_op_desc){DTRAIN_OP_MATMUL, {.matmul = of_a}, 2, 1, {gradient, left}, {right}},
			&m->right_product, err);
	return status == BETON_OK
		       ? create_op(
				 range,
				 (dtrain_op_desc){DTRAIN_OP_MATMUL, {.matmul = of_b}, 2, 1, {left, right}, {gradient}},
				 &m->product, err)
		       : status;
}

static int create_columns(matrices_range *range, int64_t rows, int64_t rank, dtrain_op **out, beton_error *err)
{
	const dtrain_operand columns = dtrain__compress_operand(DTRAIN_F32, rows, rank, 0),
			     random = dtrain__compress_operand(DTRAIN_I64, DTRAIN_RANDOMS, 0, 0);
	return create_op(
		range,
		(dtrain_op_desc){DTRAIN_OP_ORTHONORMALIZE, {.factor = 0}, 2, 2, {columns, random}, {columns, random}},
		out, err);
}

static int create_feedback(matrices_range *range, matrix *m, beton_error *err)
{
	const dtrain_operand flat = dtrain__compress_operand(DTRAIN_F32, m->part->count, 0, 0);
	int status = create_op(range, (dtrain_op_desc){DTRAIN_OP_ADD, {.factor = 0}, 2, 1, {flat, flat}, {flat}},
			       &m->add, err);
	return status == BETON_OK ? create_op(range,
					      (dtrain_op_desc){DTRAIN_OP_CARRY,
							       {.factor = -1.0 / range->base.ranks},
							       2,
							       1,
							       {flat, flat},
							       {flat}},
					      &m->carry, err)
				  : status;
}

static int create_ops(matrices_range *range, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < range->num_matrices && status == BETON_OK; i++) {
		matrix *m = &range->matrices[i];
		status = create_products(range, m, err);
		if (status == BETON_OK)
			status = create_columns(range, m->rows, m->rank, &m->left_columns, err);
		if (status == BETON_OK)
			status = create_columns(range, m->columns, m->rank, &m->right_columns, err);
		if (status == BETON_OK && feeds_back(range))
			status = create_feedback(range, m, err);
	}
	return status;
}

/* ---- memory ---- */

/* The draws for a matrix depend on its parameter's place in the model, not on the ranges. */
static int seed_randoms(matrices_range *range, beton_error *err)
{
	const dtrain_device_api *api = range->base.api;
	dtrain_stream *stream = NULL;
	size_t count = (size_t)range->num_matrices * DTRAIN_RANDOMS;
	int64_t *values = calloc(count + 1, sizeof(*values));
	if (!values)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %s", range->base.range.label);
	for (int i = 0; i < range->num_matrices; i++) {
		range->matrices[i].random = range->randoms + (ptrdiff_t)i * DTRAIN_RANDOMS;
		values[i * DTRAIN_RANDOMS + DTRAIN_RANDOM_SEED] =
			(int64_t)(range->base.context->options.seed +
				  0x9e3779b97f4a7c15u * (uint64_t)range->matrices[i].part->param->offset);
	}
	int status = api->stream_create(range->base.range.device, &stream, err);
	if (status == BETON_OK)
		status = api->copy(stream, range->randoms, values, count * sizeof(*values), DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = api->stream_synchronize(stream, err);
	if (stream)
		api->stream_destroy(stream);
	free(values);
	return status;
}

static int create_memories(matrices_range *range, beton_error *err)
{
	compress_range *base = &range->base;
	int status = dtrain__compress_alloc(base, (size_t)range->left_count * sizeof(float), &range->left, err);
	if (status == BETON_OK)
		status = dtrain__compress_alloc(base, (size_t)range->right_count * sizeof(float), &range->right, err);
	if (status == BETON_OK && feeds_back(range))
		status = dtrain__compress_alloc(base, (size_t)base->range.count * sizeof(float), &range->error, err);
	if (status == BETON_OK)
		status = dtrain__compress_alloc(base, (size_t)range->num_matrices * DTRAIN_RANDOMS * sizeof(int64_t),
						&range->randoms, err);
	return status == BETON_OK && range->randoms && range->num_matrices ? seed_randoms(range, err) : status;
}

static int create(void *context, const dtrain_hook_range *given, void **out, beton_error *err)
{
	int status = dtrain__compress_open(context, given, sizeof(matrices_range), false, out, err);
	if (status != BETON_OK)
		return status;
	matrices_range *range = *out;
	status = sort_parts(range, err);
	if (status == BETON_OK)
		status = create_memories(range, err);
	if (status == BETON_OK)
		status = create_ops(range, err);
	if (status != BETON_OK)
		destroy(range);
	return status;
}

/* ---- steps ---- */

static float *gradient_of(const matrices_range *range, const dtrain_hook_part *part)
{
	return (float *)range->base.range.memory + part->offset;
}

/* The numbers that are sent for a matrix. */
static float *source_of(const matrices_range *range, const matrix *m)
{
	return range->error ? range->error + m->part->offset : gradient_of(range, m->part);
}

static int put(matrices_range *range, dtrain_op *op, dtrain_stream *stream, void *a, void *b, void *c, void *d,
	       beton_error *err)
{
	return dtrain__compress_run(&range->base, op, stream, (void *[]){a, b, c, d}, err);
}

static int put_left(matrices_range *range, const matrix *m, dtrain_stream *stream, beton_error *err)
{
	float *from = source_of(range, m), *p = range->left + m->left, *q = range->right + m->right;
	int status = BETON_OK;
	if (range->error)
		status = put(range, m->add, stream, from, gradient_of(range, m->part), from, NULL, err);
	if (status == BETON_OK)
		status = put(range, m->right_columns, stream, q, m->random, q, m->random, err);
	return status == BETON_OK ? put(range, m->left_product, stream, from, q, p, NULL, err) : status;
}

static int copy_rests(matrices_range *range, dtrain_stream *stream, bool back, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < range->num_rests && status == BETON_OK; i++) {
		const rest *r = &range->rests[i];
		float *gradient = gradient_of(range, r->part), *sent = range->left + r->left;
		status = range->base.api->copy(stream, back ? gradient : sent, back ? sent : gradient,
					       (size_t)r->part->count * sizeof(float), DTRAIN_DEVICE_TO_DEVICE, err);
	}
	return status;
}

static uint64_t sent(const void *state, int round)
{
	const matrices_range *range = state;
	int64_t count = round == 0 ? range->left_count : range->right_count;
	return dtrain__sent_for_sum((uint64_t)count * sizeof(float), range->base.ranks);
}

static int send(matrices_range *range, dtrain_hook_round *round, float *data, int64_t count, beton_error *err)
{
	const dtrain_hook_range *all = &range->base.range;
	int status = range->base.api->event_record(round->ready, round->stream, err);
	round->bytes = (uint64_t)count * sizeof(float);
	return status == BETON_OK ? dtrain_allreduce(all->group, data, count, DTRAIN_F32, DTRAIN_SUM, round->ready,
						     &round->work, err)
				  : status;
}

static int send_left(matrices_range *range, dtrain_hook_round *round, beton_error *err)
{
	bool warm = range->base.context->options.warm_start;
	int status = BETON_OK;
	/* Zeros are drawn anew. */
	if (!warm && range->right_count)
		status = range->base.api->zero(round->stream, range->right, (size_t)range->right_count * sizeof(float),
					       err);
	for (int i = 0; i < range->num_matrices && status == BETON_OK; i++)
		status = put_left(range, &range->matrices[i], round->stream, err);
	if (status == BETON_OK)
		status = copy_rests(range, round->stream, false, err);
	return status == BETON_OK ? send(range, round, range->left, range->left_count, err) : status;
}

static int send_right(matrices_range *range, dtrain_hook_round *round, beton_error *err)
{
	int status = BETON_OK;
	if (!range->num_matrices)
		return BETON_OK;
	for (int i = 0; i < range->num_matrices && status == BETON_OK; i++) {
		const matrix *m = &range->matrices[i];
		float *p = range->left + m->left, *q = range->right + m->right;
		status = put(range, m->left_columns, round->stream, p, m->random, p, m->random, err);
		if (status == BETON_OK)
			status = put(range, m->right_product, round->stream, source_of(range, m), p, q, NULL, err);
	}
	return status == BETON_OK ? send(range, round, range->right, range->right_count, err) : status;
}

static int run_round(void *state, dtrain_hook_round *round, beton_error *err)
{
	matrices_range *range = state;
	compression *context = range->base.context;
	const dtrain_hook_range *all = &range->base.range;
	/* The first range's first round is the first call of a step. */
	if (round->index == 0 && all->index == 0) {
		context->plain = context->steps < context->options.start;
		context->steps += context->plain ? 1 : 0;
	}
	if (!context->plain)
		return round->index == 0 ? send_left(range, round, err) : send_right(range, round, err);
	return round->index == 0 ? send(range, round, all->memory, all->count, err) : BETON_OK;
}

static int finish(void *state, dtrain_stream *stream, beton_error *err)
{
	matrices_range *range = state;
	if (range->base.context->plain)
		return BETON_OK;
	int status = copy_rests(range, stream, true, err);
	for (int i = 0; i < range->num_matrices && status == BETON_OK; i++) {
		const matrix *m = &range->matrices[i];
		float *p = range->left + m->left, *q = range->right + m->right, *gradient = gradient_of(range, m->part);
		float *error = source_of(range, m);
		status = put(range, m->product, stream, p, q, gradient, NULL, err);
		if (status == BETON_OK && range->error)
			status = put(range, m->carry, stream, error, gradient, error, NULL, err);
	}
	return status;
}

static bool is_settled(const void *state)
{
	const compression *context = ((const matrices_range *)state)->base.context;
	return context->steps >= context->options.start;
}

/* ---- tensors ---- */

static dtrain_hook_tensor whole_tensor(const char *name, dtrain_dtype dtype, int64_t a, int64_t b, void *memory,
				       dtrain_device *device)
{
	dtrain_hook_tensor out = {.name = name, .dtype = dtype, .memory = memory, .device = device};
	out.shape = dtrain__compress_operand(dtype, a, b, 0).shape;
	for (int i = 0; i < out.shape.ndim; i++)
		out.extent[i] = out.shape.dim[i];
	out.count = dtrain_shape_count(&out.shape);
	return out;
}

static dtrain_hook_tensor error_tensor(matrices_range *range, const matrix *m)
{
	compress_range *base = &range->base;
	dtrain_hook_tensor out =
		whole_tensor(dtrain__compress_name(base, m->part->param->name, "compress_error"), DTRAIN_F32,
			     base->ranks, m->part->count, range->error + m->part->offset, base->range.device);
	out.offset[0] = base->rank;
	out.extent[0] = 1;
	out.count = m->part->count;
	return out;
}

/* The number of steps is the same on all ranks and for all ranges. */
static int tensors(void *state, dtrain_hook_tensor *out, int capacity)
{
	matrices_range *range = state;
	compress_range *base = &range->base;
	int each = range->error ? 3 : 2, steps = base->range.index == 0 ? 1 : 0;
	int count = each * range->num_matrices + steps;
	if (capacity < count)
		return count;
	for (int i = 0; i < range->num_matrices; i++) {
		matrix *m = &range->matrices[i];
		const char *name = m->part->param->name;
		*out++ = whole_tensor(dtrain__compress_name(base, name, "powersgd_q"), DTRAIN_F32, m->columns, m->rank,
				      range->right + m->right, base->range.device);
		*out++ = whole_tensor(dtrain__compress_name(base, name, "powersgd_draws"), DTRAIN_I64, DTRAIN_RANDOMS,
				      0, m->random, base->range.device);
		if (range->error)
			*out++ = error_tensor(range, m);
	}
	if (steps)
		*out++ = whole_tensor("powersgd_steps", DTRAIN_I64, 1, 0, &base->context->steps, NULL);
	return count;
}

const dtrain_hook dtrain__compress_powersgd = {.struct_size = sizeof(dtrain_hook),
					       .name = "powersgd",
					       .rounds = 2,
					       .create = create,
					       .destroy = destroy,
					       .round = run_round,
					       .finish = finish,
					       .is_settled = is_settled,
					       .tensors = tensors,
					       .bytes = dtrain__compress_bytes,
					       .sent = sent};
