/* SPDX-License-Identifier: Apache-2.0 */
#include "pretrained.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "common/tensor_names.h"
#include "fit.h"

enum { SHAPE_TEXT = 128, UNUSED_TOLD = 3 };

/* A parameter or buffer of the model. */
struct target {
	const char *name;
	const dtrain_shape *shape;
	const dtrain_param *param;      /* NULL: a buffer */
	void *memory;                   /* of a buffer */
	const run_source_tensor *found; /* the file's tensor; NULL: it has none */
	const run_source_tensor *from;  /* NULL: keeps its initial values */
	/* The parts that joined was made from, and tensors made of the file's, with values of their own. */
	const run_source_tensor *parts[BT_TENSOR_PARTS];
	run_source_tensor joined, resized;
};

struct job {
	const run_source *source;
	const dtrain_params *model;
	dtrain_params *params;
	bool whole;
	char head[64]; /* what the names of the head's tensors begin with: "fc." */
	bool fresh_head;
};

static const char *shape_text(const dtrain_shape *shape, char text[SHAPE_TEXT])
{
	snprintf(text, SHAPE_TEXT, "[");
	for (int i = 0; i < shape->ndim; i++)
		bt_append(text, SHAPE_TEXT, "%s%" PRId64, i ? ", " : "", shape->dim[i]);
	bt_append(text, SHAPE_TEXT, "]");
	return text;
}

/* ---- targets ---- */

static int count_targets(const dtrain_params *params)
{
	return dtrain_params_count(params) + dtrain_params_buffer_count(params);
}

static struct target target_at(const dtrain_params *params, int index)
{
	int count = dtrain_params_count(params);
	if (index < count) {
		const dtrain_param *param = dtrain_params_at(params, index);
		return (struct target){.name = param->name, .shape = &param->global_shape, .param = param};
	}
	const dtrain_buffer *buffer = dtrain_params_buffer_at(params, index - count);
	return (struct target){.name = buffer->name, .shape = &buffer->shape, .memory = buffer->data};
}

static bool is_head(const struct job *job, const struct target *target)
{
	return *job->head && strncmp(target->name, job->head, strlen(job->head)) == 0;
}

/* The layer that was declared last, if it has a matrix: a language model whose head is its embedding ends with a norm.
 */
static void find_head(struct job *job)
{
	int count = dtrain_params_count(job->model);
	const dtrain_param *last = dtrain_params_at(job->model, count - 1);
	const char *dot = last ? strrchr(last->name, '.') : NULL;
	size_t length = dot ? (size_t)(dot - last->name) + 1 : sizeof(job->head);
	bool has_matrix = false;
	for (int i = 0; length < sizeof(job->head) && i < count; i++) {
		const dtrain_param *param = dtrain_params_at(job->model, i);
		has_matrix = has_matrix || (strncmp(param->name, last->name, length) == 0 && param->shape.ndim > 1);
	}
	if (has_matrix)
		memcpy(job->head, last->name, length);
}

/* Finds the three tensors of a name with a +, and joins them. */
static int find_parts(const run_source *source, const char *name, struct target *target, beton_error *err)
{
	char whole[BT_TENSOR_NAME_SIZE];
	bool fits = false;
	for (int i = 0; i < BT_TENSOR_PARTS; i++) {
		bt_tensor_part(name, i, whole);
		target->parts[i] = run_source_find(source, whole);
		if (!target->parts[i])
			return BETON_OK;
	}
	int status = run_fit_join(target->parts, &target->joined, &fits, err);
	target->found = status == BETON_OK && fits ? &target->joined : NULL;
	return status;
}

/* Finds it by its own name, or by another program's. */
static int find_tensor(const run_source *source, struct target *target, beton_error *err)
{
	char alias[BT_TENSOR_NAME_SIZE];
	int status = BETON_OK;
	target->found = run_source_find(source, target->name);
	for (int i = 0; status == BETON_OK && !target->found && bt_tensor_alias(target->name, i, alias); i++)
		if (strchr(alias, '+'))
			status = find_parts(source, alias, target, err);
		else
			target->found = run_source_find(source, alias);
	return status;
}

static void free_targets(struct target *targets, int count)
{
	for (int i = 0; i < count; i++) {
		free(targets[i].joined.values);
		free(targets[i].resized.values);
	}
	free(targets);
}

/* ---- the plan ---- */

/* True if the tensor is for another number of classes, or missing: the whole head begins anew. */
static bool is_of_other_classes(const struct job *job, const struct target *target)
{
	const run_source_tensor *found = target->found;
	return is_head(job, target) &&
	       (!found || (found->shape.ndim > 0 && run_shapes_equal(&found->shape, target->shape, 1) &&
			   !run_shapes_equal(&found->shape, target->shape, 0)));
}

