/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "engine/network.h"
#include "update_memory.h"

enum { TRAINING = 0, EVALUATION = 1 };

size_t engine_memory_total(const engine_memory *memory)
{
	size_t bytes = memory->parameters + memory->copies + memory->buffers + memory->gradients + memory->sums +
		       memory->compression + memory->states + memory->updates;
	for (int i = 0; i < 2; i++)
		bytes += memory->activations[i] + memory->transients[i] + memory->scratch[i] + memory->batches[i];
	return bytes;
}

size_t engine_memory_host(const engine_memory *memory)
{
	return memory->host_parameters + memory->host_states + memory->host_updates + memory->host_activations;
}

uint64_t engine_memory_traffic(const engine_memory *memory)
{
	return memory->gathered + memory->scattered + memory->added_up + memory->exchanged + memory->passed;
}

static void add_program(engine_memory *memory, int which, const dtrain_program_info *info)
{
	memory->transients[which] = info->transient_bytes;
	memory->activations[which] = info->arena_bytes - info->transient_bytes;
	memory->scratch[which] = info->workspace_bytes;
	memory->host_activations += info->host_bytes;
}

/* Adds the memory that all programs share. */
static int add_parameters(const engine_rank *engine, engine_memory *memory, beton_error *err)
{
	dtrain_params_memory params = {.struct_size = sizeof(params)};
	dtrain_sync_info sync = {.struct_size = sizeof(sync)};
	dtrain_params_get_memory(engine->params, &params);
	dtrain_sync_get_info(engine->sync, engine->job.micro_batches, &sync);
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
	memory->exchanged = sync.exchanged;
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
		dtrain_program_info info;
		if (!networks[i]->program)
			continue;
		engine_network_info(engine, i == TRAINING, &info);
		add_program(out, i, &info);
		out->batches[i] = engine_batches_bytes(engine, i == TRAINING, networks[i]);
	}
	share_batches(engine, out);
	out->passed = dtrain_pipeline_sent(engine->train.pipeline);
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

/* One name stands for all strategies that keep only shards. */
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

dtrain_sync_options engine_layout_options(const engine_rank *engine, const engine_layout *layout)
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
	options.plan_tensor = engine->job.tensor;
	options.plan_context = engine->job.context_ranks;
	return options;
}

static int plan_network(engine_rank *planned, int which, engine_memory *out, beton_error *err)
{
	dtrain_program_info info = {.struct_size = sizeof(info)};
	int status = engine_measure(planned, which == TRAINING, &info, &out->batches[which], err);
	if (status == BETON_OK)
		add_program(out, which, &info);
	return status;
}

int engine_planned_open(const engine_rank *engine, const dtrain_sync_options *options, engine_rank *out,
			beton_error *err)
{
	*out = *engine;
	out->params = NULL;
	out->sync = NULL;
	out->stages.outline = NULL;
	int status = engine_create_params(engine, &out->params, err);
	return status == BETON_OK ? dtrain_sync_create(out->params, NULL, options, &out->sync, err) : status;
}

void engine_planned_close(engine_rank *planned)
{
	dtrain_sync_destroy(&planned->sync);
	dtrain_params_destroy(&planned->params);
	dtrain_params_destroy(&planned->stages.outline);
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
	const dtrain_sync_options options = engine_layout_options(engine, layout);
	engine_rank planned;
	*out = (engine_memory){0};
	int status = engine_planned_open(engine, &options, &planned, err);
	if (status == BETON_OK)
		status = engine_planned_measure(&planned, out, err);
	engine_planned_close(&planned);
	return status;
}

/* ---- the table ---- */

int engine_memory_rows(const engine_rank *engine, const engine_layout *layouts, int count, engine_memory_row *out,
		       beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < count && status == BETON_OK; i++) {
		out[i] = (engine_memory_row){.layout = layouts[i]};
		status = engine_memory_plan(engine, &layouts[i], &out[i].memory, err);
	}
	return status;
}

