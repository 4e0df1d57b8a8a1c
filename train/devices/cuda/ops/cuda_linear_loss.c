/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of a linear layer, in chunks of rows: the logits of a chunk, their loss and gradient, and the chunk's part
 * of the gradients of x, w and the bias, which the loss's kernel adds to the logits.
 *
 * Logits with a gradient have the type of x, as in PyTorch's autocast, and their gradient replaces them: that saves 8
 * of 12 bytes of a logit's memory in half precision. The loss is computed in F32 from the rounded logits. Without
 * gradients, and where DTRAIN_CUDA_LOGITS says so, logits are F32. A weight in F32 is rounded once.
 */
#include <stdlib.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/kernels/kernels.h"

/* Memory for a chunk's logits and their gradient, where the op does not say the number of rows: a 16th of the GPU's,
 * within these limits. Each chunk reads and writes the whole gradient of w, and products of fewer than some hundred
 * rows do not occupy a GPU. With the upper limit, fewer than 2^31 logits exist at a time. Chunks begin at multiples of
 * ALIGNED rows, so that cuBLASLt's alignment holds. */
static const int64_t LEAST_BYTES = 256 << 20, MOST_BYTES = (int64_t)4 << 30;
enum { ALIGNED = 16 };
/* Products have whole vectors of classes: with 50,257, as GPT-2 has, cuBLASLt would read the rows of the gradient one
 * element at a time. So w and its gradient are copied, and padded with rows of zeros, to a multiple of 64: these are
 * the 128 bytes of a row that tensor cores read at a time where classes are the length of a product's sums. A multiple
 * of 128, a tile's edge, is the same number for GPT-2, and more zeros for few classes. */
enum { VECTOR = 8, PADDED = 64 };

enum { LOGITS, BWD_DATA, BWD_WEIGHT, PRODUCTS };
enum { WHOLE, REST, SIZES }; /* chunks, and the last one if it is shorter */

typedef struct linear_loss {
	dtrain_dtype dtype, logit; /* of x; of a logit */
	int64_t n, in, classes, chunk;
	int64_t wide; /* classes with the padding */
	bool backward, rounds, biased;
	dtrain_op products[SIZES][PRODUCTS];
	size_t weight, d_weight, logits, d_logits, counted, sums, own, bytes;
} linear_loss;

static bool pads(const linear_loss *self)
{
	return self->wide != self->classes;
}

/* Whether the gradient of the logits has memory of its own. */
static bool parts(const linear_loss *self)
{
	return self->backward && self->logit != self->dtype;
}

static size_t logit_bytes(const linear_loss *self)
{
	return dtrain_dtype_size(self->logit) + (parts(self) ? dtrain_dtype_size(self->dtype) : 0);
}

static dtrain_operand matrix(dtrain_dtype dtype, int64_t rows, int64_t columns)
{
	return (dtrain_operand){.dtype = dtype, .shape = dtrain_shape_of(2, (int64_t[]){rows, columns})};
}

static int make_product(linear_loss *self, int size, int product, int64_t rows, beton_error *err)
{
	static const dtrain_op_kind kinds[] = {DTRAIN_OP_LINEAR, DTRAIN_OP_LINEAR_BWD_DATA,
					       DTRAIN_OP_LINEAR_BWD_WEIGHT};
	dtrain_operand x = matrix(self->dtype, rows, self->in), w = matrix(self->dtype, self->wide, self->in);
	dtrain_operand logits = matrix(self->logit, rows, self->wide);
	dtrain_operand d_logits = matrix(self->dtype, rows, self->wide);
	dtrain_operand d_w = matrix(DTRAIN_F32, self->wide, self->in);
	const dtrain_operand operands[][3] = {{x, w, logits}, {d_logits, w, x}, {x, d_logits, d_w}};
	dtrain_op *op = &self->products[size][product];
	op->desc = (dtrain_op_desc){.kind = kinds[product],
				    .num_inputs = 2,
				    .num_outputs = 1,
				    .inputs = {operands[product][0], operands[product][1]},
				    .outputs = {operands[product][2]}};
	return cuda_build_linear(op, &op->desc, err);
}

static int make_products(linear_loss *self, dtrain_device *device, beton_error *err)
{
	const int64_t rows[SIZES] = {self->n < self->chunk ? 0 : self->chunk, self->n % self->chunk};
	int status = BETON_OK;
	for (int i = 0; i < SIZES; i++)
		for (int p = 0; p < (self->backward ? PRODUCTS : BWD_DATA) && rows[i] && status == BETON_OK; p++) {
			self->products[i][p].device = device;
			status = make_product(self, i, p, rows[i], err);
		}
	return status;
}

/* Bytes that the sums of the bias's gradient need. */
static size_t sums_bytes(const linear_loss *self, int64_t rows)
{
	return self->backward && self->biased && rows ? cuda_kernel_column_sums_workspace(1, rows, self->classes) : 0;
}

