/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/sized.h"
#include "core/params.h"
#include "optimizer.h"

void dtrain_optimizer_options_init_sized(dtrain_optimizer_options *options, size_t size)
{
	const dtrain_optimizer_options defaults = {
		.struct_size = sizeof(defaults), .kind = "sgd", .num_groups = 1, .grad_divisor = 1};
	bt_sized_init(options, size, &defaults);
}

int dtrain__optimizer_changed(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	return optimizer->of_params ? dtrain_params_changed(optimizer->params, stream, err) : BETON_OK;
}

/* ---- states ---- */

int dtrain__optimizer_add_state(dtrain_optimizer *optimizer, const char *name, bool with_buffers, beton_error *err)
{
	dtrain_optimizer_state *state = &optimizer->states[optimizer->num_states];
	size_t each = dtrain_dtype_size(dtrain_params_dtype(optimizer->params));
	int64_t buffers = with_buffers ? optimizer->params->buffer_elements : 0;
	*state = (dtrain_optimizer_state){.name = name, .count = optimizer->count + buffers};
	state->memory = optimizer->stand_in;
	int status = state->memory ? BETON_OK
				   : optimizer->api->alloc(optimizer->device, (size_t)state->count * each,
							   &state->memory, err);
	if (status != BETON_OK)
		bt_prefix(err, "optimizer state '%s'", state->name);
	if (status != BETON_OK)
		return status;
	state->buffers = buffers ? (char *)state->memory + (size_t)optimizer->count * each : NULL;
	optimizer->num_states++;
	return BETON_OK;
}

int dtrain_optimizer_range_count(const dtrain_optimizer *optimizer)
{
	if (!optimizer)
		return 0;
	return optimizer->num_ranges;
}

dtrain_range dtrain_optimizer_range_at(const dtrain_optimizer *optimizer, int index, int64_t *first)
{
	if (!optimizer)
		return (dtrain_range){0};
	const dtrain__update_range *range = &optimizer->ranges[index];
	*first = range->first;
	return (dtrain_range){.offset = range->begin,
			      .count = range->count,
			      .values = range->values,
			      .grads = range->grads,
			      .shared = range->shared,
			      .counts = range->counts};
}

const dtrain_optimizer_state *dtrain_optimizer_state_at(const dtrain_optimizer *optimizer, int index)
{
	if (!optimizer)
		return NULL;
	return index >= 0 && index < optimizer->num_states ? &optimizer->states[index] : NULL;
}

const dtrain_optimizer_state *dtrain_optimizer_state_find(const dtrain_optimizer *optimizer, const char *name)
{
	if (!optimizer || !name)
		return NULL;
	for (int i = 0; i < optimizer->num_states; i++)
		if (strcmp(optimizer->states[i].name, name) == 0)
			return &optimizer->states[i];
	return NULL;
}

void *dtrain_optimizer_state_buffer(const dtrain_optimizer *optimizer, const dtrain_optimizer_state *state, int index)
{
	if (!optimizer)
		return NULL;
	const dtrain_params *params = optimizer->params;
	const dtrain_buffer *buffer = dtrain_params_buffer_at(params, index);
	return state->buffers && buffer
		       ? (char *)state->buffers + ((char *)buffer->data - (char *)params->buffer_memory)
		       : NULL;
}

const char *dtrain_optimizer_name(const dtrain_optimizer *optimizer)
{
	if (!optimizer)
		return NULL;
	return optimizer->kind->info.name;
}

dtrain_device *dtrain_optimizer_memory_device(const dtrain_optimizer *optimizer)
{
	if (!optimizer)
		return NULL;
	return optimizer->host_update ? NULL : optimizer->device;
}

int dtrain_optimizer_check(const dtrain_optimizer *optimizer, beton_error *err)
{
	if (BT_MISSING(err, optimizer))
		return BETON_INVALID_ARGUMENT;
	return optimizer->host_update ? dtrain__offload_check(optimizer->params, err) : BETON_OK;
}

void *dtrain_optimizer_step_count(const dtrain_optimizer *optimizer)
{
	if (!optimizer)
		return NULL;
	return optimizer->step ? optimizer->step + DTRAIN_STEP_COUNT : NULL;
}

/* ---- opening ---- */

