/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh_answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "measured.h"

void plan_mesh_text(const plan_mesh *mesh, char *text, size_t size)
{
	const struct {
		const char *name;
		int32_t ranks;
	} axes[] = {{"pipeline", mesh->pipeline},
		    {"replicate", mesh->replicate},
		    {"shard", mesh->shard},
		    {"context", mesh->context},
		    {"tensor", mesh->tensor}};
	*text = 0;
	for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); i++)
		if (axes[i].ranks > 1)
			bt_append(text, size, "%s%s=%d", *text ? "," : "", axes[i].name, axes[i].ranks);
	if (!*text)
		bt_append(text, size, "replicate=1");
}

static int check_axes(const plan_options *options, const run_axes *axes, beton_error *err)
{
	int64_t product = 1;
	for (int i = 0; i < DTRAIN_AXES; i++)
		product *= axes->size[i] > 0 ? axes->size[i] : 1;
	if (options->ranks % (uint64_t)product == 0)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "--mesh: the product of the axes is %" PRId64 ", which does not divide --world-size %" PRIu64,
		       product, options->ranks);
}

/* The question's speeds with what files have in their place. */
static int find_speeds(const plan_question *q, const plan_mesh_options *meshes, engine_speed *speed,
		       plan_machine *machine, plan_measured_step *step, beton_error *err)
{
	int status = BETON_OK;
	*speed = q->speed;
	machine->within.latency = meshes->link_latency;
	machine->between.latency = meshes->network_latency;
	if (meshes->measured_step)
		status = plan_read_step(meshes->measured_step, step, err);
	if (meshes->measured_step && status == BETON_OK) {
		speed->flops = step->flops;
		speed->bandwidth = step->bandwidth;
	}
	machine->within.rate = speed->link;
	machine->between.rate = speed->network;
	if (meshes->measured_link && status == BETON_OK)
		status = plan_read_link(meshes->measured_link, &machine->within, err);
	if (meshes->measured_network && status == BETON_OK)
		status = plan_read_link(meshes->measured_network, &machine->between, err);
	speed->link = machine->within.rate;
	speed->network = machine->between.rate;
	return status;
}

static int open_machine(const plan_question *q, const plan_mesh_options *meshes, plan_machine *out,
			plan_measured_step *step, beton_error *err)
{
	engine_speed speed;
	*out = (plan_machine){
		.memory = (double)q->limit, .host_ranks = q->speed.host_ranks, .hides = !q->engine.caps.host_memory};
	int status = find_speeds(q, meshes, &speed, out, step, err);
	if (status != BETON_OK)
		return status;
	if (!engine_speed_is_known(&speed, (int32_t)q->options->ranks))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mesh needs the speeds of the machine: give --peak, --bandwidth%s%s, or a --gpu%s",
			       speed.host_ranks > 1 ? " and --link" : "",
			       (int64_t)q->options->ranks > speed.host_ranks ? " and --network" : "",
			       speed.host_ranks == 1 && speed.link > 0 && q->options->ranks > 1
				       ? "; --link is between ranks of one host: give --host-ranks above 1, too"
				       : "");
	const double efficiency = meshes->measured_step ? 1 : meshes->efficiency;
	out->flops = speed.flops * efficiency;
	out->bandwidth = speed.bandwidth;
	out->peak = speed.flops;
	return BETON_OK;
}

/* The efficiency of a measured step: the time that it would take at the peaks, over the time that it took. */
static int take_efficiency(plan_costs *costs, plan_machine *machine, const plan_measured_step *step, const char *path,
			   beton_error *err)
{
	const engine_example *example = &costs->question->example;
	plan_mesh_row row = {.mesh = {.pipeline = 1,
				      .replicate = 1,
				      .shard = 1,
				      .context = 1,
				      .tensor = 1,
				      .strategy = "ddp",
				      .batch = step->batch,
				      .micro_batches = 1,
				      .schedule = "1f1b",
				      .chunks = 1}};
	if (example->job.task == &lm_task) {
		const int64_t length =
			example->lm.context_length ? example->lm.context_length : example->job.transformer->positions;
		if (step->context_length != length)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: a step with --context-length %" PRId64 ", and this plan has %" PRId64, path,
				       step->context_length, length);
	}
	plan_schedules schedules = {.next = 0};
	const double memory = machine->memory;
	machine->memory = 0;
	int status = plan_mesh_predict(costs, &schedules, &row, err);
	plan_schedules_close(&schedules);
	machine->memory = memory;
	if (status != BETON_OK)
		return status;
	const double efficiency = row.time.total / step->seconds;
	machine->flops *= efficiency;
	machine->bandwidth *= efficiency;
	plan_costs_forget(costs);
	return BETON_OK;
}