/* A tensor that the shards lack may have been in one more shard. */
static const char *absent_text(const run_source *source, char text[SHAPE_TEXT])
{
	*text = 0;
	if (source->absent)
		bt_append(text, SHAPE_TEXT, "; the first shard that is not there is %s%s", source->absent,
			  source->incomplete ? "" : ", if there was one more");
	return text;
}

/* Whether the name is that of one file of several, such as model-00002-of-00003.safetensors. */
static bool is_one_of_several(const char *path)
{
	const char *of = strstr(path, "-of-"), *next;
	while (of && (next = strstr(of + 1, "-of-")))
		of = next;
	const char *digits = of ? of + strlen("-of-") : "";
	size_t length = strspn(digits, "0123456789");
	return length && atoi(digits) > 1 && strcmp(digits + length, ".safetensors") == 0;
}

/* Advice if a tensor is missing or incomplete. */
static const char *advice(const run_source *source)
{
	return is_one_of_several(source->path)
		       ? "; the file is one of several: give their folder, or its model.safetensors.index.json"
		       : "";
}

/* A folder that lacks a shard is damaged, rather than for another model. */
static int fault_of(const run_source *source)
{
	return source->absent ? BETON_FORMAT : BETON_MISMATCH;
}

static int fail_missing(const struct job *job, const struct target *targets, int count, const char *first,
			beton_error *err)
{
	char absent[SHAPE_TEXT];
	int missing = 0;
	for (int i = 0; i < count; i++)
		missing += !targets[i].found;
	return bt_fail(err, fault_of(job->source),
		       "%s: has no tensor '%s', which the model needs (%d of its %d tensors are missing%s)%s%s",
		       job->source->path, first, missing, count,
		       missing == count ? ": the file is for another model" : "", absent_text(job->source, absent),
		       advice(job->source));
}

static int find_sources(struct job *job, struct target *targets, int count, beton_error *err)
{
	char theirs[SHAPE_TEXT], ours[SHAPE_TEXT], absent[SHAPE_TEXT];
	for (int i = 0; i < count && !job->whole; i++)
		job->fresh_head = job->fresh_head || is_of_other_classes(job, &targets[i]);
	for (int i = 0; i < count; i++) {
		struct target *target = &targets[i];
		const run_source_tensor *found = target->found;
		bool may_be_absent = !found && job->source->incomplete;
		if (job->fresh_head && is_head(job, target) && !may_be_absent)
			continue;
		if (!found)
			return fail_missing(job, targets, count, target->name, err);
		bool resized = found->values && run_fit_is_resized(target->name, &found->shape, target->shape);
		if (!resized && !run_shapes_equal(&found->shape, target->shape, 0))
			return bt_fail(err, fault_of(job->source),
				       "%s: tensor '%s' has shape %s, the model needs %s%s%s", job->source->path,
				       target->name, shape_text(&found->shape, theirs), shape_text(target->shape, ours),
				       absent_text(job->source, absent), advice(job->source));
		if (!found->values)
			return bt_fail(err, BETON_MISMATCH, "%s: tensor '%s' does not have a floating-point type",
				       job->source->path, target->name);
		int status = resized ? run_fit_resize(found, target->shape, &target->resized, err) : BETON_OK;
		if (status != BETON_OK)
			return status;
		target->from = resized ? &target->resized : found;
	}
	return BETON_OK;
}

/* The place of an element in row-major order: "[2, 0]". */
static const char *place_text(const dtrain_shape *shape, int64_t element, char text[SHAPE_TEXT])
{
	dtrain_shape place = *shape;
	for (int i = shape->ndim - 1; i >= 0; i--) {
		place.dim[i] = element % shape->dim[i];
		element /= shape->dim[i];
	}
	return shape_text(&place, text);
}

/* Training would end at its first step, and blame the learning rate. */
static int check_finite(const struct job *job, const struct target *targets, int count, beton_error *err)
{
	char place[SHAPE_TEXT];
	for (int i = 0; i < count; i++) {
		const run_source_tensor *found = targets[i].from ? targets[i].found : NULL;
		int64_t elements = found ? dtrain_shape_count(&found->shape) : 0;
		for (int64_t k = 0; k < elements; k++)
			if (!isfinite(found->values[k]))
				return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' is %s at %s: not usable as weights",
					       job->source->path, found->name,
					       isnan(found->values[k]) ? "NaN" : "infinite",
					       place_text(&found->shape, k, place));
	}
	return BETON_OK;
}

