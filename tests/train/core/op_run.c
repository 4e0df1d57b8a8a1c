/* SPDX-License-Identifier: Apache-2.0 */
#include "op_run.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/half.h"
#include "tests/train/support/threads.h"

#define GUARD_BYTE 0xa5

bool kinds_run[DTRAIN_OP_KIND_COUNT];

/* ---- tensors ---- */

static double uniform(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	/* A float, so that every device starts from the same number. */
	return (float)((double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1.0);
}

int add_tensor(setting *s, const char *name, tensor_kind kind, dtrain_shape shape, bool result)
{
	assert_true(s->count < MAX_TENSORS);
	s->tensors[s->count] = (tensor){.name = name, .kind = kind, .shape = shape, .result = result, .gradient = -1};
	tensor *t = &s->tensors[s->count];
	t->values = calloc((size_t)dtrain_shape_count(&shape), sizeof(double));
	assert_non_null(t->values);
	return s->count++;
}

double *input(setting *s, const char *name, tensor_kind kind, dtrain_shape shape, double least, double most)
{
	int index = add_tensor(s, name, kind, shape, false);
	uint64_t state = (uint64_t)(index + 1) * 1000003u + (uint64_t)dtrain_shape_count(&shape);
	for (int64_t i = 0; i < dtrain_shape_count(&shape); i++)
		s->tensors[index].values[i] = (float)(least + (uniform(&state) + 1) / 2 * (most - least));
	return s->tensors[index].values;
}

static void result(setting *s, const char *name, tensor_kind kind, dtrain_shape shape, int gradient_of)
{
	int index = add_tensor(s, name, kind, shape, true);
	if (gradient_of >= 0)
		s->tensors[gradient_of].gradient = index;
}

static dtrain_dtype type_of(const setting *s, const tensor *t)
{
	switch (t->kind) {
	case ACTIVATION:
		return s->dtype;
	case PARAMETER:
	case WEIGHT:
		return s->dtype == DTRAIN_F64 ? DTRAIN_F64 : DTRAIN_F32;
	case SCALARS:
		return DTRAIN_F32;
	case LABELS:
		return DTRAIN_I64;
	case SEGMENTS:
		return DTRAIN_I32;
	default:
		return DTRAIN_U8;
	}
}

double rounded_to(dtrain_dtype dtype, double value)
{
	if (dtype == DTRAIN_F16)
		return bt_widen_float16(bt_float16((float)value));
	return dtype == DTRAIN_BF16 ? bt_widen_bfloat16(bt_bfloat16((float)value)) : value;
}

static double read_element(dtrain_dtype dtype, const void *memory, int64_t i)
{
	switch (dtype) {
	case DTRAIN_F64:
		return ((const double *)memory)[i];
	case DTRAIN_F32:
		return (double)((const float *)memory)[i];
	case DTRAIN_F16:
		return (double)bt_widen_float16(((const uint16_t *)memory)[i]);
	case DTRAIN_BF16:
		return (double)bt_widen_bfloat16(((const uint16_t *)memory)[i]);
	case DTRAIN_I64:
		return (double)((const int64_t *)memory)[i];
	case DTRAIN_I32:
		return ((const int32_t *)memory)[i];
	default:
		return ((const uint8_t *)memory)[i];
	}
}

static void write_element(dtrain_dtype dtype, void *memory, int64_t i, double value)
{
	switch (dtype) {
	case DTRAIN_F64:
		((double *)memory)[i] = value;
		break;
	case DTRAIN_F32:
		((float *)memory)[i] = (float)value;
		break;
	case DTRAIN_F16:
		((uint16_t *)memory)[i] = bt_float16((float)value);
		break;
	case DTRAIN_BF16:
		((uint16_t *)memory)[i] = bt_bfloat16((float)value);
		break;
	case DTRAIN_I64:
		((int64_t *)memory)[i] = (int64_t)value;
		break;
	case DTRAIN_I32:
		((int32_t *)memory)[i] = (int32_t)value;
		break;
	default:
		((uint8_t *)memory)[i] = (uint8_t)value;
	}
}

/* ---- memory: what the device has, with guards around it, is moved as a whole ---- */

static void check(const setting *s, int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%s on %s: %s", s->c->name, s->api->name, err->message);
}

static char *host_block(const setting *s, const tensor *t)
{
	char *block = malloc(t->bytes + 2 * s->guard);
	assert_non_null(block);
	memset(block, GUARD_BYTE, t->bytes + 2 * s->guard);
	return block;
}

static void copy_block(const setting *s, const tensor *t, char *host, dtrain_copy kind)
{
	beton_error err = {0};
	bool down = kind == DTRAIN_DEVICE_TO_HOST;
	check(s,
	      s->api->copy(s->stream, down ? host : t->block, down ? t->block : host, t->bytes + 2 * s->guard, kind,
			   &err),
	      &err);
	check(s, s->api->stream_synchronize(s->stream, &err), &err);
}

/* Memory of the device, filled with what is wrong everywhere; or with the values. */
static void allocate(const setting *s, tensor *t, size_t bytes, bool with_values)
{
	beton_error err = {0};
	void *block;
	t->bytes = bytes;
	check(s, s->api->alloc(s->device, bytes + 2 * s->guard, &block, &err), &err);
	t->block = block;
	t->memory = t->block + s->guard;
	char *host = host_block(s, t);
	dtrain_dtype dtype = type_of(s, t);
	bool round = t->kind == ACTIVATION || (t->kind == WEIGHT && s->dtype == DTRAIN_F64);
	for (int64_t i = 0; with_values && i < dtrain_shape_count(&t->shape); i++)
		write_element(dtype, host + s->guard, i, round ? rounded_to(s->rounding, t->values[i]) : t->values[i]);
	copy_block(s, t, host, DTRAIN_HOST_TO_DEVICE);
	free(host);
}

/* Checks the guards; the values come back with `result`. */
static void look_at(const setting *s, tensor *t)
{
	char *host = host_block(s, t);
	copy_block(s, t, host, DTRAIN_DEVICE_TO_HOST);
	for (size_t i = 0; i < s->guard; i++)
		if ((unsigned char)host[i] != GUARD_BYTE || (unsigned char)host[s->guard + t->bytes + i] != GUARD_BYTE)
			fail_msg("%s on %s: '%s' was written outside of its memory", s->c->name, s->api->name, t->name);
	for (int64_t i = 0; t->result && i < dtrain_shape_count(&t->shape); i++)
		t->values[i] = read_element(type_of(s, t), host + s->guard, i);
	free(host);
}

/* ---- running one op ---- */

static void give_operands(setting *s, dtrain_op_desc *desc, const int *inputs, const int *outputs)
{
	for (; inputs[desc->num_inputs] >= 0; desc->num_inputs++) {
		tensor *t = &s->tensors[inputs[desc->num_inputs]];
		if (!t->block)
			allocate(s, t, (size_t)dtrain_shape_count(&t->shape) * dtrain_dtype_size(type_of(s, t)), true);
		desc->inputs[desc->num_inputs] = (dtrain_operand){type_of(s, t), t->shape, t->layout, t->bytes};
	}
	for (; outputs[desc->num_outputs] >= 0; desc->num_outputs++) {
		tensor *t = &s->tensors[outputs[desc->num_outputs]];
		desc->outputs[desc->num_outputs] = (dtrain_operand){.dtype = type_of(s, t), .shape = t->shape};
		desc->plain_output[desc->num_outputs] = t->result;
	}
}

/* A CAST of one tensor of any shape. */
static void make_segment(dtrain_op_desc *desc, dtrain_segment *segment)
{
	const dtrain_shape shape = desc->inputs[0].shape;
	int64_t count = dtrain_shape_count(&shape);
	*segment = (dtrain_segment){.shape = shape};
	desc->attrs.cast = (dtrain_cast_attrs){.segments = segment, .num_segments = 1};
	desc->inputs[0].shape = desc->outputs[0].shape = dtrain_shape_of(1, &count);
}

int run_op(setting *s, dtrain_op_kind kind, const dtrain_op_attrs *attrs, const int *inputs, const int *outputs,
	   beton_error *err)
{
	dtrain_op_desc desc = {.kind = kind, .attrs = *attrs};
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS];
	give_operands(s, &desc, inputs, outputs);
	dtrain_segment segment = {.layout = NULL};
	if (kind == DTRAIN_OP_CAST && !attrs->cast.segments)
		make_segment(&desc, &segment);
	dtrain_op *op = NULL;
	int status = s->api->op_create(s->device, &desc, &op, err);
	if (status != BETON_OK)
		return status;
	assert_true(s->num_ops < MAX_OPS);
	s->ops[s->num_ops++] = op;
	kinds_run[kind] = true;
	for (int i = 0; i < desc.num_outputs; i++) {
		tensor *t = &s->tensors[outputs[i]];
		t->layout = segment.layout ? segment.layout : desc.outputs[i].layout;
		assert_true(!t->result || !t->layout);
		if (!t->block)
			allocate(s, t, desc.outputs[i].bytes, false);
	}
	tensor workspace = {.name = "workspace", .kind = PRIVATE};
	allocate(s, &workspace, desc.workspace_bytes, false);
	for (int i = 0; i < desc.num_inputs; i++)
		operands[i] = s->tensors[inputs[i]].memory;
	for (int i = 0; i < desc.num_outputs; i++)
		operands[desc.num_inputs + i] = s->tensors[outputs[i]].memory;
	status = s->api->op_run(op, s->stream, operands, workspace.memory, err);
	if (status == BETON_OK)
		status = s->api->stream_synchronize(s->stream, err);
	if (status == BETON_OK)
		look_at(s, &workspace);
	s->api->free(s->device, workspace.block);
	return status;
}

