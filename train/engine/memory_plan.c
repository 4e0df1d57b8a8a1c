/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "network.h"
#include "update.h"

enum { TRAINING = 0, EVALUATION = 1 };

size_t engine_memory_total(const engine_memory *memory)
{
	size_t bytes = memory->parameters + memory->copies + memory->buffers + memory->gradients + memory->sums +
		       memory->compression + memory->states + memory->updates;
	for (int i = 0; i < 2; i++)
		bytes += memory->activations[i] + memory->leases[i] + memory->scratch[i] + memory->batches[i];
	return bytes;
}

size_t engine_memory_host(const engine_memory *memory)
{
	return memory->host_parameters + memory->host_states + memory->host_updates + memory->host_activations;
}

uint64_t engine_memory_traffic(const engine_memory *memory)
{
	return memory->gathered + memory->scattered + memory->added_up;
}

static void add_program(engine_memory *memory, int which, const dtrain_program_facts *facts)
{
	memory->leases[which] = facts->lease_bytes;
	memory->activations[which] = facts->arena_bytes - facts->lease_bytes;
	memory->scratch[which] = facts->workspace_bytes;
	memory->host_activations += facts->host_bytes;
}

/* What is the same for all programs. */
static int add_parameters(const engine_rank *engine, engine_memory *memory, beton_error *err)
{
	dtrain_params_memory params = {.struct_size = sizeof(params)};
	dtrain_sync_facts sync = {.struct_size = sizeof(sync)};
	dtrain_params_get_memory(engine->params, &params);
	dtrain_sync_get_facts(engine->sync, engine->job.runs, &sync);
	for (int i = 0; i < dtrain_params_count(engine->params); i++)
		memory->elements += dtrain_params_at(engine->params, i)->count;
	memory->parameters = params.values;
	memory->copies = params.copies;
	memory->buffers = params.buffers;
	memory->gradients = params.grads;
	memory->sums = sync.sums_bytes;
	memory->compression = (size_t)dtrain_sync_hook_bytes(engine->sync);
	memory->host_parameters = params.host;
	size_t *states = engine->host ? &memory->host_states : &memory->states;
	if (!engine->job.evaluates)
		*states = (size_t)engine->job.states * params.updated +
			  params.updated / dtrain_dtype_size(DTRAIN_F32) / DTRAIN_PARAM_ALIGN;
	memory->gathered = sync.gathered;
	memory->scattered = sync.scattered;
	memory->added_up = sync.added_up;
	return engine_update_scratch(engine, engine->host ? &memory->host_updates : &memory->updates, err);
}

/* Buffers of a feed are for the batches of training and of evaluation. */
static void share_batches(const engine_rank *engine, engine_memory *memory)
{
	if (engine->staged && memory->batches[TRAINING])
		memory->batches[EVALUATION] = 0;
}

int engine_memory_read(const engine_rank *engine, engine_memory *out, beton_error *err)
{
	const engine_network *networks[] = {&engine->train, &engine->val};
	*out = (engine_memory){0};
	int status = add_parameters(engine, out, err);
	for (int i = 0; i < 2; i++) {
		dtrain_program_facts facts = {.struct_size = sizeof(facts)};
		if (!networks[i]->program)
			continue;
		dtrain_program_get_facts(networks[i]->program, &facts);
		add_program(out, i, &facts);
		out->batches[i] = engine_batches_bytes(engine, i == TRAINING, networks[i]);
	}
	share_batches(engine, out);
	return status;
}

/* ---- layouts ---- */

static bool shards(const engine_layout *layout)
{
	return strcmp(layout->strategy, "ddp") != 0 && strcmp(layout->strategy, "local") != 0;
}

static int32_t shards_of(const engine_layout *layout)
{
	return !shards(layout) ? 1 : layout->shard > 0 ? layout->shard : layout->ranks;
}

/* Of the strategies that keep shards alone there is one name. */
static const char *kind_of(const engine_layout *layout)
{
	const char *name = layout->strategy;
	bool keeps_shards = strcmp(name, "fsdp") == 0 || strcmp(name, "hsdp") == 0;
	return shards_of(layout) == 1 ? "ddp" : keeps_shards ? "zero3" : name;
}

bool engine_layout_is(const engine_layout *a, const engine_layout *b)
{
	return shards_of(a) == shards_of(b) && strcmp(kind_of(a), kind_of(b)) == 0;
}

int engine_layouts(int32_t ranks, int32_t shard, const engine_layout *chosen, engine_layout out[ENGINE_LAYOUTS])
{
	static const char *const names[] = {"ddp", "zero1", "zero2", "hsdp", "zero3"};
	int count = 0;
	bool found = !chosen;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		bool hybrid = strcmp(names[i], "hsdp") == 0;
		const engine_layout layout = {names[i], ranks, hybrid ? shard : 0};
		if ((i > 0 && ranks == 1) || (hybrid && (shard <= 1 || shard >= ranks || ranks % shard != 0)))
			continue;
		found = found || engine_layout_is(&layout, chosen);
		out[count++] = layout;
	}
	if (!found)
		out[count++] = *chosen;
	return count;
}

