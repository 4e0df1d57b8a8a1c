/* SPDX-License-Identifier: Apache-2.0 */
#include "weights.h"

#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "common/system.h"

/* The list owns the names. */
typedef struct view_list {
	dtrain_checkpoint_view *views;
	size_t count;
	const dtrain_params *params;
	int row, rows; /* of what each rank has of its own; rows 0: nothing */
	int64_t step;  /* value of the batch counters */
	run_blocks *staged;
	size_t num_staged;
} view_list;

static void list_free(view_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free((void *)list->views[i].name);
	for (size_t i = 0; i < list->num_staged; i++)
		run_blocks_close(&list->staged[i]);
	free(list->staged);
	free(list->views);
	*list = (view_list){0};
}

static int list_reserve(view_list *list, const dtrain_params *params, size_t capacity, beton_error *err)
{
	*list = (view_list){.views = calloc(capacity + 1, sizeof(*list->views)), .params = params};
	return list->views ? BETON_OK
			   : bt_fail(err, BETON_NO_MEMORY, "out of memory for a list of %zu tensors", capacity);
}

/* Takes ownership of name; NULL: out of memory. device: that of memory; NULL: host memory. */
static int list_add(view_list *list, char *name, const dtrain_shape *shape, void *memory, dtrain_device *device,
		    beton_error *err)
{
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the name of a tensor");
	list->views[list->count++] =
		dtrain_checkpoint_view_whole(name, dtrain_params_dtype(list->params), shape, memory, device);
	return BETON_OK;
}

/* Adds `count` elements from `first` on of a block of this rank's part. */
static int list_add_block(view_list *list, const char *name, const dtrain_param *param, int64_t block, int64_t first,
			  int64_t count, void *memory, dtrain_device *device, beton_error *err)
{
	const int dim = param->placement.dim;
	int status = list_add(list, strdup(name), &param->global_shape, memory, device, err);
	if (status != BETON_OK)
		return status;
	dtrain_checkpoint_view *view = &list->views[list->count - 1];
	if (param->placement.axis) {
		const int64_t blocks = run_blocks_count(param);
		view->offset[dim] = block * (param->global_shape.dim[dim] / blocks) + param->first;
		view->extent[dim] = param->shape.dim[dim] / blocks;
	}
	view->first = first;
	view->count = count;
	return BETON_OK;
}

/* The list keeps what has a staging array. */
static int keep_staged(view_list *list, const run_blocks *blocks, beton_error *err)
{
	run_blocks *staged = realloc(list->staged, (list->num_staged + 1) * sizeof(*staged));
	if (!staged)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for parts of parameters");
	list->staged = staged;
	list->staged[list->num_staged++] = *blocks;
	return BETON_OK;
}

/* Adds a range's part of a parameter, or of an optimizer's state of one: `count` elements of this rank's part, from
 * `first` on. memory: of these elements. Takes ownership of name; NULL: out of memory. */
static int list_add_part(view_list *list, char *name, const dtrain_param *param, int64_t first, int64_t count,
			 void *memory, dtrain_device *device, beton_error *err)
{
	run_blocks blocks;
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the name of a tensor");
	int status = run_blocks_open(param, first, count, memory, &blocks, err);
	for (int64_t i = 0; i < blocks.blocks && status == BETON_OK; i++) {
		int64_t begin, elements;
		float *at = run_blocks_at(&blocks, i, &begin, &elements);
		status = list_add_block(list, name, param, i, begin, elements, at, blocks.staged ? NULL : device, err);
	}
	if (status == BETON_OK && blocks.staged)
		status = keep_staged(list, &blocks, err);
	if (status != BETON_OK)
		run_blocks_close(&blocks);
	free(name);
	return status;
}

/* Copies parts to their staging arrays, or back. */
static int move_staged(const view_list *list, dtrain_stream *stream, bool back, beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(dtrain_params_device(list->params));
	int status = BETON_OK;
	for (size_t i = 0; i < list->num_staged && status == BETON_OK; i++)
		status = back ? run_blocks_unstage(&list->staged[i], stream, api, err)
			      : run_blocks_stage(&list->staged[i], stream, api, err);
	return status;
}

/* The last view becomes this rank's row of a tensor that has one for each rank. */
static void make_row(view_list *list)
{
	dtrain_checkpoint_view *view = &list->views[list->count - 1];
	for (int i = view->shape.ndim; i > 0; i--) {
		view->shape.dim[i] = view->shape.dim[i - 1];
		view->offset[i] = view->offset[i - 1];
		view->extent[i] = view->extent[i - 1];
	}
	view->shape.ndim++;
	view->shape.dim[0] = list->rows;
	view->offset[0] = list->row;
	view->extent[0] = 1;
}