static void lay_out(linear_loss *self)
{
	int64_t rows = self->n < self->chunk ? self->n : self->chunk;
	size_t whole = sums_bytes(self, rows), rest = sums_bytes(self, self->n % self->chunk);
	size_t elements = (size_t)(rows * self->wide), weights = (size_t)(self->wide * self->in),
	       size = dtrain_dtype_size(self->dtype), most = 0;
	for (int i = 0; i < SIZES * PRODUCTS; i++) {
		size_t bytes = self->products[i / PRODUCTS][i % PRODUCTS].desc.workspace_bytes;
		most = bytes > most ? bytes : most;
	}
	self->weight = cuda_reserve(&self->bytes, self->rounds || pads(self) ? weights * size : 0);
	self->d_weight = cuda_reserve(&self->bytes, self->backward && pads(self) ? weights * sizeof(float) : 0);
	self->logits = cuda_reserve(&self->bytes, elements * dtrain_dtype_size(self->logit));
	self->d_logits = parts(self) ? cuda_reserve(&self->bytes, elements * size) : self->logits;
	self->counted = cuda_reserve(&self->bytes, sizeof(float));
	self->sums = cuda_reserve(&self->bytes, whole > rest ? whole : rest);
	self->own = cuda_reserve(&self->bytes, most);
}

/* ---- running ---- */

/* Where a run finds its operands. */
typedef struct places {
	cuda_loss loss; /* of the first row */
	const char *x;
	void *w;
	char *d_x;
	float *d_w, *d_b;   /* d_b: NULL without a bias */
	float *d_w_outside; /* where d_w is copied to at last; NULL: it is there */
} places;

static places places_of(const dtrain_op *op, void *const *operands, char *workspace)
{
	const linear_loss *self = op->state;
	const dtrain_op_desc *desc = &op->desc;
	void *const *outputs = operands + desc->num_inputs;
	int label = self->biased ? 3 : 2, hits = self->backward ? label + 1 : 1;
	bool ignores = desc->attrs.loss.ignored < 0;
	return (places){.loss = {.label = operands[label],
				 .scaler = desc->num_inputs > label + 1 ? operands[label + 1] : NULL,
				 .bias = self->biased ? operands[2] : NULL,
				 .loss = outputs[0],
				 .hits = desc->num_outputs > hits ? outputs[hits] : NULL,
				 .fault = op->device->fault,
				 .rows = self->n,
				 .classes = self->classes,
				 .pitch = self->wide,
				 .ignored = desc->attrs.loss.ignored,
				 .counted = self->backward && ignores ? (float *)(workspace + self->counted) : NULL},
			.x = operands[0],
			.w = self->rounds || pads(self) ? workspace + self->weight : operands[1],
			.d_x = self->backward ? outputs[1] : NULL,
			.d_w = !self->backward ? NULL
			       : pads(self)    ? (float *)(workspace + self->d_weight)
					       : outputs[2],
			.d_w_outside = self->backward && pads(self) ? outputs[2] : NULL,
			.d_b = self->backward && self->biased ? outputs[3] : NULL};
}

/* Rounds or pads the weight and counts the rows, for all chunks. */
static cudaError_t prepare(const linear_loss *self, cudaStream_t stream, const places *at, const void *w)
{
	cudaError_t status = cudaSuccess;
	size_t size = dtrain_dtype_size(self->dtype);
	int64_t count = self->classes * self->in, added = (self->wide - self->classes) * self->in;
	if (at->w != w)
		status =
			cuda_kernel_cast(stream, w, self->rounds ? DTRAIN_F32 : self->dtype, at->w, self->dtype, count);
	if (status == cudaSuccess && added)
		status = cudaMemsetAsync((char *)at->w + (size_t)count * size, 0, (size_t)added * size, stream);
	return status == cudaSuccess && at->loss.counted
		       ? cuda_kernel_count_labels(stream, at->loss.label, at->loss.ignored, self->n,
						  (float *)at->loss.counted)
		       : status;
}

static cudaError_t find_loss(const dtrain_op *op, cudaStream_t stream, const places *at, int64_t first, int64_t rows,
			     const void *logits, void *d_logits)
{
	const linear_loss *self = op->state;
	cuda_loss loss = at->loss;
	loss.label += first;
	loss.loss += first;
	loss.hits = loss.hits ? loss.hits + first : NULL;
	loss.rows = rows;
	loss.all_rows = self->n;
	loss.first_row = first;
	return cuda_kernel_softmax_xent(stream, &loss, logits, self->logit, d_logits, self->dtype,
					op->desc.attrs.loss.label_smoothing);
}

