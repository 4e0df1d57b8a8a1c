/* SPDX-License-Identifier: Apache-2.0
 *
 * Our own CUDA kernels, as functions that put one on a stream. All return cudaSuccess or the launch's error, do not
 * wait or allocate, and can be captured. Pointers are device memory. Kernels access 16 bytes at a time if pointers and
 * channels are multiples of that, and single elements otherwise. Results are the same, bit for bit, from run to run on
 * one kind of GPU: the order of sums depends on shapes and the number of multiprocessors alone.
 *
 * Types are DTRAIN_F32, DTRAIN_F16 or DTRAIN_BF16; others give cudaErrorInvalidValue. Arithmetic is in F32.
 * docs/architecture/cuda.md, "Kernels of our own", has the bytes that each moves.
 */
#ifndef DTRAIN_CUDA_KERNELS_KERNELS_H
#define DTRAIN_CUDA_KERNELS_KERNELS_H

#include <cuda_runtime_api.h>

#include <dtrain/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- layouts and types ---- */

/* y[b][column][row] = x[b][row][column]: NCHW from and to NHWC, KCRS from and to KRSC. x and y do not overlap. */
cudaError_t cuda_kernel_transpose(cudaStream_t stream, const void *x, dtrain_dtype from, void *y, dtrain_dtype to,
				  int64_t batch, int64_t rows, int64_t columns);
/* A copy if the types are equal. */
cudaError_t cuda_kernel_cast(cudaStream_t stream, const void *x, dtrain_dtype from, void *y, dtrain_dtype to,
			     int64_t count);
/* Elements first .. first + count - 1 of two arrays. With an area above 1 they are [filters][channels][area] in x, and
 * [filters][area][channels] in y; otherwise the order stays. channels, area >= 1; filters * channels below 2^31. */
typedef struct cuda_cast_part {
	int64_t first, count;
	int64_t channels, area;
} cuda_cast_part;
#define CUDA_CAST_LARGEST_AREA 4096
/* y is x, rounded, in each part; parts do not overlap. One launch for each 72 parts. */
cudaError_t cuda_kernel_cast_parts(cudaStream_t stream, const float *x, void *y, dtrain_dtype to,
				   const cuda_cast_part *parts, int count);
/* x u8 [n][area][c], c 1 to 4 -> y = x * scale[c] + shift[c], nhwc: [n][area][c], else [n][c][area]. */
cudaError_t cuda_kernel_normalize(cudaStream_t stream, const uint8_t *x, void *y, dtrain_dtype dtype, bool nhwc,
				  int64_t n, int64_t area, int channels, const float scale[4], const float shift[4]);

/* Pictures of cells, for a convolution with stride 2 (ops/space_to_depth.h). */
enum { CUDA_CELL_CHANNELS = 16 };
typedef struct cuda_cell_pictures {
	int64_t n, height, width, channels; /* channels 1 to 4 */
	int64_t rows, columns;              /* of cells */
	int32_t padding[2];                 /* before the first row and the first column */
} cuda_cell_pictures;
/* The same as cuda_kernel_normalize, with y [n][rows][columns][CUDA_CELL_CHANNELS] in F16 or BF16, a multiple of 16
 * bytes. */
cudaError_t cuda_kernel_normalize_cells(cudaStream_t stream, const cuda_cell_pictures *p, const uint8_t *x, void *y,
					dtrain_dtype dtype, const float scale[4], const float shift[4]);

typedef struct cuda_cell_weight {
	int64_t filters, channels, kernel[2]; /* channels 1 to 4 */
	bool krsc;                            /* the weight is; else KCRS */
} cuda_cell_weight;
/* y [filters][height / 2][width / 2][CUDA_CELL_CHANNELS], heights and widths rounded up, has x's elements, rounded, and
 * zeros. */
cudaError_t cuda_kernel_weight_to_cells(cudaStream_t stream, const cuda_cell_weight *w, const void *x,
					dtrain_dtype from, void *y, dtrain_dtype to);
/* The reverse, from x [filters][CUDA_CELL_CHANNELS][height / 2][width / 2] to y in KCRS. */
cudaError_t cuda_kernel_weight_from_cells(cudaStream_t stream, const cuda_cell_weight *w, dtrain_dtype dtype,
					  const void *x, void *y);

