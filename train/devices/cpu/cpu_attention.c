/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in blocks, with a softmax that is continued from block to block: Dao, "FlashAttention-2", 2023. The
 * products of blocks are oneDNN's, each on one thread; threads share heads and blocks of queries, so that no sum
 * depends on their number. Blocks that a causal mask hides are skipped. Scores and sums are F32. Factors of products
 * are F32 too, and operands in BF16 are widened where blocks are copied; but if the processor has instructions for
 * BF16, the factors of such operands are BF16, and probabilities and their gradients are rounded to it.
 */
#include <math.h>
#include <string.h>

#include "common/error.h"
#include "core/chunks.h"
#include "core/host.h"
#include "core/shape.h"
#include "cpu.h"

#define LOG2_E 1.4426950408889634
#define LN_2 0.6931471805599453

/* Queries and keys of a block, multiples of CPU_LANES_MAX; queries of a piece of work. Products in BF16 have sizes that
 * are fixed when the op is made, so that blocks on the diagonal of a causal mask are computed whole: these are smaller.
 */
enum { FORWARD_QUERIES = 64, FORWARD_KEYS = 512, PIECE = 512, BACKWARD_QUERIES = 256, BACKWARD_KEYS = 64 };
enum { HALF_BLOCK = 256, HALF_CAUSAL_BLOCK = 128 };
/* Fewest queries for which keys are copied; fewest queries and keys for which products have BF16 factors. */
enum { COPIED_FOR = 8, HALF_FOR = 32 };
/* The op's tilings: for the scores, and the gradients of probabilities; for the values, and the gradients of keys and
 * values; for the gradients of queries. A tile's index says whether its queries and its keys are in the last block. */
enum { SCORES, VALUES, OF_KEYS = VALUES, OF_QUERIES };

typedef struct attention {
	const struct dtrain_op *op;
	int64_t b, t, s, d;
	int64_t q_step, k_step, y_step; /* elements from row to row */
	int64_t k_batch;                /* rows of k and v from sequence to sequence */
	int64_t heads, group;           /* group: heads of q for each of k */
	int64_t ahead;                  /* a query sees the keys below its position + ahead */
	dtrain_chunk_attrs chunks;      /* of the queries; keys are the whole sequence's */
	int64_t queries, keys;          /* of a block */
	bool halves;                    /* factors of products are BF16, not F32 */
	float scale;
	const void *q, *k, *v, *y, *d_y;
	float *lse;                    /* NULL: not wanted */
	const int32_t *segment;        /* NULL: none */
	const int64_t *random;         /* NULL: no dropout */
	int64_t all_heads, first_head; /* of dropout */
	int32_t layer;
	uint32_t threshold; /* as in cpu_rows.dropout */
	float factor;
	void *workspace;
} attention;

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The position of query i in the sequence, which ranks may divide. */
static int64_t position_of(const attention *g, int64_t i)
{
	return dtrain__chunk_position(g->chunks, g->t, i);
}

/* The keys that query i sees, and the first query that sees a key; t: none does. */
static int64_t keys_seen(const attention *g, int64_t i)
{
	return least(g->s, position_of(g, i) + g->ahead);
}

static int64_t first_query(const attention *g, int64_t key)
{
	return dtrain__chunk_row(g->chunks, g->t, key - g->ahead + 1);
}

static int64_t padded(int64_t rows)
{
	return (rows + CPU_LANES_MAX - 1) / CPU_LANES_MAX * CPU_LANES_MAX;
}

/* Rows of blocks of about equal size, at most so many. */
static int64_t rows_of_block(int64_t rows, int64_t most)
{
	int64_t blocks = (rows + most - 1) / most;
	return padded((rows + blocks - 1) / blocks);
}

/* The op's sizes. */
static attention attention_of(const struct dtrain_op *op, bool halves, bool backward)
{
	const dtrain_attention_attrs *a = &op->attrs.attention;
	const dtrain_shape *q = &op->shapes[0], *k = &op->shapes[1];
	int64_t width = op->channels, d = width / a->heads;
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
		       .queries = backward ? BACKWARD_QUERIES : FORWARD_QUERIES,
		       .keys = backward ? BACKWARD_KEYS : FORWARD_KEYS,
		       .halves = halves,
		       .scale = (float)(a->scale > 0 ? a->scale : 1 / sqrt((double)d))};
	g.chunks = a->chunks;
	g.ahead = !a->causal ? g.s + g.t : a->chunks.ranks ? 1 : g.s - g.t + 1;
	if (halves) {
		g.queries = rows_of_block(g.t, a->causal ? HALF_CAUSAL_BLOCK : HALF_BLOCK);
		g.keys = rows_of_block(g.s, a->causal ? HALF_CAUSAL_BLOCK : HALF_BLOCK);
	}
	return g;
}

