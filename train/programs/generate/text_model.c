/* SPDX-License-Identifier: Apache-2.0 */
#include "text_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "engine/pretrained/pretrained.h"

/* Texts at once: 16 take three to four times as long as one on a CPU, where one is as fast as memory is. And the most
 * bytes of their keys and values, if there is more than one. */
enum { TEXTS_MAX = 16, CACHE_MAX = 1 << 30 };

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t length_of(const generate_model *model, int index)
{
	int64_t length = (int64_t)1 << index;
	return length < model->description.positions ? length : model->description.positions;
}

/* The smallest network for that many tokens. */
static int find_network(const generate_model *model, int64_t count)
{
	int index = 0;
	while (length_of(model, index) < count)
		index++;
	return index;
}

/* Numbers of a token's keys in a layer, of this rank's heads. Fewer heads than ranks are refused by the graph. */
static int64_t row_of(const generate_model *model)
{
	int64_t heads = model->description.kv_heads / model->part.ranks;
	return (heads > 0 ? heads : 1) * model->description.head_size;
}

/* Bytes of the keys of a layer, or its values, of all texts. row: numbers of a token's. */
static size_t part_bytes(const generate_model *model, int64_t row)
{
	const dtrain_transformer *t = &model->description;
	dtrain_device_caps caps;
	dtrain_device_get_api(model->device)->caps(model->device, &caps);
	size_t bytes = (size_t)(model->texts * t->positions * row) * sizeof(float);
	return (bytes + caps.alignment - 1) / caps.alignment * caps.alignment;
}

/* The keys of each layer, then their values, of the first texts. Other stages' layers, and all before the rank's layers
 * are known, have no memory: no op that runs here reads them. */
static void place_cache(const generate_model *model, int64_t texts, dtrain_graph *graph, dtrain_tensor *out)
{
	const dtrain_transformer *t = &model->description;
	static float nowhere;
	dtrain_shape rows = dtrain_shape_of(3, (int64_t[]){texts, t->positions, row_of(model)});
	size_t bytes = part_bytes(model, row_of(model));
	for (int64_t i = 0, place = 0; i < 2 * t->layers; i++) {
		bool here = model->cache && model->part.layers[i % t->layers];
		char *memory = here ? (char *)model->cache + (size_t)place++ * bytes : (char *)&nowhere;
		out[i] = dtrain_graph_memory(graph, DTRAIN_F32, &rows, memory);
	}
}

static void build_network(generate_model *model, struct generate_network *network, int64_t texts, int64_t length,
			  dtrain_graph *graph, dtrain_tensor *cache)
{
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_shape text = dtrain_shape_of(2, (int64_t[]){texts, length});
	dtrain_shape one = dtrain_shape_of(1, (int64_t[]){1}), rows = dtrain_shape_of(1, &texts);
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	place_cache(model, texts, graph, cache);
	inputs.keys = cache;
	inputs.values = cache + model->description.layers;
	network->tokens = inputs.tokens = dtrain_graph_input(graph, "tokens", DTRAIN_I64, &text);
	network->position = inputs.position = dtrain_graph_input(graph, "position", DTRAIN_I64, &text);
	network->past = inputs.past = dtrain_graph_input(graph, "past", DTRAIN_I64, &one);
	network->row = dtrain_graph_input(graph, "row", DTRAIN_I64, &rows);
	dtrain_transformer_build(graph, &model->description, &inputs, &outputs);
	network->logits = dtrain_transformer_logits(graph, &outputs, network->row);
}

/* All networks have the borders of the first. */
static int find_borders(generate_part *part, const dtrain_graph *whole, beton_error *err)
{
	if (part->first[part->stages - 1])
		return BETON_OK;
	int32_t blocks = dtrain_stage_costs(whole, NULL, 0);
	double *costs = calloc((size_t)blocks, sizeof(*costs));
	if (!costs)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the costs of %d blocks", blocks);
	dtrain_stage_costs(whole, costs, blocks);
	int status = dtrain_stage_divide(costs, blocks, part->stages, part->first, err);
	free(costs);
	return status;
}