/* Elements of two tensors that belong together; strides in elements. */
enum { CUDA_BOX_DIMS = DTRAIN_MAX_DIMS };
typedef struct cuda_box {
	int ndim;
	int64_t dim[CUDA_BOX_DIMS];
	int64_t from[CUDA_BOX_DIMS], to[CUDA_BOX_DIMS]; /* strides of x and y */
} cuda_box;
/* Copies elements of `element` bytes: 1, 2, 4 or 8. x NULL: zeros. x and y do not overlap. */
cudaError_t cuda_kernel_copy_box(cudaStream_t stream, size_t element, const void *x, void *y, const cuda_box *box);

/* ---- element by element; the output may be one of the inputs ---- */

cudaError_t cuda_kernel_relu(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count);
cudaError_t cuda_kernel_relu_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *y, const void *d_y, void *d_x,
				 int64_t count);
/* DTRAIN_OP_GELU with erf in F32: for x below -3 the last bits of y are lost, as in PyTorch. */
cudaError_t cuda_kernel_gelu(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count);
cudaError_t cuda_kernel_gelu_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *x, const void *d_y, void *d_x,
				 int64_t count);
cudaError_t cuda_kernel_gelu_tanh(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count);
cudaError_t cuda_kernel_gelu_tanh_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *x, const void *d_y,
				      void *d_x, int64_t count);
cudaError_t cuda_kernel_silu(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count);
cudaError_t cuda_kernel_silu_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *x, const void *d_y, void *d_x,
				 int64_t count);
cudaError_t cuda_kernel_swiglu(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b, void *y,
			       int64_t count);
/* d_a may be a, and d_b may be b. */
cudaError_t cuda_kernel_swiglu_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b,
				   const void *d_y, void *d_a, void *d_b, int64_t count);
/* y = factor * x. */
cudaError_t cuda_kernel_scale(cudaStream_t stream, const void *x, dtrain_dtype from, void *y, dtrain_dtype to,
			      double factor, int64_t count);
/* out = x + factor * y, and 0 where that is not finite. */
cudaError_t cuda_kernel_carry(cudaStream_t stream, const float *x, const float *y, float *out, double factor,
			      int64_t count);
cudaError_t cuda_kernel_add(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b, void *y, bool relu,
			    int64_t count);

/* ---- sums over rows, and their opposite ---- */

/* y[b][c] = factor * sum over r of x[b][r][c]. For example: a bias gradient (batch 1), the global average pool of NHWC
 * (factor 1 / area), the mean of a vector (1 column). workspace: F32, with the other function's number of bytes. */
cudaError_t cuda_kernel_column_sums(cudaStream_t stream, const void *x, dtrain_dtype from, void *y, dtrain_dtype to,
				    int64_t batch, int64_t rows, int64_t columns, double factor, void *workspace);
size_t cuda_kernel_column_sums_workspace(int64_t batch, int64_t rows, int64_t columns);
/* The same of one matrix, with `pitch` elements from row to row. adds: y[c] += the sum. */
cudaError_t cuda_kernel_matrix_sums(cudaStream_t stream, const void *x, dtrain_dtype from, float *y, int64_t rows,
				    int64_t columns, int64_t pitch, bool adds, void *workspace);
/* y[r][c] = x[r][c] + b[c]; y may be x. b is F32. */
cudaError_t cuda_kernel_row_bias(cudaStream_t stream, dtrain_dtype dtype, const void *x, const float *b, void *y,
				 int64_t rows, int64_t columns);
/* y[b][r][c] = factor * x[b][c]. */
cudaError_t cuda_kernel_spread(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t batch,
			       int64_t rows, int64_t columns, double factor);

/* ---- norms of rows: x [rows][columns]; gamma, beta and statistics are F32 ---- */

typedef struct cuda_row_norm {
	dtrain_dtype dtype; /* of x, y and their gradients */
	int64_t rows, columns;
	double epsilon;
	bool centered; /* DTRAIN_OP_LAYER_NORM; else DTRAIN_OP_RMS_NORM */
} cuda_row_norm;

