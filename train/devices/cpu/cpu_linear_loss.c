/* SPDX-License-Identifier: Apache-2.0
 *
 * A linear layer and its cross entropy, a chunk of rows at a time: the logits of a chunk, in whose place their
 * gradients are written, and the products of these. Threads share tiles of fixed size, so that sums do not depend on
 * their number.
 */
#include <math.h>
#include <string.h>

#include "common/error.h"
#include "core/shape.h"
#include "cpu.h"

/* Rows of a chunk when the op names none: with GPT-2's vocabulary the step is 8 % slower with 128, and 2 % faster with
 * 512. Tiles: classes; rows and columns of d_x. */
enum { CHUNK = 256, CLASSES = 1024, ROWS = 128, COLUMNS = 192 };

typedef struct loss {
	const struct dtrain_op *op;
	const void *x, *w;
	const float *b;
	const int64_t *label;
	float *losses, *hits, *d_w, *d_b; /* NULL, as b: the op does not have it */
	void *d_x;
	int64_t rows, columns, classes, counted;
	float scale;
	float *logits;   /* [chunk, classes] */
	void *gradients; /* the same */
} loss;

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static bool is_ignored(const loss *l, int64_t row)
{
	int64_t ignored = l->op->attrs.loss.ignored;
	return ignored < 0 && l->label[row] == ignored;
}

static int check_labels(loss *l, beton_error *err)
{
	for (int64_t n = 0; n < l->rows; n++) {
		if (is_ignored(l, n))
			continue;
		l->counted++;
		if (l->label[n] < 0 || l->label[n] >= l->classes)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "label %lld of row %lld is outside 0..%lld (the model has %lld classes)",
				       (long long)l->label[n], (long long)n, (long long)l->classes - 1,
				       (long long)l->classes);
	}
	return BETON_OK;
}

/* The products of a chunk of so many rows, without addresses. Gradients of logits are those in place of the logits, in
 * BF16 their rounded copy. */
typedef struct products {
	cpu_product logits, d_x, d_w;
} products;

/* An op's tilings: of a whole chunk, then of the last chunk. In BF16 products are always added to d_w. */
enum { PRODUCTS = 3 };

/* The bias precedes the labels. */
static bool is_biased(const struct dtrain_op *op)
{
	return op->dtypes[2] != DTRAIN_I64;
}

static products products_of(const struct dtrain_op *op, int64_t rows)
{
	static const float bias;
	int64_t columns = op->shapes[0].dim[1], classes = op->shapes[1].dim[0];
	return (products){.logits = {.of_a = 'N',
				     .of_b = 'T',
				     .wide = true,
				     .tile = {(int32_t)rows, CLASSES},
				     .m = rows,
				     .n = classes,
				     .k = columns,
				     .alpha = 1,
				     .a_step = columns,
				     .b_step = columns,
				     .bias = is_biased(op) ? &bias : NULL},
			  .d_x = {.of_a = 'N',
				  .of_b = 'N',
				  .tile = {ROWS, COLUMNS},
				  .m = rows,
				  .n = columns,
				  .k = classes,
				  .alpha = 1,
				  .a_step = classes,
				  .b_step = columns},
			  .d_w = {.of_a = 'T',
				  .of_b = 'N',
				  .adds = true,
				  .wide = true,
				  .tile = {CLASSES, (int32_t)columns},
				  .m = classes,
				  .n = columns,
				  .k = rows,
				  .alpha = 1,
				  .a_step = classes,
				  .b_step = columns}};
}

static int find_logits(const loss *l, const products *p, int64_t first, void *workspace, beton_error *err)
{
	cpu_product logits = p->logits;
	logits.a = cpu_from(l->op, l->x, first * l->columns);
	logits.b = l->w;
	logits.bias = l->b;
	logits.c = l->logits;
	return cpu_products(l->op, &logits, 1, 0, 0, workspace, err);
}

/* The first of equal logits counts as higher. */
static bool has_highest(const float *logits, int64_t label, float most)
{
	for (int64_t c = 0; c < label; c++)
		if (logits[c] >= most)
			return false;
	return logits[label] == most;
}

/* The loss of a row, its hit, and the gradients of its logits in place of these. */
static void finish_row(const loss *l, int64_t row, float *logits)
{
	const cpu_vector *vector = l->op->device->vector;
	float smooth = (float)l->op->attrs.loss.label_smoothing, most, sum, total;
	float factor = l->scale / (float)l->counted, share = smooth / (float)l->classes;
	if (is_ignored(l, row)) {
		l->losses[row] = 0;
		if (l->hits)
			l->hits[row] = 0;
		if (l->d_x)
			memset(logits, 0, (size_t)l->classes * sizeof(float));
		return;
	}
	vector->softmax_sums(logits, l->classes, &most, &sum, &total);
	float log_sum = logf(sum), chosen = logits[l->label[row]] - most;
	l->losses[row] =
		(1 - smooth) * (log_sum - chosen) + (smooth > 0 ? smooth * (log_sum - total / (float)l->classes) : 0);
	if (l->hits)
		l->hits[row] = has_highest(logits, l->label[row], most);
	if (!l->d_x)
		return;
	vector->softmax_gradient(logits, l->classes, most, 1 / sum, share, factor);
	logits[l->label[row]] -= (1 - smooth) * factor;
}