/* This rank's stage takes the place of the whole model's graph. */
static int cut(generate_model *model, struct generate_network *network, dtrain_graph **graph, dtrain_tensor *cache,
	       beton_error *err)
{
	generate_part *part = &model->part;
	dtrain_tensor *tensors[] = {&network->tokens, &network->position, &network->past, &network->row,
				    &network->logits};
	int status = find_borders(part, *graph, err);
	if (status == BETON_OK)
		status = dtrain_stage_create(*graph, part->first, part->stages, part->stage, model->params,
					     &network->stage, err);
	dtrain_graph_destroy(graph);
	if (status != BETON_OK)
		return status;
	for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++)
		*tensors[i] = dtrain_stage_tensor(network->stage, *tensors[i]);
	for (int64_t i = 0; i < 2 * model->description.layers; i++)
		cache[i] = dtrain_stage_tensor(network->stage, cache[i]);
	*graph = dtrain_stage_take_graph(network->stage);
	return BETON_OK;
}

/* cache: tensors of keys and values; negative: not of this rank. */
static int make_graph(generate_model *model, struct generate_network *network, int64_t texts, int64_t length,
		      dtrain_tensor *cache, dtrain_graph **out, beton_error *err)
{
	bool divided = model->part.stages > 1;
	int status = dtrain_graph_create(divided ? model->part.outline : model->params, false, out, err);
	if (status != BETON_OK)
		return status;
	build_network(model, network, texts, length, *out, cache);
	if (divided)
		status = cut(model, network, out, cache, err);
	if (status == BETON_OK && network->logits >= 0)
		dtrain_graph_keep(*out, network->logits);
	return status;
}

static int connect(generate_model *model, struct generate_network *network, beton_error *err)
{
	const dtrain_pipeline_stage own = {
		.number = model->part.stage, .stage = network->stage, .program = network->program};
	return network->stage
		       ? dtrain_pipeline_create(model->mesh, model->part.schedule, &own, 1, &network->pipeline, err)
		       : BETON_OK;
}

static int make_network(generate_model *model, struct generate_network *network, int64_t texts, int64_t length,
			beton_error *err)
{
	dtrain_graph *graph = NULL;
	if (network->program)
		return BETON_OK;
	dtrain_tensor *cache = calloc(2 * (size_t)model->description.layers, sizeof(*cache));
	int status = cache ? make_graph(model, network, texts, length, cache, &graph, err)
			   : bt_fail(err, BETON_NO_MEMORY, "out of memory for a network");
	if (status == BETON_OK)
		status = model->sync ? dtrain_sync_compile(model->sync, &graph, &network->program, err)
				     : dtrain_graph_compile(&graph, &network->program, err);
	dtrain_graph_destroy(&graph);
	free(cache);
	return status == BETON_OK ? connect(model, network, err) : status;
}

/* The layers of this rank, of a network that is given up again. */
static int find_layers(generate_model *model, beton_error *err)
{
	struct generate_network network = {.program = NULL};
	generate_part *part = &model->part;
	size_t layers = (size_t)model->description.layers;
	dtrain_tensor *cache = calloc(2 * layers, sizeof(*cache));
	dtrain_graph *graph = NULL;
	part->layers = calloc(layers, sizeof(*part->layers));
	int status = cache && part->layers ? make_graph(model, &network, 1, 1, cache, &graph, err)
					   : bt_fail(err, BETON_NO_MEMORY, "out of memory for a network");
	for (size_t i = 0; i < layers && status == BETON_OK; i++) {
		part->layers[i] = cache[i] >= 0;
		part->num_layers += part->layers[i];
	}
	dtrain_graph_destroy(&graph);
	dtrain_stage_destroy(&network.stage);
	free(cache);
	return status;
}

static bool predicts_next(const dtrain_transformer *model)
{
	return model->vocabulary && model->type != DTRAIN_TRANSFORMER_BERT;
}

/* A name that the library knows may be that of a model of pictures. */
static int find_named(const char *name, dtrain_transformer *out, beton_error *err)
{
	char names[256] = "";
	int status = dtrain_transformer_find(name, out, err);
	if (status != BETON_NOT_FOUND || strchr(name, '/') || bt_ends_with(name, ".json"))
		return status;
	for (int i = 0; dtrain_transformer_name(i); i++) {
		*out = (dtrain_transformer){.struct_size = sizeof(*out)};
		if (dtrain_transformer_find(dtrain_transformer_name(i), out, err) == BETON_OK && predicts_next(out))
			bt_append(names, sizeof(names), "%s%s", *names ? ", " : "", dtrain_transformer_name(i));
	}
	return bt_fail(
		err, BETON_INVALID_ARGUMENT,
		"no model '%s' that predicts the next token; there are: %s; a file's name has a slash or ends in .json",
		name, names);
}