/* beta NULL: none. centered: the statistics are mean and var; else first is 1 / sqrt(mean of x^2 + epsilon), and var is
 * not used. */
cudaError_t cuda_kernel_row_norm(cudaStream_t stream, const cuda_row_norm *norm, const void *x, const float *gamma,
				 const float *beta, void *y, float *first, float *var);
typedef struct cuda_row_norm_bwd {
	const void *x, *d_y;
	const void *addend; /* added to d_x, and may be d_x; NULL: none */
	const float *gamma, *first, *var;
	void *d_x;
	float *d_gamma;
	float *d_beta; /* NULL: not wanted */
} cuda_row_norm_bwd;
/* workspace: the other function's number of bytes. */
cudaError_t cuda_kernel_row_norm_bwd(cudaStream_t stream, const cuda_row_norm *norm, const cuda_row_norm_bwd *b,
				     void *workspace);
size_t cuda_kernel_row_norm_workspace(const cuda_row_norm *norm);

/* ---- tables: w [table_rows][columns], index [count] of I64 or I32 ---- */

typedef struct cuda_table {
	dtrain_dtype dtype; /* of y and d_y */
	dtrain_dtype weight, index;
	int64_t table_rows, columns, count; /* table_rows and count below 2^31 */
	int64_t *fault;                     /* as cuda_loss.fault, with the index and its place */
	int64_t first, all; /* of a part of a table of `all` rows: the number of row 0; otherwise 0 and table_rows */
} cuda_table;

/* DTRAIN_OP_EMBEDDING: the y of an index outside the part of the table is 0. */
cudaError_t cuda_kernel_embedding(cudaStream_t stream, const cuda_table *table, const void *w, const void *index,
				  void *y);
/* DTRAIN_OP_EMBEDDING_BWD: sorts the index, and adds up the rows of d_y that belong to a row of d_w: up to 64 in their
 * order, more in 4 to 256 sums that a tree adds. addend NULL: none; it may be d_w. */
cudaError_t cuda_kernel_embedding_bwd(cudaStream_t stream, const cuda_table *table, const void *d_y, const void *index,
				      const float *addend, float *d_w, void *workspace);
size_t cuda_kernel_embedding_workspace(const cuda_table *table);

/* ---- positions and random numbers; y may be x ---- */

/* DTRAIN_OP_ROTARY of x [batch][tokens][heads * head_dim]. position: NULL, [tokens], or [batch][tokens] with per_row.
 */
typedef struct cuda_rotary {
	dtrain_dtype dtype;
	int64_t batch, tokens, heads;
	const int64_t *position;
	bool per_row;
} cuda_rotary;
cudaError_t cuda_kernel_rotary(cudaStream_t stream, const cuda_rotary *rotary, const dtrain_rotary_attrs *attrs,
			       const void *x, void *y);
/* DTRAIN_OP_DROPOUT of x [rows][each]. */
cudaError_t cuda_kernel_dropout(cudaStream_t stream, dtrain_dtype dtype, const void *x, const int64_t *random, void *y,
				int64_t rows, int64_t each, const dtrain_dropout_attrs *attrs);

/* ---- attention: DTRAIN_OP_ATTENTION, DTRAIN_OP_ATTENTION_DROPOUT and their gradients ---- */

/* Rows of q and d_q are q_step elements apart; rows of k, v and their gradients k_step; rows of y and d_y y_step. From
 * sequence to sequence, keys are k_batch rows apart. */
typedef struct cuda_attention {
	dtrain_dtype dtype;
	int64_t batch, queries, keys, heads, kv_heads, dim;
	int64_t q_step, k_step, y_step, k_batch;
	bool causal;
	double scale;
	const int32_t *segment; /* [batch][keys]; NULL: none */
	const int64_t *random;  /* NULL: no dropout */
	double dropout;
	int32_t layer;
	const void *q, *k, *v;
	void *y;             /* read by the gradients */
	float *lse;          /* forward: NULL if it is not wanted */
	const int64_t *past; /* NULL, or forward: there are *past + queries keys, `keys` at most, and it is causal */
	const void *d_y;     /* this and the next: of the gradients alone */
	void *d_q, *d_k, *d_v;
	int64_t all_heads, first_head; /* of dropout: see dtrain_attention_attrs */
	dtrain_chunk_attrs chunks;     /* of the queries */
} cuda_attention;

