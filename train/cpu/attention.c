/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in blocks, with a softmax that is continued from block to block: Dao, "FlashAttention-2", 2023. The
 * products of blocks are oneDNN's, each on one thread; threads share heads and blocks of queries, so that no sum
 * depends on their number. Blocks that a causal mask hides are skipped.
 */
#include <math.h>
#include <string.h>

#include "core/shape.h"
#include "cpu.h"

#define LOG2_E 1.4426950408889634
#define LN_2 0.6931471805599453

/* Queries and keys of a block, multiples of CPU_LANES_MAX. */
enum { FORWARD_QUERIES = 64, FORWARD_KEYS = 256, BACKWARD_QUERIES = 128, BACKWARD_KEYS = 128 };

typedef struct attention {
	int64_t b, t, s, d;
	int64_t q_step, k_step, y_step; /* elements from row to row */
	int64_t heads, group;           /* group: heads of q for each of k */
	int64_t ahead;                  /* query i sees the keys below i + ahead */
	float scale;
	const float *q, *k, *v, *y, *d_y;
	float *lse;
	const int32_t *segment; /* NULL: none */
} attention;

static attention attention_of(const struct dtrain_op *op, int64_t width, void *const *operands, void *workspace)
{
	const dtrain_attention_attrs *a = &op->attrs.attention;
	const dtrain_shape *q = &op->shapes[0], *k = &op->shapes[1];
	int64_t d = width / a->heads;
	attention g = {.b = q->dim[0],
		       .t = q->dim[1],
		       .s = k->dim[1],
		       .d = d,
		       .q_step = q->dim[2],
		       .k_step = k->dim[2],
		       .y_step = width,
		       .heads = a->heads,
		       .group = a->heads / a->kv_heads,
		       .scale = (float)(a->scale > 0 ? a->scale : 1 / sqrt((double)d)),
		       .q = cpu_plain(op, 0, operands, workspace),
		       .k = cpu_plain(op, 1, operands, workspace),
		       .v = cpu_plain(op, 2, operands, workspace)};
	g.ahead = a->causal ? g.s - g.t + 1 : g.s + g.t;
	if (a->packed) {
		g.k = g.q + a->heads * d;
		g.v = g.k + a->kv_heads * d;
	}
	return g;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* c = a b, or with `more` c += a b; op: 'T' for a transposed operand. Sizes are checked when the op is made, so that
 * the function cannot fail. */
static void product(char of_a, char of_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_step,
		    const float *b, int64_t b_step, bool more, float *c, int64_t c_step)
{
	(void)dnnl_sgemm(of_a, of_b, m, n, k, 1, a, a_step, b, b_step, more ? 1 : 0, c, c_step);
}

/* The vectors read segments to the end of a vector. */
static const int32_t *padded_segments(const attention *g, int64_t b, int32_t *scratch)
{
	if (!g->segment)
		return NULL;
	memcpy(scratch, g->segment + b * g->t, (size_t)g->t * sizeof(*scratch));
	return scratch;
}

/* A thread's memory. */
typedef struct forward_scratch {
	float scores[FORWARD_QUERIES * FORWARD_KEYS];
	int64_t bound[FORWARD_QUERIES];
	float most[FORWARD_QUERIES], sum[FORWARD_QUERIES], keep[FORWARD_QUERIES];
	float values[]; /* [FORWARD_QUERIES, d], then segments */
} forward_scratch;

static size_t forward_bytes(int64_t d, int64_t s)
{
	return sizeof(forward_scratch) + (size_t)(FORWARD_QUERIES * d + s + CPU_LANES_MAX) * sizeof(float);
}

/* A block of queries of one head. */
static void forward_block(const cpu_vector *vector, const attention *g, int64_t b, int64_t h, int64_t first, float *y,
			  forward_scratch *f)
{
	int64_t rows = least(FORWARD_QUERIES, g->t - first), end = least(g->s, first + rows - 1 + g->ahead);
	const float *q = g->q + (b * g->t + first) * g->q_step + h * g->d;
	int64_t keys = b * g->s * g->k_step + h / g->group * g->d;
	int32_t *room = (int32_t *)(f->values + FORWARD_QUERIES * g->d);
	const int32_t *segments = padded_segments(g, b, room);
	for (int64_t i = 0; i < rows; i++) {
		f->most[i] = -INFINITY;
		f->sum[i] = 0;
	}
	for (int64_t key = 0; key < end; key += FORWARD_KEYS) {
		int64_t columns = least(FORWARD_KEYS, end - key);
		for (int64_t i = 0; i < rows; i++)
			f->bound[i] = least(columns, first + i + g->ahead - key);
		cpu_scores block = {.scores = f->scores,
				    .step = FORWARD_KEYS,
				    .rows = rows,
				    .columns = columns,
				    .bound = f->bound,
				    .row_segment = segments ? segments + first : NULL,
				    .column_segment = segments ? segments + key : NULL,
				    .scale = (float)(g->scale * LOG2_E)};
		product('N', 'T', rows, columns, g->d, q, g->q_step, g->k + keys + key * g->k_step, g->k_step, false,
			f->scores, FORWARD_KEYS);
		vector->attend(&block, f->most, f->sum, f->keep);
		for (int64_t i = 0; i < rows && key; i++)
			vector->scale(f->values + i * g->d, f->values + i * g->d, f->keep[i], g->d);
		product('N', 'N', rows, g->d, columns, f->scores, FORWARD_KEYS, g->v + keys + key * g->k_step,
			g->k_step, key > 0, f->values, g->d);
	}
	for (int64_t i = 0; i < rows; i++) {
		vector->scale(y + (b * g->t + first + i) * g->y_step + h * g->d, f->values + i * g->d, 1 / f->sum[i],
			      g->d);
		g->lse[(b * g->heads + h) * g->t + first + i] =
			(float)(((double)f->most[i] + log2((double)f->sum[i])) * LN_2);
	}
}

/* The last blocks have the most keys, so they come first. */
static int forward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	attention g = attention_of(op, op->channels, operands, workspace);
	float *y = operands[op->num_inputs];
	g.lse = operands[op->num_inputs + 1];
	g.segment = op->num_inputs > 3 ? cpu_plain(op, 3, operands, workspace) : NULL;
	int64_t blocks = (g.t + FORWARD_QUERIES - 1) / FORWARD_QUERIES, heads = g.b * g.heads;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads)