/* ---- planning ---- */

static dtrain_sync_options options_of(const engine_rank *engine, const engine_layout *layout)
{
	dtrain_sync_options options = engine->strategy;
	const engine_layout own = {.strategy = options.strategy, .ranks = 1};
	if (shards(&own) != shards(layout)) {
		options.first_unit_bytes = options.unit_bytes = 0;
		options.unit_pattern = NULL;
	}
	options.hook = NULL;
	options.strategy = layout->strategy;
	options.plan_ranks = layout->ranks;
	options.plan_shard = layout->shard;
	options.plan_rank = 0;
	return options;
}

static int plan_network(engine_rank *planned, int which, engine_memory *out, beton_error *err)
{
	dtrain_program_facts facts = {.struct_size = sizeof(facts)};
	int status = engine_measure(planned, which == TRAINING, &facts, &out->batches[which], err);
	if (status == BETON_OK)
		add_program(out, which, &facts);
	return status;
}

int engine_planned_open(const engine_rank *engine, const dtrain_sync_options *options, engine_rank *out,
			beton_error *err)
{
	*out = *engine;
	out->params = NULL;
	out->sync = NULL;
	int status = engine_create_params(engine, &out->params, err);
	return status == BETON_OK ? dtrain_sync_create(out->params, NULL, options, &out->sync, err) : status;
}

void engine_planned_close(engine_rank *planned)
{
	dtrain_sync_destroy(&planned->sync);
	dtrain_params_destroy(&planned->params);
}

int engine_planned_measure(engine_rank *planned, engine_memory *out, beton_error *err)
{
	int status = planned->job.evaluates ? BETON_OK : plan_network(planned, TRAINING, out, err);
	if (status == BETON_OK && planned->data->val.samples)
		status = plan_network(planned, EVALUATION, out, err);
	if (status == BETON_OK)
		status = add_parameters(planned, out, err);
	share_batches(planned, out);
	return status;
}

int engine_memory_plan(const engine_rank *engine, const engine_layout *layout, engine_memory *out, beton_error *err)
{
	const dtrain_sync_options options = options_of(engine, layout);
	engine_rank planned;
	*out = (engine_memory){0};
	int status = engine_planned_open(engine, &options, &planned, err);
	if (status == BETON_OK)
		status = engine_planned_measure(&planned, out, err);
	engine_planned_close(&planned);
	return status;
}

/* ---- the table ---- */

static double mb(uint64_t bytes)
{
	return (double)bytes / 1e6;
}

static int add_row(FILE *table, const engine_rank *engine, const engine_layout *layout, bool chosen, size_t limit,
		   beton_error *err)
{
	engine_memory m;
	char name[48], fits[16] = "", host[24] = "";
	int status = engine_memory_plan(engine, layout, &m, err);
	if (status != BETON_OK)
		return status;
	size_t total = engine_memory_total(&m), activations = 0;
	for (int i = 0; i < 2; i++)
		activations += m.activations[i] + m.scratch[i] + m.batches[i];
	snprintf(name, sizeof(name), layout->shard > 0 ? "%s --shard %" PRId32 : "%s", layout->strategy, layout->shard);
	if (limit)
		snprintf(fits, sizeof(fits), " %4s", total <= limit ? "yes" : "no");
	if (engine->job.offload)
		snprintf(host, sizeof(host), " %12.3f", mb(engine_memory_host(&m)));
	fprintf(table, "%c %-18s %12.3f %12.3f %12.3f %12.3f %12.3f %12.3f%s%s %13.3f\n", chosen ? '*' : ' ', name,
		mb(m.parameters + m.copies + m.buffers), mb(m.gradients + m.sums + m.compression),
		mb(m.states + m.updates), mb(activations), mb(m.leases[0] + m.leases[1]), mb(total), fits, host,
		mb(engine_memory_traffic(&m)));
	return BETON_OK;
}

int engine_memory_table(const engine_rank *engine, const engine_layout *layouts, int count, const engine_layout *chosen,
			size_t limit, char **out, beton_error *err)
{
	size_t size;
	int status = BETON_OK;
	*out = NULL;
	FILE *table = open_memstream(out, &size);
	if (table)
		fprintf(table,
			"--strategy, in MB      parameters    gradients    optimizer  activations    in flight"
			"          all%s%s   sent a step\n",
			limit ? " fits" : "", engine->job.offload ? "  on the host" : "");
	for (int i = 0; i < count && table && status == BETON_OK; i++)
		status = add_row(table, engine, &layouts[i], chosen && engine_layout_is(&layouts[i], chosen), limit,
				 err);
	if (!table || fclose(table) != 0)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a table");
	return status;
}
