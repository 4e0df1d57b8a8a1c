/* SPDX-License-Identifier: Apache-2.0 */
#include "op.h"

#include <string.h>

#include "common/error.h"
#include "shape.h"

static const struct {
	const char *name;
	const dtrain__op_rules *rules;
	bool differentiable;
} kinds[] = {
#define DTRAIN_OP(NAME, name) [DTRAIN_OP_##NAME] = {#name, &dtrain__op_##name, false},
#define DTRAIN_DIFFERENTIABLE_OP(NAME, name) [DTRAIN_OP_##NAME] = {#name, &dtrain__op_##name, true},
#include <dtrain/ops.def>
};

const char *dtrain__op_name(dtrain_op_kind kind)
{
	return (unsigned)kind < DTRAIN_OP_KIND_COUNT ? kinds[kind].name : "unknown";
}

const dtrain__op_rules *dtrain__op_rules_of(dtrain_op_kind kind)
{
	return kinds[kind].rules;
}

bool dtrain__op_is_differentiable(dtrain_op_kind kind)
{
	return kinds[kind].differentiable;
}

static char letter_at(const char *letters, const char *optional, int index)
{
	int count = (int)strlen(letters);
	if (index < count)
		return letters[index];
	return optional && index - count < (int)strlen(optional) ? optional[index - count] : 0;
}

char dtrain__op_input_letter(dtrain_op_kind kind, int index)
{
	return letter_at(kinds[kind].rules->inputs, kinds[kind].rules->optional_inputs, index);
}

char dtrain__op_output_letter(dtrain_op_kind kind, int index)
{
	return letter_at(kinds[kind].rules->outputs, kinds[kind].rules->optional_outputs, index);
}

dtrain_dtype dtrain__op_letter_type(char letter, dtrain_dtype compute)
{
	switch (letter) {
	case 'X':
	case 'Y':
	case 'K':
	case 'L':
		return compute;
	case 'l':
	case 'e':
	case 'q':
	case 'r':
	case 'I':
		return DTRAIN_I64;
	case 'g':
		return DTRAIN_I32;
	case 'm':
	case 'i':
	case 'u':
	case 'G':
	case 'c':
		return DTRAIN_U8;
	case 'R':
	case 'H':
	case 'A':
	case 'T':
		return DTRAIN_F32;
	default:
		return compute == DTRAIN_F16 || compute == DTRAIN_BF16 ? DTRAIN_F32 : compute;
	}
}

dtrain_dtype dtrain__op_compute_type(const dtrain_op_desc *desc)
{
	bool of_output = desc->kind == DTRAIN_OP_NORMALIZE || desc->kind == DTRAIN_OP_CAST ||
			 desc->kind == DTRAIN_OP_EMBEDDING || desc->kind == DTRAIN_OP_ONE_HOT ||
			 desc->kind == DTRAIN_OP_NARROW || desc->kind == DTRAIN_OP_DEQUANTIZE ||
			 desc->kind == DTRAIN_OP_SPREAD;
	return of_output ? desc->outputs[0].dtype : desc->inputs[0].dtype;
}

int dtrain__op_bad(const dtrain_op_desc *desc, const char *what, const dtrain_operand *operand, beton_error *err)
{
	char text[DTRAIN__SHAPE_TEXT] = "";
	if (operand)
		dtrain__shape_text(&operand->shape, text);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: %s %s", dtrain__op_name(desc->kind), what, text);
}

bool dtrain__op_is_vector(const dtrain_operand *operand, int64_t count)
{
	return operand->shape.ndim == 1 && operand->shape.dim[0] == count;
}

int64_t dtrain__window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding)
{
	if (size < 1 || kernel < 1 || stride < 1 || padding < 0 || size + 2 * padding < kernel)
		return 0;
	return (size + 2 * padding - kernel) / stride + 1;
}

