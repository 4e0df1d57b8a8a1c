/* SPDX-License-Identifier: Apache-2.0 */
#include "example.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"

/* As ImageNet has. */
enum { CLASSES = 1000 };

/* Checks the name of a model that is not a transformer. It may still be a misspelt transformer's. */
static int check_name(const engine_job *job, beton_error *err)
{
	const engine_task *tasks[] = {&vision_task, &lm_task};
	char list[640] = "";
	bt_suggestion like;
	bt_suggest_begin(&like, job->model);
	for (int k = 0; k < 2; k++)
		for (int i = 0; tasks[k]->model_name(i); i++) {
			if (strcmp(tasks[k]->model_name(i), job->model) == 0)
				return BETON_OK;
			bt_suggest_try(&like, tasks[k]->model_name(i));
			bt_append(list, sizeof(list), "%s%s", *list ? ", " : "", tasks[k]->model_name(i));
		}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "'%s' is neither a file nor one of %s%s", job->model, list,
		       bt_suggest_text(&like));
}

/* Options that would change nothing, and a text that is too long. */
static int check_given(const engine_example_options *options, const engine_job *job, bool reads_text, beton_error *err)
{
	const struct {
		const char *name;
		bool given, of_text;
	} all[] = {{"image-size", options->image_size > 0, false},
		   {"classes", options->classes > 0, false},
		   {"context-length", options->context_length > 0, true}};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].given && all[i].of_text != reads_text)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s is for models of %s, and %s is one of %s",
				       all[i].name, all[i].of_text ? "text" : "pictures", options->model,
				       reads_text ? "text" : "pictures");
	if (reads_text && options->context_length > job->transformer->positions)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--context-length %" PRId64 ": %s has positions for %" PRId64 " tokens",
			       options->context_length, options->model, job->transformer->positions);
	return BETON_OK;
}

int engine_example_open(engine_example *out, const engine_example_options *options, beton_error *err)
{
	const int64_t size = options->image_size ? options->image_size : options->usual_size;
	*out = (engine_example){.vision = {.image_size = size,
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
	if (!out->vision.image_size)
		out->vision.image_size = engine_model_image_size(&out->model);
	const dtrain_transformer *transformer = out->model.is_transformer ? &out->model.transformer : NULL;
	const bool reads_text = transformer && transformer->vocabulary;
	out->job = (engine_job){.task = reads_text ? &lm_task : &vision_task,
				.options = reads_text ? (const void *)&out->lm : &out->vision,
				.model = options->model,
				.transformer = transformer,
				.batch_size = options->batch_size,
				.micro_batches = 1,
				.dropout = -1,
				.label_smoothing = reads_text ? 0 : 0.1};
	out->data.classes = reads_text ? transformer->vocabulary : options->classes ? options->classes : CLASSES;
	if (!reads_text)
		out->data.outputs = &vision_outputs[VISION_CLASSES];
	status = transformer ? engine_check_model(&out->job, err) : check_name(&out->job, err);
	return status == BETON_OK ? check_given(options, &out->job, reads_text, err) : status;
}

void engine_example_close(engine_example *example)
{
	engine_model_free(&example->model);
}

/* Bytes, or numbers around 0, also in 16 bits; labels and tokens below classes. */
static void *make_up(size_t count, size_t element, int64_t classes)
{
	char *data = calloc(count, element);
	for (size_t i = 0; i < count && data; i++) {
		float value = (float)(i * 2654435761u % 1000) * 2e-3f - 1;
		int64_t label = (int64_t)(i * 2654435761u >> 7) % classes;
		if (element == sizeof(label))
			memcpy(data + i * element, &label, sizeof(label));
		else if (element == sizeof(value))
			memcpy(data + i * element, &value, sizeof(value));
		else
			data[i * element] = (char)(i * 2654435761u >> 13 & 0x3f);
	}
	return data;
}

int engine_example_feed(engine_rank *engine, beton_error *err)
{
	const engine_network *network = &engine->train;
	beton_tensor tensors[ENGINE_INPUTS] = {0};
	const beton_batch batch = {.count = (uint32_t)engine->job.batch_size,
				   .num_tensors = (uint32_t)network->num_inputs,
				   .tensors = tensors};
	int status = BETON_OK;
	for (int i = 0; i < network->num_inputs && status == BETON_OK; i++) {
		const engine_input *input = &network->inputs[i];
		dtrain_dtype dtype = dtrain_program_dtype(network->program, input->tensor);
		size_t count = (size_t)dtrain_shape_count(dtrain_program_shape(network->program, input->tensor));
		tensors[i] = (beton_tensor){.name = input->name,
					    .dtype = engine_batch_type(dtype),
					    .data = make_up(count, dtrain_dtype_size(dtype), engine->data->classes)};
		if (!tensors[i].data)
			status = bt_fail(err, BETON_NO_MEMORY, "out of memory for %zu elements of a batch", count);
	}
	if (status == BETON_OK)
		status = engine_feed_network(engine, network, &batch, err);
	if (status == BETON_OK)
		status = engine_synchronize(engine, "the batch", err);
	for (int i = 0; i < network->num_inputs; i++)
		free(tensors[i].data);
	return status;
}