#define LIST(...)               \
	(const int[])           \
	{                       \
		__VA_ARGS__, -1 \
	}

/* Runs an op, and returns from the family when that fails. */
#define RUN(kind, inputs, outputs)                                         \
	do {                                                               \
		int run_status = run_op(s, kind, a, inputs, outputs, err); \
		if (run_status != BETON_OK)                                \
			return run_status;                                 \
	} while (0)

/* ---- the families: tensors are declared once, then run on a device ---- */

static dtrain_shape shape4(const int64_t *x)
{
	return dtrain_shape_of(x[2] ? 4 : x[1] ? 2 : 1, x);
}

static dtrain_op_attrs attrs_of(const op_case *c)
{
	switch (c->family) {
	case LOSS:
		return (dtrain_op_attrs){.loss = {.label_smoothing = c->smoothing, .ignored = c->ignored}};
	case SGD:
		return (dtrain_op_attrs){.sgd = {.momentum = 0.9, .grad_divisor = 3, .nesterov = c->nesterov}};
	case UPDATE:
		if (c->kind == DTRAIN_OP_LION)
			return (dtrain_op_attrs){.lion = {.beta1 = 0.9, .beta2 = 0.99, .grad_divisor = 3}};
		if (c->kind == DTRAIN_OP_LARS)
			return (dtrain_op_attrs){.lars = {.momentum = 0.9,
							  .trust = 0.25,
							  .epsilon = 1e-8,
							  .grad_divisor = 3,
							  .nesterov = c->nesterov}};
		return (dtrain_op_attrs){.adam = {.beta1 = 0.9,
						  .beta2 = 0.999,
						  .epsilon = 1e-8,
						  .grad_divisor = 3,
						  .decoupled = c->decoupled,
						  .amsgrad = c->amsgrad}};
	case NORMALIZE:
		return (dtrain_op_attrs){
			.pixels = {.scale = {1 / 58.395f, 1 / 57.12f, 1 / 57.375f, 0.5f},
				   .shift = {-123.675f / 58.395f, -116.28f / 57.12f, -103.53f / 57.375f, 3}}};
	default:
		return (dtrain_op_attrs){.relu = false};
	}
}