/* The config.json that other programs write beside their weights; NULL: there is none, or no memory. */
static char *find_config(const char *weights)
{
	struct stat info;
	bool folder = stat(weights, &info) == 0 && S_ISDIR(info.st_mode);
	const char *slash = strrchr(weights, '/');
	char *path = folder  ? bt_format("%s/config.json", weights)
		     : slash ? bt_format("%.*s/config.json", (int)(slash - weights), weights)
			     : strdup("./config.json");
	if (path && access(path, F_OK) == 0)
		return path;
	free(path);
	return NULL;
}

static int find_description(const run_source *source, const char *name, dtrain_transformer *out, beton_error *err)
{
	const char *text = run_source_info(source, "description"), *known = run_source_info(source, "model");
	const char *task = run_source_info(source, "task");
	char *beside = name || text || known ? NULL : find_config(source->path);
	int status = BETON_OK;
	*out = (dtrain_transformer){.struct_size = sizeof(*out)};
	if (task && strcmp(task, "lm") != 0)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"'%s' holds a model of --task %s; a text needs one of lm, and dtrain-predict takes those "
			"of pictures",
			source->path, task);
	if (name)
		status = find_named(name, out, err);
	else if (text)
		status = dtrain_transformer_parse(text, source->path, out, err);
	else if (known)
		status = find_named(known, out, err);
	else if (beside)
		status = find_named(beside, out, err);
	else
		status = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "--model is missing: the metadata of '%s' do not describe its model, and there is no "
				 "config.json beside it",
				 source->path);
	free(beside);
	if (status == BETON_OK && !predicts_next(out))
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is not a model that predicts the next token",
				 name ? name : source->path);
	return status;
}

/* Weights of other programs say nothing of it. */
static int find_end_of_text(generate_model *model, const run_source *source, beton_error *err)
{
	const char *text = run_source_info(source, "end_of_text");
	uint64_t token = 0;
	model->end_of_text = -1;
	if (!text)
		return BETON_OK;
	int status = bt_parse_u64("end_of_text", text, 0, (uint64_t)model->description.vocabulary - 1, &token, err);
	if (status == BETON_OK)
		model->end_of_text = (int64_t)token;
	else
		bt_prefix(err, "%s", source->path);
	return status;
}

static int allocate(generate_model *model, beton_error *err)
{
	size_t positions = (size_t)model->description.positions, count = (size_t)model->texts * positions;
	model->seen = calloc(count, sizeof(*model->seen));
	model->inputs = calloc(2 * count + (size_t)model->texts, sizeof(*model->inputs));
	if (!model->seen || !model->inputs)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %zu tokens", count);
	model->cache_bytes = 2 * (size_t)model->part.num_layers * part_bytes(model, row_of(model));
	/* A stage may have no layer. */
	int status = dtrain_device_get_api(model->device)
			     ->alloc(model->device, model->cache_bytes + sizeof(float), &model->cache, err);
	if (status != BETON_OK)
		bt_prefix(err, "keys and values of %zu positions", positions);
	return status;
}

/* Nanoseconds that a thread has to take for a product to be worth waking, at speeds of a core that most processors
 * have: where a thread had less to do, two of them were slower than one. */
#define WORTH_NS 1e5
#define BYTES_A_NS 10
#define FLOPS_A_NS 50

/* A token is a row of each product, so that one text at a time takes as long as reading the weights. */
int32_t generate_model_threads(const generate_model *model, int64_t texts, int64_t ranks)
{
	const dtrain_transformer *t = &model->description;
	int64_t attention = t->width * t->head_size * 2 * (t->heads + t->kv_heads);
	bool gated = t->type == DTRAIN_TRANSFORMER_LLAMA;
	int64_t products = t->layers * (gated ? 5 : 4) + 1, cores = bt_available_cores();
	int64_t weights = t->layers * (attention + (gated ? 3 : 2) * t->width * t->inner) + t->width * t->vocabulary;
	double each = (double)weights / (double)(products * ranks);
	double reads = each * sizeof(float) / BYTES_A_NS;
	double computes = 2 * each * (double)least(texts, TEXTS_MAX) / FLOPS_A_NS;
	int64_t threads = (int64_t)((reads > computes ? reads : computes) / WORTH_NS);
	return (int32_t)least(threads > 1 ? threads : 1, cores);
}