/* ---- the report ---- */

/* Whether the file's tensor is in the target. */
static bool is_of(const struct target *target, const run_source_tensor *tensor)
{
	bool found = target->found == tensor;
	for (int i = 0; i < BT_TENSOR_PARTS && target->found == &target->joined; i++)
		found = found || target->parts[i] == tensor;
	return found;
}

static void note_change(const struct target *target, json_t *list)
{
	char theirs[SHAPE_TEXT], ours[SHAPE_TEXT];
	if (!target->found)
		json_array_append_new(
			list, json_sprintf("%s %s (the file has none)", target->name, shape_text(target->shape, ours)));
	else
		json_array_append_new(list, json_sprintf("%s %s (the file has %s)", target->name,
							 shape_text(target->shape, ours),
							 shape_text(&target->found->shape, theirs)));
}

/* PyTorch counts the batches of each batch norm, and Hugging Face saved constants: nothing here depends on them. */
static bool is_constant(const char *name)
{
	static const char *const endings[] = {".num_batches_tracked", ".attn.bias", ".attn.masked_bias",
					      ".rotary_emb.inv_freq", ".embeddings.position_ids"};
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		if (bt_ends_with(name, endings[i]))
			return true;
	return false;
}

static int make_report(const struct job *job, const struct target *targets, int count, run_init *out, beton_error *err)
{
	*out = (run_init){.fresh = json_array(), .resized = json_array(), .unused = json_array()};
	if (!out->fresh || !out->resized || !out->unused)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->source->path);
	for (int i = 0; i < count; i++) {
		out->taken += targets[i].from != NULL;
		if (!targets[i].from)
			note_change(&targets[i], out->fresh);
		if (targets[i].resized.values)
			note_change(&targets[i], out->resized);
	}
	for (size_t i = 0; i < job->source->count; i++) {
		const run_source_tensor *tensor = &job->source->tensors[i];
		bool known = is_constant(tensor->name);
		for (int k = 0; k < count && !known; k++)
			known = is_of(&targets[k], tensor);
		if (!known)
			json_array_append_new(out->unused, json_string(tensor->name));
	}
	return BETON_OK;
}

void run_init_free(run_init *init)
{
	json_decref(init->fresh);
	json_decref(init->resized);
	json_decref(init->unused);
	*init = (run_init){0};
}

/* The names of a file may contain anything. */
static void print_name(const char *before, const char *name)
{
	char harmless[BETON_ERROR_MESSAGE_SIZE];
	snprintf(harmless, sizeof(harmless), "%s", name);
	bt_sanitize(harmless);
	printf("%s%s", before, harmless);
}

void run_init_tell(const run_init *init, const run_source *source)
{
	size_t unused = json_array_size(init->unused);
	print_name("weights from ", source->path);
	printf("%s: %d tensor%s loaded", source->average ? " (moving averages)" : "", init->taken,
	       bt_plural((uint64_t)init->taken));
	for (size_t i = 0; i < json_array_size(init->fresh); i++)
		printf("%s%s", i ? ", " : "; initialized: ", json_string_value(json_array_get(init->fresh, i)));
	for (size_t i = 0; i < json_array_size(init->resized); i++)
		printf("%s%s", i ? ", " : "; resized: ", json_string_value(json_array_get(init->resized, i)));
	for (size_t i = 0; i < unused && i < UNUSED_TOLD; i++)
		print_name(i ? ", " : "; not in the model: ", json_string_value(json_array_get(init->unused, i)));
	if (unused > UNUSED_TOLD)
		printf(" and %zu others", unused - UNUSED_TOLD);
	printf("\n");
}

json_t *run_init_json(const run_init *init, const run_source *source)
{
	/* A path may be invalid UTF-8. */
	json_t *path = json_string(source->path);
	return json_pack("{s:o, s:i, s:O, s:O, s:O}", "file", path ? path : json_string("?"), "taken", init->taken,
			 "fresh", init->fresh, "resized", init->resized, "unused", init->unused);
}

/* ---- copying ---- */

/* This rank's part of a whole parameter: [outer][blocks][width] of [outer][blocks][all]. */
static void take_part(const dtrain_param *param, const float *whole, float *part)
{
	const int dim = param->placement.dim;
	int64_t outer = param->placement.blocks ? param->placement.blocks : 1, inner = 1;
	for (int i = 0; i < dim; i++)
		outer *= param->shape.dim[i];
	for (int i = dim + 1; i < param->shape.ndim; i++)
		inner *= param->shape.dim[i];
	const int64_t width = param->count / outer, all = dtrain_shape_count(&param->global_shape) / outer;
	for (int64_t i = 0; i < outer; i++)
		memcpy(part + i * width, whole + i * all + param->first * inner, (size_t)width * sizeof(float));
}