static void take_factors(attention *g, void *const *operands, void *workspace)
{
	const dtrain_attention_attrs *a = &g->op->attrs.attention;
	g->workspace = workspace;
	g->q = cpu_plain(g->op, 0, operands, workspace);
	g->k = cpu_plain(g->op, 1, operands, workspace);
	g->v = cpu_plain(g->op, 2, operands, workspace);
	if (a->packed) {
		g->k = cpu_from(g->op, g->q, a->heads * g->d);
		g->v = cpu_from(g->op, g->k, a->kv_heads * g->d);
	}
}

/* Takes the inputs after the first `count`: random numbers, if the op has them, and segments. */
static void take_rest(attention *g, const struct dtrain_op *op, void *const *operands, void *workspace, int count,
		      bool drops)
{
	const dtrain_attention_attrs *a = &op->attrs.attention;
	double limit = ceil(a->dropout * 0x1p32);
	bool none = limit > UINT32_MAX;
	if (drops)
		g->random = cpu_plain(op, count++, operands, workspace);
	g->layer = a->layer;
	g->all_heads = a->all_heads ? a->all_heads : a->heads;
	g->first_head = a->first_head;
	g->threshold = none ? UINT32_MAX : (uint32_t)limit;
	g->factor = none ? 0 : (float)(1 / (1 - a->dropout));
	g->segment = op->num_inputs > count ? cpu_plain(op, count, operands, workspace) : NULL;
}

/* Drops of `count` probabilities of a query, from that of a key on. */
static void drop(const attention *g, int64_t b, int64_t h, int64_t query, int64_t key, int64_t count, const float *from,
		 float *to)
{
	int64_t row = g->random[DTRAIN_RANDOM_FIRST_ROW] + b * g->random[DTRAIN_RANDOM_ROW_STRIDE];
	int64_t queries = g->chunks.ranks ? g->s : g->t, head = row * g->all_heads + g->first_head + h;
	uint64_t at = (uint64_t)((head * queries + position_of(g, query)) * g->s + key);
	g->op->device->vector->f32->dropout(to, from, count, at, g->random, g->layer, g->threshold, g->factor);
}

static bool is_wide(const struct dtrain_op *op)
{
	return op->dtype == DTRAIN_F32;
}

static size_t factor_bytes(const attention *g)
{
	return g->halves ? g->op->element : sizeof(float);
}

/* The rows from one on of a matrix of factors, which are so many elements apart. */
static void *row_of(const attention *g, const void *factors, int64_t row, int64_t step)
{
	return (char *)(uintptr_t)factors + row * step * (int64_t)factor_bytes(g);
}

/* A product of factors in BF16, in F32; all but the scores are added to what is there. The first failure stays. */
static void half_product(const attention *g, int tiling, int64_t queries, int64_t keys, const void *a, const void *b,
			 float *c, dnnl_status_t *status)
{
	const cpu_tile *tile = &g->op->tilings[tiling].tiles[queries < g->queries][keys < g->keys];
	dnnl_status_t now = cpu_tile_product(g->op, tile, a, b, c, g->workspace);
	*status = *status == dnnl_success ? now : *status;
}

/* c = a b, or with `more` c += a b; op: 'T' for a transposed operand. Sizes are checked when the op is made, so that
 * the function cannot fail. */
static void product(char of_a, char of_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_step,
		    const float *b, int64_t b_step, bool more, float *c, int64_t c_step)
{
	(void)dnnl_sgemm(of_a, of_b, m, n, k, 1, a, a_step, b, b_step, more ? 1 : 0, c, c_step);
}

/* The same for a block of queries, which may have only one. */
static void query_product(const cpu_vector *vector, char of_b, int64_t m, int64_t n, int64_t k, const float *a,
			  int64_t a_step, const float *b, int64_t b_step, bool more, float *c, int64_t c_step)
{
	if (m == 1)
		vector->row_product(c, a, b, b_step, n, k, of_b == 'T', more);
	else
		product('N', of_b, m, n, k, a, a_step, b, b_step, more, c, c_step);
}