/* MB to the byte where all is small, else GB to a tenth. */
typedef struct table_unit {
	const char *name;
	double bytes;
	int digits;
} table_unit;

static table_unit unit_of(const engine_memory_row *rows, int count)
{
	static const table_unit mb = {"MB", 1e6, 3}, gb = {"GB", 1e9, 1};
	for (int i = 0; i < count; i++)
		if ((double)engine_memory_total(&rows[i].memory) >= gb.bytes)
			return gb;
	return mb;
}

static void put_bytes(FILE *table, const table_unit *unit, int width, uint64_t bytes)
{
	fprintf(table, " %*.*f", width, unit->digits, (double)bytes / unit->bytes);
}

static void put_header(FILE *table, const engine_memory_table_options *options, const table_unit *unit, bool offload)
{
	fprintf(table, "--strategy, in %s   ", unit->name);
	if (options->batches)
		fprintf(table, "     batch");
	fprintf(table,
		"   parameters    gradients    optimizer  activations    in flight          all%s%s   sent a step",
		options->limit ? " fits" : "", offload ? "  on the host" : "");
	if (options->times)
		fprintf(table, "   compute, ms   exposed, ms   samples/s");
	putc('\n', table);
}

static void put_row(FILE *table, const engine_rank *engine, const engine_memory_row *row,
		    const engine_memory_table_options *options, const table_unit *unit)
{
	const engine_memory *m = &row->memory;
	const engine_layout *layout = &row->layout;
	size_t total = engine_memory_total(m), activations = 0;
	char name[48];
	for (int i = 0; i < 2; i++)
		activations += m->activations[i] + m->scratch[i] + m->batches[i];
	snprintf(name, sizeof(name), "%s%s", layout->strategy, strcmp(layout->strategy, "zero3") == 0 ? " (fsdp)" : "");
	if (layout->shard > 0)
		bt_append(name, sizeof(name), " --shard %" PRId32, layout->shard);
	bool chosen = options->chosen && engine_layout_is(layout, options->chosen);
	fprintf(table, "%c %-18s", chosen ? '*' : ' ', name);
	if (options->batches)
		fprintf(table, " %9" PRId64, row->batch);
	put_bytes(table, unit, 12, m->parameters + m->copies + m->buffers);
	put_bytes(table, unit, 12, m->gradients + m->sums + m->compression);
	put_bytes(table, unit, 12, m->states + m->updates);
	put_bytes(table, unit, 12, activations);
	put_bytes(table, unit, 12, m->transients[0] + m->transients[1]);
	put_bytes(table, unit, 12, total);
	if (options->limit)
		fprintf(table, " %4s", total <= options->limit ? "yes" : "no");
	if (engine->job.offload)
		put_bytes(table, unit, 12, engine_memory_host(m));
	put_bytes(table, unit, 13, engine_memory_traffic(m));
	if (options->times) {
		double step_ms = row->time.compute_ms + row->time.exposed_ms;
		double rate = 1e3 * (double)(row->batch * engine->job.micro_batches * layout->ranks) / step_ms;
		fprintf(table, " %13.1f %13.1f %11.*f", row->time.compute_ms, row->time.exposed_ms, rate < 1000, rate);
	}
	putc('\n', table);
}

int engine_memory_table(const engine_rank *engine, const engine_memory_row *rows, int count,
			const engine_memory_table_options *options, char **out, beton_error *err)
{
	const table_unit unit = unit_of(rows, count);
	size_t size;
	*out = NULL;
	FILE *table = open_memstream(out, &size);
	if (!table)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a table");
	put_header(table, options, &unit, engine->job.offload != ENGINE_OFFLOAD_NONE);
	for (int i = 0; i < count; i++)
		put_row(table, engine, &rows[i], options, &unit);
	return fclose(table) == 0 ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for a table");
}