static dtrain_op_kind backward_of(dtrain_op_kind activation)
{
	return activation == DTRAIN_OP_RELU   ? DTRAIN_OP_RELU_BWD
	       : activation == DTRAIN_OP_GELU ? DTRAIN_OP_GELU_BWD
					      : DTRAIN_OP_SILU_BWD;
}

static void add_activated(setting *s)
{
	dtrain_shape x = shape4(s->c->x), channels = dtrain_shape_of(1, &s->c->x[1]),
		     kernel = dtrain_shape_of(4, (int64_t[]){s->c->x[1], s->c->x[1], 1, 1});
	double most = 2 / sqrt((double)s->c->x[1]);
	s->output = 4;
	s->output_gradient = 3;
	input(s, "x", ACTIVATION, x, -1, 1);
	input(s, "w", WEIGHT, kernel, -most, most);
	input(s, "b", PARAMETER, channels, -1, 1);
	input(s, "d_y", ACTIVATION, x, -1, 1);
	result(s, "y", ACTIVATION, x, -1);
	result(s, "d_x", ACTIVATION, x, 0);
	result(s, "d_w", PARAMETER, kernel, 1);
	result(s, "d_b", PARAMETER, channels, 2);
	result(s, "plain d_biased", ACTIVATION, x, -1);
	add_tensor(s, "convolved", ACTIVATION, x, false);
	add_tensor(s, "biased", ACTIVATION, x, false);
	add_tensor(s, "activated", ACTIVATION, x, false);
	add_tensor(s, "d_biased", ACTIVATION, x, false);
}

