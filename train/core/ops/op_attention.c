/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, and the rotation of its queries and keys.
 */
#include <math.h>

#include "common/error.h"
#include "core/op.h"
#include "core/shape.h"

static bool is_backward(dtrain_op_kind kind)
{
	return kind == DTRAIN_OP_ATTENTION_BWD || kind == DTRAIN_OP_ATTENTION_DROPOUT_BWD;
}

static bool is_rows(const dtrain_shape *shape, int64_t batch, int64_t rows, int64_t columns)
{
	return shape->ndim == 3 && shape->dim[0] == batch && shape->dim[1] == rows && shape->dim[2] == columns;
}

static int check_shapes(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_attention_attrs *a = &desc->attrs.attention;
	const dtrain_shape *q = &roles->of['X']->shape, *k = &roles->of['K']->shape, *y = &roles->of['Y']->shape;
	const dtrain_shape *lse = &roles->of['E']->shape;
	int64_t all = a->heads + 2 * (int64_t)a->kv_heads;
	bool rows = q->ndim == 3 && k->ndim == 3 && y->ndim == 3;
	int64_t d = rows ? y->dim[2] / a->heads : 0, b = rows ? q->dim[0] : 0, t = rows ? q->dim[1] : 0;
	if (!rows || y->dim[2] != d * a->heads || !is_rows(y, b, t, d * a->heads) ||
	    !is_rows(q, b, t, d * (a->packed ? all : a->heads)))
		return dtrain__op_bad(desc, "needs queries [b, t, heads * d], not", roles->of['X'], err);
	if (a->packed ? !dtrain__shape_equal(q, k) : !is_rows(k, b, k->dim[1], d * a->kv_heads))
		return dtrain__op_bad(desc, "needs keys [b, s, kv_heads * d], not", roles->of['K'], err);
	if (lse->ndim != 3 || lse->dim[0] != b || lse->dim[1] != a->heads || lse->dim[2] != t)
		return dtrain__op_bad(desc, "needs logarithms [b, heads, t], not", roles->of['E'], err);
	if (a->causal && k->dim[1] < t)
		return dtrain__op_bad(desc, "causal, with more queries than keys", roles->of['K'], err);
	const dtrain_chunk_attrs *chunks = &a->chunks;
	bool divided = chunks->ranks > 0;
	if (divided &&
	    (chunks->rank < 0 || chunks->rank >= chunks->ranks || t % 2 || k->dim[1] != t * chunks->ranks || a->packed))
		return dtrain__op_bad(desc, "needs two chunks of queries, and the keys of all ranks, not",
				      roles->of['K'], err);
	const dtrain_shape *segment = roles->of['g'] ? &roles->of['g']->shape : NULL;
	if (segment && (segment->ndim != 2 || segment->dim[0] != b || segment->dim[1] != k->dim[1] ||
			(!divided && k->dim[1] != t)))
		return dtrain__op_bad(desc, "needs a segment [b, s] of each query and key, not", roles->of['g'], err);
	return BETON_OK;
}

static int check_attrs(const dtrain_op_desc *desc, beton_error *err)
{
	const dtrain_attention_attrs *a = &desc->attrs.attention;
	if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: %d heads for %d heads of keys",
			       dtrain__op_name(desc->kind), a->heads, a->kv_heads);
	if (!(a->scale >= 0) || !isfinite(a->scale))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: scale %g", dtrain__op_name(desc->kind), a->scale);
	return BETON_OK;
}

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_attention_attrs *a = &desc->attrs.attention;
	int status = check_attrs(desc, err);
	if (status != BETON_OK)
		return status;
	if (roles->of['r'] && !(a->dropout >= 0 && a->dropout < 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: dropout %g", dtrain__op_name(desc->kind),
			       a->dropout);
	if (a->all_heads && (a->first_head < 0 || a->heads > a->all_heads - a->first_head))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: %d heads from head %d of %d",
			       dtrain__op_name(desc->kind), a->heads, a->first_head, a->all_heads);
	int64_t gradients = a->packed ? 1 : 3;
	if (is_backward(desc->kind) && desc->num_outputs != gradients)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: %d gradients", dtrain__op_name(desc->kind),
			       desc->num_outputs);
	return check_shapes(desc, roles, err);
}