/* The rows from element `at` on, as factors. The products read rows that are far apart half as fast as adjacent ones,
 * so what several of them read is copied. */
static void copy_rows(const attention *g, void *to, const void *from, int64_t at, int64_t step, int64_t rows)
{
	for (int64_t i = 0; i < rows; i++) {
		const void *row = cpu_from(g->op, from, at + i * step);
		if (g->halves)
			memcpy(row_of(g, to, i, g->d), row, (size_t)g->d * g->op->element);
		else
			g->op->rows->widen(row_of(g, to, i, g->d), row, g->d);
	}
}

/* The same, padded with rows of zeros: oneDNN's products in BF16 are a fifth faster if rows of scores have whole
 * vectors. */
static void copy_padded(const attention *g, void *to, const void *from, int64_t at, int64_t step, int64_t rows)
{
	copy_rows(g, to, from, at, step, rows);
	memset(row_of(g, to, rows, g->d), 0, (size_t)((padded(rows) - rows) * g->d) * factor_bytes(g));
}

/* Scores as factors. Whole vectors are faster, and rows of scores are written to the end of one. */
static void narrow_block(const attention *g, void *to, const float *scores, int64_t rows, int64_t columns, int64_t step)
{
	columns = padded(columns);
	if (columns == step) {
		columns *= rows;
		rows = 1;
	}
	for (int64_t i = 0; i < rows; i++)
		g->op->rows->narrow(row_of(g, to, i, step), scores + i * step, 1, columns);
}

/* The way back. */
static void store_rows(const attention *g, void *to, int64_t at, int64_t step, const float *from, int64_t rows)
{
	for (int64_t i = 0; i < rows; i++)
		g->op->rows->narrow(cpu_to(g->op, to, at + i * step), from + i * g->d, 1, g->d);
}

/* Segments of a sequence's queries and keys; NULL: there are none. The vectors read to the end of a vector. */
typedef struct attention_segments {
	const int32_t *queries, *keys;
} attention_segments;

static attention_segments padded_segments(const attention *g, int64_t b, int32_t *queries, int32_t *keys)
{
	const int32_t *of = g->segment ? g->segment + b * g->s : NULL;
	if (!of)
		return (attention_segments){NULL, NULL};
	memcpy(keys, of, (size_t)g->s * sizeof(*keys));
	for (int64_t i = 0; i < g->t; i++)
		queries[i] = of[position_of(g, i)];
	return (attention_segments){queries, keys};
}

/* The next part of a thread's memory, which may be NULL to find how large it is. */
static void *part(char *memory, size_t *used, int64_t count, size_t element)
{
	char *at = memory ? memory + *used : NULL;
	*used += dtrain__round_up((size_t)count * element, DTRAIN__HOST_ALIGNMENT);
	return at;
}

/* A thread's memory. Of a block: */
typedef struct forward_scratch {
	float *scores;  /* [queries, keys] */
	void *weights;  /* the same as factors; in F32 the scores themselves */
	int64_t *bound; /* [queries] */
	float *most, *sum, *keep;
	float *values; /* [queries, d] */
	void *q;       /* the same */
	/* of a head: keys [padded s, d], in BF16 their values, segments */
	void *k, *v;
	int32_t *query_segments, *key_segments;
	dnnl_status_t status;
} forward_scratch;

static forward_scratch forward_parts(const attention *g, char *memory, size_t *bytes)
{
	forward_scratch f = {.status = dnnl_success};
	int64_t copied = is_wide(g->op) ? 0 : padded(g->s);
	*bytes = 0;
	f.scores = part(memory, bytes, g->queries * g->keys, sizeof(float));
	f.weights = g->halves ? part(memory, bytes, g->queries * g->keys, factor_bytes(g)) : f.scores;
	f.bound = part(memory, bytes, g->queries, sizeof(int64_t));
	f.most = part(memory, bytes, g->queries, sizeof(float));
	f.sum = part(memory, bytes, g->queries, sizeof(float));
	f.keep = part(memory, bytes, g->queries, sizeof(float));
	f.values = part(memory, bytes, g->queries * g->d, sizeof(float));
	f.q = part(memory, bytes, g->queries * g->d, factor_bytes(g));
	f.k = part(memory, bytes, padded(g->s) * g->d, factor_bytes(g));
	f.v = part(memory, bytes, copied * g->d, factor_bytes(g));
	f.query_segments = part(memory, bytes, g->t + CPU_LANES_MAX, sizeof(int32_t));
	f.key_segments = part(memory, bytes, g->s + CPU_LANES_MAX, sizeof(int32_t));
	return f;
}

