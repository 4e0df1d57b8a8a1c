/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_operations_check.h"

#include "common/error.h"
#include "common/sized.h"
#include "options_image.h"

enum { ALPHA_MAX = 1000 };

bool bt_batch_operations_mix(const beton_loader_options *options)
{
	for (uint32_t i = 0; i < options->num_batch_operations; i++)
		if (bt_batch_operation_mixes(&options->batch_operations[i]))
			return true;
	return false;
}

bool bt_batch_operations_cut(const beton_loader_options *options)
{
	for (uint32_t i = 0; i < options->num_batch_operations; i++)
		if (options->batch_operations[i].kind == BETON_BATCH_CUTMIX)
			return true;
	return false;
}

static int check_one(const beton_batch_operation *o, uint32_t index, beton_error *err)
{
	if ((unsigned)o->kind > BETON_BATCH_CUSTOM)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: batch_operations[%u].kind is %d, no beton_batch_operation_kind", index,
			       (int)o->kind);
	if (!(o->probability >= 0 && o->probability <= 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: batch_operations[%u].probability is %g, not 0 to 1", index,
			       o->probability);
	if (bt_batch_operation_mixes(o) && !(o->alpha > 0 && o->alpha <= ALPHA_MAX))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: batch_operations[%u].alpha is %g, not above 0 and at most %d", index,
			       o->alpha, ALPHA_MAX);
	if (o->kind == BETON_BATCH_CUSTOM && !o->apply)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: batch_operations[%u].apply is NULL",
			       index);
	if (!BT_RESERVED_IS_ZERO(o))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: batch_operations[%u].reserved is not 0 (call "
			       "beton_loader_batch_operation_init first)",
			       index);
	return BETON_OK;
}

/* All views must have one size, because they share CUTMIX's box. */
static int check_sizes(const beton_loader_options *options, beton_error *err)
{
	const beton_image_options *one = bt_view_options(options, 0);
	for (uint32_t i = 1; i < options->num_views; i++) {
		const beton_image_options *view = &options->views[i];
		if (view->width != one->width || view->height != one->height)
			return bt_fail(
				err, BETON_INVALID_ARGUMENT,
				"loader options: batch_operations has a CUTMIX, but views[%u] is of %u x %u pixels "
				"and views[0] of %u x %u",
				i, view->width, view->height, one->width, one->height);
	}
	return BETON_OK;
}

int bt_batch_operations_check(const beton_loader_options *options, beton_error *err)
{
	double sum = 0;
	if (options->num_batch_operations > BETON_BATCH_OPERATIONS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: num_batch_operations is %u, more than %d",
			       options->num_batch_operations, BETON_BATCH_OPERATIONS_MAX);
	if (options->num_batch_operations > 0 && !options->batch_operations)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: batch_operations is NULL, but num_batch_operations is %u",
			       options->num_batch_operations);
	for (uint32_t i = 0; i < options->num_batch_operations; i++) {
		const beton_batch_operation *o = &options->batch_operations[i];
		int result = check_one(o, i, err);
		if (result)
			return result;
		sum += bt_batch_operation_mixes(o) ? o->probability : 0;
	}
	/* Three times 1/3 need not add up to 1. */
	if (sum > 1 + 1e-9)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"loader options: batch_operations: the probabilities of MIXUP and CUTMIX are %g together, "
			"more than 1",
			sum);
	return bt_batch_operations_cut(options) ? check_sizes(options, err) : BETON_OK;
}