static int run_activated(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	const dtrain_op_kind kind = s->c->kind, back = backward_of(kind);
	const dtrain_op_attrs window = {.window = {.stride = {1, 1}}}, activation = {.gelu = {.tanh = s->c->tanh}};
	const int read = kind == DTRAIN_OP_RELU ? 11 : 10; /* of the forward pass, by the backward one */
	if (!s->count)
		add_activated(s);
	a = &window;
	RUN(DTRAIN_OP_CONV2D, LIST(0, 1), LIST(9));
	RUN(DTRAIN_OP_CHANNEL_BIAS, LIST(9, 2), LIST(10));
	a = &activation;
	RUN(kind, LIST(10), LIST(4));
	RUN(kind, LIST(10), LIST(11));
	RUN(back, LIST(read, 3), LIST(8));
	RUN(back, LIST(read, 3), LIST(12));
	a = &window;
	RUN(DTRAIN_OP_CHANNEL_BIAS_BWD, LIST(12), LIST(7));
	RUN(DTRAIN_OP_CONV2D_BWD_DATA, LIST(12, 1), LIST(5));
	RUN(DTRAIN_OP_CONV2D_BWD_WEIGHT, LIST(0, 12), LIST(6));
	return BETON_OK;
}

static double *add_scaler(setting *s)
{
	int index = add_tensor(s, "scaler", SCALARS, dtrain_shape_of(1, (int64_t[]){DTRAIN_SCALERS}), false);
	s->tensors[index].values[DTRAIN_SCALER_SCALE] = s->c->scale;
	s->tensors[index].values[DTRAIN_SCALER_GOOD_STEPS] = s->c->good;
	return s->tensors[index].values;
}

/* A label that some rows have twice, and a share of the first one from 0 to 1. */
static void add_mixed_label(setting *s)
{
	const int64_t *x = s->c->x;
	dtrain_shape rows = dtrain_shape_of(1, x);
	int mixed = add_tensor(s, "mixed", LABELS, rows, false),
	    lambda = add_tensor(s, "lambda", PARAMETER, rows, false);
	for (int64_t i = 0; i < x[0]; i++) {
		s->tensors[mixed].values[i] = (double)((i * 5 + 3) % x[1]);
		s->tensors[lambda].values[i] = x[0] > 1 ? (double)((float)i / (float)(x[0] - 1)) : 0.375;
	}
}

static bool is_left_out(const setting *s, int64_t row)
{
	return s->c->ignored && row % 3 == 0;
}

/* Every third row is ignored, if the case ignores any. d_y is the 1 / n of the mean that the loss op's gradient is of,
 * times the scale. */