/* The keys and values of a head, as factors. */
typedef struct head_keys {
	const void *keys, *values;
	int64_t key_step, value_step; /* elements from row to row */
} head_keys;

static void find_scores(const attention *g, int64_t key, int64_t rows, int64_t columns, const head_keys *k,
			forward_scratch *f)
{
	const void *keys = row_of(g, k->keys, key, k->key_step);
	if (g->halves)
		half_product(g, SCORES, rows, columns, f->q, keys, f->scores, &f->status);
	else
		query_product(g->op->device->vector, 'T', rows, columns, g->d, f->q, g->d, keys, k->key_step, false,
			      f->scores, g->keys);
}

/* f->scores have become weights. */
static void add_values(const attention *g, int64_t key, int64_t rows, int64_t columns, const head_keys *k,
		       forward_scratch *f)
{
	const void *values = row_of(g, k->values, key, k->value_step);
	for (int64_t i = 0; i < rows && key > 0; i++)
		g->op->device->vector->f32->scale(f->values + i * g->d, f->values + i * g->d, f->keep[i], g->d);
	if (!g->halves) {
		query_product(g->op->device->vector, 'N', rows, g->d, columns, f->scores, g->keys, values,
			      k->value_step, key > 0, f->values, g->d);
		return;
	}
	narrow_block(g, f->weights, f->scores, rows, columns, g->keys);
	if (key == 0)
		memset(f->values, 0, (size_t)(rows * g->d) * sizeof(float));
	half_product(g, VALUES, rows, columns, f->weights, values, f->values, &f->status);
}

/* A block of queries of one head. */
static void forward_block(const attention *g, int64_t b, int64_t h, int64_t first, const head_keys *k,
			  const attention_segments *segments, void *y, forward_scratch *f)
{
	int64_t rows = least(g->queries, g->t - first), end = keys_seen(g, first + rows - 1);
	copy_rows(g, f->q, g->q, (b * g->t + first) * g->q_step + h * g->d, g->q_step, rows);
	for (int64_t i = 0; i < rows; i++) {
		f->most[i] = -INFINITY;
		f->sum[i] = 0;
	}
	for (int64_t key = 0; key < end; key += g->keys) {
		int64_t columns = least(g->keys, (g->halves ? g->s : end) - key);
		for (int64_t i = 0; i < rows; i++)
			f->bound[i] = least(columns, position_of(g, first + i) + g->ahead - key);
		cpu_scores block = {.scores = f->scores,
				    .step = g->keys,
				    .rows = rows,
				    .columns = columns,
				    .bound = f->bound,
				    .row_segment = segments->queries ? segments->queries + first : NULL,
				    .column_segment = segments->keys ? segments->keys + key : NULL,
				    .scale = (float)(g->scale * LOG2_E)};
		find_scores(g, key, rows, columns, k, f);
		g->op->device->vector->attend(&block, f->most, f->sum, f->keep);
		for (int64_t i = 0; i < rows && g->random; i++)
			drop(g, b, h, first + i, key, f->bound[i], f->scores + i * g->keys, f->scores + i * g->keys);
		add_values(g, key, rows, columns, k, f);
	}
	for (int64_t i = 0; i < rows; i++) {
		g->op->rows->narrow(cpu_to(g->op, y, (b * g->t + first + i) * g->y_step + h * g->d),
				    f->values + i * g->d, 1 / f->sum[i], g->d);
		if (g->lse)
			g->lse[(b * g->heads + h) * g->t + first + i] =
				(float)(((double)f->most[i] + log2((double)f->sum[i])) * LN_2);
	}
}

