/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of parameters by their gradients.
 */
#include "common/error.h"
#include "core/op.h"

static int check_divisor(const dtrain_op_desc *desc, double divisor, beton_error *err)
{
	return divisor > 0 ? BETON_OK
			   : bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: gradients divided by %g",
				     dtrain__op_name(desc->kind), divisor);
}

/* Checks that all updates share. */
static int check_update(const dtrain_op_desc *desc, const dtrain__op_roles *roles, double divisor, beton_error *err)
{
	const dtrain_shape *scalars = &roles->of['R']->shape;
	int64_t runs = (dtrain_shape_count(&roles->of['F']->shape) + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
	if (scalars->ndim != 2 || scalars->dim[0] > DTRAIN_PARAM_GROUPS || scalars->dim[1] != DTRAIN_UPDATE_SCALARS)
		return dtrain__op_bad(desc, "needs two scalars for each of 256 groups at most, not", roles->of['R'],
				      err);
	if (!dtrain__op_is_vector(roles->of['G'], runs))
		return dtrain__op_bad(desc, "needs a group for each 16 elements, not", roles->of['G'], err);
	const dtrain_operand *step = roles->of['T'], *pieces = roles->of['I'];
	if (step && !dtrain__op_is_vector(step, DTRAIN_STEPS))
		return dtrain__op_bad(desc, "needs a step of eight elements, not", step, err);
	if (pieces && (pieces->shape.ndim != 2 || pieces->shape.dim[1] != DTRAIN_PIECE_NUMBERS))
		return dtrain__op_bad(desc, "needs five numbers for each piece, not", pieces, err);
	return check_divisor(desc, divisor, err);
}

static int check_sgd(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	return check_update(desc, roles, desc->attrs.sgd.grad_divisor, err);
}

static int check_betas(const dtrain_op_desc *desc, double beta1, double beta2, beton_error *err)
{
	return beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1
		       ? BETON_OK
		       : bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: betas %g and %g are not in [0, 1)",
				 dtrain__op_name(desc->kind), beta1, beta2);
}

static int check_adam(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_adam_attrs *adam = &desc->attrs.adam;
	bool has_most = desc->kind == DTRAIN_OP_ADAM && adam->amsgrad;
	if (desc->num_inputs != (desc->kind == DTRAIN_OP_LAMB || has_most ? 8 : 7) ||
	    desc->num_outputs != (has_most ? 4 : 3))
		return dtrain__op_bad(desc, "has the largest v if and only if it is amsgrad", NULL, err);
	if (!(adam->epsilon > 0))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: an epsilon of %g", dtrain__op_name(desc->kind),
			       adam->epsilon);
	int status = check_betas(desc, adam->beta1, adam->beta2, err);
	return status == BETON_OK ? check_update(desc, roles, adam->grad_divisor, err) : status;
}

static int check_lion(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_lion_attrs *lion = &desc->attrs.lion;
	int status = check_betas(desc, lion->beta1, lion->beta2, err);
	return status == BETON_OK ? check_update(desc, roles, lion->grad_divisor, err) : status;
}

static int check_lars(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_lars_attrs *lars = &desc->attrs.lars;
	if (!(lars->trust > 0 && lars->epsilon > 0))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: a trust of %g and an epsilon of %g",
			       dtrain__op_name(desc->kind), lars->trust, lars->epsilon);
	return check_update(desc, roles, lars->grad_divisor, err);
}

