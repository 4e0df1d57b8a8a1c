/* SPDX-License-Identifier: Apache-2.0 */
#include "vision.h"

#include <string.h>

#include <dtrain/model.h>
#include <dtrain/transformer.h>

#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "parts.h"

static const char *find_problem(const engine_job *job, bool validates)
{
	const vision_options *options = vision_options_of(job);
	if (options->crop_scale[0] > options->crop_scale[1])
		return "--crop-scale: MIN is above MAX";
	if (options->crop_ratio[0] > options->crop_ratio[1])
		return "--crop-ratio: MIN is above MAX";
	if (options->translate >= options->image_size)
		return "--translate is not below --image-size";
	if (options->flip_mode == BETON_FLIP_ALTERNATE && options->flip == 0)
		return "--flip-mode alternate needs a --flip above 0";
	if (options->cutout > options->image_size)
		return "--cutout is above --image-size";
	if (options->color_jitter[3] > 0.5)
		return "--color-jitter: the hue is above 0.5";
	if (options->tta != VISION_TTA_NONE && !validates)
		return "--tta needs --val";
	if (job->evaluates && !options->classes)
		return "--classes is missing: the metadata of the weights do not have it";
	if (options->tta == VISION_TTA_FLIP_SHIFT && options->image_size < 2)
		return "--tta flip-shift needs an --image-size above 1";
	return NULL;
}

/* A name with a slash or the ending .json is a file's, which describes the model. */
static int check_name(const engine_job *job, beton_error *err)
{
	dtrain_transformer description = {.struct_size = sizeof(description)};
	char list[400] = "";
	bt_suggestion like;
	bt_suggest_begin(&like, job->model);
	for (int i = 0; dtrain_model_name(i); i++) {
		if (strcmp(dtrain_model_name(i), job->model) == 0)
			return BETON_OK;
		bt_suggest_try(&like, dtrain_model_name(i));
		bt_append(list, sizeof(list), "%s%s", i ? ", " : "", dtrain_model_name(i));
	}
	int status = dtrain_transformer_find(job->model, &description, err);
	if (status == BETON_NOT_FOUND)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--model: '%s' is no file and not one of %s%s", job->model,
			       list, bt_suggest_text(&like));
	if (status == BETON_OK && description.vocabulary)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "'%s' is a model of tokens, not of pictures; see --task",
				 job->model);
	bt_prefix(err, "--model");
	return status;
}

static int describe(const engine_job *job, char **out, beton_error *err)
{
	(void)job;
	(void)err;
	*out = NULL;
	return BETON_OK;
}

static int64_t units(const engine_rank *engine)
{
	(void)engine;
	return 1;
}

static void set_samples(const engine_job *job, const engine_data *data, bool training, beton_loader_options *options)
{
	(void)job;
	(void)data;
	(void)training;
	(void)options;
}

const engine_task vision_task = {
	.name = "vision",
	.sample = "picture",
	.unit = "images",
	.classes = {"class", "classes"},
	.field_names = {[VISION_IMAGE] = "pictures", [VISION_LABEL] = "labels"},
	.num_fields = 2,
	.class_field = VISION_LABEL,
	.has_head = true,
	.metrics = {{"top1", "top-1", true}, {"top5", "top-5", true}, {"loss", "loss", false}},
	.num_metrics = 3,
	.model_name = dtrain_model_name,
	.check_name = check_name,
	.describe = describe,
	.units = units,
	.find_problem = find_problem,
	.read_data = vision_read_data,
	.class_names = vision_class_names,
	.check = vision_check,
	.set_samples = set_samples,
	.open_loader = vision_open_loader,
	.build = vision_build,
	.prepare = vision_prepare,
	.find_early = vision_find_early,
	.run_batch = vision_run_batch,
	.add_batch = vision_add_batch,
};