/* The queries first ... end of one head. */
static dnnl_status_t forward_piece(const attention *g, int64_t b, int64_t h, int64_t first, int64_t end, void *y,
				   char *memory)
{
	size_t bytes;
	forward_scratch f = forward_parts(g, memory, &bytes);
	int64_t seen = keys_seen(g, end - 1);
	int64_t at = b * g->k_batch * g->k_step + h / g->group * g->d;
	if (g->halves)
		seen = least(g->s, (seen + g->keys - 1) / g->keys * g->keys);
	head_keys k = {cpu_from(g->op, g->k, at), cpu_from(g->op, g->v, at), g->k_step, g->k_step};
	if (end - first >= COPIED_FOR || !is_wide(g->op)) {
		copy_padded(g, f.k, g->k, at, g->k_step, seen);
		k.keys = f.k;
		k.key_step = g->d;
	}
	if (!is_wide(g->op)) {
		copy_padded(g, f.v, g->v, at, g->k_step, seen);
		k.values = f.v;
		k.value_step = g->d;
	}
	const attention_segments segments = padded_segments(g, b, f.query_segments, f.key_segments);
	for (; first < end; first += g->queries)
		forward_block(g, b, h, first, &k, &segments, y, &f);
	return f.status;
}

/* The last pieces have the most keys, so they come first. */
static int forward_all(const attention *g, void *y, beton_error *err)
{
	const struct dtrain_op *op = g->op;
	int64_t piece = g->queries < PIECE ? PIECE / g->queries * g->queries : g->queries;
	int64_t pieces = (g->t + piece - 1) / piece, heads = g->b * g->heads;
	int failure = dnnl_success;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads) reduction(max : failure)
#endif
	for (int64_t i = 0; i < pieces * heads; i++) {
		int64_t head = i % heads, first = (pieces - 1 - i / heads) * piece;
		dnnl_status_t status =
			forward_piece(g, head / g->heads, head % g->heads, first, least(g->t, first + piece), y,
				      cpu_own_scratch(op, omp_get_thread_num(), g->workspace));
		failure = status == dnnl_success ? failure : (int)status;
	}
	return failure == dnnl_success ? BETON_OK : cpu_product_failed(failure, err);
}

static int forward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	attention g = attention_of(op, op->num_tilings > 0, false);
	take_factors(&g, operands, workspace);
	g.lse = operands[op->num_inputs + 1];
	take_rest(&g, op, operands, workspace, 3, op->drops);
	return forward_all(&g, operands[op->num_inputs], err);
}

/* Reads keys and values from the filled part of the cache. */
static int forward_cached(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	attention g = attention_of(op, false, false);
	take_factors(&g, operands, workspace);
	int64_t past = *(const int64_t *)cpu_plain(op, 5, operands, workspace), rows = op->shapes[3].dim[1];
	const void *added[] = {g.k, g.v};
	if (past < 0 || past > rows - g.t)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%lld rows after row %lld do not fit into a cache of %lld rows", (long long)g.t,
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
	return forward_all(&g, operands[op->num_inputs], err);
}

/* A thread's memory. Blocks have keys as rows and queries as columns, so that three of four products in F32 read them
 * as they are. */
typedef struct backward_scratch {
	float *scores, *gradient;  /* [keys, queries] */
	void *weights, *d_weights; /* the same as factors; in F32 those two themselves */
	float *factors, *ones;     /* of dropout: [queries, keys]; [keys] */
	int64_t *bound;            /* [keys] */
	void *k, *v;               /* [keys, d] */
	/* For a head of queries: [padded t, d]; and [t], padded to whole vectors. */
	void *q, *d_y;
	float *d_q, *lse2, *own;
	int32_t *query_segments, *key_segments;
	float *d_k, *d_v; /* in BF16: [s, d] */
	dnnl_status_t status;
} backward_scratch;

static backward_scratch backward_parts(const attention *g, char *memory, size_t *bytes)
{
	backward_scratch f = {.status = dnnl_success};
	int64_t block = g->keys * g->queries, queries = padded(g->t), summed = is_wide(g->op) ? 0 : g->s;
	int64_t dropped = g->op->drops ? block : 0;
	*bytes = 0;
	f.scores = part(memory, bytes, block, sizeof(float));
	f.gradient = part(memory, bytes, block, sizeof(float));
	f.weights = g->halves ? part(memory, bytes, block, factor_bytes(g)) : f.scores;
	f.d_weights = g->halves ? part(memory, bytes, block, factor_bytes(g)) : f.gradient;
	f.factors = part(memory, bytes, dropped, sizeof(float));
	f.ones = part(memory, bytes, g->keys, sizeof(float));
	f.bound = part(memory, bytes, g->keys, sizeof(int64_t));
	f.k = part(memory, bytes, g->keys * g->d, factor_bytes(g));
	f.v = part(memory, bytes, g->keys * g->d, factor_bytes(g));
	f.q = part(memory, bytes, queries * g->d, factor_bytes(g));
	f.d_y = part(memory, bytes, queries * g->d, factor_bytes(g));
	f.d_q = part(memory, bytes, queries * g->d, sizeof(float));
	f.lse2 = part(memory, bytes, g->t + CPU_LANES_MAX, sizeof(float));
	f.own = part(memory, bytes, g->t + CPU_LANES_MAX, sizeof(float));
	f.query_segments = part(memory, bytes, g->t + CPU_LANES_MAX, sizeof(int32_t));
	f.key_segments = part(memory, bytes, g->s + CPU_LANES_MAX, sizeof(int32_t));
	f.d_k = part(memory, bytes, summed * g->d, sizeof(float));
	f.d_v = part(memory, bytes, summed * g->d, sizeof(float));
	return f;
}