int dtrain__op_check_window(const dtrain_op_desc *desc, const dtrain_shape *x, const dtrain_shape *y,
			    const int64_t *kernel, beton_error *err)
{
	const dtrain_window_attrs *window = &desc->attrs.window;
	for (int i = 0; i < 2; i++) {
		int64_t size = dtrain__window_count(x->dim[2 + i], kernel[i], window->stride[i], window->padding[i]);
		if (size < 1 || size != y->dim[2 + i])
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "op %s: %lld elements with kernel %lld, stride %d, padding %d do not give %lld",
				       dtrain__op_name(desc->kind), (long long)x->dim[2 + i], (long long)kernel[i],
				       window->stride[i], window->padding[i], (long long)y->dim[2 + i]);
	}
	return BETON_OK;
}

static bool is_real(dtrain_dtype dtype)
{
	return dtype == DTRAIN_F32 || dtype == DTRAIN_F64 || dtype == DTRAIN_F16 || dtype == DTRAIN_BF16;
}

static bool is_type_of(dtrain_dtype dtype, char letter, bool input, dtrain_dtype compute)
{
	return dtype == dtrain__op_letter_type(letter, compute) || (letter == 'W' && input && dtype == compute) ||
	       (letter == 'e' && dtype == DTRAIN_I32);
}

static int check_operands(const dtrain_op_desc *desc, const char *letters, const char *optional, int count,
			  const dtrain_operand *operands, dtrain__op_roles *roles, beton_error *err)
{
	dtrain_dtype compute = dtrain__op_compute_type(desc);
	if (!is_real(compute))
		return dtrain__op_bad(desc, "computes with real numbers alone", NULL, err);
	for (int i = 0; i < count; i++) {
		char letter = letter_at(letters, optional, i);
		const dtrain_operand *operand = &operands[i];
		if (!letter)
			return dtrain__op_bad(desc, "too many operands", NULL, err);
		if (!dtrain__shape_valid(&operand->shape))
			return dtrain__op_bad(desc, "bad shape", operand, err);
		if (!is_type_of(operand->dtype, letter, operands == desc->inputs, compute))
			return dtrain__op_bad(desc, "wrong type of the operand", operand, err);
		const dtrain_operand *first = roles->of[(int)letter];
		if (first && !dtrain__shape_equal(&first->shape, &operand->shape))
			return dtrain__op_bad(desc, "shape does not match", operand, err);
		if (!first)
			roles->of[(int)letter] = operand;
	}
	return count < (int)strlen(letters) ? dtrain__op_bad(desc, "an operand is missing", NULL, err) : BETON_OK;
}

int dtrain__op_check(const dtrain_op_desc *desc, beton_error *err)
{
	if ((unsigned)desc->kind >= DTRAIN_OP_KIND_COUNT)
		return bt_fail(err, BETON_UNSUPPORTED, "op kind %d is unknown", (int)desc->kind);
	if (desc->num_inputs < 1 || desc->num_inputs > DTRAIN_OP_MAX_OPERANDS || desc->num_outputs < 1 ||
	    desc->num_outputs > DTRAIN_OP_MAX_OPERANDS)
		return dtrain__op_bad(desc, "bad number of operands", NULL, err);
	const dtrain__op_rules *rules = kinds[desc->kind].rules;
	dtrain__op_roles roles = {0};
	int status = check_operands(desc, rules->inputs, rules->optional_inputs, desc->num_inputs, desc->inputs, &roles,
				    err);
	if (status == BETON_OK)
		status = check_operands(desc, rules->outputs, rules->optional_outputs, desc->num_outputs, desc->outputs,
					&roles, err);
	if (status == BETON_OK && roles.of['A'] && !dtrain__op_is_vector(roles.of['A'], DTRAIN_SCALERS))
		status = dtrain__op_bad(desc, "needs a scaler of four elements, not", roles.of['A'], err);
	if (status == BETON_OK && roles.of['r'] && !dtrain__op_is_vector(roles.of['r'], DTRAIN_RANDOMS))
		status = dtrain__op_bad(desc, "needs seed, step, first row and row stride, not", roles.of['r'], err);
	return status == BETON_OK && rules->check ? rules->check(desc, &roles, err) : status;
}
