/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in blocks, with a softmax that is continued from block to block: Dao, "FlashAttention-2", 2023. The
 * products of blocks are oneDNN's, each on one thread; threads share heads and blocks of queries, so that no sum
 * depends on their number. Blocks that a causal mask hides are skipped. Everything in a block is F32: operands in BF16
 * are widened where blocks are copied.
 */
#include <math.h>
#include <string.h>

#include "common/error.h"
#include "core/shape.h"
#include "cpu.h"

#define LOG2_E 1.4426950408889634
#define LN_2 0.6931471805599453

/* Queries and keys of a block, multiples of CPU_LANES_MAX; queries of a piece of work. */
enum { FORWARD_QUERIES = 64, FORWARD_KEYS = 512, PIECE = 512, BACKWARD_QUERIES = 256, BACKWARD_KEYS = 64 };
/* Queries from which on their keys are copied. */
enum { COPIED_FOR = 8 };

typedef struct attention {
	const struct dtrain_op *op;
	int64_t b, t, s, d;
	int64_t q_step, k_step, y_step; /* elements from row to row */
	int64_t k_batch;                /* rows of k and v from sequence to sequence */
	int64_t heads, group;           /* group: heads of q for each of k */
	int64_t ahead;                  /* query i sees the keys below i + ahead */
	float scale;
	const void *q, *k, *v, *y, *d_y;
	float *lse;             /* NULL: not wanted */
	const int32_t *segment; /* NULL: none */
	const int64_t *random;  /* NULL: no dropout */
	int32_t layer;
	uint32_t threshold; /* as those of cpu_rows.dropout */
	float factor;
} attention;

static attention attention_of(const struct dtrain_op *op, int64_t width, void *const *operands, void *workspace)
{
	const dtrain_attention_attrs *a = &op->attrs.attention;
	const dtrain_shape *q = &op->shapes[0], *k = &op->shapes[1];
	int64_t d = width / a->heads;
	attention g = {.op = op,
		       .b = q->dim[0],
		       .t = q->dim[1],
		       .s = k->dim[1],
		       .d = d,
		       .q_step = q->dim[2],
		       .k_step = k->dim[2],
		       .y_step = width,
		       .k_batch = k->dim[1],
		       .heads = a->heads,
		       .group = a->heads / a->kv_heads,
		       .scale = (float)(a->scale > 0 ? a->scale : 1 / sqrt((double)d)),
		       .q = cpu_plain(op, 0, operands, workspace),
		       .k = cpu_plain(op, 1, operands, workspace),
		       .v = cpu_plain(op, 2, operands, workspace)};
	g.ahead = a->causal ? g.s - g.t + 1 : g.s + g.t;
	if (a->packed) {
		g.k = cpu_from(op, g.q, a->heads * d);
		g.v = cpu_from(op, g.k, a->kv_heads * d);
	}
	return g;
}

/* The inputs behind the first `count` ones: random numbers, if the op has them, and segments. */
static void take_rest(attention *g, const struct dtrain_op *op, void *const *operands, void *workspace, int count,
		      bool drops)
{
	const dtrain_attention_attrs *a = &op->attrs.attention;
	double limit = ceil(a->dropout * 0x1p32);
	bool none = limit > UINT32_MAX;
	if (drops)
		g->random = cpu_plain(op, count++, operands, workspace);
	g->layer = a->layer;
	g->threshold = none ? UINT32_MAX : (uint32_t)limit;
	g->factor = none ? 0 : (float)(1 / (1 - a->dropout));
	g->segment = op->num_inputs > count ? cpu_plain(op, count, operands, workspace) : NULL;
}

/* Drops of `count` probabilities of a query, from that of a key on. */
static void drop(const attention *g, int64_t b, int64_t h, int64_t query, int64_t key, int64_t count, const float *from,
		 float *to)
{
	int64_t row = g->random[DTRAIN_RANDOM_FIRST_ROW] + b * g->random[DTRAIN_RANDOM_ROW_STRIDE];
	uint64_t at = (uint64_t)(((row * g->heads + h) * g->t + query) * g->s + key);
	g->op->device->vector->f32->dropout(to, from, count, at, g->random, g->layer, g->threshold, g->factor);
}

