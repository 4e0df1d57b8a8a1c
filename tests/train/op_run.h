/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a case of op_case.h on a device, whether or not the host can read its memory.
 */
#ifndef TESTS_TRAIN_OP_RUN_H
#define TESTS_TRAIN_OP_RUN_H

#include "op_case.h"

#define MAX_TENSORS 16
#define MAX_OPS 5

typedef enum tensor_kind {
	ACTIVATION, /* of the type that the op computes in */
	PARAMETER,  /* F32, and F64 with that */
	WEIGHT,     /* the same, but ops round it to the type that they compute in */
	SCALARS,    /* F32 */
	LABELS,     /* I64 */
	PIXELS,     /* U8; groups of SGD as well */
	PRIVATE,    /* U8: mask and index, which only the device can read */
} tensor_kind;

/* A tensor of a case: its values in double, and its memory on the device that runs the case now. */
typedef struct tensor {
	const char *name;
	tensor_kind kind;
	dtrain_shape shape;
	double *values;
	bool result;     /* compared between devices; the others are inputs, or what only the device can read */
	int gradient_of; /* index of the input whose gradient it is; -1 */
	const void *layout;
	size_t bytes;
	char *block, *memory; /* on the device; memory is between two guards */
} tensor;

/* Tensors of differentiable families: 2 is the gradient of tensor 3, from which it all comes. */
enum { OUTPUT_GRADIENT = 2, OUTPUT = 3 };

typedef struct setting {
	const op_case *c;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_device_caps caps;
	dtrain_dtype dtype; /* that ops compute in */
	/* Of what inputs are rounded to. Where dtype is F64 also weights, since then ops do not. */
	dtrain_dtype rounding;
	dtrain_stream *stream;
	tensor tensors[MAX_TENSORS];
	int count;
	dtrain_op *ops[MAX_OPS];
	int num_ops;
	size_t guard; /* bytes on both sides of each memory */
} setting;

/* Whether a case is of ops that compute in F16 and BF16. */
bool case_has_half(const op_case *c);

/* Whether the device must have the ops of the case in dtype. */
bool case_is_due(const op_case *c, const dtrain_device_caps *caps, dtrain_dtype dtype);

/* The device's name for messages: errors of opening it fail the test. */
void open_setting(setting *s, const op_case *c, const char *device, dtrain_dtype dtype, dtrain_dtype rounding,
		  bool tf32);
void close_setting(setting *s);

/* The value of dtype that is nearest. */
double rounded_to(dtrain_dtype dtype, double value);

/* Runs the case from the input values; result values are then those of this run. try_case gives the status of the first
 * op that does not go well, and then no results. */
void run_case(setting *s);
int try_case(setting *s, beton_error *err);

#endif