/* An array over this rank's ranges: the values, or a state of the optimizer. */
typedef struct ranged {
	const dtrain_params *params;
	const dtrain_optimizer *optimizer;
	const dtrain_optimizer_state *state; /* NULL: the values */
} ranged;

static int count_ranges(const ranged *array)
{
	return array->state ? dtrain_optimizer_range_count(array->optimizer) : dtrain_params_range_count(array->params);
}

/* A range, with its memory in the array as values. */
static dtrain_range range_at(const ranged *array, int index)
{
	int64_t first;
	if (!array->state)
		return *dtrain_params_range_at(array->params, index);
	dtrain_range range = dtrain_optimizer_range_at(array->optimizer, index, &first);
	range.values = (float *)array->state->memory + first;
	range.device = dtrain_optimizer_memory_device(array->optimizer);
	return range;
}

/* At most as many views as list_param adds for all parameters. */
static size_t count_views(const ranged *array)
{
	int64_t blocks = 1;
	for (int i = 0; i < dtrain_params_count(array->params); i++) {
		const int64_t own = run_blocks_count(dtrain_params_at(array->params, i));
		blocks = own > blocks ? own : blocks;
	}
	return (size_t)blocks * ((size_t)dtrain_params_count(array->params) + (size_t)count_ranges(array));
}

/* Adds a view for each range that has some of the parameter; if there is none, an empty one, because a reader expects
 * each tensor. */
static int list_param(view_list *list, const ranged *array, const dtrain_param *param, beton_error *err)
{
	const char *state = array->state ? array->state->name : NULL;
	int status = BETON_OK, ranges = count_ranges(array);
	bool any = false;
	for (int i = 0; i <= ranges && status == BETON_OK; i++) {
		const dtrain_range range = i < ranges ? range_at(array, i) : (dtrain_range){.offset = param->offset};
		int64_t begin = param->offset > range.offset ? param->offset : range.offset;
		int64_t end = param->offset + param->count, range_end = range.offset + range.count;
		int64_t count = (end < range_end ? end : range_end) - begin;
		if (i < ranges ? count <= 0 : any)
			continue;
		char *name = state ? bt_format("%s.%s", param->name, state) : strdup(param->name);
		status =
			list_add_part(list, name, param, begin - param->offset, count,
				      count ? (float *)range.values + (begin - range.offset) : NULL, range.device, err);
		any = true;
	}
	return status;
}

/* torchvision has a batch counter for each running mean. */
static int add_batch_counter(view_list *list, const char *buffer, beton_error *err)
{
	static const char suffix[] = ".running_mean";
	size_t length = strlen(buffer);
	if (length < sizeof(suffix) || strcmp(buffer + length - strlen(suffix), suffix) != 0)
		return BETON_OK;
	char *name = bt_format("%.*s.num_batches_tracked", (int)(length - strlen(suffix)), buffer);
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the name of a tensor");
	list->views[list->count++] =
		dtrain_checkpoint_view_whole(name, DTRAIN_I64, &(dtrain_shape){0}, &list->step, NULL);
	return BETON_OK;
}

static int list_model(view_list *list, const dtrain_params *params, beton_error *err)
{
	int buffers = dtrain_params_buffer_count(params);
	const ranged values = {.params = params};
	int status = list_reserve(list, params, count_views(&values) + 2 * (size_t)buffers, err);
	for (int i = 0; i < dtrain_params_count(params) && status == BETON_OK; i++)
		status = list_param(list, &values, dtrain_params_at(params, i), err);
	for (int i = 0; i < buffers && status == BETON_OK; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(params, i);
		status = list_add(list, strdup(buffer->name), &buffer->shape, buffer->data,
				  dtrain_params_device(params), err);
		if (status == BETON_OK)
			status = add_batch_counter(list, buffer->name, err);
	}
	return status;
}