static cudaError_t add_bias_gradient(const linear_loss *self, cudaStream_t stream, const places *at, int64_t first,
				     int64_t rows, char *workspace)
{
	const void *d_logits = workspace + self->d_logits;
	void *sums = workspace + self->sums;
	if (!at->d_b)
		return cudaSuccess;
	return cuda_kernel_matrix_sums(stream, d_logits, self->dtype, at->d_b, rows, self->classes, self->wide,
				       first > 0, sums);
}

static int run_chunk(dtrain_op *op, cudaStream_t stream, const places *at, int64_t first, char *workspace,
		     beton_error *err)
{
	linear_loss *self = op->state;
	int64_t rows = self->n - first < self->chunk ? self->n - first : self->chunk;
	dtrain_op *products = self->products[rows == self->chunk ? WHOLE : REST];
	size_t offset = (size_t)(first * self->in) * dtrain_dtype_size(self->dtype);
	void *x = (void *)(at->x + offset), *logits = workspace + self->logits, *own = workspace + self->own;
	void *d_logits = self->backward ? workspace + self->d_logits : NULL;
	int status = products[LOGITS].run(&products[LOGITS], stream, (void *[]){x, at->w, logits}, own, err);
	if (status == BETON_OK)
		status = cuda_check(find_loss(op, stream, at, first, rows, logits, d_logits), err, "loss");
	if (status != BETON_OK || !self->backward)
		return status;
	status = products[BWD_DATA].run(&products[BWD_DATA], stream, (void *[]){d_logits, at->w, at->d_x + offset}, own,
					err);
	if (status != BETON_OK)
		return status;
	status = cuda_check(add_bias_gradient(self, stream, at, first, rows, workspace), err, "bias gradient");
	if (status != BETON_OK)
		return status;
	cuda_linear_adds(&products[BWD_WEIGHT], first > 0);
	return products[BWD_WEIGHT].run(&products[BWD_WEIGHT], stream, (void *[]){x, d_logits, at->d_w}, own, err);
}

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	const linear_loss *self = op->state;
	const places at = places_of(op, operands, workspace);
	int status = cuda_check(prepare(self, stream, &at, operands[1]), err, "weights and labels");
	for (int64_t first = 0; first < self->n && status == BETON_OK; first += self->chunk)
		status = run_chunk(op, stream, &at, first, workspace, err);
	if (status != BETON_OK || !at.d_w_outside)
		return status;
	return cuda_check(
		cuda_kernel_cast(stream, at.d_w, DTRAIN_F32, at.d_w_outside, DTRAIN_F32, self->classes * self->in), err,
		"gradient of the weight");
}

static void destroy(void *state)
{
	linear_loss *self = state;
	for (int i = 0; i < SIZES * PRODUCTS; i++) {
		dtrain_op *op = &self->products[i / PRODUCTS][i % PRODUCTS];
		if (op->destroy)
			op->destroy(op->state);
	}
	free(self);
}

/* Rows of a chunk: as many in each as the memory allows, but for rounding. given: by the op, or 0. */
static int64_t chunk_of(const linear_loss *self, const dtrain_device *device, int64_t given)
{
	int64_t bytes = (int64_t)(device->properties.totalGlobalMem / 16), rows = given;
	bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes > MOST_BYTES ? MOST_BYTES : bytes;
	if (!given) {
		int64_t most = bytes / (self->wide * (int64_t)logit_bytes(self)) + 1;
		int64_t chunks = (self->n + most - 1) / most;
		rows = (self->n + chunks - 1) / chunks;
	}
	rows = rows < self->n ? rows : self->n;
	return (rows + ALIGNED - 1) / ALIGNED * ALIGNED;
}

int cuda_build_linear_loss(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	linear_loss *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	op->state = self;
	op->destroy = destroy;
	op->run = run;
	self->dtype = desc->inputs[0].dtype;
	self->n = desc->inputs[0].shape.dim[0];
	self->in = desc->inputs[0].shape.dim[1];
	self->classes = desc->inputs[1].shape.dim[0];
	self->backward = dtrain__op_rules_of(desc->kind)->loss_gradients > 0;
	self->logit = self->backward && !op->device->f32_logits ? self->dtype : DTRAIN_F32;
	self->biased = dtrain__op_input_letter(desc->kind, 2) == 'B';
	self->rounds = desc->inputs[1].dtype != self->dtype;
	self->wide = self->classes % VECTOR ? (self->classes + PADDED - 1) / PADDED * PADDED : self->classes;
	self->chunk = chunk_of(self, op->device, desc->attrs.loss.chunk);
	int status = make_products(self, op->device, err);
	if (status != BETON_OK) {
		bt_prefix(err, "op %s", dtrain__op_name(desc->kind));
		return status;
	}
	lay_out(self);
	desc->workspace_bytes = self->bytes;
	return BETON_OK;
}