static int run_loss(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	const int64_t *x = s->c->x;
	dtrain_shape rows = dtrain_shape_of(1, x), logits = dtrain_shape_of(2, x);
	if (!s->count) {
		s->output = 3;
		s->output_gradient = 2;
		input(s, "logits", ACTIVATION, logits, -5, 5);
		int label = add_tensor(s, "label", LABELS, rows, false);
		for (int64_t i = 0; i < x[0]; i++)
			s->tensors[label].values[i] =
				is_left_out(s, i) ? (double)s->c->ignored : (double)((i * 7 + 3) % x[1]);
		double *d_y = input(s, "d_y", PARAMETER, rows, 0, 0);
		int64_t counted = s->c->ignored ? x[0] - (x[0] + 2) / 3 : x[0];
		for (int64_t i = 0; i < x[0]; i++)
			d_y[i] = is_left_out(s, i) ? 0 : (s->c->scaled ? s->c->scale : 1) / (double)counted;
		result(s, "loss", PARAMETER, rows, -1);
		result(s, "d_logits", ACTIVATION, logits, 0);
		result(s, "mean", PARAMETER, dtrain_shape_of(0, NULL), -1);
		add_scaler(s);
		add_mixed_label(s);
		result(s, "hits", PARAMETER, rows, -1);
	}
	if (s->c->mixed && s->c->scaled)
		RUN(DTRAIN_OP_SOFTMAX_XENT_MIXED, LIST(0, 1, 7, 8, 6), LIST(3, 4, 9));
	else if (s->c->mixed)
		RUN(DTRAIN_OP_SOFTMAX_XENT_MIXED, LIST(0, 1, 7, 8), LIST(3, 4));
	else if (s->c->scaled)
		RUN(DTRAIN_OP_SOFTMAX_XENT, LIST(0, 1, 6), LIST(3, 4, 9));
	else
		RUN(DTRAIN_OP_SOFTMAX_XENT, LIST(0, 1), LIST(3, 4));
	if (s->c->ignored)
		RUN(DTRAIN_OP_MEAN, LIST(3, 1), LIST(5));
	else
		RUN(DTRAIN_OP_MEAN, LIST(3), LIST(5));
	return BETON_OK;
}

/* The rates of the groups, and the group of each run. whole: no group has a weight decay of 0. */
static void add_groups(setting *s, int64_t run, bool whole)
{
	int64_t groups = s->c->out, runs = (s->c->x[0] + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
	dtrain_shape rates = dtrain_shape_of(2, (int64_t[]){groups, DTRAIN_UPDATE_SCALARS});
	double *scalars = s->tensors[add_tensor(s, "scalars", SCALARS, rates, false)].values;
	for (int64_t i = 0; i < groups; i++) {
		scalars[DTRAIN_UPDATE_SCALARS * i] = (double)(0.1f / (float)(i + 1));
		scalars[DTRAIN_UPDATE_SCALARS * i + 1] = (double)(5e-4f * (float)(i + whole));
	}
	double *group = s->tensors[add_tensor(s, "group", PIXELS, dtrain_shape_of(1, &runs), false)].values;
	for (int64_t i = 0; i < runs; i++)
		group[i] = (double)(i / run * 7 % groups);
}

static int run_sgd(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	if (!s->count) {
		dtrain_shape flat = dtrain_shape_of(1, s->c->x);
		double most = s->c->scaled ? s->c->scale : 1;
		input(s, "w", PARAMETER, flat, -1, 1);
		input(s, "g", PARAMETER, flat, -most, most);
		input(s, "m", PARAMETER, flat, -1, 1);
		s->tensors[0].result = s->tensors[2].result = true;
		add_groups(s, 3, false);
		add_scaler(s)[DTRAIN_SCALER_INFINITE] = s->c->spoil != NOTHING;
	}
	if (s->c->scaled)
		RUN(DTRAIN_OP_SGD, LIST(0, 1, 2, 3, 4, 5), LIST(0, 2));
	else
		RUN(DTRAIN_OP_SGD, LIST(0, 1, 2, 3, 4), LIST(0, 2));
	return BETON_OK;
}

/* Three parameters: of few elements, of some, and of all that is left. */
static void add_pieces(setting *s)
{
	const int64_t ends[] = {5, 55, s->c->x[0]}, begins[] = {0, 16, 64};
	double numbers[64][DTRAIN_PIECE_NUMBERS];
	const int64_t places[] = {-1, 0, DTRAIN_MATRIX_ALIGN};
	int64_t count = 0;
	for (int k = 0; k < 3; k++) {
		int64_t first = count,
			parts = (ends[k] - begins[k] + DTRAIN_PIECE_ELEMENTS - 1) / DTRAIN_PIECE_ELEMENTS;
		for (int64_t at = begins[k]; at < ends[k]; at += DTRAIN_PIECE_ELEMENTS, count++) {
			int64_t left = ends[k] - at;
			numbers[count][DTRAIN_PIECE_BEGIN] = (double)at;
			numbers[count][DTRAIN_PIECE_COUNT] =
				(double)(left < DTRAIN_PIECE_ELEMENTS ? left : DTRAIN_PIECE_ELEMENTS);
			numbers[count][DTRAIN_PIECE_FIRST] = (double)first;
			numbers[count][DTRAIN_PIECE_PARTS] = (double)parts;
			numbers[count][DTRAIN_PIECE_PLACE] = (double)(places[k] < 0 ? -1 : places[k] + at - begins[k]);
		}
	}
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){count, DTRAIN_PIECE_NUMBERS});
	int pieces = add_tensor(s, "pieces", LABELS, shape, false);
	memcpy(s->tensors[pieces].values, numbers, (size_t)count * sizeof(numbers[0]));
}