static int list_state(view_list *list, const dtrain_optimizer *optimizer, const dtrain_optimizer_state *state,
		      beton_error *err)
{
	const dtrain_params *params = list->params;
	const ranged array = {.params = params, .optimizer = optimizer, .state = state};
	int status = BETON_OK;
	for (int i = 0; i < dtrain_params_count(params) && status == BETON_OK; i++) {
		status = list_param(list, &array, dtrain_params_at(params, i), err);
		if (status == BETON_OK && list->rows > 0)
			make_row(list);
	}
	for (int i = 0; state->buffers && i < dtrain_params_buffer_count(params) && status == BETON_OK; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(params, i);
		status = list_add(list, bt_format("%s.%s", buffer->name, state->name), &buffer->shape,
				  dtrain_optimizer_state_buffer(optimizer, state, i),
				  dtrain_optimizer_memory_device(optimizer), err);
	}
	return status;
}

static int list_count(view_list *list, const char *name, float *memory, dtrain_device *device, beton_error *err)
{
	int status = list_add(list, strdup(name), &(dtrain_shape){0}, memory, device, err);
	if (status == BETON_OK && list->rows > 0)
		make_row(list);
	return status;
}

/* An array over the flat space; own: each rank has one of its own. */
static int list_flat(view_list *list, const char *name, float *memory, bool own, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < dtrain_params_count(list->params) && status == BETON_OK; i++) {
		const dtrain_param *param = dtrain_params_at(list->params, i);
		status = list_add_part(list, bt_format("%s.%s", param->name, name), param, 0, param->count,
				       memory + param->offset, dtrain_params_device(list->params), err);
		if (status == BETON_OK && own)
			make_row(list);
	}
	return status;
}

static int list_local(view_list *list, const dtrain_local *local, beton_error *err)
{
	int status = list_flat(list, "local", dtrain_local_own(local), true, err);
	return status == BETON_OK ? list_flat(list, "outer_momentum", dtrain_local_momentum(local), false, err)
				  : status;
}
/* ---- tensors of the compression of gradients ---- */

#define HOOK_PREFIX "hook."
#define HOOK_STEPS HOOK_PREFIX "powersgd_steps"

static bool is_of_hook(const char *name)
{
	return strncmp(name, HOOK_PREFIX, strlen(HOOK_PREFIX)) == 0;
}

static size_t hook_count(const dtrain_sync *sync)
{
	int count = sync ? dtrain_sync_tensors(sync, NULL, 0, NULL) : 0;
	return count > 0 ? (size_t)count : 0;
}

static int list_hook(view_list *list, const dtrain_sync *sync, beton_error *err)
{
	size_t count = hook_count(sync);
	dtrain_hook_tensor *tensors = calloc(count + 1, sizeof(*tensors));
	if (!tensors)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the tensors of a hook");
	int got = count ? dtrain_sync_tensors(sync, tensors, (int)count, err) : 0;
	for (int i = 0; i < got; i++) {
		const dtrain_hook_tensor *tensor = &tensors[i];
		char *name = bt_format(HOOK_PREFIX "%s", tensor->name);
		if (!name) {
			got = bt_fail(err, BETON_NO_MEMORY, "out of memory for the name of a tensor");
			break;
		}
		dtrain_checkpoint_view *view = &list->views[list->count++];
		*view = dtrain_checkpoint_view_whole(name, tensor->dtype, &tensor->shape, tensor->memory,
						     tensor->device);
		memcpy(view->offset, tensor->offset, sizeof(view->offset));
		memcpy(view->extent, tensor->extent, sizeof(view->extent));
		view->first = tensor->first;
		view->count = tensor->count;
	}
	free(tensors);
	return got < 0 ? got : BETON_OK;
}

/* Whether one of the first views has the name and the shape of a tensor. */
static bool has_view(const view_list *list, size_t count, const dtrain_checkpoint_tensor *tensor)
{
	for (size_t i = 0; i < count; i++) {
		const dtrain_checkpoint_view *view = &list->views[i];
		if (strcmp(view->name, tensor->name) == 0)
			return view->shape.ndim == tensor->shape.ndim &&
			       memcmp(view->shape.dim, tensor->shape.dim,
				      sizeof(view->shape.dim[0]) * (size_t)view->shape.ndim) == 0;
	}
	return false;
}