static void print_heading(const plan_question *q, const plan_costs *costs, const plan_mesh_options *meshes)
{
	const plan_machine *m = costs->machine;
	printf("%s: %.1f million parameters, %s; %" PRIu64 " rank%s, %" PRId64 " sample%s a step, %s, training on %s\n",
	       q->example.job.model, costs->elements / 1e6, q->example.job.optimizer, q->options->ranks,
	       bt_plural(q->options->ranks), meshes->search.samples, bt_plural((uint64_t)meshes->search.samples),
	       dtrain_dtype_name(q->engine.dtype), q->gpu ? q->gpu->product : q->engine.api->name);
	printf("operations reach %.4g TFLOP/s and %.4g GB/s of memory, %.3g of the peaks", m->flops / 1e12,
	       m->bandwidth / 1e9, m->flops / m->peak);
	if (m->host_ranks > 1)
		printf("; %d ranks of a host: %.4g us, %.4g GB/s", m->host_ranks, m->within.latency * 1e6,
		       m->within.rate / 1e9);
	if ((int64_t)q->options->ranks > m->host_ranks)
		printf("; between hosts: %.4g us, %.4g GB/s", m->between.latency * 1e6, m->between.rate / 1e9);
	puts("");
}

plan_unit plan_unit_of(double most)
{
	return most < 1e9 ? (plan_unit){"MB", 1e6} : (plan_unit){"GB", 1e9};
}

static void print_row(int number, const plan_mesh_row *row, plan_unit unit)
{
	const plan_mesh *mesh = &row->mesh;
	const plan_mesh_time *t = &row->time;
	char axes[96], schedule[32] = "-", batches[32];
	plan_mesh_text(mesh, axes, sizeof(axes));
	if (mesh->pipeline > 1)
		snprintf(schedule, sizeof(schedule), mesh->chunks > 1 ? "%s x%d" : "%s", mesh->schedule, mesh->chunks);
	snprintf(batches, sizeof(batches), "%" PRId64 " x %d", mesh->batch, mesh->micro_batches);
	if (mesh->sequence)
		bt_append(axes, sizeof(axes), " sequence");
	printf("%3d%c %-42s %-8s %10s  %-14s %-9s %10.1f %10.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.3f %6.1f\n",
	       number, plan_mesh_runs(mesh) ? ' ' : '~', axes, mesh->strategy, batches, schedule,
	       engine_recompute_name(mesh->recompute), t->total * 1e3, t->compute * 1e3, t->tensor * 1e3,
	       t->context * 1e3, t->gathers * 1e3, t->pipeline * 1e3, t->data * 1e3, t->update * 1e3,
	       row->memory.total / unit.bytes, t->utilization * 100);
}

static bool is_alike(const plan_mesh *a, const plan_mesh *b)
{
	return a->pipeline == b->pipeline && a->replicate == b->replicate && a->shard == b->shard &&
	       a->context == b->context && a->tensor == b->tensor && a->sequence == b->sequence &&
	       strcmp(a->strategy, b->strategy) == 0;
}

/* Whether a faster row has the same axes and strategy. */
static bool has_faster(const plan_found *found, int row)
{
	for (int i = 0; i < row; i++)
		if (is_alike(&found->rows[i].mesh, &found->rows[row].mesh))
			return true;
	return false;
}

/* Finds the next row that is the fastest of its mesh and strategy; found->count: none. */
static int next_row(const plan_found *found, int row)
{
	while (row < found->count && has_faster(found, row))
		row++;
	return row;
}

static plan_unit unit_of_rows(const plan_found *found, int rows)
{
	double most = 0;
	for (int i = next_row(found, 0); i < found->count && rows > 0; i = next_row(found, i + 1), rows--)
		most = found->rows[i].memory.total > most ? found->rows[i].memory.total : most;
	return plan_unit_of(most);
}

static void print_rows(const plan_found *found, int rows)
{
	const plan_unit unit = unit_of_rows(found, rows);
	bool marked = false;
	int printed = 0;
	printf("\n     %-42s %-8s %10s  %-14s %-9s %10s %10s %8s %8s %8s %8s %8s %8s %8s %6s\n", "--mesh", "strategy",
	       "batches", "schedule", "recompute", "step, ms", "compute", "tensor", "context", "gathers", "pipeline",
	       "data", "update", unit.name, "MFU, %");
	for (int i = next_row(found, 0); i < found->count && printed < rows; i = next_row(found, i + 1)) {
		print_row(++printed, &found->rows[i], unit);
		marked = marked || !plan_mesh_runs(&found->rows[i].mesh);
	}
	printf("(%d combination%s of %d that were tried fit%s; a row is the fastest of a mesh with its strategy)\n",
	       found->count, bt_plural((uint64_t)found->count), found->considered, found->count == 1 ? "s" : "");
	if (marked)
		puts("~: dtrain-ffcv does not run this schedule or axis");
}