typedef struct attention_gradients {
	void *q, *k, *v;
} attention_gradients;

/* A head of queries, and its keys. */
typedef struct query_head {
	int64_t b, h;
	attention_segments segments;
	float *d_k, *d_v; /* of all keys, d_step apart: what is written, or in BF16 F32 before it is rounded */
	int64_t d_step;
} query_head;

/* The factors of the probabilities of a block. */
static void draw_factors(const attention *g, const query_head *head, int64_t key, int64_t query, int64_t keys,
			 int64_t queries, const backward_scratch *f)
{
	for (int64_t j = 0; j < keys; j++)
		f->ones[j] = 1;
	for (int64_t i = 0; i < queries; i++)
		drop(g, head->b, head->h, query + i, key, keys, f->ones, f->factors + i * g->keys);
}

static void apply_factors(const attention *g, const float *factors, int64_t keys, int64_t queries, float *block)
{
	for (int64_t j = 0; j < keys; j++)
		for (int64_t i = 0; i < queries; i++)
			block[j * g->queries + i] *= factors[i * g->keys + j];
}

/* The scores of a block and the gradients of its probabilities. */
static void multiply_block(const attention *g, int64_t query, int64_t keys, int64_t queries, backward_scratch *f)
{
	const void *q = row_of(g, f->q, query, g->d), *d_y = row_of(g, f->d_y, query, g->d);
	if (g->halves) {
		half_product(g, SCORES, queries, keys, f->k, q, f->scores, &f->status);
		half_product(g, SCORES, queries, keys, f->v, d_y, f->gradient, &f->status);
	} else {
		product('N', 'T', keys, queries, g->d, f->k, g->d, q, g->d, false, f->scores, g->queries);
		product('N', 'T', keys, queries, g->d, f->v, g->d, d_y, g->d, false, f->gradient, g->queries);
	}
}

/* Adds a block's part to the gradients of its keys, values and queries. more: adds to the keys' gradients, which
 * exist. */
static void add_block(const attention *g, const query_head *head, int64_t key, int64_t query, bool more,
		      backward_scratch *f)
{
	int64_t keys = least(g->keys, g->s - key), queries = least(g->queries, g->t - query), d = g->d;
	const void *q = row_of(g, f->q, query, d), *d_y = row_of(g, f->d_y, query, d);
	float *d_k = head->d_k + key * head->d_step, *d_v = head->d_v + key * head->d_step, *d_q = f->d_q + query * d;
	if (!g->halves) {
		product('N', 'N', keys, d, queries, f->scores, g->queries, d_y, d, more, d_v, head->d_step);
		product('N', 'N', keys, d, queries, f->gradient, g->queries, q, d, more, d_k, head->d_step);
		product('T', 'N', queries, d, keys, f->gradient, g->queries, f->k, d, key > 0, d_q, d);
		return;
	}
	narrow_block(g, f->weights, f->scores, keys, queries, g->queries);
	narrow_block(g, f->d_weights, f->gradient, keys, queries, g->queries);
	half_product(g, OF_KEYS, queries, keys, f->weights, d_y, d_v, &f->status);
	half_product(g, OF_KEYS, queries, keys, f->d_weights, q, d_k, &f->status);
	half_product(g, OF_QUERIES, queries, keys, f->d_weights, f->k, d_q, &f->status);
}