/* Empty views of the checkpoint's tensors that have none in the list: of all, or of a hook's. */
static int list_empty(view_list *list, dtrain_checkpoint *checkpoint, bool of_hook, beton_error *err)
{
	const dtrain_checkpoint_tensor *tensors;
	size_t count, listed = list->count;
	int status = dtrain_checkpoint_tensors(checkpoint, DTRAIN_CHECKPOINT_OPTIMIZER, &tensors, &count, err);
	dtrain_checkpoint_view *views =
		status == BETON_OK ? realloc(list->views, (list->count + count + 1) * sizeof(*views)) : NULL;
	if (!views)
		return status != BETON_OK ? status : bt_fail(err, BETON_NO_MEMORY, "out of memory for tensors");
	list->views = views;
	for (size_t i = 0; i < count; i++) {
		if ((of_hook && !is_of_hook(tensors[i].name)) || has_view(list, listed, &tensors[i]))
			continue;
		bool real = strcmp(tensors[i].dtype, "F32") == 0;
		char *name = strdup(tensors[i].name);
		if (!name)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for the name of a tensor");
		dtrain_checkpoint_view *view = &views[list->count++];
		*view = dtrain_checkpoint_view_whole(name, real ? DTRAIN_F32 : DTRAIN_I64, &tensors[i].shape, NULL,
						     NULL);
		view->count = 0;
	}
	return BETON_OK;
}

/* Leaves of a hook's views that of the number of steps, which is the same on any ranks, if the checkpoint has it. */
static void keep_steps(view_list *list, const dtrain_checkpoint_tensor *tensors, size_t count)
{
	size_t kept = 0, found = 0;
	while (found < count && strcmp(tensors[found].name, HOOK_STEPS) != 0)
		found++;
	for (size_t i = 0; i < list->count; i++) {
		if (found < count && strcmp(list->views[i].name, HOOK_STEPS) == 0)
			list->views[kept++] = list->views[i];
		else
			free((void *)list->views[i].name);
	}
	list->count = kept;
}

/* Ranks have shards of different parameters, and the same hook on other shards keeps tensors of other ones. *all: each
 * of the checkpoint's tensors of a hook has a view on some rank, and each rank's views have a tensor. *any: there is
 * one. */
static int compare_hook(const view_list *list, const dtrain_checkpoint_tensor *tensors, size_t count,
			dtrain_group *group, bool *all, bool *any, beton_error *err)
{
	enum { NEEDED, LACKING, FACTS };
	int64_t *info = calloc(FACTS + count, sizeof(*info));
	int status = info ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the tensors of a hook");
	size_t found = 0;
	for (size_t i = 0; status == BETON_OK && i < count; i++) {
		info[FACTS + i] = is_of_hook(tensors[i].name) && has_view(list, list->count, &tensors[i]);
		found += info[FACTS + i] != 0;
	}
	dtrain_work *work = NULL;
	if (status == BETON_OK) {
		info[NEEDED] = list->count > 0;
		info[LACKING] = found != list->count;
	}
	if (status == BETON_OK && group)
		status =
			dtrain_allreduce(group, info, FACTS + (int64_t)count, DTRAIN_I64, DTRAIN_MAX, NULL, &work, err);
	if (status == BETON_OK && group)
		status = dtrain_work_wait(&work, err);
	*any = false;
	*all = status == BETON_OK && info[NEEDED] && !info[LACKING];
	for (size_t i = 0; status == BETON_OK && i < count; i++) {
		if (!is_of_hook(tensors[i].name))
			continue;
		*any = true;
		*all = *all && info[FACTS + i];
	}
	free(info);
	return status;
}

