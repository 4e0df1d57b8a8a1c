/* SPDX-License-Identifier: Apache-2.0
 *
 * From options to a strategy whose calls are in the programs that train, and its start with the other ranks.
 */
#include "sync.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group/group.h"
#include "comm/group/work.h"
#include "common/error.h"
#include "common/sized.h"
#include "core/graph.h"
#include "core/params.h"
#include "parallel/hooks/compress.h"
#include "parallel/mesh.h"
#include "tree.h"

#define DEFAULT_FIRST_UNIT_BYTES (1u << 20)
#define DEFAULT_UNIT_BYTES (25u << 20)

#define DEFAULT_PREFETCH_BYTES (64u << 20)

static const dtrain__sync_kind kinds[] = {
	{.name = "ddp", .unit = "bucket", .whole_values = true, .whole_grads = true},
	{.name = "zero1", .unit = "unit", .shards = true, .whole_values = true, .whole_grads = true},
	{.name = "zero2", .unit = "unit", .shards = true, .whole_values = true},
	{.name = "zero3", .unit = "unit", .shards = true},
	{.name = "fsdp", .unit = "unit", .shards = true},
	{.name = "hsdp", .unit = "unit", .shards = true},
	{.name = "local", .unit = "bucket", .whole_values = true, .whole_grads = true, .has_rounds = true},
};

void dtrain_sync_options_init_sized(dtrain_sync_options *options, size_t size)
{
	const dtrain_sync_options defaults = {.struct_size = sizeof(defaults),
					      .strategy = kinds[0].name,
					      .prefetch_bytes = DEFAULT_PREFETCH_BYTES,
					      .registration = DTRAIN_REGISTER_WITHIN_MACHINE,
					      .tensor_overlap = 1};
	bt_sized_init(options, size, &defaults);
}

static const dtrain__sync_kind *find_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (name && strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}

/* How ranks without groups would share the parameters. */
static int plan_ranks(dtrain_sync *sync, beton_error *err)
{
	const dtrain_sync_options *options = &sync->options;
	int32_t ranks = options->plan_ranks, wanted = options->plan_shard > 0 ? options->plan_shard : ranks;
	int32_t shard = sync->kind->shards ? wanted : 1;
	if (ranks % shard != 0 || options->plan_shard < 0 || options->plan_rank < 0 || options->plan_rank >= ranks)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: rank %d of %d ranks, with %d ranks to a copy",
			       options->plan_rank, ranks, shard);
	if (options->plan_tensor < 0 || options->plan_context < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "sync: %d ranks along the axis \"tensor\", %d along \"context\"", options->plan_tensor,
			       options->plan_context);
	sync->num_shards = shard;
	sync->num_replicas = ranks / shard * (options->plan_context > 1 ? options->plan_context : 1);
	return dtrain_params_only_plan(sync->params, err);
}

/* A group of one rank has nothing to divide or to add up. */
static dtrain_group *several(dtrain_group *group)
{
	return group && dtrain_group_size(group) > 1 ? group : NULL;
}

/* Gathers need a lane of their own, so that they do not wait for reductions. */
static int open_gathers(dtrain_sync *sync, beton_error *err)
{
	dtrain_group_split_options split;
	dtrain_group_split_options_init(&split);
	split.own_lane = true;
	split.copy_engines = true;
	int status = dtrain_group_split(sync->shards, 0, dtrain_group_rank(sync->shards), &split, &sync->gathers, err);
	return status == BETON_OK ? dtrain__group_use_device(sync->gathers, sync->device, err) : status;
}

/* Finds the ranks that train together in the mesh, and how they share the parameters. */
static int find_groups(dtrain_sync *sync, const dtrain_mesh *mesh, beton_error *err)
{
	if (!mesh)
		return sync->options.plan_ranks > 0 ? plan_ranks(sync, err) : BETON_OK;
	sync->mesh = mesh;
	sync->group = dtrain_mesh_gradient_group(mesh);
	sync->model = several(dtrain_mesh_model_group(mesh));
	sync->pipeline = several(dtrain_mesh_group(mesh, "pipeline"));
	sync->shards = sync->kind->shards ? several(dtrain_mesh_group(mesh, "shard")) : NULL;
	sync->replicas = sync->shards ? several(dtrain__mesh_replicas(mesh)) : NULL;
	sync->num_shards = sync->shards ? dtrain_group_size(sync->shards) : 1;
	sync->num_replicas = dtrain_group_size(sync->group) / sync->num_shards;
	dtrain_group *const groups[] = {sync->group, sync->model, sync->pipeline, sync->shards, sync->replicas};
	int status = BETON_OK;
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]) && status == BETON_OK; i++)
		if (groups[i])
			status = dtrain__group_use_device(groups[i], sync->device, err);
	return status;
}