#endif
	for (int64_t i = 0; i < blocks * heads; i++) {
		int64_t head = i % heads;
		forward_block(op->device->vector, &g, head / g.heads, head % g.heads,
			      (blocks - 1 - i / heads) * FORWARD_QUERIES, y,
			      cpu_own_scratch(op, omp_get_thread_num(), workspace));
	}
	return BETON_OK;
}

/* A thread's memory, with keys as rows and queries as columns, so that three of four products read blocks as they are.
 */
typedef struct backward_scratch {
	float scores[BACKWARD_KEYS * BACKWARD_QUERIES], gradient[BACKWARD_KEYS * BACKWARD_QUERIES];
	int64_t bound[BACKWARD_KEYS];
	float rows[]; /* lse2 [t], own [t], segments [t], each with room for a vector */
} backward_scratch;

static int64_t padded_rows(int64_t t)
{
	return t + CPU_LANES_MAX;
}

static size_t backward_bytes(int64_t t)
{
	return sizeof(backward_scratch) + 3 * (size_t)padded_rows(t) * sizeof(float);
}

typedef struct attention_gradients {
	float *q, *k, *v;
} attention_gradients;

/* A block of keys with one of queries. first_key, first_query: whether there were others before, whose sums are
 * continued. */
static void backward_block(const cpu_vector *vector, const attention *g, int64_t b, int64_t h, int64_t key,
			   int64_t query, bool more_keys, const int32_t *segments, const attention_gradients *out,
			   backward_scratch *f)
{
	enum { STEP = BACKWARD_QUERIES };
	int64_t keys = least(BACKWARD_KEYS, g->s - key), queries = least(BACKWARD_QUERIES, g->t - query);
	int64_t at_k = (b * g->s + key) * g->k_step + h / g->group * g->d;
	int64_t at_q = (b * g->t + query) * g->q_step + h * g->d, at_y = (b * g->t + query) * g->y_step + h * g->d;
	const float *lse2 = f->rows + query, *own = lse2 + padded_rows(g->t);
	for (int64_t j = 0; j < keys; j++)
		f->bound[j] = key + j - g->ahead + 1 - query;
	cpu_scores block = {.scores = f->scores,
			    .step = STEP,
			    .rows = keys,
			    .columns = queries,
			    .bound = f->bound,
			    .row_segment = segments ? segments + key : NULL,
			    .column_segment = segments ? segments + query : NULL,
			    .scale = (float)(g->scale * LOG2_E)};
	product('N', 'T', keys, queries, g->d, g->k + at_k, g->k_step, g->q + at_q, g->q_step, false, f->scores, STEP);
	product('N', 'T', keys, queries, g->d, g->v + at_k, g->k_step, g->d_y + at_y, g->y_step, false, f->gradient,
		STEP);
	vector->attend_back(&block, f->gradient, lse2, own, g->scale);
	product('N', 'N', keys, g->d, queries, f->scores, STEP, g->d_y + at_y, g->y_step, more_keys, out->v + at_k,
		g->k_step);
	product('N', 'N', keys, g->d, queries, f->gradient, STEP, g->q + at_q, g->q_step, more_keys, out->k + at_k,
		g->k_step);
	product('T', 'N', queries, g->d, keys, f->gradient, STEP, g->k + at_k, g->k_step, key > 0, out->q + at_q,
		g->q_step);
}