int run_weights_load_hook(const run_weights *weights, const char *path, bool other, dtrain_group *group, bool *dropped,
			  beton_error *err)
{
	view_list list = {0};
	dtrain_checkpoint *checkpoint = NULL;
	const dtrain_checkpoint_tensor *tensors;
	size_t count = 0;
	bool all = false, saved = false;
	int status = dtrain_checkpoint_open(path, NULL, &checkpoint, err);
	if (status == BETON_OK)
		status = list_reserve(&list, weights->params, hook_count(weights->sync), err);
	if (status == BETON_OK)
		status = list_hook(&list, weights->sync, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_tensors(checkpoint, DTRAIN_CHECKPOINT_OPTIMIZER, &tensors, &count, err);
	if (status == BETON_OK)
		status = compare_hook(&list, tensors, count, group, &all, &saved, err);
	bool loads = status == BETON_OK && !other && all;
	*dropped = saved && !loads;
	if (status == BETON_OK && !loads)
		keep_steps(&list, tensors, count);
	bool any = list.count > 0;
	if (status == BETON_OK && any)
		status = list_empty(&list, checkpoint, false, err);
	if (status == BETON_OK && any) {
		const dtrain_checkpoint_list views = {list.views, list.count};
		status = dtrain_checkpoint_load(checkpoint, (const dtrain_checkpoint_list *const[]){NULL, &views},
						weights->stream, err);
	}
	dtrain_checkpoint_close(&checkpoint);
	list_free(&list);
	return status;
}

/* ---- the optimizer ---- */

/* wraps: of the two numbers that make the count of steps the second one, too, which older checkpoints lack. */
static int list_optimizer(view_list *list, const run_weights *weights, bool wraps, beton_error *err)
{
	const dtrain_params *params = weights->params;
	const ranged values = {.params = params};
	size_t states = 0, each = count_views(&values) + (size_t)dtrain_params_buffer_count(params);
	while (weights->optimizer && dtrain_optimizer_state_at(weights->optimizer, (int)states))
		states++;
	size_t room = (states + (weights->local ? 2 : 0)) * each + 2 + hook_count(weights->sync);
	int status = list_reserve(list, params, room, err);
	list->row = weights->row;
	list->rows = weights->local ? weights->rows : 0;
	for (int i = 0; i < (int)states && status == BETON_OK; i++)
		status = list_state(list, weights->optimizer, dtrain_optimizer_state_at(weights->optimizer, i), err);
	if (status == BETON_OK && weights->local)
		status = list_local(list, weights->local, err);
	float *count = weights->optimizer ? dtrain_optimizer_step_count(weights->optimizer) : NULL;
	dtrain_device *device = count ? dtrain_optimizer_memory_device(weights->optimizer) : NULL;
	if (status == BETON_OK && count)
		status = list_count(list, "step", count, device, err);
	return status == BETON_OK && count && wraps ? list_count(list, "step_wraps", count + 1, device, err) : status;
}

/* The content of a checkpoint, and what belongs to it. Must not be moved. */
typedef struct saved_weights {
	view_list model, optimizer;
	char *state;
	dtrain_checkpoint_content content;
} saved_weights;

static void saved_free(saved_weights *saved)
{
	list_free(&saved->model);
	list_free(&saved->optimizer);
	free(saved->state);
}

/* On failure, too, it is to be freed. */
static int saved_make(saved_weights *saved, const run_weights *weights, const run_position *position,
		      const char *options, beton_error *err)
{
	view_list *model = &saved->model, *optimizer = &saved->optimizer;
	*saved = (saved_weights){0};
	int status = run_position_to_state(position, options, weights->metadata, &saved->state, err);
	if (status == BETON_OK)
		status = list_model(model, weights->params, err);
	if (status == BETON_OK)
		status = list_optimizer(optimizer, weights, true, err);
	if (status == BETON_OK)
		status = list_hook(optimizer, weights->sync, err);
	if (status == BETON_OK)
		status = move_staged(model, weights->stream, false, err);
	if (status == BETON_OK)
		status = move_staged(optimizer, weights->stream, false, err);
	bool best = position->best_step > 0 && position->best_step == position->step;
	model->step = position->step;
	saved->content = (dtrain_checkpoint_content){
		.struct_size = sizeof(saved->content),
		.step = position->step,
		.sets = {{model->views, model->count}, {optimizer->views, optimizer->count}},
		.state = saved->state,
		.stream = weights->stream,
		.keep_step = position->best_step,
		.link = best ? RUN_BEST_LINK : NULL};
	return status;
}

int run_weights_save(const run_weights *weights, const char *dir, int keep, const run_position *position,
		     const char *options, const dtrain_checkpoint_ranks *ranks, beton_error *err)
{
	saved_weights saved;
	int status = saved_make(&saved, weights, position, options, err);
	if (status == BETON_OK)
		status = weights->saver
				 ? dtrain_checkpoint_saver_begin(weights->saver, dir, keep, &saved.content, ranks, err)
				 : dtrain_checkpoint_save(dir, keep, &saved.content, ranks, err);
	saved_free(&saved);
	return status;
}

int run_weights_reserve(const run_weights *weights, const run_position *position, const dtrain_checkpoint_ranks *ranks,
			size_t *bytes, beton_error *err)
{
	saved_weights saved;
	int status = saved_make(&saved, weights, position, NULL, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_reserve(weights->saver, &saved.content, ranks, bytes, err);
	saved_free(&saved);
	return status;
}

static bool has_state(const dtrain_checkpoint_tensor *tensors, size_t count, const char *state)
{
	for (size_t i = 0; i < count; i++) {
		const char *dot = strrchr(tensors[i].name, '.');
		if (dot && strcmp(dot + 1, state) == 0)
			return true;
	}
	return false;
}

/* A kind of optimizer, or a second set of weights, that only one side has would appear as a missing or extra tensor,
 * but the file is not at fault. */
static int check_states(dtrain_checkpoint *checkpoint, const char *path, const run_weights *weights, beton_error *err)
{
	static const char *const states[][2] = {
		{"slow", "--lookahead"}, {"ema", "--ema"}, {"outer_momentum", "--strategy local"}};
	const dtrain_optimizer *optimizer = weights->optimizer;
	const dtrain_checkpoint_tensor *tensors;
	size_t count;
	/* Damage is reported first, and the model's before the optimizer's. */
	int status = dtrain_checkpoint_tensors(checkpoint, DTRAIN_CHECKPOINT_MODEL, &tensors, &count, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_tensors(checkpoint, DTRAIN_CHECKPOINT_OPTIMIZER, &tensors, &count, err);
	const char *own = dtrain_optimizer_state_at(optimizer, 0)->name;
	if (status == BETON_OK && !has_state(tensors, count, own))
		status = bt_fail(err, BETON_STATE,
				 "%s: has no '%s' of the optimizer %s: it was saved with another --optimizer", path,
				 own, dtrain_optimizer_name(optimizer));
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]) && status == BETON_OK; i++) {
		bool found = has_state(tensors, count, states[i][0]);
		bool wanted = dtrain_optimizer_state_find(optimizer, states[i][0]) != NULL ||
			      (weights->local && strcmp(states[i][0], "outer_momentum") == 0);
		if (found != wanted)
			status = bt_fail(err, BETON_STATE,
					 "%s: was saved %s %s, but this run is %s it; a new run with --init %s begins "
					 "with its weights",
					 path, found ? "with" : "without", states[i][1], wanted ? "with" : "without",
					 path);
	}
	return status;
}