/* A block of keys with one of queries. */
static void backward_block(const attention *g, const query_head *head, int64_t key, int64_t query, bool more,
			   backward_scratch *f)
{
	int64_t keys = least(g->keys, g->s - key), queries = least(g->queries, g->t - query);
	for (int64_t j = 0; j < keys; j++)
		f->bound[j] = first_query(g, key + j) - query;
	cpu_scores block = {.scores = f->scores,
			    .step = g->queries,
			    .rows = keys,
			    .columns = queries,
			    .bound = f->bound,
			    .row_segment = head->segments.keys ? head->segments.keys + key : NULL,
			    .column_segment = head->segments.queries ? head->segments.queries + query : NULL,
			    .scale = (float)(g->scale * LOG2_E)};
	multiply_block(g, query, keys, queries, f);
	if (g->random) {
		draw_factors(g, head, key, query, keys, queries, f);
		apply_factors(g, f->factors, keys, queries, f->gradient);
	}
	g->op->device->vector->attend_back(&block, f->gradient, f->lse2 + query, f->own + query, g->scale);
	if (g->random)
		apply_factors(g, f->factors, keys, queries, f->scores);
	add_block(g, head, key, query, more, f);
}

/* Prepares a head of queries for its blocks. */
static void prepare_queries(const attention *g, int64_t b, int64_t h, backward_scratch *f)
{
	int64_t from = b * g->t * g->y_step + h * g->d;
	copy_padded(g, f->q, g->q, b * g->t * g->q_step + h * g->d, g->q_step, g->t);
	copy_padded(g, f->d_y, g->d_y, from, g->y_step, g->t);
	for (int64_t i = 0; i < g->t; i++) {
		int64_t at = from + i * g->y_step;
		f->lse2[i] = (float)((double)g->lse[(b * g->heads + h) * g->t + i] * LOG2_E);
		f->own[i] = g->op->rows->dot(cpu_from(g->op, g->d_y, at), cpu_from(g->op, g->y, at), g->d);
	}
	if (g->halves)
		memset(f->d_q, 0, (size_t)(padded(g->t) * g->d) * sizeof(float));
}

/* The gradients of a block of keys that none of this rank's queries sees. */
static void clear_keys(const attention *g, const query_head *head, int64_t key)
{
	for (int64_t i = key; i < least(g->s, key + g->keys); i++) {
		memset(head->d_k + i * head->d_step, 0, (size_t)g->d * sizeof(float));
		memset(head->d_v + i * head->d_step, 0, (size_t)g->d * sizeof(float));
	}
}

/* Computes the gradients of a head of queries, and its part of its keys' gradients. */
static void backward_queries(const attention *g, const query_head *head, const attention_gradients *out,
			     backward_scratch *f)
{
	int64_t b = head->b, h = head->h;
	prepare_queries(g, b, h, f);
	for (int64_t key = 0; key < g->s; key += g->keys) {
		/* The first query that sees the first key; in BF16 its block, because sizes of blocks are fixed. */
		int64_t from = first_query(g, key);
		int64_t at = (b * g->s + key) * g->k_step + h / g->group * g->d;
		bool more = h % g->group > 0, seen = from < g->t;
		from = g->halves ? from / g->queries * g->queries : from;
		if (!seen && !more)
			clear_keys(g, head, key);
		if (!seen)
			continue;
		copy_rows(g, f->k, g->k, at, g->k_step, least(g->keys, g->s - key));
		copy_rows(g, f->v, g->v, at, g->k_step, least(g->keys, g->s - key));
		for (int64_t query = from; query < g->t; query += g->queries, more = true)
			backward_block(g, head, key, query, more, f);
	}
	store_rows(g, out->q, b * g->t * g->q_step + h * g->d, g->q_step, f->d_q, g->t);
}

/* One head of keys, and the heads of queries that read it. */
static dnnl_status_t backward_head(const attention *g, int64_t b, int64_t keys, const attention_gradients *out,
				   char *memory)
{
	size_t bytes;
	backward_scratch f = backward_parts(g, memory, &bytes);
	int64_t at = b * g->s * g->k_step + keys * g->d;
	query_head head = {.b = b,
			   .segments = padded_segments(g, b, f.query_segments, f.key_segments),
			   .d_k = f.d_k,
			   .d_v = f.d_v,
			   .d_step = g->d};
	if (is_wide(g->op)) {
		head.d_k = cpu_to(g->op, out->k, at);
		head.d_v = cpu_to(g->op, out->v, at);
		head.d_step = g->k_step;
	}
	if (g->halves) {
		memset(f.d_k, 0, (size_t)(g->s * g->d) * sizeof(float));
		memset(f.d_v, 0, (size_t)(g->s * g->d) * sizeof(float));
	}
	for (head.h = keys * g->group; head.h < (keys + 1) * g->group; head.h++)
		backward_queries(g, &head, out, &f);
	if (!is_wide(g->op)) {
		store_rows(g, out->k, at, g->k_step, head.d_k, g->s);
		store_rows(g, out->v, at, g->k_step, head.d_v, g->s);
	}
	return f.status;
}

