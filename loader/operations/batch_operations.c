/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_operations.h"

#include <string.h>

#include "batch/views.h"
#include "batch_operations_check.h"
#include "common/error.h"
#include "mix.h"
#include "random.h"

void beton_loader_batch_operation_init(beton_batch_operation *operation, beton_batch_operation_kind kind)
{
	if (!operation)
		return;
	*operation = (beton_batch_operation){.kind = kind, .alpha = 1, .probability = 1};
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
		if (!bt_batch_operation_mixes(o))
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