/* Heads have up to this many elements; more give cudaErrorInvalidValue. */
#define CUDA_ATTENTION_LARGEST_DIM 256
cudaError_t cuda_kernel_attention(cudaStream_t stream, const cuda_attention *attention);
/* The same by tensor cores, if the operands fit them: halves, and rows of whole 16 bytes. The other functions choose.
 */
bool cuda_kernel_attention_has_tensor_cores(const cuda_attention *attention);
cudaError_t cuda_kernel_attention_tensor(cudaStream_t stream, const cuda_attention *attention);
cudaError_t cuda_kernel_attention_tensor_bwd(cudaStream_t stream, const cuda_attention *attention, void *workspace);
/* Writes from [batch][rows][columns] to the rows *past, *past + 1 ... of to [batch][to_rows][columns]. A past that does
 * not fit writes nothing, and its value with row 0 to fault, as cuda_loss.fault. Columns are bytes. */
cudaError_t cuda_kernel_cache_rows(cudaStream_t stream, const void *from, void *to, int64_t batch, int64_t rows,
				   int64_t to_rows, int64_t columns, const int64_t *past, int64_t *fault);
/* workspace: F32 [batch][heads][queries]. */
cudaError_t cuda_kernel_attention_bwd(cudaStream_t stream, const cuda_attention *attention, void *workspace);

/* ---- batch norm of [rows][channels], which is what NHWC is; gamma, beta and statistics are F32 ---- */

typedef struct cuda_batch_norm {
	dtrain_dtype dtype; /* of x, residual, y and their gradients */
	int64_t rows, channels;
	double epsilon, momentum;
	bool relu;
} cuda_batch_norm;

/* The mask has a bit for each element: 8 channels of a row in a byte, lowest bit first. Each row begins with a new
 * byte. */
static inline size_t cuda_kernel_mask_bytes(int64_t rows, int64_t channels)
{
	return (size_t)rows * (size_t)((channels + 7) / 8);
}

/* mean and (biased) var of the columns; running statistics (NULL: none) are updated in place. */
cudaError_t cuda_kernel_batch_norm_statistics(cudaStream_t stream, const cuda_batch_norm *g, const void *x, float *mean,
					      float *var, float *running_mean, float *running_var, void *workspace);
/* y = (x - mean) * gamma / sqrt(var + epsilon) + beta [+ residual], at least 0 with relu. residual and mask (y > 0):
 * NULL, or used. y may be x or residual. */
cudaError_t cuda_kernel_batch_norm_apply(cudaStream_t stream, const cuda_batch_norm *g, const void *x,
					 const float *gamma, const float *beta, const float *mean, const float *var,
					 const void *residual, void *y, uint8_t *mask);
/* With d = d_y where the mask (NULL: everywhere) is set and 0 elsewhere: d_gamma, d_beta, d_x, d_residual = d (NULL:
 * none). d_x or d_residual may be d_y. */
cudaError_t cuda_kernel_batch_norm_bwd(cudaStream_t stream, const cuda_batch_norm *g, const void *x, const void *d_y,
				       const float *gamma, const float *mean, const float *var, const uint8_t *mask,
				       void *d_x, float *d_gamma, float *d_beta, void *d_residual, void *workspace);
/* For the statistics and the backward op, and for moments and sums. */
size_t cuda_kernel_batch_norm_workspace(const cuda_batch_norm *g);

/* One of the two norms of DTRAIN_OP_BATCH_NORM_PAIR. */
typedef struct cuda_norm_side {
	const void *x;
	const float *gamma, *beta, *mean, *var; /* beta: forward alone */
	void *d_x;                              /* this and the next: backward alone */
	float *d_gamma, *d_beta;
} cuda_norm_side;
/* y = max(norm of both x, 0), from their statistics; mask: as above. */
cudaError_t cuda_kernel_batch_norm_pair_apply(cudaStream_t stream, const cuda_batch_norm *g,
					      const cuda_norm_side sides[2], void *y, uint8_t *mask);