static int backward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	attention g = attention_of(op, op->num_tilings > 0, true);
	take_factors(&g, operands, workspace);
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
	int failure = dnnl_success;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads) reduction(max : failure)
#endif
	for (int64_t i = 0; i < g.b * heads; i++) {
		dnnl_status_t status = backward_head(&g, i / heads, i % heads, &out,
						     cpu_own_scratch(op, omp_get_thread_num(), workspace));
		failure = status == dnnl_success ? failure : (int)status;
	}
	return failure == dnnl_success ? BETON_OK : cpu_product_failed(failure, err);
}

/* One of the op's tilings: the product of a block with so many queries and keys. */
static cpu_product product_of(const attention *g, bool backward, int tiling, int64_t queries, int64_t keys)
{
	cpu_product p = {.of_a = 'N', .of_b = 'N', .adds = tiling != SCORES, .wide = true, .alpha = 1};
	p.m = backward && tiling != OF_QUERIES ? keys : queries;
	p.n = tiling != SCORES ? g->d : backward ? queries : keys;
	p.k = tiling == SCORES ? g->d : p.m == keys && tiling == OF_KEYS && backward ? queries : keys;
	p.a_step = tiling == SCORES ? g->d : backward ? g->queries : g->keys;
	p.b_step = g->d;
	p.c_step = tiling != SCORES ? g->d : backward ? g->queries : g->keys;
	p.of_a = tiling == OF_QUERIES ? 'T' : 'N';
	p.of_b = tiling == SCORES ? 'T' : 'N';
	return p;
}

static void plan_products(cpu_build *build, const attention *g, bool backward)
{
	for (int tiling = SCORES; tiling <= (backward ? OF_QUERIES : VALUES); tiling++) {
		cpu_tiling *tiles = cpu_add_tiling(build);
		for (int i = 0; i < 4 && tiles; i++) {
			int64_t queries = i / 2 ? g->t % g->queries : g->t < g->queries ? 0 : g->queries;
			int64_t keys = i % 2 ? g->s % g->keys : g->s < g->keys ? 0 : g->keys;
			cpu_product p = product_of(g, backward, tiling, backward ? padded(queries) : queries,
						   backward ? keys : padded(keys));
			cpu_plan_tile(build, tiles, &tiles->tiles[i / 2][i % 2], &p);
		}
	}
}

/* Small blocks take longer to start than to compute. */
static bool takes_halves(const cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	return build->op->dtype == DTRAIN_BF16 && build->device->has_fast_bf16 &&
	       desc->kind != DTRAIN_OP_ATTENTION_CACHED && desc->inputs[0].shape.dim[1] >= HALF_FOR &&
	       desc->inputs[1].shape.dim[1] >= HALF_FOR;
}

void cpu_build_attention(cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	bool is_backward = desc->kind == DTRAIN_OP_ATTENTION_BWD || desc->kind == DTRAIN_OP_ATTENTION_DROPOUT_BWD;
	bool cached = desc->kind == DTRAIN_OP_ATTENTION_CACHED, halves = takes_halves(build);
	build->op->drops = desc->kind == DTRAIN_OP_ATTENTION_DROPOUT || desc->kind == DTRAIN_OP_ATTENTION_DROPOUT_BWD;
	build->op->channels = is_backward ? desc->inputs[3].shape.dim[2] : desc->outputs[0].shape.dim[2];
	attention g = attention_of(build->op, halves, is_backward);
	g.s = desc->inputs[cached ? 3 : 1].shape.dim[1];
	size_t bytes;
	if (is_backward)
		backward_parts(&g, NULL, &bytes);
	else
		forward_parts(&g, NULL, &bytes);
	cpu_build_function(build, bytes, build->device->threads,
			   is_backward ? backward
			   : cached    ? forward_cached
				       : forward);
	if (halves)
		plan_products(build, &g, is_backward);
}