/* The gradients of one head of keys, and of the heads of queries that read it. */
static void backward_head(const cpu_vector *vector, const attention *g, int64_t b, int64_t head,
			  const attention_gradients *out, backward_scratch *f)
{
	float *own = f->rows + padded_rows(g->t);
	const int32_t *segments = padded_segments(g, b, (int32_t *)(own + padded_rows(g->t)));
	for (int64_t h = head * g->group; h < (head + 1) * g->group; h++) {
		for (int64_t i = 0; i < g->t; i++) {
			int64_t at = (b * g->t + i) * g->y_step + h * g->d;
			f->rows[i] = (float)((double)g->lse[(b * g->heads + h) * g->t + i] * LOG2_E);
			own[i] = vector->dot(g->d_y + at, g->y + at, g->d);
		}
		for (int64_t key = 0; key < g->s; key += BACKWARD_KEYS) {
			/* The first query that sees the first key. */
			int64_t from = key - g->ahead + 1 > 0 ? key - g->ahead + 1 : 0;
			bool more = h > head * g->group;
			for (int64_t query = from / BACKWARD_QUERIES * BACKWARD_QUERIES; query < g->t;
			     query += BACKWARD_QUERIES, more = true)
				backward_block(vector, g, b, h, key, query, more, segments, out, f);
		}
	}
}

static int backward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	attention g = attention_of(op, op->channels, operands, workspace);
	float *const *gradients = (float *const *)operands + op->num_inputs;
	attention_gradients out = {gradients[0], NULL, NULL};
	bool packed = op->attrs.attention.packed;
	g.y = cpu_plain(op, 3, operands, workspace);
	g.d_y = cpu_plain(op, 4, operands, workspace);
	g.lse = cpu_plain(op, 5, operands, workspace);
	g.segment = op->num_inputs > 6 ? cpu_plain(op, 6, operands, workspace) : NULL;
	out.k = packed ? out.q + (g.k - g.q) : gradients[1];
	out.v = packed ? out.q + (g.v - g.q) : gradients[2];
	int64_t heads = g.heads / g.group;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads)
#endif
	for (int64_t i = 0; i < g.b * heads; i++)
		backward_head(op->device->vector, &g, i / heads, i % heads, &out,
			      cpu_own_scratch(op, omp_get_thread_num(), workspace));
	return BETON_OK;
}

void cpu_build_attention(cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	bool is_forward = desc->kind == DTRAIN_OP_ATTENTION;
	build->op->channels = is_forward ? desc->outputs[0].shape.dim[2] : desc->inputs[3].shape.dim[2];
	int64_t d = build->op->channels / desc->attrs.attention.heads;
	size_t bytes = is_forward ? forward_bytes(d, desc->inputs[1].shape.dim[1])
				  : backward_bytes(desc->inputs[0].shape.dim[1]);
	cpu_build_function(build, bytes, build->device->threads, is_forward ? forward : backward);
}