static int check_cached(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_attention_attrs *a = &desc->attrs.attention;
	const dtrain_shape *q = &roles->of['X']->shape, *k = &roles->of['K']->shape, *keys = &roles->of['Y']->shape;
	int status = check_attrs(desc, err);
	if (status != BETON_OK)
		return status;
	if (!a->causal || a->packed)
		return dtrain__op_bad(desc, "is causal, and its operands are not packed", NULL, err);
	if (q->ndim != 3 || q->dim[2] % a->heads)
		return dtrain__op_bad(desc, "needs queries [b, t, heads * d], not", roles->of['X'], err);
	int64_t columns = q->dim[2] / a->heads * a->kv_heads;
	if (!is_rows(k, q->dim[0], q->dim[1], columns))
		return dtrain__op_bad(desc, "needs keys [b, t, kv_heads * d], not", roles->of['K'], err);
	if (keys->ndim != 3 || !is_rows(keys, q->dim[0], keys->dim[1], columns) || keys->dim[1] < q->dim[1])
		return dtrain__op_bad(desc, "needs a cache [b, s, kv_heads * d] of t rows or more, not", roles->of['Y'],
				      err);
	return dtrain__op_is_vector(roles->of['q'], 1)
		       ? BETON_OK
		       : dtrain__op_bad(desc, "needs one number of rows", roles->of['q'], err);
}

/* The two products; causal attention of as many queries as keys has half of them. */
static double forward_flops(const dtrain_op_desc *desc)
{
	bool backward = is_backward(desc->kind);
	const dtrain_shape *k = &desc->inputs[1].shape,
			   *y = backward ? &desc->inputs[3].shape : &desc->outputs[0].shape;
	double t = (double)y->dim[1], s = (double)k->dim[1];
	double pairs = desc->attrs.attention.causal ? t * s - t * (t - 1) / 2 : t * s;
	if (desc->attrs.attention.causal && desc->attrs.attention.chunks.ranks)
		pairs = t * (s + 1) / 2; /* whichever chunks these are */
	return 4 * (double)y->dim[0] * (double)y->dim[2] * pairs;
}

/* With a full cache. */
static double cached_flops(const dtrain_op_desc *desc)
{
	const dtrain_shape *y = &desc->outputs[0].shape;
	double t = (double)y->dim[1], s = (double)desc->inputs[3].shape.dim[1];
	return 4 * (double)y->dim[0] * (double)y->dim[2] * (t * s - t * (t - 1) / 2);
}

/* Five products in place of two. */
static double backward_flops(const dtrain_op_desc *desc)
{
	return 2.5 * forward_flops(desc);
}

static int check_rotary(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_rotary_attrs *a = &desc->attrs.rotary;
	const dtrain_shape *x = &roles->of['X']->shape;
	if (a->head_dim < 2 || a->head_dim % 2 || !(a->theta > 0) || !isfinite(a->theta))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: heads of %d elements, theta %g",
			       dtrain__op_name(desc->kind), a->head_dim, a->theta);
	if (x->ndim != 3 || x->dim[2] % a->head_dim)
		return dtrain__op_bad(desc, "needs [b, t, heads * head_dim], not", roles->of['X'], err);
	const dtrain_shape *q = roles->of['q'] ? &roles->of['q']->shape : NULL;
	bool good = !q || (q->ndim == 1 && q->dim[0] == x->dim[1]) ||
		    (q->ndim == 2 && q->dim[0] == x->dim[0] && q->dim[1] == x->dim[1]);
	return good ? BETON_OK : dtrain__op_bad(desc, "needs positions [b, t] or [t], not", roles->of['q'], err);
}