/* On a temporary stream. */
int dtrain__optimizer_upload(dtrain_optimizer *optimizer, void *to, const void *from, size_t bytes, beton_error *err)
{
	dtrain_stream *stream;
	int status = optimizer->api->stream_create(optimizer->device, &stream, err);
	if (status != BETON_OK)
		return status;
	status = optimizer->api->copy(stream, to, from, bytes, DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = optimizer->api->stream_synchronize(stream, err);
	optimizer->api->stream_destroy(stream);
	return status;
}

/* Sets the group of the part of a parameter in the range, including the padding at its end. Elements between parameters
 * are all zero and stay in group 0. */
static void place_group(const dtrain_optimizer *optimizer, const dtrain_param *param, uint8_t group, uint8_t *groups)
{
	for (int i = 0; i < optimizer->num_ranges; i++) {
		const dtrain__update_range *range = &optimizer->ranges[i];
		int64_t first = param->offset - range->begin, end = first + param->count;
		first = first < 0 ? 0 : first;
		end = end < range->count ? end : range->count;
		if (first < end)
			memset(groups + (range->first + first) / DTRAIN_PARAM_ALIGN, group,
			       (size_t)((end - first + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN));
	}
}

static int place_groups(dtrain_optimizer *optimizer, const uint8_t *group_of, beton_error *err)
{
	size_t bytes = (size_t)optimizer->runs;
	int status = optimizer->api->alloc(optimizer->device, bytes, (void **)&optimizer->group, err);
	if (status != BETON_OK || !group_of)
		return status;
	uint8_t *host;
	status = optimizer->api->host_alloc(optimizer->device, bytes, (void **)&host, err);
	if (status != BETON_OK)
		return status;
	memset(host, 0, bytes);
	for (int i = 0; i < dtrain_params_count(optimizer->params); i++)
		place_group(optimizer, dtrain_params_at(optimizer->params, i), group_of[i], host);
	status = dtrain__optimizer_upload(optimizer, optimizer->group, host, bytes, err);
	optimizer->api->host_free(optimizer->device, host);
	return status;
}

/* INFINITE is that of all ranges, of all ranks. */
static int add_inspection(dtrain_optimizer *optimizer, beton_error *err)
{
	const dtrain__argument none = {.memory = NULL}, scaler = dtrain__argument_four(optimizer->scaler);
	int status = BETON_OK;
	for (int i = 0; i < optimizer->num_ranges && status == BETON_OK; i++) {
		const dtrain_op_attrs attrs = {.inspect = {.more = optimizer->before.count > 0}};
		optimizer->range = &optimizer->ranges[i];
		status = dtrain__optimizer_add_reader(optimizer, DTRAIN_OP_SCALER_INSPECT, &attrs, scaler, none, err);
	}
	float *infinite = (float *)optimizer->scaler + DTRAIN_SCALER_INFINITE;
	if (status == BETON_OK)
		status = dtrain__optimizer_add_sum(optimizer, &optimizer->before, infinite, 1, err);
	return status == BETON_OK ? dtrain__optimizer_add_model_sum(optimizer, &optimizer->before, infinite, 1, err)
				  : status;
}

/* The kind's ops for each range. */
static int add_updates(dtrain_optimizer *optimizer, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < optimizer->num_ranges && status == BETON_OK; i++) {
		dtrain__update_range *range = &optimizer->ranges[i];
		optimizer->range = range;
		range->first_op = optimizer->update.count;
		status = dtrain__whole_add_gathers(optimizer, err);
		if (status == BETON_OK)
			status = optimizer->kind->create(optimizer, err);
		if (status == BETON_OK)
			status = dtrain__whole_add_parts(optimizer, err);
		range->num_ops = optimizer->update.count - range->first_op;
	}
	return status;
}

static int create_ops(dtrain_optimizer *optimizer, const dtrain_optimizer_options *options, beton_error *err)
{
	const dtrain__argument none = {.memory = NULL}, scaler = dtrain__argument_four(optimizer->scaler);
	const dtrain__argument scalers[] = {scaler, none};
	int status = optimizer->scaler ? add_inspection(optimizer, err) : BETON_OK;
	if (status == BETON_OK && optimizer->clip_norm > 0)
		status = dtrain__clip_create(optimizer, err);
	if (status == BETON_OK && optimizer->kind->beta1)
		status = dtrain__step_create(optimizer, err);
	if (status == BETON_OK && optimizer->kind->info.whole)
		status = dtrain__whole_open(optimizer, err);
	if (status == BETON_OK)
		status = dtrain__whole_allocate(optimizer, options->group_of, err);
	for (int i = 0; i < optimizer->num_ranges && status == BETON_OK && optimizer->kind->info.whole; i++) {
		optimizer->range = &optimizer->ranges[i];
		status = dtrain__pieces_count(optimizer, err);
		if (status == BETON_OK)
			status = dtrain__pieces_create(optimizer, err);
	}
	if (status == BETON_OK)
		status = add_updates(optimizer, err);
	if (status == BETON_OK && optimizer->scaler)
		status = dtrain__optimizer_add(optimizer, &optimizer->after, DTRAIN_OP_SCALER_UPDATE, NULL, scalers,
					       scalers, err);
	if (status == BETON_OK && options->lookahead)
		status = dtrain__average_create(optimizer, DTRAIN__SLOW, err);
	if (status == BETON_OK && options->average)
		status = dtrain__average_create(optimizer, DTRAIN__EMA, err);
	dtrain__update_ops *const all[] = {&optimizer->before, &optimizer->update, &optimizer->after};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && status == BETON_OK; i++)
		status = dtrain__optimizer_seal(all[i], err);
	return status;
}

