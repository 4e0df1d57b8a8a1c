/* SPDX-License-Identifier: Apache-2.0 */
#include "loading.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "order_input.h"

/* ---- pictures ---- */

int run_loading_views(const run_options *options)
{
	static const int views[] = {[RUN_TTA_NONE] = 1, [RUN_TTA_FLIP] = 2, [RUN_TTA_FLIP_SHIFT] = RUN_VIEWS_MAX};
	return views[options->tta];
}

/* Each picture from both sides, and with flip-shift again moved to the lower right and to the upper left. The number of
 * views. shifts: memory for their operations. */
static uint32_t make_views(const run_options *options, const beton_image_options *image,
			   beton_image_options views[RUN_VIEWS_MAX], beton_operation shifts[2])
{
	uint32_t count = (uint32_t)run_loading_views(options);
	for (int i = 0; i < 2; i++) {
		beton_loader_operation_init(&shifts[i], BETON_SHIFT);
		shifts[i].padding = BETON_PADDING_REFLECT;
		shifts[i].range[0] = shifts[i].range[1] = i ? -1 : 1;
	}
	for (uint32_t i = 0; i < count; i++) {
		views[i] = *image;
		views[i].flip_probability = i % 2;
		if (i >= 2) {
			views[i].operations = &shifts[i / 2 - 1];
			views[i].num_operations = 1;
		}
	}
	return count;
}

/* FFCV's RandomTranslate and Cutout, filled with the mean without its decimals as in its example, unless the picture is
 * to be mirrored. The flip follows them in the loader; the results are as probable either way. The number of
 * operations. */
static uint32_t augment(const run_options *options, beton_operation operations[2])
{
	uint32_t count = 0;
	if (options->translate) {
		beton_loader_operation_init(&operations[count], BETON_TRANSLATE);
		if (options->translate_fill == RUN_FILL_REFLECT)
			operations[count].padding = BETON_PADDING_REFLECT;
		operations[count++].size = (uint32_t)options->translate;
	}
	if (options->cutout) {
		beton_loader_operation_init(&operations[count], BETON_CUTOUT);
		operations[count++].size = (uint32_t)options->cutout;
	}
	for (uint32_t i = 0; i < count; i++)
		for (int channel = 0; channel < 3; channel++)
			operations[i].fill[channel] = (uint8_t)fmin(fmax(options->mean[channel], 0), 255);
	return count;
}

static void set_pictures(const run_loading *loading, bool training, beton_image_options *image)
{
	const run_options *options = loading->options;
	image->field = training ? loading->facts->train.image_field : loading->facts->val.image_field;
	image->height = image->width = (uint32_t)options->image_size;
	image->crop = training ? (beton_crop)options->crop : BETON_CROP_CENTER;
	memcpy(image->crop_scale, options->crop_scale, sizeof(image->crop_scale));
	memcpy(image->crop_ratio, options->crop_ratio, sizeof(image->crop_ratio));
	image->center_ratio = options->val_ratio;
	image->flip_probability = training ? options->flip : 0;
	image->flip_mode = training ? (uint64_t)options->flip_mode : BETON_FLIP_RANDOM;
	image->dtype = loading->bytes ? BETON_UINT8 : loading->dtype;
	image->layout = loading->bytes ? BETON_NHWC : BETON_NCHW;
	image->normalize = !loading->bytes;
	for (int channel = 0; channel < 3 && !loading->bytes; channel++) {
		image->mean[channel] = (float)options->mean[channel];
		image->std[channel] = (float)options->std[channel];
	}
}

/* ---- files and order ---- */

/* What the loader has to say, such as of an engine that the system does not allow. */
static void tell(const char *line, void *context)
{
	fprintf(stderr, "dtrain-ffcv: %s\n", line);
	(void)context;
}

void run_loading_set_reading(const run_options *options, beton_loader_options *loader)
{
	static const beton_engine engines[] = {[RUN_ENGINE_AUTO] = BETON_ENGINE_AUTO,
					       [RUN_ENGINE_MMAP] = BETON_ENGINE_MMAP,
					       [RUN_ENGINE_THREADS] = BETON_ENGINE_THREADS,
					       [RUN_ENGINE_URING] = BETON_ENGINE_URING};
	loader->num_threads = (uint32_t)options->loader_threads;
	loader->engine = engines[options->engine];
	loader->direct = options->direct;
	loader->read_ahead = (uint32_t)options->read_ahead;
	loader->max_pixels = (uint64_t)options->max_pixels;
	loader->log = tell;
}