/* Divides the wanted texts into as few and as equal rounds as possible, the same for any mesh. */
static void choose_texts(generate_model *model, int64_t wanted)
{
	const dtrain_transformer *t = &model->description;
	model->texts = 1;
	int64_t each = 2 * t->layers * (int64_t)part_bytes(model, t->kv_heads * t->head_size), most = CACHE_MAX / each;
	most = most < 1 ? 1 : least(most, TEXTS_MAX);
	int64_t times = (wanted + most - 1) / most;
	model->texts = (wanted + times - 1) / times;
}

static int32_t size_along(const dtrain_mesh *mesh, const char *axis)
{
	const dtrain_group *line = mesh ? dtrain_mesh_group(mesh, axis) : NULL;
	return line ? dtrain_group_size(line) : 1;
}

/* One token goes through the stages at a time. */
static int make_schedule(generate_part *part, beton_error *err)
{
	dtrain_pipeline_options options;
	dtrain_pipeline_options_init(&options);
	options.schedule = "gpipe";
	options.ranks = part->stages;
	options.micro_batches = 1;
	int status = dtrain_pipeline_schedule_create(&options, &part->schedule, err);
	return status == BETON_OK ? dtrain_pipeline_schedule_lower(part->schedule, err) : status;
}

/* After the parameters, which the outline is like. */
static int find_part(generate_model *model, beton_error *err)
{
	generate_part *part = &model->part;
	int status = BETON_OK;
	if (model->mesh)
		status = dtrain_sync_create(model->params, model->mesh, NULL, &model->sync, err);
	if (status == BETON_OK && part->stages > 1)
		status = dtrain_params_create_outline(model->params, &part->outline, err);
	if (status == BETON_OK && part->stages > 1)
		status = make_schedule(part, err);
	return status == BETON_OK ? find_layers(model, err) : status;
}

int generate_model_load(generate_model *model, dtrain_device *device, dtrain_mesh *mesh, int64_t texts,
			beton_error *err)
{
	run_init init = {0};
	generate_part *part = &model->part;
	model->device = device;
	model->mesh = mesh;
	part->stages = size_along(mesh, "pipeline");
	part->stage = part->stages > 1 ? dtrain_group_rank(dtrain_mesh_group(mesh, "pipeline")) : 0;
	part->ranks = size_along(mesh, "tensor");
	choose_texts(model, texts);
	int status = dtrain_device_get_api(device)->stream_create(device, &model->stream, err);
	if (status == BETON_OK)
		status = dtrain_params_create(device, DTRAIN_F32, &model->params, err);
	if (status == BETON_OK)
		status = find_part(model, err);
	if (status == BETON_OK)
		status = allocate(model, err);
	if (status == BETON_OK)
		status = make_network(model, model->networks, model->texts, 1, err);
	if (status == BETON_OK)
		status = run_init_apply(&model->source, part->outline ? part->outline : model->params, model->params,
					model->stream, true, &init, err);
	if (status == BETON_OK && model->sync)
		status = dtrain_sync_start(model->sync, err);
	run_init_free(&init);
	run_source_close(&model->source);
	return status;
}

int generate_model_open(generate_model *model, const char *weights, const char *name, beton_error *err)
{
	*model = (generate_model){.end_of_text = -1};
	int status = run_source_open(weights, &model->source, err);
	if (status == BETON_OK)
		status = find_description(&model->source, name, &model->description, err);
	return status == BETON_OK ? find_end_of_text(model, &model->source, err) : status;
}

static void close_network(generate_model *model, struct generate_network *network)
{
	if (network->captured)
		dtrain_device_get_api(model->device)->capture_destroy(network->captured);
	dtrain_pipeline_destroy(&network->pipeline);
	dtrain_program_destroy(&network->program);
	dtrain_stage_destroy(&network->stage);
}

