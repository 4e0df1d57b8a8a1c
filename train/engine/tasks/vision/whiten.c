/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "vision_parts.h"
#include "whiten_filters.h"

#define WEIGHT "0.weight"
#define BIAS "0.bias"

enum { PICTURES = 5000, BATCH = 64, PATCH = VISION_WHITEN_PATCH, SIDE = VISION_WHITEN_SIDE };

/* Each batch has its own sums, so that the total does not depend on the order of the threads. */
struct sums {
	const char *field;
	double (*of_batch)[PATCH * PATCH];
};

/* pixels: 3 x height x width. */
static void add_picture(const float *pixels, int64_t height, int64_t width, double sums[PATCH * PATCH])
{
	for (int64_t y = 0; y + SIDE <= height; y++)
		for (int64_t x = 0; x + SIDE <= width; x++) {
			double patch[PATCH];
			for (int i = 0; i < PATCH; i++) {
				int64_t channel = i / (SIDE * SIDE), row = y + i / SIDE % SIDE, column = x + i % SIDE;
				patch[i] = (double)pixels[(channel * height + row) * width + column];
			}
			for (int i = 0; i < PATCH; i++)
				for (int j = 0; j < PATCH; j++)
					sums[i * PATCH + j] += patch[i] * patch[j];
		}
}

/* Called by the loader's threads, concurrently for several batches. */
static int add_batch(const beton_batch_call *call)
{
	const struct sums *sums = call->context;
	const beton_batch *batch = call->batch;
	const beton_tensor *tensor = engine_find_tensor(batch, sums->field, BETON_FLOAT32);
	if (!tensor)
		return 1;
	int64_t height = tensor->shape[2], width = tensor->shape[3];
	for (uint32_t row = 0; row < batch->count; row++)
		add_picture((const float *)tensor->data + row * 3 * height * width, height, width,
			    sums->of_batch[batch->position / BATCH]);
	return 0;
}

static int open_loader(const engine_rank *engine, const engine_files *files, struct sums *sums, const uint64_t *indices,
		       uint64_t count, beton_loader **out, beton_error *err)
{
	const vision_options *options = vision_options_of(&engine->job);
	beton_batch_operation add;
	beton_loader_options loader;
	beton_loader_options_init(&loader);
	beton_loader_batch_operation_init(&add, BETON_BATCH_CUSTOM);
	add.apply = add_batch;
	add.context = sums;
	loader.batch_size = BATCH;
	loader.indices = indices;
	loader.num_indices = count;
	loader.fields = &sums->field;
	loader.num_fields = 1;
	loader.batch_operations = &add;
	loader.num_batch_operations = 1;
	loader.image.field = sums->field;
	loader.image.height = loader.image.width = (uint32_t)options->image_size;
	loader.image.crop = BETON_CROP_CENTER;
	loader.image.center_ratio = options->val_ratio;
	loader.image.dtype = BETON_FLOAT32;
	loader.image.layout = BETON_NCHW;
	vision_normalize(options, &loader.image);
	return files->open(files->context, &loader, out, err);
}

/* Sums over `count` pictures, spread over the file: if it is sorted by class, as those made from folders are, the first
 * pictures would all be of one class. */
static int sum_patches(const engine_rank *engine, const engine_files *files, uint64_t count,
		       double total[PATCH * PATCH], beton_error *err)
{
	struct sums sums = {.field = engine->data->train.fields[VISION_IMAGE]};
	uint64_t indices[PICTURES], batches = (count + BATCH - 1) / BATCH, samples = engine->data->train.samples;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	for (uint64_t i = 0; i < count; i++)
		indices[i] = samples / count * i + samples % count * i / count;
	sums.of_batch = calloc(batches, sizeof(*sums.of_batch));
	if (!sums.of_batch)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	int status = open_loader(engine, files, &sums, indices, count, &loader, err);
	if (status == BETON_OK)
		status = beton_iterator_open(&iterator, loader, 0, 0, err);
	while (status == BETON_OK) {
		beton_batch *batch = NULL;
		status = beton_iterator_next(iterator, &batch, -1, err);
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
	memset(total, 0, PATCH * PATCH * sizeof(*total));
	for (uint64_t i = 0; i < batches; i++)
		for (int k = 0; k < PATCH * PATCH; k++)
			total[k] += sums.of_batch[i][k];
	free(sums.of_batch);
	return status == BETON_END ? BETON_OK : status;
}

static const dtrain_buffer *find_weight(const dtrain_params *params)
{
	for (int i = 0; i < dtrain_params_buffer_count(params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(params, i);
		if (strcmp(buffer->name, WEIGHT) == 0)
			return buffer;
	}
	return NULL;
}

bool vision_whitens(const engine_job *job)
{
	return strcmp(job->model, "airbench94") == 0;
}

const char *vision_find_early(const engine_job *job, double *epochs)
{
	*epochs = vision_options_of(job)->whiten_bias_epochs;
	return vision_whitens(job) ? BIAS : NULL;
}

int vision_prepare(engine_rank *engine, const engine_files *files, beton_error *err)
{
	double sums[PATCH * PATCH];
	float filters[2 * PATCH * PATCH];
	if (!vision_whitens(&engine->job))
		return BETON_OK;
	const dtrain_buffer *weight = find_weight(engine->params);
	/* Another stage of a pipeline has it. */
	if (!weight && find_weight(engine_whole_params(engine)))
		return BETON_OK;
	uint64_t samples = engine->data->train.samples, count = samples < PICTURES ? samples : PICTURES;
	int64_t places = vision_options_of(&engine->job)->image_size - SIDE + 1;
	if (!weight)
		return bt_fail(err, BETON_STATE, "whitening: the model has no '%s'", WEIGHT);
	int status = sum_patches(engine, files, count, sums, err);
	if (status == BETON_OK)
		status = vision_whiten_filters(sums, (int64_t)count * places * places, filters, err);
	if (status == BETON_OK)
		status = engine->api->copy(engine->stream, weight->data, filters, sizeof(filters),
					   DTRAIN_HOST_TO_DEVICE, err);
	return status == BETON_OK ? engine->api->stream_synchronize(engine->stream, err) : status;
}