static bool is_wide(const struct dtrain_op *op)
{
	return op->dtype == DTRAIN_F32;
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

/* The same for a block of queries, of which there may be one. */
static void query_product(const cpu_vector *vector, char of_b, int64_t m, int64_t n, int64_t k, const float *a,
			  int64_t a_step, const float *b, int64_t b_step, bool more, float *c, int64_t c_step)
{
	if (m == 1)
		vector->row_product(c, a, b, b_step, n, k, of_b == 'T', more);
	else
		product('N', of_b, m, n, k, a, a_step, b, b_step, more, c, c_step);
}

/* The rows from element `at` on. The products read rows that are far apart half as fast as adjacent ones, so what
 * several of them read is copied. */
static void copy_rows(const attention *g, float *to, const void *from, int64_t at, int64_t step, int64_t rows)
{
	for (int64_t i = 0; i < rows; i++)
		g->op->rows->widen(to + i * g->d, cpu_from(g->op, from, at + i * step), g->d);
}

/* The way back. */
static void store_rows(const attention *g, void *to, int64_t at, int64_t step, const float *from, int64_t rows)
{
	for (int64_t i = 0; i < rows; i++)
		g->op->rows->narrow(cpu_to(g->op, to, at + i * step), from + i * g->d, 1, g->d);
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
	/* values [FORWARD_QUERIES, d], queries as many, keys [s, d], in BF16 their values [s, d], segments */
	float rows[];
} forward_scratch;

static size_t forward_bytes(int64_t d, int64_t s, bool wide)
{
	return sizeof(forward_scratch) +
	       (size_t)((2 * FORWARD_QUERIES + (wide ? 1 : 2) * s) * d + s + CPU_LANES_MAX) * sizeof(float);
}

/* The keys and values of a head, in F32. */
typedef struct head_keys {
	const float *keys, *values;
	int64_t key_step, value_step; /* elements from row to row */
} head_keys;

/* A block of queries of one head. */
static void forward_block(const attention *g, int64_t b, int64_t h, int64_t first, const head_keys *k,
			  const int32_t *segments, void *y, forward_scratch *f)
{
	const cpu_vector *vector = g->op->device->vector;
	int64_t rows = least(FORWARD_QUERIES, g->t - first), end = least(g->s, first + rows - 1 + g->ahead);
	float *values = f->rows, *q = values + FORWARD_QUERIES * g->d;
	copy_rows(g, q, g->q, (b * g->t + first) * g->q_step + h * g->d, g->q_step, rows);
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
		query_product(vector, 'T', rows, columns, g->d, q, g->d, k->keys + key * k->key_step, k->key_step,
			      false, f->scores, FORWARD_KEYS);
		vector->attend(&block, f->most, f->sum, f->keep);
		for (int64_t i = 0; i < rows && g->random; i++)
			drop(g, b, h, first + i, key, columns, f->scores + i * FORWARD_KEYS,
			     f->scores + i * FORWARD_KEYS);
		for (int64_t i = 0; i < rows && key; i++)
			vector->f32->scale(values + i * g->d, values + i * g->d, f->keep[i], g->d);
		query_product(vector, 'N', rows, g->d, columns, f->scores, FORWARD_KEYS,
			      k->values + key * k->value_step, k->value_step, key > 0, values, g->d);
	}
	for (int64_t i = 0; i < rows; i++) {
		g->op->rows->narrow(cpu_to(g->op, y, (b * g->t + first + i) * g->y_step + h * g->d), values + i * g->d,
				    1 / f->sum[i], g->d);
		if (g->lse)
			g->lse[(b * g->heads + h) * g->t + first + i] =
				(float)(((double)f->most[i] + log2((double)f->sum[i])) * LN_2);
	}
}

