/* SPDX-License-Identifier: Apache-2.0
 *
 * Inner loops on rows of floats, for the processor's widest vectors. Each of them runs on one thread; sums have an
 * order that depends on the number of elements and the kind of processor alone.
 */
#ifndef DTRAIN_CPU_VECTOR_H
#define DTRAIN_CPU_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

/* Rows of scores are a multiple of this long, and are read and written to their end. */
enum { CPU_LANES_MAX = 16 };

/* A block of scores: rows of `columns` elements, `step` apart. The first block is that of queries as rows, the other
 * one of keys as rows. */
typedef struct cpu_scores {
	float *scores;
	int64_t step, rows, columns;
	const int64_t *bound;                        /* of a row; see the functions */
	const int32_t *row_segment, *column_segment; /* NULL: no segments. Readable as far as a row of scores */
	float scale;                                 /* of the scores, times log2(e) */
} cpu_scores;

typedef enum cpu_activation {
	CPU_IDENTITY,
	CPU_RELU,
	CPU_GELU,
	CPU_GELU_TANH,
	CPU_SILU,
} cpu_activation;

/* Each channel's numbers for the gradient of batch norm. */
typedef struct cpu_slopes {
	const float *mean, *scale, *tilt, *level;
} cpu_slopes;

/* Functions on rows of one type, F32, BF16 or F16: void pointers are to such rows. What is computed is F32, and rounded
 * once. */
typedef struct cpu_rows {
	void (*widen)(float *y, const void *x, int64_t count);
	/* y = x * factor; y += x. */
	void (*narrow)(void *y, const float *x, float factor, int64_t count);
	void (*scale)(void *y, const void *x, float factor, int64_t count);
	void (*add)(float *y, const void *x, int64_t count);
	/* Adds so many rows of x, which are `step` elements apart, to y, in their order. */
	void (*add_rows)(float *y, const void *x, int64_t rows, int64_t step, int64_t count);
	float (*dot)(const void *a, const void *b, int64_t count);

	/* One row: statistics are set. beta: NULL or not. */
	void (*layer_norm)(void *y, const void *x, const float *gamma, const float *beta, int64_t count, float epsilon,
			   float *mean, float *var);
	/* One row; of gamma and beta (NULL: not needed) the gradients are added to what is there. inverse: 1 /
	 * deviation. addend: is added to d_x, and may be d_x; NULL: none. */
	void (*layer_norm_back)(void *d_x, float *d_gamma, float *d_beta, const void *x, const void *d_y,
				const void *addend, const float *gamma, int64_t count, float mean, float inverse);
	void (*rms_norm)(void *y, const void *x, const float *gamma, int64_t count, float epsilon, float *rstd);
	void (*rms_norm_back)(void *d_x, float *d_gamma, const void *x, const void *d_y, const void *addend,
			      const float *gamma, int64_t count, float rstd);

	/* Rows of `width` channels, contiguous. mask: a byte for each element, not 0 where it counts; NULL: all count.
	 * moments adds, for each channel, the sums of x - shift and of its square; shift NULL: 0. norm_sums adds the
	 * sums of d_y and of d_y * (x - mean). */
	void (*moments)(float *sum, float *square, const void *x, const float *shift, int64_t rows, int64_t width);
	/* y = (x - mean) * scale + shift; with a mask, which is set, at least 0. */
	void (*normalize)(void *y, uint8_t *mask, const void *x, const float *mean, const float *scale,
			  const float *shift, int64_t rows, int64_t width);
	void (*norm_sums)(float *sum, float *product, const void *x, const void *d_y, const uint8_t *mask,
			  const float *mean, int64_t rows, int64_t width);
	/* d_x = (d_y - level - (x - mean) * tilt) * scale */
	void (*norm_back)(void *d_x, const void *x, const void *d_y, const uint8_t *mask, const cpu_slopes *slopes,
			  int64_t rows, int64_t width);

	/* Not CPU_IDENTITY. y may be x. */
	void (*activate)(void *y, const void *x, int64_t count, cpu_activation activation);
	/* The gradient d_x of x, in the memory of x, of d_y or of neither; not CPU_RELU. */
	void (*activate_back)(void *d_x, const void *x, const void *d_y, int64_t count, cpu_activation activation);
	void (*swiglu)(void *y, const void *a, const void *b, int64_t count);
	void (*swiglu_back)(void *d_a, void *d_b, const void *a, const void *b, const void *d_y, int64_t count);

	/* One row of ROTARY. cosine, sine: of each pair. */
	void (*rotate)(void *y, const void *x, int64_t count, int64_t head_dim, bool interleaved, const float *cosine,
		       const float *sine);

	/* Elements at, at + 1 ... of DROPOUT: y = x * factor where the random word is at least threshold, else 0. */
	void (*dropout)(void *y, const void *x, int64_t count, uint64_t at, const int64_t *random, int32_t layer,
			uint32_t threshold, float factor);
} cpu_rows;

typedef struct cpu_vector {
	/* Continues a softmax with a block whose row i has the columns below bound[i]: scores become 2^(scale * score -
	 * most), most and sum are updated, and earlier sums must be multiplied with keep. */
	void (*attend)(const cpu_scores *block, float *most, float *sum, float *keep);
	/* Row i has the columns from bound[i] on. Scores become probabilities p = 2^(scale * score - lse2), gradient
	 * becomes p * (gradient - own) * factor; lse2 and own have a number per column. */
	void (*attend_back)(const cpu_scores *block, float *gradient, const float *lse2, const float *own,
			    float factor);
	/* c [n] = a [k] times b [k, n], or with `transposed` b [n, k], whose rows are `step` elements apart; with
	 * `more` c += that. It is as fast as memory is, which libraries of products are not for one row. */
	void (*row_product)(float *c, const float *a, const float *b, int64_t step, int64_t n, int64_t k,
			    bool transposed, bool more);

	/* The largest of a row (-infinity for NaN), the sum of exp(x - largest), and the sum of x - largest. */
	void (*softmax_sums)(const float *x, int64_t count, float *most, float *sum, float *total);
	/* x = (exp(x - most) * inverse - shift) * factor */
	void (*softmax_gradient)(float *x, int64_t count, float most, float inverse, float shift, float factor);

	const cpu_rows *f32, *bf16;
	const cpu_rows *f16; /* widen and narrow alone */
} cpu_vector;

/* The functions for this processor. */
const cpu_vector *cpu_vector_find(void);

extern const cpu_vector cpu_vector_base;
#ifdef __x86_64__
extern const cpu_vector cpu_vector_avx2, cpu_vector_avx512;
#endif

#endif
