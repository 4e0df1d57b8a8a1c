/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a case of op_case.h on a device, whether or not the host can read its memory.
 */
#ifndef TESTS_TRAIN_CORE_OP_RUN_H
#define TESTS_TRAIN_CORE_OP_RUN_H

#include "op_case.h"

#define MAX_TENSORS 24
#define MAX_OPS 9

typedef enum tensor_kind {
	ACTIVATION, /* of the type that the op computes in */
	PARAMETER,  /* F32, and F64 with that */
	WEIGHT,     /* the same, but ops round it to the type that they compute in */
	SCALARS,    /* F32 */
	LABELS,     /* I64: whatever is whole numbers */
	SEGMENTS,   /* I32 */
	PIXELS,     /* U8; groups of SGD as well */
	PRIVATE,    /* U8: mask and index, which only the device can read */
} tensor_kind;

/* A tensor of a case: its values in double, and its memory on the device that runs the case now. */
typedef struct tensor {
	const char *name;
	tensor_kind kind;
	dtrain_shape shape;
	double *values;
	bool result;  /* compared between devices; the others are inputs, or what only the device can read */
	int gradient; /* of an input: index of its gradient; -1 */
	const void *layout;
	size_t bytes;
	char *block, *memory; /* on the device; memory is between two guards */
} tensor;

typedef struct setting {
	const op_case *c;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_device_caps caps;
	dtrain_dtype dtype; /* that ops compute in */
	/* The type that inputs are rounded to. Where dtype is F64 also weights, since then ops do not. */
	dtrain_dtype rounding;
	dtrain_stream *stream;
	tensor tensors[MAX_TENSORS];
	int count;
	int output, output_gradient; /* the tensor whose gradient it all comes from, and that */
	struct example *example;     /* of op_example.c; NULL */
	dtrain_op *ops[MAX_OPS];
	int num_ops;
	size_t guard; /* bytes on both sides of each memory */
} setting;

/* Which kinds of ops some case has run so far. */
extern bool kinds_run[DTRAIN_OP_KIND_COUNT];

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

/* Runs the case from the input values; result values are then this run's. try_case returns the status of the first op
 * that fails, and then no results. */
void run_case(setting *s);
int try_case(setting *s, beton_error *err);

/* For families: a tensor with its kind and shape; one that the case fills with numbers between least and most, whose
 * values are returned; running one op, lists of tensors ending with -1. */
int add_tensor(setting *s, const char *name, tensor_kind kind, dtrain_shape shape, bool result);
double *input(setting *s, const char *name, tensor_kind kind, dtrain_shape shape, double least, double most);
int run_op(setting *s, dtrain_op_kind kind, const dtrain_op_attrs *attrs, const int *inputs, const int *outputs,
	   beton_error *err);

/* The family NORM_SYNC (op_norm.c). */
int run_norm_sync(setting *s, beton_error *err);

/* The family EXAMPLE (op_example.c). */
int run_example(setting *s, beton_error *err);
void close_example(setting *s);

#endif
