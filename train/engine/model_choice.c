/* SPDX-License-Identifier: Apache-2.0 */
#include "model_choice.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"

int engine_model_find(const char *name, const char *text, engine_model *out, beton_error *err)
{
	*out = (engine_model){.transformer = {.struct_size = sizeof(out->transformer)}};
	int status = text ? BETON_OK : dtrain_transformer_text(name, &out->text, err);
	if (status != BETON_OK)
		return status;
	if (!text && !out->text) {
		out->is_transformer = dtrain_transformer_find(name, &out->transformer, err) == BETON_OK;
		return BETON_OK;
	}
	status = dtrain_transformer_parse(text ? text : out->text, name, &out->transformer, err);
	out->is_transformer = status == BETON_OK;
	if (status != BETON_OK)
		engine_model_free(out);
	return status;
}

int64_t engine_model_image_size(const engine_model *model)
{
	return model->is_transformer && model->transformer.image_size ? model->transformer.image_size : 224;
}

void engine_model_free(engine_model *model)
{
	free(model->text);
	*model = (engine_model){0};
}

int engine_check_model(const engine_job *job, beton_error *err)
{
	const engine_task *task = job->task;
	char list[400] = "";
	bt_suggestion like;
	bt_suggest_begin(&like, job->model);
	for (int i = 0; !job->transformer && task->model_name(i); i++) {
		if (strcmp(task->model_name(i), job->model) == 0)
			return BETON_OK;
		bt_suggest_try(&like, task->model_name(i));
		bt_append(list, sizeof(list), "%s%s", i ? ", " : "", task->model_name(i));
	}
	if (!job->transformer)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--model: '%s' is neither a file nor one of %s%s",
			       job->model, list, bt_suggest_text(&like));
	const char *problem = task->find_model_problem(job->transformer);
	return problem ? bt_fail(err, BETON_INVALID_ARGUMENT, "--model: '%s' is %s", job->model, problem) : BETON_OK;
}

dtrain_transformer engine_model_of(const engine_job *job)
{
	dtrain_transformer model = *job->transformer;
	if (job->dropout >= 0)
		model.dropout = model.embedding_dropout = model.attention_dropout = job->dropout;
	return model;
}

dtrain_tensor engine_model_random(const dtrain_transformer *model, dtrain_graph *graph, bool training,
				  engine_network *network)
{
	dtrain_shape randoms = dtrain_shape_of(1, (int64_t[]){DTRAIN_RANDOMS});
	network->has_random = training && (model->dropout > 0 || model->embedding_dropout > 0 ||
					   model->attention_dropout > 0 || model->drop_path > 0);
	if (!network->has_random)
		return -1;
	return network->random = dtrain_graph_input(graph, "random", DTRAIN_I64, &randoms);
}
