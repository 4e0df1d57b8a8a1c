/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention and its gradients as cuDNN's graphs: separate products, softmax and mask, which cuDNN's engines for
 * attention turn into one kernel that keeps no [queries, keys] in memory. cuDNN 9.19 recognises exactly these graphs,
 * found by trial; for others, such as graphs without the factor of `own` or with d_q written by a product, its engines
 * need workspace for all probabilities. Its kernel of Hopper's for the gradients adds to memory of the graph: without
 * `scratch` it proposes Ampere's alone.
 *
 * A head is a strided view of q, k or v, so that nothing is copied, not for packed operands either.
 */
#include <float.h>
#include <math.h>

#include "common/error.h"
#include "core/op.h"
#include "dnn.h"

enum { LARGEST_DIM = 256, LARGEST_DIM_BWD = 128, PADDING_ROWS = 128, NUMBERS_OF_ROW = 8, KEYS_OF_TILE = 128 };

typedef struct extent {
	int64_t batch, heads, kv_heads, queries, keys, dim;
	int64_t q_step, k_step, y_step; /* elements from row to row */
	size_t k_offset, v_offset;      /* bytes; also of d_k and d_v if they are packed */
	double scale;
	bool causal;
} extent;

static extent extent_of(const dtrain_op_desc *desc, const dtrain_operand *y)
{
	const dtrain_attention_attrs *attrs = &desc->attrs.attention;
	int64_t dim = y->shape.dim[2] / attrs->heads;
	size_t head = (size_t)dim * dtrain_dtype_size(y->dtype);
	return (extent){.batch = y->shape.dim[0],
			.heads = attrs->heads,
			.kv_heads = attrs->kv_heads,
			.queries = y->shape.dim[1],
			.keys = desc->inputs[1].shape.dim[1],
			.dim = dim,
			.q_step = desc->inputs[0].shape.dim[2],
			.k_step = desc->inputs[1].shape.dim[2],
			.y_step = y->shape.dim[2],
			.k_offset = attrs->packed ? (size_t)attrs->heads * head : 0,
			.v_offset = attrs->packed ? (size_t)(attrs->heads + attrs->kv_heads) * head : 0,
			.scale = attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)dim),
			.causal = attrs->causal};
}

/* Before 9.15.1 cuDNN may access memory outside for the gradients, when a captured graph is launched, if the last tile
 * of keys is not full (notes of cudnn-frontend 1.16). */
static bool leaves_memory(const extent *e)
{
	return e->keys % KEYS_OF_TILE != 0 && cudnnGetVersion() < 91501;
}

bool dnn_attention_is_suitable(const dtrain_op_desc *desc)
{
	bool backward = desc->kind == DTRAIN_OP_ATTENTION_BWD;
	const extent e = extent_of(desc, backward ? &desc->inputs[3] : &desc->outputs[0]);
	dtrain_dtype dtype = desc->inputs[0].dtype;
	return (dtype == DTRAIN_F16 || dtype == DTRAIN_BF16) && desc->num_inputs == (backward ? 6 : 3) &&
	       !desc->attrs.attention.chunks.ranks && e.dim % 8 == 0 &&
	       e.dim <= (backward ? LARGEST_DIM_BWD : LARGEST_DIM) && (!e.causal || e.keys == e.queries) &&
	       !(backward && leaves_memory(&e));
}

/* Sums in F32 of each gradient for each head of queries, which engines pad, and some numbers for each row. */
size_t dnn_attention_workspace(const dtrain_op_desc *desc)
{
	const extent e = extent_of(desc, desc->kind == DTRAIN_OP_ATTENTION_BWD ? &desc->inputs[3] : &desc->outputs[0]);
	int64_t rows = e.batch * e.heads * (e.queries + 2 * e.keys + 3 * PADDING_ROWS);
	return (size_t)(rows * (e.dim + NUMBERS_OF_ROW)) * sizeof(float);
}

/* ---- tensors: [batch, heads, rows, columns] ---- */