/* The queries from `first` on of one head. */
static void forward_piece(const attention *g, int64_t b, int64_t h, int64_t first, void *y, forward_scratch *f)
{
	int64_t end = least(g->t, first + PIECE), seen = least(g->s, end - 1 + g->ahead);
	int64_t at = b * g->k_batch * g->k_step + h / g->group * g->d;
	float *copies = f->rows + 2 * FORWARD_QUERIES * g->d, *rest = copies + g->s * g->d;
	head_keys k = {cpu_from(g->op, g->k, at), cpu_from(g->op, g->v, at), g->k_step, g->k_step};
	if (end - first >= COPIED_FOR || !is_wide(g->op)) {
		copy_rows(g, copies, g->k, at, g->k_step, seen);
		k.keys = copies;
		k.key_step = g->d;
	}
	if (!is_wide(g->op)) {
		copy_rows(g, rest, g->v, at, g->k_step, seen);
		k.values = rest;
		k.value_step = g->d;
		rest += g->s * g->d;
	}
	const int32_t *segments = padded_segments(g, b, (int32_t *)rest);
	for (; first < end; first += FORWARD_QUERIES)
		forward_block(g, b, h, first, &k, segments, y, f);
}

/* The last pieces have the most keys, so they come first. */
static void forward_all(const attention *g, void *y, void *workspace)
{
	const struct dtrain_op *op = g->op;
	int64_t pieces = (g->t + PIECE - 1) / PIECE, heads = g->b * g->heads;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads)
#endif
	for (int64_t i = 0; i < pieces * heads; i++) {
		int64_t head = i % heads;
		forward_piece(g, head / g->heads, head % g->heads, (pieces - 1 - i / heads) * PIECE, y,
			      cpu_own_scratch(op, omp_get_thread_num(), workspace));
	}
}

static int forward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	attention g = attention_of(op, op->channels, operands, workspace);
	g.lse = operands[op->num_inputs + 1];
	take_rest(&g, op, operands, workspace, 3, op->drops);
	forward_all(&g, operands[op->num_inputs], workspace);
	return BETON_OK;
}

/* Keys and values are those of the cache, as far as it is filled. */
static int forward_cached(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	attention g = attention_of(op, op->channels, operands, workspace);
	int64_t past = *(const int64_t *)cpu_plain(op, 5, operands, workspace), rows = op->shapes[3].dim[1];
	const void *added[] = {g.k, g.v};
	if (past < 0 || past > rows - g.t)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%lld rows behind row %lld do not fit into a cache of %lld rows", (long long)g.t,
			       (long long)past, (long long)rows);
	for (int part = 0; part < 2; part++)
		for (int64_t b = 0; b < g.b; b++)
			memcpy(cpu_to(op, operands[3 + part], (b * rows + past) * g.k_step),
			       cpu_from(op, added[part], b * g.t * g.k_step), (size_t)(g.t * g.k_step) * op->element);
	g.k = operands[3];
	g.v = operands[4];
	g.k_batch = rows;
	g.s = past + g.t;
	g.ahead = past + 1;
	forward_all(&g, operands[op->num_inputs], workspace);
	return BETON_OK;
}

/* A thread's memory, with keys as rows and queries as columns, so that three of four products read blocks as they are.
 */
typedef struct backward_scratch {
	float scores[BACKWARD_KEYS * BACKWARD_QUERIES], gradient[BACKWARD_KEYS * BACKWARD_QUERIES];
	float factors[BACKWARD_QUERIES * BACKWARD_KEYS]; /* of dropout: [queries][keys] */
	int64_t bound[BACKWARD_KEYS];
	/* q, d_y, d_q [t, d]; lse2, own, segments [t], each with room for a vector; k, v of a block, and y of a query;
	 * in BF16 d_k, d_v [s, d] */
	float rows[];
} backward_scratch;

static int64_t padded_rows(int64_t t)
{
	return t + CPU_LANES_MAX;
}

static size_t backward_bytes(int64_t t, int64_t s, int64_t d, bool wide)
{
	int64_t rows = 3 * t + 2 * BACKWARD_KEYS + 1 + (wide ? 0 : 2 * s);
	return sizeof(backward_scratch) + (size_t)(3 * padded_rows(t) + rows * d) * sizeof(float);
}

typedef struct attention_gradients {
	void *q, *k, *v;
} attention_gradients;

/* What belongs to one head of queries, and to its keys. */
typedef struct query_head {
	float *q, *d_y, *d_q, *lse2, *own;
	const int32_t *segments;
	int64_t b, h;
	float *k, *v, *y; /* of a block of keys, and of a query */
	float *d_k, *d_v; /* of all keys, d_step apart: what is written, or in BF16 F32 before it is rounded */
	int64_t d_step;
} query_head;