cudaError_t cuda_kernel_batch_norm_pair_bwd(cudaStream_t stream, const cuda_batch_norm *g,
					    const cuda_norm_side sides[2], const void *d_y, const uint8_t *mask,
					    void *workspace);
/* For the backward op, and for the statistics. */
size_t cuda_kernel_batch_norm_pair_workspace(const cuda_batch_norm *g);

/* Batch norm with the statistics of several ranks' batches: DTRAIN_OP_BATCH_NORM_MOMENTS and the kinds after it. The
 * first half of BATCH_NORM_SYNC is join, which updates the running statistics unless the momentum is 0; the second half
 * is the function apply above. */
cudaError_t cuda_kernel_batch_norm_moments(cudaStream_t stream, const cuda_batch_norm *g, const void *x, float *moments,
					   int64_t ranks, int64_t rank, void *workspace);
cudaError_t cuda_kernel_batch_norm_join(cudaStream_t stream, const cuda_batch_norm *g, const float *moments,
					int64_t ranks, float *mean, float *var, float *running_mean,
					float *running_var);
cudaError_t cuda_kernel_batch_norm_sums(cudaStream_t stream, const cuda_batch_norm *g, const void *x, const void *d_y,
					const float *mean, const float *var, const uint8_t *mask, float *sums,
					float *d_gamma, float *d_beta, void *workspace);
cudaError_t cuda_kernel_batch_norm_sync_bwd(cudaStream_t stream, const cuda_batch_norm *g, const void *x,
					    const void *d_y, const float *gamma, const float *mean, const float *var,
					    const float *sums, const uint8_t *mask, void *d_x, void *d_residual);

/* ---- max pool in NHWC ---- */

typedef struct cuda_pool {
	dtrain_dtype dtype;
	int64_t n, height, width, channels; /* of x */
	int64_t out_height, out_width;
	int32_t kernel[2], stride[2], padding[2];
} cuda_pool;

/* index: u8, like y: the maximum's place in its window, row-major; the first of equal ones; NaN is larger than all
 * numbers. */
cudaError_t cuda_kernel_max_pool(cudaStream_t stream, const cuda_pool *g, const void *x, void *y, uint8_t *index);
cudaError_t cuda_kernel_max_pool_bwd(cudaStream_t stream, const cuda_pool *g, const void *d_y, const uint8_t *index,
				     void *d_x);

/* ---- loss and optimizer ---- */

typedef struct cuda_loss {
	const int64_t *label;
	const int64_t *mixed; /* NULL: the rows have one label each */
	const float *lambda;  /* label's part of the loss; with mixed alone */
	const float *scaler;  /* NULL: scale 1 */
	const float *bias;    /* of each class, added to its logits; NULL: none */
	float *loss;
	float *hits;    /* NULL: not wanted */
	int64_t *fault; /* may be mapped host memory */
	int64_t rows, classes;
	/* Elements from row to row of logits and d_logits; 0: classes. Padding after d_logits's classes becomes 0. */
	int64_t pitch;
	int64_t ignored; /* < 0: this label's rows have no loss; of rows with one label each */
	/* Number of rows that the gradient's mean is over. NULL: all_rows, or rows where that is 0, too. */
	const float *counted;
	int64_t all_rows, first_row; /* of what these rows are a part of; first_row: the number of row 0 there */
} cuda_loss;

/* DTRAIN_OP_SOFTMAX_XENT and DTRAIN_OP_SOFTMAX_XENT_MIXED. d_logits NULL: not wanted. For a label outside 0 ..
 * classes-1, one store writes 1 + its row to the lower half of *fault, and the label (or the nearest 32-bit number) to
 * the upper half; that row's loss, d_logits and hits are 0. */
cudaError_t cuda_kernel_softmax_xent(cudaStream_t stream, const cuda_loss *loss, const void *logits, dtrain_dtype from,
				     void *d_logits, dtrain_dtype to, double label_smoothing);
