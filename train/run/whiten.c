/* SPDX-License-Identifier: Apache-2.0 */
#include "whiten.h"

#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "loading.h"

enum { PICTURES = 5000, BATCH = 64, PATCH = VISION_WHITEN_PATCH, SIDE = VISION_WHITEN_SIDE };

/* Each batch has sums of its own, so that the total does not depend on which thread is first. */
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

/* Called by the loader's threads, for several batches at once. */
static int add_batch(const beton_batch_call *call)
{
	const struct sums *sums = call->context;
	const beton_batch *batch = call->batch;
	const beton_tensor *tensor = run_find_tensor(batch, sums->field, BETON_FLOAT32);
	if (!tensor)
		return 1;
	int64_t height = tensor->shape[2], width = tensor->shape[3];
	for (uint32_t row = 0; row < batch->count; row++)
		add_picture((const float *)tensor->data + row * 3 * height * width, height, width,
			    sums->of_batch[batch->position / BATCH]);
	return 0;
}

static int open_loader(const run_session *session, struct sums *sums, const uint64_t *indices, uint64_t count,
		       beton_loader **out, beton_error *err)
{
	const run_options *options = session->options;
	const char *fields[] = {session->facts->train.image_field};
	beton_batch_operation add;
	beton_loader_options loader;
	beton_loader_options_init(&loader);
	beton_loader_batch_operation_init(&add, BETON_BATCH_CUSTOM);
	add.apply = add_batch;
	add.context = sums;
	loader.batch_size = BATCH;
	run_loading_set_reading(options, &loader);
	loader.indices = indices;
	loader.num_indices = count;
	loader.fields = fields;
	loader.num_fields = 1;
	loader.batch_operations = &add;
	loader.num_batch_operations = 1;
	loader.image.field = sums->field;
	loader.image.height = loader.image.width = (uint32_t)options->image_size;
	loader.image.crop = BETON_CROP_CENTER;
	loader.image.center_ratio = options->val_ratio;
	loader.image.dtype = BETON_FLOAT32;
	loader.image.layout = BETON_NCHW;
	loader.image.normalize = true;
	for (int channel = 0; channel < 3; channel++) {
		loader.image.mean[channel] = (float)options->mean[channel];
		loader.image.std[channel] = (float)options->std[channel];
	}
	return run_loading_open_data(options, false, &loader, out, err);
}

/* The sums over `count` pictures: of a file that is sorted by class, as folders make it, the first would be of one. */
static int sum_patches(const run_session *session, uint64_t count, double total[PATCH * PATCH], beton_error *err)
{
	struct sums sums = {.field = session->facts->train.image_field};
	uint64_t indices[PICTURES], batches = (count + BATCH - 1) / BATCH, samples = session->facts->train.samples;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	for (uint64_t i = 0; i < count; i++)
		indices[i] = samples / count * i + samples % count * i / count;
	sums.of_batch = calloc(batches, sizeof(*sums.of_batch));
	if (!sums.of_batch)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	int result = open_loader(session, &sums, indices, count, &loader, err);
	if (result == BETON_OK)
		result = beton_iterator_open(&iterator, loader, 0, 0, err);
	while (result == BETON_OK) {
		beton_batch *batch = NULL;
		result = beton_iterator_next(iterator, &batch, -1, err);
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
	memset(total, 0, PATCH * PATCH * sizeof(*total));
	for (uint64_t i = 0; i < batches; i++)
		for (int k = 0; k < PATCH * PATCH; k++)
			total[k] += sums.of_batch[i][k];
	free(sums.of_batch);
	return result == BETON_END ? BETON_OK : result;
}

static void *find_weight(const run_session *session)
{
	for (int i = 0; i < dtrain_params_buffer_count(session->params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(session->params, i);
		if (strcmp(buffer->name, RUN_WHITEN_WEIGHT) == 0)
			return buffer->data;
	}
	return NULL;
}

int run_whiten(run_session *session, beton_error *err)
{
	double sums[PATCH * PATCH];
	float filters[2 * PATCH * PATCH];
	void *weight = find_weight(session);
	uint64_t count = session->facts->train.samples < PICTURES ? session->facts->train.samples : PICTURES;
	int64_t places = session->options->image_size - SIDE + 1;
	if (!weight)
		return bt_fail(err, BETON_STATE, "whitening: the model has no '%s'", RUN_WHITEN_WEIGHT);
	int result = sum_patches(session, count, sums, err);
	if (result == BETON_OK)
		result = vision_whiten_filters(sums, (int64_t)count * places * places, filters, err);
	if (result == BETON_OK)
		result = session->api->copy(session->stream, weight, filters, sizeof(filters), DTRAIN_HOST_TO_DEVICE,
					    err);
	return result == BETON_OK ? session->api->stream_synchronize(session->stream, err) : result;
}
