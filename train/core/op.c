/* SPDX-License-Identifier: Apache-2.0 */
#include "op.h"

#include "common/error.h"
#include "shape.h"

/* One letter for each operand, inputs > outputs. A shape is checked by naming it: equal letters are equal shapes.
 *   X, Y: any tensor      W, P, B: what the checks below say      C: [channels of x]      N: [n]      S: []
 *   L: [n, c]             F: flat     R: f32 [groups, 2]          m: u8 of x's shape      i: u8 of y's shape
 *   l: i64 [n]            u: u8 [n, h, w, c]                      A: f32 [4], a scaler
 *   G: u8 [n / 16]        H: f32 [1] */
static const struct {
	const char *name;
	const char *inputs;
	const char *outputs;
	const char *optional_input, *optional_output;
} kinds[DTRAIN_OP_KIND_COUNT] = {
	[DTRAIN_OP_CONV2D] = {"conv2d", "XW", "Y"},
	[DTRAIN_OP_CONV2D_BWD_DATA] = {"conv2d_bwd_data", "YW", "X", "X", NULL},
	[DTRAIN_OP_CONV2D_BWD_WEIGHT] = {"conv2d_bwd_weight", "XY", "W"},
	[DTRAIN_OP_LINEAR] = {"linear", "XW", "Y", "B", NULL},
	[DTRAIN_OP_LINEAR_BWD_DATA] = {"linear_bwd_data", "YW", "X"},
	[DTRAIN_OP_LINEAR_BWD_WEIGHT] = {"linear_bwd_weight", "XY", "W", NULL, "B"},
	[DTRAIN_OP_BATCH_NORM_TRAIN] = {"batch_norm_train", "XCCCC", "XCC", "X", "m"},
	[DTRAIN_OP_BATCH_NORM_EVAL] = {"batch_norm_eval", "XCCCC", "X", "X", NULL},
	[DTRAIN_OP_BATCH_NORM_BWD] = {"batch_norm_bwd", "XXCCC", "XCC", "m", "X"},
	[DTRAIN_OP_RELU] = {"relu", "X", "X"},
	[DTRAIN_OP_RELU_BWD] = {"relu_bwd", "XX", "X"},
	[DTRAIN_OP_GELU] = {"gelu", "X", "X"},
	[DTRAIN_OP_GELU_BWD] = {"gelu_bwd", "XX", "X"},
	[DTRAIN_OP_CHANNEL_BIAS] = {"channel_bias", "XC", "X"},
	[DTRAIN_OP_CHANNEL_BIAS_BWD] = {"channel_bias_bwd", "X", "C"},
	[DTRAIN_OP_ADD] = {"add", "XX", "X"},
	[DTRAIN_OP_SCALE] = {"scale", "X", "X"},
	[DTRAIN_OP_MAX_POOL] = {"max_pool", "X", "Yi"},
	[DTRAIN_OP_MAX_POOL_BWD] = {"max_pool_bwd", "Yi", "X"},
	[DTRAIN_OP_GLOBAL_AVG_POOL] = {"global_avg_pool", "X", "Y"},
	[DTRAIN_OP_GLOBAL_AVG_POOL_BWD] = {"global_avg_pool_bwd", "Y", "X"},
	[DTRAIN_OP_FLATTEN] = {"flatten", "X", "Y"},
	[DTRAIN_OP_FLATTEN_BWD] = {"flatten_bwd", "Y", "X"},
	[DTRAIN_OP_SOFTMAX_XENT] = {"softmax_xent", "Ll", "NL", "A", NULL},
	[DTRAIN_OP_MEAN] = {"mean", "N", "S"},
	[DTRAIN_OP_SGD] = {"sgd", "FFFRG", "FF", "A", NULL},
	[DTRAIN_OP_NORMALIZE] = {"normalize", "u", "X"},
	[DTRAIN_OP_SCALER_INSPECT] = {"scaler_inspect", "FA", "A"},
	[DTRAIN_OP_SCALER_UPDATE] = {"scaler_update", "A", "A"},
	[DTRAIN_OP_LOOKAHEAD] = {"lookahead", "FFH", "FF"},
};

const char *dtrain__op_name(dtrain_op_kind kind)
{
	return (unsigned)kind < DTRAIN_OP_KIND_COUNT ? kinds[kind].name : "unknown";
}

int64_t dtrain__window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding)
{
	if (size < 1 || kernel < 1 || stride < 1 || padding < 0 || size + 2 * padding < kernel)
		return 0;
	return (size + 2 * padding - kernel) / stride + 1;
}

