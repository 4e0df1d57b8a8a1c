/* SPDX-License-Identifier: Apache-2.0 */
#include "blocks.h"

#include <stdlib.h>

#include "common/error.h"

int64_t run_blocks_count(const dtrain_param *param)
{
	return param->placement.axis && param->placement.blocks ? param->placement.blocks : 1;
}

int run_blocks_open(const dtrain_param *param, int64_t first, int64_t count, void *memory, run_blocks *out,
		    beton_error *err)
{
	const int64_t blocks = run_blocks_count(param);
	*out = (run_blocks){.first = first, .count = count, .outer = 1, .blocks = blocks, .memory = memory};
	for (int i = 0; i < param->placement.dim; i++)
		out->outer *= param->shape.dim[i];
	out->width = param->count / out->outer / blocks;
	if (out->outer == 1 || blocks == 1 || count == 0)
		return BETON_OK;
	out->staged = calloc((size_t)count, sizeof(float));
	return out->staged ? BETON_OK
			   : bt_fail(err, BETON_NO_MEMORY, "out of memory for %lld elements of '%s'", (long long)count,
				     param->name);
}

/* How many of a block's elements come before that element of the part. */
static int64_t before(const run_blocks *blocks, int64_t block, int64_t element)
{
	const int64_t row = blocks->blocks * blocks->width;
	const int64_t rest = element % row - block * blocks->width;
	return element / row * blocks->width + (rest < 0 ? 0 : rest > blocks->width ? blocks->width : rest);
}

float *run_blocks_at(const run_blocks *blocks, int64_t block, int64_t *first, int64_t *count)
{
	float *memory = blocks->staged ? blocks->staged : blocks->memory;
	for (int64_t i = 0; i <= block; i++) {
		*first = before(blocks, i, blocks->first);
		*count = before(blocks, i, blocks->first + blocks->count) - *first;
		memory = memory && i < block ? memory + *count : memory;
	}
	return *count ? memory : NULL;
}

/* Moves the elements between the two orders. */
static void reorder(const run_blocks *blocks, float *elements, bool stages)
{
	int64_t first, count, at = 0;
	for (int64_t block = 0; block < blocks->blocks; block++) {
		float *staged = run_blocks_at(blocks, block, &first, &count);
		for (int64_t i = first; i < first + count; i++, staged++) {
			at = i / blocks->width * blocks->blocks * blocks->width + block * blocks->width +
			     i % blocks->width - blocks->first;
			if (stages)
				*staged = elements[at];
			else
				elements[at] = *staged;
		}
	}
}

static int move(const run_blocks *blocks, dtrain_stream *stream, const dtrain_device_api *api, bool stages,
		beton_error *err)
{
	const size_t bytes = (size_t)blocks->count * sizeof(float);
	float *elements = blocks->staged ? malloc(bytes) : NULL;
	if (!blocks->staged)
		return BETON_OK;
	if (!elements)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %lld elements", (long long)blocks->count);
	int status = BETON_OK;
	if (!stages)
		reorder(blocks, elements, false);
	status = stages ? api->copy(stream, elements, blocks->memory, bytes, DTRAIN_DEVICE_TO_HOST, err)
			: api->copy(stream, blocks->memory, elements, bytes, DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = api->stream_synchronize(stream, err);
	if (status == BETON_OK && stages)
		reorder(blocks, elements, true);
	free(elements);
	return status;
}

int run_blocks_stage(const run_blocks *blocks, dtrain_stream *stream, const dtrain_device_api *api, beton_error *err)
{
	return move(blocks, stream, api, true, err);
}

int run_blocks_unstage(const run_blocks *blocks, dtrain_stream *stream, const dtrain_device_api *api, beton_error *err)
{
	return move(blocks, stream, api, false, err);
}

void run_blocks_close(run_blocks *blocks)
{
	free(blocks->staged);
	blocks->staged = NULL;
}
