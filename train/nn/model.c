/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <dtrain/model.h>

#include "common/system.h"
#include "core/graph.h"
#include "models.h"
#include "transformer_parts.h"

static const struct {
	const char *name;
	int64_t least_side; /* pixels: smaller pictures vanish in the strides */
	int64_t most_side;  /* larger pictures exceed the index of a global max pool; 0: no limit */
	dtrain_tensor (*build)(dtrain_graph *graph, dtrain_tensor image, int64_t classes);
	bool splits; /* the ranks of the mesh's axis "tensor" can divide it */
} models[] = {
	{"mlp", 1, 0, dtrain__mlp, true},        {"airbench94", 9, 136, dtrain__airbench94},
	{"resnet9", 11, 74, dtrain__resnet9},    {"resnet20", 4, 0, dtrain__resnet20},
	{"resnet18", 32, 0, dtrain__resnet18},   {"resnet34", 32, 0, dtrain__resnet34},
	{"resnet50", 32, 0, dtrain__resnet50},   {"resnet101", 32, 0, dtrain__resnet101},
	{"resnet152", 32, 0, dtrain__resnet152},
};

#define MODEL_COUNT ((int)(sizeof(models) / sizeof(models[0])))

const char *dtrain_model_name(int index)
{
	if (index >= MODEL_COUNT)
		return dtrain__vit_name(index - MODEL_COUNT);
	return index >= 0 ? models[index].name : NULL;
}

/* By its name or its config.json. */
static dtrain_tensor build_vit(dtrain_graph *graph, const char *model, dtrain_tensor image, int64_t classes)
{
	dtrain_transformer description;
	beton_error fault;
	int status = dtrain_transformer_find(model, &description, &fault);
	if (status == BETON_OK && description.type == DTRAIN_TRANSFORMER_VIT)
		return dtrain_vit_build(graph, &description, image, -1, classes);
	if (status != BETON_OK && dtrain__is_config_path(model))
		return dtrain__graph_fail(graph, status, "%s", fault.message);
	char names[400] = "";
	for (int i = 0; dtrain_model_name(i); i++)
		bt_append(names, sizeof(names), "%s%s", i ? ", " : "", dtrain_model_name(i));
	return dtrain__graph_fail(graph, BETON_NOT_FOUND, "no model '%s' of pictures; there are: %s", model, names);
}

bool dtrain__model_check_context(dtrain_graph *graph, const char *model)
{
	if (dtrain_graph_chunks(graph).ranks == 0)
		return true;
	dtrain__graph_fail(
		graph, BETON_INVALID_ARGUMENT,
		"model '%s': the mesh's axis \"context\" divides the tokens of language models; a picture has "
		"no such sequence, and a class token makes equal chunks impossible",
		model);
	return false;
}

dtrain_tensor dtrain_model_build(dtrain_graph *graph, const char *model, dtrain_tensor image, int64_t classes)
{
	if (DTRAIN__MISSING(graph, model))
		return -1;
	const dtrain__tensor *source = dtrain__graph_tensor(graph, image);
	if (!source || !dtrain__model_check_context(graph, model))
		return -1;
	if (classes < 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "model '%s': %lld classes", model,
					  (long long)classes);
	if (source->shape.ndim != 4)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "model '%s': the input is not a batch of pictures", model);
	for (int i = 0; i < MODEL_COUNT; i++) {
		if (strcmp(models[i].name, model) != 0)
			continue;
		if (!models[i].splits && dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).size > 1)
			return dtrain__graph_fail(
				graph, BETON_INVALID_ARGUMENT,
				"model '%s': the mesh's axis \"tensor\" divides transformers and the mlp, and no "
				"convolutions",
				model);
		int64_t height = source->shape.dim[2], width = source->shape.dim[3];
		if (height < models[i].least_side || width < models[i].least_side)
			return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
						  "model '%s': a picture of %lld x %lld pixels; needs at least %lld",
						  model, (long long)height, (long long)width,
						  (long long)models[i].least_side);
		if (models[i].most_side && (height > models[i].most_side || width > models[i].most_side))
			return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
						  "model '%s': a picture of %lld x %lld pixels; takes at most %lld",
						  model, (long long)height, (long long)width,
						  (long long)models[i].most_side);
		return models[i].build(graph, image, classes);
	}
	return build_vit(graph, model, image, classes);
}