/* A hook adds up whole arrays; only a rounding is for sums over shards as well. */
static int check_hook(const dtrain_sync *sync, beton_error *err)
{
	dtrain_dtype type;
	if (!sync->hook.create || !sync->shards || sync->replicas || dtrain__compression_rounds(&sync->hook, &type))
		return BETON_OK;
	return bt_fail(err, BETON_UNSUPPORTED,
		       "sync: '%s' adds up gradients of ddp, or of replicas; the strategy %s on %d ranks has neither",
		       sync->hook.name, sync->kind->name, dtrain_group_size(sync->group));
}

/* Hooks, and sums over replicas, end after backward, and need memory for all gradients until then. */
static bool offload_grads(const dtrain_sync *sync)
{
	dtrain_dtype type;
	bool hooked = sync->hook.create && (sync->num_shards == 1 || !dtrain__compression_rounds(&sync->hook, &type));
	return !hooked && (sync->num_shards == 1 || sync->num_replicas == 1);
}

static int check_overlap(const dtrain_sync *sync, beton_error *err)
{
	const char *other = sync->hook.create                    ? sync->hook.name
			    : sync->options.deterministic_shards ? "deterministic shards"
			    : sync->kind->has_rounds             ? sync->kind->name
								 : NULL;
	return !sync->options.overlap || !other
		       ? BETON_OK
		       : bt_fail(err, BETON_UNSUPPORTED, "sync: the option overlap does not go with %s", other);
}

/* Sizes that are not given: PyTorch's buckets, or a block of the model in a unit. */
static int set_units(dtrain_sync *sync, beton_error *err)
{
	const dtrain_sync_options *options = &sync->options;
	bool sharded = sync->kind->shards, sized = options->unit_bytes > 0;
	dtrain_unit_policy units;
	dtrain_unit_policy_init(&units);
	units.pattern = options->unit_pattern;
	units.whole = options->whole_params;
	/* Norms are added up unit by unit, so with deterministic shards all strategies have the same units. */
	bool alike = sharded || options->deterministic_shards;
	units.by_block = alike && !sized && !units.pattern;
	if (sized)
		units.bytes = options->unit_bytes;
	else if (!alike)
		units.bytes = DEFAULT_UNIT_BYTES;
	if (options->first_unit_bytes)
		units.first_bytes = options->first_unit_bytes;
	else
		units.first_bytes = alike ? units.bytes : DEFAULT_FIRST_UNIT_BYTES;
	int32_t planned = options->plan_rank % sync->num_shards;
	const dtrain__sharding sharding = {.shards = sync->num_shards,
					   .shard = sync->shards ? dtrain_group_rank(sync->shards) : planned,
					   .whole_values = sync->kind->whole_values,
					   .whole_grads = sync->kind->whole_grads,
					   .alike = options->deterministic_shards > 0,
					   .offload_grads = offload_grads(sync)};
	units.shards = options->deterministic_shards ? options->deterministic_shards : sharding.shards;
	int status = dtrain_params_set_units(sync->params, &units, err);
	return status == BETON_OK ? dtrain__params_shard(sync->params, &sharding, err) : status;
}

/* The first rank along each axis. */
static dtrain__lines planned_lines(const dtrain_sync_options *options)
{
	dtrain__lines lines = {.data_axes = 0};
	if (options->plan_ranks <= 0)
		return lines;
	lines.along[DTRAIN_AXIS_TENSOR].size = options->plan_tensor;
	lines.along[DTRAIN_AXIS_CONTEXT].size = options->plan_context;
	lines.model.size = (options->plan_tensor > 1 ? options->plan_tensor : 1) *
			   (options->plan_context > 1 ? options->plan_context : 1);
	return lines;
}