/* Whether the optimizer's tensors have the second number of the count of steps. Without it there it is set to 0. */
static int find_wraps(dtrain_checkpoint *checkpoint, const run_weights *weights, bool *out, beton_error *err)
{
	const dtrain_checkpoint_tensor *tensors;
	float *steps = dtrain_optimizer_step_count(weights->optimizer);
	size_t count;
	*out = false;
	int status = dtrain_checkpoint_tensors(checkpoint, DTRAIN_CHECKPOINT_OPTIMIZER, &tensors, &count, err);
	for (size_t i = 0; status == BETON_OK && i < count; i++)
		*out = *out || strcmp(tensors[i].name, "step_wraps") == 0;
	if (status != BETON_OK || *out || !steps)
		return status;
	dtrain_device *device = dtrain_optimizer_memory_device(weights->optimizer);
	if (!device) {
		steps[1] = 0;
		return BETON_OK;
	}
	return dtrain_device_get_api(device)->zero(weights->stream, steps + 1, sizeof(*steps), err);
}

int run_weights_load(const run_weights *weights, const char *path, const dtrain_checkpoint_ranks *ranks,
		     beton_error *err)
{
	view_list model = {0}, optimizer = {0};
	dtrain_checkpoint *checkpoint = NULL;
	const dtrain_optimizer *wanted = weights->optimizer;
	bool wraps = false;
	int status = dtrain_checkpoint_open(path, ranks, &checkpoint, err);
	if (status == BETON_OK && wanted)
		status = check_states(checkpoint, path, weights, err);
	if (status == BETON_OK)
		status = list_model(&model, weights->params, err);
	if (status == BETON_OK && wanted)
		status = find_wraps(checkpoint, weights, &wraps, err);
	if (status == BETON_OK && wanted)
		status = list_optimizer(&optimizer, weights, wraps, err);
	if (status == BETON_OK && wanted)
		status = list_empty(&optimizer, checkpoint, true, err);
	if (status == BETON_OK) {
		const dtrain_checkpoint_list lists[] = {{model.views, model.count}, {optimizer.views, optimizer.count}};
		const dtrain_checkpoint_list *const sets[] = {&lists[0], wanted ? &lists[1] : NULL};
		status = dtrain_checkpoint_load(checkpoint, sets, weights->stream, err);
	}
	if (status == BETON_OK)
		status = move_staged(&model, weights->stream, true, err);
	if (status == BETON_OK && wanted)
		status = move_staged(&optimizer, weights->stream, true, err);
	if (status == BETON_OK)
		status = dtrain_params_changed(weights->params, weights->stream, err);
	dtrain_checkpoint_close(&checkpoint);
	list_free(&model);
	list_free(&optimizer);
	return status;
}