/* The operands by letter; of equal letters the first. */
typedef struct op_roles {
	const dtrain_operand *of[128];
} op_roles;

static int bad(const dtrain_op_desc *desc, const char *what, const dtrain_operand *operand, beton_error *err)
{
	char text[DTRAIN__SHAPE_TEXT] = "";
	if (operand)
		dtrain__shape_text(&operand->shape, text);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: %s %s", dtrain__op_name(desc->kind), what, text);
}

dtrain_dtype dtrain__op_compute_type(const dtrain_op_desc *desc)
{
	return desc->kind == DTRAIN_OP_NORMALIZE ? desc->outputs[0].dtype : desc->inputs[0].dtype;
}

static dtrain_dtype dtype_of_letter(char letter, dtrain_dtype real)
{
	switch (letter) {
	case 'X':
	case 'Y':
	case 'L':
		return real;
	case 'l':
		return DTRAIN_I64;
	case 'm':
	case 'i':
	case 'u':
	case 'G':
		return DTRAIN_U8;
	case 'R':
	case 'H':
	case 'A':
		return DTRAIN_F32;
	default:
		return real == DTRAIN_F16 || real == DTRAIN_BF16 ? DTRAIN_F32 : real;
	}
}

static bool is_real(dtrain_dtype dtype)
{
	return dtype == DTRAIN_F32 || dtype == DTRAIN_F64 || dtype == DTRAIN_F16 || dtype == DTRAIN_BF16;
}

static int check_operands(const dtrain_op_desc *desc, const char *letters, const char *optional, int count,
			  const dtrain_operand *operands, op_roles *roles, beton_error *err)
{
	dtrain_dtype real = dtrain__op_compute_type(desc);
	if (!is_real(real))
		return bad(desc, "computes with real numbers alone", NULL, err);
	for (int i = 0; i < count; i++) {
		char letter = *letters ? *letters++ : optional && *optional ? *optional++ : 0;
		const dtrain_operand *operand = &operands[i];
		if (!letter)
			return bad(desc, "too many operands", NULL, err);
		if (!dtrain__shape_valid(&operand->shape))
			return bad(desc, "bad shape", operand, err);
		if (operand->dtype != dtype_of_letter(letter, real))
			return bad(desc, "wrong type of the operand", operand, err);
		const dtrain_operand *first = roles->of[(int)letter];
		if (first && !dtrain__shape_equal(&first->shape, &operand->shape))
			return bad(desc, "shape does not match", operand, err);
		if (!first)
			roles->of[(int)letter] = operand;
	}
	return *letters ? bad(desc, "an operand is missing", NULL, err) : BETON_OK;
}

static bool is_vector(const dtrain_operand *operand, int64_t count)
{
	return operand->shape.ndim == 1 && operand->shape.dim[0] == count;
}

static int check_window(const dtrain_op_desc *desc, const dtrain_shape *x, const dtrain_shape *y, const int64_t *kernel,
			beton_error *err)
{
	for (int i = 0; i < 2; i++) {
		int64_t size =
			dtrain__window_count(x->dim[2 + i], kernel[i], desc->attrs.stride[i], desc->attrs.padding[i]);
		if (size < 1 || size != y->dim[2 + i])
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "op %s: %lld elements with kernel %lld, stride %d, padding %d do not give %lld",
				       dtrain__op_name(desc->kind), (long long)x->dim[2 + i], (long long)kernel[i],
				       desc->attrs.stride[i], desc->attrs.padding[i], (long long)y->dim[2 + i]);
	}
	return BETON_OK;
}

static int check_conv(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *w = &roles->of['W']->shape, *y = &roles->of['Y']->shape;
	if (x->ndim != 4 || w->ndim != 4 || y->ndim != 4)
		return bad(desc, "needs 4 dimensions", NULL, err);
	if (x->dim[0] != y->dim[0] || x->dim[1] != w->dim[1] || y->dim[1] != w->dim[0])
		return bad(desc, "batch or channels do not match; weights", roles->of['W'], err);
	return check_window(desc, x, y, &w->dim[2], err);
}

static int check_linear(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *w = &roles->of['W']->shape, *y = &roles->of['Y']->shape;
	if (x->ndim != 2 || w->ndim != 2 || y->ndim != 2)
		return bad(desc, "needs 2 dimensions", NULL, err);
	if (x->dim[0] != y->dim[0] || x->dim[1] != w->dim[1] || y->dim[1] != w->dim[0])
		return bad(desc, "batch or features do not match; weights", roles->of['W'], err);
	if (roles->of['B'] && !is_vector(roles->of['B'], w->dim[0]))
		return bad(desc, "bad bias", roles->of['B'], err);
	if (desc->attrs.relu && desc->kind != DTRAIN_OP_LINEAR)
		return bad(desc, "takes no relu", NULL, err);
	return BETON_OK;
}

