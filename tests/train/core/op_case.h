/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases of ops for all devices: the examples of their rules (train/core/ops), forward and backward, and the cases of
 * this list, for ops whose gradient is not a backward op's.
 */
#ifndef TESTS_TRAIN_CORE_OP_CASE_H
#define TESTS_TRAIN_CORE_OP_CASE_H

#include "core/op.h"

typedef enum family {
	EXAMPLE, /* of an op's rules, with its backward ops */
	LOSS,
	SGD,
	UPDATE, /* the other optimizers' */
	LOOKAHEAD,
	NORMALIZE,
	SCALER,
	NORM_SYNC, /* see op_norm.c */
	CODES,     /* QUANTIZE, and DEQUANTIZE of what it made; so the next */
	PAIRS,
	COLUMNS,
	ACTIVATED, /* a convolution, its bias and an activation, in the layouts that the device has between two ops */
} family;

/* Spoilt gradients that a scaler finds. */
typedef enum spoil {
	NOTHING,
	INFINITE,
	NOT_A_NUMBER,
} spoil;

typedef struct op_case {
	family family;
	int64_t x[4]; /* n, c, h, w; of matrices n, c; of vectors n */
	int64_t out;  /* groups of SGD and UPDATE */
	double smoothing;
	bool mixed; /* LOSS of two labels for each row */
	bool nesterov, decoupled, amsgrad;
	int64_t ignored;                /* the label of rows that LOSS leaves out; 0: none */
	double bound;                   /* normalised error allowed in f32 */
	bool scaled;                    /* LOSS, SGD and UPDATE with a scaler */
	double scale;                   /* of the scaler; the weight of LOOKAHEAD */
	double good;                    /* its count of good steps */
	spoil spoil;                    /* of SCALER; SGD and UPDATE take anything but NOTHING as a step to leave out */
	bool tanh;                      /* of the GELU of ACTIVATED */
	dtrain_op_kind kind;            /* of EXAMPLE, UPDATE, ACTIVATED, and of cases that a device may lack */
	const dtrain__op_case *example; /* the same */
	bool relu, residual;            /* of NORM_SYNC, as the next */
	bool shared;                    /* other ranks have their part in the statistics */
	bool copies;                    /* the example reads its weights from a CAST, each the only segment */
	char name[48];                  /* for messages; the list of all cases has it */
} op_case;

/* Results in F16 and BF16 are rounded once, by 2^-11 and 2^-8 at most; some room is for a device that rounds a sum of
 * two before. Results of half operands that stay F32 are sums in F32, whose last bits hardware may leave out. Results
 * exact in F32 (bound 0) are exact. TF32 keeps as many bits of a product's operands as F16 has, and may cut the others
 * off: the lost bits do not cancel out. A device with memory of its own may round the gradient of a convolution's
 * weights to the type of the activations, as PyTorch does.
 *
 * Such a device may also round the logits of LINEAR_XENT, as PyTorch's autocast does, each by u = 2^-11 or 2^-8 of it
 * at most. If L is the largest size of a logit, then a probability p changes by 2 u L p at most, and that of the label
 * by 2 u L p (1 - p), so that without smoothing each gradient of a logit, and also the loss, which is at least 1 - p of
 * the label, changes by 2 u L of itself at most. L is about 10 here. But the roundings are independent, and most of a
 * gradient's length is the label's element, whose part of the error has the factor p. ref with rounded logits, rounded
 * gradients of them and rounded results has normalised errors of at most 1.2 u in these examples; twice the bound of
 * one rounding is allowed. */
#define F16_BOUND 6e-4
#define BF16_BOUND 5e-3
#define HALF_SUM_BOUND 2e-5
#define TF32_BOUND 2.5e-3

/* The examples of all ops, then the cases of op_cases.c. */
const op_case *all_cases(int *count);

#endif