void generate_model_disconnect(generate_model *model)
{
	for (int i = 0; i < GENERATE_LENGTHS; i++) {
		dtrain_pipeline_destroy(&model->networks[i].pipeline);
		dtrain_pipeline_destroy(&model->alone[i].pipeline);
	}
	if (model->sync)
		dtrain_sync_stop(model->sync);
}

void generate_model_close(generate_model *model)
{
	for (int i = 0; i < GENERATE_LENGTHS; i++) {
		close_network(model, &model->networks[i]);
		close_network(model, &model->alone[i]);
	}
	dtrain_sync_destroy(&model->sync);
	dtrain_params_destroy(&model->part.outline);
	dtrain_pipeline_schedule_destroy(&model->part.schedule);
	dtrain_params_destroy(&model->params);
	run_source_close(&model->source);
	free(model->part.layers);
	if (model->device)
		dtrain_device_get_api(model->device)->free(model->device, model->cache);
	if (model->stream)
		dtrain_device_get_api(model->device)->stream_destroy(model->stream);
	dtrain_device_close(&model->device);
	free(model->seen);
	free(model->inputs);
	*model = (generate_model){0};
}

/* The first token of the last document. An end of text is the last token of its document, and what follows is predicted
 * from it there: a text of nothing else is a document that is over. */
static int64_t document_of(const generate_model *model, const int64_t *tokens, int64_t count)
{
	int64_t begin = model->end_of_text < 0 ? 0 : count - 1;
	while (begin > 0 && tokens[begin - 1] != model->end_of_text)
		begin--;
	return begin;
}

/* The first token that the model sees of a text. It depends on the text alone, not on how it came about. */
static int64_t begin_of(const generate_model *model, const int64_t *tokens, int64_t count)
{
	int64_t most = model->description.positions, half = most / 2 > 0 ? most / 2 : 1;
	int64_t document = document_of(model, tokens, count), length = count - document;
	return document + (length <= most ? 0 : (length - most + half - 1) / half * half);
}

static int64_t count_equal(const int64_t *a, const int64_t *b, int64_t count)
{
	int64_t equal = 0;
	while (equal < count && a[equal] == b[equal])
		equal++;
	return equal;
}

static int capture(const generate_model *model, struct generate_network *network, beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(model->device);
	beton_error late = {0};
	int status = api->capture_begin(model->stream, err);
	if (status != BETON_OK)
		return status;
	status = dtrain_program_run(network->program, model->stream, 0, 1, err);
	int ended = api->capture_end(model->stream, &network->captured, &late);
	if (status == BETON_OK && ended != BETON_OK) {
		status = ended;
		*err = late;
	}
	return status;
}

/* A network that runs again is launched as a whole, where the device can. */
static int put_program(const generate_model *model, struct generate_network *network, beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(model->device);
	dtrain_device_caps caps;
	api->caps(model->device, &caps);
	bool first = !network->has_run;
	network->has_run = true;
	if (network->pipeline)
		return dtrain_pipeline_run(network->pipeline, model->stream, 0, err);
	/* Operations of a group in a capture would have to be watched. */
	if (first || !caps.graph_capture || model->mesh)
		return dtrain_program_run(network->program, model->stream, 0, 1, err);
	int status = network->captured ? BETON_OK : capture(model, network, err);
	return status == BETON_OK ? api->capture_launch(network->captured, model->stream, err) : status;
}

static void *memory_of(const generate_model *model, const struct generate_network *network, dtrain_tensor input)
{
	return network->pipeline ? dtrain_pipeline_input(network->pipeline, model->part.stage, 0, input)
				 : dtrain_program_data(network->program, input);
}

/* Runs a network for the tokens past .. count - 1 of the first texts, and for padding after them, whose results are
 * replaced before they are read. */