static void finish_rows(const loss *l, int64_t first, int64_t rows)
{
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(l->op->device->threads)
#endif
	for (int64_t i = 0; i < rows; i++) {
		float *logits = l->logits + i * l->classes;
		finish_row(l, first + i, logits);
		if (l->d_x && l->gradients != l->logits)
			l->op->rows->narrow(cpu_to(l->op, l->gradients, i * l->classes), logits, 1, l->classes);
	}
}

/* A chunk's part of some classes' gradients of the bias. */
static void add_bias_gradient(const loss *l, int64_t class_number, int64_t rows, bool adds)
{
	int64_t count = least(CLASSES, l->classes - class_number);
	if (!adds)
		memset(l->d_b + class_number, 0, (size_t)count * sizeof(float));
	for (int64_t i = 0; i < rows; i++)
		l->op->rows->add(l->d_b + class_number, cpu_from(l->op, l->gradients, i * l->classes + class_number),
				 count);
}

static int find_gradients(const loss *l, const products *p, int64_t first, void *workspace, beton_error *err)
{
	cpu_product d_x = p->d_x, d_w = p->d_w;
	int64_t tiles = cpu_product_tiles(&d_x), parts = cpu_product_tiles(&d_w);
	int64_t sums = l->d_b ? (l->classes + CLASSES - 1) / CLASSES : 0;
	int failure = dnnl_success;
	d_x.a = d_w.a = l->gradients;
	d_x.b = l->w;
	d_x.c = cpu_to(l->op, l->d_x, first * l->columns);
	d_w.b = cpu_from(l->op, l->x, first * l->columns);
	d_w.c = l->d_w;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(l->op->device->threads) reduction(max : failure)
#endif
	for (int64_t i = 0; i < tiles + parts + sums; i++) {
		dnnl_status_t status = dnnl_success;
		if (i < tiles)
			status = cpu_product_tile(l->op, &d_x, i, workspace);
		else if (i < tiles + parts)
			status = cpu_product_tile(l->op, &d_w, i - tiles, workspace);
		else
			add_bias_gradient(l, (i - tiles - parts) * CLASSES, d_w.k, first > 0);
		failure = status == dnnl_success ? failure : (int)status;
	}
	return failure == dnnl_success ? BETON_OK : cpu_product_failed(failure, err);
}

static int64_t chunk_of(const dtrain_op_attrs *attrs, int64_t rows)
{
	return least(attrs->loss.chunk > 0 ? attrs->loss.chunk : CHUNK, rows);
}

static loss loss_of(const struct dtrain_op *op, void *const *operands, void *workspace)
{
	void *const *out = operands + op->num_inputs;
	bool trains = op->num_outputs > 2, biased = is_biased(op);
	int label = biased ? 3 : 2, hits = trains ? label + 1 : 1;
	const float *scaler = op->num_inputs > label + 1 ? cpu_plain(op, label + 1, operands, workspace) : NULL;
	return (loss){.op = op,
		      .x = cpu_plain(op, 0, operands, workspace),
		      .w = cpu_plain(op, 1, operands, workspace),
		      .b = biased ? cpu_plain(op, 2, operands, workspace) : NULL,
		      .label = cpu_plain(op, label, operands, workspace),
		      .losses = out[0],
		      .hits = op->num_outputs > hits ? out[hits] : NULL,
		      .d_x = trains ? out[1] : NULL,
		      .d_w = trains ? out[2] : NULL,
		      .d_b = trains && biased ? out[3] : NULL,
		      .rows = op->shapes[0].dim[0],
		      .columns = op->shapes[0].dim[1],
		      .classes = op->shapes[1].dim[0],
		      .scale = scaler ? scaler[DTRAIN_SCALER_SCALE] : 1,
		      .logits = cpu_own_scratch(op, 0, workspace)};
}

static int run(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	loss l = loss_of(op, operands, workspace);
	int status = check_labels(&l, err);
	int64_t chunk = chunk_of(&op->attrs, l.rows);
	l.gradients = op->dtype == DTRAIN_F32 ? l.logits : (void *)(l.logits + chunk * l.classes);
	if (status == BETON_OK && l.d_w && op->dtype != DTRAIN_F32)
		memset(l.d_w, 0, (size_t)(l.classes * l.columns) * sizeof(float));
	for (int64_t first = 0; first < l.rows && status == BETON_OK; first += chunk) {
		int64_t rows = least(chunk, l.rows - first);
		products p = products_of(op, rows);
		p.logits.tiling = rows < chunk ? PRODUCTS : 0;
		p.d_x.tiling = p.logits.tiling + 1;
		p.d_w.tiling = p.logits.tiling + 2;
		p.d_w.adds = first > 0 || op->dtype != DTRAIN_F32;
		status = find_logits(&l, &p, first, workspace, err);
		if (status != BETON_OK)
			break;
		finish_rows(&l, first, rows);
		if (l.d_w)
			status = find_gradients(&l, &p, first, workspace, err);
	}
	return status;
}

void cpu_build_linear_loss(cpu_build *build)
{
	struct dtrain_op *op = build->op;
	int64_t rows = op->shapes[0].dim[0], chunk = chunk_of(&op->attrs, rows);
	size_t each = sizeof(float) + (op->dtype == DTRAIN_F32 ? 0 : op->element);
	cpu_build_function(build, (size_t)(chunk * op->shapes[1].dim[0]) * each, 1, run);
	cpu_round_weight(build, 1);
	for (int64_t count = chunk; count > 0; count = count == chunk ? rows % chunk : 0) {
		products p = products_of(op, count);
		cpu_plan_product(build, &p.logits);
		cpu_plan_product(build, &p.d_x);
		cpu_plan_product(build, &p.d_w);
	}
}