static int run_update(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	enum { W, G, M, V, MOST, SCALARS_, GROUP, SCALER_, STEP, PIECES };
	bool scaled = s->c->scaled;
	if (!s->count) {
		dtrain_shape flat = dtrain_shape_of(1, s->c->x);
		double most = scaled ? s->c->scale : 1;
		input(s, "w", PARAMETER, flat, -1, 1);
		input(s, "g", PARAMETER, flat, -most, most);
		input(s, "m", PARAMETER, flat, -1, 1);
		input(s, "v", PARAMETER, flat, 0.01, 1);
		input(s, "most", PARAMETER, flat, 0.01, 1);
		for (int i = 0; i <= MOST; i++)
			s->tensors[i].result = i != G;
		/* All of a parameter with pieces is in one group. */
		bool whole =
			s->c->kind == DTRAIN_OP_LAMB || s->c->kind == DTRAIN_OP_LARS || s->c->kind == DTRAIN_OP_MUON;
		add_groups(s, whole ? s->c->x[0] : 3, whole);
		add_scaler(s)[DTRAIN_SCALER_INFINITE] = s->c->spoil != NOTHING;
		int step = add_tensor(s, "step", SCALARS, dtrain_shape_of(1, (int64_t[]){DTRAIN_STEPS}), true);
		s->tensors[step].values[DTRAIN_STEP_COUNT] = 6;
		s->tensors[step].values[DTRAIN_STEP_CORRECTION1] = s->tensors[step].values[DTRAIN_STEP_CORRECTION2] = 1;
		add_pieces(s);
	}
	if (s->c->kind == DTRAIN_OP_ADAM || s->c->kind == DTRAIN_OP_LAMB || s->c->kind == DTRAIN_OP_MUON) {
		if (scaled)
			RUN(DTRAIN_OP_COUNT_STEP, LIST(STEP, SCALER_), LIST(STEP));
		else
			RUN(DTRAIN_OP_COUNT_STEP, LIST(STEP), LIST(STEP));
	}
	if (s->c->kind == DTRAIN_OP_MUON) {
		dtrain_matrices matrices[] = {{3, 13, 1, 0}, {(s->c->x[0] - 64) / 3, 3, 1, DTRAIN_MATRIX_ALIGN}};
		dtrain_op_attrs muon = {.muon = {.adamw = a->adam,
						 .adamw_lr_scale = 0.5,
						 .momentum = 0.9,
						 .steps = 3,
						 .match_rms_adamw = s->c->nesterov,
						 .num_matrices = 2,
						 .matrices = matrices}};
		a = &muon;
		RUN(DTRAIN_OP_MUON, LIST(W, G, M, V, SCALARS_, GROUP, STEP, PIECES), LIST(W, M, V));
	} else if (s->c->kind == DTRAIN_OP_LAMB)
		RUN(DTRAIN_OP_LAMB, LIST(W, G, M, V, SCALARS_, GROUP, STEP, PIECES), LIST(W, M, V));
	else if (s->c->kind == DTRAIN_OP_LARS && scaled)
		RUN(DTRAIN_OP_LARS, LIST(W, G, M, SCALARS_, GROUP, PIECES, SCALER_), LIST(W, M));
	else if (s->c->kind == DTRAIN_OP_LARS)
		RUN(DTRAIN_OP_LARS, LIST(W, G, M, SCALARS_, GROUP, PIECES), LIST(W, M));
	else if (s->c->kind == DTRAIN_OP_LION && scaled)
		RUN(DTRAIN_OP_LION, LIST(W, G, M, SCALARS_, GROUP, SCALER_), LIST(W, M));
	else if (s->c->kind == DTRAIN_OP_LION)
		RUN(DTRAIN_OP_LION, LIST(W, G, M, SCALARS_, GROUP), LIST(W, M));
	else if (s->c->amsgrad)
		RUN(DTRAIN_OP_ADAM, LIST(W, G, M, V, SCALARS_, GROUP, STEP, MOST), LIST(W, M, V, MOST));
	else
		RUN(DTRAIN_OP_ADAM, LIST(W, G, M, V, SCALARS_, GROUP, STEP), LIST(W, M, V));
	return BETON_OK;
}