static query_head head_of(const attention *g, backward_scratch *f)
{
	query_head head = {.q = f->rows};
	head.d_y = head.q + g->t * g->d;
	head.d_q = head.d_y + g->t * g->d;
	head.lse2 = head.d_q + g->t * g->d;
	head.own = head.lse2 + padded_rows(g->t);
	head.k = head.own + 2 * padded_rows(g->t);
	head.v = head.k + BACKWARD_KEYS * g->d;
	head.y = head.v + BACKWARD_KEYS * g->d;
	head.d_k = head.y + g->d;
	head.d_v = head.d_k + g->s * g->d;
	head.d_step = g->d;
	return head;
}

/* The factors of the probabilities of a block. */
static void draw_factors(const attention *g, const query_head *head, int64_t key, int64_t query, int64_t keys,
			 int64_t queries, float *factors)
{
	float ones[BACKWARD_KEYS];
	for (int64_t j = 0; j < keys; j++)
		ones[j] = 1;
	for (int64_t i = 0; i < queries; i++)
		drop(g, head->b, head->h, query + i, key, keys, ones, factors + i * BACKWARD_KEYS);
}

static void apply_factors(const float *factors, int64_t keys, int64_t queries, float *block)
{
	for (int64_t j = 0; j < keys; j++)
		for (int64_t i = 0; i < queries; i++)
			block[j * BACKWARD_QUERIES + i] *= factors[i * BACKWARD_KEYS + j];
}

/* A block of keys with one of queries. more: the gradients of the keys are continued. */
static void backward_block(const attention *g, const query_head *head, int64_t key, int64_t query, bool more,
			   backward_scratch *f)
{
	enum { STEP = BACKWARD_QUERIES };
	int64_t keys = least(BACKWARD_KEYS, g->s - key), queries = least(BACKWARD_QUERIES, g->t - query);
	const float *q = head->q + query * g->d, *d_y = head->d_y + query * g->d;
	float *d_k = head->d_k + key * head->d_step, *d_v = head->d_v + key * head->d_step;
	for (int64_t j = 0; j < keys; j++)
		f->bound[j] = key + j - g->ahead + 1 - query;
	cpu_scores block = {.scores = f->scores,
			    .step = STEP,
			    .rows = keys,
			    .columns = queries,
			    .bound = f->bound,
			    .row_segment = head->segments ? head->segments + key : NULL,
			    .column_segment = head->segments ? head->segments + query : NULL,
			    .scale = (float)(g->scale * LOG2_E)};
	product('N', 'T', keys, queries, g->d, head->k, g->d, q, g->d, false, f->scores, STEP);
	product('N', 'T', keys, queries, g->d, head->v, g->d, d_y, g->d, false, f->gradient, STEP);
	if (g->random) {
		draw_factors(g, head, key, query, keys, queries, f->factors);
		apply_factors(f->factors, keys, queries, f->gradient);
	}
	g->op->device->vector->attend_back(&block, f->gradient, head->lse2 + query, head->own + query, g->scale);
	if (g->random)
		apply_factors(f->factors, keys, queries, f->scores);
	product('N', 'N', keys, g->d, queries, f->scores, STEP, d_y, g->d, more, d_v, head->d_step);
	product('N', 'N', keys, g->d, queries, f->gradient, STEP, q, g->d, more, d_k, head->d_step);
	product('T', 'N', queries, g->d, keys, f->gradient, STEP, head->k, g->d, key > 0, head->d_q + query * g->d,
		g->d);
}