/* clang-format off */
/* q, k, v, segment: the segments' numbers are cut off, so that there are three, in any order. */
static const dtrain__op_range ranges[] = {{-2, 2}, {-2, 2}, {-1, 1}, {0, 2.99}};
#define SEPARATE(b, t, s, q_heads, k_heads, d, is_causal, segments) \
	{.shapes = {{3, {b, t, (q_heads) * (d)}}, {3, {b, s, (k_heads) * (d)}}, {2, {b, t}}, \
		    {3, {b, t, (q_heads) * (d)}}, {3, {b, q_heads, t}}}, \
	 .attrs.attention = {.heads = (q_heads), .kv_heads = (k_heads), .causal = (is_causal)}, \
	 .optional_inputs = (segments), .bound = 1e-5}
#define PACKED(b, t, q_heads, k_heads, d, is_causal, segments) \
	{.shapes = {{3, {b, t, ((q_heads) + 2 * (k_heads)) * (d)}}, {3, {b, t, ((q_heads) + 2 * (k_heads)) * (d)}}, \
		    {2, {b, t}}, {3, {b, t, (q_heads) * (d)}}, {3, {b, q_heads, t}}}, \
	 .attrs.attention = {.heads = (q_heads), .kv_heads = (k_heads), .causal = (is_causal), .packed = true, \
			     .scale = (segments) ? 0.3 : 0}, \
	 .optional_inputs = (segments), .bound = 1e-5}
/* past: a number of rows plus something that is cut off. */
#define CACHED(b, t, s, q_heads, k_heads, d, past) \
	{.shapes = {{3, {b, t, (q_heads) * (d)}}, {3, {b, t, (k_heads) * (d)}}, {3, {b, s, (k_heads) * (d)}}, {1, {1}}}, \
	 .attrs.attention = {.heads = (q_heads), .kv_heads = (k_heads), .causal = true}, .bound = 1e-5, \
	 .ranges = (const dtrain__op_range[]){{-2, 2}, {-2, 2}, {-1, 1}, {-2, 2}, {-1, 1}, {(past) + 0.1, (past) + 0.9}}}
/* The chunks of a rank; segment: [b, s] of all. */
#define CHUNKS(b, t, of_ranks, which, q_heads, k_heads, d, is_causal, segments) \
	{.shapes = {{3, {b, t, (q_heads) * (d)}}, {3, {b, (t) * (of_ranks), (k_heads) * (d)}}, {2, {b, (t) * (of_ranks)}}, \
		    {3, {b, t, (q_heads) * (d)}}, {3, {b, q_heads, t}}}, \
	 .attrs.attention = {.heads = (q_heads), .kv_heads = (k_heads), .causal = (is_causal), \
			     .chunks = {.ranks = (of_ranks), .rank = (which)}}, \
	 .optional_inputs = (segments), .bound = 1e-5}
#define DROP_CHUNKS(b, t, of_ranks, which, q_heads, k_heads, d, is_causal, segments, p) \
	{.shapes = {{3, {b, t, (q_heads) * (d)}}, {3, {b, (t) * (of_ranks), (k_heads) * (d)}}, {1, {DTRAIN_RANDOMS}}, \
		    {2, {b, (t) * (of_ranks)}}, {3, {b, t, (q_heads) * (d)}}, {3, {b, q_heads, t}}}, \
	 .attrs.attention = {.heads = (q_heads), .kv_heads = (k_heads), .causal = (is_causal), .dropout = (p), \
			     .chunks = {.ranks = (of_ranks), .rank = (which)}}, \
	 .optional_inputs = (segments), .bound = 1e-5}
#define ROTATE(b, t, heads, d, theta_, neighbours, inverse_, positions, ...) \
	{.shapes = {{3, {b, t, (heads) * (d)}}, {__VA_ARGS__}}, \
	 .attrs.rotary = {.head_dim = (d), .interleaved = (neighbours), .inverse = (inverse_), .theta = (theta_)}, \
	 .optional_inputs = (positions), .bound = 5e-6}