/* The kinds DTRAIN_OP_XENT_...: part and d_part are [ranks][3][rows]. */
typedef struct cuda_xent_part {
	const int64_t *label;
	const float *scaler; /* NULL: scale 1 */
	int64_t *fault;      /* as cuda_loss.fault */
	int64_t ranks, rank, rows;
	int64_t classes, first; /* of the logits; of cuda_kernel_xent_join all ranks' classes */
	int64_t ignored;        /* < 0: this label's rows have no loss */
	const float *counted;   /* number of rows that the gradient's mean is over; NULL: rows */
	double smoothing;
} cuda_xent_part;
cudaError_t cuda_kernel_xent_part(cudaStream_t stream, const cuda_xent_part *a, const void *logits, dtrain_dtype dtype,
				  float *part);
cudaError_t cuda_kernel_xent_part_bwd(cudaStream_t stream, const cuda_xent_part *a, const void *logits,
				      dtrain_dtype dtype, const float *part, const float *d_part, void *d_logits);
cudaError_t cuda_kernel_xent_join(cudaStream_t stream, const cuda_xent_part *a, const float *part, float *loss,
				  float *d_part);
/* DTRAIN_OP_ONE_HOT: mixed and lambda NULL, or both given. A label outside 0 .. classes-1 is reported as above, and its
 * row is 0. */
cudaError_t cuda_kernel_one_hot(cudaStream_t stream, const int64_t *label, const int64_t *mixed, const float *lambda,
				float *target, int64_t rows, int64_t classes, int64_t *fault);

typedef struct cuda_target_loss {
	dtrain_op_kind kind; /* SOFTMAX_XENT_SOFT, SIGMOID_XENT or SQUARED_ERROR */
	const float *target;
	const float *scaler; /* NULL: scale 1 */
	float *loss;
	float *hits; /* NULL: not wanted */
	int64_t rows, classes;
	double smoothing, threshold;
} cuda_target_loss;

/* x and d_x have that type. */
cudaError_t cuda_kernel_target_loss(cudaStream_t stream, const cuda_target_loss *loss, const void *x, void *d_x,
				    dtrain_dtype dtype);
/* *out = number of labels that are not `ignored`. */
cudaError_t cuda_kernel_count_labels(cudaStream_t stream, const int64_t *label, int64_t ignored, int64_t rows,
				     float *out);
/* *y = mean of x over the rows whose label is not `ignored`; 0 if there are none. */
cudaError_t cuda_kernel_labelled_mean(cudaStream_t stream, const float *x, const int64_t *label, int64_t ignored,
				      int64_t rows, float *y);
/* DTRAIN_OP_SGD in one launch. w, g, m: F32; scaler NULL: none. Multiplies gradients by the divisor's reciprocal. */
cudaError_t cuda_kernel_sgd(cudaStream_t stream, float *w, const float *g, float *m, const float *scalars,
			    const uint8_t *group, const float *scaler, int64_t count, double divisor, double momentum,
			    bool nesterov);
/* Operands of the other updates. All arrays are F32; arrays that the op lacks are NULL. */
typedef struct cuda_update {
	float *w, *m, *v, *most;
	const float *g, *scalars;
	const uint8_t *group;
	const float *scaler; /* or the step */
	int64_t count;
	const int64_t *pieces;
	int64_t num_pieces;
} cuda_update;

/* DTRAIN_OP_COUNT_STEP; after may be before. DTRAIN_OP_ADAM, DTRAIN_OP_LION: one launch. */
cudaError_t cuda_kernel_count_step(cudaStream_t stream, const float *before, const float *scaler, float *after,
				   const dtrain_adam_attrs *attrs);
cudaError_t cuda_kernel_adam(cudaStream_t stream, const cuda_update *update, const dtrain_adam_attrs *attrs);
cudaError_t cuda_kernel_lion(cudaStream_t stream, const cuda_update *update, const dtrain_lion_attrs *attrs);
/* DTRAIN_OP_LAMB, DTRAIN_OP_LARS, in three launches. workspace: on a multiple of 8 bytes. */
size_t cuda_kernel_trust_workspace(int64_t pieces);
cudaError_t cuda_kernel_lamb(cudaStream_t stream, const cuda_update *update, const dtrain_adam_attrs *attrs,
			     void *workspace);