static int check_channel_bias(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape;
	if (x->ndim != 4)
		return bad(desc, "needs [n, c, h, w], not", roles->of['X'], err);
	if (!is_vector(roles->of['C'], x->dim[1]))
		return bad(desc, "needs a value for each channel, not", roles->of['C'], err);
	return BETON_OK;
}

static int check_batch_norm(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape;
	if (x->ndim != 2 && x->ndim != 4)
		return bad(desc, "needs [n, c] or [n, c, h, w], not", roles->of['X'], err);
	if (!is_vector(roles->of['C'], x->dim[1]))
		return bad(desc, "needs a value for each channel, not", roles->of['C'], err);
	if (roles->of['m'] && !dtrain__shape_equal(&roles->of['m']->shape, x))
		return bad(desc, "bad mask", roles->of['m'], err);
	if (desc->kind != DTRAIN_OP_BATCH_NORM_EVAL && dtrain_shape_count(x) == x->dim[1])
		return bad(desc, "statistics of one value a channel; x is", roles->of['X'], err);
	bool needs_mask = desc->attrs.relu && desc->kind != DTRAIN_OP_BATCH_NORM_EVAL;
	if (needs_mask != (roles->of['m'] != NULL))
		return bad(desc, "takes a mask with relu, and only then", NULL, err);
	bool residual = desc->kind == DTRAIN_OP_BATCH_NORM_BWD ? desc->num_outputs > 3 : desc->num_inputs > 5;
	if (residual && !desc->attrs.relu)
		return bad(desc, "takes a residual with relu, and only then", NULL, err);
	return BETON_OK;
}

static int check_normalize(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['u']->shape, *y = &roles->of['X']->shape;
	if (x->ndim != 4 || y->ndim != 4 || x->dim[3] > 4)
		return bad(desc, "needs [n, h, w, c] with at most 4 channels, not", roles->of['u'], err);
	dtrain_shape moved = dtrain_shape_of(4, (int64_t[]){x->dim[0], x->dim[3], x->dim[1], x->dim[2]});
	return dtrain__shape_equal(&moved, y) ? BETON_OK : bad(desc, "the sides do not match", roles->of['X'], err);
}

static int check_scaler(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	if (roles->of['A'] && !is_vector(roles->of['A'], DTRAIN_SCALERS))
		return bad(desc, "needs a scaler of four elements, not", roles->of['A'], err);
	return BETON_OK;
}

static int check_max_pool(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *y = &roles->of['Y']->shape;
	const int32_t *kernel = desc->attrs.kernel;
	if (x->ndim != 4 || y->ndim != 4 || x->dim[0] != y->dim[0] || x->dim[1] != y->dim[1])
		return bad(desc, "batch or channels do not match", roles->of['Y'], err);
	if (!dtrain__shape_equal(&roles->of['i']->shape, y))
		return bad(desc, "bad index", roles->of['i'], err);
	if (desc->attrs.padding[0] > kernel[0] / 2 || desc->attrs.padding[1] > kernel[1] / 2)
		return bad(desc, "padding above half of the kernel", NULL, err);
	if (kernel[0] < 1 || kernel[1] < 1 || (int64_t)kernel[0] * kernel[1] > 256)
		return bad(desc, "a window of more than 256 elements", NULL, err);
	return check_window(desc, x, y, (int64_t[]){kernel[0], kernel[1]}, err);
}

static int check_rows(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *y = &roles->of['Y']->shape;
	bool flatten = desc->kind == DTRAIN_OP_FLATTEN || desc->kind == DTRAIN_OP_FLATTEN_BWD;
	bool same = flatten ? dtrain_shape_count(x) == dtrain_shape_count(y) : x->ndim == 4 && x->dim[1] == y->dim[1];
	if (x->ndim < 2 || y->ndim != 2 || x->dim[0] != y->dim[0] || !same)
		return bad(desc, "the sides do not match", roles->of['Y'], err);
	return BETON_OK;
}