int dtrain_sync_create(dtrain_params *params, const dtrain_mesh *mesh, const dtrain_sync_options *given,
		       dtrain_sync **out, beton_error *err)
{
	if (BT_MISSING(err, params, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_sync_options options;
	*out = NULL;
	dtrain_sync_options_init(&options);
	int status = given ? bt_sized_take(&options, given, "sync options", err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	const dtrain__sync_kind *kind = find_kind(options.strategy);
	if (!kind)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: unknown strategy '%s'",
			       options.strategy ? options.strategy : "");
	if ((unsigned)options.registration > DTRAIN_REGISTER_NEVER)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: registration %d", (int)options.registration);
	if ((unsigned)options.buffers > DTRAIN_BUFFERS_OWN)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: buffers %d", (int)options.buffers);
	if (options.tensor_overlap < 1 || options.tensor_overlap > DTRAIN_MAX_TENSOR_OVERLAP)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: a tensor_overlap of %d, not of 1 to %d",
			       options.tensor_overlap, DTRAIN_MAX_TENSOR_OVERLAP);
	dtrain_sync *sync = calloc(1, sizeof(*sync));
	if (!sync)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	sync->params = params;
	sync->device = dtrain_params_device(params);
	sync->api = dtrain_device_get_api(sync->device);
	sync->kind = kind;
	sync->options = options;
	sync->num_shards = sync->num_replicas = 1;
	status = dtrain__sync_take_hook(&options, &sync->hook, err);
	if (status == BETON_OK)
		status = find_groups(sync, mesh, err);
	if (status == BETON_OK)
		status = check_hook(sync, err);
	if (status == BETON_OK)
		status = check_overlap(sync, err);
	if (status == BETON_OK)
		status = dtrain__tree_check(sync, err);
	if (status == BETON_OK)
		status = set_units(sync, err);
	if (status == BETON_OK && options.overlap)
		status = dtrain__timeline_create(sync, err);
	if (status != BETON_OK) {
		dtrain__sync_free_hook(&options, &sync->hook);
		free(sync);
		return status;
	}
	sync->options.unit_pattern = NULL; /* borrowed */
	dtrain__sync_supply_memory(sync);
	params->lines = mesh ? dtrain__mesh_lines(mesh) : planned_lines(&options);
	params->sync_norms = options.sync_batch_norm;
	params->divides_rows = options.sequence_parallel && params->lines.along[DTRAIN_AXIS_TENSOR].size > 1;
	params->row_parts = params->divides_rows ? options.tensor_overlap : 0;
	*out = sync;
	return BETON_OK;
}

void dtrain_sync_destroy(dtrain_sync **out)
{
	if (!out)
		return;
	dtrain_sync *sync = *out;
	if (!sync)
		return;
	dtrain_sync_stop(sync);
	dtrain__sync_leave_memory(sync);
	sync->params->lines = (dtrain__lines){0};
	sync->params->sync_norms = sync->params->divides_rows = false;
	sync->params->row_parts = 0;
	dtrain__tree_destroy(sync);
	dtrain__sync_destroy_sums(sync);
	dtrain__sync_destroy_programs(sync, NULL);
	dtrain__sync_destroy_states(sync);
	dtrain__sync_destroy_roundings(sync);
	dtrain__sync_destroy_reductions(sync);
	dtrain__sync_close_unit_offload(sync);
	dtrain__sync_free_hook(&sync->options, &sync->hook);
	dtrain__timeline_destroy(sync);
	free(sync->covered);
	free(sync);
	*out = NULL;
}

/* Creates what needs the allocated parameters. */
static int prepare(dtrain_sync *sync, beton_error *err)
{
	if (sync->reductions)
		return BETON_OK;
	int status = dtrain__sync_open_unit_offload(sync, err);
	if (status == BETON_OK)
		status = dtrain__sync_create_reductions(sync, err);
	if (status == BETON_OK && sync->options.deterministic_shards)
		status = dtrain__tree_create(sync, err);
	else if (status == BETON_OK && sync->options.accumulates)
		status = dtrain__sync_create_sums(sync, err);
	if (status == BETON_OK)
		status = dtrain__sync_create_roundings(sync, err);
	if (status == BETON_OK)
		status = dtrain__sync_create_states(sync, err);
	if (status == BETON_OK)
		status = dtrain__sync_open_stages(sync, err);
	if (status != BETON_OK) {
		dtrain__tree_destroy(sync);
		dtrain__sync_destroy_sums(sync);
		dtrain__sync_destroy_roundings(sync);
		dtrain__sync_destroy_states(sync);
		dtrain__sync_destroy_reductions(sync);
	}
	return status;
}

/* A gradient that a program does not write would still be the last program's sum, and be added up again. So the
 * programs of one stage write the same, and the stages of a parameter all write its gradient. */
static int compare_covered(dtrain_sync *sync, const dtrain_graph *graph, beton_error *err)
{
	const size_t count = (size_t)dtrain_params_count(sync->params), all = count + DTRAIN_STEP_METRICS;
	const uint64_t bit = sync_bit(graph);
	bool known = sync->covering & bit, same = true;
	uint64_t *covered = calloc(all, sizeof(*covered));
	if (covered && !sync->covered)
		sync->covered = calloc(all, sizeof(*covered));
	if (!covered || !sync->covered) {
		free(covered);
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	}
	for (int32_t i = 0; i < graph->num_tensors; i++) {
		const dtrain__tensor *tensor = &graph->tensors[i];
		if (tensor->role == DTRAIN__GRAD)
			covered[tensor->index] = bit;
		else if (tensor->role == DTRAIN__STEP_METRIC)
			covered[count + (size_t)tensor->index] = bit;
	}
	for (size_t i = 0; i < all && same; i++) {
		const dtrain_param *param = i < count ? dtrain_params_at(sync->params, (int)i) : NULL;
		bool shares = param && (param->stages & bit) && (param->stages & sync->covering & ~bit);
		same = (!known || (sync->covered[i] & bit) == covered[i]) &&
		       (!shares || !covered[i] == !(sync->covered[i] & ~bit));
	}
	for (size_t i = 0; i < all && same; i++)
		sync->covered[i] |= covered[i];
	sync->covering |= same ? bit : 0;
	free(covered);
	return same ? BETON_OK
		    : bt_fail(err, BETON_UNSUPPORTED,
			      "sync: the graph does not give gradients to the same parameters, or write the same step "
			      "metrics, as the one before");
}

static int run_pass(void *context, dtrain__schedule *schedule, beton_error *err)
{
	dtrain_sync *sync = context;
	if (schedule->graph->params != sync->params)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: the graph is of other parameters");
	int status = prepare(sync, err);
	if (status == BETON_OK && schedule->graph->has_backward)
		status = compare_covered(sync, schedule->graph, err);
	if (status == BETON_OK)
		status = dtrain__sync_plan(sync, schedule, err);
	if (status == BETON_OK && schedule->graph->has_backward)
		dtrain__sync_note_traffic(sync, schedule->graph, sync->programs);
	return status;
}

int dtrain_sync_compile(dtrain_sync *sync, dtrain_graph **graph, dtrain_program **out, beton_error *err)
{
	if (BT_MISSING(err, sync, graph, out) || BT_MISSING(err, *graph))
		return BETON_INVALID_ARGUMENT;
	const dtrain__pass pass = {.run = run_pass, .context = sync};
	return dtrain__graph_compile(graph, &pass, 1, out, err);
}

int dtrain_sync_measure(dtrain_sync *sync, dtrain_graph **graph, dtrain_program_info *out, beton_error *err)
{
	if (BT_MISSING(err, sync, graph, out) || BT_MISSING(err, *graph))
		return BETON_INVALID_ARGUMENT;
	const dtrain__pass pass = {.run = run_pass, .context = sync};
	const sync_program *before = sync->programs;
	sync_traffic *traffic = &sync->traffic[sync_number(*graph)];
	const sync_traffic compiled = *traffic;
	int status = sync->reductions ? BETON_OK : dtrain_params_allocate(sync->params, err);
	if (status == BETON_OK)
		status = prepare(sync, err);
	int operations = sync->num_operations;
	if (status == BETON_OK)
		status = dtrain__graph_measure(graph, &pass, 1, out, err);
	dtrain__sync_destroy_programs(sync, before);
	/* A step sends what compiled programs send. */
	if (before)
		*traffic = compiled;
	if (sync->reductions)
		sync->num_operations = operations;
	return status;
}

void dtrain_sync_set_listener(dtrain_sync *sync, dtrain_sync_listener listener, void *context)
{
	if (!sync)
		return;
	sync->listener = listener;
	sync->listener_context = context;
}

bool dtrain_sync_is_sharded(const dtrain_sync *sync)
{
	if (!sync)
		return false;
	return sync->num_shards > 1;
}

bool dtrain_sync_gathers_always(const dtrain_sync *sync)
{
	if (!sync)
		return false;
	return sync->num_shards > 1 && (!sync->kind->whole_values || sync->params->offload.units);
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
	if (BT_MISSING(err, sync))
		return BETON_INVALID_ARGUMENT;
	if (!sync->group || sync->started || !sync->reductions)
		return bt_fail(err, BETON_STATE, "sync: %s",
			       !sync->group    ? "it was created without a mesh"
			       : sync->started ? "it is started"
					       : "no graph was compiled");
	sync->started = true;
	dtrain__sync_give_up_step(sync);
	int status = allocate_packed(sync, err);
	if (status == BETON_OK && sync->shards)
		status = open_gathers(sync, err);
	if (status == BETON_OK)
		status = dtrain__sync_compare(sync, err);
	if (status == BETON_OK)
		status = dtrain__sync_register_memory(sync, err);
	if (status == BETON_OK)
		status = dtrain__sync_broadcast(sync, err);
	if (status != BETON_OK)
		dtrain_sync_stop(sync);
	return status;
}

void dtrain_sync_stop(dtrain_sync *sync)
{
	if (!sync)
		return;
	if (!sync->started)
		return;
	dtrain__sync_drain(sync);
	dtrain__sync_give_up_step(sync);
	sync->api->free(sync->device, sync->packed);
	sync->packed = NULL;
	dtrain_group_destroy(&sync->gathers);
	sync->started = false;
}
