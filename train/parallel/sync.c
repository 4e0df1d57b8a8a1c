/* SPDX-License-Identifier: Apache-2.0
 *
 * From options to a strategy whose calls are in the programs that train, and its start with the other ranks.
 */
#include "sync.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "comm/work.h"
#include "common/error.h"
#include "common/sized.h"
#include "core/graph.h"
#include "core/params.h"

#define DEFAULT_FIRST_UNIT_BYTES (1u << 20)
#define DEFAULT_UNIT_BYTES (25u << 20)

static const dtrain__sync_kind *const kinds[] = {&dtrain__sync_ddp};

void dtrain_sync_options_init(dtrain_sync_options *options)
{
	*options = (dtrain_sync_options){.struct_size = sizeof(*options),
					 .strategy = dtrain__sync_ddp.name,
					 .first_unit_bytes = DEFAULT_FIRST_UNIT_BYTES,
					 .unit_bytes = DEFAULT_UNIT_BYTES,
					 .registration = DTRAIN_REGISTER_WITHIN_MACHINE};
}

static const dtrain__sync_kind *find_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (name && strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	return NULL;
}

/* The group of the mesh whose ranks have the same parameters. NULL: there is no mesh. */
static int find_group(const dtrain_mesh *mesh, dtrain_params *params, dtrain_group **out, beton_error *err)
{
	*out = mesh ? dtrain_mesh_group(mesh, "replicate") : NULL;
	if (mesh && !*out)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: the mesh has no axis \"replicate\"");
	return *out ? dtrain__group_use_device(*out, dtrain_params_device(params), err) : BETON_OK;
}

/* The gradients are what the group adds up. */
static int allocate_grads(void *context, size_t bytes, void **memory, void **owner, beton_error *err)
{
	const dtrain_sync *sync = context;
	dtrain_group_memory *made = NULL;
	int status = dtrain_group_memory_create(sync->group, bytes, sync->options.registration, &made, err);
	*owner = made;
	*memory = made ? dtrain_group_memory_data(made) : NULL;
	return status;
}

static void free_grads(void *owner)
{
	dtrain_group_memory *memory = owner;
	dtrain_group_memory_destroy(&memory);
}

int dtrain_sync_create(dtrain_params *params, const dtrain_mesh *mesh, const dtrain_sync_options *given,
		       dtrain_sync **out, beton_error *err)
{
	dtrain_sync_options options;
	dtrain_unit_policy units;
	dtrain_group *group;
	*out = NULL;
	dtrain_sync_options_init(&options);
	int status = given ? bt_sized_take(&options, given, "sync options", err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	const dtrain__sync_kind *kind = find_kind(options.strategy);
	if (!kind)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: there is no strategy '%s'",
			       options.strategy ? options.strategy : "");
	if ((unsigned)options.registration > DTRAIN_REGISTER_NEVER)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: registration %d", (int)options.registration);
	status = find_group(mesh, params, &group, err);
	if (status != BETON_OK)
		return status;
	dtrain_unit_policy_init(&units);
	units.first_bytes = options.first_unit_bytes;
	units.bytes = options.unit_bytes;
	status = dtrain_params_set_units(params, &units, err);
	if (status != BETON_OK)
		return status;
	dtrain_sync *sync = calloc(1, sizeof(*sync));
	if (!sync)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	sync->params = params;
	sync->device = dtrain_params_device(params);
	sync->api = dtrain_device_get_api(sync->device);
	sync->kind = kind;
	sync->options = options;
	sync->group = group;
	const dtrain__memory_source source = {.context = sync, .alloc = allocate_grads, .free = free_grads};
	if (group)
		dtrain__params_set_grads_source(params, &source);
	*out = sync;
	return BETON_OK;
}

void dtrain_sync_destroy(dtrain_sync **out)
{
	dtrain_sync *sync = *out;
	if (!sync)
		return;
	dtrain_sync_stop(sync);
	dtrain__params_set_grads_source(sync->params, NULL);
	dtrain__sync_destroy_sums(sync);
	dtrain__sync_destroy_reductions(sync);
	free(sync->covered);
	free(sync);
	*out = NULL;
}