/* Copies what this rank's ranges have of the parameter, from this rank's part of it. */
static int copy_to_ranges(const struct job *job, const struct target *target, const float *values,
			  dtrain_stream *stream, beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(dtrain_params_device(job->params));
	const dtrain_param *param = target->param;
	int status = BETON_OK;
	for (int i = 0; i < dtrain_params_range_count(job->params) && status == BETON_OK; i++) {
		const dtrain_range *range = dtrain_params_range_at(job->params, i);
		int64_t begin = param->offset > range->offset ? param->offset : range->offset;
		int64_t end = param->offset + param->count, last = range->offset + range->count;
		end = end < last ? end : last;
		if (begin >= end)
			continue;
		float *to = (float *)range->values + (begin - range->offset);
		const float *from = values + (begin - param->offset);
		if (range->device)
			status = api->copy(stream, to, from, (size_t)(end - begin) * sizeof(float),
					   DTRAIN_HOST_TO_DEVICE, err);
		else
			memcpy(to, from, (size_t)(end - begin) * sizeof(float));
	}
	return status;
}

static int copy_param(const struct job *job, const struct target *target, dtrain_stream *stream, beton_error *err)
{
	const dtrain_param *param = target->param;
	const dtrain_device_api *api = dtrain_device_get_api(dtrain_params_device(job->params));
	if (!param->placement.axis)
		return copy_to_ranges(job, target, target->from->values, stream, err);
	float *part = malloc((size_t)param->count * sizeof(*part));
	if (!part)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a part of '%s'", param->name);
	take_part(param, target->from->values, part);
	int status = copy_to_ranges(job, target, part, stream, err);
	if (status == BETON_OK)
		status = api->stream_synchronize(stream, err);
	free(part);
	return status;
}

/* Puts the stage's parameters and buffers in the place of the model's; another stage's get nothing here. */
static void take_own(const struct job *job, struct target *targets, int count)
{
	for (int i = 0; i < count; i++) {
		bool found = false;
		for (int k = 0; k < count_targets(job->params) && !found; k++) {
			const struct target own = target_at(job->params, k);
			found = strcmp(own.name, targets[i].name) == 0;
			targets[i].param = found ? own.param : targets[i].param;
			targets[i].memory = found ? own.memory : targets[i].memory;
		}
		targets[i].from = found ? targets[i].from : NULL;
	}
}

static int copy_all(const struct job *job, const struct target *targets, int count, dtrain_stream *stream,
		    beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(dtrain_params_device(job->params));
	int status = BETON_OK;
	for (int i = 0; i < count && status == BETON_OK; i++) {
		if (targets[i].from && targets[i].param)
			status = copy_param(job, &targets[i], stream, err);
		else if (targets[i].from)
			status = api->copy(stream, targets[i].memory, targets[i].from->values,
					   (size_t)dtrain_shape_count(targets[i].shape) * sizeof(float),
					   DTRAIN_HOST_TO_DEVICE, err);
	}
	if (status == BETON_OK)
		status = dtrain_params_changed(job->params, stream, err);
	return status == BETON_OK ? api->stream_synchronize(stream, err) : status;
}

int run_init_apply(const run_source *source, const dtrain_params *model, dtrain_params *params, dtrain_stream *stream,
		   bool whole, run_init *out, beton_error *err)
{
	struct job job = {.source = source, .model = model, .params = params, .whole = whole};
	int count = count_targets(model);
	*out = (run_init){0};
	struct target *targets = calloc((size_t)count + 1, sizeof(*targets));
	if (!targets)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", source->path);
	int status = BETON_OK;
	for (int i = 0; i < count && status == BETON_OK; i++) {
		targets[i] = target_at(model, i);
		status = find_tensor(source, &targets[i], err);
	}
	find_head(&job);
	if (status == BETON_OK)
		status = find_sources(&job, targets, count, err);
	if (status == BETON_OK)
		status = check_finite(&job, targets, count, err);
	if (status == BETON_OK)
		status = make_report(&job, targets, count, out, err);
	if (status == BETON_OK && model != params)
		take_own(&job, targets, count);
	if (status == BETON_OK)
		status = copy_all(&job, targets, count, stream, err);
	free_targets(targets, count);
	if (status != BETON_OK)
		run_init_free(out);
	return status;
}