cudaError_t cuda_kernel_lars(cudaStream_t stream, const cuda_update *update, const dtrain_lars_attrs *attrs,
			     void *workspace);
/* DTRAIN_OP_MUON without its products. moments makes the whole update of parameters that are not matrices, and for
 * matrices the momentum and, in `matrices` (see dtrain_matrices for its type), the update divided by its norm: three
 * launches. values applies the orthogonalized `matrices`: one launch. polynomial: squares = factor * (a + b gram + c
 * squares), each [count, edge, edge]. workspace: on a multiple of 8 bytes. */
typedef struct cuda_muon {
	cuda_update update;
	const dtrain_muon_attrs *attrs;
	dtrain_dtype dtype;
	void *matrices, *workspace;
} cuda_muon;

size_t cuda_kernel_muon_workspace(int64_t pieces);
cudaError_t cuda_kernel_muon_moments(cudaStream_t stream, const cuda_muon *muon);
cudaError_t cuda_kernel_muon_values(cudaStream_t stream, const cuda_muon *muon);
cudaError_t cuda_kernel_muon_polynomial(cudaStream_t stream, dtrain_dtype dtype, const void *gram, void *squares,
					int64_t count, int64_t edge, double factor);
/* DTRAIN_OP_LOOKAHEAD, in one launch. slow and w do not overlap. back: the op has its second output. */
cudaError_t cuda_kernel_lookahead(cudaStream_t stream, float *slow, float *w, const float *weight, int64_t count,
				  bool back);
/* more: see dtrain_inspect_attrs. */
cudaError_t cuda_kernel_scaler_inspect(cudaStream_t stream, const float *g, float *scaler, int64_t count, bool more);
cudaError_t cuda_kernel_scaler_update(cudaStream_t stream, float *scaler);
/* DTRAIN_OP_GRAD_NORM, in two launches, and DTRAIN_OP_CLIP. scaler NULL: none; after may be before. workspace: on a
 * multiple of 8 bytes. */
size_t cuda_kernel_grad_norm_workspace(int64_t count);
cudaError_t cuda_kernel_grad_norm(cudaStream_t stream, dtrain_norm norm, const float *g, const float *before,
				  const float *scaler, float *after, int64_t count, double divisor, void *workspace);
cudaError_t cuda_kernel_clip(cudaStream_t stream, dtrain_norm norm, const float *before, const float *scaler,
			     float *after, double max_norm);

/* ---- compression of gradients; the bits equal the other devices' ---- */

/* DTRAIN_OP_QUANTIZE: codes [blocks][DTRAIN_CODE_BYTES], on a multiple of 4 bytes. */
cudaError_t cuda_kernel_quantize(cudaStream_t stream, float *x, int64_t count, void *codes, int64_t blocks);
/* DTRAIN_OP_DEQUANTIZE: codes [parts][blocks][DTRAIN_CODE_BYTES], on a multiple of 4 bytes. */
cudaError_t cuda_kernel_dequantize(cudaStream_t stream, const void *codes, int64_t parts, int64_t blocks, float *y,
				   int64_t count);
/* DTRAIN_OP_TOP_K in nine launches: count and k below 2^31. pairs and workspace: on a multiple of 4 bytes. */
size_t cuda_kernel_top_k_workspace(int64_t count);
cudaError_t cuda_kernel_top_k(cudaStream_t stream, float *x, int64_t count, void *pairs, int64_t k, void *workspace);
/* DTRAIN_OP_SPREAD of pairs [parts][k], in a launch for each part. fault: as cuda_loss.fault, with the index and the
 * number of its pair. */
cudaError_t cuda_kernel_add_pairs(cudaStream_t stream, const void *pairs, int64_t parts, int64_t k, float *y,
				  int64_t count, int64_t *fault);
/* DTRAIN_OP_ORTHONORMALIZE; the bits depend on the shape alone. A column becomes NaN if 16 draws leave nothing of it,
 * as happens with more columns than rows. */
cudaError_t cuda_kernel_orthonormalize(cudaStream_t stream, float *x, int64_t rows, int64_t columns, int64_t *random);

/* ---- builders, as in cuda.h ---- */

int cuda_batch_norm_kernels(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_max_pool_kernels(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