/* clang-format on */
static const dtrain__op_case cases[] = {
	PACKED(2, 5, 2, 2, 4, true, 0),          PACKED(1, 1, 1, 1, 1, true, 0),
	PACKED(1, 13, 4, 2, 8, true, 1),         PACKED(2, 7, 3, 1, 5, false, 0),
	SEPARATE(2, 6, 6, 2, 2, 4, true, 0),     SEPARATE(1, 3, 9, 4, 1, 6, true, 0),
	SEPARATE(2, 4, 11, 2, 1, 3, false, 0),   SEPARATE(1, 9, 9, 2, 2, 16, false, 1),
	SEPARATE(1, 33, 33, 1, 1, 8, true, 1),   PACKED(1, 34, 2, 1, 16, true, 0),
	SEPARATE(1, 7, 40, 2, 1, 3, true, 0),    PACKED(2, 20, 6, 2, 8, true, 0),
	SEPARATE(1, 5, 9, 2, 2, 64, false, 0),   SEPARATE(2, 40, 40, 2, 2, 16, true, 0),
	SEPARATE(1, 5, 37, 4, 2, 8, false, 0),   PACKED(1, 70, 2, 2, 64, true, 0),
	CHUNKS(2, 6, 2, 0, 2, 1, 4, true, 0),    CHUNKS(2, 6, 2, 1, 2, 2, 4, true, 1),
	CHUNKS(1, 40, 3, 1, 4, 2, 16, true, 0),  CHUNKS(1, 70, 2, 0, 2, 1, 16, true, 1),
	CHUNKS(1, 12, 2, 1, 2, 1, 16, false, 1), CHUNKS(2, 2, 4, 3, 1, 1, 3, true, 0),
};
static const dtrain__op_case cached_cases[] = {
	CACHED(1, 1, 1, 1, 1, 1, 0),  CACHED(2, 1, 9, 2, 2, 4, 5),   CACHED(1, 1, 700, 4, 2, 16, 650),
	CACHED(2, 3, 8, 4, 1, 6, 5),  CACHED(1, 33, 40, 2, 1, 8, 0), CACHED(1, 40, 40, 2, 2, 3, 0),
	CACHED(1, 2, 64, 6, 3, 8, 0),
};
/* clang-format off */
/* q, k, v, random, segment */
static const dtrain__op_range dropout_ranges[] = {{-2, 2}, {-2, 2}, {-1, 1}, {0, 1000}, {0, 2.99}};
#define DROP_SEPARATE(b, t, s, q_heads, k_heads, d, is_causal, segments, p) \
	{.shapes = {{3, {b, t, (q_heads) * (d)}}, {3, {b, s, (k_heads) * (d)}}, {1, {DTRAIN_RANDOMS}}, {2, {b, t}}, \
		    {3, {b, t, (q_heads) * (d)}}, {3, {b, q_heads, t}}}, \
	 .attrs.attention = {.heads = (q_heads), .kv_heads = (k_heads), .causal = (is_causal), .dropout = (p), .layer = -2}, \
	 .optional_inputs = (segments), .bound = 1e-5}
#define DROP_PACKED(b, t, q_heads, k_heads, d, segments, p) \
	{.shapes = {{3, {b, t, ((q_heads) + 2 * (k_heads)) * (d)}}, {3, {b, t, ((q_heads) + 2 * (k_heads)) * (d)}}, \
		    {1, {DTRAIN_RANDOMS}}, {2, {b, t}}, {3, {b, t, (q_heads) * (d)}}, {3, {b, q_heads, t}}}, \
	 .attrs.attention = {.heads = (q_heads), .kv_heads = (k_heads), .causal = true, .packed = true, .dropout = (p)}, \
	 .optional_inputs = (segments), .bound = 1e-5}
