/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_operations.h"

#include <string.h>

#include "batch/views.h"
#include "common/error.h"
#include "common/sized.h"
#include "mix.h"
#include "options_image.h"
#include "random.h"

enum { ALPHA_MAX = 1000 };

void beton_loader_batch_operation_init(beton_batch_operation *operation, beton_batch_operation_kind kind)
{
	if (!operation)
		return;
	*operation = (beton_batch_operation){.kind = kind, .alpha = 1, .probability = 1};
}

static bool mixes(const beton_batch_operation *operation)
{
	return operation->kind == BETON_BATCH_MIXUP || operation->kind == BETON_BATCH_CUTMIX;
}

bool bt_batch_operations_mix(const beton_loader_options *options)
{
	for (uint32_t i = 0; i < options->num_batch_operations; i++)
		if (mixes(&options->batch_operations[i]))
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
	if (mixes(o) && !(o->alpha > 0 && o->alpha <= ALPHA_MAX))
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
		sum += mixes(o) ? o->probability : 0;
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

static bt_random stream(const beton_loader_options *options, const bt_slot *slot, uint32_t operation)
{
	return (bt_random){.seed = options->seed,
			   .epoch = slot->batch.epoch,
			   .sample = bt_shard_position(&slot->shard, slot->index, 0),
			   .operation = operation};
}

/* The operation that mixes the batch; num_batch_operations: none. */
static uint32_t choose(const beton_loader_options *options, const bt_slot *slot)
{
	bt_random random = stream(options, slot, BT_OPERATION_MIX);
	double place = bt_random_uniform(&random, 0, 1);
	for (uint32_t i = 0; i < options->num_batch_operations; i++) {
		const beton_batch_operation *o = &options->batch_operations[i];
		if (!mixes(o))
			continue;
		if (place < o->probability)
			return i;
		place -= o->probability;
	}
	return options->num_batch_operations;
}

/* Draws lambda and the box of each row. */
static void draw(const beton_batch_operation *o, const bt_mix_images *images, bt_random *random, float *lambda,
		 bt_mix_box *boxes)
{
	double area = (double)images->width * images->height;
	for (uint32_t i = 0; i < images->count; i++) {
		if (i > 0 && !o->per_sample) {
			lambda[i] = lambda[0];
			if (boxes)
				boxes[i] = boxes[0];
			continue;
		}
		uint32_t drawn = bt_mix_lambda(o->alpha, random);
		lambda[i] = (float)drawn / BT_MIX_ONE;
		if (boxes)
			boxes[i] = (bt_mix_box){0};
		if (o->kind != BETON_BATCH_CUTMIX)
			continue;
		boxes[i] = bt_mix_draw_box(images->width, images->height, drawn, random);
		lambda[i] = (float)(1 - (double)boxes[i].width * boxes[i].height / area);
	}
}

static bt_mix_images describe(const bt_slot *slot, uint32_t output, const int64_t *partner)
{
	const bt_view *view = &slot->views->list[slot->pool->outputs.list[output].view];
	const beton_image_options *image = view->image;
	size_t stride = bt_slot_row_bytes(slot, &slot->pool->outputs.list[output]);
	bool planes = image->layout == BETON_NCHW;
	uint32_t rows = planes ? view->format.channels * image->height : image->height;
	return (bt_mix_images){.data = slot->tensors[output].data,
			       .dtype = image->dtype,
			       .stride = stride,
			       .rows = rows,
			       .height = image->height,
			       .width = image->width,
			       .pixel_bytes = stride / rows / image->width,
			       .count = slot->batch.count,
			       .partner = partner};
}

/* Copies each partner's values, which have 8 bytes each. */
static void mix_values(const bt_slot *slot, const int64_t *partner)
{
	const bt_outputs *outputs = &slot->pool->outputs;
	for (uint32_t i = 1; i < outputs->count; i++) {
		if (outputs->list[i].kind != BT_OUTPUT_MIXED)
			continue;
		const uint64_t *own = slot->tensors[i - 1].data;
		uint64_t *mixed = slot->tensors[i].data;
		for (uint32_t row = 0; row < slot->batch.count; row++)
			mixed[row] = own[partner[row]];
	}
}

static bt_mix_box *boxes_of(const bt_slot *slot)
{
	int box = slot->pool->outputs.box;
	return box < 0 ? NULL : slot->tensors[box].data;
}

static void mix(const beton_loader_options *options, const bt_slot *slot, uint32_t number)
{
	const bt_outputs *outputs = &slot->pool->outputs;
	const beton_batch_operation *o = &options->batch_operations[number];
	bt_random random = stream(options, slot, BT_OPERATION_BATCH + number);
	float *lambda = slot->tensors[outputs->lambda].data;
	int64_t *partner = slot->tensors[outputs->partner].data;
	bt_mix_box *boxes = boxes_of(slot);
	bt_mix_ring(partner, slot->batch.count, bt_random_bits(&random));
	bool drawn = false;
	for (uint32_t i = 0; i < outputs->count; i++) {
		if (!bt_is_image(&outputs->list[i]))
			continue;
		bt_mix_images images = describe(slot, i, partner);
		if (!drawn)
			draw(o, &images, &random, lambda, boxes);
		drawn = true;
		if (outputs->list[i].kind == BT_OUTPUT_STORED)
			continue; /* their consumer mixes them */
		if (o->kind == BETON_BATCH_MIXUP)
			bt_mix_up(&images, lambda, false);
		else
			bt_mix_cut(&images, boxes);
	}
	mix_values(slot, partner);
}

/* Fills the outputs about mixing for a batch that is not mixed. */
static void describe_unmixed(const bt_slot *slot)
{
	const bt_outputs *outputs = &slot->pool->outputs;
	float *lambda = slot->tensors[outputs->lambda].data;
	int64_t *partner = slot->tensors[outputs->partner].data;
	bt_mix_box *boxes = boxes_of(slot);
	for (uint32_t i = 0; i < slot->batch.count; i++) {
		lambda[i] = 1;
		partner[i] = i;
		if (boxes)
			boxes[i] = (bt_mix_box){0};
	}
	mix_values(slot, partner);
}

static int call(const beton_loader_options *options, const bt_slot *slot, uint32_t number, beton_error *err)
{
	const beton_batch_operation *o = &options->batch_operations[number];
	bt_random random = stream(options, slot, BT_OPERATION_BATCH + number);
	if (bt_random_uniform(&random, 0, 1) >= o->probability)
		return BETON_OK;
	beton_batch_call arguments = {.context = o->context, .batch = &slot->batch};
	for (int i = 0; i < 2; i++)
		arguments.random[i] = bt_random_bits(&random);
	int result = o->apply(&arguments);
	if (result == 0)
		return BETON_OK;
	return bt_fail(
		err, BETON_USER_ERROR,
		"epoch %llu, batch at position %llu: the user's operation (option batch_operations[%u]) returned "
		"%d",
		(unsigned long long)slot->batch.epoch, (unsigned long long)slot->batch.position, number, result);
}

int bt_batch_operations_apply(const beton_loader_options *options, bt_slot *slot, beton_error *err)
{
	uint32_t mixing = options->num_batch_operations;
	int result = BETON_OK;
	if (slot->pool->outputs.lambda >= 0) {
		mixing = choose(options, slot);
		describe_unmixed(slot);
	}
	for (uint32_t i = 0; i < options->num_batch_operations && result == BETON_OK; i++) {
		if (options->batch_operations[i].kind == BETON_BATCH_CUSTOM)
			result = call(options, slot, i, err);
		else if (i == mixing)
			mix(options, slot, i);
	}
	return result;
}
