/* SPDX-License-Identifier: Apache-2.0 */
#include "example.h"

int engine_example_open(engine_example *out, const engine_example_options *options, beton_error *err)
{
	*out = (engine_example){.vision = {.image_size = options->image_size,
					   .crop = BETON_CROP_RANDOM,
					   .crop_scale = {0.08, 1},
					   .crop_ratio = {3. / 4, 4. / 3},
					   .drop_path = -1,
					   .val_ratio = 0.875,
					   .flip = 0.5,
					   .mean = {123.675, 116.28, 103.53},
					   .std = {58.395, 57.12, 57.375}},
				.lm = {.context_length = options->context_length, .end_of_text = -1}};
	int status = engine_model_find(options->model, NULL, &out->model, err);
	if (status != BETON_OK)
		return status;
	const dtrain_transformer *transformer = out->model.is_transformer ? &out->model.transformer : NULL;
	const bool reads_text = transformer && transformer->vocabulary;
	out->job = (engine_job){.task = reads_text ? &lm_task : &vision_task,
				.options = reads_text ? (const void *)&out->lm : &out->vision,
				.model = options->model,
				.transformer = transformer,
				.batch_size = options->batch_size,
				.runs = 1,
				.dropout = -1,
				.label_smoothing = reads_text ? 0 : 0.1};
	out->data.classes = reads_text ? transformer->vocabulary : options->classes;
	if (!reads_text)
		out->data.outputs = &vision_outputs[VISION_CLASSES];
	return transformer ? engine_check_model(&out->job, err) : BETON_OK;
}

void engine_example_close(engine_example *example)
{
	engine_model_free(&example->model);
}