static int run_network(generate_model *model, struct generate_network *network, int64_t texts, int64_t length,
		       int64_t past, int64_t count, float *out, beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(model->device);
	int64_t most = model->description.positions, all = texts * length;
	int64_t *position = model->inputs + all, *row = position + all;
	memset(model->inputs, 0, (size_t)all * sizeof(*model->inputs));
	for (int64_t k = 0; k < texts; k++) {
		memcpy(model->inputs + k * length, model->seen + k * most + past,
		       (size_t)(count - past) * sizeof(*model->inputs));
		for (int64_t i = 0; i < length; i++)
			position[k * length + i] = least(past + i, most - 1);
		row[k] = k * length + count - past - 1;
	}
	const struct {
		dtrain_tensor tensor;
		const int64_t *from;
		int64_t count;
	} inputs[] = {{network->tokens, model->inputs, all},
		      {network->position, position, all},
		      {network->past, &past, 1},
		      {network->row, row, texts}};
	int status = BETON_OK;
	for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]) && status == BETON_OK; i++)
		if (inputs[i].tensor >= 0)
			status = api->copy(model->stream, memory_of(model, network, inputs[i].tensor), inputs[i].from,
					   (size_t)inputs[i].count * sizeof(int64_t), DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = put_program(model, network, err);
	if (status == BETON_OK && network->logits >= 0)
		status = api->copy(model->stream, out, dtrain_program_data(network->program, network->logits),
				   (size_t)(texts * model->description.vocabulary) * sizeof(float),
				   DTRAIN_DEVICE_TO_HOST, err);
	/* Also after an error: the stream may still read and write our memory. */
	int ended = api->stream_synchronize(model->stream, status == BETON_OK ? err : NULL);
	return status == BETON_OK ? ended : status;
}

/* Gives the other texts what the first one has of the tokens past .. count - 1: keys, values, and logits. */
static int copy_first(const generate_model *model, int64_t past, int64_t count, float *logits, beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(model->device);
	const dtrain_transformer *t = &model->description;
	size_t row = (size_t)row_of(model) * sizeof(float), bytes = part_bytes(model, row_of(model));
	int status = BETON_OK;
	for (int64_t i = 0; i < 2 * model->part.num_layers; i++) {
		char *from = (char *)model->cache + (size_t)i * bytes + (size_t)past * row;
		for (int64_t k = 1; k < model->texts && status == BETON_OK; k++)
			status = api->copy(model->stream, from + (size_t)(k * t->positions) * row, from,
					   (size_t)(count - past) * row, DTRAIN_DEVICE_TO_DEVICE, err);
	}
	for (int64_t k = 1; k < model->texts; k++)
		memcpy(logits + k * t->vocabulary, logits, (size_t)t->vocabulary * sizeof(*logits));
	int ended = api->stream_synchronize(model->stream, status == BETON_OK ? err : NULL);
	return status == BETON_OK ? ended : status;
}

/* The first tokens of all texts whose keys and values are there. */
static int64_t count_kept(const generate_model *model, const int64_t *const *tokens, int64_t begin, int64_t window)
{
	int64_t past = least(window, model->num_seen);
	for (int64_t k = 0; k < model->texts; k++)
		past = count_equal(model->seen + k * model->description.positions, tokens[k] + begin, past);
	return least(past, window - 1);
}

int generate_model_logits(generate_model *model, const int64_t *const *tokens, int64_t count, float *out,
			  beton_error *err)
{
	if (count < 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "no token to begin with");
	int64_t begin = begin_of(model, tokens[0], count), window = count - begin;
	for (int64_t k = 1; k < model->texts; k++)
		if (begin_of(model, tokens[k], count) != begin)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "text %lld does not begin at token %lld, as the first one does", (long long)k,
				       (long long)begin);
	int64_t past = count_kept(model, tokens, begin, window), texts = model->texts, same = window;
	for (int64_t k = 1; k < texts; k++)
		same = count_equal(tokens[0] + begin, tokens[k] + begin, same);
	bool alone = texts > 1 && same == window;
	int index = find_network(model, window - past);
	struct generate_network *network = alone ? &model->alone[index] : &model->networks[index];
	int64_t length = length_of(model, index);
	past = least(past, model->description.positions - length);
	int status = make_network(model, network, alone ? 1 : texts, length, err);
	if (status != BETON_OK)
		return status;
	for (int64_t k = 0; k < texts; k++)
		memcpy(model->seen + k * model->description.positions, tokens[k] + begin,
		       (size_t)window * sizeof(**tokens));
	model->num_seen = 0;
	status = run_network(model, network, alone ? 1 : texts, length, past, window, out, err);
	if (status == BETON_OK && alone)
		status = copy_first(model, past, window, out, err);
	if (status == BETON_OK)
		model->num_seen = window;
	return status;
}