static int check_muon(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_muon_attrs *muon = &desc->attrs.muon;
	int64_t end = 0;
	if (!(muon->momentum >= 0 && muon->momentum < 1 && muon->steps >= 1 && muon->steps < 100 &&
	      muon->adamw.epsilon > 0 && muon->adamw_lr_scale >= 0 && !muon->adamw.amsgrad))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "op %s: a momentum of %g, %d steps, an epsilon of %g, a scale of %g%s",
			       dtrain__op_name(desc->kind), muon->momentum, muon->steps, muon->adamw.epsilon,
			       muon->adamw_lr_scale, muon->adamw.amsgrad ? ", and amsgrad" : "");
	for (int32_t i = 0; i < muon->num_matrices; i++) {
		const dtrain_matrices *m = &muon->matrices[i];
		if (m->rows < 1 || m->columns < 1 || m->count < 1 || m->place < end ||
		    m->place % DTRAIN_MATRIX_ALIGN != 0)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: %lld matrices [%lld, %lld] at %lld",
				       dtrain__op_name(desc->kind), (long long)m->count, (long long)m->rows,
				       (long long)m->columns, (long long)m->place);
		end = m->place + m->count * m->rows * m->columns;
	}
	int status = check_betas(desc, muon->adamw.beta1, muon->adamw.beta2, err);
	return status == BETON_OK ? check_update(desc, roles, muon->adamw.grad_divisor, err) : status;
}

/* A step has three products; one multiplies two squares of the shorter side. */
static double flops_of_muon(const dtrain_op_desc *desc)
{
	double sum = 0;
	for (int32_t i = 0; i < desc->attrs.muon.num_matrices; i++) {
		const dtrain_matrices *m = &desc->attrs.muon.matrices[i];
		double edge = (double)(m->rows < m->columns ? m->rows : m->columns);
		double elements = (double)(m->rows * m->columns);
		sum += (double)m->count * desc->attrs.muon.steps * (4 * edge * elements + 2 * edge * edge * edge);
	}
	return sum;
}

static int check_count_step(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	if (!dtrain__op_is_vector(roles->of['T'], DTRAIN_STEPS))
		return dtrain__op_bad(desc, "needs a step of eight elements, not", roles->of['T'], err);
	return check_betas(desc, desc->attrs.adam.beta1, desc->attrs.adam.beta2, err);
}

static int check_lookahead(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	return dtrain__op_is_vector(roles->of['H'], 1)
		       ? BETON_OK
		       : dtrain__op_bad(desc, "needs one weight, not", roles->of['H'], err);
}

const dtrain__op_rules dtrain__op_sgd = {
	.inputs = "FFFRG", .optional_inputs = "A", .outputs = "FF", .check = check_sgd};

const dtrain__op_rules dtrain__op_count_step = {
	.inputs = "T", .optional_inputs = "A", .outputs = "T", .check = check_count_step};

const dtrain__op_rules dtrain__op_adam = {
	.inputs = "FFFFRGT", .optional_inputs = "F", .outputs = "FFF", .optional_outputs = "F", .check = check_adam};

const dtrain__op_rules dtrain__op_lion = {
	.inputs = "FFFRG", .optional_inputs = "A", .outputs = "FF", .check = check_lion};

/* The norms must be complete before w changes. */
const dtrain__op_rules dtrain__op_lamb = {
	.inputs = "FFFFRGTI", .outputs = "FFF", .check = check_adam, .read_twice = 1 << 0 | 1 << 2 | 1 << 3};

const dtrain__op_rules dtrain__op_lars = {.inputs = "FFFRGI",
					  .optional_inputs = "A",
					  .outputs = "FF",
					  .check = check_lars,
					  .read_twice = 1 << 0 | 1 << 1};

const dtrain__op_rules dtrain__op_muon = {.inputs = "FFFFRGTI",
					  .outputs = "FFF",
					  .check = check_muon,
					  .flops = flops_of_muon,
					  .read_twice = 1 << 1 | 1 << 2};

const dtrain__op_rules dtrain__op_lookahead = {
	.inputs = "FFH", .outputs = "F", .optional_outputs = "F", .check = check_lookahead};

const dtrain__op_rules dtrain__op_scaler_inspect = {.inputs = "FA", .outputs = "A"};

const dtrain__op_rules dtrain__op_scaler_update = {.inputs = "A", .outputs = "A"};