/* Creates what needs the allocated parameters. */
static int prepare(dtrain_sync *sync, beton_error *err)
{
	if (sync->reductions)
		return BETON_OK;
	int status = dtrain__sync_create_reductions(sync, err);
	if (status == BETON_OK && sync->options.accumulates)
		status = dtrain__sync_create_sums(sync, err);
	if (status != BETON_OK) {
		dtrain__sync_destroy_sums(sync);
		dtrain__sync_destroy_reductions(sync);
	}
	return status;
}

/* What a program does not write would be the sum of the one before, and be added up again. */
static int compare_covered(dtrain_sync *sync, const dtrain_graph *graph, beton_error *err)
{
	int count = dtrain_params_count(sync->params);
	uint8_t *covered = calloc((size_t)count + DTRAIN_FIGURES, 1);
	if (!covered)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	for (int32_t i = 0; i < graph->num_tensors; i++) {
		const dtrain__tensor *tensor = &graph->tensors[i];
		if (tensor->role == DTRAIN__GRAD)
			covered[tensor->index] = 1;
		else if (tensor->role == DTRAIN__FIGURE)
			covered[count + tensor->index] = 1;
	}
	if (sync->covered && memcmp(covered, sync->covered, (size_t)count + DTRAIN_FIGURES) != 0) {
		free(covered);
		return bt_fail(err, BETON_UNSUPPORTED,
			       "sync: the graph does not give gradients to the same parameters, or write the same "
			       "figures, as the one before");
	}
	free(sync->covered);
	sync->covered = covered;
	return BETON_OK;
}

static int run_pass(void *context, dtrain__schedule *schedule, beton_error *err)
{
	dtrain_sync *sync = context;
	if (schedule->graph->params != sync->params || !schedule->graph->has_backward)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: the graph is of %s",
			       schedule->graph->has_backward ? "other parameters" : "no backward");
	int status = prepare(sync, err);
	if (status == BETON_OK)
		status = compare_covered(sync, schedule->graph, err);
	return status == BETON_OK ? sync->kind->plan(sync, schedule, err) : status;
}

int dtrain_sync_compile(dtrain_sync *sync, dtrain_graph **graph, dtrain_program **out, beton_error *err)
{
	const dtrain__pass pass = {.run = run_pass, .context = sync};
	return dtrain__graph_compile(graph, &pass, 1, out, err);
}

static int allocate_packed(dtrain_sync *sync, beton_error *err)
{
	sync->packed_count = sync->moving_count = 0;
	for (int i = 0; i < dtrain_params_buffer_count(sync->params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(sync->params, i);
		sync->packed_count += dtrain_shape_count(&buffer->shape);
		sync->moving_count += buffer->fixed ? 0 : dtrain_shape_count(&buffer->shape);
	}
	return sync->api->alloc(sync->device,
				(size_t)sync->packed_count * dtrain_dtype_size(dtrain_params_dtype(sync->params)),
				&sync->packed, err);
}

int dtrain_sync_start(dtrain_sync *sync, beton_error *err)
{
	if (!sync->group || sync->started || !sync->reductions)
		return bt_fail(err, BETON_STATE, "sync: %s",
			       !sync->group    ? "it was created without a mesh"
			       : sync->started ? "it is started"
					       : "no graph was compiled");
	sync->started = true;
	dtrain__sync_give_up_step(sync);
	int status = allocate_packed(sync, err);
	if (status == BETON_OK)
		status = dtrain__sync_compare(sync, err);
	if (status == BETON_OK)
		status = dtrain__sync_broadcast(sync, err);
	if (status != BETON_OK)
		dtrain_sync_stop(sync);
	return status;
}

void dtrain_sync_stop(dtrain_sync *sync)
{
	if (!sync->started)
		return;
	dtrain__sync_drain(sync);
	dtrain__sync_give_up_step(sync);
	sync->api->free(sync->device, sync->packed);
	sync->packed = NULL;
	sync->started = false;
}