static int run_lookahead(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	if (!s->count) {
		dtrain_shape flat = dtrain_shape_of(1, s->c->x), one = dtrain_shape_of(1, (int64_t[]){1});
		input(s, "slow", PARAMETER, flat, -1, 1);
		input(s, "w", PARAMETER, flat, -1, 1);
		s->tensors[0].result = s->tensors[1].result = true;
		s->tensors[add_tensor(s, "weight", SCALARS, one, false)].values[0] = (double)(float)s->c->scale;
	}
	RUN(DTRAIN_OP_LOOKAHEAD, LIST(0, 1, 2), LIST(0, 1));
	return BETON_OK;
}

static int run_scaler(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	if (!s->count) {
		double *g = input(s, "g", PARAMETER, dtrain_shape_of(1, s->c->x), -1, 1);
		g[s->c->x[0] / 2] = FLT_MAX; /* is finite */
		if (s->c->spoil != NOTHING)
			g[s->c->spoil == INFINITE ? s->c->x[0] - 1 : 0] = s->c->spoil == INFINITE ? -INFINITY : NAN;
		/* Noted by an earlier step, which no longer counts. */
		add_scaler(s)[DTRAIN_SCALER_INFINITE] = s->c->spoil == NOTHING;
		s->tensors[1].result = true;
	}
	RUN(DTRAIN_OP_SCALER_INSPECT, LIST(0, 1), LIST(1));
	RUN(DTRAIN_OP_SCALER_UPDATE, LIST(1), LIST(1));
	return BETON_OK;
}

static int run_normalize(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	const int64_t *y = s->c->x;
	if (!s->count) {
		int x = add_tensor(s, "x", PIXELS, dtrain_shape_of(4, (int64_t[]){y[0], y[2], y[3], y[1]}), false);
		for (int64_t i = 0; i < dtrain_shape_count(&s->tensors[x].shape); i++)
			s->tensors[x].values[i] = (double)(i * 89 % 256);
		result(s, "y", ACTIVATION, shape4(y), -1);
	}
	RUN(DTRAIN_OP_NORMALIZE, LIST(0), LIST(1));
	return BETON_OK;
}

static int run_norm(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	(void)a;
	return run_norm_sync(s, err);
}

static int run_codes(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	int64_t blocks = (s->c->x[0] + DTRAIN_CODE_BLOCK - 1) / DTRAIN_CODE_BLOCK + 1;
	dtrain_shape flat = dtrain_shape_of(1, s->c->x);
	if (!s->count) {
		input(s, "x", PARAMETER, flat, -1, 1);
		s->tensors[0].result = true;
		add_tensor(s, "codes", PIXELS, dtrain_shape_of(3, (int64_t[]){2, blocks, DTRAIN_CODE_BYTES}), true);
		result(s, "y", PARAMETER, flat, -1);
	}
	RUN(DTRAIN_OP_QUANTIZE, LIST(0), LIST(1, 0));
	RUN(DTRAIN_OP_DEQUANTIZE, LIST(1), LIST(2));
	return BETON_OK;
}

static int run_pairs(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	dtrain_shape flat = dtrain_shape_of(1, s->c->x);
	if (!s->count) {
		input(s, "x", PARAMETER, flat, -1, 1);
		s->tensors[0].result = true;
		add_tensor(s, "pairs", PIXELS, dtrain_shape_of(3, (int64_t[]){1, s->c->out, DTRAIN_PAIR_BYTES}), true);
		result(s, "y", PARAMETER, flat, -1);
	}
	RUN(DTRAIN_OP_TOP_K, LIST(0), LIST(1, 0));
	RUN(DTRAIN_OP_SPREAD, LIST(1), LIST(2));
	return BETON_OK;
}