/* The gradients of head h of queries, and its part of those of its keys. */
static void backward_queries(const attention *g, int64_t b, int64_t h, query_head *head, const attention_gradients *out,
			     backward_scratch *f)
{
	int64_t first = b * g->t * g->q_step + h * g->d;
	head->b = b;
	head->h = h;
	copy_rows(g, head->q, g->q, first, g->q_step, g->t);
	copy_rows(g, head->d_y, g->d_y, b * g->t * g->y_step + h * g->d, g->y_step, g->t);
	for (int64_t i = 0; i < g->t; i++) {
		copy_rows(g, head->y, g->y, (b * g->t + i) * g->y_step + h * g->d, g->y_step, 1);
		head->lse2[i] = (float)((double)g->lse[(b * g->heads + h) * g->t + i] * LOG2_E);
		head->own[i] = g->op->device->vector->dot(head->d_y + i * g->d, head->y, g->d);
	}
	for (int64_t key = 0; key < g->s; key += BACKWARD_KEYS) {
		/* The first query that sees the first key. */
		int64_t from = key - g->ahead + 1 > 0 ? key - g->ahead + 1 : 0;
		int64_t at = (b * g->s + key) * g->k_step + h / g->group * g->d;
		bool more = h % g->group > 0;
		copy_rows(g, head->k, g->k, at, g->k_step, least(BACKWARD_KEYS, g->s - key));
		copy_rows(g, head->v, g->v, at, g->k_step, least(BACKWARD_KEYS, g->s - key));
		for (int64_t query = from; query < g->t; query += BACKWARD_QUERIES, more = true)
			backward_block(g, head, key, query, more, f);
	}
	store_rows(g, out->q, first, g->q_step, head->d_q, g->t);
}

/* One head of keys, and the heads of queries that read it. */
static void backward_head(const attention *g, int64_t b, int64_t keys, const attention_gradients *out,
			  backward_scratch *f)
{
	query_head head = head_of(g, f);
	int64_t at = b * g->s * g->k_step + keys * g->d;
	head.segments = padded_segments(g, b, (int32_t *)(head.own + padded_rows(g->t)));
	if (is_wide(g->op)) {
		head.d_k = cpu_to(g->op, out->k, at);
		head.d_v = cpu_to(g->op, out->v, at);
		head.d_step = g->k_step;
	}
	for (int64_t h = keys * g->group; h < (keys + 1) * g->group; h++)
		backward_queries(g, b, h, &head, out, f);
	if (!is_wide(g->op)) {
		store_rows(g, out->k, at, g->k_step, head.d_k, g->s);
		store_rows(g, out->v, at, g->k_step, head.d_v, g->s);
	}
}

static int backward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	attention g = attention_of(op, op->channels, operands, workspace);
	void *const *gradients = operands + op->num_inputs;
	attention_gradients out = {gradients[0], NULL, NULL};
	bool packed = op->attrs.attention.packed;
	g.y = cpu_plain(op, 3, operands, workspace);
	g.d_y = cpu_plain(op, 4, operands, workspace);
	g.lse = cpu_plain(op, 5, operands, workspace);
	take_rest(&g, op, operands, workspace, 6, op->drops);
	int64_t width = op->channels, of_keys = width / g.group;
	out.k = packed ? cpu_to(op, out.q, width) : gradients[1];
	out.v = packed ? cpu_to(op, out.q, width + of_keys) : gradients[2];
	int64_t heads = g.heads / g.group;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads)
#endif
	for (int64_t i = 0; i < g.b * heads; i++)
		backward_head(&g, i / heads, i % heads, &out, cpu_own_scratch(op, omp_get_thread_num(), workspace));
	return BETON_OK;
}

void cpu_build_attention(cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	bool is_backward = desc->kind == DTRAIN_OP_ATTENTION_BWD || desc->kind == DTRAIN_OP_ATTENTION_DROPOUT_BWD;
	bool cached = desc->kind == DTRAIN_OP_ATTENTION_CACHED, wide = is_wide(build->op);
	build->op->drops = desc->kind == DTRAIN_OP_ATTENTION_DROPOUT || desc->kind == DTRAIN_OP_ATTENTION_DROPOUT_BWD;
	build->op->channels = is_backward ? desc->inputs[3].shape.dim[2] : desc->outputs[0].shape.dim[2];
	int64_t d = build->op->channels / desc->attrs.attention.heads;
	int64_t t = desc->inputs[0].shape.dim[1], keys = desc->inputs[cached ? 3 : 1].shape.dim[1];
	size_t bytes = is_backward ? backward_bytes(t, keys, d, wide) : forward_bytes(d, keys, wide);
	cpu_build_function(build, bytes, build->device->threads,
			   is_backward ? backward
			   : cached    ? forward_cached
				       : forward);
}