static int open_hypers(dtrain_optimizer *optimizer, const dtrain_optimizer_options *options, beton_error *err)
{
	const dtrain_optimizer_kind *kind = &optimizer->kind->info;
	optimizer->hypers = calloc((size_t)optimizer->num_groups * (size_t)kind->num_hypers, sizeof(double));
	return optimizer->hypers ? dtrain__optimizer_set_hypers(optimizer, options, err)
				 : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", kind->name);
}

static int add_states(dtrain_optimizer *optimizer, beton_error *err)
{
	const dtrain_optimizer_kind *kind = &optimizer->kind->info;
	int status = BETON_OK;
	for (int32_t i = 0; i < kind->num_states && status == BETON_OK; i++)
		status = dtrain__optimizer_add_state(optimizer, kind->states[i], false, err);
	return status;
}

static int open_memory(dtrain_optimizer *optimizer, const dtrain_optimizer_options *options, beton_error *err)
{
	int status = add_states(optimizer, err);
	size_t scalars = (size_t)optimizer->num_groups * (size_t)optimizer->kind->num_scalars;
	if (status == BETON_OK)
		status = dtrain__scalars_open(&optimizer->scalars, optimizer->device,
					      dtrain_params_device(optimizer->params), scalars, err);
	return status == BETON_OK ? place_groups(optimizer, options->group_of, err) : status;
}

/* A part of the flat space that the caller has chosen. */
static int choose_range(dtrain_optimizer *optimizer, const dtrain_optimizer_options *options, beton_error *err)
{
	const dtrain_params *params = optimizer->params;
	int64_t begin = options->begin, end = options->end ? options->end : dtrain_params_flat_count(params);
	void *values = dtrain_params_values(params), *grads = dtrain_params_grads(params);
	if ((!options->values && !values) || (!options->grads && !grads))
		return bt_fail(err, BETON_UNSUPPORTED, "%s: a range of sharded parameters without memory of its own",
			       options->kind);
	optimizer->of_params = !options->values;
	optimizer->ranges[0] = (dtrain__update_range){
		.begin = begin,
		.count = end - begin,
		.values = options->values ? options->values : dtrain__optimizer_element(optimizer, values, begin),
		.grads = options->grads ? options->grads : dtrain__optimizer_element(optimizer, grads, begin),
		.counts = true};
	optimizer->num_ranges = 1;
	return BETON_OK;
}

static int open_ranges(dtrain_optimizer *optimizer, const dtrain_optimizer_options *options, beton_error *err)
{
	const dtrain_params *params = optimizer->params;
	int count = dtrain_params_range_count(params);
	optimizer->ranges = calloc((size_t)count, sizeof(*optimizer->ranges));
	if (!optimizer->ranges)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", options->kind);
	bool own = !options->values && !options->grads && !options->begin && !options->end;
	int status = own ? BETON_OK : choose_range(optimizer, options, err);
	for (int i = 0; i < count && own; i++) {
		const dtrain_range *range = dtrain_params_range_at(params, i);
		optimizer->ranges[optimizer->num_ranges++] = (dtrain__update_range){
			.begin = range->offset,
			.count = range->count,
			.values = range->values,
			.grads = range->grads,
			.raw_grads = dtrain__range_grads(params, i),
			.offloaded_grads = dtrain__params_divided(params) && params->memory[i].offloaded_grads,
			.shared = range->shared,
			.counts = range->counts};
		optimizer->of_params = true;
	}
	for (int i = 0; i < optimizer->num_ranges; i++) {
		if (!own || optimizer->ranges[i].offloaded_grads)
			optimizer->ranges[i].raw_grads = optimizer->ranges[i].grads;
		optimizer->ranges[i].first = optimizer->count;
		optimizer->count += optimizer->ranges[i].count;
	}
	optimizer->range = optimizer->ranges;
	return status;
}