static int run_columns(setting *s, const dtrain_op_attrs *a, beton_error *err)
{
	if (!s->count) {
		double *x = input(s, "x", PARAMETER, dtrain_shape_of(2, s->c->x), -1, 1);
		int random = add_tensor(s, "random", LABELS, dtrain_shape_of(1, (int64_t[]){DTRAIN_RANDOMS}), true);
		s->tensors[random].values[DTRAIN_RANDOM_STEP] = 5;
		s->tensors[0].result = true;
		/* The last column is drawn. */
		for (int64_t i = 0; i < s->c->x[0]; i++)
			x[(i + 1) * s->c->x[1] - 1] = 0;
	}
	RUN(DTRAIN_OP_ORTHONORMALIZE, LIST(0, 1), LIST(0, 1));
	return BETON_OK;
}

static int (*const families[])(setting *s, const dtrain_op_attrs *a, beton_error *err) = {
	[LOSS] = run_loss,           [SGD] = run_sgd,        [UPDATE] = run_update,       [LOOKAHEAD] = run_lookahead,
	[NORMALIZE] = run_normalize, [SCALER] = run_scaler,  [CODES] = run_codes,         [PAIRS] = run_pairs,
	[COLUMNS] = run_columns,     [NORM_SYNC] = run_norm, [ACTIVATED] = run_activated,
};

/* ---- settings ---- */

bool case_has_half(const op_case *c)
{
	return c->family != SGD && c->family != UPDATE && c->family != SCALER && c->family != CODES &&
	       c->family != PAIRS && c->family != COLUMNS;
}

/* Loss scaling is for F16. */
bool case_is_due(const op_case *c, const dtrain_device_caps *caps, dtrain_dtype dtype)
{
	if (!(caps->dtypes & 1u << dtype) || (dtype != DTRAIN_F32 && dtype != DTRAIN_F64 && !case_has_half(c)))
		return false;
	bool norm = c->kind == DTRAIN_OP_BATCH_NORM_TRAIN || c->kind == DTRAIN_OP_BATCH_NORM_EVAL;
	if (c->example && norm && c->example->optional_inputs && !caps->batch_norm_add)
		return false;
	if (c->residual && !caps->batch_norm_add)
		return false;
	if (c->example && c->kind == DTRAIN_OP_CONV2D_BWD_DATA && !caps->conv_bwd_add)
		return false;
	if (c->example && c->kind == DTRAIN_OP_LINEAR_BWD_DATA && !caps->gelu_bwd_fused)
		return false;
	if ((c->copies || (c->example && c->kind == DTRAIN_OP_CAST)) && !caps->weight_copies)
		return false;
	bool has_f16 = caps->dtypes & 1u << DTRAIN_F16;
	return (!c->scaled && c->family != SCALER) || has_f16;
}

void open_setting(setting *s, const op_case *c, const char *device, dtrain_dtype dtype, dtrain_dtype rounding,
		  bool tf32)
{
	beton_error err = {0};
	*s = (setting){.c = c, .dtype = dtype, .rounding = rounding};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = TEST_THREADS, .tf32 = tf32};
	if (dtrain_device_open(device, &options, &s->device, &err) != BETON_OK)
		fail_msg("%s", err.message);
	s->api = dtrain_device_get_api(s->device);
	s->api->caps(s->device, &s->caps);
	s->guard = s->caps.alignment > 64 ? s->caps.alignment : 64;
	check(s, s->api->stream_create(s->device, &s->stream, &err), &err);
}

static void free_blocks(setting *s)
{
	for (int i = 0; i < s->num_ops; i++)
		s->api->op_destroy(s->ops[i]);
	s->num_ops = 0;
	for (int i = 0; i < s->count; i++) {
		s->api->free(s->device, s->tensors[i].block);
		s->tensors[i].block = NULL;
		s->tensors[i].layout = NULL;
	}
}

int try_case(setting *s, beton_error *err)
{
	dtrain_op_attrs attrs = attrs_of(s->c);
	int status = s->c->family == EXAMPLE ? run_example(s, err) : families[s->c->family](s, &attrs, err);
	for (int i = 0; i < s->count && status == BETON_OK; i++)
		if (s->tensors[i].block)
			look_at(s, &s->tensors[i]);
	free_blocks(s);
	return status;
}

void run_case(setting *s)
{
	beton_error err = {0};
	check(s, try_case(s, &err), &err);
}

void close_setting(setting *s)
{
	close_example(s);
	for (int i = 0; i < s->count; i++)
		free(s->tensors[i].values);
	s->api->stream_destroy(s->stream);
	dtrain_device_close(&s->device);
}