#define DROP_PART(b, t, q_heads, d, p, of_heads, from_head) \
	{.shapes = {{3, {b, t, 3 * (q_heads) * (d)}}, {3, {b, t, 3 * (q_heads) * (d)}}, {1, {DTRAIN_RANDOMS}}, {2, {b, t}}, \
		    {3, {b, t, (q_heads) * (d)}}, {3, {b, q_heads, t}}}, \
	 .attrs.attention = {.heads = (q_heads), .kv_heads = (q_heads), .causal = true, .packed = true, .dropout = (p), \
			     .all_heads = (of_heads), .first_head = (from_head)}, .bound = 1e-5}
/* clang-format on */
static const dtrain__op_case dropout_cases[] = {
	DROP_PACKED(2, 5, 2, 2, 4, 0, 0.5),
	DROP_PACKED(1, 13, 4, 2, 8, 1, 0.1),
	DROP_SEPARATE(2, 6, 9, 2, 1, 3, false, 0, 0.3),
	DROP_SEPARATE(1, 33, 33, 1, 1, 8, true, 1, 0.2),
	DROP_SEPARATE(1, 7, 40, 2, 1, 3, true, 0, 0),
	DROP_PART(2, 7, 2, 4, 0.4, 6, 3),
	DROP_CHUNKS(2, 12, 2, 1, 4, 2, 8, true, 1, 0.3),
	DROP_CHUNKS(1, 34, 2, 0, 2, 2, 8, true, 0, 0.5),
	DROP_CHUNKS(2, 4, 3, 1, 2, 1, 4, false, 0, 0.4),
};
static const dtrain__op_range rotary_ranges[] = {{-2, 2}, {0, 40}};
static const dtrain__op_case rotary_cases[] = {
	ROTATE(2, 5, 2, 4, 10000, false, false, 0, 0),
	ROTATE(1, 1, 1, 2, 10000, true, false, 0, 0),
	ROTATE(2, 7, 3, 6, 500000, true, true, 1, 1, {7}),
	ROTATE(3, 4, 1, 64, 10000, false, true, 1, 2, {3, 4}),
};

const dtrain__op_rules dtrain__op_attention = {.inputs = "XKK",
					       .optional_inputs = "g",
					       .outputs = "YE",
					       .check = check,
					       .flops = forward_flops,
					       .ranges = ranges,
					       DTRAIN__OP_CASES(cases)};

const dtrain__op_rules dtrain__op_attention_bwd = {.inputs = "XKKYYE",
						   .optional_inputs = "g",
						   .outputs = "X",
						   .optional_outputs = "KK",
						   .check = check,
						   .flops = backward_flops};

const dtrain__op_rules dtrain__op_attention_cached = {.inputs = "XKKYYq",
						      .outputs = "X",
						      .check = check_cached,
						      .flops = cached_flops,
						      .updates = 1u << 3 | 1u << 4,
						      DTRAIN__OP_CASES(cached_cases)};

const dtrain__op_rules dtrain__op_attention_dropout = {.inputs = "XKKr",
						       .optional_inputs = "g",
						       .outputs = "YE",
						       .check = check,
						       .flops = forward_flops,
						       .ranges = dropout_ranges,
						       DTRAIN__OP_CASES(dropout_cases)};

const dtrain__op_rules dtrain__op_attention_dropout_bwd = {.inputs = "XKKYYEr",
							   .optional_inputs = "g",
							   .outputs = "X",
							   .optional_outputs = "KK",
							   .check = check,
							   .flops = backward_flops};

const dtrain__op_rules dtrain__op_rotary = {.inputs = "X",
					    .optional_inputs = "q",
					    .outputs = "X",
					    .check = check_rotary,
					    .in_place = 1u << 0,
					    .ranges = rotary_ranges,
					    DTRAIN__OP_CASES(rotary_cases)};