/* Opens the parts that need no device memory yet. options: filled from given. *out: NULL on failure. */
static int open_optimizer(dtrain_params *params, const dtrain_optimizer_options *given,
			  dtrain_optimizer_options *options, dtrain_optimizer **out, beton_error *err)
{
	*out = NULL;
	dtrain_optimizer_options_init(options);
	int status = bt_sized_take(options, given, "optimizer", err);
	if (status == BETON_OK)
		status = dtrain__optimizer_check(params, options, err);
	if (status != BETON_OK)
		return status;
	dtrain_optimizer *optimizer = *out = calloc(1, sizeof(*optimizer));
	if (!optimizer)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", options->kind);
	optimizer->params = params;
	optimizer->device = dtrain_params_host(params) ? dtrain_params_host(params) : dtrain_params_device(params);
	optimizer->update.device = optimizer->device;
	optimizer->before.device = optimizer->after.device = dtrain_params_device(params);
	optimizer->api = dtrain_device_get_api(optimizer->device);
	optimizer->kind = dtrain__optimizer_kind_find(options->kind);
	optimizer->grad_divisor = options->grad_divisor;
	optimizer->clip_norm = options->clip_norm;
	optimizer->norm_parts = options->norm_parts;
	optimizer->norm = options->norm;
	optimizer->num_groups = options->num_groups;
	optimizer->adamw = options->adamw;
	optimizer->scaler = options->scaler ? dtrain_scaler_memory(options->scaler) : NULL;
	optimizer->add = options->add;
	optimizer->add_model = options->add_model;
	optimizer->gather = options->gather;
	optimizer->model_ranks = params->lines.model.size > 1 ? params->lines.model.size : 1;
	optimizer->model_rank = params->lines.model.rank;
	optimizer->add_context = options->add_context;
	status = open_hypers(optimizer, options, err);
	if (status == BETON_OK)
		status = open_ranges(optimizer, options, err);
	optimizer->runs = (optimizer->count + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
	if (status != BETON_OK)
		dtrain_optimizer_destroy(out);
	return status;
}

int dtrain_optimizer_create(dtrain_params *params, const dtrain_optimizer_options *given, dtrain_optimizer **out,
			    beton_error *err)
{
	if (BT_MISSING(err, params, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_optimizer_options options;
	int status = open_optimizer(params, given, &options, out, err);
	if (status != BETON_OK)
		return status;
	dtrain_optimizer *optimizer = *out;
	if (params->only_plan)
		status = bt_fail(err, BETON_STATE, "%s: the parameters are only planned", options.kind);
	if (status == BETON_OK && dtrain_params_host(params))
		status = dtrain__host_update_open(optimizer, err);
	if (status == BETON_OK)
		status = open_memory(optimizer, &options, err);
	if (status == BETON_OK)
		status = create_ops(optimizer, &options, err);
	optimizer->adamw = NULL;
	if (status != BETON_OK)
		dtrain_optimizer_destroy(out);
	return status;
}

/* Arguments of ops that never run have an address, and it is the same one. */
static void use_stand_in(dtrain_optimizer *optimizer, void *stand_in)
{
	optimizer->stand_in = optimizer->scalars.memory = optimizer->step = stand_in;
	optimizer->group = stand_in;
	optimizer->whole.gathered = optimizer->whole.parts = stand_in;
	for (size_t i = 0; i < sizeof(optimizer->whole.arrays) / sizeof(optimizer->whole.arrays[0]); i++)
		optimizer->whole.arrays[i] = stand_in;
	for (int i = 0; i < optimizer->num_ranges; i++) {
		dtrain__update_range *range = &optimizer->ranges[i];
		range->first = 0;
		range->values = range->grads = range->raw_grads = range->pieces = range->whole_groups = stand_in;
	}
}

int dtrain_optimizer_measure(dtrain_params *params, const dtrain_optimizer_options *given, size_t *out,
			     beton_error *err)
{
	if (BT_MISSING(err, params, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_optimizer_options options;
	dtrain_optimizer *optimizer;
	int64_t stand_in;
	*out = 0;
	int status = open_optimizer(params, given, &options, &optimizer, err);
	if (status != BETON_OK)
		return status;
	use_stand_in(optimizer, &stand_in);
	status = add_states(optimizer, err);
	if (status == BETON_OK && optimizer->kind->info.whole)
		status = dtrain__whole_open(optimizer, err);
	for (int i = 0; i < optimizer->num_ranges && status == BETON_OK && optimizer->kind->info.whole; i++) {
		optimizer->range = &optimizer->ranges[i];
		status = dtrain__pieces_count(optimizer, err);
	}
	if (status == BETON_OK)
		status = add_updates(optimizer, err);
	*out = optimizer->update.workspace_bytes + dtrain__whole_bytes(optimizer);
	use_stand_in(optimizer, NULL);
	optimizer->num_states = 0;
	dtrain_optimizer_destroy(&optimizer);
	return status;
}

void dtrain_optimizer_destroy(dtrain_optimizer **optimizer)
{
	if (!optimizer)
		return;
	dtrain_optimizer *o = *optimizer;
	if (!o)
		return;
	dtrain__host_update_close(o);
	dtrain__optimizer_free_ops(&o->before);
	dtrain__optimizer_free_ops(&o->update);
	dtrain__optimizer_free_ops(&o->after);
	for (int which = 0; which < DTRAIN__AVERAGES; which++)
		dtrain__average_close(o, which);
	for (int i = 0; i < o->num_states; i++)
		o->api->free(o->device, o->states[i].memory);
	dtrain__scalars_close(&o->scalars);
	o->api->free(o->device, o->group);
	if (o->before.device) {
		dtrain_device_get_api(o->before.device)->free(o->before.device, o->clip);
		dtrain_device_get_api(o->before.device)->free(o->before.device, o->norm_table);
	}
	o->api->free(o->device, o->step);
	dtrain__whole_close(o);
	for (int i = 0; i < o->num_ranges; i++) {
		o->api->free(o->device, o->ranges[i].pieces);
		free(o->ranges[i].matrices);
	}
	free(o->ranges);
	free(o->hypers);
	free(o);
	*optimizer = NULL;
}

/* ---- steps ---- */

int dtrain_optimizer_set_rate(dtrain_optimizer *optimizer, double lr, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, optimizer, stream))
		return BETON_INVALID_ARGUMENT;
	const dtrain__optimizer_kind *kind = optimizer->kind;
	if (!(lr >= 0 && lr <= (double)FLT_MAX))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: a rate of %g is not in [0, %g]", kind->info.name, lr,
			       (double)FLT_MAX);
	int status = dtrain_optimizer_check(optimizer, err);
	if (status == BETON_OK)
		status = dtrain__scalars_begin(&optimizer->scalars, err);
	if (status != BETON_OK)
		return status;
	for (int32_t i = 0; i < optimizer->num_groups; i++) {
		const double *hypers = optimizer->hypers + (ptrdiff_t)i * kind->info.num_hypers;
		kind->fill(hypers, lr * hypers[0], optimizer->scalars.host + (ptrdiff_t)i * kind->num_scalars);
	}
	return dtrain__scalars_put(&optimizer->scalars, stream, err);
}

int dtrain_optimizer_apply(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, optimizer, stream))
		return BETON_INVALID_ARGUMENT;
	if (optimizer->host_update)
		return dtrain__host_update_apply(optimizer, stream, err);
	int status = dtrain__optimizer_run(optimizer, &optimizer->before, stream, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_run(optimizer, &optimizer->update, stream, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_run(optimizer, &optimizer->after, stream, err);
	return status == BETON_OK ? dtrain__optimizer_changed(optimizer, stream, err) : status;
}

int dtrain_optimizer_abandon(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, optimizer, stream))
		return BETON_INVALID_ARGUMENT;
	return optimizer->host_update ? dtrain__host_update_abandon(optimizer, stream, err) : BETON_OK;
}

int dtrain_optimizer_step(dtrain_optimizer *optimizer, double lr, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, optimizer, stream))
		return BETON_INVALID_ARGUMENT;
	int status = dtrain_optimizer_set_rate(optimizer, lr, stream, err);
	return status == BETON_OK ? dtrain_optimizer_apply(optimizer, stream, err) : status;
}