static dnn_view view_of(const extent *e, int64_t heads, int64_t rows, int64_t step)
{
	return (dnn_view){{e->batch, heads, rows, e->dim}, {rows * step, e->dim, step, 1}};
}

static dnn_view transposed(dnn_view view)
{
	return (dnn_view){{view.dims[0], view.dims[1], view.dims[3], view.dims[2]},
			  {view.strides[0], view.strides[1], view.strides[3], view.strides[2]}};
}

static dnn_view plain(int64_t batch, int64_t heads, int64_t rows, int64_t columns)
{
	return (dnn_view){{batch, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}

/* A tensor inside the graph. */
static dnn_descriptor inner(dnn_graph *graph, cudnnDataType_t type, dnn_view view)
{
	return dnn_strided(graph, DNN_VIRTUAL, 0, type, &view);
}

/* One number for each query and key, and for each query. */
static dnn_descriptor pairs(dnn_graph *graph, const extent *e, cudnnDataType_t type)
{
	return inner(graph, type, plain(e->batch, e->heads, e->queries, e->keys));
}

static dnn_descriptor per_query(dnn_graph *graph, const extent *e)
{
	return inner(graph, CUDNN_DATA_FLOAT, plain(e->batch, e->heads, e->queries, 1));
}

static dnn_descriptor queries(dnn_graph *graph, const extent *e, int operand)
{
	const dnn_view view = view_of(e, e->heads, e->queries, e->q_step);
	return dnn_strided(graph, operand, 0, graph->type, &view);
}

/* A descriptor with the shape of y. */
static dnn_descriptor results(dnn_graph *graph, const extent *e, int operand)
{
	const dnn_view view = view_of(e, e->heads, e->queries, e->y_step);
	return dnn_strided(graph, operand, 0, graph->type, &view);
}

static dnn_descriptor statistics(dnn_graph *graph, const extent *e, int operand)
{
	const dnn_view view = plain(e->batch, e->heads, e->queries, 1);
	return dnn_strided(graph, operand, 0, CUDNN_DATA_FLOAT, &view);
}

/* ---- operations ---- */

static dnn_descriptor combine(dnn_graph *graph, const extent *e, cudnnPointwiseMode_t mode, dnn_descriptor x,
			      dnn_descriptor b)
{
	dnn_descriptor y = pairs(graph, e, CUDNN_DATA_FLOAT);
	dnn_pointwise(graph, mode, x, b, y);
	return y;
}

/* Keys after the query get the least number, whose exponential is 0. */
static dnn_descriptor masked(dnn_graph *graph, const extent *e, dnn_descriptor scores)
{
	if (!e->causal)
		return scores;
	dnn_descriptor query = pairs(graph, e, CUDNN_DATA_INT32), key = pairs(graph, e, CUDNN_DATA_INT32);
	dnn_descriptor attends = pairs(graph, e, CUDNN_DATA_BOOLEAN), chosen = pairs(graph, e, CUDNN_DATA_FLOAT);
	dnn_index(graph, 2, scores, query);
	dnn_index(graph, 3, scores, key);
	dnn_pointwise(graph, CUDNN_POINTWISE_CMP_GE, query, key, attends);
	dnn_select(graph, scores, dnn_scalar(graph, -FLT_MAX), attends, chosen);
	return chosen;
}

static dnn_descriptor scaled_scores(dnn_graph *graph, const extent *e, dnn_descriptor q, dnn_descriptor k_transposed,
				    dnn_descriptor scale)
{
	dnn_descriptor scores = pairs(graph, e, CUDNN_DATA_FLOAT);
	dnn_product(graph, q, k_transposed, scores);
	return combine(graph, e, CUDNN_POINTWISE_MUL, scores, scale);
}

/* Rounds to the type of the operands, and writes the logarithm of the sums. */
static dnn_descriptor softmax_of(dnn_graph *graph, const extent *e, dnn_descriptor scores, dnn_descriptor lse)
{
	dnn_descriptor most = per_query(graph, e), sum = per_query(graph, e), logarithm = per_query(graph, e);
	dnn_descriptor probabilities = pairs(graph, e, graph->type);
	dnn_reduction(graph, CUDNN_REDUCE_TENSOR_MAX, scores, most);
	dnn_descriptor powers = combine(graph, e, CUDNN_POINTWISE_SUB, scores, most);
	powers = combine(graph, e, CUDNN_POINTWISE_EXP, powers, NULL);
	dnn_reduction(graph, CUDNN_REDUCE_TENSOR_ADD, powers, sum);
	dnn_pointwise(graph, CUDNN_POINTWISE_LOG, sum, NULL, logarithm);
	dnn_pointwise(graph, CUDNN_POINTWISE_ADD, most, logarithm, lse);
	dnn_pointwise(graph, CUDNN_POINTWISE_DIV, powers, sum, probabilities);
	return probabilities;
}

/* q, k, v -> y, lse. Of packed operands, which are one tensor, the first is read, as by our kernel. */
void dnn_attention_graph(dnn_graph *graph, const dtrain_op_desc *desc)
{
	const extent e = extent_of(desc, &desc->outputs[0]);
	const dnn_view keys = view_of(&e, e.kv_heads, e.keys, e.k_step), keys_transposed = transposed(keys);
	dnn_descriptor q = queries(graph, &e, 0);
	bool packed = desc->attrs.attention.packed;
	dnn_descriptor k_transposed = dnn_strided(graph, packed ? 0 : 1, e.k_offset, graph->type, &keys_transposed);
	dnn_descriptor v = dnn_strided(graph, packed ? 0 : 2, e.v_offset, graph->type, &keys);
	dnn_descriptor y = results(graph, &e, 3), lse = statistics(graph, &e, 4);
	dnn_descriptor scores = scaled_scores(graph, &e, q, k_transposed, dnn_scalar(graph, e.scale));
	dnn_product(graph, softmax_of(graph, &e, masked(graph, &e, scores), lse), v, y);
}

/* The transpose of pairs, in the type of the operands. */
static dnn_descriptor transpose(dnn_graph *graph, const extent *e, dnn_descriptor x)
{
	dnn_descriptor y = inner(graph, graph->type, transposed(plain(e->batch, e->heads, e->queries, e->keys)));
	dnn_reshape(graph, x, y);
	return y;
}

/* d_k or d_v = a b; heads of queries that share a head of keys are added up. */
static void key_gradient(dnn_graph *graph, const extent *e, dnn_descriptor a, dnn_descriptor b, int operand,
			 size_t offset)
{
	const dnn_view keys = view_of(e, e->kv_heads, e->keys, e->k_step);
	dnn_descriptor out = dnn_strided(graph, operand, offset, graph->type, &keys);
	if (e->heads == e->kv_heads) {
		dnn_product(graph, a, b, out);
		return;
	}
	dnn_descriptor each = inner(graph, graph->type, plain(e->batch, e->heads, e->keys, e->dim));
	dnn_product(graph, a, b, each);
	dnn_reduction(graph, CUDNN_REDUCE_TENSOR_ADD, each, out);
}

/* The sums of d_y * y, times the factor of a dropout that is none. */
static dnn_descriptor own_of(dnn_graph *graph, const extent *e, dnn_descriptor y, dnn_descriptor d_y)
{
	dnn_descriptor products = inner(graph, CUDNN_DATA_FLOAT, plain(e->batch, e->heads, e->queries, e->dim));
	dnn_descriptor sums = per_query(graph, e), own = per_query(graph, e);
	dnn_pointwise(graph, CUDNN_POINTWISE_MUL, d_y, y, products);
	dnn_reduction(graph, CUDNN_REDUCE_TENSOR_ADD, products, sums);
	dnn_pointwise(graph, CUDNN_POINTWISE_MUL, sums, dnn_scalar(graph, 1), own);
	return own;
}

/* The gradients' graphs differ in where the F32 sums of d_q are: in memory of the op's workspace, or inside the graph,
 * where engines use a workspace of their own; and in the order of mask and statistics. */
typedef struct gradient_way {
	bool scratch, masked_last;
} gradient_way;

/* q, k, v, y, d_y, lse -> d_q, d_k, d_v, which is one tensor if they are packed */
static void gradients_of(dnn_graph *graph, const dtrain_op_desc *desc, gradient_way way)
{
	const extent e = extent_of(desc, &desc->inputs[3]);
	bool packed = desc->attrs.attention.packed;
	const dnn_view keys = view_of(&e, e.kv_heads, e.keys, e.k_step), keys_transposed = transposed(keys);
	dnn_descriptor q = queries(graph, &e, 0);
	dnn_descriptor k_transposed = dnn_strided(graph, packed ? 0 : 1, e.k_offset, graph->type, &keys_transposed);
	dnn_descriptor v_transposed = dnn_strided(graph, packed ? 0 : 2, e.v_offset, graph->type, &keys_transposed);
	dnn_descriptor y = results(graph, &e, 3), d_y = results(graph, &e, 4), lse = statistics(graph, &e, 5);
	dnn_descriptor d_q = queries(graph, &e, 6), scale = dnn_scalar(graph, e.scale);
	dnn_descriptor own = own_of(graph, &e, y, d_y);

	dnn_descriptor scores = scaled_scores(graph, &e, q, k_transposed, scale);
	if (!way.masked_last)
		scores = masked(graph, &e, scores);
	dnn_descriptor powers = combine(graph, &e, CUDNN_POINTWISE_SUB, scores, lse);
	if (way.masked_last)
		powers = masked(graph, &e, powers);
	dnn_descriptor probabilities = combine(graph, &e, CUDNN_POINTWISE_EXP, powers, NULL);
	key_gradient(graph, &e, transpose(graph, &e, probabilities), d_y, packed ? 6 : 8, e.v_offset);

	dnn_descriptor gradients = pairs(graph, &e, CUDNN_DATA_FLOAT);
	dnn_product(graph, d_y, v_transposed, gradients);
	gradients = combine(graph, &e, CUDNN_POINTWISE_SUB, gradients, own);
	gradients = combine(graph, &e, CUDNN_POINTWISE_MUL, gradients, probabilities);
	gradients = combine(graph, &e, CUDNN_POINTWISE_MUL, gradients, scale);
	key_gradient(graph, &e, transpose(graph, &e, gradients), q, packed ? 6 : 7, e.k_offset);

	dnn_descriptor k = inner(graph, graph->type, keys);
	const dnn_view sums = plain(e.batch, e.heads, e.queries, e.dim);
	dnn_descriptor sum = dnn_strided(graph, way.scratch ? DNN_SCRATCH : DNN_VIRTUAL, 0, CUDNN_DATA_FLOAT, &sums);
	dnn_reshape(graph, k_transposed, k);
	dnn_product(graph, gradients, k, sum);
	dnn_pointwise(graph, CUDNN_POINTWISE_IDENTITY, sum, NULL, d_q);
}

static void with_scratch(dnn_graph *graph, const dtrain_op_desc *desc)
{
	gradients_of(graph, desc, (gradient_way){.scratch = true});
}

static void with_scratch_masked_last(dnn_graph *graph, const dtrain_op_desc *desc)
{
	gradients_of(graph, desc, (gradient_way){.scratch = true, .masked_last = true});
}

static void without_scratch(dnn_graph *graph, const dtrain_op_desc *desc)
{
	gradients_of(graph, desc, (gradient_way){.scratch = false});
}

static void without_scratch_masked_last(dnn_graph *graph, const dtrain_op_desc *desc)
{
	gradients_of(graph, desc, (gradient_way){.masked_last = true});
}

int dnn_attention_bwd_graphs(const dtrain_op_desc *desc, dnn_describe *out[DNN_MAX_VARIANTS])
{
	int count = 0;
	if (desc->attrs.attention.causal)
		out[count++] = with_scratch_masked_last;
	out[count++] = with_scratch;
	out[count++] = without_scratch;
	if (desc->attrs.attention.causal)
		out[count++] = without_scratch_masked_last;
	return count;
}