static void set_order(const run_options *options, const run_facts *facts, const run_order_input *input,
		      beton_loader_options *loader)
{
	static const beton_order orders[] = {[RUN_ORDER_SEQUENTIAL] = BETON_ORDER_SEQUENTIAL,
					     [RUN_ORDER_RANDOM] = BETON_ORDER_RANDOM,
					     [RUN_ORDER_QUASI_RANDOM] = BETON_ORDER_QUASI_RANDOM,
					     [RUN_ORDER_WEIGHTED] = BETON_ORDER_WEIGHTED,
					     [RUN_ORDER_WEIGHTED_UNIQUE] = BETON_ORDER_WEIGHTED_UNIQUE,
					     [RUN_ORDER_BALANCED] = BETON_ORDER_BALANCED,
					     [RUN_ORDER_LIST] = BETON_ORDER_LIST,
					     [RUN_ORDER_FFCV_RANDOM] = BETON_ORDER_FFCV_RANDOM,
					     [RUN_ORDER_TORCH_DISTRIBUTED] = BETON_ORDER_TORCH_DISTRIBUTED};
	loader->order = orders[options->order];
	loader->indices = input->indices;
	loader->num_indices = input->num_indices;
	loader->weights = input->weights;
	loader->num_weights = input->num_weights;
	loader->num_draws = (uint64_t)options->epoch_samples;
	loader->window_pages = (uint32_t)options->window_pages;
	if (options->order == RUN_ORDER_BALANCED)
		loader->class_field = options->class_field ? options->class_field : facts->train.label_field;
}

int run_loading_open_data(const run_options *options, bool weighted, const beton_loader_options *loader,
			  beton_loader **out, beton_error *err)
{
	beton_source sources[RUN_FILES_MAX];
	for (int i = 0; i < options->data.count; i++)
		sources[i] = (beton_source){.path = options->data.paths[i],
					    .weight = weighted ? options->data_weight[i] : 0};
	return beton_loader_open_many(out, sources, (uint32_t)options->data.count, loader, err);
}

static int open_training(const run_loading *loading, const run_order_input *input, beton_loader_options *loader,
			 beton_loader **out, beton_error *err)
{
	set_order(loading->options, loading->facts, input, loader);
	return run_loading_open_data(loading->options, true, loader, out, err);
}

int run_loading_open(const run_loading *loading, bool training, beton_loader **out, beton_error *err)
{
	const run_options *options = loading->options;
	beton_loader_options loader;
	beton_operation operations[2]; /* in training those that augment, in evaluation the views' */
	beton_image_options views[RUN_VIEWS_MAX];
	*out = NULL;
	beton_loader_options_init(&loader);
	run_loading_set_reading(options, &loader);
	loader.memory_limit = (uint64_t)options->memory_limit;
	loader.allocator = loading->allocator;
	loader.batch_size = (uint32_t)options->batch_size;
	loader.seed = options->seed;
	loader.rank = (uint32_t)loading->rank;
	loader.world_size = (uint32_t)loading->world_size;
	loader.last = training ? BETON_LAST_DROP : BETON_LAST_SHORT;
	set_pictures(loading, training, &loader.image);
	if (training) {
		loader.image.num_operations = augment(options, operations);
		loader.image.operations = operations;
		run_order_input input;
		int result = run_order_input_read(options, &input, err);
		if (result == BETON_OK)
			result = open_training(loading, &input, &loader, out, err);
		run_order_input_free(&input);
		return result;
	}
	if (run_loading_views(options) > 1) {
		loader.num_views = make_views(options, &loader.image, views, operations);
		loader.views = views;
	}
	return beton_loader_open(out, options->val, &loader, err);
}

int run_loading_epoch_length(const run_options *options, const run_facts *facts, const run_order_input *input,
			     int world_size, uint64_t *out, beton_error *err)
{
	const run_loading loading = {.options = options, .facts = facts, .world_size = world_size};
	beton_loader_options loader;
	beton_loader *opened = NULL;
	beton_loader_options_init(&loader);
	loader.batch_size = 1;
	loader.num_threads = 1;
	loader.world_size = (uint32_t)world_size;
	loader.seed = options->seed;
	int result = open_training(&loading, input, &loader, &opened, err);
	*out = result == BETON_OK ? beton_loader_epoch_length(opened) : 0;
	beton_loader_close(&opened);
	return result;
}