static int check_loss(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	const dtrain_shape *logits = &roles->of['L']->shape;
	if (logits->ndim != 2)
		return bad(desc, "needs logits [n, c], not", roles->of['L'], err);
	if (!is_vector(roles->of['l'], logits->dim[0]) || !is_vector(roles->of['N'], logits->dim[0]))
		return bad(desc, "needs a label and a loss for each row, not", roles->of['l'], err);
	if (!(desc->attrs.label_smoothing >= 0 && desc->attrs.label_smoothing <= 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: label smoothing %g is not in [0, 1]",
			       dtrain__op_name(desc->kind), desc->attrs.label_smoothing);
	return BETON_OK;
}

static int check_sgd(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	const dtrain_shape *scalars = &roles->of['R']->shape;
	int64_t runs = (dtrain_shape_count(&roles->of['F']->shape) + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
	if (scalars->ndim != 2 || scalars->dim[0] > DTRAIN_SGD_GROUPS || scalars->dim[1] != DTRAIN_SGD_SCALARS)
		return bad(desc, "needs two scalars for each of 256 groups at most, not", roles->of['R'], err);
	if (!is_vector(roles->of['G'], runs))
		return bad(desc, "needs a group for each 16 elements, not", roles->of['G'], err);
	return desc->attrs.grad_divisor > 0 ? BETON_OK
					    : bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: gradients divided by %g",
						      dtrain__op_name(desc->kind), desc->attrs.grad_divisor);
}

static int check_shapes(const dtrain_op_desc *desc, const op_roles *roles, beton_error *err)
{
	switch (desc->kind) {
	case DTRAIN_OP_CONV2D:
	case DTRAIN_OP_CONV2D_BWD_DATA:
	case DTRAIN_OP_CONV2D_BWD_WEIGHT:
		return check_conv(desc, roles, err);
	case DTRAIN_OP_LINEAR:
	case DTRAIN_OP_LINEAR_BWD_DATA:
	case DTRAIN_OP_LINEAR_BWD_WEIGHT:
		return check_linear(desc, roles, err);
	case DTRAIN_OP_CHANNEL_BIAS:
	case DTRAIN_OP_CHANNEL_BIAS_BWD:
		return check_channel_bias(desc, roles, err);
	case DTRAIN_OP_BATCH_NORM_TRAIN:
	case DTRAIN_OP_BATCH_NORM_EVAL:
	case DTRAIN_OP_BATCH_NORM_BWD:
		return check_batch_norm(desc, roles, err);
	case DTRAIN_OP_MAX_POOL:
	case DTRAIN_OP_MAX_POOL_BWD:
		return check_max_pool(desc, roles, err);
	case DTRAIN_OP_GLOBAL_AVG_POOL:
	case DTRAIN_OP_GLOBAL_AVG_POOL_BWD:
	case DTRAIN_OP_FLATTEN:
	case DTRAIN_OP_FLATTEN_BWD:
		return check_rows(desc, roles, err);
	case DTRAIN_OP_SOFTMAX_XENT:
		return check_loss(desc, roles, err);
	case DTRAIN_OP_MEAN:
		if (roles->of['N']->shape.ndim != 1 || roles->of['S']->shape.ndim != 0)
			return bad(desc, "goes from [n] to a scalar, not from", roles->of['N'], err);
		return BETON_OK;
	case DTRAIN_OP_NORMALIZE:
		return check_normalize(desc, roles, err);
	case DTRAIN_OP_SGD:
		return check_sgd(desc, roles, err);
	case DTRAIN_OP_LOOKAHEAD:
		return is_vector(roles->of['H'], 1) ? BETON_OK
						    : bad(desc, "needs one weight, not", roles->of['H'], err);
	default:
		return BETON_OK;
	}
}

int dtrain__op_check(const dtrain_op_desc *desc, beton_error *err)
{
	if ((unsigned)desc->kind >= DTRAIN_OP_KIND_COUNT)
		return bt_fail(err, BETON_UNSUPPORTED, "op kind %d is unknown", (int)desc->kind);
	if (desc->num_inputs < 1 || desc->num_inputs > DTRAIN_OP_MAX_OPERANDS || desc->num_outputs < 1 ||
	    desc->num_outputs > DTRAIN_OP_MAX_OPERANDS)
		return bad(desc, "bad number of operands", NULL, err);
	op_roles roles = {0};
	int status = check_operands(desc, kinds[desc->kind].inputs, kinds[desc->kind].optional_input, desc->num_inputs,
				    desc->inputs, &roles, err);
	if (status == BETON_OK)
		status = check_operands(desc, kinds[desc->kind].outputs, kinds[desc->kind].optional_output,
					desc->num_outputs, desc->outputs, &roles, err);
	if (status == BETON_OK)
		status = check_scaler(desc, &roles, err);
	return status == BETON_OK ? check_shapes(desc, &roles, err) : status;
}