static void print_refusals(const plan_costs *costs, const plan_found *found)
{
	for (int i = 0; i < found->num_refusals; i++) {
		const plan_refusal *refusal = &found->refusals[i];
		const plan_mesh_row *closest = &refusal->closest;
		char axes[96];
		if (i == 0)
			puts("\nnot possible:");
		printf("%6d: %s", refusal->count, refusal->reason);
		plan_mesh_text(&closest->mesh, axes, sizeof(axes));
		const plan_unit unit = plan_unit_of(refusal->most);
		if (closest->memory.total > 0)
			printf(", %.2f to %.2f %s; %.2f %s too much for %s with batches of %" PRId64,
			       closest->memory.total / unit.bytes, refusal->most / unit.bytes, unit.name,
			       (closest->memory.total - costs->machine->memory) / unit.bytes, unit.name, axes,
			       closest->mesh.batch);
		puts("");
	}
}

static void print_device(const run_device_choice *device)
{
	printf(" --device %s", device->name);
	if (device->index >= 0)
		printf(":%" PRId32, device->index);
}

static void print_command(const plan_question *q, const plan_mesh *mesh)
{
	const plan_options *o = q->options;
	static const char *const precisions[] = {"f32", "bf16", "fp16"};
	const dtrain_dtype dtype = q->engine.dtype;
	char axes[96];
	plan_mesh_text(mesh, axes, sizeof(axes));
	printf("\ndtrain-ffcv --world-size %" PRIu64 " --model %s --mesh %s --strategy %s", o->ranks, o->example.model,
	       axes, mesh->strategy);
	if (mesh->shard > 1 && mesh->replicate > 1)
		printf(" --shard %d", mesh->shard);
	if (mesh->sequence)
		printf(" --sequence-parallel");
	printf(" --batch-size %" PRId64 " --accumulate %d", mesh->batch, mesh->micro_batches);
	if (mesh->pipeline > 1)
		printf(" --pipeline-schedule %s", mesh->schedule);
	if (mesh->chunks > 1)
		printf(" --pipeline-chunks %d", mesh->chunks);
	if (mesh->recompute != DTRAIN_RECOMPUTE_NONE)
		printf(" --recompute %s", engine_recompute_name(mesh->recompute));
	printf(" --optimizer %s", q->example.job.optimizer);
	if (dtype != DTRAIN_F32 || o->precision == ENGINE_PRECISION_TF32)
		printf(" --precision %s", dtype == DTRAIN_F32 ? "tf32" : precisions[dtype == DTRAIN_BF16 ? 1 : 2]);
	if (!q->gpu && strcmp(o->device.name, "auto") != 0)
		print_device(&o->device);
	if (o->example.context_length)
		printf(" --context-length %" PRId64, o->example.context_length);
	if (o->example.image_size)
		printf(" --image-size %" PRId64, o->example.image_size);
	if (o->example.classes)
		printf(" --classes %" PRId64, o->example.classes);
	if (q->example.job.task == &lm_task && q->example.job.transformer->type == DTRAIN_TRANSFORMER_BERT)
		printf(" --mask-token TOKEN");
	puts(" --data FILE");
}

static int print_answer(const plan_question *q, plan_costs *costs, const plan_mesh_options *meshes, bool *fits,
			beton_error *err)
{
	plan_search_options search = meshes->search;
	plan_found found;
	search.ranks = (int32_t)q->options->ranks;
	int status = plan_search(costs, &search, &found, err);
	*fits = found.count > 0;
	if (status == BETON_OK) {
		int best = 0;
		print_heading(q, costs, meshes);
		if (found.count)
			print_rows(&found, meshes->rows);
		print_refusals(costs, &found);
		while (best < found.count && !plan_mesh_runs(&found.rows[best].mesh))
			best++;
		if (meshes->explain && found.count)
			plan_mesh_explain(costs, &found.rows[0]);
		if (best < found.count)
			print_command(q, &found.rows[best].mesh);
		else
			printf("\nno mesh of %" PRIu64 " rank%s fits%s", q->options->ranks,
			       bt_plural(q->options->ranks), found.count ? " that dtrain-ffcv runs\n" : "");
	}
	if (status == BETON_OK && !found.count)
		status = plan_mesh_cures(costs, &search, err);
	plan_found_close(&found);
	return status;
}

int plan_mesh_answer(const plan_options *options, const plan_mesh_options *meshes, bool *fits, beton_error *err)
{
	plan_question question;
	plan_machine machine;
	plan_measured_step step;
	plan_costs costs = {0};
	*fits = true;
	int status = check_axes(options, &meshes->search.axes, err);
	if (status != BETON_OK)
		return status;
	status = plan_question_open(&question, options, err);
	if (status == BETON_OK)
		status = open_machine(&question, meshes, &machine, &step, err);
	if (status == BETON_OK)
		status = plan_costs_open(&costs, &question, &machine, err);
	if (status == BETON_OK && meshes->measured_step)
		status = take_efficiency(&costs, &machine, &step, meshes->measured_step, err);
	if (status == BETON_OK)
		status = print_answer(&question, &costs, meshes, fits, err);
	if (status == BETON_OK && fflush(stdout) != 0)
		status = bt_fail_errno(err, errno, "standard output");
	plan_costs_close(&costs);
	plan_question_close(&question);
	return status;
}
