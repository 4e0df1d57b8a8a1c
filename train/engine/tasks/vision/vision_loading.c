/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "vision_parts.h"

enum { OPERATIONS_MAX = 8 };

int vision_count_views(const engine_job *job)
{
	static const int views[] = {
		[VISION_TTA_NONE] = 1, [VISION_TTA_FLIP] = 2, [VISION_TTA_FLIP_SHIFT] = VISION_VIEWS_MAX};
	return views[vision_options_of(job)->tta];
}

void vision_normalize(const vision_options *options, beton_image_options *image)
{
	image->normalize = true;
	for (int channel = 0; channel < 3; channel++) {
		image->mean[channel] = (float)options->mean[channel];
		image->std[channel] = (float)options->std[channel];
	}
}

/* Each picture and its mirror image; with flip-shift also both moved to the lower right and to the upper left. Returns
 * the number of views. shifts: memory for their operations. */
static uint32_t make_views(const engine_job *job, const beton_image_options *image,
			   beton_image_options views[VISION_VIEWS_MAX], beton_operation shifts[2])
{
	uint32_t count = (uint32_t)vision_count_views(job);
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

/* Training operations, in order. */
struct operations {
	beton_operation list[OPERATIONS_MAX];
	uint32_t count;
};

static beton_operation *add(struct operations *operations, beton_operation_kind kind)
{
	beton_operation *operation = &operations->list[operations->count++];
	beton_loader_operation_init(operation, kind);
	return operation;
}

static beton_operation *add_chance(struct operations *operations, beton_operation_kind kind, double probability)
{
	beton_operation *operation = add(operations, kind);
	operation->probability = probability;
	return operation;
}

/* The integer part of the mean, as in FFCV's example. */
static void fill_with_mean(const vision_options *options, beton_operation *operation)
{
	for (int channel = 0; channel < 3; channel++)
		operation->fill[channel] = (uint8_t)fmin(fmax(options->mean[channel], 0), 255);
}

/* torchvision's, with its black fill. */
static void add_auto_augment(const vision_options *options, struct operations *operations)
{
	if (options->auto_augment == VISION_AUTO_TRIVIAL)
		add(operations, BETON_TRIVIAL_AUGMENT);
	if (options->auto_augment != VISION_AUTO_RAND)
		return;
	beton_operation *operation = add(operations, BETON_RAND_AUGMENT);
	operation->count = (uint32_t)options->ra_ops;
	operation->size = (uint32_t)options->ra_magnitude;
}

static void add_colours(const vision_options *options, struct operations *operations)
{
	bool jitters = false;
	for (int i = 0; i < 4; i++)
		jitters = jitters || options->color_jitter[i] > 0;
	if (jitters)
		memcpy(add(operations, BETON_COLOR_JITTER)->jitter, options->color_jitter,
		       sizeof(options->color_jitter));
	if (options->grayscale > 0)
		add_chance(operations, BETON_GRAYSCALE, options->grayscale);
}

/* FFCV's RandomTranslate and Cutout, filled with the mean unless the padding is reflected; torchvision's RandomErasing,
 * whose value 0 is the mean, as it comes after normalization. */
static void add_covers(const vision_options *options, struct operations *operations)
{
	if (options->translate) {
		beton_operation *operation = add(operations, BETON_TRANSLATE);
		operation->size = (uint32_t)options->translate;
		if (options->translate_fill == VISION_FILL_REFLECT)
			operation->padding = BETON_PADDING_REFLECT;
		fill_with_mean(options, operation);
	}
	if (options->cutout) {
		beton_operation *operation = add(operations, BETON_CUTOUT);
		operation->size = (uint32_t)options->cutout;
		fill_with_mean(options, operation);
	}
	if (options->random_erase > 0) {
		beton_operation *operation = add_chance(operations, BETON_ERASE, options->random_erase);
		operation->noise = options->erase_mode == VISION_ERASE_NOISE;
		fill_with_mean(options, operation);
	}
}

/* The order of torchvision's and timm's recipes, but for the horizontal flip, which the loader does afterwards: that
 * gives the same distribution of results. */
static void augment(const vision_options *options, struct operations *operations)
{
	if (options->vertical_flip > 0)
		add_chance(operations, BETON_FLIP_VERTICAL, options->vertical_flip);
	add_auto_augment(options, operations);
	add_colours(options, operations);
	add_covers(options, operations);
}

bool vision_mixes(const engine_job *job)
{
	return vision_options_of(job)->mixup > 0 || vision_options_of(job)->cutmix > 0;
}

/* One of MixUp and CutMix is drawn for each batch with equal probability, as in the recipes of timm and torchvision.
 * Returns the number of operations. */
static uint32_t mix(const vision_options *options, beton_batch_operation operations[2])
{
	uint32_t count = 0;
	if (options->mixup > 0) {
		beton_loader_batch_operation_init(&operations[count], BETON_BATCH_MIXUP);
		operations[count++].alpha = options->mixup;
	}
	if (options->cutmix > 0) {
		beton_loader_batch_operation_init(&operations[count], BETON_BATCH_CUTMIX);
		operations[count++].alpha = options->cutmix;
	}
	for (uint32_t i = 0; i < count; i++)
		operations[i].probability = 1.0 / count;
	return count;
}

static void set_pictures(const engine_rank *engine, bool training, beton_image_options *image)
{
	const vision_options *options = vision_options_of(&engine->job);
	const engine_dataset *dataset = training ? &engine->data->train : &engine->data->val;
	image->field = dataset->fields[VISION_IMAGE];
	image->height = image->width = (uint32_t)options->image_size;
	image->crop = training ? (beton_crop)options->crop : BETON_CROP_CENTER;
	if (training) {
		memcpy(image->crop_scale, options->crop_scale, sizeof(image->crop_scale));
		memcpy(image->crop_ratio, options->crop_ratio, sizeof(image->crop_ratio));
	}
	image->center_ratio = options->val_ratio;
	image->flip_probability = training ? options->flip : 0;
	image->flip_mode = training ? (uint64_t)options->flip_mode : BETON_FLIP_RANDOM;
	image->dtype = engine_batch_type(engine->staged ? DTRAIN_U8 : engine->dtype);
	image->layout = engine->staged ? BETON_NHWC : BETON_NCHW;
	/* Operations need mean and std, too. */
	vision_normalize(options, image);
	image->normalize = !engine->staged;
}

int vision_open_loader(const engine_rank *engine, bool training, beton_loader_options *options,
		       const engine_files *files, beton_loader **out, beton_error *err)
{
	const vision_options *vision = vision_options_of(&engine->job);
	const engine_dataset *dataset = training ? &engine->data->train : &engine->data->val;
	struct operations operations = {.count = 0};
	vision_labels labels = {.count = 0};
	beton_operation shifts[2];
	beton_batch_operation batch_operations[2];
	beton_image_options views[VISION_VIEWS_MAX];
	set_pictures(engine, training, &options->image);
	if (training) {
		augment(vision, &operations);
		options->image.num_operations = operations.count;
		options->image.operations = operations.list;
		options->num_batch_operations = mix(vision, batch_operations);
		options->batch_operations = batch_operations;
	} else if (vision_count_views(&engine->job) > 1) {
		options->num_views = make_views(&engine->job, &options->image, views, shifts);
		options->views = views;
	}
	int status = BETON_OK;
	if (vision_kind_of(engine->data) != VISION_CLASSES) {
		status = vision_labels_split(vision, dataset->fields[VISION_LABEL], &labels, err);
		options->joined = labels.names;
		options->num_joined = (uint32_t)labels.count;
	}
	if (status == BETON_OK)
		status = files->open(files->context, options, out, err);
	vision_labels_free(&labels);
	return status;
}
