/* SPDX-License-Identifier: Apache-2.0 */
#include "vision.h"

#include <dtrain/model.h>

#include "common/error.h"
#include "vision_parts.h"

/* A standard deviation of 0..1, on the scale 0..255; the default and other large ones are there already. */
static double scaled(double std)
{
	return std <= 1 ? std * 255 : std;
}

/* Zeros and ones are also used to leave pixels as they are. */
int vision_check_scale(const double mean[3], const double std[3], beton_error *err)
{
	bool fraction = false, large = false, small_std = false;
	for (int i = 0; i < 3; i++) {
		fraction = fraction || (mean[i] > 0 && mean[i] < 1);
		large = large || mean[i] > 1;
		small_std = small_std || (std[i] > 0.01 && std[i] < 1);
	}
	if (!small_std && (!fraction || large))
		return BETON_OK;
	double factor = large ? 1 : 255;
	return bt_fail(
		err, BETON_INVALID_ARGUMENT,
		"--mean %g,%g,%g --std %g,%g,%g: these are on the scale 0..1, but pixels are 0..255: give --mean "
		"%g,%g,%g --std %g,%g,%g",
		mean[0], mean[1], mean[2], std[0], std[1], std[2], mean[0] * factor, mean[1] * factor, mean[2] * factor,
		scaled(std[0]), scaled(std[1]), scaled(std[2]));
}

static const char *find_model_problem(const dtrain_transformer *model)
{
	return model->vocabulary ? "a model of tokens, not of pictures; see --task" : NULL;
}

/* As timm's vision transformers have it. */
static const char *const no_decay[] = {"cls_token", "pos_embed", NULL};

/* The first metric decides which weights are the best. */
const engine_outputs vision_outputs[VISION_KINDS] = {
	[VISION_CLASSES] = {.key = "classes",
			    .names = {"class", "classes"},
			    .metrics = {{"top1", "top-1", true},
					{"top5", "top-5", true, .above = 5},
					{"loss", "loss", false}},
			    .num_metrics = 3},
	[VISION_PROBABILITIES] = {.key = "probabilities",
				  .names = {"class with a probability", "classes with probabilities"},
				  .metrics = {{"top1", "top-1", true},
					      {"top5", "top-5", true, .above = 5},
					      {"loss", "loss", false}},
				  .num_metrics = 3},
	[VISION_LABELS] = {.key = "labels",
			   .names = {"label of its own", "labels of their own"},
			   .metrics = {{"f1", "F1", true},
				       {"labels", "right labels", true},
				       {"exact", "pictures with all labels right", true},
				       {"loss", "loss", false}},
			   .num_metrics = 4},
	[VISION_NUMBERS] = {.key = "numbers",
			    .names = {"number", "numbers"},
			    .metrics = {{"loss", "mean squared error", false}, {"mae", "mean absolute error", false}},
			    .num_metrics = 2},
};

const engine_task vision_task = {
	.name = "vision",
	.sample = "picture",
	.unit = "images",
	.field_names = {[VISION_IMAGE] = "pictures", [VISION_LABEL] = "labels"},
	.num_fields = 2,
	.class_field = VISION_LABEL,
	.has_head = true,
	.no_decay = no_decay,
	.model_name = dtrain_model_name,
	.find_model_problem = find_model_problem,
	.read_data = vision_read_data,
	.class_names = vision_class_names,
	.check = vision_check,
	.open_loader = vision_open_loader,
	.build = vision_build,
	.prepare = vision_prepare,
	.find_early = vision_find_early,
	.check_batch = vision_check_batch,
	.feed_run = vision_feed_run,
	.count_runs = vision_count_views,
	.add_batch = vision_add_batch,
};
